"""Steps of optimizers, element by element: both frameworks' own against the formula with their settings."""

from dataclasses import replace
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from operation_cases import UNITS

import twintrace as tt
from twintrace.operations import meaning_of
from twintrace.operations.audits import audit
from twintrace.operations.evaluation import Values
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
    "nadam": lambda p: torch.optim.NAdam(p, 0.01, weight_decay=0.1),
    "radam": lambda p: torch.optim.RAdam(p, 0.01, betas=(0.9, 0.5), weight_decay=0.1, decoupled_weight_decay=True),
    "adamax": lambda p: torch.optim.Adamax(p, 0.01, weight_decay=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, 0.5, weight_decay=0.1),
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
    from twintrace.operations.recomputation import Recomputation
    from twintrace.operations.sides import Bound, Side

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


# --- settings drawn at random, and what a bound must not excuse -----------------------------------------------------------


def recorded_steps(path):
    """`(framework, meaning, values)` of every recorded step."""
    for journal in tt.open(path).journals():

        def spec(number, journal=journal):
            return journal.tensor(number).spec

        values = Values(lambda number, journal=journal: journal.array(journal.tensor(number)), spec)
        for call in journal.calls():
            if call.site.phase == "update":
                yield journal.header.framework, meaning_of(call, journal.header.framework, spec), values


def worst(meaning, values, framework):
    """The largest score of the results of a step."""
    found = audit(meaning, values, framework=framework)
    assert not found.failure, found.failure
    return max(score.ratio for score in found.forward.values())


class Damaged:
    """Values of which one element of one tensor is off by a few thousandths."""

    def __init__(self, values, number):
        self._values, self._number, self.spec, self.slack = values, number, values.spec, values.slack

    def __call__(self, number):
        value = self._values(number)
        if number != self._number or not value.is_floating_point():
            return value
        value = value.clone()
        place = value.abs().argmax()
        value.view(-1)[place] = value.view(-1)[place] * 1.005 + 1e-20
        return value


def other(value):
    """A setting that is another: numbers by a hundredth of themselves, switches turned."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 1.01 + (0.01 if value == 0 else 0.0)
    if isinstance(value, tuple):
        return tuple(map(other, value))
    return {"after correction": "before correction", "before correction": "after correction"}.get(
        value, {"below the root": "after the root", "after the root": "below the root"}.get(value)
    )


def check_bound(path, without_effect=()):
    """All steps are within the bound; no result of the last one is if an element of it is damaged, or any setting is another."""
    steps = list(recorded_steps(path))
    assert len(steps) == 3
    for framework, meaning, values in steps:
        assert meaning is not None
        assert worst(meaning, values, framework) <= 1
        assert len(audit(meaning, values, framework=framework).forward) == len(meaning.results)
    framework, meaning, values = steps[-1]
    for number, key in meaning.results.items():
        if values.spec(number).dtype == "f32":
            assert worst(meaning, Damaged(values, number), framework) > 1, key
    for name, value in meaning.arguments.items():
        if isinstance(value, bool | int | float | str) or (
            isinstance(value, tuple) and all(isinstance(item, int | float) for item in value)
        ):
            changed = replace(meaning, arguments={**meaning.arguments, name: other(value)})
            assert (worst(changed, values, framework) > 1) is (name not in without_effect), (name, value)


def train(optimizer_of, path, seed):
    """Three steps of a small network whose gradients are neither all small nor all large."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
    optimizer = optimizer_of(list(model.parameters()))
    with tt.record(path, model, level="mix", keep="tensor") as record:
        for step in range(3):
            optimizer.zero_grad()
            x = torch.randn(8, 5, generator=torch.Generator().manual_seed(seed + step))
            (model(x).pow(2) * torch.tensor([1.0, 5.0, 0.1])).mean().backward()
            optimizer.step()
            record.step()


few = settings(max_examples=6, deadline=None, derandomize=True, phases=[Phase.generate])
rates = st.sampled_from([0.3, 0.01])
decays = st.sampled_from([0.0, 0.1])
switches = st.booleans()
epsilons = st.sampled_from([1e-2, 1e-3])
ways = st.sampled_from([{}, {"foreach": True}, {"foreach": False}, {"fused": True}])
seeds = st.integers(0, 9)


@few
@given(seed=seeds, lr=rates, momentum=st.sampled_from([0.0, 0.9]), dampening=st.sampled_from([0.0, 0.5]), decay=decays,
       nesterov=switches, maximize=switches, way=ways)  # fmt: skip
def test_sgd_with_any_settings(seed, lr, momentum, dampening, decay, nesterov, maximize, way):
    nesterov = nesterov and momentum > 0 and dampening == 0
    given_ = {
        "momentum": momentum,
        "dampening": dampening,
        "nesterov": nesterov,
        "weight_decay": decay,
        "maximize": maximize,
    }
    idle = set() if momentum else {"momentum", "dampening", "nesterov"}
    with TemporaryDirectory() as folder:
        train(lambda p: torch.optim.SGD(p, lr, **given_, **way), f"{folder}/trace", seed)
        check_bound(f"{folder}/trace", idle)


@few
@given(seed=seeds, lr=rates, beta1=st.sampled_from([0.9, 0.5]), beta2=st.sampled_from([0.999, 0.9]), eps=epsilons, decay=decays,
       amsgrad=switches, maximize=switches, way=ways, kind=st.sampled_from([torch.optim.Adam, torch.optim.AdamW]))  # fmt: skip
def test_adam_with_any_settings(seed, lr, beta1, beta2, eps, decay, amsgrad, maximize, way, kind):
    given_ = {"betas": (beta1, beta2), "eps": eps, "weight_decay": decay, "amsgrad": amsgrad, "maximize": maximize}
    idle = set() if decay else {"decoupled"}
    with TemporaryDirectory() as folder:
        train(lambda p: kind(p, lr, **given_, **way), f"{folder}/trace", seed)
        check_bound(f"{folder}/trace", idle if amsgrad else idle | {"amsgrad"})


@few
@given(seed=seeds, lr=rates, alpha=st.sampled_from([0.99, 0.5]), eps=epsilons, decay=decays, momentum=st.sampled_from([0.0, 0.9]),
       centered=switches, maximize=switches, foreach=switches)  # fmt: skip
def test_rmsprop_with_any_settings(seed, lr, alpha, eps, decay, momentum, centered, maximize, foreach):
    given_ = {"alpha": alpha, "eps": eps, "weight_decay": decay, "momentum": momentum, "centered": centered}
    idle = set() if momentum else {"momentum", "rate_in_momentum"}
    with TemporaryDirectory() as folder:
        train(
            lambda p: torch.optim.RMSprop(p, lr, **given_, maximize=maximize, foreach=foreach), f"{folder}/trace", seed
        )
        check_bound(f"{folder}/trace", idle)


@few
@given(seed=seeds, lr=rates, lr_decay=st.sampled_from([0.0, 0.1]), eps=epsilons, decay=decays, maximize=switches, way=ways,
       start=st.sampled_from([0.0, 0.5]))  # fmt: skip
def test_adagrad_with_any_settings(seed, lr, lr_decay, eps, decay, maximize, way, start):
    given_ = {"lr_decay": lr_decay, "eps": eps, "weight_decay": decay, "maximize": maximize}
    with TemporaryDirectory() as folder:
        train(
            lambda p: torch.optim.Adagrad(p, lr, initial_accumulator_value=start, **given_, **way),
            f"{folder}/trace",
            seed,
        )
        check_bound(f"{folder}/trace")


@few
@given(seed=seeds, lr=rates, beta1=st.sampled_from([0.9, 0.5]), beta2=st.sampled_from([0.98, 0.5]), eps=epsilons, decay=decays,
       decoupled=switches, maximize=switches, foreach=switches,
       kind=st.sampled_from(["NAdam", "RAdam", "Adamax", "Adadelta"]))  # fmt: skip
def test_adams_relatives_with_any_settings(seed, lr, beta1, beta2, eps, decay, decoupled, maximize, foreach, kind):
    given_ = {"eps": eps, "weight_decay": decay, "maximize": maximize, "foreach": foreach}
    given_ |= {"rho": beta1} if kind == "Adadelta" else {"betas": (beta1, beta2)}
    given_ |= {"decoupled_weight_decay": decoupled} if kind in ("NAdam", "RAdam") else {}
    given_ |= {"momentum_decay": 0.5} if kind == "NAdam" else {}
    idle = set() if decay else {"decoupled"}
    idle |= {"eps"} if kind == "RAdam" and beta2 == 0.5 else set()  # its second moment is left out for ever

    def going_on(parameters):
        optimizer = getattr(torch.optim, kind)(parameters, lr, **given_)
        if kind == "RAdam":  # the first five steps leave it out, whatever the settings
            for value in parameters:
                averages = {"exp_avg": torch.zeros_like(value), "exp_avg_sq": torch.zeros_like(value)}
                optimizer.state[value] = {"step": torch.tensor(9.0), **averages}
        return optimizer

    with TemporaryDirectory() as folder:
        train(going_on, f"{folder}/trace", seed)
        check_bound(f"{folder}/trace", idle)


def train_in_mindspore(optimizer_of, path, seed):
    """The same in MindSpore."""
    ms = pytest.importorskip("mindspore")
    from mindspore import nn

    rng = np.random.default_rng(seed)
    cell = nn.SequentialCell(nn.Dense(5, 4), nn.Tanh(), nn.Dense(4, 3))
    for parameter in cell.trainable_params():
        parameter.set_data(ms.Tensor(rng.normal(size=parameter.shape).astype(np.float32) * 0.5))
    optimizer = optimizer_of(list(cell.trainable_params()))
    weights = ms.Tensor(np.array([1.0, 5.0, 0.1], np.float32))
    gradient = ms.value_and_grad(lambda x: (cell(x).pow(2) * weights).mean(), None, cell.trainable_params())
    with tt.record(path, cell, level="mix", keep="tensor") as record:
        for _ in range(3):
            _, gradients = gradient(ms.Tensor(rng.normal(size=(8, 5)).astype(np.float32)))
            optimizer(gradients)
            record.step()


def in_mindspore():
    """Optimizers of MindSpore with settings of all kinds, and the arguments that these leave without effect."""
    import mindspore.experimental.optim as experimental
    from mindspore import nn

    plain = {"bias_correction"}
    return {
        "sgd": (lambda p: nn.SGD(p, 0.1, momentum=0.9, dampening=0.5, weight_decay=0.1), set()),
        "sgd nesterov": (lambda p: nn.SGD(p, 0.1, momentum=0.9, nesterov=True, loss_scale=2.0), set()),
        "momentum": (lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.1), set()),
        "adam": (lambda p: nn.Adam(p, 0.1, 0.8, 0.9, eps=1e-3, weight_decay=0.1), plain | {"amsgrad"}),
        "adam nesterov": (lambda p: nn.Adam(p, 0.1, 0.8, 0.9, eps=1e-3, use_nesterov=True), plain | {"amsgrad", "decoupled"}),
        "adam scaled": (lambda p: nn.Adam(p, 0.1, 0.8, 0.9, eps=1e-3, loss_scale=8.0), plain | {"amsgrad", "decoupled"}),
        "adamw": (lambda p: nn.AdamWeightDecay(p, 0.1, 0.8, 0.9, eps=1e-3, weight_decay=0.1), {"amsgrad", "eps_added"}),
        # Its kernel adds epsilon below the root for the last elements of a tensor only, after it for those that fill a register:
        # a large one would be told, and rightly.
        "rmsprop": (lambda p: nn.RMSProp(p, 0.1, decay=0.8, momentum=0.5, weight_decay=0.1), {"eps", "eps_added"}),
        "rmsprop centered": (lambda p: nn.RMSProp(p, 0.1, momentum=0.5, epsilon=1e-2, centered=True), set()),
        "adagrad": (lambda p: nn.Adagrad(p, learning_rate=0.1, weight_decay=0.1), {"lr_decay"}),
        "experimental sgd": (lambda p: experimental.SGD(p, 0.1, 0.9, weight_decay=0.1, nesterov=True), set()),
        "experimental sgd maximize": (lambda p: experimental.SGD(p, 0.1, 0.9, dampening=0.5, maximize=True), set()),
        "experimental adam": (lambda p: experimental.Adam(p, 0.1, (0.8, 0.9), 1e-3, 0.1), set()),
        "experimental adamw": (lambda p: experimental.AdamW(p, 0.1, (0.8, 0.9), 1e-3, 0.1, maximize=True), set()),
        "experimental adamw amsgrad": (lambda p: experimental.AdamW(p, 0.1, (0.8, 0.9), 1e-3, 0.1, amsgrad=True), set()),
        "experimental rmsprop": (lambda p: experimental.RMSprop(p, 0.1, 0.8, 1e-3, 0.1, 0.5, True), set()),
        "experimental adagrad": (lambda p: experimental.Adagrad(p, 0.1, 0.1, 0.1, 0.5, 1e-3), set()),
    }  # fmt: skip


@pytest.mark.needs_mindspore
def test_mindspores_optimizers_within_the_bound(tmp_path):
    """Every optimizer of MindSpore that a CPU runs is within its bound; a damaged element or another setting is not."""
    pytest.importorskip("mindspore")
    for name, (kind, idle) in in_mindspore().items():
        train_in_mindspore(kind, tmp_path / name, seed=len(name))
        try:
            check_bound(tmp_path / name, idle)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.needs_mindspore
def test_a_kernel_that_leaves_nesterov_out_is_beyond_its_bound(tmp_path):
    """MindSpore's `ApplyMomentum` on a CPU takes `use_nesterov` and computes plain momentum: told, and not excused."""
    pytest.importorskip("mindspore")
    from mindspore import nn

    train_in_mindspore(lambda p: nn.Momentum(p, 0.1, 0.9, use_nesterov=True), tmp_path / "trace", 0)
    for framework, meaning, values in recorded_steps(tmp_path / "trace"):
        assert meaning.arguments["nesterov"]
        assert worst(meaning, values, framework) > 1000
        plain = replace(meaning, arguments={**meaning.arguments, "nesterov": False})
        assert worst(plain, values, framework) <= 1


def lamb_on_a_gpu(self, gradients):
    """The step of `nn.Lamb` as MindSpore's kernel for GPUs computes it, in float32, element by element."""
    import mindspore as ms

    f32 = np.float32
    self.global_step.set_data(self.global_step + 1)
    step = f32(self.global_step.asnumpy().reshape(()))
    beta1, beta2, eps = (f32(item.asnumpy().reshape(())) for item in (self.beta1, self.beta2, self.eps))
    decays = self.weight_decay if isinstance(self.weight_decay, tuple) else [self.weight_decay] * len(gradients)
    for place, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
        rate = f32(self.learning_rate.asnumpy().reshape(()))
        decay = f32(decays[place] if self.decay_flags[place] else 0.0)
        w, g = parameter.asnumpy(), gradient.asnumpy()
        m = beta1 * self.moments1[place].asnumpy() + (1 - beta1) * g
        v = beta2 * self.moments2[place].asnumpy() + (1 - beta2) * g * g
        mm, vv = m / (1 - beta1**step), v / (1 - beta2**step)
        size, length = np.linalg.norm(w), np.linalg.norm(mm / np.sqrt(vv + eps) + decay * w)
        if w.size == 1:
            size, length = w.reshape(()), (mm / np.sqrt(vv + eps) + decay * w).reshape(())
        trust = f32(size / length if size > 0 and length > 0 else 1.0)
        update = mm / (np.sqrt(vv) + eps) + decay * w
        parameter.set_data(ms.Tensor(w - min(trust, f32(10)) * rate * update))
        self.moments1[place].set_data(ms.Tensor(m))
        self.moments2[place].set_data(ms.Tensor(v))
    return True


@pytest.mark.needs_mindspore
@pytest.mark.parametrize(
    ("given_", "idle"),
    [
        ({"learning_rate": 0.1}, {"largest_trust", "eps"}),
        ({"learning_rate": 0.01, "beta1": 0.7, "beta2": 0.9, "eps": 1e-2, "weight_decay": 0.1}, {"largest_trust"}),
        ({"learning_rate": 0.1, "eps": 50.0}, set()),
    ],
)
def test_lamb(tmp_path, monkeypatch, given_, idle):
    """`nn.Lamb` has no kernel for CPUs: the real optimizer, its state and settings, with the step of its kernel for GPUs."""
    pytest.importorskip("mindspore")
    from mindspore import nn

    monkeypatch.setattr(nn.Lamb, "construct", lamb_on_a_gpu)
    train_in_mindspore(lambda p: nn.Lamb(p, **given_), tmp_path / "trace", 0)
    steps = list(recorded_steps(tmp_path / "trace"))
    assert [meaning.operation for _, meaning, _ in steps] == ["lamb"] * 3
    check_bound(tmp_path / "trace", idle)


@pytest.mark.needs_mindspore
def test_gradients_that_are_centred_before_the_step_are_not_recomputed_as_they_came(tmp_path):
    pytest.importorskip("mindspore")
    from mindspore import nn

    groups = [{"grad_centralization": True}, {"grad_centralization": False}]
    train_in_mindspore(
        lambda p: nn.Adam([{"params": p[:2], **groups[0]}, {"params": p[2:], **groups[1]}], 0.1), tmp_path / "trace", 0
    )
    assert [meaning for _, meaning, _ in recorded_steps(tmp_path / "trace")] == [None] * 3
