"""The graph of modules and data flow, the curves, and links to source lines, in a browser."""

from dataclasses import replace

import comparisons
import pytest
from noise import flowing
from playwright.sync_api import expect

from tests.test_api import run
from twintrace import api


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Two runs; the right one normalises with another epsilon, and makes a call more."""
    root = tmp_path_factory.mktemp("planted")
    return api.compare(run(root / "a", keep="tensor"), run(root / "b", keep="tensor", eps=1e-2, extra=True))


@pytest.fixture(scope="module")
def found():
    return flowing(comparisons.comparison(25 * comparisons.PER_BLOCK))


def graph(page):
    page.get_by_role("tab", name="Graph").click()
    page.locator(".pane .box").first.wait_for()
    return page.locator(".pane").all()


def box(pane, name):
    """The box of a module or call, by the names around it."""
    for part in name.split("/"):
        pane = pane.locator(f'.box:has(> .head .name:text-is("{part}"))').first
    return pane


def test_a_planted_mistake_is_found_from_the_graph(report, planted):
    """What is introduced stands out by its sign, its colour and its words, the way to it is open, and one click tells why."""
    page = report(planted)
    for pane, framework in zip(graph(page), ("left", "right"), strict=True):
        introduced = pane.locator(".box.introduced:not(.group)")
        assert introduced.locator(".name").all_inner_texts() == ["layer_norm"], framework
        assert "a difference arises here" in introduced.get_attribute("aria-label")
        assert introduced.locator(".mark").first.inner_text() == "◆"
        after, before = box(pane, "relu"), box(pane, "first")
        assert "inherited" in after.get_attribute("class")
        assert after.locator(".mark").first.inner_text() == "≠"
        assert "the same; gradients different" in before.get_attribute("aria-label")
        assert before.locator(".mark").all_inner_texts() == ["=", "≠"], "gradients by themselves"
        styles = [
            item.evaluate("box => getComputedStyle(box, '::before').backgroundColor")
            for item in (introduced, after, before)
        ]
        assert len(set(styles)) == 3
        assert pane.locator(".wire.different").count() > 0
        assert pane.locator(".wire.agree").count() > 0
    introduced.locator(".head").click()
    page.locator("#details tr.differs", has_text="eps").wait_for()


def test_a_call_of_one_side_is_drawn_and_opened_there(report, planted):
    page = report(planted)
    left, right = graph(page)
    extra = right.locator(".box.alone", has_text="relu")
    assert "on this side only" in extra.get_attribute("aria-label")
    assert left.locator(".box.alone", has_text="relu").count() == 0
    extra.locator(".head").click()
    assert "Only on the right" in page.locator("#details").inner_text()
    expect(extra).to_have_attribute("aria-selected", "true")
    assert page.get_by_role("tab", name="Graph").get_attribute("aria-selected") == "true"


def test_opening_a_module_opens_its_partner(report, found):
    page = report(found)
    left, right = graph(page)
    mine, other = box(left, "encoder/0"), box(right, "enc/cells/0")
    assert mine.get_attribute("aria-expanded") == other.get_attribute("aria-expanded") == "false"
    mine.locator("> .head .twist").hover()
    at = mine.bounding_box()
    mine.locator("> .head .twist").click()
    expect(box(left, "encoder/0/norm")).to_be_visible()
    expect(box(right, "enc/cells/0/ln")).to_be_visible()
    assert box(left, "encoder/0").bounding_box()["y"] == pytest.approx(at["y"], abs=2), "it stays under the pointer"
    box(right, "enc/cells/0").locator("> .head .twist").click()
    assert box(left, "encoder/0/norm").count() == 0
    page.get_by_role("button", name="Close all modules").click()
    assert left.locator(".box .box .box").count() == 0


def test_table_tree_ribbon_and_graph_show_the_same_pair(report, found):
    page = report(found)
    left, right = graph(page)
    box(left, "encoder/12/norm").locator("> .head").hover()
    expect(right.locator(".box.hint")).to_have_count(1)
    assert right.locator(".box.hint .name").inner_text() == "ln"
    box(left, "encoder/12/norm").locator("> .head").click()
    page.wait_for_url("**#row=60&view=graph")
    expect(box(right, "enc/cells/12/ln")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".link-line path")).to_have_count(1)
    assert page.locator("#overview").get_attribute("aria-valuenow") == "60"
    trees = page.locator("#modules [aria-current=true] > .node .name").all_inner_texts()
    assert trees == ["norm", "ln"]
    page.get_by_role("tab", name="Pairs").click()
    assert "encoder.12.norm" in page.locator(".slick-row.open-row").inner_text()
    page.locator(".slick-row", has_text="encoder.11.norm").first.locator(".slick-cell").first.dispatch_event("click")
    page.wait_for_url("**#row=55")
    page.get_by_role("tab", name="Graph").click()
    chosen = page.locator('.box[aria-selected="true"]')
    expect(chosen).to_have_count(2)
    assert [item.get_attribute("aria-label").split(",")[0] for item in chosen.all()] == [
        "encoder.11.norm",
        "enc.cells.11.ln",
    ]
    page.keyboard.press("n")
    page.wait_for_url("**#row=60&view=graph")
    expect(page.locator('.box[aria-selected="true"]').first).to_have_attribute(
        "data-node", box(left, "encoder/12/norm").get_attribute("data-node")
    )
    page.keyboard.press("Escape")
    expect(page.locator('.box[aria-selected="true"]')).to_have_count(0)
    page.wait_for_url("**#view=graph")


def test_a_module_of_the_tree_is_shown_in_the_graph(report, found):
    page = report(found)
    left, right = graph(page)
    page.locator("#modules section").nth(1).locator('.node:has(.name:text-is("24"))').first.click()
    mine, other = box(right, "enc/cells/24"), box(left, "encoder/24")
    for chosen in (mine, other):
        expect(chosen).to_be_in_viewport()
        assert "dim" not in chosen.get_attribute("class").split()
    assert "dim" in box(left, "encoder/3").get_attribute("class").split()
    page.locator(".toggle.module").click()
    assert left.locator(".box.dim").count() == 0


def test_search_dims_what_does_not_fit_and_enter_jumps(report, found):
    page = report(found)
    left, _ = graph(page)
    page.locator("#search").fill("encoder.20.norm")
    expect(box(left, "encoder/20")).not_to_have_class("dim")
    assert "dim" not in box(left, "encoder/20").get_attribute("class").split()
    assert "dim" in box(left, "encoder/3").get_attribute("class").split()
    page.keyboard.press("Enter")
    expect(box(left, "encoder/20/norm")).to_be_in_viewport()
    expect(box(left, "encoder/20/norm")).to_have_attribute("aria-selected", "true")
    assert page.locator("#modules [aria-current=true]").count() == 2
    page.keyboard.press("Enter")
    page.wait_for_url("**#row=104&view=graph")  # the gradient of its weight
    page.locator("#search").fill("")
    assert left.locator(".box.dim").count() == 0


def test_the_graph_needs_no_mouse(report, found):
    page = report(found, hash="#row=60&view=graph")
    page.locator('.box[aria-selected="true"]').nth(1).wait_for()
    assert page.locator('.pane [tabindex="0"]').count() == 2, "one stop for each side"
    name = "document.activeElement.getAttribute('aria-label').split(',')[0]"
    page.locator('.box[aria-selected="true"]').first.focus()
    assert page.evaluate(name) == "encoder.12.norm"
    for key, reached in (
        ("o", "enc.cells.12.ln"), ("o", "encoder.12.norm"), ("ArrowDown", "torch.nn.functional.linear #1"), ("ArrowLeft", "12"),
        ("ArrowLeft", "12"), ("ArrowDown", "13"), ("ArrowRight", "13"), ("ArrowRight", "encoder.13.norm"),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert page.evaluate(name) == reached, key
    page.keyboard.press("Enter")
    page.wait_for_url("**#row=65&view=graph")
    before = page.locator(".percent").inner_text()
    page.locator('.box[aria-selected="true"]').first.focus()
    page.keyboard.press("-")
    assert page.locator(".percent").inner_text() != before


def test_nothing_of_the_graph_is_read_before_it_is_opened(report, found):
    page = report(found)
    assert page.evaluate("typeof Dagre") == "undefined"
    graph(page)
    assert page.evaluate("typeof Dagre") == "object"


def test_the_graph_shows_the_step_of_the_open_row_or_of_the_filter(report):
    found = flowing(comparisons.comparison(260 * comparisons.PER_BLOCK))
    page = report(found)
    graph(page)
    where = page.locator(".tools [role=status]")
    expect(where).to_have_text("step 0, rank 0")
    page.locator("#choose-step").select_option(label="step 1")
    expect(where).to_have_text("step 1, rank 0")
    page.locator("#choose-step").select_option(value="")
    page.evaluate("location.hash = '#row=1&view=graph'")
    expect(where).to_have_text("step 0, rank 0")


@pytest.mark.parametrize("width", [380, 1000, 1900])
@pytest.mark.parametrize("view", ["graph", "curves"])
def test_nothing_sticks_out_of_the_page(report, found, width, view):
    page = report(found, width=width, hash=f"#row=60&view={view}")
    page.locator(f".panel.{view} svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_error_over_the_depth_has_the_bound_as_a_line(report, planted):
    page = report(planted)
    page.get_by_role("tab", name="Curves").click()
    figure = page.locator(".chart", has_text="Error of the values over the depth")
    line = figure.locator("line.bound").bounding_box()["y"]
    for point in figure.locator(".point").all():
        area = point.bounding_box()
        beyond = "beyond" in point.get_attribute("class")
        assert (area["y"] + area["height"] / 2 < line) is beyond
    arises = figure.locator(".point.arises")
    expect(arises).to_have_count(1)
    assert figure.locator(".point:not(.beyond)").count() > 0
    arises.first.click()
    page.locator("#details tr.differs", has_text="eps").wait_for()
    assert page.get_by_role("tab", name="Curves").get_attribute("aria-selected") == "true"
    page.get_by_role("button", name="◆").first.click()
    page.wait_for_url("**&view=curves")


def test_loss_and_gradients_of_both_runs_are_drawn_over_the_steps(visits, tmp_path):
    for name, factor in (("a", 1.0), ("b", 1.5)):
        run(tmp_path / name, steps=4, factor=factor)
    comparison = api.compare(tmp_path / "a", tmp_path / "b")
    api.write_html(comparison, tmp_path / "report.html")
    page = visits.open(tmp_path / "report.html")
    page.get_by_role("tab", name="Curves").click()
    assert page.locator(".chart", has_text="Largest error of each step").locator("line.bound").count() == 1
    for name in ("loss", "gradients"):
        figure = page.locator(f'.chart:has(figcaption b:text-is("{name}"))')
        assert figure.locator(".names").inner_text().split() == ["left", "right"]
        assert figure.locator("polyline").count() == 2
        lines = [item.get_attribute("points").split() for item in figure.locator("polyline").all()]
        assert [len(points) for points in lines] == [4, 4]
        assert lines[0] != lines[1]


@pytest.mark.parametrize(
    ("editor", "address"),
    [
        ("VS Code", "vscode://file/home/{side}/model.py:60"),
        ("PyCharm", "pycharm://open?file=/home/{side}/model.py&line=60"),
    ],
)
def test_source_lines_lead_to_the_editor_that_was_chosen(visits, found, editor, address):
    path = visits.write(found)
    page = visits.open(path, hash="#row=60")
    page.get_by_label("Editor that source lines open in").select_option(editor)
    for side, links in zip(("left", "right"), page.locator("#details .two > div").all(), strict=True):
        assert links.locator("a.source").first.get_attribute("href") == address.format(side=side)
    verdict = page.locator("#headline a.source")
    assert verdict.first.get_attribute("href") == address.format(side="left")
    assert verdict.first.inner_text() == "model.py:60 in forward"
    again = page.context.new_page()
    again.goto(f"{path.as_uri()}#row=61")
    again.locator("#details a.source").first.wait_for()
    assert again.locator("#details a.source").first.get_attribute("href").startswith(address.partition(":")[0])


def test_another_editor_is_a_pattern_and_never_a_script(report, found):
    page = report(found, hash="#row=60")
    page.get_by_label("Editor that source lines open in").select_option("another")
    pattern = page.get_by_label("Pattern of the editor's links")
    pattern.fill("vscode://vscode-remote/ssh-remote+box{path}:{line}")
    pattern.press("Tab")
    link = page.locator("#details .source").first
    assert link.get_attribute("href") == "vscode://vscode-remote/ssh-remote+box/home/left/model.py:60"
    for bad in ("javascript:alert('{path}')", "data:text/html,{path}", "{path}"):
        pattern.fill(bad)
        pattern.press("Tab")
        assert page.locator("#details .source").first.get_attribute("href") is None, bad


def test_paths_are_put_into_addresses_safely(report):
    found = comparisons.comparison(40)
    odd = {
        "C:\\code\\my net.py": "vscode://file/C:/code/my%20net.py:7",
        "/a/#1?b&c.py": "vscode://file/a/%231%3Fb%26c.py:7",
        "model.py": None,
    }
    results = list(found.results)
    [call] = results[0].match.left
    stack = tuple(replace(call.stack[0], file=file, line=7) for file in odd)
    results[0] = replace(results[0], match=replace(results[0].match, left=(replace(call, stack=stack),)))
    page = report(replace(found, results=tuple(results)), hash="#row=0")
    links = page.locator("#details .two > div").first.locator(".source")
    assert [link.get_attribute("href") for link in links.all()] == list(odd.values())


def test_a_source_line_is_copied_with_its_whole_path(report, found):
    page = report(found, hash="#row=60")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy /home/right/model.py:60").last.click()
    assert page.evaluate("navigator.clipboard.readText()") == "/home/right/model.py:60"
