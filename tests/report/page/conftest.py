"""A real browser, and pages in it. Whatever a test does, the page asks for nothing outside its file and reports no error."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from twintrace.report.comparison_sheet import comparison_sheet
from twintrace.report.page import write_page

HERE = str(Path(__file__).parent)
if HERE not in sys.path:  # for `from noise import …`, whatever import mode pytest runs in
    sys.path.append(HERE)

CHROMIUM = Path("/usr/bin/chromium")
INSTALL = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "chromium"]


def find_chromium() -> Path:
    """Debian's Chromium, installed if this process may; a failure that says what to do if not."""
    if not CHROMIUM.exists() and os.geteuid() == 0:
        subprocess.run(["apt-get", "update"], capture_output=True)
        subprocess.run(INSTALL, capture_output=True)
    if not CHROMIUM.exists():
        pytest.fail(f"the page is tested in {CHROMIUM}, which is not there. Install it: {' '.join(INSTALL)}")
    return CHROMIUM


AXE = Path.home() / ".cache" / "twintrace" / "axe"


@pytest.fixture(scope="package")
def axe() -> str:
    """The checks of axe-core, brought by npm the first time."""
    script = AXE / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists() and shutil.which("npm"):
        AXE.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(AXE), "axe-core@4.10.3"]
        subprocess.run(install, capture_output=True, timeout=300)
    if not script.exists():
        pytest.skip("axe-core is not there, and npm could not bring it")
    return script.read_text(encoding="utf-8")


@pytest.fixture(scope="package")
def browser():
    """One browser for all tests of this folder, gone after them: while it runs, so does an event loop."""
    executable = find_chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=["--headless=new", "--no-sandbox"])
        yield started
        started.close()


class Visits:
    """Opens pages, and keeps what they asked for and complained about."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self.browser = browser
        self.folder = folder
        self.contexts = []
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def write(self, comparison, **options) -> Path:
        path = self.folder / f"report{len(list(self.folder.iterdir()))}.html"
        write_page(comparison_sheet(comparison), path, **options)
        return path

    def open(
        self,
        address: str | Path,
        *,
        width=1400,
        height=900,
        scheme="light",
        hash="",
        init="",
        scripts=True,
        bypass_csp=False,
    ) -> Page:
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            java_script_enabled=scripts,
            bypass_csp=bypass_csp,
        )
        self.contexts.append(context)
        context.set_default_timeout(15_000)
        page = context.new_page()
        if init:
            page.add_init_script(init)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto((address.as_uri() if isinstance(address, Path) else address) + hash)
        if scripts:
            page.wait_for_selector("html[data-ready], #problem:not([hidden])", timeout=60_000, state="attached")
        if hash:
            page.wait_for_selector("#details .part")
        return page

    def close(self) -> None:
        for context in self.contexts:
            context.close()


@pytest.fixture
def visits(browser, tmp_path):
    """Opens pages; at the end of the test none of them may have complained, or asked for anything but itself."""
    made = Visits(browser, tmp_path)
    yield made
    made.close()
    assert made.complaints == []
    assert [url for url in made.requests if not url.startswith(tmp_path.as_uri())] == []


@pytest.fixture
def report(visits):
    """`report(comparison)`: write it, open it."""
    return lambda comparison, **options: visits.open(visits.write(comparison), **options)
