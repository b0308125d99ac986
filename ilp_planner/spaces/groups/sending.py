"""The cost of a group's messages to the next one, by the properties that the sender must know.

Links depend on the class of the next group: its device types, and whether it may share a node with
the sender. Classes that every sender pays the same for count as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.deadline import no_limit
from ilp_planner.costs.group_network import group_class
from ilp_planner.costs.groups import GroupClass, GroupOption, GroupTables, OptionTables
from ilp_planner.schedule.batches import Batches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ilp_planner.inputs.problem import Problem


@dataclass(frozen=True, kw_only=True, eq=False)
class Sending:
    """Seconds of sending: rows are (option, cut), option * (layers + 1) + cut; columns are classes
    of the next group.

    least_time, least_extra: float64 [rows], to the class with the fastest messages; `time` is of
    every micro-batch, `extra` of an iteration. more_time, more_extra: float64 [rows, columns], the
    addition of each class.
    column: of each class. own: int64 [options], each option's column. apart: int64 [columns], of
    the same types in a node of their own.
    """

    least_time: NDArray[np.float64]
    least_extra: NDArray[np.float64]
    more_time: NDArray[np.float64]
    more_extra: NDArray[np.float64]
    column: Mapping[GroupClass, int]
    own: NDArray[np.int64]
    apart: NDArray[np.int64]

    @property
    def columns(self) -> int:
        """Classes that are told apart."""
        return int(self.more_time.shape[1])

    def no_worse(self) -> NDArray[np.bool_]:
        """Return [columns, columns]: no sender pays more to the first than to the second."""
        better = np.ones((self.columns, self.columns), bool)
        for more in (self.more_time, self.more_extra):
            better &= (more[:, :, None] <= more[:, None, :]).all(axis=0)
        return better


def price_sending(
    problem: Problem[GroupTables],
    micro_batches: int,
    options: Sequence[GroupOption],
    tables: Sequence[OptionTables],
    check_time: Callable[[], None] = no_limit,
) -> Sending:
    """Compute the cost of sending from each option to all classes.

    Parameters
    ----------
    tables: of the options. check_time: raises if the time is up.
    """
    own = [group_class(option, problem.cluster) for option in options]
    classes = _classes(problem, own)
    cuts = len(problem.costs.chain) + 1
    seconds: list[list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = []  # of each option
    number = np.zeros((len(options), len(classes)), np.int64)  # among those of its option
    for o, (option, table) in enumerate(zip(options, tables, strict=True)):
        check_time()
        different: dict[tuple[bytes, bytes], int] = {}
        seconds.append([])
        for c, to in enumerate(classes):
            both = sent(problem, micro_batches, option, table, to)
            number[o, c] = different.setdefault(
                (both[0].tobytes(), both[1].tobytes()), len(different)
            )
            if len(different) > len(seconds[o]):
                seconds[o].append(both)
    rows = len(options) * cuts
    known: dict[bytes, int] = {}
    merged = [known.setdefault(column.tobytes(), len(known)) for column in number.T]
    first = np.array([merged.index(n) for n in range(len(known))], np.int64)
    both_of = np.zeros((2, len(options), cuts, first.size))
    for o, found in enumerate(seconds):
        for n, c in enumerate(first.tolist()):
            both_of[:, o, :, n] = found[number[o, c]]

    def split(seconds: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the least over the columns, by row, and the addition of each."""
        by_row = seconds.reshape(rows, first.size)
        least = by_row.min(axis=1, initial=np.inf)
        return least, by_row - least[:, None]

    least_time, more_time = split(both_of[0])
    least_extra, more_extra = split(both_of[1])
    column = dict(zip(classes, merged, strict=True))
    apart = np.arange(first.size)
    for to in classes:
        if to.over:  # groups that are spread have no node of their own
            continue
        alone = GroupClass(to.types, False)
        apart[column[to]] = column[alone if alone in column else to]
    return Sending(
        least_time=least_time,
        least_extra=least_extra,
        more_time=more_time,
        more_extra=more_extra,
        column=column,
        own=np.array([column[to] for to in own], np.int64),
        apart=apart,
    )


def sent(
    problem: Problem[GroupTables],
    micro_batches: int,
    option: GroupOption,
    table: OptionTables,
    to: GroupClass,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the seconds of sending from an option to a class, of every micro-batch and of an
    iteration, float64 [L + 1] by the cut, with the addition of a partial last micro-batch."""
    send, cluster = problem.costs.send, problem.cluster
    time, extra = send(option, table.samples, micro_batches, to, cluster)
    if table.last:
        rest = 1 - Batches(problem.global_batch, micro_batches).part
        extra = extra + rest * sum(send(option, table.last, micro_batches, to, cluster))
    return time, extra


def _classes(problem: Problem[GroupTables], own: Sequence[GroupClass]) -> list[GroupClass]:
    """Return the classes of groups, and the possible classes of each group."""
    # a group in nodes of its own is seen as one that shares no node with the sender
    parted = [
        to._replace(apart=(kind,))
        for to in dict.fromkeys(own)
        if len(to.types) > 1 or to.over
        for kind in to.types
    ]
    alone = (GroupClass((k,), False) for k in range(len(problem.cluster.type_names)))
    return list(dict.fromkeys([*own, *alone, *parted]))
