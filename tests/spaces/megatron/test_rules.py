"""Rules of the judge beside Megatron-LM's own checks of launch lines, which are other code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.specs.training import Recompute
from tests.megatron_cases import every_plan, small_problem

DIVIDED = Recompute(granularity="full", method="uniform", layers=1, distribute=True)


@pytest.mark.parametrize(
    ("again", "rule"),
    [
        (Recompute(granularity="selective", modules=("mla_up_proj",)), "recompute modules"),
        (Recompute(granularity="selective", modules=("mlp", "moe_act")), "recompute modules"),
        (Recompute(granularity="selective", modules=("mlp",)), None),
        (DIVIDED, "recompute inputs"),
        (replace(DIVIDED, distribute=False), None),
    ],
    ids=["projections up", "experts", "mlp", "divided inputs", "inputs"],
)
@pytest.mark.parametrize("tp", [1, 2])
def test_what_layers_do_not_have_is_not_computed_again(
    again: Recompute, rule: str | None, tp: int
) -> None:
    problem = small_problem(batch=4)
    plan = next(p for p in every_plan(problem) if p.ranks == 1 and p.stages[0].tp == tp)
    assert plan.settings is not None
    plan = replace(plan, settings=replace(plan.settings, recompute=again))
    broken = {violation.rule for violation in evaluate(problem, plan).violations}
    assert broken == ({rule} if rule else set())
    words = arguments_of_job(problem.costs.job(plan, problem.cluster))
    assert any(finding.rejected for finding in check_arguments(words)) == bool(rule)
