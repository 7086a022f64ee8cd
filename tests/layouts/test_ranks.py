"""A run on one rank beside runs on several: right layouts agree, mistakes are named with rank, call and cause."""

import sys
from pathlib import Path

import pytest

import twintrace as tt
from twintrace.model.values import Token

pytestmark = pytest.mark.needs_torch
pytest.importorskip("torch")


def _world(name: str) -> int:
    """Ranks of a case; those of one rank are recorded together with those of two."""
    return int(name[-1]) if name[-1].isdigit() else 2


def _beside(name: str) -> str:
    """The run on one rank that a case is compared with."""
    if name in DROPOUT:
        return "one dropout"
    if name in TIED or name.startswith("tied"):
        return "tied"
    if name in CONTEXT or name.startswith(("context", "ring")):
        return "attention"
    if name.startswith(("numbered experts", "the first experts")):
        return "mixture"
    return "experts" if name in EXPERTS or name.startswith("expert parallel") else "one"


def _everything(found) -> str:
    first = found.first
    assert first is not None
    calls = " ".join(str(call.site) + " " + call.site.path for side in first.calls for call in side)
    return f"{calls} {first.mistake.what} {first.mistake.why}"


FAST = (
    "megatron 2",
    "data 2",
    "bias on every rank 2",
    "gradients not reduced 2",
    "vocabulary 2",
    "pipeline 2",
    "accumulated",
)


def test_tensor_and_data_parallel_agree(runs):
    out = runs(2, *FAST)
    for name in FAST[:2]:
        found = tt.compare(out / "one", out / name)
        assert found.code == 0, (name, found.untold, found.first)
        assert any("2 ranks put together (2)" in remark for remark in found.remarks)


def test_calls_of_single_ranks_are_recomputed(runs):
    """Rows of a vocabulary that a rank has, and columns of its logits: no tensor of these calls is one of the whole."""
    out = runs(2, *FAST)
    assert tt.compare(out / "one", out / "vocabulary 2").code == 0


def test_stages_and_micro_batches_agree(runs):
    out = runs(2, *FAST)
    found = tt.compare(out / "one", out / "pipeline 2")
    assert found.code == 0, (found.untold, found.first)
    assert any("2 ranks of 2 micro-batches put together (2 × 2)" in remark for remark in found.remarks)
    found = tt.compare(out / "accumulated", out / "one")
    assert found.code == 0, (found.untold, found.first)
    assert any("2 micro-batches put together (2)" in remark for remark in found.remarks)


def test_the_run_on_several_ranks_may_be_the_left_one(runs):
    out = runs(2, *FAST)
    assert tt.compare(out / "megatron 2", out / "one").code == 0


def test_a_bias_on_every_rank(runs):
    out = runs(2, *FAST)
    found = tt.compare(out / "one", out / FAST[2])
    assert found.code == 1
    told = _everything(found)
    assert "blocks.1.down" in told
    assert "the bias is added on every rank before the reduction" in told


def test_gradients_that_are_not_reduced(runs):
    """The mean of the ranks' updates is the update of the mean: it must not pass for it."""
    out = runs(2, *FAST)
    found = tt.compare(out / "one", out / FAST[3])
    assert found.code == 1
    assert "the ranks update their copies of a weight with different gradients: embedding.weight" in _everything(found)


def test_ranks_one_by_one_if_asked(runs):
    out = runs(2, *FAST)
    assert tt.compare(out / "one", out / "megatron 2", layout="ranks").code == 1


def test_two_runs_of_the_same_ranks_are_compared_rank_by_rank(runs):
    out = runs(2, *FAST)
    found = tt.compare(out / "data 2", out / "data 2")
    assert found.code == 0
    assert {result.rank for result in found.results} == {0, 1}


RIGHT = (
    "ddp 2",
    "dtensor 2",
    "sequence 2",
    "fsdp 2",
    "vocabulary 2",
    "vocabulary 4",
    "accumulated",
    "accumulated four times",
    "pipeline of one batch 2",
    "pipeline 2",
    "pipeline 4",
    "expert parallel 2",
    "expert parallel 4",
    "tied pipeline 2",
    "accumulated and data 2",
    "pipelines and data 4",
    "megatron 8",
    "tensor and data of eight 8",
    "pipelines and data 8",
    "megatron 4",
    "dtensor 4",
    "data 4",
    "ddp 4",
    "tensor and data 4",
    "context 2",
    "context 4",
    "ring 2",
    "ring 4",
    "gpipe 2",
    "gpipe 4",
    "one forward one backward 2",
    "one forward one backward 4",
    "numbered stages 2",
    "tied pipeline 4",
    "an additional reduction without effect 2",
)
EXPERTS = {
    "experts of another rank 2": ("experts",),
    "not put back in order 2": ("experts", "mean something else"),
    "score twice 2": ("experts", "mean something else"),
    "experts' gradients added up 2": ("torch.optim.SGD.step", "2 times the gradient of experts.weight", "not divided"),
    "router's gradient not reduced 2": ("torch.optim.SGD.step", "experts.router.weight", "not reduced"),
}
TIED = {
    "tied weights not reduced over the stages 2": (
        "embedding.weight, head.weight is one weight on ranks 0, 1",
        "not added up",
    ),
    "tied weights not reduced over the stages 4": (
        "embedding.weight, head.weight is one weight on ranks 0, 3",
        "not added up",
    ),
}
CONTEXT = {
    "mask of the first rank everywhere 2": ("scaled_dot_product_attention", "torch.Tensor.le"),
    "keys of the own positions alone 2": ("attention", "mean something else"),
    "gradients of keys not added up 2": ("attention", "keeps its own part of the gradient", "behind the gathering"),
    "head not reduced over the positions 2": ("torch.optim.SGD.step", "head.bias", "not reduced"),
    "parts of the softmax not rescaled 2": ("attention", "mean something else"),
}
DROPOUT = {
    "dropout with one seed 2": ("blocks.1", "drops the same elements on all of 2 ranks", "the same seed"),
}
WRONG = (
    EXPERTS
    | TIED
    | CONTEXT
    | DROPOUT
    | {
        "a row without a reduction 4": ("blocks.1.down", "only ranks 0, 1 call torch.distributed.all_reduce"),
        "backward over the wrong group 4": ("blocks.1.up", "the gradient is reduced over the wrong group"),
        "activations broadcast 2": ("blocks.1", "only the right adds f32[6, 2, 8]"),
        "an additional reduction of one gradient 2": ("torch.distributed.all_reduce", "multiplies by 2"),
        "an update behind on rank 1 2": ("torch.optim.SGD.step", "only rank 0 calls", "rank 1 behind, or rank 0 ahead"),
        "an update ahead on rank 1 2": ("torch.optim.SGD.step", "only rank 1 calls", "rank 0 behind, or rank 1 ahead"),
        "gradients not scaled 2": ("torch.optim.SGD.step", "4 times the gradient of the batch"),
        "a block twice 2": ("blocks.1", "mean something else"),
        "the first experts on every rank 2": ("mixture", "mean something else"),
        "bias on every rank 2": ("blocks.1.down", "the bias is added on every rank before the reduction"),
        "gradients not reduced 2": ("torch.optim.SGD.step", "embedding.weight", "not reduced"),
        "swapped rows 2": ("blocks.1.down", "rank 0 has piece 1, rank 1 has piece 0"),
        "reduced twice 2": ("blocks.1.down", "the same on 2 ranks: 2 times as large", "reduced twice"),
        "gradient reduced twice 2": ("torch.distributed.all_reduce", "adds up a gradient that is the same on 2 ranks"),
        "first row of a rank off by one 2": ("embedding", "mean something else"),
        "micro-batches in another order 2": ("torch.Tensor.flatten", "in another order"),
        "gradient of a micro-batch lost 2": ("only micro-batch 1 sends a gradient back to blocks.0.down.bias",),
        "positions kept and not added up 2": ("blocks.1.down", "a reduction over the ranks is missing"),
        "updated after each micro-batch": (
            "embedding.weight changes between the micro-batches",
            "after each micro-batch",
        ),
        "gradients cleared between micro-batches": ("micro-batch 1 alone", "cleared between the micro-batches"),
        "other learning rate on rank 1 2": ("torch.optim.SGD.step", "another lr: 0.1 | 0.11 (rank 1)"),
        "one gradient not reduced 2": ("torch.optim.SGD.step", "blocks.0.norm.bias", "not reduced"),
        "ddp averaged again 2": ("torch.Tensor.div_", "only the right divides by 2"),
        "ddp of sums 2": ("torch.nn.functional.cross_entropy", "reduction: 'mean' | 'sum'"),
        "ddp without a sampler 2": ("embedding", "do not have the same shape"),
        "copied bias added up 2": ("torch.distributed.all_reduce", "multiplies by 2"),
        "weights drift on rank 1 2": ("torch.optim.SGD.step", "head.weight"),
        "other weights on rank 1 later 2": ("head.weight", "rank 1 has other values", "since step 1"),
        "a batch ahead on rank 1 2": ("rank 1 has other values",),
        "a collective of some ranks 4": ("torch.distributed.all_reduce", "only ranks 0, 1 call"),
        "reduced over the wrong group 4": ("blocks.1.down", "reduced over the wrong group"),
        "fsdp added up 2": ("torch.Tensor.mul_", "only the right multiplies by 2"),
        "loss of each micro-batch": (
            "torch.optim.SGD.step",
            "2 times the gradient of the batch",
            "not divided by their number",
        ),
        "micro-batches added 2": (
            "torch.optim.SGD.step",
            "2 times the gradient of the batch",
            "not divided by their number",
        ),
        "scaled on the way 2": ("torch.Tensor.mul", "only the right multiplies by 1.01"),
        "divided again 2": ("blocks.0", "it is 0.5 times that", "on its way between two stages"),
        "no reduction 2": ("blocks.1.down", "no collective adds them up", "a reduction over the ranks is missing"),
        "no reduction of the gradient 2": ("blocks.1.up", "a reduction of the gradient over the ranks is missing"),
        "swapped shards 2": ("blocks.1.up", "rank 0 has piece 1, rank 1 has piece 0"),
        "divided by the ranks 2": ("blocks.1.down", "only the right divides by 2"),
        "averaged twice 2": ("torch.Tensor.div_", "only the right divides by 2"),
        "summed, not averaged 2": ("torch.distributed.all_reduce", "multiplies by 2"),
        "other weights on rank 1 2": ("blocks.0.up.weight", "rank 1 has other values"),
        "other data on rank 1 2": ("torch.Tensor.chunk", "rank 1 has other values"),
        "one rank scales 2": ("not the same on all ranks: rank 1",),
        "norms not reduced over the sequence 2": ("torch.optim.SGD.step", "blocks.0.norm.weight", "not reduced"),
        "rows of others not masked 2": ("embedding", "mean something else"),
        "denominator not reduced 2": ("torch.Tensor.sum", "no collective adds them up"),
        "fsdp averaged again 2": ("torch.Tensor.div_", "divides by 2"),
        "gradients reduced over the wrong group 4": ("torch.optim.SGD.step", "not reduced"),
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_right_layouts_agree(name, runs):
    out = runs(_world(name))
    found = tt.compare(out / _beside(name), out / name)
    assert found.code == 0, (found.untold, found.first)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_named(name, runs):
    out = runs(_world(name))
    found = tt.compare(out / _beside(name), out / name)
    assert found.code == 1
    told = _everything(found)
    assert all(word in told for word in WRONG[name]), told


@pytest.mark.slow
@pytest.mark.parametrize("name", ["numbered experts 2", "numbered experts 4"])
def test_experts_that_each_rank_counts_from_nought_are_not_accused(name, runs):
    """Expert 0 of each rank is another module: what cannot be told of them is said, and nobody is blamed."""
    out = runs(_world(name))
    found = tt.compare(out / "mixture", out / name)
    assert found.code == 3, found.first
    assert any("number their modules anew" in text for text in found.remarks)


TWO = (
    ("megatron 2", "data 2"),
    ("megatron 2", "megatron 4"),
    ("data 2", "megatron 4"),
    ("fsdp 2", "ddp 2"),
    ("fsdp 2", "ddp 4"),
    ("pipeline 2", "megatron 2"),
    ("megatron 2", "pipeline 4"),
    ("tensor and data 4", "pipeline 2"),
    ("vocabulary 2", "dtensor 4"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("left", "right"), TWO)
def test_two_layouts_agree(left, right, runs):
    """Neither is the run on one rank: the weights are what pieces of both sides make up."""
    out = runs(_world(left))
    runs(_world(right))
    found = tt.compare(out / left, out / right)
    assert found.code == 0, (found.untold, found.first)
    assert sum("put together" in remark for remark in found.remarks) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["largest logit not reduced 2", "targets of others not masked 2"])
def test_a_loss_that_differs_is_no_agreement(name, runs):
    """Neither side has a call like the other's: it is said that the two compute other losses, and no call is blamed."""
    found = tt.compare(runs(2) / "one", runs(2) / name)
    assert found.code == 1
    assert any("cross_entropy" in text for text in (*found.lone, *found.untold))


@pytest.mark.slow
def test_a_mistake_beside_another_layout(runs):
    out = runs(2)
    runs(4)
    assert "a reduction over the ranks is missing" in _everything(
        tt.compare(out / "megatron 4", out / "no reduction 2")
    )


@pytest.mark.slow
def test_the_same_layout_put_together_if_asked(runs):
    out = runs(2)
    found = tt.compare(out / "ddp 2", out / "data 2", layout="whole")
    assert found.code == 0
    assert {result.rank for result in found.results} == {0}


@pytest.mark.slow
def test_gradients_that_nothing_is_seen_to_reduce(runs, tmp_path, monkeypatch):
    """Their sum is right, and nothing says that anybody takes it."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    for name in ("cases", "nets"):  # other rooms' tests have modules of these names
        monkeypatch.delitem(sys.modules, name, raising=False)
    import cases
    import nets

    nets.train(nets.whole(), nets.batches()[:1], str(tmp_path / "one"), optimizer=cases._NoUpdate())
    found = tt.compare(tmp_path / "one", runs(2) / "no update 2")
    assert found.code == 3
    assert any("neither a reduction nor an update was recorded" in text for text in found.untold)


@pytest.mark.slow
def test_collectives_are_recorded_with_group_and_result(runs):
    """A process group by its ranks; a functional collective when its result is there."""
    out = runs(4)
    trace = tt.open(out / "tensor and data 4")
    groups = [
        {
            value.text
            for call in trace.journal(0, rank).calls()
            for value in call.kwargs.values()
            if isinstance(value, Token)
        }
        for rank in range(4)
    ]
    assert groups == [{"0,1", "0,2"}, {"0,1", "1,3"}, {"2,3", "0,2"}, {"2,3", "1,3"}]
    trace = tt.open(out / "dtensor 4")
    bits = []
    for rank in range(4):
        journal = trace.journal(0, rank)
        calls = [call for call in journal.calls() if call.site.name.startswith("_c10d_functional.all_reduce")]
        bits.append([journal.tensor(call.output.id).fingerprint for call in calls])
    assert bits[0]
    assert all(item == bits[0] for item in bits)
