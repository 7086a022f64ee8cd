"""`twintrace.loops.transformers`: what the real Trainer does is recorded by its steps."""

from __future__ import annotations

import warnings

import pytest

import twintrace as tt
from twintrace.model.sites import Kind, Phase

pytestmark = [pytest.mark.needs_torch, pytest.mark.filterwarnings("ignore")]  # the libraries' own
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from twintrace.loops.transformers import RecordCallback  # noqa: E402 - only where the library is

MIX = {"level": "mix", "keep": "tensor"}


def model(dropout=0.1):
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 32, "n_positions": 16}
    drops = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **drops, bos_token_id=0, eos_token_id=0))


def rows(count):
    tokens = torch.randint(0, 32, (count, 8), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": row} for row in tokens]


def train(folder, path, *, resume=None, record=None, steps=4, dropout=0.1, **options):
    """A training of the real Trainer, recorded to `path`."""
    args = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        max_steps=steps,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        **{"save_strategy": "no", "learning_rate": 1e-2} | options,
    )
    callback = RecordCallback(path, **{"level": "module", "strict": True} | (record or {}))
    trainer = transformers.Trainer(
        model(dropout), args, train_dataset=rows(64), eval_dataset=rows(4), callbacks=[callback]
    )
    trainer.train(resume_from_checkpoint=resume)
    assert callback.recorder is None
    return tt.open(path)


def runs_of(trace, step, name="", phase=Phase.FORWARD):
    sites = [call.site for call in trace.journal(step).calls()]
    return sum(site.kind is Kind.MODULE and site.name == name and site.phase is phase for site in sites)


def test_steps_are_those_of_the_optimizer(tmp_path):
    """Batches whose gradients are accumulated are one step, and evaluation is in none."""
    options = {"gradient_accumulation_steps": 3, "eval_strategy": "steps", "eval_steps": 1}
    trace = train(tmp_path / "out", tmp_path / "t", record={"level": "mix"}, steps=2, **options)
    assert trace.steps == (0, 1)
    assert [runs_of(trace, step) for step in trace.steps] == [3, 3]
    updates = [[c for c in trace.journal(step).calls() if c.site.phase is Phase.UPDATE] for step in trace.steps]
    assert all(len(found) == 1 for found in updates)


def test_a_training_that_goes_on_is_the_one_that_never_stopped(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 2, "lr_scheduler_type": "constant"}
    train(tmp_path / "one", tmp_path / "whole", **saving)
    train(tmp_path / "two", tmp_path / "parts", steps=2, **saving)
    parts = train(tmp_path / "two", tmp_path / "parts", resume=str(tmp_path / "two" / "checkpoint-2"), **saving)
    assert parts.steps == (0, 1, 2, 3)
    assert tt.compare(tmp_path / "whole", tmp_path / "parts").code == 0


def test_steps_that_are_done_again_are_told(tmp_path):
    saving = {"save_strategy": "steps", "save_steps": 2, "lr_scheduler_type": "constant"}
    train(tmp_path / "out", tmp_path / "t", steps=3, **saving)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trace = train(tmp_path / "out", tmp_path / "t", resume=str(tmp_path / "out" / "checkpoint-2"), **saving)
    assert trace.steps == (0, 1, 2, 3)
    assert sum("step 2 is in" in str(item.message) for item in told) == 1


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"learning_rate": 2e-2}, "lr: 0.01 | 0.02"),
        ({"data_seed": 7}, "the two start from different data"),
        ({"max_grad_norm": 0.01}, "1.0 | 0.01"),
    ],
    ids=["rate", "data", "clipping"],
)
def test_a_planted_mistake_is_named(tmp_path, options, what):
    train(tmp_path / "out", tmp_path / "a", steps=1, record=MIX)
    train(tmp_path / "out", tmp_path / "b", steps=1, record=MIX, **options)
    found = tt.compare(tmp_path / "a", tmp_path / "b")
    assert found.code == 1
    assert what in str(found)


def test_mixed_precision(tmp_path):
    """What autocast does in 16 bits is recorded as such, and differs from 32 by rounding alone."""
    single = train(tmp_path / "out", tmp_path / "a", steps=1, record=MIX, dropout=0.0)
    mixed = train(tmp_path / "out", tmp_path / "b", steps=1, record=MIX, dropout=0.0, bf16=True)
    dtypes = {tensor.spec.dtype for tensor in mixed.journal(0).tensors()}
    assert {"f32", "bf16"} <= dtypes
    found = tt.compare(single, mixed)
    assert found.code == 0, str(found)


def test_checkpointed_layers(tmp_path):
    """Layers that are computed again in the backward pass change no bit, and are told from the first time."""
    plain = train(tmp_path / "out", tmp_path / "a", steps=2)
    again = train(tmp_path / "out", tmp_path / "b", steps=2, gradient_checkpointing=True)
    assert runs_of(again, 0, "transformer.h.0.mlp.c_fc", Phase.RECOMPUTE) == 1
    assert runs_of(plain, 0, "transformer.h.0.mlp.c_fc", Phase.RECOMPUTE) == 0
    assert tt.compare(plain, again).code == 0


def test_a_training_that_raises_leaves_nothing(tmp_path):
    def fails(net):
        net.lm_head.register_forward_hook(lambda *_: 1 / 0)

    callback = RecordCallback(tmp_path / "t", level="module")
    net = model()
    fails(net)
    before = sum(len(module._forward_hooks) for module in net.modules())
    args = transformers.TrainingArguments(output_dir=str(tmp_path / "out"), max_steps=1, use_cpu=True, report_to=[])
    trainer = transformers.Trainer(net, args, train_dataset=rows(8), callbacks=[callback])
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    callback.close()
    assert sum(len(module._forward_hooks) for module in net.modules()) == before


def test_options_that_the_loop_says_itself(tmp_path):
    with pytest.raises(tt.UsageError, match="resume: the loop says it itself"):
        RecordCallback(tmp_path / "t", resume=True)
