"""Real recordings: of the reference framework, of PyTorch, of one program run twice and of a program that was changed."""

import numpy as np
import pytest
from sides import alone, names

import twintrace as tt
from twintrace.align import align
from twintrace.frameworks.reference import miniature as mini
from twintrace.model.pairs import Side
from twintrace.model.sites import Phase


def side(path, framework=None) -> Side:
    journal = tt.open(path).journal(0, 0)
    calls = sorted(journal.calls(), key=lambda call: call.id)
    return Side(framework or journal.header.framework, calls, journal.tensor, tuple(journal.parameter_gradients()))


class Net(mini.Module):
    def __init__(self, extra: bool = False):
        generator = np.random.default_rng(0)
        self.first, self.norm, self.last = mini.Linear(3, 4), mini.LayerNorm(4), mini.Linear(4, 2)
        for layer in (self.first, self.last):
            layer.weight.array[...] = generator.standard_normal(layer.weight.array.shape)
        self.extra = extra

    def forward(self, x):
        x = mini.relu(self.norm(self.first(x)))
        if self.extra:
            x = mini.relu(mini.add(x, 0.5))
        return mini.relu(self.last(x))


@pytest.fixture
def recorded(tmp_path):
    def record(name: str, level: str, extra: bool = False) -> Side:
        net = Net(extra)
        with tt.record(tmp_path / name, net, level=level, framework="reference"):
            mini.total(net(mini.Tensor(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)))).backward()
            mini.Descent(
                [p for layer in (net.first, net.norm, net.last) for p in (layer.weight, layer.bias)], 0.1
            ).step()
        return side(tmp_path / name)

    return record


@pytest.mark.parametrize("level", ["module", "api", "mix", "op"])
def test_the_same_program_twice(recorded, level):
    found = align(recorded("a", level), recorded("b", level))

    assert all(left == right for left, right in names(found).items())
    assert {match.confidence for match in found.matches} == {1.0}
    assert alone(found) == ([], [])
    assert not found.stray_left
    assert not found.stray_right
    if level in ("module", "mix"):
        assert len(found.parameter_gradients) == 6


@pytest.mark.parametrize("level", ["api", "mix"])
def test_a_program_that_was_changed(recorded, level):
    """Two calls more in the middle: the last relu is still the last relu."""
    left, right = recorded("a", level), recorded("b", level, extra=True)
    found = align(left, right)
    relu = next(call.site.name for call in left.calls if call.site.name.endswith("relu"))

    assert names(found)[f"{relu}#0"] == f"{relu}#0"
    assert names(found)[f"{relu}#1"] == f"{relu}#2"
    assert not found.only_left
    assert len(found.only_right) == 2


def test_levels_that_differ(recorded):
    found = align(recorded("a", "mix"), recorded("b", "module"))

    assert {match.left[0].site.name for match in found.matches} >= {"first", "norm", "last"}
    assert all(item.skipped for item in found.only_left)


def test_the_optimizers_step_is_paired(recorded):
    found = align(recorded("a", "mix"), recorded("b", "mix"))

    assert any(match.left[0].site.phase is Phase.UPDATE for match in found.matches)


@pytest.mark.needs_torch
@pytest.mark.parametrize("level", ["module", "api", "mix", "op"])
def test_torch_twice(tmp_path, level):
    import torch

    def record(name: str) -> Side:
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(2, 3, 3),
            torch.nn.BatchNorm2d(3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(48, 5),
        )
        optimizer = torch.optim.Adam(net.parameters())
        with tt.record(tmp_path / name, net, level=level):
            net(torch.randn(2, 2, 6, 6)).square().sum().backward()
            optimizer.step()
        return side(tmp_path / name)

    found = align(record("a"), record("b"))

    assert found.matches
    assert {match.confidence for match in found.matches} == {1.0}
    assert alone(found) == ([], [])
    assert not any(match.only_left or match.only_right for match in found.matches)


@pytest.mark.needs_torch
def test_torch_written_twice(tmp_path):
    """Other names, other nesting, functions for modules, attention in one call and by hand: no name is of any help."""
    import torch
    from torch import nn
    from torch.nn import functional

    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, x):
            y = functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))
            return functional.relu(self.o(y + x))

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.value, self.key, self.query = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            value, key, query = self.value(x), self.key(x), self.query(x)
            return (query @ key.transpose(1, 2) / 8**0.5).softmax(-1) @ value

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.out, self.act = Head(), nn.Linear(8, 8), nn.ReLU()

        def forward(self, x):
            return self.act(self.out(torch.add(x, self.head(x))))

    torch.manual_seed(0)
    one, two, x = One(), Two(), torch.randn(2, 5, 8)
    for left, right in ((one.q, two.head.query), (one.k, two.head.key), (one.v, two.head.value), (one.o, two.out)):
        right.load_state_dict(left.state_dict())
    for name, net in (("a", one), ("b", two)):
        with tt.record(tmp_path / name, net):
            net(x).square().sum().backward()
    found = align(side(tmp_path / "a"), side(tmp_path / "b", framework="another"))

    assert [names(found)[f"{name}#0"] for name in "qkvo"] == ["head.query#0", "head.key#0", "head.value#0", "out#0"]
    assert alone(found, skipped=False) == ([], [])
    assert {(p.left_slot, p.right_slot) for p in found.parameter_gradients} >= {
        ("q.weight", "head.query.weight"),
        ("o.bias", "out.bias"),
    }
    region = next(match for match in found.matches if "scaled_dot" in match.left[0].site.name)
    assert len(region.right) >= 4
