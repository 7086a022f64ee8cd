"""Steps of optimizers, element by element: both frameworks' own against the formula with their settings."""

import numpy as np
import pytest
import torch
from operation_cases import UNITS

import twintrace as tt
from twintrace.operations import meaning_of
from twintrace.operations.optimizers import of_one_parameter

UNITS_ALLOWED = 64


def check_steps(path):
    """Every recorded step gives the parameters and the state that its meaning says."""
    from operation_cases import computed

    meanings = []
    for journal in tt.open(path).journals():

        def value(number, journal=journal):
            array = torch.from_numpy(np.array(journal.array(journal.tensor(number))))
            return array.double() if array.is_floating_point() else array

        for call in journal.calls():
            if call.site.phase != "update":
                continue
            meaning = meaning_of(
                call, journal.header.framework, lambda number, journal=journal: journal.tensor(number).spec
            )
            assert meaning is not None, call.site
            results = computed(meaning, value)
            for number, key in meaning.results.items():
                got, want = value(number).double().reshape(-1), torch.as_tensor(results[key]).double().reshape(-1)
                assert ((got - want).abs() <= UNITS_ALLOWED * UNITS["f32"] * want.abs().max() + 1e-30).all(), (
                    key,
                    got,
                    want,
                )
            meanings.append(meaning)
    assert len(meanings) == 3
    return meanings[-1]


TORCH = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.5, maximize=True),
    "nesterov": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1),
    "amsgrad": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True, eps=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01, betas=(0.8, 0.99)),
    "groups": lambda p: torch.optim.Adam([{"params": p[:1], "lr": 0.1}, {"params": p[1:], "weight_decay": 0.3}], 0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01),
    "centered": lambda p: torch.optim.RMSprop(p, 0.01, centered=True, momentum=0.9, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1, lr_decay=0.1, weight_decay=0.01),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch(name, tmp_path):
    """PyTorch's optimizers over three steps."""
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)
    optimizer = TORCH[name](list(model.parameters()))
    with tt.record(tmp_path / "trace", model, level="mix", keep="tensor") as record:
        for step in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 5, generator=torch.Generator().manual_seed(step))).pow(2).mean().backward()
            optimizer.step()
            record.step()
    check_steps(tmp_path / "trace")


@pytest.mark.needs_mindspore
def test_mindspore(tmp_path):
    """MindSpore's optimizers over three steps, each with its own place of epsilon."""
    ms = pytest.importorskip("mindspore")
    import mindspore.experimental.optim as experimental
    from mindspore import nn

    kinds = {
        "sgd": lambda p: nn.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
        "momentum": lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.01),
        "scaled": lambda p: nn.Momentum(p, 0.1, 0.9, loss_scale=4.0),
        "adam": lambda p: nn.Adam(p, 0.01, weight_decay=0.1),
        "nesterov": lambda p: nn.Adam(p, 0.01, use_nesterov=True),
        "amsgrad": lambda p: nn.Adam(p, 0.01, use_amsgrad=True, eps=1e-3),
        "scheduled": lambda p: nn.Adam(p, nn.ExponentialDecayLR(0.1, 0.5, 1)),
        "groups": lambda p: nn.Adam([{"params": p[:1], "lr": 0.1}, {"params": p[1:], "weight_decay": 0.3}], 0.01),
        "decay": lambda p: nn.AdamWeightDecay(p, 0.01, weight_decay=0.1),
        "rmsprop": lambda p: nn.RMSProp(p, 0.01, centered=True, momentum=0.9, weight_decay=0.1),
        "adagrad": lambda p: nn.Adagrad(p, learning_rate=0.1, weight_decay=0.01),
        "experimental": lambda p: experimental.Adam(p, 0.01, weight_decay=0.1),
        "experimental adamw": lambda p: experimental.AdamW(p, 0.01),
        "experimental rmsprop": lambda p: experimental.RMSprop(p, 0.01, momentum=0.9, centered=True),
    }
    rng = np.random.default_rng(0)
    for name, kind in kinds.items():
        cell = nn.Dense(5, 3)
        optimizer = kind(list(cell.trainable_params()))
        gradient = ms.value_and_grad(lambda x, cell=cell: cell(x).pow(2).mean(), None, cell.trainable_params())
        with tt.record(tmp_path / name, cell, level="mix", keep="tensor") as record:
            for _ in range(3):
                _, gradients = gradient(ms.Tensor(rng.normal(size=(4, 5)).astype(np.float32)))
                optimizer(gradients)
                record.step()
        meaning = check_steps(tmp_path / name)
        if meaning.operation == "adam":
            before = name not in ("decay", "experimental adamw")
            assert meaning.arguments["eps_added"] == ("before correction" if before else "after correction")


def test_a_step_for_one_parameter_has_its_operands_alone(tmp_path):
    """Groups with other rates: each parameter has its own gradient, state and settings, and gives what the whole step gives."""
    from operation_cases import computed

    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 2))
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam([{"params": parameters[:1], "lr": 0.1}, {"params": parameters[1:]}], 0.01)
    with tt.record(tmp_path / "trace", model, level="mix", keep="tensor"):
        model(torch.ones(4, 5)).pow(2).mean().backward()
        optimizer.step()
    [journal] = tt.open(tmp_path / "trace").journals()
    [call] = [call for call in journal.calls() if call.site.phase == "update"]
    whole = meaning_of(call, journal.header.framework, lambda number: journal.tensor(number).spec)

    def value(number):
        array = torch.from_numpy(np.array(journal.array(journal.tensor(number))))
        return array.double() if array.is_floating_point() else array

    everything = computed(whole, value)
    assert len(whole.arguments["parameters"]) == 4
    for result, key in whole.results.items():
        name, _, place = key.partition(".")
        single = of_one_parameter(whole, result)

        assert single.results == {result: f"{name}.0"}
        for own, argument in whole.arguments.items():
            kept = (argument[int(place)],) if isinstance(argument, tuple) else argument
            assert single.arguments[own] == kept
        assert torch.equal(torch.as_tensor(computed(single, value)[f"{name}.0"]), torch.as_tensor(everything[key]))


def test_other_meanings_are_left_as_they_are():
    from twintrace.operations import Meaning, Operand

    meaning = Meaning("cat", {"tensors": (Operand(1), Operand(2))}, {3: 0})
    assert of_one_parameter(meaning, 3) is meaning


@pytest.mark.parametrize("beta2", [0.999, 0.99])
def test_gradients_that_found_no_partner_are_those_in_the_same_place(tmp_path, beta2):
    """The two sides have other gradients, and only the parameters were compared: on the left's the steps are the same."""
    from twintrace.model.pairs import Layout
    from twintrace.operations.evaluation import Values
    from twintrace.operations.recomputation import Bound, Recomputation
    from twintrace.operations.sides import Side

    sides, values, results = [], [], []
    for which in (0, 1):
        torch.manual_seed(0)
        model = torch.nn.Linear(5, 3)
        optimizer = torch.optim.Adam(model.parameters(), 0.01, betas=(0.9, beta2 if which else 0.999))
        with tt.record(tmp_path / str(which), model, level="mix", keep="tensor"):
            model(torch.randn(4, 5, generator=torch.Generator().manual_seed(which))).pow(2).mean().backward()
            optimizer.step()
        [journal] = tt.open(tmp_path / str(which)).journals()
        sides.append(Side("torch", list(journal.calls()), journal.tensor))
        values.append(
            Values(
                lambda number, journal=journal: journal.array(journal.tensor(number)),
                lambda number, journal=journal: journal.tensor(number).spec,
            )
        )
        [step] = [call for call in sides[which].calls if call.site.phase == "update"]
        meaning = sides[which].meaning(step)
        results.append((meaning, next(number for number, key in meaning.results.items() if key == "exp_avg_sq.0")))
    recomputation = Recomputation(tuple(sides), tuple(values))
    weights = [meaning.arguments["parameters"][0].tensor for meaning, _ in results]
    bound = {weights[1]: Bound(weights[0], Layout())}
    slices = [sides[which].slice(results[which][1], {weights[which]}) for which in (0, 1)]
    found = recomputation.difference(*slices, bound, Layout())

    assert found.significant is (beta2 != 0.999)
    assert found.relative == pytest.approx(0.0 if beta2 == 0.999 else 9.0)
