"""The page in a browser: what a reader sees, clicks and types."""

import dataclasses
import math
import re
from pathlib import Path

import comparisons
import pytest
import vision
from noise import flowing, noisy
from playwright.sync_api import expect

from tests.report.page import conftest
from twintrace.model.sites import Phase
from twintrace.model.verdicts import Outcome, Verdict
from twintrace.report import page
from twintrace.report.comparison_sheet import comparison_sheet


@pytest.fixture
def found():
    """25 blocks of a network: 125 rows, of two steps' worth of names, that part in the middle."""
    return comparisons.comparison(500)


def shown(page) -> int:
    """How many rows the filters leave."""
    return int(page.locator("#shown").inner_text().split()[0].replace(",", ""))


def rows(page) -> list[str]:
    """The rows on the screen, each as its text, in the order in which they lie there."""
    return page.evaluate(
        """() => [...document.querySelectorAll('.grid:not([hidden]) .slick-row')]
            .map(row => [row.getBoundingClientRect().top, row.innerText.replace(/\\s+/g, ' ')])
            .sort((a, b) => a[0] - b[0]).map(([_, text]) => text)"""
    )


def click_cell(page, row: int, count: int, band: str) -> None:
    strip = page.locator("#overview")
    width = min(18, strip.bounding_box()["width"] / count)
    strip.click(position={"x": (row + 0.5) * width, "y": 20 if band == "forward" else 42})


def test_the_verdict_needs_no_script(visits, found):
    page = visits.open(visits.write(found), scripts=False)
    text = page.locator("#headline").inner_text()
    assert "The runs part at encoder.12.norm (LayerNorm) | enc.cells.12.ln (LayerNorm), step 0, forward" in text
    assert text.count("model.py:60 in forward") == 4, "left and right, forward and backward"
    assert "x = self.step40(x)" in text
    assert "eps: 1e-05 | 1e-06" in text
    assert "largest absolute error 0.0021" in text
    assert "60 pairs before it agree" in text
    assert "set eps=1e-05 on the right: model.py:60" in text
    assert "with the left's the results agree: 2.1e-03 → 0.0e+00" in text
    assert "99.8 % of the gap at the loss goes away" in text
    assert "All mistakes (1)" in text


@pytest.mark.parametrize(
    ("comparison", "title"),
    [
        (comparisons.agreeing(), "The runs agree"),
        (comparisons.nothing(), "The runs have nothing in common"),
    ],
    ids=["agree", "nothing"],
)
def test_other_verdicts(report, comparison, title):
    page = report(comparison)
    assert page.locator("h1").inner_text() == title
    assert shown(page) == len(comparison.results)


def test_search_leaves_the_rows_with_all_words(report, found):
    page = report(found)
    assert shown(page) == len(found.results)
    page.locator("#search").fill("FLASH")
    assert shown(page) == 25
    assert all("flash_attention" in row for row in rows(page))
    page.locator("#search").fill("layernorm encoder.1")
    expected = [f"encoder.{number}.norm" for number in range(25) if str(number).startswith("1")]
    assert shown(page) == len(expected)
    page.locator("#search").fill("no such name")
    assert page.locator("#empty").is_visible()
    page.locator("#reset").click()
    assert shown(page) == len(found.results)


@pytest.mark.parametrize("outcome", ["same", "rounding", "unknown", "different"])
def test_a_verdict_leaves_its_rows(report, found, outcome):
    page = report(found)
    page.locator("#outcomes button", has_text=outcome).click()
    assert shown(page) == found.count(Outcome(outcome)) > 0


def test_kind_phase_step_and_origin(report):
    found = comparisons.comparison(260 * comparisons.PER_BLOCK)
    page = report(found)
    expected = {
        "kind": ("module", sum(1 for r in found.results if r.match.left and r.match.left[0].site.kind == "module")),
        "phase": ("backward", sum(1 for r in found.results if not r.match.left)),
        "step": ("step 1", sum(1 for r in found.results if r.step == 1)),
    }
    for name, (label, number) in expected.items():
        page.locator(f"#choose-{name}").select_option(label=label)
        assert shown(page) == number, name
        page.locator(f"#choose-{name}").select_option(value="")
    page.get_by_role("button", name="arises here").click()
    assert shown(page) == 1


def test_a_module_leaves_what_is_in_it(report, found):
    page = report(found)
    left, right = page.locator("#modules section").all()
    left.locator(".node", has_text="encoder").first.press("ArrowRight")
    left.locator('.node:has(.name:text-is("3"))').first.click()
    assert shown(page) == 4, "norm, linear, attention, a parameter; and not those of encoder.30"
    page.locator(".toggle.module").click()
    assert shown(page) == len(found.results)
    right.locator(".node", has_text="cells").click()
    assert shown(page) == 100, "all but the odd ones, which are in no module called so"


def test_modules_count_what_arises_apart_from_what_follows(report, found):
    """Forward and backward by themselves."""
    page = report(found)
    node = page.locator("#modules section").first.locator(".node", has_text="encoder").first
    inside = [r for r in found.results if not any("cmd" in c.site.name for c in r.match.left)]
    told = [
        f"{name}: {sum(v is not None and v.outcome is Outcome.DIFFERENT for v in verdicts)} differ, "
        f"in {sum(arises)} of them it arises"
        for name, verdicts, arises in (
            ("forward", [r.forward for r in inside], [r.introduced_forward for r in inside]),
            ("backward", [r.backward for r in inside], [r.introduced_backward for r in inside]),
        )
    ]
    assert node.get_attribute("title") == f"encoder: 100 rows; {'; '.join(told)}"


def test_gradients_that_differ_do_not_colour_the_forward(report):
    """The module of a call whose values agree is marked so, whatever its gradients are."""
    found = comparisons.comparison(100)
    results = [
        dataclasses.replace(
            r, forward=r.forward and Verdict(Outcome.SAME, ""), introduced_forward=False, tensors=r.tensors, mistakes=()
        )
        for r in found.results
    ]
    page = report(dataclasses.replace(found, results=tuple(results), forward=None, backward=None))
    marks = page.locator("#modules section").first.locator(".node", has_text="encoder").first.locator(".mark")
    assert marks.all_inner_texts()[0] == "="
    assert marks.all_inner_texts()[1] in "≠◆"
    colours = [mark.evaluate("mark => mark.style.background") for mark in marks.all()]
    assert colours[0] != colours[1]


def test_a_click_on_the_ribbon_opens_that_pair(report, found):
    page = report(found)
    cells = ((7, "torch.matmul + torch.softmax", "forward"), (65, "encoder.13.norm", "backward"))
    for row, name, band in cells:
        click_cell(page, row, len(found.results), band)
        page.wait_for_url(f"**#row={row}")
        assert page.locator("#details h2").first.inner_text().startswith(name)
    assert "row 65" in page.locator("#details").inner_text()


def test_the_lens_opens_single_rows_of_a_long_run(report):
    found = comparisons.comparison(4000)
    page = report(found)
    width = page.locator("#lens").bounding_box()["width"]
    page.locator("#lens").click(position={"x": 9 * (width // 9 // 2 + 3.5), "y": 20})
    page.wait_for_url("**#row=503")  # the place where the runs part is in the middle, this is three further
    strip = page.locator("#overview")
    strip.click(position={"x": strip.bounding_box()["width"] * 0.5005, "y": 20})
    page.wait_for_url("**#row=500")  # of those under the pixel the one where the difference arises


def test_a_pair_shows_both_sides(report, found):
    page = report(found, hash="#row=60")
    details = page.locator("#details")
    assert details.locator("h2").all_inner_texts() == ["encoder.12.norm LayerNorm", "enc.cells.12.ln LayerNorm"]
    sources = details.locator(".two > div").all_inner_texts()
    assert [text.split("\n")[0] for text in sources] == ["left", "right"]
    assert all("model.py:60 in forward" in text and "train.py:31 in main" in text for text in sources)
    assert details.locator("tr.differs").all_inner_texts() == ["eps\t1e-05\t1e-06"]
    tensors = details.locator("details.tensor")
    assert tensors.count() == 6
    assert tensors.nth(1).locator(".slot").inner_text() == "parameter weight | gamma"
    opened = details.locator("details.tensor[open]")
    assert opened.count() == 1
    assert "Worst element [3, 15]: left 0.5, right 0.5021" in opened.inner_text()
    assert opened.locator(".bin").count() == 17
    expect(opened.locator(".heat canvas")).to_be_visible()
    assert opened.locator(".heat canvas").get_attribute("aria-label").endswith("largest 0.0021")
    assert "largest absolute error\t0.0021" in opened.inner_text()


def test_a_region_shows_all_its_calls_and_its_strays(report, found):
    page = report(found, hash="#row=2")
    details = page.locator("#details")
    assert "two calls on the left give what one call on the right gives (confidence 0.9)" in details.inner_text()
    names = details.locator(".two summary").all_inner_texts()
    assert names == ["forward/api:torch.matmul#2", "forward/api:torch.softmax#0"]
    assert "only right: output 1: the other side gives one output only" in details.inner_text()


def test_statistics_stand_in_where_nothing_was_measured(report, found):
    page = report(found, hash="#row=68")
    tensor = page.locator("details.tensor", has_text="after 2")
    tensor.locator("summary").click()
    tensor.locator("table.numbers").wait_for()
    assert "NaN\t0\t2\t2" in tensor.locator("table.numbers").inner_text()


def test_those_without_a_partner_are_listed_with_their_reason(report, found):
    page = report(found)
    page.get_by_role("tab", name="Only right").click()
    assert shown(page) == len(found.only_right)
    assert any("a cast, on one side only" in row and " no " in row for row in rows(page))
    page.locator("#search").fill("clamp")
    page.locator(".grid:not([hidden]) .slick-row").first.click()
    page.wait_for_selector("#details .part")
    assert (
        "Only on the right: no call of the other side takes or gives such shapes"
        in page.locator("#details").inner_text()
    )
    assert "model.py" in page.locator("#details .stack").inner_text()


def test_a_column_sorts(report, found):
    page = report(found)
    header = page.get_by_role("columnheader", name="max abs", exact=True)
    header.click()
    header.click()
    assert "2.1e-3" in rows(page)[0] or "0.0021" in rows(page)[0]
    page.locator(".slick-header-column", has_text="#").first.click()
    assert rows(page)[0].startswith("0 ")


def test_the_keyboard_is_enough(report, found):
    page = report(found)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("linear")
    assert shown(page) == 25
    page.keyboard.press("Escape")
    assert shown(page) == len(found.results)
    page.locator("#tabs button").first.focus()
    page.keyboard.press("n")
    page.wait_for_url("**#row=60")
    page.keyboard.press("j")
    page.wait_for_url("**#row=61")
    page.keyboard.press("k")
    page.keyboard.press("k")
    page.wait_for_url("**#row=59")
    page.keyboard.press("Escape")
    assert page.locator("#details").is_hidden()
    page.locator("#overview").focus()
    page.keyboard.press("End")
    page.wait_for_url(f"**#row={len(found.results) - 1}")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(f"**#row={len(found.results) - 2}")


def test_enter_opens_the_row_with_the_cursor_and_arrows_lead_on(report, found):
    page = report(found)
    page.evaluate("document.querySelector('.grid .slick-cell').click()")
    page.wait_for_url("**#row=0")
    page.keyboard.press("Escape")
    page.locator(".slick-cell.active").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**#row=1")
    page.keyboard.press("ArrowDown")
    page.wait_for_url("**#row=2")


def test_dark_and_light_by_the_system_and_by_the_switch(report, found):
    background = "getComputedStyle(document.body).backgroundColor"
    light, dark = report(found), report(found, scheme="dark")
    colours = light.evaluate(background), dark.evaluate(background)
    assert colours[0] != colours[1]
    light.locator("#theme").click()
    assert light.evaluate(background) == colours[1]
    light.locator("#theme").click()
    assert light.evaluate(background) == colours[0]
    dark.emulate_media(color_scheme="light")
    expect(dark.locator("body")).to_have_css("background-color", colours[0])


def test_dark_is_there_before_any_script(visits, found):
    path = visits.write(found)
    colours = [
        visits.open(path, scheme=scheme, scripts=False).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert colours[0] != colours[1]


@pytest.mark.parametrize("width", [380, 700, 1000, 1900])
def test_nothing_sticks_out(report, found, width):
    page = report(found, width=width, hash="#row=60")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#details").bounding_box()["width"] > min(width * 0.9, 400)


def test_a_browser_that_cannot_unpack_is_told_so(visits, found):
    page = visits.open(visits.write(found), init="delete window.DecompressionStream")
    assert "cannot unpack" in page.locator("#problem").inner_text()
    assert "The runs part at" in page.locator("#headline").inner_text()


def test_what_does_not_fit_is_left_out_and_said_to_be(visits):
    found = noisy(comparisons.comparison(4_000))
    path = visits.write(found, limit=600_000)
    assert 500_000 < path.stat().st_size <= 600_000
    page = visits.open(path, hash="#row=0")
    assert "are not in this file" in page.locator("#foot").inner_text()
    assert "The tensors of this row are not in this file" in page.locator("#details").inner_text()
    assert "model.py:20 in forward" in page.locator("#details").inner_text()
    page.locator("a.open").first.click()
    page.wait_for_selector("#details .heat canvas")  # what tells most is there


def test_without_a_browser_the_tests_fail_and_say_why(monkeypatch):
    monkeypatch.setattr(conftest, "CHROMIUM", conftest.CHROMIUM.with_name("no-such-browser"))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(pytest.fail.Exception, match=r"Install it: apt-get .* install -y chromium"):
        conftest.find_chromium()


def test_a_page_that_complains_or_asks_fails_its_test(browser, tmp_path):
    (tmp_path / "bad.html").write_text(
        "<html data-ready><script>console.log(1)</script><img src='http://127.0.0.1:9/'>"
    )
    visits = conftest.Visits(browser, tmp_path)
    visits.open(tmp_path / "bad.html")
    visits.close()
    assert "log: 1" in visits.complaints
    assert "http://127.0.0.1:9/" in visits.requests


def test_a_pair_shows_its_four_terms_and_its_cause(report, found):
    page = report(found)
    page.locator("#headline a.open").first.click()
    page.locator("#details table.terms").first.wait_for()
    text = page.locator("#details").inner_text()
    assert "0.25 of what is allowed" in text
    assert "0.002 relative" in text
    assert "why: eps: 1e-05 | 1e-06; with the left's the results agree" in text


def test_forward_and_backward_have_numbers_of_their_own(report, found):
    """A call whose values are the same shows no error of its gradients beside that."""
    names = report(found).locator(".slick-header-column").all_inner_texts()
    assert [name for name in names if "max abs" in name] == ["max abs", "grad max abs"]
    index = comparison_sheet(found).index["rows"]
    for row, result in enumerate(found.results):
        for name, gradients in (("forward", False), ("backward", True)):
            tensors = [item for item in result.tensors if item.pair.part.backward is gradients and item.measurement]
            largest = {f"{item.measurement.max_abs:.3g}" for item in tensors}
            shown = index[f"{name}_max_abs"][row]
            assert f"{shown:.3g}" in largest if shown is not None else True
    assert index["forward_max_abs"] != index["backward_max_abs"]


def test_statistics_have_their_difference(report, found):
    """Beside a measurement, too."""
    page = report(found, hash="#row=60")
    for item in page.locator("#details details.tensor").all():
        if not item.get_attribute("open"):
            item.locator("summary").click()
    tables = page.locator("#details table.numbers", has_text="right − left")
    assert tables.count()
    for table in tables.all():
        cells = table.locator("tbody tr:first-child td").all_inner_texts()
        assert (cells[2] == "–") == ("–" in cells[:2]), cells


def test_a_fact_is_said_once(report, found):
    """The reason of the verdict is not told again with the tensor that it is about, nor a setting with the arguments."""
    details = report(found, hash="#row=60").locator("#details")
    sentence = "on the same inputs, the two calls give different results"
    assert details.inner_text().count(sentence) <= 1
    assert details.locator("tr.differs", has_text="eps").count() == 1


def test_an_optimizers_step_is_an_update(report, found):
    first = found.results[0]
    update = [dataclasses.replace(c, site=dataclasses.replace(c.site, phase=Phase.UPDATE)) for c in first.match.left]
    row = dataclasses.replace(first, match=dataclasses.replace(first.match, left=tuple(update)))
    page = report(dataclasses.replace(found, results=(row, *found.results[1:])), hash="#row=0")
    assert page.locator("#details header .verdict").first.inner_text().startswith("update")
    assert rows(page)[0].split()[1].startswith(("=", "≈", "≠", "update"))
    assert "update" in rows(page)[0]


def palette(scheme):
    """The colours by which verdicts are shown, out of the page's style."""
    style = (Path(page.__file__).parent / "assets" / "page.css").read_text(encoding="utf-8")
    part = re.search(
        r":root \{(.*?)\}" if scheme == "light" else r':root\[data-theme="dark"\] \{(.*?)\}', style, re.DOTALL
    )[1]
    found = dict(re.findall(r"--([a-z-]+): #([0-9a-f]{6});", part))
    return {name: tuple(bytes.fromhex(found[name])) for name in found}


@pytest.mark.parametrize("kind", vision.KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_told_apart_whatever_cones_one_has(scheme, kind):
    """20 in CIELAB: 2.3 is just noticeable side by side, and these are cells of a few pixels among others."""
    colours = {name: vision.lab(colour, kind) for name, colour in palette(scheme).items()}
    for good in ("same", "rounding-low", "rounding-high"):
        for bad in ("different-low", "different"):
            assert math.dist(colours[good], colours[bad]) > 20, (good, bad)


def test_every_verdict_has_a_sign_besides_its_colour(report, found):
    page = report(found)
    signs = page.locator("#outcomes .mark").all_inner_texts()
    assert len(set(signs)) == len(signs) == 4
    arising = page.locator(".slick-row", has_text="encoder.12.norm").locator(".mark.arises")
    page.get_by_role("button", name="arises here").click()
    assert arising.first.inner_text() not in signs


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("hash", ["", "#row=60", "#row=60&view=graph", "#row=60&view=curves"])
def test_axe_finds_nothing_critical_or_serious(visits, found, axe, scheme, hash):
    page = visits.open(visits.write(flowing(found)), scheme=scheme, hash=hash, bypass_csp=True)
    for view in ("graph", "curves"):
        if view in hash:
            page.locator(f".panel.{view} svg").first.wait_for()
    page.add_script_tag(content=axe)
    violations = page.evaluate(
        "async () => (await axe.run()).violations.map((v) => [v.impact, v.id, v.nodes.map((n) => n.html)])"
    )
    assert not [item for item in violations if item[0] in ("critical", "serious")]
