"""`ilp-plan supports`: what it says, and what it refuses."""

import json
import re
import shlex

import pytest

from ilp_planner.analysis.supports import support_of
from ilp_planner.faces.report.supports import supports_lines
from ilp_planner.inputs.files import find_model
from tests.specs.hugging_face.test_hybrids import BAMBA

LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632,
    "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 4,
    "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
}  # fmt: skip


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


CONFIGS = {"hybrid": BAMBA, "dense": LLAMA}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_configuration_has_whole_reasons_and_a_command_that_works(
    ilp_plan, tmp_path, kind
) -> None:
    config = tmp_path / "my model" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(CONFIGS[kind]))
    found = support_of(find_model(str(config)), ["H100"])
    lines = dict(supports_lines(found, str(config)))
    assert not [text for text in lines.values() if text != text.rstrip() or not text]
    words = shlex.split(lines["next"].partition(";")[0])
    assert words[:3] == ["ilp-plan", "solve", str(config)]
    done = ilp_plan(*words[1:], "--sequence-length", "2048", "--time-limit", "1")
    assert "no such file" not in done.err
    assert done.code in (0, 4), done.err  # 4: no plan in a second


@pytest.mark.parametrize("model", ["qwen3-vl-8b", "llama3-8b", "qwen3.5-0.8b-text"])
def test_every_refused_export_has_a_reason(model) -> None:
    found = support_of(find_model(model), ["H100"])
    lines = dict(supports_lines(found, model))
    systems = {row.runtime.partition("@")[0] for row in found.planned if row.refused}
    for one in (one for one in found.exports if one.refused):
        assert f"not --to {one.to}" in lines or one.to.partition("@")[0] in systems
