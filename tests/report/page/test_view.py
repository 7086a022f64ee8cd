"""`twintrace view`: the same page from a server, for reports and for traces, in a browser."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.test_api import run
from twintrace import api
from twintrace.model.errors import ReportError, TraceNotFoundError, UsageError


@contextmanager
def viewing(path):
    with api.view(path) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server.url
        finally:
            server.stop()
            thread.join()


@pytest.fixture
def opened(browser):
    """`opened(url)`: a page in a browser that complains of nothing and asks for nothing but its server."""
    complaints, requests, contexts = [], [], []

    def go(url, hash=""):
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        context.set_default_timeout(30_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(url + hash)
        page.wait_for_selector("html[data-ready], #problem:not([hidden])", state="attached")
        go.origin = url
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(go.origin)] == []


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    root = tmp_path_factory.mktemp("view")
    return run(root / "left", keep="tensor", steps=2), run(root / "right", keep="tensor", steps=2, eps=1e-2)


def test_a_trace_and_its_tensors(traces, opened):
    with viewing(traces[0]) as url:
        page = opened(url)
        assert str(traces[0]) in page.locator("h1").inner_text()
        listing = api.listing(traces[0])
        gradients = sum(len(list(journal.parameter_gradients())) for journal in api.open(traces[0]).journals())
        assert page.locator("#shown").inner_text() == f"{listing.calls + gradients} rows"
        assert page.locator("#outcomes .mark").all_inner_texts() == ["✓", "?", "!"], (
            "nothing is compared: no signs of equality"
        )
        page.locator("#search").fill("first")
        page.locator(".slick-row").first.click()
        details = page.locator("#details")
        details.locator(".part").first.wait_for()
        assert "test_api.py" in details.locator(".stack").inner_text()
        output = details.locator("details.tensor", has_text="output").first
        output.get_by_role("button", name="Values").click()
        output.locator(".values .heat canvas").wait_for()
        assert "first 8 values: -1.1136744, -1.03593135" in output.locator(".values").inner_text()


def test_a_trace_says_where_its_first_nan_is(traces, tmp_path):
    with viewing(run(tmp_path / "trace", scale=float("nan"))) as url, urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    assert "First value that is not finite: reference.linear in first" in text
    assert "NaN in the output, f32[2, 4]: 8 of them" in text
    assert 'href="#row=2"' in text
    with viewing(traces[0]) as url, urlopen(url, timeout=30) as answer:
        assert "not finite" not in answer.read().decode().partition("<script")[0]


def test_a_trace_has_a_graph_in_which_nan_is_followed(tmp_path, opened):
    """One side, and what is not finite in the place of what differs."""
    with viewing(run(tmp_path / "trace", scale=float("nan"))) as url:
        page = opened(url)
        page.get_by_role("tab", name="Graph").click()
        page.locator(".pane .box").first.wait_for()
        assert page.locator(".pane").count() == 1
        broken = page.locator('.box:not(.group):has(.name:text-is("linear"))').first
        assert "not finite" in broken.get_attribute("aria-label")
        assert page.locator(".wire.different").count() > 0
        broken.locator(".head").click()
        assert "linear" in page.locator("#details h2").inner_text()


def test_a_report_keeps_everything_and_finds_its_traces(traces, opened, tmp_path):
    found = api.compare(*traces)
    api.write_json(found, tmp_path / "report.json")
    with viewing(tmp_path / "report.json") as url:
        page = opened(url)
        page.locator("a.open").first.click()
        details = page.locator("#details")
        details.locator("tr.differs", has_text="eps").wait_for()
        tensor = details.locator("details.tensor[open]").first
        for side in ("left", "right"):
            tensor.get_by_role("button", name=f"Values, {side}").click()
        tensor.locator(".values .heat canvas").nth(1).wait_for()
        page.get_by_role("tab", name="Graph").click()
        page.locator('.pane .box[aria-selected="true"]').nth(1).wait_for()
        page.get_by_role("tab", name="Curves").click()
        page.locator(".chart", has_text="loss").locator("polyline").nth(1).wait_for()


def test_a_report_without_its_traces_says_so(tmp_path, opened):
    for name, eps in (("left", 1e-5), ("right", 1e-2)):
        run(tmp_path / name, eps=eps)
    api.write_json(api.compare(tmp_path / "left", tmp_path / "right"), tmp_path / "report.json")
    for name in ("left", "right"):
        (tmp_path / name).rename(tmp_path / f"moved {name}")
    with viewing(tmp_path / "report.json") as url:
        page = opened(url)
        page.locator("a.open").first.click()
        page.locator("details.tensor[open] .numbers").wait_for()
        assert page.get_by_role("button", name="Values").count() == 0


def test_a_page_is_served_as_it_is(traces, opened, tmp_path):
    api.write_html(api.compare(*traces), tmp_path / "report.html")
    with viewing(tmp_path / "report.html") as url:
        assert "The runs part at" in opened(url).locator("h1").inner_text()


def test_what_is_no_report_and_no_trace_is_refused(tmp_path):
    (tmp_path / "other.html").write_text("<!doctype html><script>alert(1)</script>")
    (tmp_path / "other.json").write_text("{}")
    for name, error in (("other.html", UsageError), ("other.json", ReportError), ("none", TraceNotFoundError)):
        with pytest.raises(error, match=name):
            api.view(tmp_path / name)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("", "expected side, step, rank and id"),
        ("side=left&step=0&rank=0&id=x", "expected side, step, rank and id"),
        ("side=left&step=7&rank=0&id=0", "no step 7"),
        ("side=left&step=0&rank=0&id=999999", "the line is missing"),
        ("side=right&step=0&rank=0&id=0", "the trace is not there"),
        ("side=/etc&step=0&rank=0&id=0", "the trace is not there"),
    ],
)
def test_a_tensor_that_is_not_there_is_told(traces, query, told):
    with viewing(traces[0]) as url, pytest.raises(HTTPError) as caught:
        urlopen(f"{url}data/tensor?{query}", timeout=30)
    assert caught.value.code == 404
    assert told in caught.value.read().decode()


def test_a_tensor_that_was_not_kept_is_told(tmp_path):
    with viewing(run(tmp_path / "trace")) as url, pytest.raises(HTTPError) as caught:
        urlopen(f"{url}data/tensor?side=left&step=0&rank=0&id=0", timeout=30)
    assert "its values were not kept" in caught.value.read().decode()


@pytest.mark.parametrize("name", ["data/page-1000000", "data/page--1", "data/page-x", "data/heat-99999999999", "data/"])
def test_a_page_that_is_not_there_is_not_found(traces, name):
    with viewing(traces[0]) as url, pytest.raises(HTTPError) as caught:
        urlopen(url + name, timeout=30)
    assert caught.value.code == 404
    caught.value.close()


def test_a_report_may_name_what_cannot_be_a_path(traces, tmp_path):
    found = api.compare(*traces)
    for name in ("\0", "", "/proc/self", "x" * 5000):
        odd = replace(found, left=replace(found.left, path=name))
        api.write_json(odd, tmp_path / "report.json")
        api.view(tmp_path / "report.json").__exit__(None, None, None)


def hear_ctrl_c():
    """Tests that run in the background of a shell have Ctrl-C ignored, and so would the server."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_the_command_prints_the_address_and_ends_with_ctrl_c(traces, checkout_env):
    command = [sys.executable, "-c", "from twintrace.cli import main; main()", "view", traces[0], "--no-browser"]
    process = subprocess.Popen(
        [*map(str, command)],
        env=checkout_env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )
    try:
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_the_secret_is_not_on_the_browsers_command_line(traces, tmp_path, checkout_env):
    """What a program is started with can be read by every user of the machine; the file that it opens only by this one."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!{sys.executable}\nimport os, pathlib, sys\nplace = pathlib.Path(r"{tmp_path}")\n'
        'file = pathlib.Path(sys.argv[1].removeprefix("file://"))\n'
        'modes = [oct(p.stat().st_mode & 0o777) for p in (file, file.parent)]\n'
        '(place / "draft").write_text("\\n".join([sys.argv[1], *modes, file.read_text()]))\n'
        '(place / "draft").rename(place / "told")\n')  # fmt: skip
    browser.chmod(0o755)
    command = [sys.executable, "-c", "from twintrace.cli import main; main()", "view", str(traces[0])]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=checkout_env | {"BROWSER": f"{browser} %s"},
        preexec_fn=hear_ctrl_c,
    ) as server:
        try:
            address = server.stdout.readline().split()[0]
            for _ in range(300):
                if (tmp_path / "told").exists():
                    break
                time.sleep(0.1)
            given, *modes, content = (tmp_path / "told").read_text().split("\n", 3)
            with urlopen(address) as answer:
                assert answer.status == 200
        finally:
            server.send_signal(signal.SIGINT)
    secret = address.rstrip("/").rpartition("/")[2]
    assert secret not in given
    assert modes == ["0o600", "0o700"]
    assert address in content
    assert not Path(given.removeprefix("file://")).exists()
