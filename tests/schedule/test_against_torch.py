"""Orders against those that torch.distributed.pipelining runs."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.schedule.schedules import schedule_orders

pytest.importorskip("torch", reason="needs the extra 'runtimes': torch")
theirs = pytest.importorskip("torch.distributed.pipelining.schedules")


class Stage(SimpleNamespace):
    """In place of a pipeline's stage: it computes and sends nothing, and records what it would."""

    def __init__(self, rank: int, ranks: int, virtual: int) -> None:
        super().__init__(
            stage_index=rank, group_rank=rank, group_size=ranks, num_stages=ranks * virtual,
            is_last=False, submod=None, record=[],
        )  # fmt: skip

    def forward_one_chunk(self, micro_batch: int, *_: Any, **__: Any) -> None:
        self.record.append(("F", self.stage_index, micro_batch))

    def backward_one_chunk(self, micro_batch: int, **_: Any) -> None:
        self.record.append(("B", self.stage_index, micro_batch))

    def _nothing(self, *_: Any) -> list[Any]:
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = _nothing
    perform_reduce_grad = _nothing


@pytest.mark.parametrize(("name", "schedule"), [("gpipe", "GPipe"), ("1f1b", "1F1B")])
@given(data=st.data(), ranks=st.integers(1, 8))
def test_one_stage_per_rank(name: str, schedule: str, data: st.DataObject, ranks: int) -> None:
    """What they run, not what they would draw: the picture of 1F1B counts from 1 on a last rank."""
    micro_batches = data.draw(st.integers(ranks, 20))
    orders = schedule_orders(name, ranks, micro_batches)
    for rank in range(ranks):
        stage = Stage(rank, ranks, 1)
        made = theirs.get_schedule_class(schedule)(stage, micro_batches)
        made._initialize_stage = lambda *_: None
        empty: list[Any] = [() for _ in range(micro_batches)]
        made._step_microbatches(empty, [{} for _ in empty])
        assert orders.of_rank(rank) == stage.record


def generated(schedule: str, ranks: int, micro_batches: int, virtual: int) -> list[list[Any]]:
    """Return their order of operations of every rank."""
    stages = [Stage(0, ranks, virtual) for _ in range(virtual)]
    made = theirs.get_schedule_class(schedule)(stages, micro_batches)
    found: dict[int, list[Any]] = defaultdict(list)
    for rank, actions in made.pipeline_order.items():
        for action in filter(None, actions):
            for part in action.sub_actions or [action]:
                found[rank].append(
                    (part.computation_type.value, part.stage_index, part.microbatch_index)
                )
    return [found[rank] for rank in range(ranks)]


def assert_same(
    name: str, schedule: str, ranks: int, micro_batches: int, virtual: int, group: int | None = None
) -> None:
    orders = schedule_orders(name, ranks, micro_batches, virtual, group)
    ours = [orders.of_rank(rank) for rank in range(ranks)]
    assert ours == generated(schedule, ranks, micro_batches, virtual)


@pytest.mark.parametrize(
    ("name", "schedule"),
    [("interleaved", "Interleaved1F1B"), ("interleaved-zb", "InterleavedZeroBubble")],
)
@given(ranks=st.integers(2, 6), virtual=st.integers(1, 4), rounds=st.integers(1, 4), data=st.data())
def test_looped_stages(
    name: str, schedule: str, ranks: int, virtual: int, rounds: int, data: st.DataObject
) -> None:
    """Their groups share the micro-batches evenly."""
    group = data.draw(st.integers(1 if rounds == 1 else ranks, ranks + (ranks - 1) // rounds))
    assert_same(name, schedule, ranks, rounds * group, virtual, group)


@given(ranks=st.integers(1, 6), micro_batches=st.integers(1, 20))
def test_zero_bubble_v(ranks: int, micro_batches: int) -> None:
    assert_same("zb-v", "ZBVZeroBubble", ranks, micro_batches, 2)


@given(ranks=st.integers(1, 6), more=st.integers(0, 12))
def test_dual_pipe_v(ranks: int, more: int) -> None:
    assert_same("dualpipe-v", "DualPipeV", ranks, 2 * ranks + more, 2)
