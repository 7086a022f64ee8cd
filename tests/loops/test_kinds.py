"""Trainings that are more than one network and one optimizer: a run and its repetition agree, and a planted mistake is named."""

from __future__ import annotations

import pytest

import twintrace as tt

pytestmark = [pytest.mark.needs_torch, pytest.mark.filterwarnings("ignore")]  # the libraries' own: deprecated, or beta
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - only where it is
from torch.nn import functional as F  # noqa: E402

OPTIONS = {"level": "mix", "keep": "tensor", "strict": True}


@pytest.fixture(autouse=True, scope="module")
def group():
    """One process that is a group of its own."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def rows(*shape, scale=1.0):
    count = torch.Size(shape).numel()
    return torch.linspace(-scale, scale, count).reshape(shape)


def several_models(path, beta=0.5):
    """A generator and a critic, each with its optimizer."""
    up = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 6))
    critic = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    one = torch.optim.Adam(up.parameters(), betas=(0.5, 0.9))
    two = torch.optim.Adam(critic.parameters(), betas=(beta, 0.9))
    with tt.record(path, {"generator": up, "critic": critic}, **OPTIONS) as rec:
        for _ in range(2):
            two.zero_grad()
            fake, real = critic(up(rows(5, 4)).detach()), critic(rows(5, 6))
            (F.softplus(fake) + F.softplus(-real)).mean().backward()
            two.step()
            one.zero_grad()
            F.softplus(-critic(up(rows(5, 4)))).mean().backward()
            one.step()
            rec.step()


def user_hooks(path, factor=2):
    """A hook of the user's own that changes a result."""
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    net[1].register_forward_hook(lambda module, inputs, output: output * factor)
    with tt.record(path, net, **OPTIONS):
        net(rows(3, 4)).square().sum().backward()


def adapters(path, alpha=8):
    """Low-rank adapters of peft."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, lora_alpha=alpha, target_modules=["0", "2"], init_lora_weights=False)
    net = peft.get_peft_model(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), config)
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.05)
    with tt.record(path, net, **OPTIONS) as rec:
        for _ in range(2):
            optimizer.zero_grad()
            net(rows(2, 6)).square().mean().backward()
            optimizer.step()
            rec.step()


class Quantised(nn.Module):
    """A layer whose weight is kept in eight bits, with a scale for each row."""

    def __init__(self, layer, stretched=1.0):
        super().__init__()
        weight = layer.weight.detach()
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale * stretched)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype) * self.scale)


def quantised(path, stretched=1.0):
    net = nn.Sequential(Quantised(nn.Linear(6, 4)), nn.ReLU(), Quantised(nn.Linear(4, 2), stretched))
    with tt.record(path, net, **OPTIONS):
        net(rows(2, 6))


def packed(path, scale=None):
    """Layers that PyTorch has quantised itself: their weights are in an object of its own."""
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    net = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
    if scale is not None:
        weight, bias = net[2]._packed_params._weight_bias()
        net[2].set_weight_bias(torch.quantize_per_tensor(weight.dequantize(), scale, 0, torch.qint8), bias)
    with tt.record(path, net, **OPTIONS):
        net(rows(2, 6))


def sparse_gradients(path, rate=0.1):
    table, head = nn.Embedding(10, 4, sparse=True), nn.Linear(4, 2)
    one, two = torch.optim.SparseAdam(table.parameters(), lr=rate), torch.optim.SGD(head.parameters(), lr=0.1)
    with tt.record(path, [table, head], **OPTIONS) as rec:
        for _ in range(2):
            one.zero_grad()
            two.zero_grad()
            head(table(torch.tensor([[1, 2, 2], [3, 1, 9]]))).square().mean().backward()
            one.step()
            two.step()
            rec.step()


def jagged(path, eps=1e-5):
    net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6, eps=eps), nn.Linear(6, 2))
    parts = [rows(3, 4, scale=0.1), rows(5, 4, scale=0.2)]
    batch = torch.nested.nested_tensor(parts, layout=torch.jagged)
    with tt.record(path, net, **OPTIONS):
        net(batch).values().square().mean().backward()


class Numbers(torch.utils.data.Dataset):
    """Rows that are numbered from `first` on."""

    def __init__(self, first):
        self.first = first

    def __len__(self):
        return 8

    def __getitem__(self, place):
        return torch.full((4,), float(place + self.first))


def workers(path, first=0):
    """Data that other processes read."""
    net = nn.Linear(4, 2)
    with tt.record(path, net, **OPTIONS) as rec:
        for batch in torch.utils.data.DataLoader(Numbers(first), batch_size=4, num_workers=2):
            net(batch).square().mean().backward()
            rec.step()


def sharded(path, eps=1e-5):
    """FSDP2: parameters are shards, and are gathered for each layer."""
    from torch.distributed.fsdp import fully_shard

    net = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6, eps=eps), nn.Linear(6, 2))
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    for module in (*net, net):
        fully_shard(module, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    with tt.record(path, net, **OPTIONS) as rec:
        for _ in range(2):
            optimizer.zero_grad()
            net(rows(3, 4, scale=0.1)).square().mean().backward()
            optimizer.step()
            rec.step()


class Stage(nn.Module):
    """A part of a pipeline."""

    def __init__(self, slope):
        super().__init__()
        self.linear, self.slope = nn.Linear(6, 6), slope

    def forward(self, x):
        return F.leaky_relu(self.linear(x), self.slope)


def stages(path, slope=0.1):
    """Two stages of a pipeline in one process, and two small batches at a time."""
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

    modules = [Stage(0.1), Stage(slope)]
    parts = [PipelineStage(module, place, 2, torch.device("cpu")) for place, module in enumerate(modules)]
    schedule = ScheduleInterleaved1F1B(parts, 2, loss_fn=lambda found, wanted: (found - wanted).square().mean())
    with tt.record(path, {f"stage{place}": module for place, module in enumerate(modules)}, **OPTIONS) as rec:
        for _ in range(2):
            schedule.step(rows(4, 6), target=torch.zeros(4, 6))
            rec.step()


PLANTED = [
    (several_models, {"beta": 0.9}, "critic", "beta1: 0.5 | 0.9"),
    (user_hooks, {"factor": 3}, "torch.Tensor.mul in 1", "factor: 2 | 3"),
    (adapters, {"alpha": 4}, "base_model.model.0", "factor: 4.0 | 2.0"),
    (quantised, {"stretched": 1.5}, "torch.Tensor.mul in 2", "the right's is 1.5 times the left's"),
    (packed, {"scale": 0.2}, "quantized.linear_dynamic in 2", "the results differ"),
    (sparse_gradients, {"rate": 0.2}, "torch.optim.SparseAdam.step", "groups.0.lr: 0.1 | 0.2"),
    (jagged, {"eps": 1e-3}, "torch.nn.functional.layer_norm in 1", "eps: 1e-05 | 0.001"),
    (workers, {"first": 1}, "torch.nn.functional.linear", "moved by one along axis 0"),
    (sharded, {"eps": 1e-3}, "torch.nn.functional.layer_norm in 1", "eps: 1e-05 | 0.001"),
    (stages, {"slope": 0.3}, "torch.nn.functional.leaky_relu in stage1", "negative_slope: 0.1 | 0.3"),
]


@pytest.mark.parametrize(("run", "mistake", "where", "why"), PLANTED, ids=[case[0].__name__ for case in PLANTED])
def test_a_planted_mistake_is_named(tmp_path, run, mistake, where, why):
    torch.manual_seed(0)
    run(tmp_path / "warm")  # what PyTorch makes once in a process is not in the runs that are compared
    for name, options in (("right", {}), ("again", {}), ("wrong", mistake)):
        torch.manual_seed(0)
        run(tmp_path / name, **options)
    again = tt.compare(tmp_path / "right", tmp_path / "again")
    assert again.code == 0, str(again)
    found = tt.compare(tmp_path / "right", tmp_path / "wrong")
    assert found.code == 1
    assert where in str(found)
    assert why in str(found)


def test_a_sparse_gradient_is_kept_and_measured(tmp_path):
    """Its parts are in the trace; compared it is what it stands for."""
    torch.manual_seed(0)
    sparse_gradients(tmp_path / "t")
    journal = tt.open(tmp_path / "t").journal(0)
    gradient = next(item for item in journal.parameter_gradients() if item.slot == "0.weight")
    parts = journal.tensor(gradient.tensor).parts
    assert journal.array(journal.tensor(parts["indices"])).tolist() == [[1, 2, 2, 3, 1, 9]]
    assert journal.array(journal.tensor(parts["values"])).shape == (6, 4)


def test_rows_of_another_length_are_another_tensor(tmp_path):
    """The same values in other rows are not the same."""
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    for name, lengths in (("a", (3, 5)), ("b", (5, 3))):
        parts = rows(8, 4).split(lengths)
        with tt.record(tmp_path / name, net, level="module", keep="tensor"):
            net(torch.nested.nested_tensor(list(parts), layout=torch.jagged))
    assert tt.compare(tmp_path / "a", tmp_path / "b").code != 0
