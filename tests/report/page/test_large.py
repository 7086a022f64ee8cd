"""Many rows: the file stays small, the page comes at once, and typing stays fluid."""

import statistics

import comparisons
import pytest
from noise import flowing, noisy, repeated
from playwright.sync_api import expect

TENSORS_PER_ROW = 4  # in the mean, see comparisons.PER_BLOCK

# One key in the search box, then the frame that shows what it did.
KEY = """text => new Promise(done => {
    const box = document.getElementById('search');
    box.value = text;
    box.dispatchEvent(new Event('input', { bubbles: true }));
    requestAnimationFrame(() => setTimeout(done));
})"""


MEASURED = ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration")


def busy(page, act) -> float:
    """Milliseconds of computing for what `act` does: script, style and layout. Not of waiting for a busy machine's processors."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def used() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        return sum(item["value"] for item in found if item["name"] in MEASURED)

    before = used()
    act()
    return 1000 * (used() - before)


def typing(page, word: str) -> list[float]:
    """Milliseconds of computing for each key."""
    return [busy(page, lambda end=end: page.evaluate(KEY, word[:end])) for end in range(1, len(word) + 1)]


@pytest.mark.parametrize(("rows", "times"), [(20_000, 10), pytest.param(100_000, 1, marks=pytest.mark.slow)])
def test_many_rows(visits, rows, times):
    found = repeated(flowing(noisy(comparisons.comparison(rows // times * TENSORS_PER_ROW))), times)
    assert len(found.results) == rows
    path = visits.write(found)
    assert path.stat().st_size <= 10_000_000

    page = visits.open(path)
    paints = {entry["name"]: entry["startTime"] for entry in page.evaluate("performance.getEntriesByType('paint')")}
    assert paints["first-contentful-paint"] < 1000

    culprit = str(found.forward.result.match.left[0].site.name.split(".")[1])
    expect(page.locator("#modules section").first.locator(f'.name:text-is("{culprit}")')).to_have_count(1)
    assert page.locator("#modules .node").count() < 600, (
        "the way to where the runs part, and not all that lies before it"
    )

    times = typing(page, "encoder.1 norm")
    assert 0 < statistics.median(times) < 100, times
    assert max(times) < 300, times  # one key may meet a collection of garbage, or a neighbour on the processor
    assert 0 < int(page.locator("#shown").inner_text().split()[0].replace(",", "")) < rows

    page.locator("#search").fill("")
    assert page.locator(".slick-row").count() < 200, "only what is on the screen exists"
    page.locator("a.open").first.click()
    page.wait_for_selector("#details .histogram")

    def graph() -> None:
        page.get_by_role("tab", name="Graph").click()
        page.locator('.pane .box[aria-selected="true"]').nth(1).wait_for()

    assert 0 < busy(page, graph) < 2000, "what is open is laid out, and nothing else"
    assert 4 < page.locator(".pane .box").count() < 400
