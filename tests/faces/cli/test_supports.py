"""`ilp-plan supports`: what it says, and what it refuses."""

import json
import re


def test_other_models_say_where_they_are_planned(ilp_plan) -> None:
    done = ilp_plan("supports", "t5-3b")
    assert done.out.startswith("planned")
    assert "for no training system" in done.out
    assert "--space operators" in done.out
    rows = json.loads(ilp_plan("supports", "t5-3b", "--json").out)["exports"]
    assert rows
    assert all(row["reason"] for row in rows)


def test_refusals_name_the_reason(ilp_plan) -> None:
    out = ilp_plan("supports", "qwen3.5-0.8b-text", "--gpus", "H100").out
    assert re.search(r"not torchtitan +model\.one_plus: found True", out)
    assert re.search(r"exported +--to .*nemo@0\.3\.1", out)
    bad = ilp_plan("supports", "llama3-8b", "--gpus", "H1000")
    assert bad.code == 1
    assert "found 'H1000', expected one of the table of GPUs" in bad.err
    assert ilp_plan("supports", "no-such-model").code == 1
    assert ilp_plan("supports", "llama3-8b", "--devices", "0").code == 2
