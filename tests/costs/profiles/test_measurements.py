"""The native table: what is written is read back, what is malformed is refused with its place."""

import math
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import OutputError, ProfileError
from ilp_planner.costs.profiles.measurements import (
    COLUMNS,
    COUNT_COLUMNS,
    KEYS,
    NUMBERS,
    VALUE_COLUMNS,
    VALUES,
    VERSION_LINE,
    Record,
    RowStatus,
    join,
    layer_range,
    measurements_of,
    read_measurements,
    row_line,
    rows_of,
    write_measurements,
)
from ilp_planner.costs.profiles.table import Provenance
from tests.examples import examples, for_each

LAYER = {"record": "layer", "layers": "1-24", "tp": 2, "micro_batch": 4, "time_s": 0.5}
WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
COUNTS = st.integers(1, 10**9)
AMOUNTS = st.floats(0, 1e30, allow_subnormal=True)
SECONDS = st.just(0.0) | st.floats(1e-12, 1e9)
RANGES = st.tuples(st.integers(0, 99), st.integers(0, 99)).map(
    lambda ends: str(ends[0]) if ends[1] == 0 else f"{ends[0]}-{sum(ends)}"
)


@st.composite
def rows(draw):
    """Rows with what they need, and with some of what they may have."""
    record = draw(st.sampled_from(Record))
    status = draw(st.sampled_from(RowStatus))
    needed = {*KEYS[record], *(VALUES[record] if status == RowStatus.OK else ())}
    row = {"record": record, "status": status, "provenance": draw(st.sampled_from(Provenance))}
    for name in COLUMNS:
        if name in row or (name not in needed and not draw(st.booleans())):
            continue
        if name == "layers":
            row[name] = draw(RANGES)
        elif name in (*COUNT_COLUMNS, "repeats"):
            row[name] = draw(COUNTS)
        elif name in NUMBERS:
            row[name] = draw(SECONDS if name.endswith("_s") else AMOUNTS)
        elif name == "timing":
            row[name] = draw(st.sampled_from(["", "isolated"]))
        else:
            # A space at an end or two in a row are no part of a name.
            word = " ".join(draw(WORDS).split())
            row[name] = word or "x" if name in needed else word
    return row


def same(a, b):
    """Compare frames to the last bit; what is empty is equal to what is empty."""
    assert list(a.columns) == list(b.columns)
    assert len(a) == len(b)
    for name in a.columns:
        for one, other in zip(a[name], b[name], strict=True):
            assert one == other or (one != one and other != other), (name, one, other)


@examples(7, more=9)
@given(given_rows=st.lists(rows(), max_size=6))
def test_what_is_written_is_read_back(tmp_path_factory, given_rows):
    path = tmp_path_factory.mktemp("table") / "profile.csv"
    table = measurements_of(given_rows, "here", machine={"torch": "2.13: cpu", "device": "A, B"})
    write_measurements(path, table)
    again = read_measurements(path)
    same(table.frame, again.frame)
    assert again.machine == table.machine
    assert again.source == "profile.csv"
    assert len(again.lines) == len(given_rows)


@examples(7)
@given(given_rows=st.lists(rows(), max_size=6))
def test_rows_and_frames_are_the_same(given_rows):
    table = measurements_of(given_rows, "here")
    same(table.frame, measurements_of(rows_of(table.frame), "there").frame)


@given(st.floats(0, allow_nan=False, allow_infinity=False))
def test_a_number_is_written_as_it_is(value):
    cells = row_line({**LAYER, "time_s": value}).split(",")
    assert float(cells[COLUMNS.index("time_s")]) == value


def test_writing_again_changes_nothing(tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    write_measurements(first, measurements_of([LAYER, {**LAYER, "tp": 1}], "x"))
    write_measurements(second, read_measurements(first))
    assert first.read_bytes() == second.read_bytes()


def test_a_row_that_says_nothing_else_was_measured_and_is_ok():
    frame = measurements_of([LAYER], "x").frame
    assert frame.at[0, "status"] == "ok"
    assert frame.at[0, "provenance"] == "measured"
    assert math.isnan(frame.at[0, "sequence"])
    assert frame.at[0, "name"] == ""


def test_only_rows_that_were_not_in_vain():
    failed = {**LAYER, "tp": 4, "status": "out_of_memory", "time_s": None}
    table = measurements_of([LAYER, failed, {"record": "matmul", "flop": 1, "time_s": 1}], "x")
    assert list(table.of(Record.LAYER)["tp"]) == [2]
    assert len(table.of(Record.LAYER, Record.MATMUL)) == 2
    assert len(table.of(Record.STEP)) == 0


def test_joining():
    first = measurements_of([LAYER], "a", machine={"torch": "1", "cuda": "12"}, notes=["one"])
    second = measurements_of([{**LAYER, "tp": 1}], "b", machine={"torch": "2"}, notes=["two"])
    both = join([first, second], "both")
    assert list(both.frame["tp"]) == [2, 1]
    assert list(both.frame.index) == [0, 1]
    assert both.machine == {"torch": "2", "cuda": "12"}
    assert both.notes == ("one", "two")


# Reading -------------------------------------------------------------------------------------

HEAD = "record,layers,tp,micro_batch,time_s"
ROW = "layer,0,1,1,0.5"


def read(tmp_path, text):
    path = tmp_path / "profile.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_measurements(path)


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}\n{ROW}\n",
        f"{HEAD}\n{ROW}",
        f"{HEAD}\r\n{ROW}\r\n",
        f"\ufeff{HEAD}\n{ROW}\n",
        f"\ufeff# torch: 2\n{HEAD}\n{ROW}\n",
        f"# torch: 2\n\n#\n{HEAD}\n\n{ROW}\n\n\n",
        f"{HEAD}\n,,,,\n{ROW}\n , ,,,\n",
        "layers,time_s,record,micro_batch,tp\n0,0.5,layer,1,1\n",
        '"record","layers","tp","micro_batch","time_s"\n"layer","0","1","1","0.5"\n',
        " record , layers,tp ,micro_batch, time_s\n layer , 0 , 1 ,1, 0.5 \n",
        f"{HEAD}\nlayer,0,1.0,1e0,5e-1\n",
    ],
    ids=[
        "plain", "no newline at the end", "CRLF", "BOM", "BOM and comments", "empty lines",
        "empty cells", "another order", "quoted", "spaces", "other numbers",
    ],
)  # fmt: skip
def test_the_same_table_in_other_clothes(tmp_path, text):
    frame = read(tmp_path, text).frame
    assert len(frame) == 1
    found = frame.loc[0, ["record", "layers", "tp", "micro_batch", "time_s"]].tolist()
    assert found == ["layer", "0", 1, 1, 0.5]


def test_quoted_commas_and_lines(tmp_path):
    text = f'{HEAD},name\nlayer,0,1,1,0.5,"a, b ""c"""\nlayer,1,1,1,0.5,"two\nlines"\n{ROW},x\n'
    table = read(tmp_path, text)
    assert list(table.frame["name"]) == ['a, b "c"', "two lines", "x"]
    assert table.lines == (2, 3, 5)


def test_names_do_not_steer_a_terminal(tmp_path):
    table = read(tmp_path, f"{HEAD},name\n{ROW},\x1b[2Jgone\x07\n")
    assert table.frame["name"].tolist() == ["[2Jgone"]


def test_lines_are_those_of_the_file(tmp_path):
    assert read(tmp_path, f"# a: b\n\n{HEAD}\n\n{ROW}\n\n{ROW}\n").lines == (5, 7)


def test_the_machine(tmp_path):
    table = read(tmp_path, f"{VERSION_LINE}\n# link: 10.0.0.1:80\n#x:  y \n{HEAD}\n{ROW}\n")
    assert table.machine == {"link": "10.0.0.1:80", "x": "y"}


def test_a_table_without_rows(tmp_path):
    assert len(read(tmp_path, HEAD + "\n").frame) == 0
    assert len(read(tmp_path, HEAD).frame) == 0


def test_columns_that_are_not_there_are_empty(tmp_path):
    assert list(read(tmp_path, f"{HEAD}\n{ROW}\n").frame.columns) == list(COLUMNS)


BAD = {
    "empty": ("", ["header", "found none"]),
    "only comments": ("# a: b\n#\n", ["header", "found none"]),
    "another table": ("a,b\n1,2\n", ["'record' is missing", "a, b", "profile import"]),
    "semicolons": (HEAD.replace(",", ";") + "\n", ["'record' is missing"]),
    "column missing": ("record,layers,tp,time_s\nlayer,0,1,1\n",
     ["'micro_batch' is missing", "'layer'"]),
    "times missing": ("record,layers,tp,micro_batch\nlayer,0,1,1\n", ["'time_s' is missing"]),
    "unknown column": (f"{HEAD},weight\n{ROW},1\n", ["'weight' is unknown", "'weight_bytes'"]),
    "unknown, nothing like it": (f"{HEAD},zzz\n{ROW},1\n", ["'zzz' is unknown"]),
    "column twice": (f"{HEAD},tp\n{ROW},1\n", ["'tp' is there twice"]),
    "milliseconds": ("record,layers,tp,micro_batch,time_ms\nlayer,0,1,1,3\n",
     ["'time_ms'", "'time_s'", "seconds", "one unit"]),
    "mebibytes": (f"{HEAD},weight_MiB\n{ROW},1\n", ["'weight_MiB'", "'weight_bytes'", "bytes"]),
    "mb": (f"{HEAD},memory_mb\n{ROW},1\n", ["'memory_mb'", "'memory_bytes'"]),
    "unit in a cell": (f"{HEAD}\n{ROW}\nlayer,1,1,1,3 ms\n",
     ["line 3", "'time_s'", "'3 ms'", "seconds", ": 0.003"]),
    "unit of bytes in a cell": (f"{HEAD},weight_bytes\n{ROW},2 KiB\n",
     ["line 2", "'weight_bytes'", "'2 KiB'", ": 2048"]),
    "unknown unit in a cell": (f"{HEAD}\nlayer,0,1,1,3 parsec\n", ["line 2", "'3 parsec'"]),
    "NaN": (f"{HEAD}\nlayer,0,1,1,nan\n", ["line 2", "'time_s'", "'nan'", "seconds"]),
    "infinite": (f"{HEAD}\nlayer,0,1,1,inf\n", ["line 2", "'time_s'", "'inf'"]),
    "too large": (f"{HEAD}\nlayer,0,1,1,1e999\n", ["line 2", "'time_s'", "'1e999'"]),
    "longer than anything": (f"{HEAD}\nlayer,0,1,1,1e300\n",
     ["line 2", "'time_s'", "at most 1e+09"]),
    "shorter than anything": (f"{HEAD}\nlayer,0,1,1,1e-300\n", ["line 2", "'time_s'", "1e-12"]),
    "more than there are": (f"{HEAD}\nlayer,0,1,1e300,1\n", ["line 2", "'micro_batch'", "1e+09"]),
    "more bytes": (f"{HEAD},weight_bytes\n{ROW},1e300\n", ["line 2", "'weight_bytes'", "1e+30"]),
    "not a number": (f"{HEAD}\nlayer,0,one,1,1\n", ["line 2", "'tp'", "'one'", "a number"]),
    "negative": (f"{HEAD}\nlayer,0,1,1,-1\n", ["line 2", "'time_s'", "'-1'", "at least 0"]),
    "fraction": (f"{HEAD}\nlayer,0,1.5,1,1\n", ["line 2", "'tp'", "'1.5'", "whole number"]),
    "no device": (f"{HEAD}\nlayer,0,0,1,1\n", ["line 2", "'tp'", "at least 1"]),
    "thousands": (f'{HEAD}\nlayer,0,1,1,"1,000"\n', ["line 2", "'time_s'", "'1,000'"]),
    "no time": (f"{HEAD}\nlayer,0,1,1,\n", ["line 2", "'time_s'", "'layer' needs"]),
    "no layers": (f"{HEAD}\nlayer,,1,1,1\n", ["line 2", "'layers'", "'layer' needs"]),
    "layers backwards": (f"{HEAD}\nlayer,3-1,1,1,1\n", ["line 2", "'layers'", "'3-1'", "'1-24'"]),
    "layers of words": (f"{HEAD}\nlayer,all,1,1,1\n", ["line 2", "'layers'", "'all'"]),
    "unknown record": (f"{HEAD}\nlair,0,1,1,1\n", ["line 2", "'record'", "'lair'", "layer"]),
    "no record": (f"{HEAD}\n,0,1,1,1\n", ["line 2", "'record'", "''"]),
    "unknown status": (f"{HEAD},status\n{ROW},good\n", ["line 2", "'status'", "'good'", "ok"]),
    "unknown provenance": (f"{HEAD},provenance\n{ROW},guessed\n",
     ["line 2", "'provenance'", "'guessed'", "measured"]),
    "too few cells": (f"{HEAD}\n{ROW}\nlayer,0,1\n", ["line 3", "5 fields", "found 3"]),
    "too many cells": (f"{HEAD}\n{ROW},7\n", ["line 2", "5 fields", "found 6"]),
    "half a line": (f"{HEAD}\n{ROW}\nlay", ["line 3", "5 fields", "found 1"]),
    "open quote": (f'{HEAD}\nlayer,"0,1,1,1\n', ["line 2", "CSV"]),
    "after the quote": (f'{HEAD}\nlayer,"0"x,1,1,1\n', ["line 2", "CSV"]),
    "not UTF-8": (b"record\n\xff\xfe\n", ["UTF-8"]),
    "UTF-16": (f"{HEAD}\n{ROW}\n".encode("utf-16"), ["UTF-8"]),
    "a later version": (VERSION_LINE.replace("1", "2") + f"\n{HEAD}\n{ROW}\n",
     ["version 2", "version 1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_malformed_is_refused_in_a_line(tmp_path, name):
    text, words = BAD[name]
    with pytest.raises(ProfileError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{tmp_path / 'profile.csv'}: ")
    for word in words:
        assert word in message


def test_a_line_after_a_cell_of_several_is_named_right(tmp_path):
    text = f'{HEAD},name\n{ROW},"a\nb\nc"\nlayer,0,1,1,x,y\n'
    with pytest.raises(ProfileError, match="line 5: 'time_s'"):
        read(tmp_path, text)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ProfileError, match="no such file"):
        read_measurements(tmp_path / "none.csv")
    with pytest.raises(ProfileError, match="cannot be read"):
        read_measurements(tmp_path)
    with pytest.raises(OutputError):
        write_measurements(tmp_path / "none" / "x.csv", measurements_of([LAYER], "x"))


def problem_of(path):
    try:
        read_measurements(path)
    except ProfileError as error:
        return str(error)
    return ""


@examples(50)
@given(st.text(string.printable, max_size=60), st.integers(0, 200), st.integers(0, 40))
def test_nothing_but_a_profile_error(tmp_path_factory, noise, begin, length):
    """Whatever is done to a table, it is read or refused in a line."""
    text = f"# a: b\n{HEAD},name\n{ROW},x\nlayer,1-2,1,1,2.5,y\n"
    path = tmp_path_factory.mktemp("noise") / "profile.csv"
    path.write_text(text[:begin] + noise + text[begin + length :])
    assert "\n" not in problem_of(path)


@pytest.mark.slow
@for_each("record", Record)
def test_every_kind_of_row_says_what_it_needs(record):
    row = {"record": record, **dict.fromkeys((*KEYS[record], *VALUES[record]), 1)}
    measurements_of([row], "x")
    for name in (*KEYS[record], *VALUES[record]):
        with pytest.raises(ProfileError, match=f"row 1: '{name}'"):
            measurements_of([{**row, name: None}], "x")
    in_vain = {**row, "status": "failed", **dict.fromkeys(VALUES[record])}
    measurements_of([in_vain], "x")


def test_rows_that_are_given():
    with pytest.raises(ProfileError, match="x: column 'time' is unknown"):
        measurements_of([{"record": "layer", "time": 1}], "x")
    with pytest.raises(ProfileError, match=r"row 2: 'time_s': found '-1\.0'"):
        measurements_of([LAYER, {**LAYER, "time_s": -1}], "x")
    assert len(measurements_of([], "x").frame) == 0


def test_ranges_of_layers():
    assert layer_range("3") == range(3, 4)
    assert layer_range(" 1-24 ") == range(1, 25)
    for text in ("", "-", "1-", "-1", "2-1", "1-2-3", "a", "1.5", "1234567"):
        with pytest.raises(ValueError, match="expected a layer"):
            layer_range(text)


def test_the_units_are_in_the_names():
    for name in VALUE_COLUMNS:
        unit = name.endswith(("_s", "bytes")) or name in {
            "flop", "spread", "messages", "parameters",
        }  # fmt: skip
        assert unit, name
