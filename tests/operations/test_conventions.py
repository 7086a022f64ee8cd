"""One convention of arguments: what each way to write them comes out as. No framework is needed."""

import numpy as np
import pytest

from twintrace.model.records import Call
from twintrace.model.sites import Kind, Site
from twintrace.model.tensors import Spec
from twintrace.model.values import Nest, TensorRef
from twintrace.operations import conventions
from twintrace.operations.contexts import Context
from twintrace.operations.conventions import index, overhang, same_sides, sides, spread
from twintrace.operations.meanings import Operand
from twintrace.operations.rows import NotTold
from twintrace.operations.telling import meaning_of

SPECS = {
    0: Spec("f32", ()), 1: Spec("f32", (5,)), 2: Spec("f32", (4, 6)), 3: Spec("f32", (2, 3, 4)), 4: Spec("bf16", (2, 3, 7, 8)),
    5: Spec("c64", (5,)), 8: Spec("b8", (4, 6)), 9: Spec("i64", (3,)), 10: Spec("f64", (4, 6)),
    20: Spec("f32", (2, 3, 14, 24)), 21: Spec("f16", (2, 1, 4)), 34: Spec("f32", (6, 3, 3, 2)),
}  # fmt: skip
O = {number: Operand(number) for number in SPECS}  # noqa: E741 - operands by number
FUNCTIONS = Context(SPECS.__getitem__, [20, 21]).names()
ALL = slice(None)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("spread", (3, 2), (3, 3)),
        ("spread", ((3,), 2), (3, 3)),
        ("spread", ((1, 1, 3, 2), 2), (3, 2)),
        ("sides", (1, 2), ((1, 1), (1, 1))),
        ("sides", ((2,), 2), ((2, 2), (2, 2))),
        ("sides", ((1, 2), 2), ((1, 1), (2, 2))),
        ("sides", ((1, 2, 3, 4), 2), ((1, 2), (3, 4))),
        ("sides", (((1, 2), (3, 4)), 2), ((1, 2), (3, 4))),
        ("sides", ((1, 2, 3), 2), NotTold),
        ("same_sides", ((7, 8), (3, 3), (1, 1), (1, 1)), ((1, 1), (1, 1))),
        ("same_sides", ((7, 8), (3, 4), (2, 2), (1, 1)), ((1, 1), (1, 1))),
        ("same_sides", ((8,), (3,), (2,), (1,)), ((0, 1),)),  # the odd cell goes behind
        ("same_sides", ((8,), (3,), (1,), (2,)), ((2, 2),)),
        ("same_sides", ((8,), (1,), (3,), (1,)), ((0, 0),)),
        ("axis", (-1, 4), 3),
        ("axis", (2, 4), 2),
        ("axis", (-1, 0), 0),  # a number has one axis, if any
        ("axis", (None, 4), None),
        ("axis", (True, 4), True),
        ("axes", (None, 3), (0, 1, 2)),
        ("axes", ((), 3), (0, 1, 2)),
        ("axes", (-1, 3), (2,)),
        ("axes", ((-1, 0), 3), (0, 2)),
        ("reduction_of", (), "mean"),
        ("reduction_of", ("sum",), "sum"),
        ("reduction_of", (0,), "none"),
        ("reduction_of", (1,), "mean"),
        ("reduction_of", (2,), "sum"),
        ("reduction_of", ("mean", False), "sum"),
        ("reduction_of", ("sum", True), "mean"),
        ("reduction_of", ("sum", None, False), "none"),
        ("reduction_of", ("sum", None, True), "mean"),
        ("flat", ((1, 2),), (1, 2)),
        ("flat", (((1, 2),),), (1, 2)),
        ("flat", (3,), (3,)),
        ("spread_any", (3,), (3,)),
        ("spread_any", ((3, 4),), (3, 4)),
        ("without_padding", (((0, 0), (0, 0)), False), True),
        ("without_padding", (((0, 0), (0, 1)), False), False),
        ("without_padding", (((1, 0), (0, 0)), False), False),
        ("without_padding", (((0, 0), (0, 1)), True), True),
        ("only", ((3,),), 3),
        ("only", (3,), 3),
        ("only", ((3, 4),), NotTold),
        ("unless", (3, False), 3),
        ("unless", (3, True), NotTold),
        ("unbiased_by", (0, None, None), 0),
        ("unbiased_by", (0, None, True), 1),
        ("unbiased_by", (1, None, False), 0),
        ("unbiased_by", (1, 2, False), 2),
        ("needed", (3,), 3),
        ("needed", (None,), NotTold),
        ("last_pair", ((1, 2, 3, 4),), (3, 4)),
        ("last_pair", ((1, 2),), (1, 2)),
        ("last_pair", (1,), 1),
        ("approximation", (True,), "tanh"),
        ("approximation", (False,), "none"),
        ("approximation", ("tanh",), "tanh"),
        ("from_behind", (((1, 2), (3, 4)),), (3, 4, 1, 2)),
        ("pad_mode_name", ("edge",), "replicate"),
        ("pad_mode_name", ("wrap",), "circular"),
        ("pad_mode_name", ("reflect",), "reflect"),
        ("resize_corners", (True, False), True),
        ("resize_corners", (False, True), False),
        ("resize_corners", (False, False), NotTold),
        ("given", (None, 7), 7),
        ("given", ((), 7), 7),
        ("given", (3, 7), 3),
        ("given", (0, 7), 0),
        # --- with shapes
        ("spec", (3,), NotTold),
        ("size", (O[3], 1), 3),
        ("out_shape", (), (2, 3, 14, 24)),
        ("out", (1,), SPECS[21]),
        ("out", (2,), NotTold),
        ("out_dtype", (), "f32"),
        ("parts", (1,), (3, 1)),
        ("spatial", (O[4], 2), (7, 8)),
        ("kernel", (O[34],), (3, 2)),
        ("conv_sides", (O[4], O[34], "valid", 1, 1), ((0, 0), (0, 0))),
        ("conv_sides", (O[4], O[34], "same", 1, 1), ((1, 1), (0, 1))),
        ("conv_sides", (O[4], O[34], "same", 1, 2), ((2, 2), (1, 1))),
        ("conv_sides", (O[4], O[34], (1, 2), 1, 1), ((1, 1), (2, 2))),
        ("mode_sides", (O[4], (3, 2), "valid", 0, 1), ((0, 0), (0, 0))),
        ("mode_sides", (O[4], (3, 2), 2, 0, 1), ((0, 0), (0, 0))),
        ("mode_sides", (O[4], (3, 3), "SAME", 0, 2), ((1, 1), (0, 1))),
        ("mode_sides", (O[4], (3, 3), 1, 0, 2), ((1, 1), (0, 1))),
        ("mode_sides", (O[4], (3, 3), 1, 0, 1, 2), ((2, 2), (2, 2))),
        ("mode_sides", (O[4], (3, 2), "pad", (1, 1, 2, 2), 1), ((1, 1), (2, 2))),
        ("mode_sides", (O[4], (3, 2), 0, 3, 1), ((3, 3), (3, 3))),
        ("mode_overhang", (O[4], (2, 2), "valid", 0, 2, True), (1, 0)),
        ("mode_overhang", (O[4], (2, 2), "valid", 0, 2, False), (0, 0)),
        ("pool_overhang", (O[4], 2, None, 0, 1, True, 2), (1, 0)),
        ("pool_overhang", (O[4], 2, 3, 0, 1, True, 2), (1, 0)),
        ("pool_overhang", (O[4], 3, 2, 1, 1, True, 2), (0, 1)),
        ("permutation", (O[4], 1, -1), (0, 3, 2, 1)),
        ("permutation", (O[0], 0, 0), ()),
        ("moved", (O[4], 1, -1), (0, 2, 3, 1)),
        ("moved", (O[4], (0, 1), (-1, 0)), (1, 2, 3, 0)),
        ("order", (O[4], (0, -1, 1, 2)), (0, 3, 1, 2)),
        ("order", (O[4], ((0, -1, 1, 2),)), (0, 3, 1, 2)),
        ("reversed_axes", (O[3],), (2, 1, 0)),
        ("sliced", (O[2], -1, 1, 3), (slice(0, 4, 1), slice(1, 3, 1))),
        ("sliced", (O[2], 0, 1), (slice(1, 4, 1),)),
        ("sliced", (O[2], 0), ()),
        ("selected", (O[2], 1, -1), (slice(0, 4, 1), 5)),
        ("selected", (O[2], 0, 2), (2,)),
        ("picked", (O[2], (O[8],)), (O[8],)),
        (
            "picked",
            (O[4], (O[8], "...", 1)),
            (O[8], slice(0, 7, 1), 1),
        ),  # a mask of two axes leaves one for the ellipsis
        ("picked", (O[4], (O[9], "...", 1)), (O[9], slice(0, 3, 1), slice(0, 7, 1), 1)),
        ("attention_scale", (O[4], None), 8**-0.5),
        ("attention_scale", (O[4], 0.5), 0.5),
        ("implicit_dim", (O[0], None), 0),
        ("implicit_dim", (O[1], None), 0),
        ("implicit_dim", (O[2], None), 1),
        ("implicit_dim", (O[3], None), 0),
        ("implicit_dim", (O[4], None), 1),
        ("implicit_dim", (O[4], 3), 3),
        ("machine_epsilon", (O[1],), 2.0**-23),
        ("machine_epsilon", (O[4],), 2.0**-23),  # of 16 bits, computed in float32
        ("machine_epsilon", (O[10],), 2.0**-52),
        ("real_only", (O[1],), O[1]),
        ("real_only", (O[5],), NotTold),
        ("full_rank", (O[3], (2,)), (1, 1, 2)),
        ("full_rank", (O[3], ((2, 3, 4),)), (2, 3, 4)),
        ("holes", ((None, O[9]),), (ALL, O[9])),
        ("stacked_axis", ((O[1],), 1), 0),
        ("stacked_axis", ((O[2],), 1), 1),
        ("same_rank", (O[2], O[8]), O[8]),
        ("same_rank", (O[2], O[9]), NotTold),
        ("padding_row", (O[2], None), None),
        ("padding_row", (O[2], -1), 3),
        ("padding_row", (O[2], 1), 1),
        ("rolled", (O[2], None), None),
        ("rolled", (O[2], ()), None),
        ("rolled", (O[2], (-1, 0)), (1, 0)),
        ("used_scales", (O[4], None, 2), (2.0, 2.0)),
        ("used_scales", (O[4], None, (2, 3)), (2.0, 3.0)),
        ("used_scales", (O[4], None, (2, 3.1), True), (2.0, 3.0)),
        ("used_scales", (O[4], (14, 24), None), (2.0, 3.0)),
        ("kernel_scales", (O[4], None, None), (2.0, 3.0)),
        ("kernel_scales", (O[4], 2, 3.1), (2.0, 3.1)),
        ("channels_first", (O[4], "nchw"), O[4]),
        ("channels_first", (O[4], "NHWC"), NotTold),
        ("transposed_sides", (O[4], (3, 3), "valid", 0, 2, 1), ((0, 0), (0, 0))),
        ("transposed_sides", (O[4], (3, 3), "same", 0, 2, 1), ((0, 1), (0, 1))),
        ("transposed_sides", (O[4], (3, 3), "pad", 1, 2, 1), ((1, 1), (1, 1))),
        ("transposed_rest", (O[4], (2, 10), "valid", 0, 2, 1), (0, 0)),
        ("transposed_rest", (O[4], (3, 3), "pad", 1, (2, 3), 1), (1, 2)),
        ("tail", (O[4], 1), (3, 7, 8)),
        ("tail", (O[4], -2), (7, 8)),
        ("front", (O[4], -1), 3),
        ("boxed", (O[2], (1, 2), (2, -1)), (slice(1, 3, 1), slice(2, 6, 1))),
        ("projections", (O[1], O[2], O[3], O[4]), O[1]),
        ("projections", (None, O[2], O[3], O[4]), (O[2], O[3], O[4])),
    ],
)
def test_arguments(name, arguments, expected):
    if expected is NotTold:
        with pytest.raises(NotTold):
            FUNCTIONS[name](*arguments)
    elif isinstance(expected, float):
        assert FUNCTIONS[name](*arguments) == pytest.approx(expected, rel=1e-12)
    else:
        assert FUNCTIONS[name](*arguments) == expected


X = np.arange(2 * 3 * 4).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        (1, (1,)),
        (-1, (1,)),
        ((ALL, 1), (slice(0, 2, 1), 1)),
        (("...", -1), (slice(0, 2, 1), slice(0, 3, 1), 3)),
        ((0, "...", slice(1, None)), (0, slice(0, 3, 1), slice(1, 4, 1))),
        ((None, "..."), (None,)),
        ((0, None, slice(None, None, 2)), (0, None, slice(0, 3, 2))),
        ((ALL, slice(-2, None)), (slice(0, 2, 1), slice(1, 3, 1))),
        ((ALL, ALL, ALL), ()),
        ("...", ()),
        ((True, 0), (True, 0)),
    ],
)
def test_an_index_in_its_plain_form_picks_the_same(written, plain):
    def of_numpy(items):
        items = items if isinstance(items, tuple) else (items,)
        return tuple(Ellipsis if isinstance(item, str) else item for item in items)

    assert index(written, X.shape) == plain
    assert np.array_equal(X[of_numpy(written)], X[of_numpy(plain)])


@pytest.mark.parametrize("masks", [(0, 0, 0, 0, 0), (1, 2, 0, 0, 0), (0, 0, 1, 0, 4), (0, 0, 0, 2, 1), (0, 0, 0, 0, 2)])
def test_a_strided_slice_with_masks(masks):
    """Bits by position: no begin, no end, an ellipsis, a new axis, an axis that is taken away."""
    begin, end, strides = (1, 0, 2), (2, 2, 4), (1, 1, 2)
    items = [slice(a, b, c) for a, b, c in zip(begin, end, strides, strict=True)]
    for place, (a, b, c) in enumerate(zip(begin, end, strides, strict=True)):
        bit = 1 << place
        start, stop = None if masks[0] & bit else a, None if masks[1] & bit else b
        items[place] = slice(start, stop, c)
        if masks[2] & bit:
            items[place] = Ellipsis
        elif masks[3] & bit:
            items[place] = None
        elif masks[4] & bit:
            items[place] = a
    found = Context(SPECS.__getitem__, []).strided(O[3], begin, end, strides, *masks)
    assert np.array_equal(X[tuple(items)], X[tuple(found)])


@pytest.mark.parametrize("size", range(5, 9))
@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("spacing", [1, 2])
def test_ceil_mode_adds_the_cells_that_its_last_window_needs(size, width, step, padding, spacing):
    """As PyTorch counts the windows."""
    torch = pytest.importorskip("torch")
    pooled = torch.nn.functional.max_pool1d(torch.zeros(1, 1, size), width, step, padding, spacing, ceil_mode=True)
    [added] = overhang((size,), (width,), (step,), ((padding, padding),), (spacing,), True)
    reach = spacing * (width - 1) + 1
    assert (size + 2 * padding + added - reach) // step + 1 == pooled.shape[-1]
    assert added == 0 or (size + 2 * padding - reach) // step + 1 < pooled.shape[-1]


@pytest.mark.parametrize("size", [7, 8, 9])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_the_padding_of_same_gives_a_cell_for_each_step(size, width, step):
    [(before, behind)] = same_sides((size,), (width,), (step,), (1,))
    assert behind - before in (0, 1)
    assert (size + before + behind - width) // step + 1 == -(-size // step)


@pytest.mark.parametrize(
    ("kind", "name", "known"),
    [
        (Kind.API, "torch.special.zeta", True),
        (Kind.SAVE, "torch.special.zeta", False),  # a value that was saved under the name of a function
        (Kind.API, "zeta", False),
        (Kind.API, "torch.optim.swa_utils.zeta", False),
    ],
)
def test_only_functions_of_pytorch_mean_themselves(kind, name, known):
    call = Call(1, Site(kind, name, 0), None, (TensorRef(1), TensorRef(1)), {}, TensorRef(2))
    found = meaning_of(call, "torch", {1: SPECS[1], 2: SPECS[1]}.__getitem__)
    assert (found is not None) is known


@pytest.mark.parametrize(
    ("name", "numbers", "operation", "dim"),
    [
        ("hstack", (1, 1), "cat", 0),
        ("hstack", (2, 2), "cat", 1),
        ("vstack", (2, 2), "cat", 0),
        ("row_stack", (2, 2), "cat", 0),
        ("vstack", (1, 1), "stack", 0),
        ("vstack", (1, 2), "torch.vstack", None),  # vectors beside matrices: what PyTorch makes of them
        ("dstack", (2, 2), "torch.dstack", None),
    ],
)
@pytest.mark.parametrize(("framework", "home"), [("torch", "torch"), ("mindspore", "mindspore.ops")])
def test_stacks_are_concatenations(framework, home, name, numbers, operation, dim):
    tensors = Nest("list", tuple((str(place), TensorRef(number)) for place, number in enumerate(numbers)))
    call = Call(1, Site(Kind.API, f"{home}.{name}", 0), None, (tensors,), {}, TensorRef(20))
    found = meaning_of(call, framework, SPECS.__getitem__)
    assert (found.operation, found.arguments.get("dim")) == (operation, dim)


def test_rows_may_call_what_is_listed_and_nothing_else():
    assert {"spread", "sides", "conv_sides", "sqrt"} <= FUNCTIONS.keys()
    assert not any(name.startswith("_") or name == "names" for name in FUNCTIONS)
    assert FUNCTIONS["spread"] is spread
    assert FUNCTIONS["sides"] is sides
    assert conventions.axes is FUNCTIONS["axes"]
