"""The schedule of a job, run operation by operation."""

from dataclasses import replace
from typing import Any

import numpy as np

from ilp_planner.costs.training.iteration import timeline
from ilp_planner.schedule.engine import StageTimes
from ilp_planner.specs.pipeline_layout import split_layout
from tests.examples import for_each
from tests.training_jobs import job, llama

SENDS = np.full(7, 0.1)
TIMES = StageTimes(*(np.full(8, seconds) for seconds in (1.0, 2.0, 1.0, 1.0)), SENDS, SENDS)
FREE = TIMES._replace(send_forward=0 * SENDS, send_backward=0 * SENDS)


def interleaved(**changes: Any) -> Any:
    """Return a job of 16 micro-batches on 4 ranks with 2 virtual stages each."""
    base = job(llama(layers=8), micro_batch=1, global_batch=32, layout=split_layout([1] * 8))
    return replace(base, settings=replace(base.settings, **changes))


@for_each("turn", [4, 6, 8, 16])
def test_longer_turns_hold_more_and_wait_less_for_messages(turn: int) -> None:
    jobs = interleaved(), interleaved(turn=turn)
    usual, longer = (timeline(made, TIMES).seconds for made in jobs)
    held, more = (made.schedule.in_flight(3) for made in jobs)
    assert (longer < usual, held < more) == (turn > 4,) * 2
    usual, longer = (timeline(made, FREE).seconds for made in jobs)
    assert longer == usual


def test_waiting_for_messages_takes_longer() -> None:
    overlapped, waiting = interleaved(), interleaved(overlap_sends=False)
    assert timeline(overlapped, TIMES).seconds < timeline(waiting, TIMES).seconds
    assert timeline(overlapped, FREE).seconds <= timeline(waiting, FREE).seconds
