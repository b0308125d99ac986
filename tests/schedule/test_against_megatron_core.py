"""Orders against Megatron-Core's own schedules, run for one rank with stubs that record."""

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.schedule.schedules import schedule_orders

torch = pytest.importorskip("torch", reason="needs the extra 'runtimes': torch")
pytest.importorskip("megatron.core", reason="needs the extra 'runtimes': megatron-core")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from megatron.core.pipeline_parallel import schedules

COMMUNICATION = ("", -1, -1)


class Handles(dict[str, Any]):
    """What is waited for, of messages that travel meanwhile."""

    def __init__(self, *, recv_prev: bool = False, recv_next: bool = False) -> None:
        wanted = {"recv_prev": recv_prev, "recv_next": recv_next}
        super().__init__({key: self for key, value in wanted.items() if value})

    def wait(self) -> None:
        """Have it already."""


class Communicator:
    """In place of Megatron's: nothing is sent, but that it would be is recorded."""

    def __init__(self, rank: int, ranks: int, config: SimpleNamespace, record: list[Any]) -> None:
        self.pp_group = SimpleNamespace(rank=lambda: rank, size=lambda: ranks)
        self.config = config
        self.virtual_pipeline_model_parallel_size = config.virtual_pipeline_model_parallel_size
        self.record = record

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def communicate(*_: Any, overlap_p2p_comm: bool = False, **options: Any) -> Any:
            self.record.append(COMMUNICATION)
            wanted = {key: options[key] for key in ("recv_prev", "recv_next") if key in options}
            if overlap_p2p_comm:
                return "received", Handles(**wanted)
            both = name in ("send_forward_backward_recv_forward_backward",)
            return ("received", "received") if both else "received"

        return communicate


class Chunk(torch.nn.Module):  # type: ignore[misc]
    """In place of a virtual stage."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.model_type = schedules.ModelType.encoder_or_decoder


def recorded(
    rank: int, ranks: int, micro_batches: int, virtual: int = 1, **options: Any
) -> list[tuple[str, int, int]]:
    """Return what Megatron-Core runs on a rank: operations, and where it communicates."""
    record: list[tuple[str, int, int]] = []
    config = SimpleNamespace(
        virtual_pipeline_model_parallel_size=virtual if virtual > 1 else None,
        **{
            "overlap_p2p_comm": False, "batch_p2p_comm": False, "sequence_parallel": False,
            "overlap_p2p_comm_warmup_flush": False, "hidden_size": 1, "timers": None,
            "overlap_moe_expert_parallel_comm": False, "deallocate_pipeline_outputs": False,
            "finalize_model_grads_func": None, "no_sync_func": None, "grad_sync_func": None,
            "param_sync_func": None, "num_microbatches_with_partial_activation_checkpoints": None,
            "fine_grained_activation_offloading": False, "cuda_graph_impl": "none",
        } | options,
    )  # fmt: skip
    numbers = [0] * virtual

    def forward(*_: Any, current_microbatch: int, vp_stage: int = 0, **__: Any) -> Any:
        operation = ("F", vp_stage * ranks + rank, current_microbatch)
        assert numbers[vp_stage] == current_microbatch
        numbers[vp_stage] += 1
        record.append(operation)
        return (operation if virtual > 1 else [operation]), 0

    def backward(_: Any, output: Any, *__: Any) -> Any:
        _, stage, micro_batch = output if virtual > 1 else output[0]
        record.append(("B", stage, micro_batch))
        return "gradient"

    group = SimpleNamespace(rank=lambda: 0, size=lambda: 1)
    names = ("tp", "cp", "embd", "pos_embd", "pp", "dp_cp")
    chunks = [Chunk(config) for _ in range(virtual)]
    run = schedules.get_forward_backward_func(ranks, config.virtual_pipeline_model_parallel_size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "forward_step", forward)
        patch.setattr(schedules, "backward_step", backward)
        stub = SimpleNamespace(zeros=lambda *_, **__: 0, nn=torch.nn, int=torch.int)
        patch.setattr(schedules, "torch", stub)
        run(
            forward_step_func=None,
            data_iterator=[None] * virtual,
            model=chunks,
            num_microbatches=micro_batches,
            seq_length=1,
            micro_batch_size=1,
            p2p_communicator=Communicator(rank, ranks, config, record),
            pg_collection=SimpleNamespace(**dict.fromkeys(names, group)),
        )
    return record


def operations(record: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    return [entry for entry in record if entry != COMMUNICATION]


def joined(record: list[tuple[str, int, int]]) -> list[bool]:
    """Return which operations are followed by the next one without communication."""
    here = [i for i, entry in enumerate(record) if entry != COMMUNICATION]
    return [record[i + 1 : i + 2] not in ([], [COMMUNICATION]) for i in here]


@given(ranks=st.integers(2, 9), micro_batches=st.integers(1, 20))
def test_1f1b_is_megatrons(ranks: int, micro_batches: int) -> None:
    orders = schedule_orders("1f1b", ranks, micro_batches)
    for rank in range(ranks):
        record = recorded(rank, ranks, micro_batches)
        assert orders.of_rank(rank) == operations(record)
        assert not any(joined(record))
    assert not orders.joined.any()


@st.composite
def grouped(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Draw ranks, virtual stages, micro-batches and a group size that Megatron-Core takes."""
    ranks, virtual = draw(st.integers(2, 6)), draw(st.integers(2, 4))
    group = draw(st.integers(ranks, 2 * ranks + 3))
    rest = draw(st.sampled_from([0, *range(ranks, group)]))
    return ranks, virtual, draw(st.integers(1, 4)) * group + rest, group


@given(grouped(), st.sampled_from([(False, False), (True, False), (True, True)]))
def test_interleaved_is_megatrons(
    case: tuple[int, int, int, int], overlap: tuple[bool, bool]
) -> None:
    """The same order with messages that block, that overlap, and that overlap warm-up and flush."""
    ranks, virtual, micro_batches, group = case
    orders = schedule_orders("interleaved", ranks, micro_batches, virtual, group)
    for rank in range(ranks):
        record = recorded(
            rank, ranks, micro_batches, virtual,
            microbatch_group_size_per_vp_stage=group,
            overlap_p2p_comm=overlap[0], overlap_p2p_comm_warmup_flush=overlap[1],
        )  # fmt: skip
        assert orders.of_rank(rank) == operations(record)
        if not overlap[0]:
            here = slice(*orders.operations.starts[rank : rank + 2])
            assert orders.joined[here].tolist() == joined(record)
