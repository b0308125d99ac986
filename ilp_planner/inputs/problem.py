"""The frozen instance: model, cluster, costs and limits. No solver in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ilp_planner.costs.base import Costs
from ilp_planner.inputs.constraints import ANY, Constraints
from ilp_planner.inputs.devices import usable_nodes
from ilp_planner.schedule.batches import Batches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.request import Request
    from ilp_planner.spaces.base import Space
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec

MOST_ASKED = 48  # letters of constraints that are listed; more are `the constraints`
AnyCosts = TypeVar("AnyCosts", bound=Costs, covariant=True)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Problem(Generic[AnyCosts]):
    """One planning problem.

    model: its name. space: the set of plans, and all that is particular to them.
    micro_batches: numbers of micro-batches per iteration (B) to try, ascending.
    memory_limits: device type -> bytes per device. max_stages: pipeline ranks at most.
    max_tp: tensor-parallel degree at most. constraints: on plans.
    profile_source: for the user.
    notes: omissions, one line each.
    spec: the model's dimensions; None if a profile alone defines the model.
    request: its origin; None if that has no name, as for objects made in Python.
    files: the inputs themselves, to build the problem of a part of the cluster.
    """

    model: str
    cluster: ClusterSpec
    space: Space[Any, Any]
    costs: AnyCosts
    global_batch: int
    micro_batches: tuple[int, ...]
    memory_limits: Mapping[str, float]
    max_stages: int
    max_tp: int
    constraints: Constraints = ANY
    profile_source: str = ""
    notes: tuple[str, ...] = ()
    spec: ModelSpec | None = None
    request: Request | None = None
    files: InputFiles | None = None

    def __repr__(self) -> str:
        return (
            f"<Problem {self.model} on {self.cluster.name}, {self.global_batch} samples, "
            f"space {self.space.name}>"
        )

    @property
    def micro_batch_sizes(self) -> tuple[int, ...]:
        """Samples of a micro-batch over all replicas, ascending."""
        return tuple(sorted(Batches(self.global_batch, b).size for b in self.micro_batches))

    @property
    def plan_noun(self) -> str:
        """One of its plans, as `Megatron plan in the search space with pp 1`."""
        asked = self.constraints.describe()
        if len(asked) > MOST_ASKED:
            asked = "the constraints"
        return f"{self.space.noun} in the search space{asked and f' with {asked}'}"

    @cached_property
    def node_numbers(self) -> list[int]:
        """Numbers of the nodes in the named cluster; plans may use a part of it."""
        if self.files is None or self.request is None or "cluster" not in self.request.files:
            return list(range(self.cluster.node_count))
        return usable_nodes(self.files.whole_cluster, self.request.constraints)

    @cached_property
    def device_numbers(self) -> list[int]:
        """Numbers that the devices have there."""
        if self.files is None or self.cluster.node_count == self.files.whole_cluster.node_count:
            return list(range(self.cluster.device_count))
        nodes = {*self.node_numbers}
        return [d for d, node in enumerate(self.files.whole_cluster.node_of) if node in nodes]

    @property
    def limits_of_types(self) -> dict[str, float]:
        """Bytes per device of each type as people call it (`Device.type`)."""
        types = self.cluster.device_types
        return {types[name].type: limit for name, limit in self.memory_limits.items()}

    @property
    def memory_limit(self) -> float:
        """Bytes that every device may use, if all are of one type; else the least."""
        return min(self.memory_limits.values())
