"""Demands on Megatron's plans that decide nothing in any tried one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.spaces.training.enumerate.choices import CHOICES, decided
from ilp_planner.spaces.training.enumerate.variants import most_virtual

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.search.parts import MegatronPart

NO_STAGES = "no plan that is tried has virtual stages"


def without_effect(problem: Problem[MegatronCosts], parts: Sequence[MegatronPart]) -> Iterator[str]:
    """Yield a note on everything that was asked for and decides nothing in any part."""
    asked = problem.constraints
    if asked.remainder and (why := _nothing_left_over(problem, parts)):
        yield f"remainder {','.join(asked.remainder)}: without effect, {why}"
    if asked.micro_batch_group_size and not any(map(_has_virtual_stages, parts)):
        text = asked.texts["micro_batch_group_size"]
        yield f"micro batch group size {text}: without effect, {NO_STAGES}"
    anyhow = asked.layout is not None and asked.one_layout is None
    if anyhow and not any(map(_has_virtual_stages, parts)):
        yield f"layout {asked.layout}: without effect, {NO_STAGES}"
    said = {name: getattr(asked, name) for name, choice in CHOICES.items() if choice.rest}
    silent = {name for name, values in said.items() if values and CHOICES[name].rest not in values}
    for part in parts:
        if not silent:
            return
        silent -= decided(part.settings, replicated=part.degrees.replicated).keys()
    for name in said:
        if name in silent:
            text = f"{name.replace('_', ' ')} {','.join(said[name])}"
            yield f"{text}: without effect, no plan that is tried has anything that it decides"


def _nothing_left_over(problem: Problem[MegatronCosts], parts: Sequence[MegatronPart]) -> str:
    """Return why no virtual stages take the remaining layers of a rank; empty: some do."""
    asked, model = problem.constraints, problem.costs.model
    if asked.one_layout is not None:
        return f"`layout={asked.layout}` says which layers every virtual stage has"
    if asked.layout is not None:
        return f"`layout={asked.layout}` has them anyhow"
    several = [part for part in parts if _has_virtual_stages(part)]
    if not several:
        return NO_STAGES
    if len(set(model.expert_layers)) == 1 and any(part.alike for part in several):
        return ""
    return (
        f"layers of {problem.model} differ: all virtual stages but the first and the last have "
        "equally many"
    )


def _has_virtual_stages(part: MegatronPart) -> bool:
    asked = part.problem.constraints
    return any(asked.allows("virtual_stages", v) for v in range(2, most_virtual(part) + 1))
