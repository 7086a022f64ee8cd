"""`twintrace.loops.lightning`: what the real Trainer does is recorded by its steps."""

from __future__ import annotations

import pytest

import twintrace as tt
from twintrace.model.sites import Kind, Phase

pytestmark = [pytest.mark.needs_torch, pytest.mark.filterwarnings("ignore")]  # the library's own
torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch")

from twintrace.loops.lightning import RecordCallback  # noqa: E402 - only where the library is


class Net(lightning.LightningModule):
    """A classifier; `rate` and `accumulated` are what may be mistaken."""

    def __init__(self, rate=0.1):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Dropout(0.1))
        self.head = torch.nn.Linear(8, 3)
        self.rate = rate

    def training_step(self, batch, index):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.head(self.body(x)), y)

    def validation_step(self, batch, index):
        return self.training_step(batch, index)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.rate)


class Pair(lightning.LightningModule):
    """A generator and its critic, each with an optimizer of its own."""

    def __init__(self, slope=0.2):
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.generator, self.critic, self.slope = torch.nn.Linear(4, 6), torch.nn.Linear(6, 1), slope

    def training_step(self, batch, index):
        x, _ = batch
        one, two = self.optimizers()
        real = self.critic(x).mean()
        fake = self.critic(torch.nn.functional.leaky_relu(self.generator(x[:, :4]).detach(), self.slope)).mean()
        two.zero_grad()
        self.manual_backward(fake - real)
        two.step()
        one.zero_grad()
        self.manual_backward(-self.critic(torch.nn.functional.leaky_relu(self.generator(x[:, :4]), self.slope)).mean())
        one.step()

    def configure_optimizers(self):
        return torch.optim.Adam(self.generator.parameters()), torch.optim.Adam(self.critic.parameters())


class Seeded(lightning.Callback):
    """Dropout draws the same in a step, whichever process it is in."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        torch.manual_seed(trainer.global_step)


def loader():
    drawn = torch.Generator().manual_seed(1)
    x, y = torch.randn(24, 6, generator=drawn), torch.randint(0, 3, (24,), generator=drawn)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)


def train(path, net=None, *, ckpt_path=None, folder=None, record=None, **options):
    callback = RecordCallback(path, **{"level": "mix", "keep": "tensor", "strict": True} | (record or {}))
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=folder,
        callbacks=[Seeded(), callback],
        **{"max_epochs": 1} | options,
    )
    trainer.fit(net or Net(), loader(), loader() if "val_check_interval" in options else None, ckpt_path=ckpt_path)
    assert callback.recorder is None
    return tt.open(path), trainer


def calls_of(trace, step, name):
    sites = [call.site for call in trace.journal(step).calls()]
    return sum(site.kind is Kind.MODULE and site.name == name and site.phase is Phase.FORWARD for site in sites)


def test_steps_are_those_of_the_optimizer(tmp_path):
    """Batches whose gradients are accumulated are one step, and validation is in none, even if it comes between them."""
    trace, _ = train(tmp_path / "t", accumulate_grad_batches=3, val_check_interval=2)
    assert trace.steps == (0, 1)
    assert [calls_of(trace, step, "head") for step in trace.steps] == [3, 3]
    for step in trace.steps:
        assert sum(call.site.phase is Phase.UPDATE for call in trace.journal(step).calls()) == 1


def test_a_training_that_goes_on_is_the_one_that_never_stopped(tmp_path):
    record = {"level": "module", "keep": "fingerprint"}
    _, trainer = train(tmp_path / "parts", record=record)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    parts, _ = train(tmp_path / "parts", record=record, ckpt_path=tmp_path / "one.ckpt", max_epochs=2)
    assert parts.steps == tuple(range(12))
    train(tmp_path / "whole", record=record, max_epochs=2)
    found = tt.compare(tmp_path / "whole", tmp_path / "parts")
    assert found.code == 0, str(found)


@pytest.mark.parametrize(
    ("nets", "what"),
    [
        ((Net(), Net(rate=0.2)), "lr: 0.1 | 0.2"),
        ((Pair(), Pair(slope=0.02)), "negative_slope: 0.2 | 0.02"),
    ],
    ids=["rate", "generator"],
)
def test_a_planted_mistake_is_named(tmp_path, nets, what):
    for name, net in zip("ab", nets, strict=True):
        train(tmp_path / name, net, limit_train_batches=2)
    found = tt.compare(tmp_path / "a", tmp_path / "b")
    assert found.code == 1
    assert what in str(found)


def test_several_optimizers_are_counted_as_lightning_does(tmp_path):
    trace, _ = train(tmp_path / "t", Pair(), limit_train_batches=3)
    assert trace.steps == (0, 2, 4)


def test_mixed_precision(tmp_path):
    trace, _ = train(tmp_path / "t", precision="bf16-mixed", limit_train_batches=1)
    assert {"f32", "bf16"} <= {tensor.spec.dtype for tensor in trace.journal(0).tensors()}


def test_a_training_that_raises_leaves_nothing(tmp_path):
    net = Net()
    net.head.register_forward_hook(lambda *_: 1 / 0)
    before = sum(len(module._forward_hooks) for module in net.modules())
    with pytest.raises(ZeroDivisionError):
        train(tmp_path / "t", net, record={"strict": False})
    assert sum(len(module._forward_hooks) for module in net.modules()) == before
