"""`ilp-plan profile predict`."""

import json
import re
from html.parser import HTMLParser

import pytest

from ilp_planner.costs.profiles.measurements import (
    join,
    measurements_of,
    read_measurements,
    write_measurements,
)

VOID = {"meta", "br", "img", "link", "input", "hr"}


@pytest.fixture
def table(folder):
    layers = [
        {
            "record": "layer", "device": "A100", "name": name, "layers": layers, "tp": tp,
            "micro_batch": n, "time_s": factor * (1e-3 + 4e-3 * n / tp) * (1 + (n + tp) % 3 / 100),
            "state_bytes": 2**30 / tp, "activation_bytes": n * 2**26,
        }
        for name, layers, factor in (("embedding", "0", 0.2), ("block <&>", "1-8", 1.0))
        for tp in (1, 2, 4) for n in (1, 2, 4)
    ]  # fmt: skip
    lost = {
        "record": "layer", "device": "A100", "name": "block <&>", "layers": "1-8", "tp": 1,
        "micro_batch": 8, "status": "out_of_memory",
    }  # fmt: skip
    links = [
        {
            "record": "collective", "device": "A100", "name": "all_reduce", "group_size": g,
            "hosts": 1, "stride": 1, "groups": 1, "bytes": 4.0**k, "time_s": 1e-5 + 4.0**k / 1e11,
        }
        for g in (2, 4) for k in range(3, 15)
    ]  # fmt: skip
    dots = [
        {"record": "matmul", "device": "A100", "flop": 2.0 * n**3, "time_s": 1e-5 + n**3 / 5e13}
        for n in (256, 512, 1024, 2048)
    ]
    made = join(
        [
            measurements_of([*layers, lost], "t", machine={"device": "A100", "cpu": "<EPYC>"}),
            measurements_of([*links, *dots], "t"),
        ],
        "t",
    )
    write_measurements(folder / "table.csv", made)
    return "table.csv"


def test_the_table_of_answers(ilp_plan, table):
    done = ilp_plan("profile", "predict", table, "--want", "tp=8 micro_batch=16")
    assert done.code == 0
    assert re.search(r"block <&>\s+tp 8, micro-batch 16\s+.* ms\s+.* %\s+extrapolated", done.out)
    assert "layers, between rows" in done.out
    assert "layers, one step beyond rows" in done.out
    assert "left out: 1 row that ran out of memory" in done.out


def test_all_kinds_at_once_as_json(ilp_plan, table):
    done = ilp_plan(
        "profile", "predict", table, "--json",
        "--want", "tp=2 micro_batch=2,3 name=embedding",
        "--want", "collective=all_reduce group_size=4 bytes=3MiB",
        "--want", "flop=1e10",
    )  # fmt: skip
    found = json.loads(done.out)
    measured, between, link, dot = found["predictions"]
    assert measured["provenance"] == "measured"
    assert measured["expected_error"] == 0
    assert between["provenance"] == "interpolated"
    assert 0 < between["expected_error"] < 0.1
    assert between["row"]["activation_bytes"] == 3 * 2**26
    assert link["time_s"] == pytest.approx(1e-5 + 3 * 2**20 / 1e11, rel=0.1)
    assert dot["time_s"] == pytest.approx(1e-5 + 1e-4, rel=0.1)
    assert {one["kind"] for one in found["cross_validation"]} == {"layer", "collective", "matmul"}


def test_out_of_memory_is_said(ilp_plan, table):
    done = ilp_plan("profile", "predict", table, "--want", "tp=1 micro_batch=16")
    assert "ran out of memory" in done.out
    assert "1 row needs no less than one that ran out of it when measured" in done.out


def test_output_has_the_rows_and_can_be_read(ilp_plan, table, folder):
    ilp_plan("profile", "predict", table, "--want", "tp=8 micro_batch=2,16", "--output", "more.csv")
    before, after = (read_measurements(folder / name).frame for name in (table, "more.csv"))
    assert len(after) == len(before) + 4
    assert set(after["provenance"][-4:]) == {"extrapolated"}
    again = ilp_plan("profile", "predict", "more.csv", "--want", "tp=8 micro_batch=2",
                     "--output", "again.csv")  # fmt: skip
    assert again.code == 0
    assert len(read_measurements(folder / "again.csv").frame) == len(after)


class Page(HTMLParser):
    """What is open, what was said, and what a browser would fetch."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.fetched, self.tags = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        given = dict(attrs)
        self.fetched += [v for k in ("src", "href", "xlink:href") if (v := given.get(k))]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        given = dict(attrs)
        self.fetched += [v for k in ("src", "href", "xlink:href") if (v := given.get(k))]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.slow
def test_the_report_is_one_page_that_needs_nothing(ilp_plan, table, folder):
    done = ilp_plan("profile", "predict", table, "--report", "error.html")
    assert done.code == 0
    page = Page()
    page.feed((folder / "error.html").read_text())
    text = " ".join(page.text)
    assert page.open == []
    assert page.tags.count("svg") == 9  # three charts of layers, collectives and products
    assert "script" not in page.tags
    outside = [x for x in page.fetched if not x.startswith(("#", "data:"))]
    assert outside == []
    names = re.findall(
        r' id="((?:figure|axes|text|patch)_\d+)"', (folder / "error.html").read_text()
    )
    assert len(names) == len(set(names))
    for said in (
        "block <&>", "<EPYC>", "ran out of memory", "between rows", "one step beyond rows",
        "all_reduce of 4 on 1 host,", "furthest off",
    ):  # fmt: skip
        assert said in text, said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "nothing is asked for"),
        (["--output", "x.csv"], 2, "nothing is asked for"),
        (["--report", "x.html", "--output", "y.csv"], 2, "--output: no rows are asked for"),
        (["--want", "tp=8", "--output", "table.csv"], 1, "written over the input"),
        (["--want", "tp=8", "--report", "no/x.html"], 1, "no such folder"),
        (["--want", "tp=8", "--report", "x", "--output", "x"], 2, "expected two files"),
        (["--want", "tp=8 device=H100"], 1, "no rows of layers or operators to predict from"),
        (["--want", "tp=8 hidden=4096"], 1, "its rows have no 'hidden'"),
        (["--want", "flop=1e9 dtype=fp16"], 1, "with dtype 'fp16'"),
        (["--want", "tp=x"], 2, "--want: tp: found 'x'"),
    ],
)
def test_bad_usage_is_one_line(ilp_plan, table, words, code, said):
    done = ilp_plan("profile", "predict", table, *words)
    assert done.code == code
    assert said in done.err
    assert done.err.count("\n") == 1


def test_a_table_without_what_is_asked_for(ilp_plan, folder):
    (folder / "empty.csv").write_text("record,bytes,time_s\npoint_to_point,8,1e-5\n")
    for want in ("tp=2", "collective=all_reduce group_size=2 bytes=8", "flop=1e9"):
        done = ilp_plan("profile", "predict", "empty.csv", "--want", want)
        assert done.code == 1
        assert "empty.csv: " in done.err
        assert done.err.count("\n") == 1
