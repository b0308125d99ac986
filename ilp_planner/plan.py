"""The decision, and nothing else: a training system's input.

A stage decides operator by operator on equal devices in a row (`OperatorStage`), or layer by layer
on groups of devices that may differ (`GroupStage`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeGuard, TypeVar

from ilp_planner.schedule.batches import Batches
from ilp_planner.schedule.formulas import USUAL, rank_of_stage, schedule_of, v_shaped
from ilp_planner.specs.training import NOT_RECOMPUTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.schedule.formulas import Schedule
    from ilp_planner.specs.training import Recompute, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(ABC):
    """Units [start, stop) of the model's chain: operators, or whole layers."""

    start: int
    stop: int

    @property
    @abstractmethod
    def devices(self) -> tuple[int, ...]:
        """Numbers of the stage's devices in the cluster's order."""

    def is_with(self, other: Stage) -> bool:
        """Tell whether another stage has the same devices in the same order."""
        return self.devices == other.devices

    def parts(self, count: int) -> list[tuple[int, ...]]:
        """Return the devices in so many parts: its replicas, or some that are equal."""
        devices = self.devices  # made anew each time that it is asked for
        each = len(devices) // count
        return [devices[r * each : (r + 1) * each] for r in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How one operator runs on the devices of its stage.

    tp, dp: tensor- and data-parallel degrees; their product is the number of devices of the stage.
    split: dimension that tensor parallelism splits (0: the usual Megatron order, 1: swapped).
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
class OperatorStage(Stage):
    """Operators [start, stop) on devices [first_device, first_device + device_count)."""

    first_device: int
    device_count: int
    strategies: tuple[Strategy, ...]

    def __post_init__(self) -> None:
        if self.device_count < 1:
            raise ValueError(f"devices must be >= 1, found {self.device_count}")
        if len(self.strategies) != self.stop - self.start:
            raise ValueError(
                f"a stage of {self.stop - self.start} operators needs as many strategies, "
                f"found {len(self.strategies)}"
            )

    @property
    def devices(self) -> tuple[int, ...]:
        """Numbers of the stage's devices in the cluster's order."""
        return tuple(range(self.first_device, self.first_device + self.device_count))


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

    @property
    def tp(self) -> int:
        """Its devices: the tensor-parallel degree, times the plan's `cp`."""
        return len(self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStage(Stage):
    """Layers [start, stop) of the model on replicas with perhaps different numbers of devices.

    degrees: devices of replicas, each number once, ascending. recompute: of its layers, if the plan
    has no settings that say so for all stages. Embedding and output, the first and the last layer
    of the model, are never recomputed, and a `block` does not count them.
    """

    replicas: tuple[Replica, ...]
    recompute: Recompute = NOT_RECOMPUTED
    degrees: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.replicas:
            raise ValueError("a stage needs replicas")
        # What replicas have of devices, each number once, ascending: asked very often.
        degrees = tuple(sorted({len(replica.devices) for replica in self.replicas}))
        object.__setattr__(self, "degrees", degrees)

    @property
    def tp(self) -> int:
        """Devices of a replica: the tensor-parallel degree, times the plan's `cp`; the most if
        replicas differ."""
        return self.degrees[-1]

    @property
    def dp(self) -> int:
        """Data-parallel degree: the number of replicas."""
        return len(self.replicas)

    def is_with(self, other: Stage) -> bool:
        """Tell whether another stage has the same devices in the same order."""
        alike = isinstance(other, GroupStage) and self.replicas is other.replicas
        return alike or self.devices == other.devices

    def parts(self, count: int) -> list[tuple[int, ...]]:
        """Return the devices in so many parts: its replicas, or some that are equal."""
        if count == self.dp:
            return [replica.devices for replica in self.replicas]
        return super(GroupStage, self).parts(count)

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices of all replicas, tensor-parallel rank fastest."""
        return tuple(chain.from_iterable(replica.devices for replica in self.replicas))


Number = TypeVar("Number", int, float)
AnyStage = TypeVar("AnyStage", bound=Stage, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(Generic[AnyStage]):
    """A whole pipeline; devices in no stage stay idle.

    micro_batches: number of micro-batches per iteration, B, of global_batch / B samples each over
    all replicas of a stage (Megatron's per-replica micro-batch size is that / dp). If B is no
    divisor, the last one has fewer (`Batches`).
    settings: how every rank trains, if the plan is for a runtime with settings; the devices of a
    replica are then tp x cp.
    virtual: stages on the same devices: stage k is on the devices of stage k % ranks, or as the
    schedule has it (`rank_of`).
    """

    model: str
    global_batch: int
    micro_batches: int
    stages: tuple[AnyStage, ...]
    settings: Settings | None = None
    virtual: int = 1
    _used: tuple[int, ...] | None = field(init=False, default=None, compare=False)

    def __post_init__(self) -> None:
        if self.virtual < 1 or len(self.stages) % self.virtual:
            raise ValueError(
                f"{len(self.stages)} stages are not divisible by virtual {self.virtual}"
            )

    @property
    def micro_batch_size(self) -> int:
        """Samples that enter the pipeline together, over all replicas of a stage."""
        return self.batches.size

    @property
    def batches(self) -> Batches:
        """How the samples of an iteration are parted."""
        return Batches(self.global_batch, self.micro_batches)

    @property
    def ranks(self) -> int:
        """Pipeline ranks: groups of devices, one after the other."""
        return len(self.stages) // self.virtual

    def per_rank(self, values: Sequence[Number]) -> list[Number]:
        """Return the sum of a stage's values over each rank's stages."""
        schedule, ranks = self.schedule, self.ranks
        return [sum(values[k] for k in schedule.stages_of(r, ranks)) for r in range(ranks)]

    def rank_of(self, stage: int) -> int:
        """Return the pipeline rank of a stage."""
        down_and_up = self.settings is not None and v_shaped(self.settings.schedule)
        return rank_of_stage(stage, self.ranks, v_shaped=down_and_up)

    @property
    def cp(self) -> int:
        """Context-parallel degree of all stages."""
        return 1 if self.settings is None else self.settings.cp

    @property
    def schedule(self) -> Schedule:
        """The order in which the ranks run their stages."""
        ranks, virtual, settings = self.ranks, self.virtual, self.settings
        turn, name = (0, USUAL) if settings is None else (settings.turn, settings.schedule)
        return schedule_of(
            self.micro_batches,
            ranks=ranks,
            virtual=virtual,
            turn=turn,
            name=name,
            part=self.batches.part,
        )

    @property
    def used(self) -> tuple[int, ...]:
        """Numbers of the devices of all stages, rank by rank."""
        if self._used is None:  # they may be many, and are asked for several times
            used = tuple(chain.from_iterable(one.devices for one in self.stages[: self.ranks]))
            object.__setattr__(self, "_used", used)
            return used
        return self._used

    @property
    def devices(self) -> int:
        """How many devices all stages have together."""
        return len(self.used)

    def __repr__(self) -> str:
        return (
            f"<Plan {self.model}: {len(self.stages)} stages on {self.devices} devices, "
            f"micro-batch {self.micro_batch_size} of {self.global_batch}>"
        )


def on_devices(plan: GroupPlan, numbers: Sequence[int]) -> GroupPlan:
    """Return a plan on other devices: on `numbers[d]` instead of d."""

    def moved(replica: Replica) -> Replica:
        return replace(replica, devices=tuple(numbers[device] for device in replica.devices))

    stages = (replace(s, replicas=tuple(map(moved, s.replicas))) for s in plan.stages)
    return replace(plan, stages=tuple(stages))


@lru_cache(maxsize=8)
def first_devices(count: int) -> tuple[int, ...]:
    """Return the numbers of so many devices from 0 on: most plans use all of a cluster's in this
    order, and this check is quick."""
    return tuple(range(count))


AnyPlan = Plan[Stage]
OperatorPlan = Plan[OperatorStage]
GroupPlan = Plan[GroupStage]


def is_of_groups(plan: AnyPlan) -> TypeGuard[GroupPlan]:
    """Tell whether the stages are layers on groups of devices."""
    return all(isinstance(stage, GroupStage) for stage in plan.stages)


def is_of_operators(plan: AnyPlan) -> TypeGuard[OperatorPlan]:
    """Tell whether the stages are operators on devices in a row."""
    return all(isinstance(stage, OperatorStage) for stage in plan.stages)
