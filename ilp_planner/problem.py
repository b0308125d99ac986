"""The frozen instance: what to plan, on what, at which costs and within which limits. No solver in
it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.costs import COST_MODELS
from ilp_planner.errors import ProfileError, SpecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.costs.base import CostModel
    from ilp_planner.profiles.table import Profile
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec

GROUP_SIZES = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True, repr=False)
class Problem:
    """One planning problem.

    memory_limit: bytes per device. micro_batches: sizes to try, samples over all replicas.
    group_sizes: devices that one stage may have; a stage never straddles a node; every device is
    used.
    notes: what was left out, one line each.
    """

    model: ModelSpec
    cluster: ClusterSpec
    profile: Profile
    costs: CostModel
    global_batch: int
    micro_batches: tuple[int, ...]
    memory_limit: float
    max_stages: int
    group_sizes: tuple[int, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<Problem {self.model.name} on {self.cluster.name}, {self.global_batch} samples, "
            f"costs {self.costs.name}>"
        )

    def micro_batch_count(self, micro_batch: int) -> int:
        """Return B, the number of micro-batches per iteration."""
        return self.global_batch // micro_batch


def build_problem(
    model: ModelSpec,
    cluster: ClusterSpec,
    profile: Profile,
    *,
    cost_model: str = "native",
    global_batch: int,
    micro_batches: Sequence[int] = (),
    memory_limit: float | None = None,
    max_stages: int | None = None,
) -> Problem:
    """Check the inputs against each other and freeze them.

    Parameters
    ----------
    micro_batches: sizes to try; empty: all that the profile holds.
    memory_limit: bytes per device; None: all of the device's memory.

    Raises
    ------
    SpecError, ProfileError, UsageError: what cannot be planned, and why.
    """
    if cost_model not in COST_MODELS:
        raise UsageError(
            f"cost_model: expected one of {', '.join(COST_MODELS)}, found {cost_model!r}"
        )
    if global_batch < 1:
        raise SpecError(f"global batch size: must be at least 1, found {global_batch}")
    limit = float(cluster.device.memory if memory_limit is None else memory_limit)
    if not limit > 0:
        raise SpecError(f"memory limit: must be positive, found {limit:.0f} bytes")
    stages = cluster.device_count if max_stages is None else max_stages
    if stages < 1:
        raise UsageError(f"max_stages: must be at least 1, found {stages}")
    missing = [op for op in dict.fromkeys(model.operators) if op not in _profiled(profile)]
    if missing:
        raise ProfileError(
            f"{profile.source}: operator {missing[0]!r} of {model.name} has no row "
            f"({len(missing)} operators without any)"
        )
    costs = COST_MODELS[cost_model](model.operators, model.family, profile)
    notes = list(profile.notes)
    known = costs.micro_batches()
    wanted = tuple(dict.fromkeys(micro_batches)) or known
    if any(m < 1 for m in wanted):
        raise SpecError(f"micro-batch size: must be at least 1, found {min(wanted)}")
    unknown = [m for m in wanted if m not in known]
    if unknown:
        notes.append(
            f"micro-batch {', '.join(map(str, unknown))}: not in the profile "
            f"(it has {', '.join(map(str, known))}), left out"
        )
    profiled = [m for m in wanted if m in known]
    if not profiled:
        raise ProfileError(
            f"{profile.source}: no rows for micro-batch {', '.join(map(str, wanted))}, "
            f"expected one of {', '.join(map(str, known))}"
        )
    usable = tuple(sorted(m for m in profiled if global_batch % m == 0))
    if not usable:
        nearest = profiled[0] * max(1, round(global_batch / profiled[0]))
        raise SpecError(
            f"global batch size: {global_batch} is not divisible by micro-batch "
            f"{', '.join(map(str, profiled))}; {nearest} would be"
        )
    if len(usable) < len(profiled):
        left = [str(m) for m in profiled if m not in usable]
        notes.append(f"micro-batch {', '.join(left)}: does not divide {global_batch}, left out")
    return Problem(
        model=model,
        cluster=cluster,
        profile=profile,
        costs=costs,
        global_batch=global_batch,
        micro_batches=usable,
        memory_limit=limit,
        max_stages=min(stages, cluster.device_count, len(model.operators)),
        group_sizes=tuple(g for g in GROUP_SIZES if g <= cluster.devices_per_node),
        notes=tuple(notes),
    )


def _profiled(profile: Profile) -> set[str]:
    return {key.operator for key in profile.rows}
