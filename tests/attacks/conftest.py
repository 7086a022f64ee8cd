"""Let the tests of this folder say `import harness` and `import specimens`; one jail for all tests of a process."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "store"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


@pytest.fixture(scope="session")
def jail():
    from harness import Jail

    with Jail() as it:
        yield it


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    """A small trace with every kind of line, and what is read from it. Not to be changed."""
    import specimens

    return specimens.write_small(tmp_path_factory.mktemp("good") / "trace")


@pytest.fixture(scope="session")
def killed(tmp_path_factory):
    """The same, left behind by a killed process. Not to be changed."""
    import specimens

    return specimens.write_killed(tmp_path_factory.mktemp("killed") / "trace", small=True)


@pytest.fixture(scope="session")
def whole(jail, good):
    """What is read from the good trace."""
    return jail(good, good=str(good))


@pytest.fixture
def victim(good, tmp_path):
    """A copy of the good trace, to be damaged."""
    import specimens

    return specimens.copy(good, tmp_path / "victim")


@pytest.fixture
def corpse(killed, tmp_path):
    """A copy of the killed trace, to be damaged."""
    import specimens

    return specimens.copy(killed, tmp_path / "victim")
