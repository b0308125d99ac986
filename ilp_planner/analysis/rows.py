"""An analysis as flat rows, for tables and data frames: bytes, messages, plain names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.analysis.stages import messages_of
from ilp_planner.base.units import number_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ilp_planner.analysis.analyze import Analysis
    from ilp_planner.job.modules import Message, Module, Weight
    from ilp_planner.job.traffic import Traffic

MEANT = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "send_recv": "send/receive",
}


class ModuleRow(NamedTuple):
    """A module in a tree. depth: 0 at the top. path: names from the top, joined by dots."""

    depth: int
    path: str
    module: Module


def module_rows(modules: Iterable[Module], depth: int = 0, lead: str = "") -> Iterator[ModuleRow]:
    """Yield modules and their parts, depth first."""
    for module in modules:
        path = f"{lead}.{module.name}" if lead else module.name
        yield ModuleRow(depth, path, module)
        yield from module_rows(module.children, depth + 1, path)


def stage_name(pp_ranks: Iterable[int]) -> str:
    """Return `0`, `1-6` or `1,3,5`."""
    return number_ranges(pp_ranks, ",")


def shape_text(shape: tuple[int, ...]) -> str:
    """Return `[4096, 1, 8192]`."""
    return f"[{', '.join(map(str, shape))}]"


def weight_texts(weights: tuple[Weight, ...]) -> Iterator[str]:
    """Yield `weight [6144, 4096]`; equal shapes with numbered names are one text."""
    runs: list[tuple[str, tuple[int, ...], list[str]]] = []
    for weight in weights:
        stem = weight.name.rstrip("0123456789")
        if runs and runs[-1][:2] == (stem, weight.shape):
            runs[-1][2].append(weight.name)
        else:
            runs.append((stem, weight.shape, [weight.name]))
    for _, shape, names in runs:
        name = names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}"
        yield f"{name} {shape_text(shape)}"


def message_object(message: Message) -> dict[str, Any]:
    """Return a message of a module."""
    return {
        "collective": message.collective,
        "group": message.group,
        "shape": list(message.shape),
        "bytes": message.size,
        "times": message.times,
    }


def module_table(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield a row per module of the full model and of one GPU of every stage."""
    width = analysis.job.settings.width
    yield from _modules("full model", analysis.whole, width)
    for stage in analysis.stages:
        yield from _modules(stage_name(stage.pp_ranks), stage.modules, width)


def _modules(stage: str, modules: Iterable[Module], width: int) -> Iterator[dict[str, Any]]:
    for depth, path, module in module_rows(modules):
        found: dict[str, list[Message]] = {"forward": [], "backward": []}
        for direction, message in messages_of(module):
            found[direction].append(message)
        yield {
            "stage": stage,
            "module": path,
            "depth": depth,
            "repeat": module.repeat,
            "shapes": "; ".join(weight_texts(module.weights)),
            "parameters": module.parameters,
            "parameter_bytes": module.parameters * width,
            "activation_bytes": module.activations,
            **{
                f"{direction}_{name}": value
                for direction, sent in found.items()
                for name, value in _summed(sent).items()
            },
        }


def _summed(messages: list[Message]) -> dict[str, Any]:
    return {
        "messages": sum(message.times for message in messages),
        "message_bytes": sum(message.size * message.times for message in messages),
        "collectives": "; ".join(
            f"{message.times} x {message.collective} {message.group} {shape_text(message.shape)}"
            for message in messages
        ),
    }


def memory_rows(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield the peak memory of a GPU of every pipeline stage, bytes by name."""
    for r, memory in enumerate(analysis.ranks):
        job = analysis.jobs[r]
        yield {
            "stage": r,
            "gpus": job.world // job.pp,
            "layers": sum(job.stages[k].layers for k in job.stages_of(r)),
            "in_flight": memory.in_flight,
            "parameters": memory.parameters,
            "moment": memory.moment,
            "terms": dict(memory.terms),
            "peak": memory.peak,
            "outside": dict(memory.outside),
            "needed": memory.needed,
            "limit": analysis.limit_of(r),
        }


def memory_table(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield a row per pipeline stage: the memory of one of its GPUs."""
    for row in memory_rows(analysis):
        needed, limit = row.pop("needed"), row.pop("limit")
        sizes = row.pop("terms") | {"peak": row.pop("peak")} | row.pop("outside")
        yield {
            **row,
            **{f"{name.replace(' ', '_').lower()}_bytes": size for name, size in sizes.items()},
            "needed_bytes": needed,
            "limit_bytes": limit,
            "left_bytes": None if limit is None else limit - needed,
        }


def traffic_table(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield a row per kind of message."""
    yield from map(traffic_object, analysis.traffic)


def traffic_object(row: Traffic) -> dict[str, Any]:
    """Return one kind of message; counts and bytes per GPU, unless named otherwise."""
    return {
        "family": row.family,
        "what": row.what,
        "stages": stage_name(row.stages),
        "collective": row.collective,
        "group": row.group,
        "members": row.members,
        "groups": row.groups,
        "link": row.link,
        "received": row.received,
        "message_bytes": row.size,
        "messages_per_micro_batch": row.per_micro_batch,
        "bytes_per_micro_batch": row.volume_per_micro_batch,
        "messages_per_iteration": row.per_iteration,
        "bytes_per_iteration": row.volume_per_iteration,
        "sent_bytes_per_iteration": row.sent_per_iteration,
        "cluster_messages_per_iteration": row.cluster_messages,
        "cluster_bytes_per_iteration": row.cluster_volume,
        "cluster_sent_bytes_per_iteration": row.cluster_sent,
    }


def group_table(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield a row per kind of group."""
    for kind in analysis.groups:
        columns = ("kind", "purpose", "size", "count", "link")
        yield {name: getattr(kind, name) for name in columns}


def recompute_table(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield a row per kind of recomputation and pipeline stage."""
    for saving in analysis.savings:
        for stage, peak in enumerate(saving.peaks):
            yield {
                "recompute": saving.name,
                "chosen": saving.chosen,
                "stage": stage,
                "peak_bytes": peak,
                "saved_bytes": analysis.savings[0].peaks[stage] - peak,
                "extra_flops_share": saving.flops,
            }


TABLES: Mapping[str, Callable[[Analysis], Iterator[dict[str, Any]]]] = {
    "modules": module_table,
    "memory": memory_table,
    "traffic": traffic_table,
    "groups": group_table,
    "recompute": recompute_table,
}
