"""Make docs/images/report.png anew: the real page of the first example, at its graph, photographed by Chromium.

    $ make picture

Needs what the example needs (PyTorch and MindSpore) and Debian's chromium. The file must stay below LARGEST bytes: it is fetched by
everybody who opens the README. It carries the verdict that it shows as text, under the key VERDICT: tests/test_readme.py compares
that with the README, whose verdict is compared with what the example prints.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "01_find_the_difference"
PICTURE = ROOT / "docs" / "images" / "report.png"
SIZE = "1280,1290"
LARGEST = 200_000
COLOURS = 128
VERDICT = "Description"
"""The PNG specification's keyword for what an image shows."""


def main() -> int:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("picture: chromium is not installed (on Debian: apt install chromium).", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        for script in ("in_torch.py", "in_mindspore.py"):
            subprocess.run([sys.executable, EXAMPLE / script, "runs"], cwd=folder, check=True)
        page = Path(folder, "report.html")
        compare = [
            sys.executable,
            "-m",
            "twintrace",
            "compare",
            "runs/torch",
            "runs/mindspore",
            "--html",
            page,
        ]
        told = subprocess.run(compare, cwd=folder, stdout=subprocess.PIPE, text=True)
        if told.returncode != 1:
            print("picture: the example's two runs were expected to part (exit code 1).", file=sys.stderr)
            return 1
        shot = Path(folder, "report.png")
        flags = [
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            f"--window-size={SIZE}",
            "--virtual-time-budget=10000",
        ]
        subprocess.run(
            [browser, *flags, f"--screenshot={shot}", f"{page.as_uri()}#view=graph"],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        shrink(shot, PICTURE, told.stdout.partition("\n  written:")[0].strip())
    print(f"picture: {PICTURE.relative_to(ROOT)}, {PICTURE.stat().st_size:,} bytes")
    return 0 if PICTURE.stat().st_size < LARGEST else 1


def shrink(source: Path, target: Path, verdict: str) -> None:
    """A palette instead of 24 bits: the page has few colours. Pillow comes with MindSpore."""
    from PIL import Image, PngImagePlugin

    target.parent.mkdir(parents=True, exist_ok=True)
    texts = PngImagePlugin.PngInfo()
    texts.add_itxt(VERDICT, verdict, lang="en")
    Image.open(source).convert("RGB").quantize(COLOURS).save(target, optimize=True, pnginfo=texts)


if __name__ == "__main__":
    sys.exit(main())
