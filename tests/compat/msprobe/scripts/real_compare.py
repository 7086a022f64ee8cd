"""msprobe's own `compare`, several times in one process (its start takes five seconds): `real_compare.py TARGET GOLDEN OUT …`."""

import sys

from msprobe.msprobe import main


def compare(target, golden, out):
    sys.argv = ["msprobe", "compare", "-tp", target, "-gp", golden, "-o", out]
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    if code:
        sys.exit(f"msprobe compare {target} {golden}: {code}")


if __name__ == "__main__":
    places = sys.argv[1:]
    for number in range(0, len(places), 3):
        compare(*places[number : number + 3])
