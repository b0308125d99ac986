"""Plans put beside each other on one problem, each judged by it."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.analysis.compare.entry import Entry
from ilp_planner.analysis.fullest import fullest_of
from ilp_planner.base.errors import PlanError, PlannerError
from ilp_planner.base.file_kinds import LAUNCHES, FileKind, file_kind
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.base.parts import part
from ilp_planner.base.units import format_bytes
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.likeness import COSTS
from ilp_planner.plan import is_of_groups, on_devices
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.prices import nodes_of
from ilp_planner.specs.zones import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan
    from ilp_planner.specs.model import ModelSpec


# ---- plans from anywhere, to be judged on one problem --------------------------------------------
# Saved ones, launch scripts, other tools'.


# Plans are of one problem when these fields of their requests are the same, and what each device
# may hold.
SAME = tuple(name for name in COSTS if name not in ("space", "precision"))


class OtherProblemError(PlanError):
    """A plan of another problem; the message is the field that differs."""


class Candidate(NamedTuple):
    """A plan to put beside others. theirs: the problem that it was made for; the one compared on if
    its source names none. saved: the content of its file; None of other tools' files."""

    name: str
    plan: AnyPlan
    theirs: Problem[Any]
    saved: SavedPlan | None = None


class Asked(NamedTuple):
    """A plan as it is named: `plan.json`, `run.sh`, `aceso:config.json`. supplied: `NAME=VALUE` of
    values that only a run would tell. changed: inputs are taken as they are now. arguments: of
    launch scripts."""

    text: str
    supplied: Mapping[str, str] = {}
    changed: bool = False
    arguments: Sequence[str] = ()


def read_candidate(asked: Asked, problem: Problem[Any]) -> Candidate:
    """Read a plan to be judged on a problem.

    Raises
    ------
    OtherProblemError: it is one of another problem. PlannerError: it cannot be read.
    """
    kind, colon, rest = asked.text.partition(":")
    if colon and kind in READERS:
        return READERS[kind](asked._replace(text=rest), problem)
    path = Path(asked.text)
    if colon and kind.isalpha() and len(kind) > 1 and not path.exists():
        known = ", ".join(f"{name}:FILE" for name in READERS)
        raise PlanError(
            f"{asked.text}: found the format {kind!r}, expected a saved plan, a launch script or "
            f"one of {known}"
        )
    found = file_kind(path)
    if found in LAUNCHES:
        return _launched(asked, problem)
    return _aceso(asked, problem) if found is FileKind.ACESO else _saved(asked, problem)


def _saved(asked: Asked, problem: Problem[Any]) -> Candidate:
    """Return the plan of one of our files."""
    from ilp_planner.formats.saved_json import read_saved
    from ilp_planner.formats.saved_problem import problem_of

    path = Path(asked.text)
    saved = read_saved(path)
    theirs = problem_of(saved, path, accept_changed=asked.changed)
    if difference := other_problem(problem, theirs):
        raise OtherProblemError(difference)
    return Candidate(asked.text, saved.plan, theirs, saved)


def other_problem(problem: Problem[Any], theirs: Problem[Any]) -> str:
    """Return how another problem differs from the one compared on, empty if it does not."""
    if problem.space.unit != theirs.space.unit:
        return f"its stages are of {theirs.space.unit}s, not of {problem.space.unit}s"
    ours, other = problem.request, theirs.request
    assert ours is not None
    assert other is not None
    for kind in dict.fromkeys((*ours.files, *other.files)):
        mine, found = ours.files.get(kind), other.files.get(kind)
        if mine is None or found is None:
            return f"{kind} is {'not given' if found is None else found.name}"
        if (mine.sha256 or mine.name) != (found.sha256 or found.name):
            named = f"{mine.name} differs" if mine.name == found.name else ""
            return f"{kind} {named}" if named else f"{kind} is {found.name}, not {mine.name}"
    for key in SAME:
        value, has = getattr(ours, key), getattr(other, key)
        if value != has:
            return f"{key.replace('_', ' ')} is {has or 'another'}, not {value or 'that'}"
    limits = theirs.limits_of_types
    for name, limit in problem.limits_of_types.items():
        allowed = limits.get(name, limit)  # none of a type that only one of them may use
        if allowed != limit:
            return f"memory limit of {name} is {format_bytes(allowed)}, not {format_bytes(limit)}"
    return ""


def _aceso(asked: Asked, problem: Problem[Any]) -> Candidate:
    """Return the plan of a configuration of Aceso's."""

    if problem.space.unit != "operator":
        raise OtherProblemError(f"its stages are of operators, not of {problem.space.unit}s")
    batch = problem.global_batch
    plan = part("peers.aceso.formats:read_aceso")(
        Path(asked.text), _model(problem), global_batch=batch
    )
    return Candidate(f"aceso:{asked.text}", plan, problem)


def _launched(asked: Asked, problem: Problem[Any]) -> Candidate:
    """Return the plan of a launch of Megatron-LM, on all devices of the problem's cluster."""
    from ilp_planner.formats.captured.reader import read_any_launch
    from ilp_planner.formats.megatron.arguments import job_of_arguments
    from ilp_planner.formats.megatron.plan import plan_of_job
    from ilp_planner.formats.megatron.ranks import gpus_of
    from ilp_planner.specs.data_sheets import gpu_architecture

    cluster, spec = problem.cluster, _model(problem)
    if problem.space.unit != "layer":
        raise OtherProblemError(f"its stages are of layers, not of {problem.space.unit}s")
    arguments = read_any_launch(
        asked.text,
        arguments=asked.arguments,
        supplied=asked.supplied,
        gpus=gpus_of(cluster),
        strict=False,
    )
    if arguments.world != cluster.device_count:
        raise OtherProblemError(f"it starts on {arguments.world} GPUs, not {cluster.device_count}")
    job = job_of_arguments(arguments)
    job = replace(
        job, devices_per_node=cluster.nodes[0].devices, gpu_architecture=gpu_architecture(cluster)
    )
    _check_model(job.model, as_decoder(spec.architecture), "model")
    if job.settings.precision != spec.precision:
        raise OtherProblemError(f"precision is {job.settings.precision}, not {spec.precision}")
    _check_batch(job.global_batch, problem)
    return Candidate(asked.text, plan_of_job(job, cluster, model=problem.model), problem)


READERS: dict[str, Callable[[Asked, Problem[Any]], Candidate]] = {
    "aceso": _aceso,
    "megatron": _launched,
}


def _model(problem: Problem[Any]) -> ModelSpec:
    if problem.spec is None:
        raise PlanError(
            "the problem compared on names no model, whose dimensions other tools' plans need"
        )
    return problem.spec


def _check_model(found: object, wanted: object, what: str) -> None:
    """Refuse another model, naming the first dimension that differs."""
    if found == wanted:
        return
    if type(found) is not type(wanted) or not hasattr(found, "__dataclass_fields__"):
        raise OtherProblemError(f"{what} is {found or 'none'}, not {wanted or 'none'}")
    for field in fields(found):  # type: ignore[arg-type]
        if field.compare:
            name = f"{field.name.replace('_', ' ')} of the {what}"
            _check_model(getattr(found, field.name), getattr(wanted, field.name), name)


def _check_batch(found: int, problem: Problem[Any]) -> None:
    if found != problem.global_batch:
        raise OtherProblemError(f"global batch is {found}, not {problem.global_batch}")


# ---- entries of a comparison ---------------------------------------------------------------------


# A bound holds for all plans of a problem only when these are the same of it; what to call each.
SAME_SPACE = {
    "space": "plans",
    "node_numbers": "nodes",
    "micro_batches": "micro-batches",
    "max_stages": "stages",
    "max_tp": "tensor-parallel degrees",
    "constraints": "constraints",
}


def plan_entry(problem: Problem[Any], asked: Asked) -> Entry:
    """Judge one plan on the problem and derive the bound of its certificate again, or say why it
    cannot be compared."""
    try:
        candidate = read_candidate(asked, problem)
    except OtherProblemError as error:
        return Entry(name=asked.text, remark=f"another problem: {error}")
    except PlannerError as error:
        return Entry(name=asked.text, remark=str(error).removeprefix(f"{asked.text}: "))
    bound, remark = _proved(problem, candidate)
    return candidate_entry(problem, candidate, bound=bound, remark=remark)


def _proved(problem: Problem[Any], candidate: Candidate) -> tuple[float, str]:
    """Return the bound that the certificate of a plan proves when it is derived again, and why
    there is none."""
    from ilp_planner.optimize.certificate import check_certificate

    if candidate.saved is None or not candidate.saved.certificate:
        return 0.0, ""
    # A bound holds for the space it was proved for: fewer micro-batches or stages prove less.
    theirs = candidate.theirs
    other = next((k for k in SAME_SPACE if getattr(problem, k) != getattr(theirs, k)), None)
    if other is not None:
        return 0.0, f"its bound is for another choice of {SAME_SPACE[other]}"
    try:
        return check_certificate(problem, candidate.saved.certificate).bound, ""
    except PlanError as error:
        return 0.0, str(error)


def candidate_entry(
    problem: Problem[Any], candidate: Candidate, *, bound: float = 0.0, remark: str = ""
) -> Entry:
    """Judge a plan by the rules of its own problem, with the same costs as the compared one and
    possibly more plans; plans that the compared one leaves out are outside of its proofs."""
    theirs, plan = candidate.theirs, candidate.plan
    evaluation = evaluate(theirs, plan)
    found = entry(theirs, candidate.name, plan, evaluation, bound=bound, remark=remark)
    if not evaluation.legal:
        return found
    return replace(found, outside=_outside(problem, candidate, found.time))


def _outside(problem: Problem[Any], candidate: Candidate, seconds: float) -> str | None:
    """Return why proofs on a problem are not about a plan that is legal on its own, and takes so
    many seconds there; None if they are. Both are of one cluster, and each may use other nodes of
    it."""
    plan, theirs = candidate.plan, candidate.theirs
    if problem.node_numbers != theirs.node_numbers:
        used = {theirs.node_numbers[node] for node in nodes_of(theirs.cluster, plan.used)}
        others = sorted(used.difference(problem.node_numbers))
        if others or not is_of_groups(plan):
            return f"nodes: found {shown(sorted(used))}, only {shown(problem.node_numbers)} tried"
        ours = {number: device for device, number in enumerate(problem.device_numbers)}
        plan = on_devices(plan, [ours.get(number, -1) for number in theirs.device_numbers])
    here = evaluate(problem, plan)
    if here.violations:
        return str(here.violations[0])
    if not math.isclose(here.iteration_time, seconds, rel_tol=ROUNDING):
        there = f"{here.iteration_time:.7g} s by those compared on"
        return f"time: found {seconds:.7g} s by its own inputs, {there}"
    return problem.space.outside(problem, plan)


def entry(
    problem: Problem[Any],
    name: str,
    plan: AnyPlan | None,
    evaluation: Evaluation | None,
    *,
    bound: float,
    remark: str,
    wall: float = math.nan,
    heuristic: bool = False,
) -> Entry:
    """Return the entry of a plan, if there is one, and of a bound."""
    found = Entry(name=name, bound=bound, wall=wall, remark=remark, heuristic=heuristic)
    if plan is None or evaluation is None:
        return found
    found = replace(
        found,
        problem=problem,
        plan=plan,
        stages=len(plan.stages),
        micro_batch=plan.micro_batch_size,
    )
    cost = evaluation.cost
    if cost is not None:
        used, limit = fullest_of(problem, plan, evaluation)
        found = replace(found, memory=used, limit=limit)
    others = [broken for broken in evaluation.violations if broken.rule != "memory"]
    if others or cost is None:
        why = f"not legal: {(others or evaluation.violations)[0]}"
        return replace(found, remark=why)
    found = replace(
        found,
        time=evaluation.iteration_time,
        evaluation=evaluation,
        seconds=dict(problem.space.seconds(problem, plan, cost)),
    )
    if not evaluation.legal:
        return replace(found, excess=found.memory - found.limit)
    return replace(found, outside=problem.space.outside(problem, plan))
