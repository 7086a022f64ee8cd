"""The verdict on the terminal: what each line says, when it is left out, how it is wrapped."""

import dataclasses
import io
import re
import tracemalloc

import comparisons
import pytest
from rich.console import Console

from twintrace.model.pairs import Alone, Part, Stray
from twintrace.model.results import Mistake
from twintrace.model.sites import Kind, Phase
from twintrace.model.verdicts import Outcome, Verdict
from twintrace.model.words import times
from twintrace.report import pairs
from twintrace.report.advice import recording
from twintrace.report.naming import places, single_place
from twintrace.report.text import MAX_LINES, _fitted, _Line, balance, cause_of, sentence, verdict


def label(text, name):
    """The line that begins with a label."""
    return next((line[10:] for line in text.splitlines() if line.startswith(f"  {name:<8}")), None)


def blamed(mistake, **changed):
    """A comparison whose headline is this mistake."""
    comparison = comparisons.comparison(100)
    found = comparison.forward
    result = dataclasses.replace(found.result, mistakes=(mistake,))
    results = tuple(result if item is found.result else item for item in comparison.results)
    forward = dataclasses.replace(found, result=result, mistake=mistake, advice=mistake.advice)
    return dataclasses.replace(comparison, results=results, forward=forward, backward=None, **changed)


def test_a_mistake_is_told_line_by_line():
    text = verdict(comparisons.comparison(100))
    assert " part at " in text.splitlines()[0]
    assert len(text.splitlines()) <= MAX_LINES
    assert label(text, "what").startswith("on the same inputs, the two calls give different results: the output")
    assert label(text, "size").startswith("2.1e-03 apart on the same inputs, 35,000 times the rounding of f32")
    assert "own error 0.25 | 0.5 times the rounding bound" in label(text, "size")
    assert label(text, "why").endswith("with the left's the results agree: 2.1e-03 → 0.0e+00")
    assert label(text, "share").startswith("99.8 % of the gap at the loss goes away")
    assert label(text, "next").startswith("set eps=1e-05 on the right: model.py:")


def test_settings_are_left_out_where_the_cause_is_proven_or_names_them():
    assert label(verdict(comparisons.comparison(100)), "set") is None
    unproven = Mistake("meaning", "the two calls say that they compute something else: eps", "eps (not proven)")
    assert label(verdict(blamed(unproven)), "set") is None
    unexplained = dataclasses.replace(comparisons.MISTAKE, why="")
    text = verdict(blamed(unexplained))
    assert label(text, "why") == "nothing that was tried explains it"
    assert label(text, "set") == "eps: 1e-05 | 1e-06"


def test_the_size_does_not_repeat_the_difference():
    kernel = Mistake(
        "kernel",
        "the right's linear does not give what it says it computes: an element is beyond",
        "the kernel",
        "",
        "right",
        40.0,
    )
    text = verdict(blamed(kernel))
    assert label(text, "size").startswith("an element is beyond; ")
    assert "an element" not in label(text, "what")


def test_a_marginal_mistake_and_a_large_one_are_both_told():
    comparison = comparisons.comparison(100)
    small = Mistake(
        "kernel", "the left's softmax does not give what it says it computes: x", "the kernel", side="left", size=3.0
    )
    first = dataclasses.replace(comparison.results[0], mistakes=(small,))
    comparison = dataclasses.replace(comparison, results=(first, *comparison.results[1:]))
    text = verdict(comparison)
    assert label(text, "why").startswith("eps")
    assert "marginal, 3 times what is allowed" in label(text, "also")
    assert "before it agree" not in label(text, "sure")
    listed = verdict(comparison, everything=True)
    assert "     1    " in listed
    assert "     2    " in listed
    assert len(listed.splitlines()) > len(text.splitlines())


def test_a_mistake_without_effect_is_the_first_remark_and_costs_nothing():
    idle = dataclasses.replace(comparisons.MISTAKE, effective=False)
    quiet = comparisons.agreeing(40)
    first = dataclasses.replace(quiet.results[0], mistakes=(idle,))
    quiet = dataclasses.replace(quiet, results=(first, *quiet.results[1:]), recomputed=True, remarks=("Another.",))
    text = verdict(quiet)
    assert quiet.code == 0
    assert quiet
    assert text.splitlines()[0].startswith("left and right agree")
    assert text.index("Without effect on any result") < text.index("Another.")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_lines_are_wrapped_to_the_terminal_below_their_text(width):
    whole = verdict(comparisons.comparison(100))
    lines = verdict(comparisons.comparison(100), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert "".join(lines).replace(" ", "") == whole.replace("\n", "").replace(" ", ""), "nothing is cut or left out"
    assert len(whole.splitlines()) <= MAX_LINES
    if width == 80:
        assert any(line.startswith(" " * 10) and line.strip() for line in lines)


def test_nothing_is_cut_in_a_pipe():
    long = dataclasses.replace(comparisons.MISTAKE, why="x" * 500)
    assert "x" * 500 in verdict(blamed(long))


def test_statistics_are_wrapped_below_their_text():
    bare = [dataclasses.replace(item, measurement=None) for item in comparisons.comparison(100).forward.tensors]
    found = dataclasses.replace(comparisons.comparison(100).forward, tensors=tuple(bare))
    lines = verdict(dataclasses.replace(comparisons.comparison(100), forward=found), width=60).splitlines()
    begun = next(place for place, line in enumerate(lines) if "left  min" in line)
    assert lines[begun + 1].startswith(" " * 10)


def test_remarks_are_told_however_long_the_verdict_is():
    """A trace that is damaged is never passed over for want of lines."""
    told = [f"remark {number}" for number in range(6)]
    text = verdict(dataclasses.replace(blamed(comparisons.MISTAKE), remarks=tuple(told)))
    assert all(remark in text for remark in told[:3])
    assert "3 more remarks are in the reports" in text
    assert len(text.splitlines()) <= MAX_LINES + 1


def test_a_fact_is_told_once():
    unproven = Mistake(
        "meaning", "the two calls say that they compute something else: eps: 1 | 2", "eps: 1 | 2 (not proven)"
    )
    comparison = blamed(unproven)
    assert verdict(comparison).count("eps: 1 | 2") == 1
    again = dataclasses.replace(unproven, backward=True)
    result = dataclasses.replace(comparison.forward.result, mistakes=(unproven, again))
    results = tuple(result if item is comparison.forward.result else item for item in comparison.results)
    forward = dataclasses.replace(comparison.forward, result=result)
    assert label(verdict(dataclasses.replace(comparison, results=results, forward=forward)), "also") is None


def test_a_call_of_many_mistakes_takes_memory_for_its_tensors_once():
    """An optimizer's step of 632 parameters shows thousands of mistakes, in thousands of tensors: it took 1.5 GB."""
    comparison = comparisons.comparison(100)
    first = comparison.forward.result
    pairs_of_it = tuple(
        dataclasses.replace(
            first.tensors[0], pair=dataclasses.replace(first.tensors[0].pair, left=number, right=number)
        )
        for number in range(300)
    )
    mistakes = tuple(Mistake("kernel", f"mistake {number}") for number in range(300))
    many = dataclasses.replace(first, tensors=pairs_of_it, mistakes=mistakes)
    around = dataclasses.replace(many)  # the module around it shows the same
    comparison = dataclasses.replace(comparison, results=(many, around), forward=None, backward=None)

    tracemalloc.start()
    try:
        distinct = comparison.mistakes
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert [mistake for _, mistake in distinct] == list(mistakes)
    assert all(place is many for place, _ in distinct)
    assert peak < 1_000_000  # a set for each mistake: 21 MB


@pytest.mark.parametrize(("terminal", "coloured"), [(True, True), (False, False)])
def test_the_verdict_is_coloured_on_a_terminal_and_nowhere_else(terminal, coloured, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=90)
    pairs.print_verdict(comparisons.comparison(100), console)
    assert ("\x1b[" in out.getvalue()) is coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert plain == verdict(comparisons.comparison(100), width=90 if terminal else None) + "\n"


def table_of(comparison):
    out = io.StringIO()
    pairs.print_pairs(comparison, Console(file=out, width=300))
    return out.getvalue().splitlines()


def test_the_table_has_forward_and_backward_in_columns_of_their_own():
    comparison = comparisons.comparison(100)
    rounding = Verdict(Outcome.ROUNDING, "", 1e-7, 2e-7)
    different = Verdict(Outcome.DIFFERENT, "", 4.28, 1e-6)
    row = dataclasses.replace(comparison.results[0], forward=rounding, backward=different)
    head, line, *_ = table_of(dataclasses.replace(comparison, results=(row, *comparison.results[1:])))
    assert head.split() == ["step", "forward", "error", "bound", "backward", "error", "bound", "left", "right"]
    assert line.split()[:7] == ["0", "rounding", "1.0e-07", "2.0e-07", "different", "4.3e+00", "1.0e-06"]


def test_an_optimizers_step_is_labelled_update():
    comparison = comparisons.comparison(100)
    first = comparison.results[0]
    call = first.match.left[0]
    step = dataclasses.replace(call, site=dataclasses.replace(call.site, phase=Phase.UPDATE))
    match = dataclasses.replace(first.match, left=(step,), right=(step,))
    row = dataclasses.replace(first, match=match, introduced_forward=True)
    line = table_of(dataclasses.replace(comparison, results=(row,)))[1]
    assert "update: " in line
    assert "introduced here (update)" in line


def untold(*texts, **settings):
    found = comparisons.agreeing(40)
    sides = {name: dataclasses.replace(getattr(found, name), settings=settings) for name in ("left", "right")}
    return dataclasses.replace(found, recomputed=True, untold=texts, **sides)


def test_code_3_says_what_could_not_be_told_and_how_to_record_it():
    found = untold("the output differs, and its values were not kept", keep="statistics", level="mix")
    assert found.code == 3
    assert not found
    text = verdict(found)
    assert label(text, "untold") == "the output differs, and its values were not kept"
    assert label(text, "next") == "record both runs with keep='tensor' and compare again"


def test_advice_that_is_fulfilled_is_not_given():
    assert "keep=" not in recording(untold("its values were not kept", keep="tensor", level="mix"))
    between = "the input was made between the modules, which level 'module' does not record"
    assert "level='mix'" in recording(untold(between, keep="tensor", level="module"))
    assert "level='mix'" not in recording(untold(between, keep="tensor", level="mix"))
    assert "fold cannot be recomputed" in recording(untold("fold is not among the operations that can be recomputed"))


@pytest.mark.parametrize(("keep", "advised"), [("statistics", True), ("fingerprint", False), ("tensor", False)])
def test_fingerprints_are_advised_only_where_there_are_none(keep, advised):
    found = comparisons.agreeing(40)
    bare = [
        dataclasses.replace(
            result,
            forward=Verdict(Outcome.SAME, ""),
            backward=None,
            tensors=tuple(
                dataclasses.replace(
                    item,
                    measurement=None,
                    verdict=Verdict(Outcome.SAME, ""),
                    left=dataclasses.replace(item.left, fingerprint=None),
                )
                for item in result.tensors
            ),
        )
        for result in found.results
    ]
    sides = {name: dataclasses.replace(getattr(found, name), settings={"keep": keep}) for name in ("left", "right")}
    text = verdict(dataclasses.replace(found, results=tuple(bare), **sides))
    assert "as far as their statistics tell" in text
    assert ("keep='fingerprint'" in text) is advised


def test_a_result_that_one_side_alone_has_is_a_parting():
    quiet = dataclasses.replace(
        comparisons.agreeing(40), recomputed=True, parted=True, lone=("only the left computes mean",)
    )
    assert quiet.code == 1
    assert "part at the results: only the left computes mean" in verdict(quiet)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0541, "0.054"),
        (3.21, "3.2"),
        (86.4, "86"),
        (12345, "12,000"),
        (999_999, "1,000,000"),
        (1_234_567, "1.2 million"),
        (3e8, "300 million"),
        (1.26e9, "1.3 billion"),
        (3e14, "10^14"),
        (float("inf"), "infinitely many"),
    ],
)
def test_factors_are_written_as_people_write_them(number, text):
    assert times(number) == text


def test_a_cause_is_told_without_its_proof():
    assert cause_of(comparisons.MISTAKE) == "eps: 1e-05 | 1e-06"
    assert cause_of(Mistake("leaf", "the two start from different weights")) == "the two start from different weights"
    assert sentence(Mistake("random", "dropout draws", "dropout draws"))[0] == "the two draw different random numbers"


@pytest.mark.parametrize("more", [0, 1, 4])
def test_as_many_lines_are_printed_as_are_allowed(more):
    """Lines of the least worth are left out, the last first, and not one more than must be."""
    lines = [_Line("", str(n), 1) for n in range(MAX_LINES + more)]
    assert _fitted(lines, None) == [str(n) for n in range(MAX_LINES)]
    kept = [*lines[:-1], _Line("", "always")]
    assert _fitted(kept, None) == [*map(str, range(MAX_LINES - 1)), "always"]


def test_an_accepted_difference_is_not_told_as_one_without_effect():
    accepted = dataclasses.replace(comparisons.MISTAKE, effective=False, accepted="eps is so in production")
    quiet = comparisons.agreeing(40)
    first = dataclasses.replace(quiet.results[0], mistakes=(accepted,))
    text = verdict(dataclasses.replace(quiet, results=(first, *quiet.results[1:]), recomputed=True))
    assert "Accepted: " in text
    assert "[eps is so in production]" in text
    assert "Without effect" not in text


def test_a_relative_error_is_told_once():
    comparison = blamed(comparisons.MISTAKE)
    first = comparison.forward.tensors[0]
    same = dataclasses.replace(first, measurement=dataclasses.replace(first.measurement, rmse=2.1e-3, rms_left=1.0))
    other = dataclasses.replace(first, measurement=dataclasses.replace(first.measurement, rmse=4e-3, rms_left=1.0))
    sizes = []
    for item in (same, other):
        forward = dataclasses.replace(comparison.forward, tensors=(item,))
        sizes.append(label(verdict(dataclasses.replace(comparison, forward=forward)), "size"))
    assert sizes[0].count("2.1e-03") == 1
    assert "relative error 4.0e-03 as recorded" in sizes[1]


def alone_before(comparison, side, distance, name):
    """A call that one side alone makes, so many calls before the parting."""
    calls = getattr(comparison.forward.result.match, side)
    until = max(call.order for call in calls)
    site = dataclasses.replace(calls[0].site, name=name, kind=Kind.API)
    call = dataclasses.replace(calls[0], order=until - distance, site=site)
    return comparison.forward.result.step, comparison.forward.result.rank, Alone(call, "nothing like it")


def test_the_nearest_call_of_one_side_is_advised():
    mistake = dataclasses.replace(comparisons.MISTAKE, why="", advice="")
    comparison = blamed(mistake)
    far, near = (alone_before(comparison, "left", *item) for item in ((9, "torch.far"), (1, "torch.near")))
    here = alone_before(comparison, "right", 0, "torch.here")  # the place itself is not before it
    text = verdict(dataclasses.replace(comparison, only_left=(far, near), only_right=(here,)))
    assert label(text, "next").startswith("look at what only the left calls before it: torch.near")


@pytest.mark.parametrize("update", [True, False])
def test_a_gradient_of_one_side_is_advised_of_an_optimizer_alone(update):
    mistake = dataclasses.replace(comparisons.MISTAKE, advice="")
    comparison = blamed(mistake)
    result = comparison.forward.result
    match = dataclasses.replace(result.match, only_left=(Stray(Part.INPUT, "kw.gradients.3", 9, "only left"),))
    if update:
        calls = (dataclasses.replace(match.left[0], site=dataclasses.replace(match.left[0].site, phase=Phase.UPDATE)),)
        match = dataclasses.replace(match, left=calls)
    result = dataclasses.replace(result, match=match)
    forward = dataclasses.replace(comparison.forward, result=result)
    text = verdict(dataclasses.replace(comparison, forward=forward))
    assert ("only the left has a gradient of gradients.3" in label(text, "next")) is update


def test_a_line_of_code_follows_advice_to_change_it_and_no_advice_to_record():
    code = blamed(dataclasses.replace(comparisons.MISTAKE, advice="set eps=1e-05 on the right"))
    assert re.search(r"right: model\.py:\d+$", label(verdict(code), "next"))
    again = blamed(dataclasses.replace(comparisons.MISTAKE, advice="record both runs with keep='tensor'"))
    assert label(verdict(again), "next") == "record both runs with keep='tensor'"


def test_a_place_is_named_once_where_both_sides_call_it_the_same():
    result = comparisons.comparison(100).results[0]
    same = dataclasses.replace(result.match, right=result.match.left)
    assert places(dataclasses.replace(result, match=same)) == single_place(result.match.left[0])
    assert " | " in places(result)
    again = dataclasses.replace(result.match.left[0].site, call=2)
    assert "(call 3 of the step)" in single_place(dataclasses.replace(result.match.left[0], site=again))


@pytest.mark.parametrize(
    ("skipped", "ending"),
    [
        ([], "1 not comparable."),
        ([False], "Unpaired: 1 left, 0 right."),
        ([True], "Unpaired: 1 left, 0 right; it does not matter."),
        ([True, True], "Unpaired: 2 left, 0 right; none of them matters."),
        ([True, False], "Unpaired: 2 left, 0 right; 1 of them does not matter."),
        ([True, True, False], "Unpaired: 3 left, 0 right; 2 of them do not matter."),
    ],
)
def test_calls_without_a_partner_are_counted_and_the_harmless_ones_said(skipped, ending):
    comparison = comparisons.comparison(100)
    call = comparison.forward.result.match.left[0]
    alone = tuple((0, 0, Alone(call, "a cast", item)) for item in skipped)
    assert balance(dataclasses.replace(comparison, only_left=alone, only_right=())).endswith(ending)


def test_pairs_that_differ_in_gradients_alone_are_counted():
    """ "7 pairs before it agree" and "76 different" are both true, where every gradient differs."""
    comparison = comparisons.comparison(100)
    agreeing = next(item for item in comparison.results if item.forward and item.forward.outcome is Outcome.SAME)
    apart = dataclasses.replace(agreeing, backward=comparison.forward.result.forward)
    for result, alone in ((agreeing, ""), (apart, " (1 in gradients alone)")):
        values = dataclasses.replace(comparison, results=(comparison.forward.result, result))
        assert f"{1 + bool(alone)} different{alone}." in balance(values)
