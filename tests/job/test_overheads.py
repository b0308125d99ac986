"""Memory besides states and activations: workspaces, tables, buffers, and what is outside."""

from dataclasses import replace
from typing import Any

from ilp_planner.job.decoder import embedding_module, layer_module
from ilp_planner.job.overheads import (
    between_stages,
    handles,
    outside,
    spare_gradients,
    tables,
    workspace,
)
from ilp_planner.specs.decoder import Decoder, Experts
from ilp_planner.specs.gpu_architectures import (
    AMPERE,
    BLACKWELL,
    CDNA_3,
    CDNA_4,
    HOPPER,
    GpuArchitecture,
)
from ilp_planner.specs.training import Kernels, TrainingJob
from tests.examples import for_each
from tests.training_jobs import deepseek, gpt, job, llama, settings

MIB = 2**20
LOCAL = {"implementation": "local", "attention": "unfused"}
LEGACY = {"implementation": "local", "attention": "flash"}
MIXTURE = Experts(count=8, top_k=2, ffn=96)


def case(
    model: Decoder | None = None, gpu: GpuArchitecture = HOPPER, **kernels: Any
) -> TrainingJob:
    found = job(model or llama(), settings=settings(kernels=Kernels(**kernels)))
    return replace(found, gpu_architecture=gpu)


@for_each(
    ("gpu", "mebibytes"),
    [(AMPERE, 2 * 8.125), (HOPPER, 2 * 32), (BLACKWELL, 2 * 8.125), (CDNA_4, 2 * 128)],
)
def test_both_threads_have_a_handle_of_pytorch_s(gpu: GpuArchitecture, mebibytes: float) -> None:
    assert handles(case(gpu=gpu)) == mebibytes * MIB
    assert handles(case(gpu=gpu, deterministic=True)) == 64 * MIB


@for_each(
    ("gpu", "mebibytes"), [(AMPERE, 4), (HOPPER, 32), (BLACKWELL, 32), (CDNA_3, 32), (CDNA_4, 64)]
)
def test_workspaces_of_transformer_engine(gpu: GpuArchitecture, mebibytes: int) -> None:
    """One, and four more for groups of experts; of the local model, for routers."""
    engine = mebibytes * MIB
    experts = llama(experts=MIXTURE)
    assert workspace(case(gpu=gpu)) == engine
    assert workspace(case(gpu=gpu, grouped_experts=True)) == engine
    assert workspace(case(experts, gpu)) == engine
    assert workspace(case(experts, gpu, grouped_experts=True)) == 5 * engine
    own = handles(case(gpu=gpu)) + 2 * 1024 * 8 * 512  # and scores of 8 heads
    assert workspace(case(gpu=gpu, **LOCAL)) == own
    assert workspace(case(experts, gpu, **LOCAL)) == own + engine


def test_angles_of_rotary_embedding() -> None:
    """fp32, one per position here and channel: 16, or 8 of latent attention."""
    assert tables(case()) == 4 * 512 * 16
    assert tables(case(deepseek())) == 4 * 512 * 8
    assert tables(case(gpt())) == 0
    assert tables(case(**LEGACY)) == 0
    parted = replace(case(), settings=replace(case().settings, cp=2))
    assert tables(parted) == 4 * 256 * 16


def test_buffers_for_neighbours() -> None:
    """Of a rank's share of tokens, as many as the schedule has at once."""
    piped = case()
    assert between_stages(piped) == 2 * 256 * 2 * 256 * piped.schedule.buffers
    assert piped.schedule.buffers > 0
    assert between_stages(replace(piped, pp=1, layout=None)) == 0


def test_every_shape_of_a_product_s_weight_has_a_stand_in() -> None:
    """Of four products in a dense layer, in two bytes, on two ranks; of tables and routers none."""
    layer = layer_module(case(), kind=0)
    shapes = [((128 + 128) * 1, 256), (256, 128), (704, 256), (256, 352)]
    assert spare_gradients(case(), layer) == {shape: 2.0 * shape[0] * shape[1] for shape in shapes}
    assert spare_gradients(case(), embedding_module(case())) == {}
    assert spare_gradients(case(gpt()), embedding_module(case(gpt()))) == {}
    assert spare_gradients(case(accumulation_fusion=False), layer) == {}
    assert spare_gradients(case(**LEGACY), layer) == {}
    routed = case(llama(experts=MIXTURE), grouped_experts=True)
    shapes = {*spare_gradients(routed, layer_module(routed, kind=1))}
    assert (8, 256) not in shapes  # the router's


def test_what_is_outside_of_pytorch() -> None:
    """A context, buffers for each group of several ranks, and what the allocator cannot use."""
    found = outside(case(), 1000.0)
    assert found == {"CUDA context": 600 * MIB, "NCCL": 3 * 250 * MIB, "fragmentation": 50.0}
    assert outside(case(), 1000.0, {"graphs": 7.0}) == {**found, "graphs": 7.0}
    one = job(tp=1, pp=1, dp=1, layout=None)
    assert outside(one, 0.0)["NCCL"] == 0
    around = replace(one, settings=replace(one.settings, cp=2))
    assert outside(around, 0.0)["NCCL"] == 2 * 250 * MIB  # of replicas with them, too
    spread = job(llama(experts=MIXTURE), tp=1, pp=1, dp=2, layout=None, settings=settings(ep=2))
    assert outside(spread, 0.0)["NCCL"] == 2 * 250 * MIB
