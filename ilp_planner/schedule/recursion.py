"""Start and end of every operation: plain loops, compiled by numba for large pipelines.

Both go round the ranks and let each run until it has to wait for another one. Neither looks at more
than one rank and one message at a time, so they take as long as there are operations, and a little
more for ranks that are asked in vain. Unfinished ones have an `end` of -1.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Work(NamedTuple):
    """The operations to run: arrays when compiled, lists when not.

    starts: int64 [ranks + 1], the start of each rank's operations. needs: int64 [n], the operation
    that each one waits for, -1: none. delay: float64 [n], seconds until its input has come.
    duration: float64 [n], seconds. start, end: float64 [n], to be filled; `end` holds -1.
    """

    starts: Any
    needs: Any
    delay: Any
    duration: Any
    start: Any
    end: Any


class Messages(NamedTuple):
    """Further data for blocking sends.

    feeds: int64 [n], the operation of another rank that waits for each one, -1: none. remote: bool
    [n], its input comes from another rank. joined: bool [n], see `Orders`. sent, wanted: float64
    [n], to be filled, hold -1: since when the output may go, since when the input may come.
    finish: float64 [ranks], to be filled.
    """

    feeds: Any
    remote: Any
    joined: Any
    sent: Any
    wanted: Any
    finish: Any


def run_overlapped(work: Work) -> None:
    """Run operations while messages travel: a rank waits for missing inputs, for nothing else.

    Ranks that wait for each other are neighbours, so rounds go up and down the ranks.
    """
    starts, needs, delay, duration, start, end = work
    ranks = len(starts) - 1
    at = [starts[rank] for rank in range(ranks)]
    free = [0.0 for _ in range(ranks)]
    moved = True
    while moved:
        moved = False
        for turn in range(2 * ranks):
            rank = turn if turn < ranks else 2 * ranks - 1 - turn
            i, time, last = at[rank], free[rank], starts[rank + 1]
            while i < last:
                need = needs[i]
                if need >= 0:
                    if end[need] < 0:
                        break
                    time = max(time, end[need] + delay[i])
                start[i] = time
                time += duration[i]
                end[i] = time
                i += 1
            if i > at[rank]:
                moved = True
            at[rank], free[rank] = i, time


def run_blocking(work: Work, messages: Messages) -> None:
    """Run operations that alternate with messages; both ends wait for these.

    Between two operations (or joined ones) a rank sends its output and receives its next input.
    Each message travels as soon as both ends are there; a rank goes on when all of its own have
    come and gone.
    """
    starts, needs, delay, duration, start, end = work
    feeds, remote, joined, sent, wanted, finish = messages
    ranks = len(starts) - 1
    before = [starts[rank] for rank in range(ranks)]  # the operations that were run last
    at = [starts[rank] for rank in range(ranks)]
    free = [0.0 for _ in range(ranks)]
    moved = True
    while moved:
        moved = False
        for turn in range(2 * ranks):
            rank = turn if turn < ranks else 2 * ranks - 1 - turn
            last = starts[rank + 1]
            while finish[rank] < 0:
                first = at[rank]
                behind = first
                while behind < last:
                    behind += 1
                    if not joined[behind - 1]:
                        break
                time, waits = free[rank], False
                for i in range(before[rank], first):
                    if feeds[i] >= 0:
                        if sent[i] < 0:
                            sent[i], moved = free[rank], True
                        goal = feeds[i]
                        if wanted[goal] < 0:
                            waits = True
                        else:
                            time = max(time, max(sent[i], wanted[goal]) + delay[goal])
                for i in range(first, behind):
                    need = needs[i]
                    if need < 0:
                        continue
                    if not remote[i]:
                        # of this rank: it has run, or never will
                        waits = waits or end[need] < 0
                        continue
                    if wanted[i] < 0:
                        wanted[i], moved = free[rank], True
                    if sent[need] < 0:
                        waits = True
                    else:
                        time = max(time, max(sent[need], wanted[i]) + delay[i])
                if waits:
                    break
                moved = True
                if first == last:
                    finish[rank] = time
                for i in range(first, behind):
                    start[i] = time
                    time += duration[i]
                    end[i] = time
                before[rank], at[rank], free[rank] = first, behind, time
