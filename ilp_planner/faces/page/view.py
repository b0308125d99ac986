"""All that a page says of one plan, before anything is written as HTML."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import PlanError, PlannerError
from ilp_planner.base.units import format_seconds
from ilp_planner.faces.page.devices import MOST_DEVICES, device_map
from ilp_planner.faces.page.figures import Figure, Headline, figures_of, headline_of
from ilp_planner.faces.page.launch import Launch, launch_of
from ilp_planner.faces.page.memory import RankBar, memory_bars
from ilp_planner.faces.page.timeline import MOST_OPERATIONS, sends_of, timeline_data
from ilp_planner.faces.report.evaluation import proof_lines
from ilp_planner.faces.report.lines import NANOSECOND, evaluation_lines
from ilp_planner.faces.report.simulation import simulation_lines, simulation_table
from ilp_planner.faces.report.stages import stage_table
from ilp_planner.faces.report.tables import STOPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.table import Table

    from ilp_planner.analysis.simulated import Simulated
    from ilp_planner.formats.saved_check import Judgement
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.optimize.result import Moment

HASH = 12  # digits of a hash that are shown


class Grid(NamedTuple):
    """A table. left: numbers of the columns that are text."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class View:
    """The content of a plan's page.

    name: of the plan. terms: seconds of an iteration by name, which add up to its time.
    simulated: the iteration in time. timeline, devices: data for scripts, ready for JSON; these
    three are None if there is nothing, or too much. missing: omitted parts, with reasons, by
    section. groups: of ranks that send to each other; None if no training job says the plan.
    history: of the search, empty if it was not saved.
    """

    name: str
    model: str
    cluster: str
    headline: Headline
    figures: tuple[Figure, ...]
    lines: tuple[tuple[str, str], ...]
    provenance: tuple[tuple[str, str], ...]
    stages: Grid | None
    ranks: Grid | None
    groups: Grid | None
    terms: Mapping[str, float]
    memory: tuple[RankBar, ...]
    launch: Launch
    simulated: Simulated | None
    schedule: tuple[tuple[str, str], ...]
    timeline: dict[str, Any] | None
    devices: dict[str, Any] | None
    missing: Mapping[str, str]
    history: tuple[Moment, ...]


def view_of(judgement: Judgement, *, name: str, stem: str, tokens: float | None = None) -> View:
    """Return the content of a plan's page; the plan need not be legal.

    Parameters
    ----------
    name: of the plan. stem: how the names of files begin that start it.
    tokens: of a training run; None: nothing is said of one.
    """
    problem, saved, evaluation = judgement.problem, judgement.saved, judgement.evaluation
    plan, missing = saved.plan, dict[str, str]()
    found, timeline = None, None
    try:
        found = _simulated(judgement)
        timeline = _timeline(judgement, found)
    except PlannerError as error:
        missing["timeline"] = str(error)
    memory = memory_bars(problem, plan, evaluation)
    if not memory:
        priced = evaluation.cost is not None
        costs = f"the cost model {problem.costs.name!r} counts none"
        missing["memory"] = costs if priced else "the plan breaks rules that give it no price"
    devices = None
    if problem.cluster.device_count <= MOST_DEVICES:
        devices = device_map(plan, problem.cluster)
    else:
        many = problem.cluster.device_count
        missing["devices"] = f"{many} devices, of which a page draws at most {MOST_DEVICES}"
    claim = saved.claim
    return View(
        name=name,
        model=problem.model,
        cluster=problem.cluster.name,
        headline=headline_of(judgement),
        figures=tuple(figures_of(judgement, tokens)),
        lines=(
            *evaluation_lines(problem, plan, evaluation, tokens),
            *proof_lines(judgement),
        ),
        provenance=tuple(_provenance(saved)),
        stages=None if evaluation.cost is None else grid_of(stage_table(problem, plan, evaluation)),
        ranks=None if found is None else grid_of(simulation_table(found)),
        groups=_groups(judgement),
        terms=_terms(judgement),
        memory=memory,
        launch=launch_of(problem, plan, evaluation, stem),
        simulated=found,
        schedule=() if found is None else tuple(simulation_lines(found)),
        timeline=timeline,
        devices=devices,
        missing=missing,
        history=claim.run.history if claim is not None and claim.run is not None else (),
    )


def grid_of(table: Table) -> Grid:
    """Return the cells of a table of the terminal."""
    heads = tuple(str(column.header) for column in table.columns)
    cells = [tuple(map(str, column.cells)) for column in table.columns]
    left = frozenset(i for i, column in enumerate(table.columns) if column.justify == "left")
    return Grid(heads, tuple(zip(*cells, strict=True)), left)


def _simulated(judgement: Judgement) -> Simulated:
    """Return the iteration in time.

    Raises
    ------
    PlanError: the plan has no times, or there is too much to run.
    """
    from ilp_planner.analysis.simulated import simulated

    plan = judgement.saved.plan
    count = 2 * len(plan.stages) * plan.micro_batches
    if count > MOST_OPERATIONS:
        raise PlanError(
            f"{count} operations, of which a page draws at most {MOST_OPERATIONS}; "
            "`ilp-plan simulate` runs all of them"
        )
    return simulated(plan, judgement.evaluation)


def _timeline(judgement: Judgement, found: Simulated) -> dict[str, Any]:
    from ilp_planner.analysis.simulated import stage_times

    assert judgement.evaluation.cost is not None
    sends = sends_of(found.timeline, stage_times(judgement.evaluation.cost))
    return timeline_data(found, sends)


def _groups(judgement: Judgement) -> Grid | None:
    """Return a row per kind of group of ranks; None if no training job says the plan."""
    from ilp_planner.analysis.plans import analyze_plan

    problem, plan = judgement.problem, judgement.saved.plan
    if problem.spec is None or judgement.evaluation.cost is None:
        return None
    try:
        found = analyze_plan(plan, problem.spec, problem.cluster, source="plan").groups
    except PlanError:
        return None
    rows = tuple((g.kind, g.purpose, str(g.count), str(g.size), g.link) for g in found)
    heads = ("group", "for", "groups", "members each", "messages travel")
    return Grid(heads, rows, frozenset((0, 1, 4))) if rows else None


def _terms(judgement: Judgement) -> Mapping[str, float]:
    """Return seconds of an iteration by term, as `why` has them; none that nobody would read, or
    that is unknown."""
    problem, cost = judgement.problem, judgement.evaluation.cost
    if cost is None:
        return {}
    found = problem.space.seconds(problem, judgement.saved.plan, cost)
    return {name: value for name, value in found.items() if NANOSECOND <= value < math.inf}


def _provenance(saved: SavedPlan) -> Iterator[tuple[str, str]]:
    """Yield the inputs and the versions of a plan."""
    for key, file in saved.inputs.files.items():
        mark = f", sha256 {file.sha256[:HASH]}" if file.sha256 else ""
        held = ", held in the plan's file" if file.text is not None else ""
        yield key, f"{file.name}{mark}{held}"
    claim = saved.claim
    if claim is None:
        yield "search", "none: the plan came from elsewhere"
        return
    yield "search", f"{claim.solver}, seed {claim.seed}, stopped by {STOPS[claim.stopped_by]}"
    for note in claim.notes:
        yield "note", note
    if claim.run is None:
        yield "run", "not saved"
        return
    yield "took", format_seconds(claim.run.wall)
    versions = [f"{package} {version}" for package, version in claim.run.versions.items()]
    if versions:
        yield "versions", ", ".join(versions)
