"""Predictions of `ilp_planner.job` beside what ranks measured."""

from collections import Counter

from ilp_planner.job.communication import stage_traffic
from ilp_planner.job.memory import rank_memory
from ilp_planner.specs.training import TrainingJob
from tests.rank_groups import group_of, pp_rank_of
from tests.runtimes.processes import Measured, Messages

STATES = ("parameters", "gradients", "optimizer")


def predicted(job: TrainingJob, rank: int) -> Messages:
    """Return how often a rank is said to send what to whom in an iteration."""
    messages: Messages = Counter()
    for row in stage_traffic(job, pp_rank_of(job, rank)):
        if not row.received:
            ranks = tuple(group_of(job, row.group, rank, row.part).ranks)
            messages[row.collective, ranks, int(row.size)] += row.per_iteration
    return messages


def check_states(job: TrainingJob, found: list[Measured], names: tuple[str, ...] = STATES) -> None:
    """Every rank holds the predicted bytes of each kind."""
    assert len(found) == job.world
    for rank, held in enumerate(found):
        terms = rank_memory(job, pp_rank_of(job, rank)).terms
        for name in names:
            assert getattr(held, name) == terms[name], (name, rank)


def check_messages(held: Measured, wanted: Messages) -> None:
    """A rank sends these messages and, besides, a number for each tensor at most.

    `ilp_planner.job` leaves out messages of a few bytes, such as the norm of the gradients.
    """
    sent = held.messages
    assert not wanted - sent
    assert all(size <= few(held) for _, _, size in sent - wanted), sent - wanted


def few(held: Measured) -> int:
    """Return the bytes of a number for each tensor, at least one of 8 bytes."""
    return max(8, 4 * len(held.shapes))
