"""Muon's matrices, states and work: PyTorch's own, and by hand."""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from ilp_planner.costs.profiles.work import kernel_time, rates_of
from ilp_planner.costs.training.iteration import SYNC, iteration_terms
from ilp_planner.costs.training.muon import (
    GATHERED,
    OF_ITERATION,
    OF_SHARD,
    QKV,
    Build,
    Matrix,
    matrices,
    muon_steps,
    step_of,
)
from ilp_planner.job.decoder import (
    embedding_module,
    final_norm_module,
    layer_module,
    output_module,
    prediction_module,
)
from ilp_planner.job.memory import memory_parts
from ilp_planner.job.states import trained_weights
from ilp_planner.job.uneven import slower
from ilp_planner.job.work import step_traffic
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.training import MUON, MUON_MODES, OptimizerSettings, Settings, TrainingJob
from tests.examples import examples, for_each
from tests.runtime_cases import runtime_problem
from tests.training_jobs import decoder_named, deepseek, jobs, llama

BUILDS = (embedding_module, output_module)


def of_muon(sharding: str = "none", **optimizer: Any) -> OptimizerSettings:
    return OptimizerSettings(name=MUON, moments=4, sharding=sharding, **optimizer)


def job_of(optimizer: OptimizerSettings | None = None, **changes: Any) -> TrainingJob:
    tp = changes.get("tp", 1)
    settings = Settings(sequence_parallel=tp > 1, optimizer=optimizer or of_muon())
    own = {"model": llama(), "micro_batch": 1, "global_batch": 8, "settings": settings}
    return TrainingJob(**{**own, **changes})


def layer(job: TrainingJob, number: int) -> Build:
    return lambda one: layer_module(one, *job.kind(number))


# ---- matrices ------------------------------------------------------------------------------------


@given(jobs())
@examples(20, more=200)
def test_matrices_have_all_numbers_but_those_of_words_and_vectors(job: TrainingJob) -> None:
    builds = [*BUILDS, *(layer(job, number) for number in set(job.layer_kinds))]
    for build in builds:
        every = list(trained_weights(build(job)))
        flat = sum(n * one.count for one, n, _ in every if len(one.shape) != 2)
        words = sum(
            n * one.count
            for one, n, name in every
            if len(one.shape) == 2 and name in ("word_embeddings", "output_layer")
        )
        found = matrices(job, build)
        uneven = job.model.heads % job.tp or job.model.kv_heads % job.tp
        if not (uneven and any(name == QKV for _, _, name in every)):
            whole = sum(n * one.count for one, n, _ in every)
            assert sum(one.numbers for one in found) == whole - flat - words
        for one in found:
            ways = job.expert_tp if one.expert else job.tp
            parts = [-(-whole // own) for own, whole in zip(one.own, one.whole, strict=True)]
            assert sorted(parts)[0] == 1
            assert sorted(parts)[1] <= ways
            assert one.split is None or parts[one.split] > 1


def test_a_layer_of_llama_has_these() -> None:
    """Queries, keys and values are matrices of their own, divided by rows."""
    job = job_of(tp=2, model=llama(heads=16, kv_heads=8, hidden=256, ffn=704))
    found = {(one.whole, one.split): one for one in matrices(job, layer(job, 0))}
    assert {key: one.times for key, one in found.items()} == {
        ((256, 256), 0): 1,
        ((128, 256), 0): 2,
        ((256, 256), 1): 1,
        ((1408, 256), 0): 1,
        ((256, 704), 1): 1,
    }
    assert found[(256, 704), 1].own == (256, 352)


def test_routers_and_compressed_products_are_whole() -> None:
    settings = Settings(sequence_parallel=True, ep=2, optimizer=of_muon())
    job = job_of(tp=2, dp=2, model=deepseek(), settings=settings)
    found = {one.whole: one for one in matrices(job, layer(job, 1))}
    assert found[8, 256].split is None  # the router
    routed = [one for one in found.values() if one.expert]
    assert {one.times for one in routed} == {4}
    assert {one.split for one in routed} == {0, 1}


# ---- states --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama3.2-1b", "qwen3-8b", "gpt3-1.3b"])
def test_states_are_those_of_pytorch(name: str) -> None:
    """Of `torch.optim.Muon` and `AdamW` beside it, of parameters of such shapes with one step of
    gradients, on the meta device."""
    torch = pytest.importorskip("torch")
    job = job_of(model=replace(decoder_named(name), layers=2))
    modules = [embedding_module(job), *2 * [layer_module(job, *job.kind(0))], output_module(job)]
    matrix, others = [], []
    for module in modules:
        for weight, times, place in trained_weights(module):
            words = place in ("word_embeddings", "output_layer")
            of = matrix if len(weight.shape) == 2 and not words else others
            of += [torch.nn.Parameter(torch.empty(weight.shape, device="meta"))] * times
    optimizers = torch.optim.Muon(matrix), torch.optim.AdamW(others, foreach=False)
    held = 0
    for optimizer, of in zip(optimizers, (matrix, others), strict=True):
        for one in of:
            one.grad = torch.empty_like(one)
        optimizer.step()
        held += sum(
            value.numel() * value.element_size()
            for state in optimizer.state.values()
            for value in state.values()
            if torch.is_tensor(value) and value.dim()
        )
    parts = memory_parts(job).parts
    counts = {"embedding": 1, "layer": 2, "output": 1}
    kept = sum(n * parts[kind].optimizer for kind, n in counts.items())
    master = 4 * sum(n * parts[kind].trained for kind, n in counts.items())
    assert kept - master == held


# ---- work ----------------------------------------------------------------------------------------


@for_each("shape", [(64, 96), (96, 64), (128, 128), (8, 512)])
@for_each("turns", [1, 5, 8])
def test_products_are_those_of_pytorch(shape: tuple[int, int], turns: int) -> None:
    """As PyTorch counts the FLOPs of its own iteration."""
    torch = pytest.importorskip("torch")
    counter = pytest.importorskip("torch.utils.flop_counter")
    muon = pytest.importorskip("torch.optim._muon")
    gradient = torch.ones(shape)
    with counter.FlopCounterMode(display=False) as counted:
        muon._zeropower_via_newtonschulz(gradient, (3.4445, -4.775, 2.0315), turns, 1e-7)
    step = step_of(Matrix(shape, shape, None, 1, expert=False), settings_of(steps=turns))
    found = step.turns * sum(kernel.flops for kernel in step.products)
    assert found == counted.get_total_flops()


def settings_of(mode: str = "blockwise", steps: int = 5) -> Settings:
    return Settings(optimizer=of_muon(muon_tp_mode=mode, muon_steps=steps))


def flops(m: int, n: int) -> int:
    """Return those of a turn for m x n numbers, of which m are orthogonal to each other."""
    return 4 * m * m * n + 2 * m**3


@for_each(
    ("mode", "sides", "gathered", "summed"),
    [
        ("blockwise", (256, 1024), 0, 0),
        ("duplicated", (1024, 1024), 4 * 1024 * 1024, 0),
        ("distributed", (1024, 256), 0, 2 * 1024**2),
    ],
)
def test_a_divided_matrix_takes_this(
    mode: str, sides: tuple[int, int], gathered: float, summed: float
) -> None:
    """A shard of rows alone, all of it, or all ranks together the side that none divides."""
    matrix = Matrix((256, 1024), (1024, 1024), 0, 1, expert=False)
    step = step_of(matrix, settings_of(mode))
    assert sum(kernel.flops for kernel in step.products) == flops(*sides)
    assert (step.gathered, step.summed) == (gathered, summed)
    numbers = prod(sides)
    assert step.once == 256 * 1024 * (OF_SHARD + 4 + 6) + numbers * (
        OF_ITERATION + GATHERED * (mode == "duplicated")
    )
    whole = step_of(matrix._replace(own=(1024, 1024), split=None), settings_of(mode))
    alone = step_of(matrix._replace(own=(1024, 1024), split=None), settings_of())
    assert whole == alone


# ---- seconds -------------------------------------------------------------------------------------


@for_each("sharding", ["none", "optimizer"])
@for_each("mode", MUON_MODES)
def test_a_step_takes_its_products_its_traffic_and_its_messages(mode: str, sharding: str) -> None:
    """Against Adam's, all else being equal; two replicas that share it take half each."""
    problem = runtime_problem("megatron", "dense", global_batch=4)
    model, device = problem.costs.model, next(iter(problem.cluster.device_types.values()))
    job = job_of(of_muon(sharding, muon_tp_mode=mode), model=model, tp=2, dp=2)
    costs = problem.costs.ranks_of_job(job, problem.cluster)
    route = costs.network.route(job, "tp", 0)
    rate = rates_of(device).streaming * device.machine.stepping
    found, numbers = 0.0, 0
    for number in job.layer_kinds:
        for matrix in matrices(job, layer(job, number)):
            step = step_of(matrix, job.settings)
            numbers += matrix.numbers
            one = step.once / rate + step.turns * kernel_time(step.products, device, "bf16")
            if matrix.split is not None and mode == "duplicated":
                one += route.seconds("all_gather", 4 * prod(matrix.whole))
            if matrix.split is not None and mode == "distributed":
                side = matrix.whole[1 - matrix.split]
                one += 5 * route.seconds("all_reduce", 2 * side**2)
            found += matrix.times * one
    others = costs.counts[:, :2].sum() - numbers
    found += others * step_traffic(job.settings) / rate
    assert costs.step(0).sum() == pytest.approx(found / (2 if sharding == "optimizer" else 1))
    adam = OptimizerSettings(sharding=sharding)
    plain = replace(job, settings=replace(job.settings, optimizer=adam))
    other = problem.costs.ranks_of_job(plain, problem.cluster)
    more = iteration_terms(costs, job)[SYNC] - iteration_terms(other, plain)[SYNC]
    assert more == pytest.approx(costs.step(0).sum() - other.step(0).sum())
    assert more > 0


@for_each("packed", [True, False])
@for_each("model", [llama(), llama(prediction_layers=2), deepseek(), deepseek(prediction_layers=1)])
def test_every_element_steps_what_it_has(model: Decoder, packed: bool) -> None:
    """On a device whose steps reach half of its rate. Two replicas share the states; where buffers
    are not packed, one of them steps all of a table of words."""
    problem = runtime_problem("megatron", "dense", global_batch=4)
    device = next(iter(problem.cluster.device_types.values()))
    device = replace(device, machine=replace(device.machine, stepping=0.5))
    job = job_of(of_muon("optimizer", packed=packed), model=model, dp=2)
    network = problem.costs.ranks_of_job(job, problem.cluster).network
    rate, more = rates_of(device).streaming * 0.5, model.prediction_layers
    own = [layer(job, number) for number in job.layer_kinds]
    last = [output_module, *[final_norm_module][: more > 0], *more * [prediction_module]]
    expected = []
    for builds in ([embedding_module], *([one] for one in own), last):
        found = np.zeros(2)
        for build in builds:
            for matrix in matrices(job, build):
                step = step_of(matrix, job.settings)
                one = step.once / rate + step.turns * kernel_time(step.products, device, "bf16")
                found[int(matrix.expert)] += matrix.times * one * slower(job, expert=matrix.expert)
            for weight, times, name in trained_weights(build(job)):
                words = name in ("word_embeddings", "output_layer")
                if words or len(weight.shape) != 2:
                    copies = 2 if words and not packed else 1
                    moved = copies * times * weight.count * step_traffic(job.settings)
                    found[int(weight.expert)] += moved / rate
        expected.append(found)
    assert muon_steps(job, network, [device], 0) == pytest.approx(np.array(expected))


@for_each(
    ("packed", "collectives"),
    [(True, {"reduce_scatter", "all_gather"}), (False, {"all_reduce", "all_gather"})],
)
def test_ranks_that_are_not_packed_sum_all_gradients(packed: bool, collectives: set[str]) -> None:
    problem = runtime_problem("megatron", "dense", global_batch=4)
    job = job_of(of_muon("optimizer", packed=packed), model=problem.costs.model, dp=2)
    rings = problem.costs.ranks_of_job(job, problem.cluster).replica_rings(0)
    assert {one.collective for one in rings} == collectives
