"""The protocol between cost models of operators and everything that optimises a plan of them, and
the layouts of their tensors.

A stage of operators i .. j-1 on g devices, with k stages after it, takes

    time   = enter(i) + sum(compute) + sum(recompute of flagged) + sum(reshard) + leave(j-1)
    memory = state_factor * W + in_flight(k) * live + peak + reserved
    live   = input(i) + sum(activations) - sum(saved by pairs of flagged neighbours)
    peak   = the largest run of flagged pairs between checkpoints
    reserved = max(max forward_reserved + max backward_reserved, weight_floor * W), last operator
    excluded

with W the bytes of weights on a device. A cost model defines each term.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ilp_planner.costs.base import Costs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


# ---- options and tables --------------------------------------------------------------------------


class Option(NamedTuple):
    """One way to spread an operator over the devices of its stage."""

    tp: int
    dp: int
    split: int


class Surroundings(NamedTuple):
    """The surroundings of a stage that its cost depends on.

    micro_batch: samples; micro_batches: B. behind: stages after it. enters_node, leaves_node:
    whether its input and output cross nodes.
    """

    micro_batch: int
    micro_batches: int
    behind: int = 0
    enters_node: bool = False
    leaves_node: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class StageTables:
    """The optimiser's tables for one micro-batch size and one device-group size.

    n operators of the chain fall into U kinds with identical rows; O options per operator; P kinds
    of neighbouring pairs; T distinct tensor degrees. Seconds and bytes throughout; an option that
    is not profiled for a kind has allowed False and zero elsewhere.
    """

    devices: int
    micro_batch: int
    options: tuple[Option, ...]
    degree: NDArray[np.int64]  # [O] index of the option's tp among the distinct ones
    kind: NDArray[np.int64]  # [n]
    pair: NDArray[np.int64]  # [n] kind of the pair (i-1, i); 0 for i = 0
    allowed: NDArray[np.bool_]  # [U, O]
    compute: NDArray[np.float64]  # [U, O] forward + backward (+ work shared by micro-batches / B)
    recompute: NDArray[np.float64]  # [U, O]
    activations: NDArray[np.float64]  # [U, O]
    weights: NDArray[np.float64]  # [U, O]
    input: NDArray[np.float64]  # [U, O] kept per micro-batch in flight by a stage beginning here
    forward_reserved: NDArray[np.float64]  # [U, O]
    backward_reserved: NDArray[np.float64]  # [U, O]
    enter: NDArray[np.float64]  # [2, U, O] receiving inside a node / from another one
    leave: NDArray[np.float64]  # [2, U, O, T] sending, by the degree of the stage's first operator
    reshard: NDArray[np.float64]  # [P, O, O] between neighbours' layouts; inf if impossible
    saves: NDArray[np.bool_]  # [n] flagged i and i+1: the output of i is dropped
    closes: NDArray[np.bool_]  # [n] flagged i and i+1: the recompute run ends after i
    shared: NDArray[np.bool_]  # [n] i keeps nothing; a run open here at a stage's end is dropped
    state_factor: float
    weight_floor: bool


class OperatorTables(Costs, Protocol):
    """Prices stages of operators of one model on one cluster with one profile."""

    def micro_batch_sizes(self, groups: Sequence[int]) -> tuple[int, ...]:
        """Samples of a micro-batch over all replicas, ascending, that stages on these numbers of
        devices may have."""

    def least_compute(
        self, micro_batch: int, devices: int, micro_batches: int
    ) -> NDArray[np.float64]:
        """Return the seconds [n] that each operator takes at least on so many devices, without its
        messages; inf for one that is not profiled."""

    def tables(self, micro_batch: int, devices: int, micro_batches: int) -> StageTables | None:
        """Return the optimiser's tables, or None when no option is profiled."""

    def in_flight(self, behind: int, micro_batches: int) -> int:
        """Micro-batches in flight on a stage with `behind` stages after it, at its peak."""


# ---- layouts of tensors --------------------------------------------------------------------------
# On the devices of a stage, and collectives that change them between two operators.
# Source: Aceso's flexible parallelism (EuroSys 2024 artifact); the operators are Megatron's. A
# layout is (replicas, (d0, d1, d2)): how often the tensor is repeated, and into how many parts
# each dimension is cut.


COLUMN_FIRST = {"enc-attention-qkv", "enc-MLP-GEMM-1"}
ROW_FIRST = {"enc-attention-dense", "enc-MLP-GEMM-2"}
TOKEN = {
    "enc-1st-layernorm",
    "enc-2nd-layernorm",
    "enc-post-attention-dropout",
    "enc-post-MLP-dropout",
}
HEAD = {"enc-attention-softmax", "enc-attention-dropout"}


class Layout(NamedTuple):
    """replicas: copies of the tensor; parts: cuts per dimension."""

    replicas: int
    parts: tuple[int, int, int]


class Change(NamedTuple):
    """Collectives that turn one layout into another, forward and backward, over so many devices."""

    forward: str
    backward: str
    devices: int


def layout(operator: str, option: Option, *, of_input: bool) -> Layout | None:
    """Return the layout an operator wants of its input or gives its output; None: it does not
    care."""
    tp, dp, split = option
    token = Layout(tp, (1, dp, 1))
    column = Layout(1, (1, dp, tp))
    head = Layout(1, (dp, tp, 1))
    batch = Layout(tp, (dp, 1, 1))
    if operator == "encoder-embedding":
        return None if of_input else token
    if operator == "gpt-post-process":
        return batch if of_input else None
    if operator == "final-layernorm":
        return token if of_input else batch
    if operator in TOKEN:
        return token
    if operator in COLUMN_FIRST:
        return token if of_input == (split == 0) else column
    if operator in ROW_FIRST:
        return column if of_input == (split == 0) else token
    if operator == "enc-attention-score":
        return column if of_input else head
    if operator in HEAD:
        return head
    if operator == "enc-attention-context":
        return head if of_input else column
    if operator == "enc-MLP-gelu":
        return column
    return batch


def change(have: Layout | None, want: Layout | None) -> Change | None:
    """Return the collectives from one layout to another, None when nothing needs to move.

    Raises
    ------
    ValueError: Aceso knows no way between these two.
    """
    if have is None or want is None or have == want:
        return None
    if have.replicas > want.replicas:
        for a, b in zip(have.parts, want.parts, strict=True):
            if a < b:
                return Change("split", "all_gather", have.replicas // want.replicas)
        raise ValueError(f"no way from {have} to {want}")
    for i, (a, b) in enumerate(zip(have.parts, want.parts, strict=True)):
        if a > b:
            if have.replicas < want.replicas:
                return Change("all_gather", "split", a // b)
            for j, (c, d) in enumerate(zip(have.parts, want.parts, strict=True)):
                if j != i and c < d:
                    return Change("all_to_all", "all_to_all", a // b)
    raise ValueError(f"no way from {have} to {want}")
