"""Rows are on disk, in a table that can be read, as soon as they are measured."""

import pytest

from ilp_planner.base.errors import OutputError
from ilp_planner.costs.profiles.measurements import read_measurements
from ilp_planner.profiler.measure.journal import Journal


def row(size):
    return {"record": "point_to_point", "bytes": size, "time_s": size / 1e9}


def test_the_table_is_whole_after_every_row(tmp_path):
    path = tmp_path / "links.csv"
    journal = Journal(path, {"torch": "2"})
    for count in (1, 2, 3):
        journal.add(row(count))
        table = read_measurements(path)
        assert list(table.frame["bytes"]) == list(range(1, count + 1))
        assert table.machine == {"torch": "2"}
        assert journal.rows == count


def test_what_was_there_stays_until_the_first_row(tmp_path):
    path = tmp_path / "links.csv"
    path.write_text("mine")
    journal = Journal(path, {})
    assert path.read_text() == "mine"
    journal.add(row(1))
    assert len(read_measurements(path).frame) == 1


def test_it_goes_on_after_the_rows_that_are_there(tmp_path):
    path = tmp_path / "links.csv"
    first = Journal(path, {"torch": "2"})
    first.add(row(1))
    first.close()
    second = Journal(path, {"torch": "3"}, append=True)
    second.add(row(2))
    table = read_measurements(path)
    assert list(table.frame["bytes"]) == [1, 2]
    assert table.machine == {"torch": "2"}


def test_a_row_can_say_that_it_failed(tmp_path):
    path = tmp_path / "links.csv"
    Journal(path, {}).add({"record": "point_to_point", "bytes": 1 << 40, "status": "out_of_memory"})
    assert list(read_measurements(path).frame["status"]) == ["out_of_memory"]


def test_a_folder_that_is_gone(tmp_path):
    with pytest.raises(OutputError, match=r"links\.csv"):
        Journal(tmp_path / "no" / "links.csv", {}).add(row(1))
    with pytest.raises(OutputError, match=r"links\.csv"):
        Journal(tmp_path / "links.csv", {}, append=True)
