"""The plainness of training jobs: the order in which nearly equal plans are preferred.

`ORDER` has one row for each thing that makes a job less plain. Two jobs are compared row by row,
and the first row in which their numbers differ decides; less is plainer. Whether stages are unequal
comes last: a search knows the other rows before it cuts the layers into stages.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.schedule.formulas import DIVIDED
from ilp_planner.settings.table import row_of
from ilp_planner.settings.values import CP_COMM
from ilp_planner.specs.training import OPERATORS, ORDERS, Offload

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.spaces.training.runtime import Runtime
    from ilp_planner.specs.training import Recompute, Settings, TrainingJob


class Traits(NamedTuple):
    """The traits of a training job that decide how plain it is.

    settings: of the whole job; their recomputation, microbatch groups and schedule do not count.
    uneven: its stages have unequally many layers.
    """

    runtime: Runtime
    settings: Settings
    tp: int
    pp: int
    virtual: int
    recompute: Recompute
    turn: int
    schedule: str
    uneven: bool = False


class Row(NamedTuple):
    """One row of the order. name: for results. text: a sentence for the manual. grade: a number
    that is 0 for the plainest jobs."""

    name: str
    text: str
    grade: Callable[[Traits], int]


BLOCK = 2  # grade of what computes the first layers of each stage again


def recomputation(again: Recompute) -> int:
    """Return the grade of recomputation."""
    if again.method == "block":
        return BLOCK
    if again.granularity == "selective" and not {*again.modules} <= {"core_attn", OPERATORS}:
        return 3
    return int(again.granularity != "none")


def _sharding(t: Traits) -> int:
    optimizer = t.settings.optimizer
    unusual = optimizer.sharding not in t.runtime.usual_sharding
    return int(unusual) + (optimizer.instances > 1)


def _context(t: Traits) -> int:
    usual = row_of(CP_COMM).search_of(t.runtime.name).demandable[0]
    return (t.settings.cp > 1) * (1 + (CP_COMM.read(t.settings) != usual))


ORDER = (
    Row(
        "unmodelled settings",
        "Settings whose costs are not modelled in full: overlaps of tensor and of expert "
        "parallelism, CUDA graphs, the dispatcher flex, compiled layers; with torchtitan more than "
        "three virtual stages on a rank whose parameters are sharded.",
        lambda t: sum(1 for _ in t.runtime.unmodelled(t.settings, t.virtual)),
    ),
    Row(
        "virtual stages",
        "Virtual stages: none are plainest, and few are plainer than many.",
        lambda t: t.virtual - 1,
    ),
    Row(
        "schedule",
        "A schedule that divides backward passes, or microbatch groups larger than the number of "
        "pipeline ranks.",
        lambda t: (t.schedule in DIVIDED) + (t.virtual > 1 and t.turn > t.pp),
    ),
    Row(
        "offloading",
        "States of the optimizer or activations in the memory of the host.",
        lambda t: (t.settings.optimizer.offload > 0) + (t.settings.offload != Offload()),
    ),
    Row(
        "sharding",
        "Gradients or parameters sharded where the runtime's usual jobs shard less (Megatron-LM), "
        "and copies of what is sharded.",
        _sharding,
    ),
    Row(
        "degrees",
        "Degrees above 1, of tp, pp, cp and ep: one is plainer than two.",
        lambda t: sum(n > 1 for n in (t.tp, t.pp, t.settings.cp, t.settings.ep)),
    ),
    Row(
        "recomputation",
        "Recomputation: none is plainest; then attention's core, torchtitan's operators or whole "
        "layers; then the first layers of each stage; then by other modules.",
        lambda t: recomputation(t.recompute),
    ),
    Row(
        "context parallelism",
        "Context parallelism, above all by other messages than the runtime's first ones.",
        _context,
    ),
    Row(
        "order of ranks",
        f"Another order of ranks than {ORDERS[0]}, which all runtimes have.",
        lambda t: int(t.settings.order != ORDERS[0]),
    ),
    Row(
        "unequal stages",
        "Stages with unequally many layers.",
        lambda t: int(t.uneven),
    ),
)
AGAIN = [row.name for row in ORDER].index("recomputation")


def traits_of(runtime: Runtime, job: TrainingJob) -> Traits:
    """Return the traits of a job."""
    settings = job.settings
    return Traits(
        runtime=runtime,
        settings=settings,
        tp=job.tp,
        pp=job.pp,
        virtual=job.virtual,
        recompute=settings.recompute,
        turn=settings.turn,
        schedule=settings.schedule,
        uneven=len({stage.layers for stage in job.stages}) > 1,
    )


@lru_cache(maxsize=2**16)  # parts that differ in batches alone have the same traits
def grades(traits: Traits) -> tuple[int, ...]:
    """Return the numbers of a job in the order of `ORDER`."""
    return tuple(row.grade(traits) for row in ORDER)
