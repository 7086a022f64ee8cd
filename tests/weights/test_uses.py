"""The order of use settles what names leave open, where the data force it, and nothing else."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import twintrace as tt
from twintrace.cli import cli
from twintrace.model.errors import TraceNotFoundError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch


class Chain(torch.nn.Module):
    """Layers one after the other, in the order of `path`; their order in the module is that of `names`."""

    def __init__(self, names, path, residual=False):
        super().__init__()
        for name in names:
            setattr(self, name, torch.nn.Linear(4, 4))
        self.path, self.residual = path, residual

    def forward(self, x):
        for name in self.path:
            made = getattr(self, name)(x)
            x = x + made if self.residual else made
        return x


class Beside(Chain):
    """Layers side by side: their results are added."""

    def forward(self, x):
        return sum(getattr(self, name)(x) for name in self.path)


def recorded(net, path):
    with tt.record(path, net):
        net(torch.ones(2, 4))
    return net, path


def found(left, right):
    made = tt.map_weights(left[0], right[0], traces=(left[1], right[1]))
    return {pair.left[0]: pair.right for pair in made.pairs if pair.left[0].endswith("weight")}


@pytest.mark.parametrize("residual", [False, True])
def test_layers_are_paired_in_the_order_in_which_the_data_pass_through_them(tmp_path, residual):
    left = recorded(Chain(["alpha", "omega"], ["omega", "alpha"], residual), tmp_path / "left")
    right = recorded(Chain(["tick", "gnu"], ["tick", "gnu"], residual), tmp_path / "right")
    assert found(left, right) == {"omega.weight": "tick.weight", "alpha.weight": "gnu.weight"}
    assert tt.map_weights(left[0], right[0]).pairs == ()  # without traces it is not clear


class Written(Chain):
    """Results that are written into the input: what comes next takes the same tensor."""

    def forward(self, x):
        x = x.clone()
        for name in self.path:
            x[:] = x + getattr(self, name)(x)
        return x


def test_results_that_are_written_in_place_are_followed(tmp_path):
    left = recorded(Written(["alpha", "omega"], ["omega", "alpha"]), tmp_path / "left")
    right = recorded(Written(["tick", "gnu"], ["tick", "gnu"]), tmp_path / "right")
    assert found(left, right) == {"omega.weight": "tick.weight", "alpha.weight": "gnu.weight"}


class Nested(Chain):
    """Modules that add their input to what a layer makes of it."""

    def __init__(self, names, path, inner):
        super().__init__([], path)
        for name in names:
            setattr(self, name, Chain([inner], [inner], residual=True))


def test_modules_alone_are_enough_where_each_takes_what_another_put_out(tmp_path):
    """Recorded without functions: the input of a module has come through all that is inside the one before."""
    sides = []
    for side, names, path, inner in (
        ("left", ["alpha", "omega"], ["omega", "alpha"], "x"),
        ("right", ["tick", "gnu"], ["tick", "gnu"], "y"),
    ):
        net = Nested(names, path, inner)
        with tt.record(tmp_path / side, net, level="module"):
            net(torch.ones(2, 4))
        sides.append((net, tmp_path / side))
    assert found(*sides) == {"omega.x.weight": "tick.y.weight", "alpha.x.weight": "gnu.y.weight"}


class Copying(torch.nn.Linear):
    """A layer that makes something of its weight before it uses it, as one that casts it does."""

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight.clone(), self.bias.clone())


def test_a_weight_that_is_cast_first_is_used_where_its_layer_is(tmp_path):
    left, right = Chain([], ["omega", "alpha"]), Chain([], ["tick", "gnu"])
    for net, names in ((left, ("alpha", "omega")), (right, ("tick", "gnu"))):
        for name in names:
            setattr(net, name, Copying(4, 4))
    sides = recorded(left, tmp_path / "left"), recorded(right, tmp_path / "right")
    assert found(*sides) == {"omega.weight": "tick.weight", "alpha.weight": "gnu.weight"}


def test_an_order_that_somebody_chose_decides_nothing(tmp_path):
    left = recorded(Beside(["alpha", "omega"], ["omega", "alpha"]), tmp_path / "left")
    right = recorded(Chain(["tick", "gnu"], ["tick", "gnu"]), tmp_path / "right")
    assert found(left, right) == {}
    assert found(right, left) == {}


def test_a_layer_that_was_not_used_leaves_it_open(tmp_path):
    left = recorded(Chain(["alpha", "omega"], ["omega"]), tmp_path / "left")
    right = recorded(Chain(["tick", "gnu"], ["tick", "gnu"]), tmp_path / "right")
    assert found(left, right) == {}


class Blocks(torch.nn.Module):
    def __init__(self, name, backwards):
        super().__init__()
        blocks = [torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)) for _ in range(3)]
        setattr(self, name, torch.nn.ModuleList(blocks))
        self.name, self.backwards = name, backwards

    def forward(self, x):
        blocks = list(getattr(self, self.name))
        for block in reversed(blocks) if self.backwards else blocks:
            x = block(x)
        return x


def test_blocks_that_are_numbered_from_the_end_are_paired_by_use_and_not_by_number(tmp_path):
    left = recorded(Blocks("up", True), tmp_path / "left")
    right = recorded(Blocks("stages", False), tmp_path / "right")
    numbers = {one.split(".")[1]: other.split(".")[1] for one, other in found(left, right).items()}
    assert numbers == {"0": "2", "1": "1", "2": "0"}


def test_traces_are_given_to_commands_too(tmp_path):
    left = recorded(Chain(["alpha", "omega"], ["omega", "alpha"]), tmp_path / "left")
    right = recorded(Chain(["tick", "gnu"], ["tick", "gnu"]), tmp_path / "right")
    files = [f"{path}.pth" for _, path in (left, right)]
    for (net, _), file in zip((left, right), files, strict=True):
        torch.save(net.state_dict(), file)
    traces = ["--left-trace", str(left[1]), "--right-trace", str(right[1])]
    out = str(tmp_path / "out.pth")

    def weights(*arguments, expect):
        done = CliRunner().invoke(cli, ["weights", *arguments])
        assert done.exit_code == expect, done.output
        return done.output

    weights("map", *files, expect=1)
    assert "alike, and used in the same order" in weights("map", *files, *traces, "--table", expect=0)
    assert "belong together" in weights("map", *files, *traces[:2], expect=2)
    weights("convert", files[0], out, "--like", files[1], *traces, expect=0)
    assert torch.equal(torch.load(out)["tick.weight"], left[0].omega.weight)
    assert "paired by their values alone" not in weights("certify", files[0], out, *traces, expect=0)
    assert "paired by their values alone" in weights("certify", files[0], out, expect=0)


def test_something_that_is_no_trace_is_refused(tmp_path):
    net = Chain(["alpha", "omega"], ["omega", "alpha"])
    with pytest.raises(TraceNotFoundError):
        tt.map_weights(net, net, traces=(tmp_path / "none", tmp_path / "none"))
