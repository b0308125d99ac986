"""What lies or is stepped in the host's memory: what it costs, and where it is for nothing."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.limits import RATE
from ilp_planner.costs.training.iteration import (
    HOST,
    Turn,
    Waits,
    iteration_terms,
    layer_waits,
    stages_of,
)
from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.ranks import RankCosts
from ilp_planner.job.parts import memory_parts
from ilp_planner.job.work import host_step
from ilp_planner.settings.rules import check_offload
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.training import (
    OFFLOADED,
    Kernels,
    Offload,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
)
from tests.examples import for_each
from tests.megatron_cases import small_cluster
from tests.training_jobs import gpt, jobs, settings
from tests.training_jobs import job as usual_job

GPUS = ("V100-16GB", "A100-80GB", "H100-80GB", "B200", "GB200", "RTX-4090")


def job(**optimizer: object) -> TrainingJob:
    made = OptimizerSettings(**{"sharding": "optimizer", **optimizer})
    return TrainingJob(
        model=gpt(), micro_batch=1, global_batch=4, dp=4, settings=settings(optimizer=made)
    )


def with_host(cluster: ClusterSpec, *, link: float, memory: float) -> ClusterSpec:
    """Return the cluster with other rates of the host."""
    types = {
        name: replace(device, host_link=link, host_memory=memory)
        for name, device in cluster.device_types.items()
    }
    return replace(cluster, device_types=types)


def ranks(of: TrainingJob, cluster: ClusterSpec | None = None) -> RankCosts:
    cluster = cluster or small_cluster()
    return RankCosts(of, Network(cluster, tuple(range(len(cluster.node_types)))))


def test_what_a_step_on_the_host_moves() -> None:
    """Twelve bytes of states and four of the gradient, as PyTorch's fused Adam reads and writes
    them; gradients go there in fp32, parameters come back in bf16."""
    assert host_step(job().settings) == (4, 28 + 6, 2)
    assert host_step(job(name="sgd", moments=4).settings) == (4, 20 + 6, 2)
    assert host_step(job(keeps_master=True).settings) == (4, 28, 4)
    plain = replace(job(master=0).settings, precision="fp32")
    assert host_step(plain) == (4, 28, 4)


@given(
    share=st.floats(0.01, 1),
    overlap=st.booleans(),
    rates=st.tuples(st.floats(1e9, 5e11), st.floats(1e9, 5e11)),
)
def test_what_is_stepped_on_the_host(
    share: float, overlap: bool, rates: tuple[float, float]
) -> None:
    """It is sent, stepped beside what the device steps, and returned."""
    cluster = with_host(small_cluster(), link=rates[0], memory=rates[1])
    device = cluster.device_types["a100"]
    some = ranks(job(offload=share, overlap_offload=overlap), cluster)
    held = some.counts[:, :2].sum(axis=1) / 4
    alone = ranks(job(), cluster).step(0)
    there, back = (share * held * size / device.to_host for size in (4, 2))
    stepped = np.maximum(share * held * 34 / device.on_host, (1 - share) * alone)
    parts = (there, stepped, back)
    expected = np.max(parts, axis=0) if overlap else np.sum(parts, axis=0)
    assert some.step(0) == pytest.approx(expected, rel=1e-9)


@given(share=st.floats(0, 1), overlap=st.booleans())
def test_a_host_of_endless_rates_costs_nothing(share: float, overlap: bool) -> None:
    cluster = with_host(small_cluster(), link=RATE, memory=RATE)
    step = ranks(job(offload=share, overlap_offload=overlap), cluster).step(0)
    assert (step <= ranks(job()).step(0) * (1 + 1e-6)).all()


@for_each("gpu", GPUS)
@for_each("overlap", [False, True])
def test_more_on_the_host_takes_longer(gpu: str, overlap: bool) -> None:
    """On every machine of the table that people train on."""
    cluster = gpu_cluster(parse_gpus(f"4x{gpu}"))
    seconds = [
        float(ranks(job(offload=share, overlap_offload=overlap), cluster).step(0).sum())
        for share in (0, 0.25, 0.5, 1)
    ]
    assert seconds == sorted(seconds)
    both = [
        float(ranks(job(offload=1, overlap_offload=how), cluster).step(0).sum())
        for how in (False, True)
    ]
    assert both[1] < both[0]


# ---- activations --------------------------------------------------------------------------------


def offloading(**offload: object) -> Settings:
    return settings(offload=Offload(**{"smallest": 0, **offload}))


def alone(**changes: object) -> TrainingJob:
    """Return a job of one stage without replicas."""
    return TrainingJob(**{"model": gpt(), "micro_batch": 1, "global_batch": 4, **changes})


def iteration(of: TrainingJob, cluster: ClusterSpec | None = None) -> float:
    return sum(iteration_terms(ranks(of, cluster), of).values())


seconds = st.floats(0.01, 10)


@given(count=st.integers(2, 12), n=st.integers(1, 11), there=seconds, back=seconds, sent=seconds)
def test_what_equal_layers_wait(count: int, n: int, there: float, back: float, sent: float) -> None:
    """With a layer or more between, all ways follow one another beside the passes of all layers
    but the first and the last; with none, every layer waits for the whole way."""
    n = min(n, count - 1)
    found = layer_waits(Offload(layers=n), [Turn(there, back, sent)] * count)
    for waited, own in zip(found, (there, back), strict=True):
        exact = n * sent if n == count - 1 else max(0.0, n * sent - (count - 2) * own)
        longest = max(0.0, sent - (count - n - 1) * own)
        assert waited == pytest.approx(max(exact, longest), abs=1e-9)


@given(
    turns=st.lists(st.builds(Turn, seconds, seconds, seconds), min_size=2, max_size=12),
    n=st.integers(1, 11),
)
def test_waits_are_bounded(turns: list[Turn], n: int) -> None:
    n = min(n, len(turns) - 1)
    found = layer_waits(Offload(layers=n), turns)
    ways = sum(turn.sent for turn in turns[:n])
    for waited, own in zip(found, zip(*turns, strict=True), strict=False):
        assert ways - sum(own) - 1e-9 <= waited <= ways + 1e-9
    free = [turn._replace(sent=0.0) for turn in turns]
    assert layer_waits(Offload(layers=n), free) == Waits(0.0, 0.0)


@pytest.mark.parametrize("modules", [("core_attn",), ("qkv_linear", "core_attn", "attn_proj")])
def test_modules_of_every_layer_are_sent_beside_its_passes(modules: tuple[str, ...]) -> None:
    made = alone(settings=offloading(modules=modules))
    cluster = with_host(small_cluster(1, 1), link=1e9, memory=1e9)
    of_all, plain = ranks(made, cluster), ranks(alone(settings=settings()), cluster)
    moved = memory_parts(made).parts["layer"].moved
    sent = moved / cluster.device_types["a100"].to_host
    layer = of_all.elements(0)[1]
    late = max(0, sent - layer.forward) + max(0, sent - layer.total + layer.forward)
    assert late > 0
    (stage,), (without,) = stages_of(of_all, made), stages_of(plain, plain.job)
    terms, less = stage.terms, without.terms
    assert terms[HOST] == pytest.approx(made.model.layers * late)
    assert sum(terms.values()) - sum(less.values()) == pytest.approx(terms[HOST])
    assert HOST not in less


def test_recomputation_hides_what_comes_back() -> None:
    """And what is computed again has not gone there."""
    cluster = with_host(small_cluster(1, 1), link=1e9, memory=1e9)

    def waited(**recompute: object) -> float:
        own = settings(offload=Offload(modules=("qkv_linear",), smallest=0), **recompute)
        made = alone(settings=own)
        return stages_of(ranks(made, cluster), made)[0].terms[HOST]

    some = waited(recompute=Recompute(granularity="selective", modules=("mlp",)))
    half = waited(recompute=Recompute(granularity="full", method="block", layers=4))
    assert some < waited()
    assert half == pytest.approx(waited() / 2)
    assert waited(recompute=Recompute(granularity="full", method="uniform", layers=1)) == 0


@given(jobs(), st.lists(st.sampled_from(OFFLOADED), unique=True), st.integers(0, 9))
def test_more_on_the_host_is_never_faster_and_free_with_endless_links(
    drawn: TrainingJob, modules: list[str], layers: int
) -> None:
    cluster = small_cluster(1, drawn.world)
    drawn = replace(drawn, devices_per_node=drawn.world)
    times = [iteration(drawn, with_host(cluster, link=1e8, memory=1e9))]
    steps = [Offload(modules=tuple(modules[: n + 1]), smallest=0) for n in range(len(modules))]
    if drawn.pp == 1 and drawn.settings.recompute.granularity == "none":
        steps = [Offload(layers=n) for n in range(1, drawn.model.layers)][:layers]
    for offload in steps:
        made = replace(drawn, settings=replace(drawn.settings, offload=offload))
        times.append(iteration(made, with_host(cluster, link=1e8, memory=1e9)))
        free = iteration(made, with_host(cluster, link=RATE, memory=RATE))
        assert free == pytest.approx(times[0], rel=1e-5)
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(times))


@for_each(
    ("changes", "have"),
    [
        ({"offload": Offload(layers=2)}, "activations of 2 layers with pp 4"),
        ({"offload": Offload(layers=8)}, "at most 7"),
        ({"offload": Offload(layers=2), "recompute": Recompute(granularity="selective")},
         "with recomputation"),
        ({"offload": Offload(modules=("attn_proj",))}, "core_attn with it"),
        ({"offload": Offload(modules=("core_attn",)), "kernels": Kernels(implementation="local")},
         "transformer_engine"),
    ],
)  # fmt: skip
def test_what_the_judge_refuses(changes: dict[str, object], have: str) -> None:
    made = usual_job(settings=settings(**changes))
    assert any(have in str(broken) for broken in check_offload(made))
    assert not list(check_offload(usual_job()))
