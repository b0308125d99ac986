"""Activations in the host's memory: what leaves, what stays, and that more of it never costs
memory."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.job.decoder import layer_module
from ilp_planner.job.memory import memory_parts, rank_memory, stage_memory
from ilp_planner.job.modules import Kept, Module
from ilp_planner.job.parts import SCOPES, moved_groups
from ilp_planner.specs.pipeline_layout import even_layout
from ilp_planner.specs.training import OFFLOADED, Kernels, Offload, Recompute, TrainingJob
from tests.examples import for_each
from tests.training_jobs import deepseek, job, jobs, llama, settings

GROUPED = Kernels(grouped_experts=True)


def offloading(drawn: TrainingJob, **offload: object) -> TrainingJob:
    """Return the job with such activations on the host, however small they are."""
    made = Offload(**{"smallest": 0, **offload})
    return replace(drawn, settings=replace(drawn.settings, offload=made))


def alone(**changes: object) -> TrainingJob:
    """Return a job of one stage."""
    return job(llama(hidden=1024, sequence=4096, **changes), pp=1, layout=None, micro_batch=4)


def peaks(drawn: TrainingJob) -> list[float]:
    return [rank_memory(drawn, rank).peak for rank in range(drawn.pp)]


def groups(drawn: TrainingJob, *, experts: bool = False, **offload: object) -> list[float]:
    changed = offloading(drawn, **offload)
    return list(moved_groups(changed, layer_module(changed, experts)))


def test_scopes_are_those_of_the_settings() -> None:
    assert tuple(SCOPES) == OFFLOADED


def test_what_modules_of_a_dense_layer_move() -> None:
    """Norms are merged into products, whose scope has their input; there are no experts."""
    drawn = alone()
    m, width = drawn.model, 2
    tokens = drawn.micro_batch * m.sequence
    (projected,) = groups(drawn, modules=("qkv_linear",))
    statistics = tokens / drawn.tp * 4
    assert projected == 2 * tokens * m.hidden * width / drawn.tp + statistics
    (attended,) = groups(drawn, modules=("core_attn",), smallest=2**20)
    assert attended == tokens * (m.heads + 2 * m.kv_heads) * m.head * width / drawn.tp
    (out,) = groups(drawn, modules=("attn_proj",))
    assert out == tokens * m.heads * m.head * width / drawn.tp
    others = ("attn_norm", "mlp_norm", "expert_fc1", "moe_act")
    assert groups(drawn, modules=others) == [0.0] * len(others)


def test_what_modules_of_a_layer_with_experts_move() -> None:
    drawn = job(deepseek(), settings=settings(kernels=GROUPED))
    layer = layer_module(drawn, kind=1)
    inner = next(child for child in layer.children if child.name == "mlp")
    routed = next(child for child in inner.children if child.name == "experts")
    first, activation, _ = routed.children
    assert groups(drawn, experts=True, modules=("expert_fc1", "moe_act")) == [
        first.activations,
        activation.activations,
    ]
    norms = groups(drawn, experts=True, modules=("attn_norm", "mlp_norm"))
    assert norms[0] == norms[1] > 0
    ungrouped = replace(drawn, settings=settings())
    assert groups(ungrouped, experts=True, modules=("expert_fc1", "moe_act")) == [0.0, 0.0]


def test_what_is_computed_again_is_not_moved() -> None:
    drawn = alone()
    again = Recompute(granularity="selective", modules=("core_attn",))
    forgetful = replace(drawn, settings=replace(drawn.settings, recompute=again))
    unfused = Kernels(attention="unfused")
    scores = replace(drawn, settings=replace(drawn.settings, kernels=unfused))
    both = replace(forgetful, settings=replace(forgetful.settings, kernels=unfused))
    (kept,) = groups(scores, modules=("core_attn",))
    (rest,) = groups(both, modules=("core_attn",))
    assert kept > 5 * rest > 0


def test_small_tensors_stay() -> None:
    drawn = alone()
    sizes = [groups(drawn, modules=("core_attn",), smallest=n)[0] for n in (0, 2**20, 2**40)]
    assert sizes[0] > sizes[1] > sizes[2] == 0


def test_first_layers_leave_room_for_the_others() -> None:
    """Of L layers as many are there at the peak as are not moved (Transformer Engine)."""
    drawn = alone()
    layers = drawn.model.layers
    moved = memory_parts(offloading(drawn, layers=1)).parts["layer"].moved
    activations = [
        rank_memory(offloading(drawn, layers=n), 0).terms["activations"] for n in range(layers)
    ]
    steps = -np.diff(activations)
    assert steps == pytest.approx([moved] * (layers - 1))


def test_modules_leave_one_layer_and_what_comes_next() -> None:
    drawn = job(llama(hidden=1024, sequence=4096), micro_batch=4, layout=even_layout(8, 4))
    changed = offloading(drawn, modules=("core_attn", "attn_proj"))
    part = memory_parts(changed).parts["layer"]
    before, after = (rank_memory(each, 0).terms["activations"] for each in (drawn, changed))
    held = 4 * 2  # micro-batches in flight on the first of four ranks, layers
    assert before - after == pytest.approx((held - 1) * part.moved - part.ahead)


@given(jobs(), st.lists(st.sampled_from(OFFLOADED), min_size=1, unique=True))
def test_more_modules_never_need_more_memory(drawn: TrainingJob, modules: list[str]) -> None:
    found = [peaks(drawn)]
    ordered = sorted(modules, key=OFFLOADED.index)
    found += [
        peaks(offloading(drawn, modules=tuple(ordered[: n + 1]))) for n in range(len(ordered))
    ]
    for more, less in pairwise(found):
        assert all(b <= a * (1 + 1e-12) for a, b in zip(more, less, strict=True))


@given(jobs().filter(lambda drawn: drawn.pp == 1 and drawn.model.layers > 1))
def test_more_layers_never_need_more_memory(drawn: TrainingJob) -> None:
    plain = replace(drawn, settings=replace(drawn.settings, recompute=Recompute()))
    found = [peaks(plain)[0]]
    found += [peaks(offloading(plain, layers=n))[0] for n in range(1, plain.model.layers)]
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(found))


@given(jobs(), st.sampled_from([("qkv_linear",), ("core_attn", "moe_act")]), st.integers(1, 4))
def test_stages_at_once_are_as_one_by_one(
    drawn: TrainingJob, modules: tuple[str, ...], flight: int
) -> None:
    for changed in (offloading(drawn, modules=modules), offloading(drawn, layers=2)):
        parts = memory_parts(changed)
        counts = np.arange(6)
        dense = counts if parts.parts["layer"].kept else 0 * counts
        at_once = stage_memory(
            parts, layers=dense, expert_layers=counts - dense, in_flight=flight
        ).peak
        single = [
            stage_memory(parts, layers=int(d), expert_layers=int(c - d), in_flight=flight).peak
            for c, d in zip(counts, dense, strict=True)
        ]
        assert at_once == pytest.approx(single)


def tensor(name: str, numbers: int) -> Kept:
    return Kept(name=name, shape=(numbers,), width=2)


def made_up() -> Module:
    """Return a layer whose tensors have 1, 2, 4 ... numbers in two bytes each, so that every sum of
    some of them is another number."""
    sizes = (2**k for k in range(20))

    def module(name: str, *kept: str, children: tuple[Module, ...] = (), repeat: int = 1) -> Module:
        own = tuple(tensor(one, next(sizes)) for one in kept)
        return Module(name=name, kept=own, children=children, repeat=repeat)

    norm = module("input_layernorm", "input", "output")  # 1, 2
    qkv = module("linear_qkv", "input", "queries, keys, values")  # 4, 8
    core = module("core_attention", "softmax")  # 16
    projection = module("linear_proj", "input")  # 32
    attention = Module(name="self_attention", children=(qkv, core, projection))
    after = module("pre_mlp_layernorm", "input", "output")  # 64, 128
    first = module("linear_fc1", "input")  # 256
    activation = module("activation_func", "input", repeat=3)  # 512
    experts = Module(name="experts", children=(first, activation), repeat=2)
    router = module("router", "scores")  # 1024
    mlp = Module(name="mlp", children=(router, experts))
    return Module(name="decoder.layers", children=(norm, attention, after, mlp))


@for_each(
    ("module", "numbers"),
    [
        ("attn_norm", 1),
        ("qkv_linear", 2 + 4),  # the norm's output and the product's input
        ("core_attn", 8 + 16),  # what it reads in place is its own
        ("attn_proj", 32),
        ("mlp_norm", 64),
        ("expert_fc1", 2 * 256),
        ("moe_act", 2 * 3 * 512),
    ],
)
def test_every_module_moves_what_lies_in_its_scope(module: str, numbers: int) -> None:
    case = offloading(job(), modules=(module,))
    assert moved_groups(case, made_up()) == (2 * numbers,)


def test_modules_move_in_the_order_of_the_forward_pass_and_layers_as_a_whole() -> None:
    """Of whole layers all tensors of 2^20 numbers, and none that are smaller."""
    case = offloading(job(), modules=("mlp_norm", "attn_norm"))
    assert moved_groups(case, made_up()) == (2, 128)
    assert moved_groups(offloading(job(), layers=1), made_up()) == (0,)
    sizes = (2**20 - 1, 2**20, 2**21)
    large = Module(name="layer", kept=tuple(tensor(f"{size}", size) for size in sizes))
    assert moved_groups(offloading(job(), layers=1), large) == (2 * 3 * 2**20,)
    smallest = offloading(job(), modules=("attn_norm",), smallest=2)
    assert moved_groups(smallest, made_up()) == (0,)
