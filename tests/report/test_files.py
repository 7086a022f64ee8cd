"""A report is whole or not there."""

import os
import stat

import comparisons
import pytest

from twintrace.model.errors import ReportError
from twintrace.report.delimited import write_csv
from twintrace.report.document import write_json
from twintrace.report.files import placed, written
from twintrace.report.workbook import write_xlsx

WRITERS = [write_csv, write_json, write_xlsx]


class Broken:
    """A comparison that ends in the middle."""

    def __init__(self) -> None:
        self.whole = comparisons.comparison(60)

    def __getattr__(self, name: str) -> object:
        return getattr(self.whole, name)

    @property
    def results(self):
        yield from self.whole.results[:5]
        raise RuntimeError("the lights went out")


@pytest.mark.parametrize("write", WRITERS)
def test_what_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path, write):
    path = tmp_path / "report"
    path.write_text("the old one")
    with pytest.raises(RuntimeError, match="lights"):
        write(Broken(), path)
    assert path.read_text() == "the old one"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("write", WRITERS)
def test_a_new_file_replaces_the_old_one_in_one_step(tmp_path, write):
    path = tmp_path / "report"
    path.write_text("the old one")
    with path.open() as still_open:
        write(comparisons.comparison(20), path)
        assert still_open.read() == "the old one"
    assert path.read_bytes()[:9] != b"the old o"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("write", WRITERS)
def test_a_folder_that_is_not_there_is_said(tmp_path, write):
    with pytest.raises(ReportError, match=r"gone.report: cannot be written \(No such file or directory\)"):
        write(comparisons.nothing(), tmp_path / "gone" / "report")


def test_others_may_read_it_as_any_other_file(tmp_path):
    with written(tmp_path / "report") as file:
        file.write("text")
    (tmp_path / "plain").write_text("text")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("report", "plain")]
    assert modes[0] == modes[1]


def test_a_full_disk_is_said(tmp_path):
    with (
        pytest.raises(ReportError, match=r"No space left on device.* The old file is unchanged"),
        placed(tmp_path / "report"),
    ):
        raise OSError(28, os.strerror(28))
    assert not [*tmp_path.iterdir()]
