"""Measured layers where a part of a model is trained: rows are of training all of it."""

from types import SimpleNamespace

import pytest

import ilp_planner as ilp
from ilp_planner.base.errors import SpecError
from ilp_planner.costs.training.measured import measured_times
from ilp_planner.specs.model_reader import read_model
from tests.benchmarks.cases import ROOT
from tests.examples import often

PROFILE = str(ROOT / "clusters" / "profiles" / "h200-llama3-8b.csv")
ASKED = {
    "gpus": "8xH200",
    "global_batch": 32,
    "profile": PROFILE,
    "tp": 1,
    "recompute": "none,full",
}


@pytest.mark.slow
@pytest.mark.parametrize("space", often(["megatron", "torchtitan"], "torchtitan"))
def test_what_is_not_trained_takes_less(space):
    def seconds(**tuning):
        result = ilp.solve(ilp.problem("llama3-8b", space=space, **ASKED, **tuning), seconds=60)
        assert result.evaluation.legal
        assert result.bound <= result.objective * (1 + 1e-9)
        return result.objective

    whole = seconds()
    for tuning in ({"lora": 8}, {"freeze": "embedding,layers:0-7"}, {"freeze": "attention"}):
        assert 0.4 * whole < seconds(**tuning) < whole, tuning
    assert seconds(freeze="embedding,layers:0-23") < seconds(freeze="embedding,layers:0-7")


def test_rows_of_attention_are_none_of_a_hybrid():
    model = read_model(ROOT / "models" / "nemotron3-nano-30b-a3b.toml").architecture
    with pytest.raises(SpecError, match=r"rows\.csv: found times of layers, .*'MEMEM"):
        measured_times(SimpleNamespace(source="rows.csv"), model, None, None)
