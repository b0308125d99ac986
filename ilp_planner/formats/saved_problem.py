"""From a saved plan to the problem that it was solved for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError
from ilp_planner.inputs.files import InputFiles, plan_folders
from ilp_planner.spaces.registry import SPACES, build_problem, space_named

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.inputs.request import Reference
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec


def problem_of(saved: SavedPlan, file: Path, *, accept_changed: bool = False) -> Problem[Any]:
    """Build the problem of a saved plan again: from the model and the cluster that the file holds,
    and its profile.

    Parameters
    ----------
    accept_changed: judge by all inputs as they are now.

    Raises
    ------
    PlanError: an unknown space, or an input outside of the file has changed.
    SpecError, ProfileError: an input is not there or cannot be used.
    """
    inputs = saved.inputs
    if inputs.space and space_named(inputs.space) not in SPACES:
        raise PlanError(
            f"{file}: inputs.space: found {inputs.space!r}, expected one of {', '.join(SPACES)}"
        )
    inputs = replace(inputs, space=space_of(saved))
    files = InputFiles(inputs, plan_folders(file), anew=accept_changed, possible=False)
    problem = build_problem(files)
    if problem.request is not None:
        check_named(saved, file, problem.request.files)
        if not accept_changed:
            check_unchanged(saved, file, problem.request.files)
    return problem


def space_of(saved: SavedPlan) -> str:
    """Return the space of a plan, also if its file names none, as files of version 1 do; empty if
    the cost model says it."""
    from ilp_planner.plan import is_of_operators

    if saved.inputs.space:
        return space_named(saved.inputs.space)
    if is_of_operators(saved.plan):
        return "operators"
    if saved.plan.settings is not None:
        return "megatron"
    return "groups" if saved.inputs.cost_model == "native" else ""


def model_and_cluster(
    saved: SavedPlan, file: Path, *, accept_changed: bool = False
) -> tuple[ModelSpec | None, ClusterSpec]:
    """Return the model and the cluster of a saved plan, without its profile; None for a model that
    a profile alone says.

    Raises
    ------
    PlanError: one has changed since, is not named, or is another than the plan is for.
    SpecError: one is not there.
    """
    files = InputFiles(saved.inputs, plan_folders(file), anew=accept_changed)
    model = files.model if "model" in saved.inputs.files else None
    cluster, _ = files.cluster
    check_named(saved, file, files.held)
    if model is not None and model.name != saved.plan.model:
        raise PlanError(
            f"{file}: plan.model: found {saved.plan.model!r}, expected {model.name!r}, which is "
            "the model of its inputs"
        )
    if not accept_changed:
        check_unchanged(saved, file, files.held)
    return model, cluster


def differing_today(saved: SavedPlan, file: Path) -> tuple[str, ...]:
    """Return a note on every file that differs today from its text in a saved plan."""
    files = InputFiles(saved.inputs, plan_folders(file))
    files.compare_with_today()
    return tuple(files.notes)


def check_named(saved: SavedPlan, file: Path, read: Mapping[str, Reference]) -> None:
    """See that all inputs that were read are named in the file: none is taken by default.

    Raises
    ------
    PlanError: one is not.
    """
    for key in read:
        if key not in saved.inputs.files:
            raise PlanError(
                f"{file}: inputs.{key}: found none, expected the {key} that the plan is for"
            )


def check_unchanged(saved: SavedPlan, file: Path, read: Mapping[str, Reference]) -> None:
    """Compare inputs outside of the file with their recorded hashes.

    Raises
    ------
    PlanError: one has changed since the plan was saved.
    """
    for key, then in saved.inputs.files.items():
        now = read.get(key, then)
        if then.text is None and then.sha256 != now.sha256:
            raise PlanError(
                f"{file}: inputs.{key}: found sha256 {now.sha256[:12] or 'null'} of {now.name}, "
                f"expected {then.sha256[:12] or 'null'}: it has changed since the plan was saved "
                "(`accept_changed` judges by what it is now)"
            )
