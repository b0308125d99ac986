"""Random pipelines, and a slow simulator that shares no line with the engine."""

import heapq
from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ilp_planner.schedule.engine import StageTimes
from ilp_planner.schedule.orders import Orders
from ilp_planner.schedule.schedules import SCHEDULES, schedule_orders

SECONDS = st.integers(0, 40).map(lambda quarters: quarters / 4)  # sums of them are exact


def equal_times(stages: int, *, forward: float = 1, input: float = 1, weight: float = 1) -> Any:
    """Return the times of equal stages whose messages take no time."""
    rows = (np.full(stages, float(x)) for x in (forward, input + weight, input, weight))
    return StageTimes(*rows, np.zeros(stages - 1), np.zeros(stages - 1))


@st.composite
def pipelines(draw: st.DrawFn, *names: str) -> tuple[Orders, StageTimes]:
    """Draw the orders of a schedule, and times."""
    name = draw(st.sampled_from(names or tuple(SCHEDULES)))
    ranks, row = draw(st.integers(1, 5)), SCHEDULES[name]
    virtual = row.virtual or draw(st.integers(1, 3))
    least = max(1, row.per_stage * ranks * virtual)
    micro_batches = draw(st.integers(least, least + 9))
    whole = range(ranks, micro_batches + 1) if row.virtual is None else ()
    fits = [g for g in whole if micro_batches % g == 0 or micro_batches % g >= ranks]
    group = draw(st.sampled_from(fits)) if fits else None
    orders = schedule_orders(name, ranks, micro_batches, virtual, group)
    return orders, draw(stage_times(ranks * virtual))


@st.composite
def stage_times(draw: st.DrawFn, stages: int) -> StageTimes:
    """Draw times that whole backward passes share with their parts."""

    def row(count: int) -> Any:
        return np.array(draw(st.lists(SECONDS, min_size=count, max_size=count)), np.float64)

    forward, input_gradient, weight = (row(stages) for _ in range(3))
    back = input_gradient + weight
    return StageTimes(forward, back, input_gradient, weight, row(stages - 1), row(stages - 1))


class SlowSimulator:
    """An iteration as a queue of events, each of which asks every rank whether it can go on.

    ends: when each (kind, stage, micro-batch) has ended. seconds: when the last event was.
    """

    def __init__(self, orders: Orders, times: StageTimes, *, blocking: bool) -> None:
        self.times, self.blocking = times, blocking
        self.rank_of, self.stages = orders.rank_of.tolist(), orders.shape.stages
        ranks = range(orders.shape.ranks)
        self.blocks = {rank: self.blocks_of(orders, rank) for rank in ranks}
        self.next = dict.fromkeys(ranks, 0)
        self.busy = dict.fromkeys(ranks, False)
        self.ends: dict[Any, float] = {}
        self.arrived: set[Any] = set()
        self.parties: dict[Any, set[int]] = defaultdict(set)
        self.exchanging: dict[int, set[Any] | None] = dict.fromkeys(ranks)
        self.queue: list[Any] = []
        self.seconds, self.number = 0.0, 0
        self.run()

    def blocks_of(self, orders: Orders, rank: int) -> list[Any]:
        """Return lists of operations between which a rank communicates."""
        first = orders.operations.starts[rank]
        blocks: list[Any] = [[]]
        for i, operation in enumerate(orders.of_rank(rank)):
            blocks[-1].append(operation)
            if not (self.blocking and orders.joined[first + i]):
                blocks.append([])
        return blocks[:-1]

    def message(self, source: int, goal: int, micro_batch: int) -> Any:
        """Return a message between stages, None where there is none."""
        inside = min(source, goal) >= 0 and max(source, goal) < self.stages
        return (source, goal, micro_batch) if inside else None

    def made(self, operation: Any) -> Any:
        kind, stage, micro_batch = operation
        goal = {"F": stage + 1, "B": stage - 1, "I": stage - 1, "W": -1}[kind]
        return self.message(stage, goal, micro_batch)

    def needed(self, operation: Any) -> Any:
        kind, stage, micro_batch = operation
        source = {"F": stage - 1, "B": stage + 1, "I": stage + 1, "W": -1}[kind]
        return self.message(source, stage, micro_batch)

    def travels(self, message: Any) -> bool:
        return message is not None and self.rank_of[message[0]] != self.rank_of[message[1]]

    def journey(self, message: Any) -> float:
        source, goal, _ = message
        row = self.times.send_forward if source < goal else self.times.send_backward
        return float(row[min(source, goal)])

    def later(self, seconds: float, what: str, subject: Any) -> None:
        self.number += 1
        heapq.heappush(self.queue, (self.seconds + seconds, self.number, what, subject))

    def run(self) -> None:
        self.go_on()
        while self.queue:
            self.seconds, _, what, subject = heapq.heappop(self.queue)
            getattr(self, what)(subject)
            self.go_on()

    def go_on(self) -> None:
        for rank, blocks in self.blocks.items():
            number = self.next[rank]
            if self.busy[rank]:
                continue
            if self.blocking and not self.exchanged(rank, number):
                continue
            if number == len(blocks):
                continue
            wanted = [self.needed(op) for op in blocks[number]]
            if all(message is None or message in self.arrived for message in wanted):
                self.busy[rank], self.exchanging[rank] = True, None
                self.compute((rank, 0))

    def exchanged(self, rank: int, number: int) -> bool:
        """Offer and ask for messages, and return whether all are through."""
        blocks = self.blocks[rank]
        waits = self.exchanging[rank]
        if waits is None:
            out = map(self.made, blocks[number - 1] if number else ())
            come = map(self.needed, blocks[number] if number < len(blocks) else ())
            waits = {message for message in (*out, *come) if self.travels(message)}
            self.exchanging[rank] = waits
            for message in waits:
                self.parties[message].add(rank)
                if len(self.parties[message]) == 2:
                    self.later(self.journey(message), "arrive", message)
        return not waits - self.arrived

    def compute(self, place: Any) -> None:
        """Begin an operation of the rank's block, or end the block."""
        rank, index = place
        block = self.blocks[rank][self.next[rank]]
        if index:
            self.ended(block[index - 1])
        if index == len(block):
            self.busy[rank] = False
            self.next[rank] += 1
            return
        kind, stage, _ = block[index]
        row = self.times["FBIW".index(kind)]
        self.later(float(row[stage]), "compute", (rank, index + 1))

    def ended(self, operation: Any) -> None:
        self.ends[operation] = self.seconds
        message = self.made(operation)
        if message is not None and not self.travels(message):
            self.arrived.add(message)
        elif message is not None and not self.blocking:
            self.later(self.journey(message), "arrive", message)

    def arrive(self, message: Any) -> None:
        self.arrived.add(message)
