"""Arguments and results as they were, in their structure; writes in place; the data flow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...model.records import Role
from ...model.values import Token
from ..fixtures import Page, Pair, Point
from ..reading import Reading, check_same_bits, form_of, shapes
from ..recording import api, loss_of, needs_backward, needs_function, recorded, recorder


class ForwardContract:
    """Arguments and results."""

    def test_arguments_and_results_are_what_they_were(self, framework: Page, tmp_path: Path) -> None:
        mul, x = framework.functions["mul"].call, framework.numbers(2, 3)
        with recorder(framework, tmp_path / "t"):
            y = mul(x, 3.0)
            mul(y, y)
        reading = Reading(tmp_path / "t")
        scaled, squared = reading[api(framework, "mul")], reading[api(framework, "mul", 1)]

        check_same_bits(reading.inputs(scaled)["0"], framework.array(x))
        assert scaled.args[1] == 3.0
        check_same_bits(reading.outputs(scaled)[""], framework.array(x) * np.float32(3))
        assert list(reading.input_ids(squared).values()) == list(reading.output_ids(scaled).values()) * 2

    def test_structures_keep_their_form(self, framework: Page, tmp_path: Path) -> None:
        needs_backward(framework)
        add, total = framework.functions["add"].call, framework.functions["total"].call
        model = framework.models["structured"]()
        tensors = [framework.numbers(1, 3, seed=seed, requires_grad=True) for seed in range(4)]

        def function(x: Any, y: Any, z: Any, w: Any) -> Any:
            options = {"point": Point(z, -1), "pair": Pair(w, "p"), "flag": True, "none": None, "limit": float("inf")}
            result = model([x, (y,)], options=options)
            first = add(total(result["list"][0]), total(result["tuple"][0]))
            return add(first, add(total(result["point"].x), total(result["pair"].tensor)))

        reading, derivatives = recorded(framework, tmp_path / "t", function, *tensors, model=model, level="module")
        root = reading["module:#0"]

        assert [form_of(value) for value in root.args] == [["tensor", ("tensor",)]]
        assert {name: form_of(value) for name, value in root.kwargs.items()} == {
            "options": {
                "point": ("Point", {"x": "tensor", "y": -1}),
                "pair": ("Pair", {"tensor": "tensor", "name": "p"}),
                "flag": True,
                "none": None,
                "limit": float("inf"),
            }
        }
        assert form_of(root.output) == {
            "list": ["tensor", None],
            "tuple": ("tensor", 7),
            "point": ("Point", {"x": "tensor", "y": 0.5}),
            "pair": ("Pair", {"tensor": "tensor", "name": "p"}),
        }
        slots = ["0.0", "0.1.0", "kw.options.point.x", "kw.options.pair.tensor"]
        back = reading.gradients(root, Role.INPUT)
        for slot, tensor, gradient in zip(slots, tensors, derivatives.inputs, strict=True):
            check_same_bits(reading.inputs(root)[slot], framework.array(tensor), slot)
            check_same_bits(back[slot], gradient, slot)
        assert shapes(reading.gradients(root, Role.OUTPUT)) == dict.fromkeys(
            ("list.0", "tuple.0", "point.x", "pair.tensor"), (1, 3)
        )

    def test_writes_in_place_keep_the_value_from_before(self, framework: Page, tmp_path: Path) -> None:
        add_, mul = needs_function(framework, "add_"), framework.functions["mul"].call
        x = framework.numbers(2, 3)
        with recorder(framework, tmp_path / "t"):
            h = mul(x, 2.0)
            add_(h, x)
            mul(h, 1.0)
        reading = Reading(tmp_path / "t")
        written = reading[api(framework, "add_")]
        twice = framework.array(x) * np.float32(2)

        assert "0" in written.mutates
        check_same_bits(reading.inputs(written)["0"], twice, "before")
        check_same_bits(reading.outputs(written)[""], twice + framework.array(x), "after")
        assert reading.producer(written, "0") == f"forward/{api(framework, 'mul')}"
        assert reading.producer(reading[api(framework, "mul", 1)], "0") == f"forward/{api(framework, 'add_')}"

    def test_producers_rebuild_the_data_flow(self, framework: Page, tmp_path: Path) -> None:
        mul, relu, add, total = (framework.functions[name].call for name in ("mul", "relu", "add", "total"))

        def function(x: Any) -> Any:
            left, right = mul(x, 2.0), relu(x)
            return total(add(left, right))

        x = framework.numbers(2, 3, requires_grad=True)
        reading, _ = recorded(framework, tmp_path / "t", function, x)
        flow = {
            (reading.producer(call, slot), str(call.site)) for call in reading.calls for slot in reading.input_ids(call)
        }
        at = {name: f"forward/{api(framework, name)}" for name in ("mul", "relu", "add", "total")}

        assert flow == {
            (None, at["mul"]),
            (None, at["relu"]),
            (at["mul"], at["add"]),
            (at["relu"], at["add"]),
            (at["add"], at["total"]),
        }

    def test_modules_are_linked_by_their_values(self, framework: Page, tmp_path: Path) -> None:
        model = framework.models["mlp"]()
        x = framework.numbers(2, 3)
        reading, _ = recorded(framework, tmp_path / "t", loss_of(framework, model), x, model=model, level="module")

        assert reading.producer(reading["module:norm#0"], "0") == "forward/module:first#0"
        assert reading.producer(reading["module:first#0"], "0") is None
        assert reading.output_ids(reading["module:last#0"]) == reading.output_ids(reading["module:#0"])

    def test_what_only_the_framework_knows_becomes_a_token(self, framework: Page, tmp_path: Path) -> None:
        value, (kind, text) = framework.token()
        with recorder(framework, tmp_path / "t") as rec:
            rec.save("token", [value])
        assert form_of(Reading(tmp_path / "t")["save:token#0"].output) == [Token(kind, text)]
