"""`ilp-plan profile check`: what is implausible, where, and the exit code."""

import json
from pathlib import Path

import pytest

HEAD = "record,device,name,layers,tp,micro_batch,time_s,spread"
GOOD = [f"layer,A100,layer,1-8,{tp},{m},{0.01 * m / tp},0.02" for tp in (1, 2) for m in (1, 2)]


def write(rows):
    Path("profile.csv").write_text("\n".join(["# torch: 2", HEAD, *rows]) + "\n")


def test_a_good_table(ilp_plan):
    write(GOOD)
    done = ilp_plan("profile", "check", "profile.csv")
    assert (done.code, done.err) == (0, "")
    assert "nothing implausible in 4 rows" in done.out


def test_a_row_that_cannot_be(ilp_plan):
    write([*GOOD[:3], "layer,A100,layer,1-8,2,2,10.0,0.02"])
    done = ilp_plan("profile", "check", "profile.csv")
    assert (done.code, done.err) == (1, "")
    assert "line 6: layer layer, layers 1-8, A100, tp 2, micro_batch 2" in done.out
    assert "in ms rather than seconds?" in done.out
    assert "measure these rows again" in done.out


def test_what_is_only_unusual(ilp_plan):
    write([*GOOD[:3], GOOD[3].replace("0.02", "0.9")])
    done = ilp_plan("profile", "check", "profile.csv")
    assert (done.code, done.err) == (0, "")
    assert "1 warning in 1 of 4 rows" in done.out


def test_json(ilp_plan):
    write([*GOOD[:3], "layer,A100,layer,1-8,2,2,10.0,0.9"])
    done = ilp_plan("profile", "check", "profile.csv", "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["table"] == "profile.csv"
    assert found["rows"] == 4
    assert found["errors"] >= 1
    assert found["warnings"] >= 1
    units = next(f for f in found["findings"] if f["rule"] == "units")
    assert units["severity"] == "error"
    assert units["lines"] == [6]
    write(GOOD)
    assert json.loads(ilp_plan("profile", "check", "profile.csv", "--json").out)["findings"] == []


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["layer,A100,layer,1-8,1,1,3 ms,"], ["line 3", "'3 ms'", "0.003"]),
        (["layer,A100,layer,1-8,1,1,nan,"], ["line 3", "'nan'"]),
        (["layer,A100"], ["line 3", "8 fields", "found 2"]),
    ],
)
def test_a_table_that_cannot_be_read(ilp_plan, rows, words):
    write(rows)
    done = ilp_plan("profile", "check", "profile.csv")
    assert done.code == 1
    assert done.out == ""
    assert done.err.count("\n") == 1
    for word in ["profile.csv", *words]:
        assert word in done.err


def test_no_table(ilp_plan):
    done = ilp_plan("profile", "check", "none.csv")
    assert done.code == 1
    assert done.err == "ilp-plan: none.csv: no such file\n"
