"""Each value is read once; every element type and every unpleasant tensor comes back bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...model.records import Role
from ...model.tensors import DTYPES
from ...store.arrays import STORAGE
from ..fixtures import Page
from ..reading import Reading, check_same_bits
from ..recording import api, needs_backward, needs_function, recorded, recorder, spy

LARGE = 1 << 17
COUNT = 4


class ValuesContract:
    """Reading tensors."""

    def test_an_unchanged_tensor_is_read_once(
        self, framework: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reads = spy(monkeypatch, framework, "host")
        relu, x = framework.functions["relu"].call, framework.numbers(2, 3)
        with recorder(framework, tmp_path / "t"):
            for _ in range(3):
                relu(x)
        reading = Reading(tmp_path / "t")

        assert sum(tensor is x for tensor in reads) == 1
        assert len({reading.input_ids(call)["0"] for call in reading.calls}) == 1

    def test_a_changed_tensor_is_read_again(
        self, framework: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reads = spy(monkeypatch, framework, "host")
        relu, add_, x = framework.functions["relu"].call, needs_function(framework, "add_"), framework.numbers(2, 3)
        before = framework.array(x).copy()
        with recorder(framework, tmp_path / "t", names=[framework.functions["relu"].api]):  # the write goes unseen
            relu(x)
            add_(x, 1.0)
            relu(x)
        reading = Reading(tmp_path / "t")

        assert sum(tensor is x for tensor in reads) == 2
        check_same_bits(reading.inputs(reading[api(framework, "relu", 0)])["0"], before)
        check_same_bits(reading.inputs(reading[api(framework, "relu", 1)])["0"], before + np.float32(1))

    def test_memory_that_is_used_again_is_another_value(self, framework: Page, tmp_path: Path) -> None:
        """A new tensor at an old one's address is not taken for it."""
        relu = framework.functions["relu"].call
        with recorder(framework, tmp_path / "t"):
            for number in range(20):
                relu(framework.tensor(np.full(4, number, np.float32)))
        reading = Reading(tmp_path / "t")

        assert [reading.inputs(call)["0"][0] for call in reading.calls] == list(range(20))

    @pytest.mark.parametrize("write", ["recorded", "not selected", "unseen"])
    @pytest.mark.parametrize("level", ["api", "op"])
    def test_a_large_result_is_what_it_was_when_it_was_seen(
        self, framework: Page, tmp_path: Path, level: str, write: str
    ) -> None:
        """Whoever reads large tensors later, or elsewhere, must not be overtaken by the next write."""
        mul, add_ = framework.functions["mul"], needs_function(framework, "add_")
        if write == "unseen" and type(framework).overwrite is Page.overwrite:
            pytest.skip(f"{framework.name} shares no memory")
        name = mul.api if level == "api" else mul.kernel
        tensors = [framework.tensor(np.full(LARGE, number, np.float32)) for number in range(COUNT)]
        with recorder(framework, tmp_path / "t", level=level, names=None if write == "recorded" else [name]):
            for tensor in tensors:
                result = mul.call(tensor, 1.0)
                if write == "unseen":
                    framework.overwrite(result, -1.0)
                else:
                    add_(result, 100.0)
        reading = Reading(tmp_path / "t")

        for number in range(COUNT):
            seen = reading.outputs(reading[f"{level}:{name}#{number}"])[""]
            assert (seen.min(), seen.max()) == (number, number)

    def test_large_gradients_are_what_they_were_when_they_came(self, framework: Page, tmp_path: Path) -> None:
        """Frameworks add the next contribution to the same memory."""
        needs_backward(framework)
        mul, add, total = (framework.functions[name].call for name in ("mul", "add", "total"))
        x = framework.tensor(np.ones(LARGE, np.float32), requires_grad=True)

        def function(x: Any) -> Any:
            result = mul(x, 1.0)
            for factor in range(2, COUNT + 1):
                result = add(result, mul(x, float(factor)))
            return total(result)

        reading, derivatives = recorded(framework, tmp_path / "t", function, x)
        for number in range(COUNT):
            back = reading.gradients(reading[api(framework, "mul", number)], Role.INPUT)["0"]
            assert (back.min(), back.max()) == (number + 1, number + 1)
        check_same_bits(derivatives.inputs[0], np.full(LARGE, COUNT * (COUNT + 1) / 2, np.float32))

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_element_type_comes_back_bit_by_bit(self, framework: Page, tmp_path: Path, dtype: str) -> None:
        raw = np.random.default_rng(5).integers(0, 256, 6 * DTYPES[dtype], np.uint8)
        values = ((raw % 2) if dtype == "b8" else raw).view(STORAGE[dtype]).reshape(2, 3)
        try:
            tensor = framework.tensor(values.copy(), dtype)
        except NotImplementedError:
            pytest.skip(f"{framework.name} has no {dtype}")
        with recorder(framework, tmp_path / "t") as rec:
            rec.save("value", tensor)
        reading = Reading(tmp_path / "t")
        number = reading.output_ids(reading["save:value#0"])[""]

        assert str(reading.journal.tensor(number).spec) == f"{dtype}[2, 3]"
        check_same_bits(reading.values(number), values, dtype)

    def test_unpleasant_tensors_come_back_bit_by_bit(self, framework: Page, tmp_path: Path) -> None:
        tensors = framework.unpleasant()
        with recorder(framework, tmp_path / "t") as rec:
            for name, tensor in tensors.items():
                rec.save(name, tensor)
        reading = Reading(tmp_path / "t")

        assert len(tensors) >= 5
        for name, tensor in tensors.items():
            check_same_bits(reading.outputs(reading[f"save:{name}#0"])[""], framework.array(tensor), name)

    def test_a_tensor_without_values_says_why(self, framework: Page, tmp_path: Path) -> None:
        with recorder(framework, tmp_path / "t") as rec:
            rec.save("nothing", framework.unreadable())
            rec.save("something", framework.ones(2))
        reading = Reading(tmp_path / "t")
        nothing = reading.journal.tensor(reading.output_ids(reading["save:nothing#0"])[""])

        assert nothing.missing
        assert nothing.payload is None
        assert nothing.statistics is None
        check_same_bits(reading.outputs(reading["save:something#0"])[""], np.ones(2, np.float32))
