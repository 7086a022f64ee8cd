"""Make the libraries of the report's page anew from npm: src/twintrace/report/assets/*.min.js.

    $ python scripts/vendor.py           makes them, and says which of them changed
    $ python scripts/vendor.py --check   makes them elsewhere, and fails if those that are here are others

Needs node and npm. Versions and integrities are fixed here, so that the same bytes come out wherever it runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "src" / "twintrace" / "report" / "assets"
ESBUILD = "esbuild@0.28.2"
NOT_MADE = 3
"""Exit code where npm is not there or cannot reach its registry."""


@dataclass(frozen=True)
class Library:
    """One bundle: its npm package, what of it is bundled, and under which name the page has it."""

    file: str
    package: str
    integrity: str
    entry: str
    name: str
    options: tuple[str, ...] = ()


LIBRARIES = (
    Library(
        "slickgrid.min.js",
        "slickgrid@5.20.2",
        "sha512-WexXtvKkXkaQWkLEszgs+3tjKweAULYW0ZMGT1JRFfrUis9IBGET6dQ7eS1wfFBao2go7U7Uj6uNrhhA9RiVMQ==",
        'export { SlickGrid } from "slickgrid";',
        "Slick",
        ("--alias:sortablejs=./nothing.js",),  # SortableJS moves columns about, which the page does not offer
    ),
    Library(
        "dagre.min.js",
        "@dagrejs/dagre@3.1.1",
        "sha512-zroZB1dFOFiGgv4Xcrn1DckB1o4aOikPqD2NDQPV0WM//CXGcS6xiD0rNkqHmw6FEg4tabt4nxPLwgCWT+Vb2A==",
        'export { Graph, layout } from "@dagrejs/dagre";',
        "Dagre",
    ),
)


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    if arguments and not check:
        print(__doc__, file=sys.stderr)
        return 2
    changed = []
    with tempfile.TemporaryDirectory() as folder:
        for library in LIBRARIES:
            try:
                made = bundle(library, Path(folder))
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"vendor: {library.package} could not be brought or bundled: {error}", file=sys.stderr)
                return NOT_MADE
            target = ASSETS / library.file
            if not target.exists() or target.read_bytes() != made:
                changed.append(library.file)
                if not check:
                    target.write_bytes(made)
    told = ", ".join(changed) or "none"
    print(f"vendor: {len(LIBRARIES)} libraries made, {'other than here' if check else 'changed'}: {told}")
    return 1 if check and changed else 0


def bundle(library: Library, folder: Path) -> bytes:
    """One file with the library and what it needs, for a browser."""
    place = folder / library.name
    place.mkdir()
    (place / "entry.js").write_text(library.entry, encoding="utf-8")
    (place / "nothing.js").write_text("export default undefined;", encoding="utf-8")
    quick = "--fetch-retries=0", "--fetch-timeout=60000"  # npm tries for minutes where there is no way to its registry
    npm(place, "install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", *quick, library.package, ESBUILD)
    lock = json.loads((place / "package-lock.json").read_text(encoding="utf-8"))
    name = library.package.rpartition("@")[0]
    found = lock["packages"][f"node_modules/{name}"]["integrity"]
    if found != library.integrity:
        raise SystemExit(f"vendor: {library.package} has the integrity {found}, expected {library.integrity}.")
    command = [
        "npx", "--no-install", "esbuild", "entry.js", "--bundle", "--minify", "--format=iife",
        f"--global-name={library.name}", *library.options, "--legal-comments=inline", "--outfile=out.js",
    ]  # fmt: skip
    subprocess.run(command, cwd=place, check=True, capture_output=True)
    return (place / "out.js").read_bytes()


def npm(place: Path, *arguments: str) -> None:
    subprocess.run(["npm", *arguments, "--prefix", str(place)], cwd=place, check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
