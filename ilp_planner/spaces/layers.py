"""Common code of builders for problems of whole layers: limits, batches and the problem itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import ProfileError, SpecError, UsageError
from ilp_planner.inputs.devices import memory_within, with_headroom
from ilp_planner.inputs.problem import AnyCosts, Problem
from ilp_planner.schedule.batches import Batches, possible_counts
from ilp_planner.specs.degrees import divisors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.request import Request
    from ilp_planner.spaces.base import Space
    from ilp_planner.specs.cluster import ClusterSpec


class Costing(NamedTuple):
    """A cost model of layers that was built.

    model: its name. source: the profile's name. notes: on its sources.
    says_degrees: the notes name left-out tensor degrees. short_batches: the last micro-batch may be
    short.
    """

    costs: Any
    model: str
    source: str
    notes: tuple[str, ...]
    says_degrees: bool = False
    short_batches: bool = False


def layer_problem(
    files: InputFiles,
    space: Space[AnyCosts, Any],
    cluster: ClusterSpec,
    costing: Costing,
    degrees: Mapping[str, tuple[int, ...]],
) -> Problem[AnyCosts]:
    """Return the problem of costs that are there.

    Parameters
    ----------
    degrees: the tensor-parallel degrees that each device type is profiled for.

    Raises
    ------
    SpecError, ProfileError: the problem cannot be planned, with the reason.
    """
    asked, costs = files.request, costing.costs
    batches, remarks = micro_batch_counts(
        files.global_batch, asked.micro_batch_sizes, short=costing.short_batches
    )
    top = max((tp for each in degrees.values() for tp in each), default=0)
    if top < 1 or (asked.max_tp is not None and asked.max_tp < 1):
        raise ProfileError(f"{costing.source}: no rows of tp up to {asked.max_tp}")
    if asked.max_tp is not None and asked.max_tp > top and not costing.says_degrees:
        remarks.append(f"tp above {top}: not profiled, left out")
    stages = min(cluster.device_count, len(costs.chain))
    return Problem(
        model=costing.model,
        cluster=cluster,
        space=space,
        costs=costs,
        global_batch=files.global_batch,
        micro_batches=batches,
        memory_limits=memory_limits(cluster, asked),
        max_stages=stages if asked.max_stages is None else min(stages, asked.max_stages),
        max_tp=top if asked.max_tp is None else min(top, asked.max_tp),
        profile_source=costing.source,
        notes=tuple(dict.fromkeys((*costing.notes, *remarks))),
    )


def memory_limits(cluster: ClusterSpec, asked: Request) -> dict[str, float]:
    """Return the bytes that each device type may use: as recorded, else the device's own memory; at
    most the requested ones, without bytes that must stay free.

    Raises
    ------
    SpecError: not positive.
    """
    limit, recorded = asked.memory_limit, asked.memory_limits or {}
    if limit is not None and not limit > 0:
        raise SpecError(f"memory limit: must be positive, found {limit:.0f} bytes")
    free = with_headroom(memory_within(cluster, limit), asked.constraints)
    called = {name: cluster.device_types[name].type for name in cluster.type_names}
    return {
        name: min(recorded[said], limit or math.inf) if said in recorded else free[name]
        for name, said in called.items()
    }


def micro_batch_counts(
    global_batch: int, sizes: Sequence[int], *, short: bool = False
) -> tuple[tuple[int, ...], list[str]]:
    """Return the numbers of micro-batches to try, ascending, and the omissions.

    Parameters
    ----------
    sizes: of a micro-batch; empty: any. short: the last one may be smaller than the others.

    Raises
    ------
    SpecError: a size below 1, or none that divides the batch.
    """
    if global_batch < 1:
        raise SpecError(f"global batch size: must be at least 1, found {global_batch}")
    if not sizes:
        return possible_counts(global_batch) if short else divisors(global_batch), []
    if min(sizes) < 1:
        raise SpecError(f"micro-batch size: must be at least 1, found {min(sizes)}")
    if short:
        return _counts_of_sizes(global_batch, sizes)
    usable = sorted({global_batch // size for size in sizes if global_batch % size == 0})
    left = [str(size) for size in dict.fromkeys(sizes) if global_batch % size]
    if not usable:
        nearest = sizes[0] * max(1, round(global_batch / sizes[0]))
        raise SpecError(
            f"global batch size: {global_batch} is not divisible by micro-batch "
            f"{', '.join(left)}; {nearest} would be"
        )
    notes = [f"micro-batch {', '.join(left)}: does not divide {global_batch}, left out"]
    return tuple(usable), notes if left else []


def _counts_of_sizes(global_batch: int, sizes: Sequence[int]) -> tuple[tuple[int, ...], list[str]]:
    """Return the numbers of micro-batches of these sizes, and the sizes that are smaller for a
    fuller last micro-batch."""
    parted = {size: Batches(global_batch, -(-global_batch // size)) for size in sizes}
    notes = [
        f"micro-batch {size}: {batches.count} of {batches.size} samples hold the {global_batch} too"
        for size, batches in parted.items()
        if batches.size != size
    ]
    return tuple(sorted({batches.count for batches in parted.values()})), notes


def refuse_stages(files: InputFiles, space: str) -> None:
    """Refuse a largest number of stages if a space has pipelines of any length.

    Raises
    ------
    UsageError: there is one.
    """
    if files.request.max_stages is not None:
        raise UsageError(f"max_stages: `space={space}` has pipelines of any length, found it set")
