"""What is said of two items: cells, verdicts, colours, advice, in both generations."""

import math

import pytest

from twintrace.compat.msprobe.compare.advisor import Advisor, advice
from twintrace.compat.msprobe.compare.pairing import ItemPair
from twintrace.compat.msprobe.compare.rows import NOTHING, Generation, Mode, Row, cells_of, columns, make_row
from twintrace.compat.msprobe.compare.tensors import Measured
from twintrace.compat.msprobe.compare.verdicts import colour, judge
from twintrace.compat.msprobe.dumps import Item
from twintrace.model.pairs import Layout

OLDER, NEWER = Generation
RECORD = "Functional.linear.0.forward"
NAN, INF = math.nan, math.inf


def item(state: str = "output", place: int = 0, **facts) -> Item:
    known = {
        "dtype": "torch.float32",
        "shape": (2, 3),
        "max": 2.0,
        "min": -1.0,
        "mean": 0.5,
        "norm": 4.0,
        "requires_grad": True,
    }
    return Item(f"{RECORD}.{state}.{place}", RECORD, state, "torch.Tensor", **(known | facts))


def scalar(value: object, kind: str = "int", state: str = "input") -> Item:
    return Item(f"{RECORD}.{state}.1", RECORD, state, kind, value=value)


def statistics(npu: Item | None, bench: Item | None, generation: Generation = NEWER) -> Row:
    return make_row(ItemPair(npu, bench), Mode.STATISTICS, generation)


def values(*numbers: object, state: str = "output", generation: Generation = OLDER, **facts) -> Row:
    """A row of a tensor dump: Cosine, EucDist, MaxAbsErr, MaxRelativeErr, and the two shares."""
    sides = ItemPair(item(state, **facts), item(state))
    return make_row(sides, Mode.TENSOR, generation, Measured(numbers))


GOOD = (1.0, 0.0, 0.0, 0.0, 1.0, 1.0)


def judged(rows: list[Row], mode: Mode, generation: Generation) -> list[str]:
    judge(rows, mode, generation)
    return [row.verdict for row in rows]


# Columns --------------------------------------------------------------------------------------------------------------

COMMON = (
    "NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape", "Bench Tensor Shape", "NPU Requires_grad",
    "Bench Requires_grad",
)  # fmt: skip
EIGHT = ("NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm")
SIX = ("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio", "Five Thousandths Err Ratio")


def test_the_columns_of_the_older_generation():
    tensor = columns(OLDER, Mode.TENSOR, stack=True)
    assert tensor == (
        *COMMON, *SIX, *EIGHT, "Requires_grad Consistent", "Accuracy Reached or Not", "Err_message", "NPU_Stack_Info", "Data_name",
    )  # fmt: skip
    assert columns(OLDER, Mode.MD5) == (*COMMON, "NPU MD5", "BENCH MD5", "Requires_grad Consistent", "Result")
    found = columns(OLDER, Mode.STATISTICS)
    assert found[8:12] == ("Max diff", "Min diff", "Mean diff", "L2norm diff")
    assert found[-3:] == ("Requires_grad Consistent", "Result", "Err_message")


def test_the_columns_of_the_newer_generation():
    assert columns(NEWER, Mode.MD5)[-2:] == ("Result", "Err_message")
    assert columns(NEWER, Mode.TENSOR)[-3:] == ("Result", "Err_message", "Data_name")


@pytest.mark.parametrize("generation", Generation)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("stack", [False, True])
def test_a_row_has_a_cell_for_each_column(generation, mode, stack):
    row = make_row(ItemPair(item(), item(md5="0a")), mode, generation, Measured(GOOD) if mode.reads else None)
    judge([row], mode, generation)
    heads = columns(generation, mode, stack=stack)
    cells = cells_of(row, mode, generation, stack=stack)
    assert len(cells) == len(heads)
    found = dict(zip(heads, cells, strict=True))
    assert found["NPU Name"] == f"{RECORD}.output.0"
    assert found["Bench Tensor Shape"] == "[2, 3]"
    if "NPU l2norm" in found:
        assert (found["NPU l2norm"], found["Bench min"]) == (4.0, -1.0)
    if "Cosine" in found:
        assert (found["Cosine"], found["Five Thousandths Err Ratio"]) == (1.0, 1.0)


# Differences of statistics --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("npu", "bench", "newer", "older"),
    [
        (2.5, 2.0, (0.5, "25.0%"), (0.5, "25.0%")),
        (2, 2, (0, "0"), (0.0, "0.0%")),
        (-1.0, -2.0, (1.0, "50.0%"), (1.0, "50.0%")),
        (1.0, 0.0, (1.0, INF), (1.0, NOTHING)),
        (0.0, 0, (0, "0"), (0.0, NOTHING)),  # the tool says inf: one is written 0.0, the other 0
        (NAN, NAN, (0, "0"), ("Nan", "Nan")),
        (NAN, 1.0, ("Nan", "Nan"), ("Nan", "Nan")),
        (INF, 1.0, (INF, INF), (INF, "inf%")),
        (1.0, INF, (-INF, -INF), (-INF, "nan%")),
        (INF, INF, (0, "0"), ("Nan", "Nan")),
        (None, None, (0, "0"), (NOTHING, NOTHING)),
        (None, 1.0, ("Diff", "Diff"), (NOTHING, NOTHING)),
        (True, False, ("Diff", "Diff"), (NOTHING, NOTHING)),
        (10**400, 1.0, None, None),
    ],
)
def test_what_two_statistics_differ_by(npu, bench, newer, older):
    for generation, wanted in ((NEWER, newer), (OLDER, older)):
        numbers = statistics(item(max=npu), item(max=bench), generation).numbers
        found = (numbers[0], numbers[4])
        if wanted is None:  # no float is that large
            assert [str(each).lower() for each in found] == ["nan", "nan"]
        else:
            assert found == wanted


@pytest.mark.parametrize(
    ("npu", "bench", "wanted"),
    [
        ("sum", "sum", "0"),
        ("sum", "mean", "Diff"),
        ("npu:0", "cuda:0", NOTHING),
        (3, 4, "25.0%"),
    ],
)
def test_what_two_arguments_differ_by(npu, bench, wanted):
    assert statistics(scalar(npu, "str"), scalar(bench, "str")).numbers[4] == wanted


def test_what_is_no_tensor_is_described_as_the_tool_does():
    for given, dtype, shape in (
        (scalar(2.5, "float"), "<class 'float'>", "[]"),
        (scalar([1, 2], "torch.Size"), "torch.Size", "[1, 2]"),
        (scalar([0, 2, None], "slice"), "slice", "(3,)"),
        (scalar("...", "ellipsis"), "ellipsis", "[]"),
        (scalar(None, "NoneType"), NOTHING, NOTHING),
    ):
        side = statistics(given, given).npu
        assert (side.dtype, side.shape) == (dtype, shape)


def test_one_side_alone_has_nothing_on_the_other():
    row = statistics(item(), None)
    assert row.numbers == (NOTHING,) * 8
    assert (row.bench.name, row.bench.numbers[0], row.consistent) == (NOTHING, NOTHING, "False")
    assert statistics(None, item()).name == f"{RECORD}.output.0"


def test_a_framework_that_does_not_know_requires_grad_is_not_held_against_it():
    assert statistics(item(requires_grad=None), item()).consistent == NOTHING
    assert statistics(item(requires_grad=None), item(requires_grad=None)).consistent == "True"
    assert statistics(item(requires_grad=False), item()).consistent == "False"


# Verdicts, older ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cosine", "error", "wanted"),
    [
        (1.0, 0.0, "Yes"),
        (0.99, 0.5, "Yes"),
        (0.989, 0.001, "Yes"),
        (0.989, 0.0011, "No"),
        (0.89, 0.0, "No"),
        (1.0, 1.1, "No"),
        ("shape unmatched", "shape unmatched", "Unmatched"),
        (NOTHING, NOTHING, "No"),
        ("unsupported", "unsupported", "None"),
        ("unsupported", 0.5, "None"),  # one element
        ("Nan", 0.5, "No"),  # one side is all zeros: the tool says Yes
        ("Nan", 0.0005, "Yes"),
    ],
)
def test_accuracy_reached_or_not(cosine, error, wanted):
    assert judged([values(cosine, 0.0, error, 0.0, 1.0, 1.0)], Mode.TENSOR, OLDER) == [wanted]


@pytest.mark.parametrize(
    ("npu", "bench", "wanted"),
    [({}, {}, ""), ({"norm": 1.9}, {"norm": 4.0}, "Warning"), ({"norm": 2.1}, {"norm": 4.0}, ""), ({"min": -9.0}, {}, "Warning"),
     ({"norm": 10**400}, {}, "Warning")],
)  # fmt: skip
def test_statistics_that_are_half_apart_are_warned_about(npu, bench, wanted):
    row = statistics(item(**npu), item(**bench), OLDER)
    assert judged([row], Mode.STATISTICS, OLDER) == [wanted]
    assert bool(row.messages) == bool(wanted)


def test_hashes_pass_or_are_different():
    rows = [
        make_row(ItemPair(item(md5="0a"), other), Mode.MD5, OLDER)
        for other in (item(md5="0a"), item(md5="0b"), None, item(md5="0a", problem="damaged"))
    ]
    assert judged(rows, Mode.MD5, OLDER) == ["pass", "Different", NOTHING, NOTHING]


def test_kernels_of_which_only_statistics_are_known():
    pairs = [
        ({}, {}),
        ({"max": 3.0}, {}),
        ({"max": 5.0}, {}),
        ({"shape": (3, 2)}, {}),
        ({"max": NAN}, {"max": NAN}),
        ({"max": NAN}, {}),
    ]
    rows = [make_row(ItemPair(item(**one), item(**two)), Mode.KERNEL_STATISTICS, OLDER) for one, two in pairs]
    assert judged(rows, Mode.KERNEL_STATISTICS, OLDER) == ["Yes", "Yes", "No", "Unmatched", "Yes", "No"]


# Verdicts, newer ------------------------------------------------------------------------------------------------------


def newer(mode: Mode, *rows: Row) -> list[str]:
    return judged([*rows], mode, NEWER)


def given(**facts) -> Row:
    return statistics(item("input", **facts), item("input"))


def test_nan_or_inf_that_only_the_npu_has_is_an_error():
    for odd in (NAN, INF, -INF):
        assert newer(Mode.STATISTICS, statistics(item(min=odd), item())) == ["error"]
        assert newer(Mode.STATISTICS, statistics(item(min=odd), item(max=odd))) == ["pass"], "the bench has one, too"


def test_a_norm_that_is_off_after_a_call_is_an_error():
    assert newer(Mode.STATISTICS, given(), statistics(item(norm=6.1), item())) == ["pass", "error"]
    assert newer(Mode.STATISTICS, given(norm=5.0), statistics(item(norm=6.1), item())) == ["pass", "pass"], "off before"
    assert newer(Mode.STATISTICS, given(), statistics(item(norm=1.0), item(norm=0.0))) == ["pass", "error"]


def test_a_norm_whose_error_grows_tenfold_is_a_warning():
    assert newer(Mode.STATISTICS, given(norm=4.01), statistics(item(norm=4.11), item())) == ["pass", "warning"]
    assert newer(Mode.STATISTICS, given(norm=4.01), statistics(item(norm=4.09), item())) == ["pass", "pass"]
    assert newer(Mode.STATISTICS, given(), statistics(item(norm=4.5), item())) == ["pass", "warning"], "from nothing"


@pytest.mark.parametrize(
    ("npu", "bench"),
    [
        (item(requires_grad=False), item()),
        (item(dtype="torch.float16"), item()),
        (item(shape=(3, 2)), item()),
        (scalar(3), scalar(4)),
        (scalar(3), scalar(3.0)),
    ],
)
def test_facts_that_must_be_the_same(npu, bench):
    row = statistics(npu, bench)
    assert newer(Mode.STATISTICS, row) == ["error"]
    assert row.messages[0].startswith("error: ")


def test_one_type_has_two_names():
    assert newer(Mode.STATISTICS, statistics(item(dtype="Float32", requires_grad=None), item())) == ["pass"]
    assert newer(Mode.STATISTICS, statistics(item(dtype="Float16", requires_grad=None), item())) == ["error"]


def test_shapes_that_the_pairing_knows_to_fit_are_no_error():
    pair = ItemPair(item(shape=(3, 2)), item(), "", Layout((1, 0)))
    assert newer(Mode.STATISTICS, make_row(pair, Mode.STATISTICS, NEWER)) == ["pass"]


def of_values(*numbers: object, state: str = "output") -> Row:
    return values(*numbers, state=state, generation=NEWER)


def test_a_share_that_falls_is_an_error_and_a_cosine_that_falls_a_warning():
    before = of_values(*GOOD, state="input")
    assert newer(Mode.TENSOR, before, of_values(1.0, 0.0, 0.0, 0.0, 0.59, 1.0)) == ["pass", "error"]
    assert newer(Mode.TENSOR, before, of_values(1.0, 0.0, 0.0, 0.0, 0.61, 1.0)) == ["pass", "pass"]
    assert newer(Mode.TENSOR, before, of_values(0.89, 0.0, 0.0, 0.0, 1.0, 1.0)) == ["pass", "warning"]
    assert newer(Mode.TENSOR, before, of_values(0.91, 0.0, 0.0, 0.0, 1.0, 1.0)) == ["pass", "pass"]


def test_hashes_that_differ_are_errors_and_a_lonely_one_a_warning():
    pairs = [
        (item(md5="0a"), item(md5="0a")),
        (item(md5="0a"), item(md5="0b")),
        (item(md5="0a"), scalar(None, "NoneType")),
    ]
    rows = [make_row(ItemPair(*pair), Mode.MD5, NEWER) for pair in pairs]
    assert newer(Mode.MD5, *rows) == ["pass", "error", "warning"]


def test_values_that_mean_nothing_are_not_judged():
    named = item("output", norm=9.0)._replace(name="Torch.empty.0.forward.output.0")
    before = item("input")._replace(name="Torch.empty.0.forward.input.0")
    assert newer(Mode.STATISTICS, statistics(before, before), statistics(named, item())) == ["pass", "pass"]


@pytest.mark.parametrize("mode", [Mode.STATISTICS, Mode.MD5, Mode.TENSOR])
@pytest.mark.parametrize("generation", Generation)
def test_what_was_not_read_or_has_no_partner_never_passes(mode, generation):
    measured = Measured(("unsupported",) * 6, unread="x.npy: truncated") if mode.reads else None
    damaged = make_row(ItemPair(item(problem="its shape is no list"), item()), mode, generation, measured)
    lonely = make_row(
        ItemPair(item(), None, "no such record"),
        mode,
        generation,
        Measured(("unsupported",) * 6) if mode.reads else None,
    )
    found = judged([damaged, lonely], mode, generation)
    assert not {*found} & {"pass", "Yes", ""}
    if mode is not Mode.MD5 or generation is NEWER:
        assert "its shape is no list" in " ".join(damaged.messages)
        assert "No bench data matched" in " ".join(lonely.messages)
        assert "no such record" in " ".join(lonely.messages)


# Colours --------------------------------------------------------------------------------------------------------------


def coloured(mode: Mode, *rows: Row, generation: Generation = OLDER) -> list[str | None]:
    judge(rows, mode, generation)
    colour(rows, mode, generation)
    return [row.colour for row in rows]


def old(state: str, npu: dict | None = None, bench: dict | None = None) -> Row:
    return statistics(item(state, **(npu or {})), item(state, **(bench or {})), OLDER)


def test_red_rows_of_statistics():
    assert coloured(Mode.STATISTICS, old("input", {"max": NAN})) == ["red"]
    assert coloured(Mode.STATISTICS, old("input", {"min": -INF})) == ["red"]
    assert coloured(Mode.STATISTICS, old("input", {"max": 2e10}, {"max": 1.0})) == ["red"]
    assert coloured(Mode.STATISTICS, old("input"), old("output", {"max": 3.1})) == [None, "red"]
    assert coloured(Mode.STATISTICS, old("output", {"max": 3.1})) == [None], "nothing went in to hold it against"


def test_yellow_rows_of_statistics():
    assert coloured(Mode.STATISTICS, old("input"), old("output", {"max": 2.3})) == [None, "yellow"]
    assert coloured(Mode.STATISTICS, old("input", {"max": 2.1}), old("output", {"max": 2.3})) == [None, None]
    far = old("input", {"max": 102.0}, {"max": 100.0}), old("output", {"max": 1030.0}, {"max": 1000.0})
    assert coloured(Mode.STATISTICS, *far) == [None, "yellow"]
    assert coloured(Mode.STATISTICS, old("input", {"requires_grad": False})) == ["yellow"]


def test_rows_of_values():
    before = values(*GOOD, state="input")
    assert coloured(Mode.TENSOR, before, values(1.0, 0.0, 0.0, 0.0, 0.5, 1.0)) == [None, "red"]
    assert coloured(Mode.TENSOR, before, values(1.0, 0.0, 0.0, 0.0, 0.8, 1.0)) == [None, "yellow"]
    assert coloured(Mode.TENSOR, before, values(0.8, 0.0, 0.0, 0.0, 1.0, 1.0)) == [None, "yellow"]
    assert coloured(Mode.TENSOR, before, values(1.0, 0.0, 2e10, 0.0, 1.0, 1.0)) == [None, "red"]
    large = values(1.0, 0.0, 1.5, 0.0, 1.0, 1.0, state="input"), values(1.0, 0.0, 15.0, 0.0, 1.0, 1.0)
    assert coloured(Mode.TENSOR, *large) == [None, "yellow"]
    assert coloured(Mode.TENSOR, before, values(*GOOD)) == [None, None]


def test_a_colour_says_why_and_says_it_once():
    rows = [values(*GOOD, state="input"), values(*GOOD, state="input"), values(1.0, 0.0, 0.0, 0.0, 0.5, 1.0)]
    assert coloured(Mode.TENSOR, *rows) == [None, None, "red"]
    assert len(rows[2].messages) == 1


def test_the_newer_generation_is_coloured_by_verdict():
    rows = given(), statistics(item(norm=6.1), item()), statistics(item(), None)
    assert coloured(Mode.STATISTICS, *rows, generation=NEWER) == [None, "red", "yellow"]


# Advice ---------------------------------------------------------------------------------------------------------------


def test_the_first_row_that_fails_and_the_first_call_that_makes_it_so():
    advisor = Advisor()
    inherited = [values(0.5, 1.0, 9.0, 1.0, 0.0, 0.0, state="input"), values(0.5, 1.0, 9.0, 1.0, 0.0, 0.0)]
    good = [values(*GOOD, state="input"), values(*GOOD)]
    made = [values(*GOOD, state="input"), values(0.5, 1.0, 9.0, 1.0, 0.0, 0.0)]
    for rows in (good, inherited, made):
        judge(rows, Mode.TENSOR, OLDER)
        advisor.see(rows)
    text = advisor.text("npu/dump.json", "a folder/dump.json").splitlines()
    assert text[0] == "Line: 4", "the row in the sheet: the header is line 1"
    assert text[1] == f"Suspect Nodes: {RECORD}.input.0"
    assert text[2].startswith("Expert Advice: The value was off before")
    assert text[3].endswith(f"{RECORD} (line 7)")
    assert "twintrace compare 'a folder/dump.json' npu/dump.json" in text[-1]


def test_nothing_fails():
    advisor = Advisor()
    rows = [values(*GOOD)]
    judge(rows, Mode.TENSOR, OLDER)
    advisor.see(rows)
    assert advisor.text("a", "b").startswith("Line: NA\nSuspect Nodes: NA\n")


def test_what_was_not_read_is_no_failure_but_told():
    advisor = Advisor()
    row = make_row(ItemPair(item(), item()), Mode.TENSOR, OLDER, Measured(("unsupported",) * 6, unread="truncated"))
    judge([row], Mode.TENSOR, OLDER)
    advisor.see([row])
    assert advisor.first is None
    assert "1 rows could not be read" in advisor.text("a", "b")


def advised(mode: Mode, *rows: Row, generation: Generation = OLDER) -> str:
    advisor = Advisor()
    judge(rows, mode, generation)
    colour(rows, mode, generation)
    advisor.see(rows)
    return advisor.text("a", "b")


def of(npu: Item | None, bench: Item | None, mode: Mode, generation: Generation = OLDER) -> Row:
    return make_row(ItemPair(npu, bench), mode, generation, Measured(("unsupported",) * 6) if mode.reads else None)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (of(item(), None, Mode.TENSOR), "1 of 2 rows have nothing on the other side"),
        (values("unsupported", "unsupported", 0.5, 0.1, "unsupported", "unsupported"), "1 of 2 rows have one element"),
        (values(*GOOD, requires_grad=False), "1 of 2 rows are yellow"),
    ],
)
def test_what_cannot_be_judged_is_counted_and_not_said_to_pass(row, words):
    text = advised(Mode.TENSOR, values(*GOOD, state="input"), row)
    assert text.startswith("Line: NA")
    assert words in text
    assert "Nothing fails" not in text


def test_a_red_row_is_one_that_fails_unless_both_sides_are_alike():
    assert "Line: 2" in advised(Mode.TENSOR, values(*GOOD, max=INF))
    both = make_row(ItemPair(item(min=-INF), item(min=-INF)), Mode.TENSOR, OLDER, Measured(GOOD))
    text = advised(Mode.TENSOR, both)
    assert "Line: NA" in text
    assert "are red" in text


def test_shapes_that_do_not_fit_fail():
    row = values(*("shape unmatched",) * 6)
    row.remark = "The shapes do not fit."
    assert "Line: 2" in (text := advised(Mode.TENSOR, row))
    assert "The shapes do not fit." in text


@pytest.mark.parametrize("mode", [Mode.STATISTICS, Mode.MD5, Mode.TENSOR])
@pytest.mark.parametrize("generation", Generation)
def test_an_argument_that_differs_fails_and_both_values_are_named(mode, generation):
    row = of(scalar(0.01, "float"), scalar(1e-05, "float"), mode, generation)
    text = advised(mode, row, generation=generation)
    assert row.verdict in ("No", "Warning", "Different", "error")
    assert "The argument differs: 0.01 | 1e-05. The two calls were not asked for the same" in text
    text = advised(mode, of(item("input"), item("input"), mode, generation), row, generation=generation)
    assert f"First call that fails on inputs that do not: {RECORD} (line 3)" in text, "no other call has made it so"
    if mode is not Mode.MD5:
        assert "0.01 | 1e-05" in " ".join(row.messages)


@pytest.mark.parametrize(
    ("npu", "bench"),
    [
        (scalar(3), scalar(3)),
        (scalar(None, "NoneType"), scalar(None, "NoneType")),
        (scalar("npu:0", "str"), scalar("cuda:1", "str")),
        (scalar("torch.float32", "torch.dtype"), scalar("Float32", "mindspore.dtype")),
        (scalar([0, 2, None], "slice"), scalar([0, 2, None], "slice")),
    ],
)
def test_arguments_that_are_the_same_have_nothing_said_of_them(npu, bench):
    for mode in (Mode.STATISTICS, Mode.TENSOR):
        row = of(npu, bench, mode)
        assert "Nothing fails" in advised(mode, row)
        assert not row.messages


def test_a_tensor_beside_none_differs():
    row = of(item("input"), scalar(None, "NoneType"), Mode.TENSOR)
    assert judged([row], Mode.TENSOR, OLDER) == ["No"]
    assert "a tensor torch.float32 [2, 3] | None" in row.messages[0]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"mean": NAN}, "Only the NPU has NaN."),
        ({"shape": (3, 2)}, "The shapes differ: [3, 2] | [2, 3]."),
        ({"dtype": "torch.int64"}, "The element types differ in kind: torch.int64 | torch.float32."),
        ({"dtype": "BFloat16"}, ""),
    ],
)
def test_what_numbers_do_not_show_is_a_warning_in_statistics(facts, words):
    row = statistics(item(**facts), item(), OLDER)
    text = advised(Mode.STATISTICS, row)
    assert row.verdict == ("Warning" if words else "")
    assert words in " ".join(row.messages)
    assert ("Line: 2" in text and words in text) if words else "Nothing fails" in text


@pytest.mark.parametrize(
    ("name", "output", "words"),
    [
        ("Functional.relu.0.forward.input.0", False, "Look where it comes from"),
        ("Functional.relu.0.forward.output.0", True, "The values that this call computes"),
        ("Functional.conv2d.0.forward.output.0", True, "deterministic"),
        ("Functional.layer_norm.0.backward.output.0", True, "deterministic"),
        ("Functional.relu.0.backward.input.0", False, "came here"),
        ("Functional.relu.0.backward.output.0", True, "backward pass"),
        ("Functional.batch_norm.0.forward.input.1", False, "Batch statistics"),
        ("Module.fc1.Linear.parameters_grad.0.weight", False, "came here"),
    ],
)
def test_advice_by_kind(name, output, words):
    assert words in advice(name, output)
