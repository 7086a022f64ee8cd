"""Many rows: the file stays small, the page comes at once, and typing stays fluid."""

import statistics

import comparisons
import pytest
from noise import noisy, repeated

TENSORS_PER_ROW = 4  # in the mean, see comparisons.PER_BLOCK

# One key in the search box, then the frame that shows what it did.
KEY = """text => new Promise(done => {
    const box = document.getElementById('search');
    box.value = text;
    box.dispatchEvent(new Event('input', { bubbles: true }));
    requestAnimationFrame(() => setTimeout(done));
})"""


MEASURED = ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration")


def typing(page, word: str) -> list[float]:
    """Milliseconds of computing for each key: script, style and layout. Not of waiting for a busy machine's processors."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        return sum(item["value"] for item in found if item["name"] in MEASURED)

    times = []
    for end in range(1, len(word) + 1):
        before = busy()
        page.evaluate(KEY, word[:end])
        times.append(1000 * (busy() - before))
    return times


@pytest.mark.parametrize(("rows", "times"), [(20_000, 10), pytest.param(100_000, 1, marks=pytest.mark.slow)])
def test_many_rows(visits, rows, times):
    found = repeated(noisy(comparisons.comparison(rows // times * TENSORS_PER_ROW)), times)
    assert len(found.results) == rows
    path = visits.write(found)
    assert path.stat().st_size <= 10_000_000

    page = visits.open(path)
    paints = {entry["name"]: entry["startTime"] for entry in page.evaluate("performance.getEntriesByType('paint')")}
    assert paints["first-contentful-paint"] < 1000

    times = typing(page, "encoder.1 norm")
    assert 0 < statistics.median(times) < 100, times
    assert max(times) < 300, times  # one key may meet a collection of garbage, or a neighbour on the processor
    assert 0 < int(page.locator("#shown").inner_text().split()[0].replace(",", "")) < rows

    page.locator("#search").fill("")
    assert page.locator(".slick-row").count() < 200, "only what is on the screen exists"
    page.locator("a.open").first.click()
    page.wait_for_selector("#details .histogram")
