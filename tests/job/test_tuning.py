"""Memory of adapters, of a base in 4 bits and of frozen parts: PEFT's bytes, and bytes by hand."""

import json
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.base.files import Document
from ilp_planner.job.decoder import layer_module, output_module
from ilp_planner.job.memory import memory_parts, rank_memory
from ilp_planner.job.modules import Module
from ilp_planner.job.recompute import checkpoint
from ilp_planner.job.tuning import base_numbers
from ilp_planner.job.work import Product, layer_work, output_work
from ilp_planner.specs.decoder import Decoder, Experts, as_decoder
from ilp_planner.specs.hugging_face.reader import read_config
from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from ilp_planner.specs.tuning import (
    ADAPTED,
    BASES,
    FORWARD_ONLY,
    PASSED,
    TRAINED,
    TunedLayer,
    Tuning,
    kinds_of_layers,
)
from tests.examples import for_each
from tests.specs.hugging_face import test_hybrids as known
from tests.specs.hugging_face.published import PUBLISHED
from tests.training_jobs import LLAMA_LIKE, decoder_named, transformers_config

EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# Bytes of parameters, gradients and moments that PEFT 0.21.2 has on the meta device, the base in
# bf16: model, rank, products with adapters.
PEFT: list[tuple[str, int, tuple[str, ...], tuple[int, int, int]]] = [
    ("llama2-7b", 8, ("q_proj", "v_proj"), (13493608448, 16777216, 33554432)),
    ("llama2-7b", 16, EVERY, (13636739072, 159907840, 319815680)),
    ("llama2-13b", 16, ("q_proj", "v_proj"), (26084157440, 52428800, 104857600)),
    (
        "llama2-70b",
        16,
        ("q_proj", "k_proj", "v_proj", "o_proj"),
        (138215440384, 262144000, 524288000),
    ),
    ("llama3-8b", 64, EVERY, (16731611136, 671088640, 1342177280)),
    ("llama3.2-1b", 32, ("gate_proj", "down_proj"), (2513571840, 41943040, 83886080)),
    ("llama3-70b", 8, ("q_proj", "v_proj"), (141172948992, 65536000, 131072000)),
    ("mistral-7b", 16, ("q_proj", "o_proj"), (14529601536, 33554432, 67108864)),
    ("qwen2.5-0.5b", 8, ("q_proj", "v_proj"), (990228224, 2162688, 4325376)),
    ("qwen2.5-7b", 16, EVERY, (15392713728, 161480704, 322961408)),
    ("qwen2.5-32b", 16, ("up_proj",), (65661970432, 134217728, 268435456)),
    ("qwen3-8b", 16, ("q_proj", "v_proj", "down_proj"), (16449890304, 68419584, 136839168)),
    ("qwen3-32b", 8, ("k_proj", "o_proj"), (65564092416, 39845888, 79691776)),
]
# Likewise of hybrids and of routed experts, by their configurations.
NEMOTRON, NEXT, LATER = (known.NANO, known.NEXT, known.ROUTED)
MIXTRAL, QWEN = (PUBLISHED[n][0] for n in ("mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen3-30B-A3B"))
CONFIGURED: list[tuple[dict[str, Any], int, tuple[str, ...], tuple[int, int, int]]] = [
    (NEMOTRON, 16, ("q_proj", "k_proj", "v_proj", "o_proj"), (63163345792, 7471104, 14942208)),
    (NEMOTRON, 8, ("in_proj", "up_proj", "down_proj"), (63174857600, 18982912, 37965824)),
    (
        NEMOTRON,
        4,
        ("q_proj", "experts.up_proj", "experts.down_proj"),
        (63584607104, 428732416, 857464832),
    ),
    (
        known.LARGE,
        16,
        ("in_proj", "up_proj", "down_proj", "q_proj"),
        (113098900480, 450199552, 900399104),
    ),
    (
        NEXT,
        8,
        ("in_proj_qkvz", "in_proj_ba", "out_proj", "q_proj", "o_proj"),
        (159381100032, 32317440, 64634880),
    ),
    # PEFT takes them for routed experts, and none of the shared ones has an adapter.
    (NEXT, 16, ("gate_proj", "up_proj", "down_proj"), (173038990848, 13690208256, 27380416512)),
    (NEXT, 4, ("q_proj", "experts.gate_up_proj"), (160558708224, 1209925632, 2419851264)),
    (
        LATER,
        8,
        ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj", "q_proj"),
        (69350118656, 28897280, 57794560),
    ),
    (LATER, 8, ("gate_proj", "up_proj", "down_proj"), (69331051776, 9830400, 19660800)),
    (
        LATER,
        2,
        ("q_proj", "experts.gate_up_proj", "experts.down_proj"),
        (69783414016, 462192640, 924385280),
    ),
    (
        known.BAMBA,
        16,
        ("in_proj", "q_proj", "v_proj", "down_proj"),
        (19700865792, 79503360, 159006720),
    ),
    (
        MIXTRAL,
        8,
        ("q_proj", "experts.gate_up_proj", "experts.down_proj"),
        (93833404416, 427819008, 855638016),
    ),
    (
        QWEN,
        8,
        ("q_proj", "gate_proj", "up_proj", "down_proj"),
        (63036616704, 1972371456, 3944742912),
    ),
    (QWEN, 8, ("q_proj", "down_proj"), (61627330560, 563085312, 1126170624)),
]
SMALL: dict[str, Any] = {
    **{"layers": 4, "hidden": 512, "sequence": 1024, "heads": 4, "ffn": 1536, "vocab": 16000},
    **LLAMA_LIKE,
}
NUMBERS = 1024 * 512  # of a hidden state of one sample


def job_of(tuning: Tuning, model: Decoder | None = None, **settings: Any) -> TrainingJob:
    own = Settings(tuning=tuning, vocab_multiple=1, **settings)
    return TrainingJob(model=model or Decoder(**SMALL), micro_batch=1, global_batch=1, settings=own)


def configured(values: dict[str, Any]) -> Decoder:
    read = read_config(Document("config.json", json.dumps(values)), text_only=True)
    model = as_decoder(read.architecture)
    assert model is not None
    return model


def states(job: TrainingJob) -> tuple[float, ...]:
    """Return bytes of parameters, gradients and moments on one rank."""
    counts = Counter(LAYER_KINDS[kind].name for kind in job.layer_kinds)
    counts.update(("embedding", "output"))
    parts = memory_parts(job).parts
    return tuple(
        sum(count * getattr(parts[kind], name) for kind, count in counts.items())
        for name in ("weights", "gradients", "optimizer")
    )


def tuning_of(rank: int, targets: tuple[str, ...], **others: Any) -> Tuning:
    return Tuning(rank=rank, targets=targets, adapters="fp32", **others)


# ---- PEFT ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rank", "targets", "expected"), PEFT)
def test_states_are_those_of_peft(
    name: str, rank: int, targets: tuple[str, ...], expected: tuple[int, int, int]
) -> None:
    assert states(job_of(tuning_of(rank, targets), decoder_named(name))) == expected


@for_each("case", CONFIGURED)
def test_states_of_hybrids_and_experts_are_those_of_peft(
    case: tuple[dict[str, Any], int, tuple[str, ...], tuple[int, int, int]],
) -> None:
    values, rank, targets, expected = case
    assert states(job_of(tuning_of(rank, targets), configured(values))) == expected


def test_peft_itself_has_those_of_hybrids_and_experts() -> None:
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    warnings.simplefilter("ignore")
    for values, rank, targets, expected in CONFIGURED:
        more = {key: value for key, value in values.items() if key != "model_type"}
        config = transformers.AutoConfig.for_model(values["model_type"], **more)
        with torch.device("meta"):
            whole = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        parameters = [name for name in targets if name.startswith("experts.")]
        modules = [name for name in targets if name not in parameters]
        lora = peft.LoraConfig(r=rank, target_modules=modules, target_parameters=parameters or None)
        made = peft.get_peft_model(whole, lora)
        every = [(p.numel() * p.element_size(), p.requires_grad) for p in made.parameters()]
        trained = sum(size for size, own in every if own)
        assert (sum(size for size, _ in every), trained, 2 * trained) == expected


def test_peft_itself_has_them() -> None:
    """On the meta device, where it is installed."""
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    warnings.simplefilter("ignore")
    for name, rank, targets, expected in PEFT:
        model = decoder_named(name)
        config = transformers_config(name, model)
        with torch.device("meta"):
            whole = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        base = sum(
            one.weight.numel()
            for path, one in whole.named_modules()
            if isinstance(one, torch.nn.Linear) and path.startswith("model.layers.")
        )
        made = peft.get_peft_model(whole, peft.LoraConfig(r=rank, target_modules=list(targets)))
        every = [(p.numel() * p.element_size(), p.requires_grad) for p in made.parameters()]
        trained = sum(size for size, own in every if own)
        assert (sum(size for size, _ in every), trained, 2 * trained) == expected
        quantised = job_of(tuning_of(rank, targets, base="nf4"), model)
        layer = layer_module(quantised, *quantised.kind(False))
        assert base_numbers(quantised, layer)[0] * model.layers == base


def test_a_base_in_4_bits_is_of_products_and_all_else_of_fp32() -> None:
    """As `prepare_model_for_kbit_training` has it; DeepSpeed's bf16 takes that back."""
    whole, low = (job_of(tuning_of(8, EVERY, base=base)) for base in ("", "nf4"))
    numbers = 4 * (4 * 512 * 512 + 3 * 512 * 1536)
    others = 2 * 16000 * 512 + 9 * 512
    less = numbers * (2 - BASES["nf4"]) - 2 * others
    assert states(whole)[0] - states(low)[0] == pytest.approx(less)
    plain, narrow = (job_of(Tuning(rank=8, targets=("q_proj",), base=base)) for base in ("", "nf4"))
    less = numbers * (2 - BASES["nf4"])
    assert states(plain)[0] - states(narrow)[0] == pytest.approx(less)
    assert states(whole)[1:] == states(low)[1:]
    assert BASES["nf4"] * 8 == pytest.approx(4.127, abs=1e-3)  # bits, as the paper has them


def test_adapters_are_stepped_like_other_parameters_elsewhere() -> None:
    job = job_of(Tuning(rank=8, targets=("linear_fc1",)))
    count = 4 * 8 * (512 + 2 * 1536)
    assert states(job)[1:] == (4 * count, 12 * count)
    shared = replace(job.settings, optimizer=OptimizerSettings(sharding="optimizer"))
    assert states(replace(job, dp=2, global_batch=2, settings=shared))[2] == 6 * count


ROUTED = Decoder(**SMALL, experts=Experts(count=8, top_k=2, ffn=256))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("ep", [1, 4])
def test_adapters_of_experts_are_divided_as_these_are(ep: int, grouped: bool) -> None:
    """One of a rank's experts, or of each: where experts are modules, and where it is asked for."""
    first = 8 * (512 + 2 * 256)
    second = 8 * (256 + 512)
    for targets, each in (
        (("linear_fc1", "linear_fc2"), not grouped),
        (("experts.linear_fc1", "experts.linear_fc2"), True),
        (("linear_fc1", "linear_fc2", "experts.linear_fc1", "experts.linear_fc2"), True),
    ):
        kernels = Kernels(grouped_experts=grouped)
        job = job_of(Tuning(rank=8, targets=targets), ROUTED, ep=ep, kernels=kernels)
        job = replace(job, dp=4, global_batch=4)
        layer = layer_module(job, *job.kind(1))
        assert layer.trained == layer.trained_experts == (first + second) * (8 // ep if each else 1)


def test_adapters_of_experts_have_products_of_their_own() -> None:
    """PEFT's make the weights' sum and its gradient, Megatron's go beside the product."""
    kernels = Kernels(grouped_experts=True)
    rows = 2 * 1024  # tokens that experts see
    beside = 2 * rows * 8 * (512 + 2 * 256)
    for target in ("linear_fc1", "experts.linear_fc1"):
        job = job_of(Tuning(rank=8, targets=(target,)), ROUTED, kernels=kernels)
        own = layer_work(job, kind=1, state=ADAPTED)
        still = layer_work(job, kind=1, state=PASSED)
        assert products(own, 0) - products(still, 0) == beside
        assert products(own, 1) - products(still, 1) == 2 * beside
    job = job_of(tuning_of(8, ("experts.gate_up_proj",)), ROUTED, kernels=kernels)
    own = layer_work(job, kind=1, state=ADAPTED)
    numbers = 8 * 512 * 2 * 256  # of the experts' weights
    assert products(own, 0) - products(still, 0) == 2 * 8 * numbers
    whole = 2 * rows * 512 * 2 * 256  # as if they were trained
    assert products(own, 1) - products(still, 1) == whole + 2 * 2 * 8 * numbers
    layer = layer_module(job, *job.kind(1))
    assert kept_in(layer, "mlp", "experts", "adapters")["sum"] == 2 * numbers


# ---- kinds of layers -----------------------------------------------------------------------------


def test_layers_below_all_that_is_trained_go_forward_only() -> None:
    model = Decoder(**SMALL)

    def said(**tuning: Any) -> list[str]:
        return [kind.state for kind in kinds_of_layers(model, Tuning(**tuning))]

    assert said() == 4 * [TRAINED]
    assert said(frozen=("layers:0-2",)) == [*3 * [PASSED], TRAINED]
    assert said(frozen=("embedding", "layers:0-2")) == [*3 * [FORWARD_ONLY], TRAINED]
    assert said(frozen=("embedding", "layers:1-2")) == [TRAINED, PASSED, PASSED, TRAINED]
    assert said(rank=8, frozen=("layers:0",)) == [FORWARD_ONLY, *3 * [ADAPTED]]
    assert said(frozen=("attention", "mlp", "norms")) == 4 * [PASSED]
    assert said(frozen=("embedding", "attention", "mlp", "norms")) == 4 * [FORWARD_ONLY]
    tied = replace(model, tied=True)
    one = kinds_of_layers(tied, Tuning(frozen=("output", "layers:0-1")))
    assert [kind.state for kind in one] == [*2 * [FORWARD_ONLY], *2 * [TRAINED]]


def test_a_job_has_layers_of_two_kinds_where_some_are_frozen() -> None:
    job = job_of(Tuning(frozen=("embedding", "layers:0-1")))
    assert job.layer_kinds == (False, False, True, True)
    assert job.kind(False) == TunedLayer(False, FORWARD_ONLY)
    assert job.kind(True) == TunedLayer(False, TRAINED)
    routed = Decoder(**SMALL, experts=Experts(count=4, top_k=2, ffn=256))
    assert job_of(Tuning(), routed).layer_kinds == 4 * (True,)
    assert job_of(Tuning(frozen=("layers:0",)), routed).layer_kinds == (False, True, True, True)
    assert job_of(Tuning(frozen=("layers:0",)), routed).kind(False).kind


# ---- activations by hand -------------------------------------------------------------------------


def kept_in(module: Module, *path: str) -> dict[str, float]:
    """Return the kept bytes of a module below a layer, by name."""
    for name in path:
        module = next(child for child in module.children if child.name == name)
    return {kept.name: kept.size for kept in module.kept}


def test_a_frozen_product_keeps_no_input_and_attention_its_output() -> None:
    job = job_of(Tuning(frozen=("layers:0-3",)))  # the embedding is trained
    layer = layer_module(job, *job.kind(False))
    assert job.kind(False).state == PASSED
    whole = layer_module(job_of(Tuning()), kind=0)
    saved = whole.activations - layer.activations
    # the outputs of both norms, and of the activation
    assert saved == 2 * (2 * NUMBERS + 1024 * 1536)
    assert kept_in(layer, "self_attention", "linear_proj") == {"input": 2 * NUMBERS}
    assert kept_in(layer, "mlp", "linear_fc2") == {}
    assert set(kept_in(layer, "mlp", "activation_func")) == {"input"}


def test_frozen_parts_keep_what_the_others_need() -> None:
    job = job_of(Tuning(frozen=("mlp",)))
    layer = layer_module(job, *job.kind(False))
    assert "norm's output" in kept_in(layer, "self_attention", "linear_qkv")
    assert "norm's output" not in kept_in(layer, "mlp", "linear_fc1")
    assert layer.trained == 512 * 512 * 4 + 2 * 512
    assert output_module(job).trained == output_module(job).parameters


def test_adapters_keep_their_inputs() -> None:
    """PEFT's a copy each and a mask, Megatron-Bridge's one for all of a product."""
    peft = job_of(tuning_of(8, ("q_proj", "v_proj", "o_proj"), dropout=0.1))
    layer = layer_module(peft, *peft.kind(False))
    frozen = layer_module(peft, False, PASSED)
    each = NUMBERS * (2 + 1) + 1024 * 8 * 2  # a copy, a mask, and what is between the products
    assert layer.activations - frozen.activations == 3 * each
    plain = job_of(Tuning(rank=8, targets=("linear_qkv", "linear_proj")))
    layer = layer_module(plain, *plain.kind(False))
    assert layer.activations - frozen.activations == 2 * NUMBERS + 2 * 1024 * 8 * 2


def test_layers_without_a_backward_pass_keep_nothing() -> None:
    job = job_of(Tuning(frozen=("embedding", "layers:0-2")))
    parts = memory_parts(job).parts
    assert parts["layer"].kept == parts["embedding"].kept == parts["layer"].gradients == 0
    assert parts["layer"].forward_only
    assert parts["expert layer"].kept > 0
    one = job_of(Tuning(frozen=("embedding", "layers:0-2")), replace(job.model, layers=4))
    again = Recompute(granularity="full", method="uniform", layers=1)
    full = replace(one, settings=replace(one.settings, recompute=again))
    kept = memory_parts(full)
    assert kept.checkpoint == 2 * NUMBERS
    assert rank_memory(full, 0).peak < rank_memory(one, 0).peak


# ---- work by hand --------------------------------------------------------------------------------


def products(work: Any, way: int) -> float:
    """Return the FLOPs of products in a pass, without attention's core."""
    return sum(
        kernel.flops
        for module in work
        for kernel in module.ways[way]
        if isinstance(kernel.shape, Product)
    )


def test_frozen_products_have_one_product_on_their_way_back() -> None:
    job = job_of(Tuning(frozen=("layers:0-1", "output")))
    frozen = layer_work(job, kind=0, state=PASSED)
    trained = layer_work(job, kind=0, state=TRAINED)
    assert products(frozen, 0) == products(frozen, 1) == products(trained, 1) / 2
    assert not any(module.of_weights for module in frozen)
    below = layer_work(job, kind=0, state=FORWARD_ONLY)
    assert products(below, 0) == products(frozen, 0)
    assert products(below, 1) == 0
    logits = output_work(job)
    assert products(logits, 0) == products(logits, 1) == 2 * NUMBERS * 16000


def test_adapters_add_two_products_forward_and_four_backward() -> None:
    job = job_of(tuning_of(8, ("q_proj", "down_proj")))
    with_them = layer_work(job, kind=0, state=ADAPTED)
    frozen = layer_work(job, kind=0, state=PASSED)
    each = 2 * 1024 * 8 * ((512 + 512) + (1536 + 512))
    assert products(with_them, 0) - products(frozen, 0) == each
    assert products(with_them, 1) - products(frozen, 1) == 2 * each
    weights = [kernel.flops for one in with_them for kernel in one.of_weights]
    assert sum(weights) == each


def test_a_base_in_4_bits_is_restored_before_every_product() -> None:
    numbers = 4 * 512 * 512 + 3 * 512 * 1536
    low, whole = (
        layer_work(job_of(Tuning(rank=8, targets=EVERY, base=base)), kind=0, state=ADAPTED)
        for base in ("nf4", "")
    )
    for way in (0, 1):
        more = sum(
            sum(kernel.traffic for kernel in a.ways[way])
            - sum(kernel.traffic for kernel in b.ways[way])
            for a, b in zip(low, whole, strict=True)
        )
        assert more == pytest.approx(numbers * (BASES["nf4"] + 2))


def test_transformers_keep_copies_in_fp32_beside_a_norm_and_the_gate() -> None:
    """Of a norm 4 bytes instead of 2, and 2 for the gradient of its weight; of an MLP the gate
    after SiLU."""
    plain, apart = (
        job_of(Tuning(), kernels=Kernels(implementation=name))
        for name in ("transformer_engine", "eager")
    )
    whole = layer_module(apart, kind=0).activations
    more = whole - layer_module(plain, kind=0).activations
    assert more == 2 * NUMBERS * (2 + 2) + 1024 * 1536 * 2
    frozen = job_of(tuning_of(8, ("q_proj",)), kernels=Kernels(implementation="eager"))
    layer = layer_module(frozen, *frozen.kind(False))
    assert set(kept_in(layer, "input_layernorm")) == {"input", "statistics"}


def test_hidden_states_beside_a_base_in_4_bits_are_of_fp32() -> None:
    job = job_of(tuning_of(8, ("q_proj",), base="nf4"))
    assert checkpoint(job).size == 4 * NUMBERS
    assert kept_in(output_module(job), "output_layer") == {"weight": 2 * 16000 * 512}
