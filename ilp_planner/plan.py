"""The decision, and nothing else: what a training system needs to know to run.

`Plan` decides operator by operator on equal devices; `GroupPlan` decides layer by layer on groups
of devices that may differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.schedule import OneForwardOneBackward, schedule_of

if TYPE_CHECKING:
    from ilp_planner.schedule import Schedule
    from ilp_planner.specs.training import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How one operator runs on the devices of its stage.

    tp, dp: tensor- and data-parallel degrees; their product is the number of devices of the stage.
    split: which dimension tensor parallelism splits (0: the usual Megatron order, 1: swapped).
    recompute: forget the activations after the forward pass and compute them again.
    """

    tp: int = 1
    dp: int = 1
    split: int = 0
    recompute: bool = False

    def __post_init__(self) -> None:
        if self.tp < 1 or self.dp < 1:
            raise ValueError(f"tp and dp must be >= 1, found tp={self.tp}, dp={self.dp}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Operators [start, stop) of the model's chain on devices [first_device, first_device +
    devices)."""

    start: int
    stop: int
    first_device: int
    devices: int
    strategies: tuple[Strategy, ...]

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ValueError(f"devices must be >= 1, found {self.devices}")
        if len(self.strategies) != self.stop - self.start:
            raise ValueError(
                f"a stage of {self.stop - self.start} operators needs as many strategies, "
                f"found {len(self.strategies)}"
            )


class Surroundings(NamedTuple):
    """What a stage's cost depends on besides itself.

    micro_batch: samples; micro_batch_count: B. behind: stages after it. enters_node, leaves_node:
    whether what it receives, and sends, comes from or goes to another node.
    """

    micro_batch: int
    micro_batch_count: int
    behind: int = 0
    enters_node: bool = False
    leaves_node: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan:
    """A whole pipeline.

    micro_batch: samples that enter the pipeline together, over all replicas of a stage
    (Megatron's per-replica micro-batch size is micro_batch / dp).
    """

    model: str
    global_batch: int
    micro_batch: int
    stages: tuple[Stage, ...]

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches per iteration, B."""
        return self.global_batch // self.micro_batch

    @property
    def schedule(self) -> Schedule:
        """In which order the stages run."""
        return OneForwardOneBackward(self.micro_batches)

    @property
    def devices(self) -> int:
        """Devices of all stages together."""
        return sum(stage.devices for stage in self.stages)

    def __repr__(self) -> str:
        return (
            f"<Plan {self.model}: {len(self.stages)} stages on {self.devices} devices, "
            f"micro-batch {self.micro_batch} of {self.global_batch}>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One data-parallel replica of a stage.

    devices: numbers in the cluster's order, by tensor-parallel rank. samples: of every micro-batch.
    """

    devices: tuple[int, ...]
    samples: int

    def __post_init__(self) -> None:
        if not self.devices or len(set(self.devices)) < len(self.devices):
            raise ValueError(f"a replica needs distinct devices, found {self.devices}")
        if self.samples < 0:
            raise ValueError(f"samples must be >= 0, found {self.samples}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStage:
    """Layers [start, stop) of the model on replicas with equally many devices each."""

    start: int
    stop: int
    replicas: tuple[Replica, ...]

    def __post_init__(self) -> None:
        if len({len(replica.devices) for replica in self.replicas}) != 1:
            raise ValueError("a stage needs replicas with equally many devices")

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""
        return len(self.replicas[0].devices)

    @property
    def dp(self) -> int:
        """Data-parallel degree: the number of replicas."""
        return len(self.replicas)

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices of all replicas, tensor-parallel rank fastest."""
        return tuple(d for replica in self.replicas for d in replica.devices)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GroupPlan:
    """A whole pipeline of layers on groups of devices; devices in no stage stay idle.

    micro_batches: number of micro-batches per iteration, B, of global_batch / B samples each.
    settings: how every rank trains, where the plan is for a runtime that has such settings; the
    devices of a replica are then tp x cp.
    virtual: stages on the same devices (interleaved 1F1B): stage k is on those of stage k % ranks.
    """

    model: str
    global_batch: int
    micro_batches: int
    stages: tuple[GroupStage, ...]
    settings: Settings | None = None
    virtual: int = 1

    def __post_init__(self) -> None:
        if self.virtual < 1 or len(self.stages) % self.virtual:
            raise ValueError(
                f"{len(self.stages)} stages are not divisible by virtual {self.virtual}"
            )

    @property
    def micro_batch(self) -> int:
        """Samples that enter the pipeline together, over all replicas of a stage."""
        return self.global_batch // self.micro_batches

    @property
    def ranks(self) -> int:
        """Pipeline ranks: groups of devices, one after the other."""
        return len(self.stages) // self.virtual

    @property
    def schedule(self) -> Schedule:
        """In which order the ranks run their stages."""
        return schedule_of(self.micro_batches, ranks=self.ranks, virtual=self.virtual)

    @property
    def devices(self) -> int:
        """Devices of all stages together."""
        return sum(len(stage.devices) for stage in self.stages[: self.ranks])

    def __repr__(self) -> str:
        return (
            f"<GroupPlan {self.model}: {len(self.stages)} stages on {self.devices} devices, "
            f"micro-batch {self.micro_batch} of {self.global_batch}>"
        )
