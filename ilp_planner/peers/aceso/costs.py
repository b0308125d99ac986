"""Aceso's cost model (EuroSys 2024), to the digit, its defects included.

Iteration time leaves out gradient reduction and the optimiser step. Documented oddities that are
kept because a plan must get the same number from both: the bandwidth of a message is read one power
of two too low, and from the end of the table below half a MiB; a collective of an unprofiled size
takes 100 s; dropout keeps 1.5 times its activations and softmax none; with k stages after it, a
stage counts k + 1 micro-batches in flight, however few there are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ilp_planner.costs.chain import ChainCosts, missing_row
from ilp_planner.costs.profiles.table import MIB, OperatorRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.costs.operators import Option

UNPROFILED_COLLECTIVE = 100.0  # seconds


class AcesoCosts(ChainCosts):
    """Aceso's predictions."""

    name = "aceso"
    exact_sizes = True
    weight_floor = True
    missing = missing_row(1e6 * MIB)  # Aceso's sentinel for a file that is not there

    def micro_batch_sizes(self, groups: Sequence[int]) -> tuple[int, ...]:
        """Only the profiled ones: Aceso tries no other micro-batch, for any number of replicas."""
        return self.profile.micro_batch_sizes

    def activation(self, operator: str, row: OperatorRow) -> float:
        """Bytes kept: dropout also keeps its mask, in-place operators nothing."""
        if operator == "enc-attention-dropout":
            return row.activations * 1.5
        return 0.0 if self.is_shared(operator) else row.activations

    def is_shared(self, operator: str) -> bool:
        """Tell whether Aceso counts the operator's memory with its neighbour's."""
        return (
            operator in ("enc-attention-dropout", "enc-attention-softmax", "bn1")
            or "-bn3" in operator
            or ("-downsample" in operator and "0-0" not in operator)
        )

    def starts_checkpoint(self, operator: str) -> bool:
        """Tell whether a recompute segment ends before this operator."""
        return operator == "enc-1st-layernorm" or "-conv1" in operator

    def transfer(self, size: float, between_nodes: bool) -> float:
        """Seconds for a message, with the table index that Aceso uses."""
        mib = size / MIB
        if mib <= 0:
            return 0.0
        table = self.profile.inter_node if between_nodes else self.profile.intra_node
        index = int(math.log(mib, 2))  # truncates towards zero, as Aceso does
        if index >= 1:
            index -= 1
        bandwidth = table[-1] if index >= len(table) else table[max(index, -len(table))]
        return size / bandwidth

    def collective(self, primitive: str, devices: int, size: float) -> float:
        """Seconds from the table of exact sizes in whole MiB.

        Aceso looks sizes up by their printed form: -0.4 is "-0" and not "0".
        """
        table = self.profile.collectives.get((primitive, devices), {})
        mib = size / MIB
        for printed in (f"{mib:.0f}", f"{mib - 1:.0f}"):
            if not printed.startswith("-") and int(printed) in table:
                return table[int(printed)]
        return UNPROFILED_COLLECTIVE

    def iteration_work(self, row: OperatorRow, option: Option) -> float:
        """Nothing: Aceso leaves it out."""
        return 0.0

    def in_flight(self, behind: int, micro_batch_count: int) -> int:
        """Stages after this one, and itself: 1F1B with no end of micro-batches."""
        return behind + 1

    def reshards(self, have: str, want: str) -> bool:
        """T5 is never charged for a change of layout."""
        return self.family != "t5"


COSTS = AcesoCosts
