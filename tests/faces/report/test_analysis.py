"""An analysis for people and for programs."""

import json
import re
from collections import Counter
from dataclasses import replace

import pytest

from ilp_planner.analysis.analyze import analyze
from ilp_planner.base.files import to_json
from ilp_planner.faces.report.analysis import analysis_text
from ilp_planner.faces.report.analysis_json import analysis_object
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.training import OptimizerSettings, Settings, TrainingJob
from tests.examples import for_each

MODEL = Decoder(layers=4, hidden=512, heads=8, sequence=512, vocab=1000)
JOB = TrainingJob(
    model=MODEL,
    micro_batch=2,
    global_batch=64,
    tp=2,
    pp=4,
    dp=4,
    settings=Settings(sequence_parallel=True, optimizer=OptimizerSettings(sharding="optimizer")),
)


def text(
    job: TrainingJob = JOB, *, width: int = 160, limit: float | None = None, **options: object
) -> str:
    analysis = analyze(job, name="small", limit=limit, device="toy", notes=("a remark",))
    return analysis_text(analysis, width=width, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [100, 160])
def test_no_line_of_a_table_is_wider_than_the_terminal(width: int) -> None:
    tables = text(width=width).split("\ntp groups")[0]
    assert max(map(len, tables.split("\n"))) <= width


@for_each("width", [60, 100, 160, 200])
def test_a_narrow_terminal_loses_nothing(width: int) -> None:
    """Whatever the width, the same letters and digits are there; in blocks, titles repeat."""

    def letters(report: str) -> Counter[str]:
        return Counter("".join(report.split()))

    whole, found = letters(text(width=400)), letters(text(width=width))
    assert whole <= found
    assert width < 100 or whole == found


def test_a_terminal_cuts_no_word() -> None:
    """The pieces of a report of 80 columns are its words, or end where a name has a joint."""
    words = set(text(width=400).split())
    for piece in text(width=80).split():
        assert piece in words or any(
            re.search(rf"(^|[._]){re.escape(piece)}($|(?<=[._]))", word) for word in words
        )


def test_what_is_in_it() -> None:
    report = text()
    for part in (
        "full model without parallelism",
        "one GPU of stage 0 (of 4), layer 0",
        "one GPU of stages 1-2 (of 4), 1 layer each",
        "one GPU of stage 3 (of 4), layer 3",
        "tensor parallelism",
        "pipeline parallelism",
        "data parallelism",
        "cluster, per iteration",
        "recompute",
        "[n0_g0 n0_g1]",
        "a remark",
    ):
        assert part in report
    assert not re.search(r"tensor parallelism .* [Ee][Rr]{2}", report)


def test_verdict() -> None:
    assert "--memory-limit or --cluster tells whether it fits" in text()
    assert re.search(r"^FITS +\S+ \S+ of 80\.00 GiB of toy", text(limit=80 * 2.0**30), re.M)
    most = max(rank.needed for rank in analyze(JOB).ranks)
    near = text(limit=most - 2.0**20)
    assert re.search(r"^MAY NOT FIT .* too much: inside the reserve of \S+ MiB \(5 %\)", near, re.M)
    near = text(limit=most / 0.99)
    assert re.search(r"^MAY NOT FIT .* left: within 5 % of the limit", near, re.M)
    refused = text(limit=2.0**29)
    assert re.search(r"^DOES NOT FIT .* of 4 stages are over; .* too much$", refused, re.M)
    assert "OVER" in refused


def test_one_stage_only() -> None:
    report = text(stage=3)
    assert "stage 3 (of 4)" in report
    assert "stage 0 (of 4)" not in report
    assert "full model" not in report


def test_groups_are_named_as_far_as_is_wanted() -> None:
    many = replace(JOB, dp=64, global_batch=1024)
    short, full = text(many), text(many, all_groups=True)
    assert "... and 248 more (--all-groups lists them)" in short
    assert "... 48 more]" in short
    assert "... 112 more]" in short
    assert "more" not in full.replace("--all-groups", "")
    assert full.count("[n") == 4 + 256 + 8 + 128 + 128


def test_json_is_json_and_says_the_same() -> None:
    analysis = analyze(JOB, name="small", limit=2.0**30, device="toy")
    value = json.loads(to_json(analysis_object(analysis)))
    assert value["model"] == "small"
    assert value["jobs"][0]["world"] == 32
    assert value["fits"] is all(rank.needed <= 2**30 for rank in analysis.ranks)
    assert [row["peak_bytes"] for row in value["memory"]] == [rank.peak for rank in analysis.ranks]
    assert value["stages"][1]["pp_ranks"] == [1, 2]
    layer = value["stages"][1]["modules"][0]
    assert layer["name"] == "decoder.layers"
    attention = next(m for m in layer["modules"] if m["name"] == "self_attention")
    qkv = next(m for m in attention["modules"] if m["name"] == "linear_qkv")
    assert qkv["forward"][0]["collective"] == "all_gather"
    assert qkv["forward"][0]["bytes"] == 512 * 2 * 512 * 2
    assert value["groups"]["tp"]["groups"][0] == ["n0_g0", "n0_g1"]
    assert len(value["groups"]["stages"]) == 4
    assert len(value["communication"]) == len(analysis.traffic)


def test_json_of_one_stage() -> None:
    value = analysis_object(analyze(JOB), stage=2)
    assert [stage["pp_ranks"] for stage in value["stages"]] == [[1, 2]]
    assert [row["stage"] for row in value["memory"]] == [2]
    assert all(2 in row["pp_ranks"] for row in value["communication"])
    assert value["fits"] is None
