"""Differences of plans, setting by setting and stage by stage, and their costs."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.faces.report.devices import describe_degrees, describe_devices
from ilp_planner.faces.report.stages import describe_samples, layers_of
from ilp_planner.faces.report.tables import Table, span, unit_for
from ilp_planner.plan import is_of_groups, is_of_operators
from ilp_planner.specs.training import Recompute

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ilp_planner.faces.report.tables import Unit
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan, GroupPlan, OperatorPlan, OperatorStage

NO = "-"  # what is not there
MOST_STAGES = 24  # rows of stages
VISIBLE = 5e-4  # of a table's unit: what is less is shown as nothing


class Difference(NamedTuple):
    """Something that plans decide. values: of each plan, `-` if it has none."""

    name: str
    values: tuple[str, ...]


def differences(cases: Sequence[tuple[Problem[Any], AnyPlan]]) -> list[Difference]:
    """Return the settings, and then the stages, that are not the same in all plans.

    cases: plans, each with its problem.
    """
    rows: list[Difference] = []
    each = [dict(_settings(plan)) for _, plan in cases]
    for name in dict.fromkeys(name for one in each for name in one):
        rows.append(Difference(name, tuple(one.get(name, NO) for one in each)))
    stages = zip_longest(*(_stages(*case) for case in cases), fillvalue=NO)
    rows += [Difference(f"stage {s}", texts) for s, texts in enumerate(stages)]
    return [row for row in rows if len(set(row.values)) > 1]


def difference_table(found: Sequence[Difference], names: Sequence[str]) -> Table:
    """Return a row for everything that differs."""
    table = Table("what differs", *names, left=("what differs", *names))
    shown = [row for row in found if not row.name.startswith("stage ")]
    stages = found[len(shown) :]
    for row in (*shown, *stages[:MOST_STAGES]):
        table.add(row.name, *row.values)
    if len(stages) > MOST_STAGES:
        more = f"... {len(stages) - MOST_STAGES} more stages"
        table.add(more, *[""] * len(names))
    return table


def seconds_table(each: Sequence[Mapping[str, float]], names: Sequence[str]) -> Table:
    """Return a row for everything that seconds are spent on; of all plans but the first, also how
    many more than in that.

    Parameters
    ----------
    each: seconds of an iteration by name, of every plan.
    """
    whole = [sum(one.values()) for one in each]
    unit = unit_for(max(whole))
    head, *others = names
    columns = [part for name in others for part in (f"{name}\n({unit.name})", f"against\n{head}")]
    title = "where the time goes"
    table = Table(title, f"{head}\n({unit.name})", *columns, left=(title,))
    for name in dict.fromkeys(name for one in each for name in one):
        values = [one.get(name, 0.0) for one in each]
        if max(map(abs, values)) >= VISIBLE * unit.size:
            table.add(name, *_cells(values, unit))
    table.add("in all", *_cells(whole, unit))
    return table


def _cells(values: Sequence[float], unit: Unit) -> Iterator[str]:
    first, *others = values
    yield unit.show(first)
    for value in others:
        yield unit.show(value)
        same = abs(value - first) < VISIBLE * unit.size
        yield "same" if same else unit.show(value - first, "+")


def _settings(plan: AnyPlan) -> Iterator[tuple[str, str]]:
    """Yield the settings shared by all stages of a plan, by name."""
    yield "micro-batches", f"{plan.micro_batches} of {plan.micro_batch_size}"
    yield "pipeline ranks", str(plan.ranks)
    yield "virtual stages per rank", str(plan.virtual)
    if is_of_groups(plan):
        yield "tp", span(tp // plan.cp for stage in plan.stages for tp in stage.degrees)
        yield "dp", span(stage.dp for stage in plan.stages)
    elif is_of_operators(plan):
        every = [one for stage in plan.stages for one in stage.strategies]
        yield "tp", span(one.tp for one in every)
        yield "dp", span(one.dp for one in every)
        yield "operators recomputed", f"{sum(one.recompute for one in every)} of {len(every)}"
    if plan.settings is not None:
        yield from _fields(plan.settings, "")


def _fields(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of a training job by name, each part before its own settings."""
    for field in fields(value):
        own, name = getattr(value, field.name), f"{place}{field.name.replace('_', ' ')}"
        if not field.compare:
            continue
        if isinstance(own, Recompute):
            words = (own.granularity, *own.modules, own.method, str(own.layers or ""))
            yield "recomputation", " ".join(filter(None, words))
        elif is_dataclass(own):
            yield from _fields(own, f"{name}: ")
        else:
            yield name, _shown(own)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return str(value) if value not in ("", None) else "none"


def _stages(problem: Problem[Any], plan: AnyPlan) -> Iterator[str]:
    """Yield the units, devices and degrees of every pipeline rank."""
    if is_of_groups(plan):
        yield from _group_stages(problem, plan)
    elif is_of_operators(plan):
        yield from _operator_stages(plan)


def _group_stages(problem: Problem[Any], plan: GroupPlan) -> Iterator[str]:
    for rank, stage in enumerate(plan.stages[: plan.ranks]):
        devices = describe_devices(problem.cluster, stage.devices)
        samples = describe_samples([replica.samples for replica in stage.replicas])
        degrees = f"tp{describe_degrees(problem.cluster, stage, plan.cp)} dp{stage.dp}"
        again = stage.recompute
        more = "" if again.granularity == "none" else f", recomputed {again}"
        yield f"{layers_of(problem, plan, rank)} on {devices}, {degrees}, samples {samples}{more}"


def _operator_stages(plan: OperatorPlan) -> Iterator[str]:
    for stage in plan.stages:
        yield (
            f"operators {_range(stage.start, stage.stop)} on {stage.device_count} device"
            f"{'s' * (stage.device_count > 1)}, tp{_span(stage, 'tp')} dp{_span(stage, 'dp')}, "
            f"{sum(one.recompute for one in stage.strategies)} recomputed"
        )


def _span(stage: OperatorStage, name: str) -> str:
    return span(getattr(one, name) for one in stage.strategies)


def _range(start: int, stop: int) -> str:
    return str(start) if stop - start == 1 else f"{start}-{stop - 1}"
