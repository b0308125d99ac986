"""What goes with overlap of expert parallelism and with CUDA graphs: each rule, and just not it."""

from dataclasses import replace
from typing import Any

from ilp_planner.base.library import library_files
from ilp_planner.settings.rules import (
    JOB_RULES,
    check_combined,
    check_compressed,
    check_fp8_attention,
    check_shapes,
    check_sparse,
    check_tuning,
    otherwise,
    tunable,
)
from ilp_planner.settings.values import CUDA_GRAPHS, GRAPHED
from ilp_planner.spaces.registry import RUNTIMES, runtime_named
from ilp_planner.specs.decoder import DeltaNet, Experts, Mamba, Window, as_decoder
from ilp_planner.specs.gpu_architectures import (
    AMPERE,
    BLACKWELL,
    CDNA_3,
    HOPPER,
    RTX_BLACKWELL,
    TURING,
    GpuArchitecture,
)
from ilp_planner.specs.lengths import BATCHINGS, GROUPED, LONGEST, Lengths
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.training import (
    Kernels,
    Offload,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
)
from ilp_planner.specs.tuning import BRIDGE_NAMES, Tuning, targets_of
from tests.examples import for_each
from tests.training_jobs import deepseek, job, llama

MLP_AND_MOE = Recompute(granularity="selective", modules=("mlp", "moe"))
FULL = Recompute(granularity="full", method="uniform", layers=1)


def overlapping(kernels: dict[str, Any] | None = None, **changes: Any) -> Settings:
    """Return settings with overlap of expert parallelism."""
    values: dict[str, Any] = {"ep": 2, "overlap_experts": True, **changes}
    return Settings(kernels=Kernels(**{"dispatcher": "alltoall", **(kernels or {})}), **values)


def graphed(*parts: str, how: str = "local", **changes: Any) -> Settings:
    """Return settings with CUDA graphs of layers, or of some parts of them."""
    kernels: dict[str, Any] = {"graphs": how, "graphed": parts}
    padded = {k: changes.pop(k) for k in ("capacity", "pad_to_capacity") if k in changes}
    return Settings(kernels=Kernels(**kernels, **padded), **changes)


def experts_job(settings: Settings, **changes: Any) -> TrainingJob:
    """Return a job of a model with experts on one pipeline rank."""
    return job(deepseek(), **{"pp": 1, "settings": settings, **changes})


def found(case: TrainingJob) -> list[str]:
    return [f"{broken.rule}: {broken.have} / {broken.limit}" for broken in check_combined(case)]


OVERLAPS: list[tuple[TrainingJob, list[str]]] = [
    (experts_job(overlapping()), []),
    (experts_job(overlapping(ep=1)), ["ep 1 / ep above 1"]),
    (experts_job(overlapping({"dispatcher": "allgather"})),
     ["dispatcher allgather / alltoall or flex"]),
    (experts_job(overlapping({"dispatcher": "flex"})), []),
    (experts_job(overlapping(precision="fp32")), ["fp32 / bf16 or fp16"]),
    (experts_job(overlapping(precision="fp16")), []),
    (experts_job(overlapping(recompute=FULL)), ["full recomputation / selective or none"]),
    (experts_job(overlapping(recompute=MLP_AND_MOE)), ["recomputation of moe / of other parts"]),
    (experts_job(overlapping(recompute=Recompute(granularity="selective"))), []),
    (experts_job(overlapping(), pp=2), ["pp 2 without virtual stages / virtual stages"]),
    (experts_job(overlapping({"graphs": "transformer_engine", "graphed": ("attn",)})), []),
    (experts_job(overlapping({"graphs": "transformer_engine", "graphed": ("attn", "mlp")})),
     ["graphs transformer_engine attn mlp / none of moe and mlp"]),
    (experts_job(overlapping({"graphs": "local", "graphed": ("attn",)})),
     ["graphs local attn / none of moe and mlp"]),
]  # fmt: skip


@for_each(("case", "words"), OVERLAPS)
def test_overlap_of_expert_parallelism_has_what_it_needs(
    case: TrainingJob, words: list[str]
) -> None:
    assert found(case) == [f"expert overlap: {text}" for text in words]
    without = replace(case, settings=replace(case.settings, overlap_experts=False))
    assert found(without) == []


@for_each(
    ("predicted", "pp", "expected"),
    [(0, 1, False), (0, 2, False), (1, 1, True), (1, 2, False), (2, 1, True), (2, 2, True)],
)
def test_overlap_is_of_one_predicted_token_at_most_and_of_that_in_a_pipeline(
    predicted: int, pp: int, expected: bool
) -> None:
    case = job(deepseek(prediction_layers=predicted), pp=pp, layout=None, settings=overlapping())
    said = (
        f"expert overlap: {predicted} layers of multi-token prediction, pp {pp} "
        "/ at most one, in a pipeline"
    )
    assert (said in found(case)) == expected


GRAPHS: list[tuple[TrainingJob, list[str]]] = [
    (experts_job(graphed("attn")), []),
    (job(llama(), pp=1, settings=graphed("attn", "mlp")), []),
    (experts_job(graphed("attn", offload=Offload(layers=2))), ["2 layers on the host / none"]),
    *(
        (
            job(llama(), pp=1, settings=graphed("attn", part)),
            [f"local attn {part} without experts / attn or mlp"],
        )
        for part in ("moe_router", "moe_preprocess")
    ),
    (experts_job(graphed("moe", capacity=1.0)), ["moe without padding to a capacity / moe_router"]),
    (experts_job(graphed("moe", pad_to_capacity=True)),
     ["moe without padding to a capacity / moe_router"]),
    (experts_job(graphed("moe", capacity=1.0, pad_to_capacity=True)), []),
    (experts_job(graphed("moe_router")), []),
    (experts_job(graphed(recompute=FULL)), ["full recomputation with graphs of layers "
     "/ selective or none, or a graph of the full iteration"]),
    (experts_job(graphed(how="full_iteration", recompute=FULL)), []),
    (experts_job(graphed("moe_router", recompute=MLP_AND_MOE)),
     ["recomputation of moe with moe_router / one of them"]),
    (experts_job(graphed("attn", recompute=MLP_AND_MOE)), []),
    (experts_job(graphed("moe_router", recompute=Recompute(granularity="selective"))), []),
]  # fmt: skip


@for_each(("case", "words"), GRAPHS)
def test_graphs_have_what_they_need(case: TrainingJob, words: list[str]) -> None:
    assert found(case) == [f"CUDA graphs: {text}" for text in words]
    kernels = replace(case.settings.kernels, graphs="", graphed=())
    assert found(replace(case, settings=replace(case.settings, kernels=kernels))) == []


@for_each(
    ("parts", "dropout", "names"),
    [
        ((), 0.1, ["core_attn", "mlp"]),
        ((), 0.0, []),
        (("attn",), 0.1, ["core_attn"]),
        (("mlp",), 0.1, ["mlp"]),
        (("mlp",), 0.0, []),
    ],
)
def test_nothing_draws_random_numbers_again_in_a_graph(
    parts: tuple[str, ...], dropout: float, names: list[str]
) -> None:
    again = Recompute(granularity="selective", modules=("core_attn", "mlp"))
    case = job(llama(dropout=dropout), pp=1, settings=graphed(*parts, recompute=again))
    assert found(case) == [
        f"CUDA graphs: dropout 0.1 with {name} computed again in a graph / 0" for name in names
    ]


@for_each("offload", [0.0, 0.5])
@for_each("sharding", ["none", "optimizer", "gradients"])
def test_states_on_the_host_are_those_of_the_distributed_optimizer(
    offload: float, sharding: str
) -> None:
    settings = Settings(optimizer=OptimizerSettings(sharding=sharding, offload=offload))
    assert any(otherwise(job(settings=settings))) == (offload > 0 and sharding != "optimizer")


OTHERWISE: dict[str, tuple[TrainingJob, str]] = {
    "nothing special": (job(), ""),
    "tensor overlap": (job(settings=Settings(overlap_tensor=True)), ""),
    "latent attention": (experts_job(Settings()), ""),
    "tensor overlap with latent attention": (
        experts_job(Settings(overlap_tensor=True)),
        "tensor overlap",
    ),
    "all ranks exchange heads": (
        job(settings=Settings(cp=4, cp_comm="a2a+p2p", cp_inner=4)),
        "ring of exchanges",
    ),
    "half of them": (job(settings=Settings(cp=4, cp_comm="a2a+p2p", cp_inner=2)), ""),
    "copies on every rank": (
        job(dp=4, settings=Settings(optimizer=OptimizerSettings(instances=4))),
        "optimizer instances",
    ),
    "copies on every other rank": (
        job(dp=4, settings=Settings(optimizer=OptimizerSettings(instances=2))),
        "",
    ),
    "graphs of layers without experts": (job(settings=graphed()), ""),
    "graphs of layers with experts": (experts_job(graphed()), "CUDA graphs"),
    "graphs of attention with experts": (experts_job(graphed("attn")), ""),
    "with a capacity": (experts_job(graphed(capacity=1.0)), "CUDA graphs"),
    "padded to nothing": (experts_job(graphed(pad_to_capacity=True)), "CUDA graphs"),
    "padded to a capacity": (experts_job(graphed(capacity=1.0, pad_to_capacity=True)), ""),
    "DeepEP": (experts_job(Settings(kernels=Kernels(dispatcher="flex"))), ""),
    "DeepEP from Ampere on": (
        experts_job(Settings(kernels=Kernels(dispatcher="flex")), gpu_architecture=AMPERE),
        "",
    ),
    "DeepEP of AMD": (
        experts_job(Settings(kernels=Kernels(dispatcher="flex")), gpu_architecture=CDNA_3),
        "",
    ),
    "DeepEP before": (
        experts_job(Settings(kernels=Kernels(dispatcher="flex")), gpu_architecture=TURING),
        "dispatcher",
    ),
    "others before": (experts_job(Settings(), gpu_architecture=TURING), ""),
}


@for_each("name", OTHERWISE)
def test_what_megatron_does_otherwise_than_it_is_told_is_known(name: str) -> None:
    case, rule = OTHERWISE[name]
    assert [broken.rule for broken in otherwise(case)] == ([rule] if rule else [])


PLAIN: dict[str, Any] = {}
ROUTED = {"experts": Experts(count=4, top_k=2, ffn=64)}
MAMBA = {"pattern": "M*M-", "mamba": Mamba(heads=8, head=32, state=64)}
DELTA = {"pattern": "G- *- G- G-", "delta": DeltaNet(key_heads=2, value_heads=4)}
TUNINGS = {
    "adapters": Tuning(rank=8, targets=("linear_qkv",)),
    "frozen layers": Tuning(frozen=("layers:0",)),
    "frozen parts": Tuning(frozen=("embedding", "mlp")),
}


@for_each("name", TUNINGS)
def test_parts_of_hybrids_are_trained(name: str) -> None:
    plain = llama(layers=4)
    hybrid = replace(plain, pattern="M*M-", mamba=Mamba(heads=8, head=32, state=64))
    for model in (plain, hybrid):
        assert not list(check_tuning(job(model, pp=1, settings=Settings(tuning=TUNINGS[name]))))


BY_PEFT = {
    "a kernel reads the weight": (MAMBA, ("out_proj",), {}, "in_proj alone of Mamba-2"),
    "products in parts": (DELTA, ("in_proj",), {}, "in_proj_qkvz, in_proj_ba"),
    "products in other parts": (DELTA, ("in_proj_qkv",), {}, "in_proj_qkvz, in_proj_ba"),
    "half of a parameter": (ROUTED, ("up_proj",), {}, "gate_proj,up_proj"),
    "twice": (ROUTED, ("down_proj", "experts.down_proj"), {}, "one name of each parameter"),
    "dropout": (ROUTED, ("experts.down_proj",), {"dropout": 0.1}, "0, as adapters are added"),
    "some layers": (ROUTED, ("down_proj",), {"frozen": ("layers:0",)}, "experts.down_proj beside"),
    "no expert": (PLAIN, ("experts.down_proj",), {}, "which the model has"),
    "no scan": (PLAIN, ("in_proj",), {}, "which the model has"),
}


@for_each("name", BY_PEFT)
def test_what_peft_does_not_adapt_is_refused_by_name(name: str) -> None:
    changes, targets, more, said = BY_PEFT[name]
    tuning = Tuning(rank=8, targets=targets, adapters="fp32", **more)
    found = list(
        check_tuning(job(llama(layers=4, **changes), pp=1, settings=Settings(tuning=tuning)))
    )
    assert [said in broken.limit for broken in found] == [True]


@for_each("names", [("in_proj", "out_proj"), ("linear_fc1", "in_proj")])
def test_megatron_bridge_adapts_what_peft_does_not(names: tuple[str, ...]) -> None:
    for changes in (MAMBA, DELTA):
        settings = Settings(tuning=Tuning(rank=8, targets=names))
        model = llama(layers=4, **changes)
        assert not list(check_tuning(job(model, pp=1, settings=settings)))


IN_8_BITS: list[tuple[GpuArchitecture, dict[str, Any], dict[str, Any], list[str]]] = [
    (HOPPER, {}, {}, []),
    (HOPPER, {"quantised": "mxfp8"}, {}, ["mxfp8 on Hopper / fp8-delayed"]),
    (BLACKWELL, {"quantised": "mxfp8"}, {}, []),
    (BLACKWELL, {"quantised": "nvfp4"}, {},
     ["nvfp4 on Blackwell / fp8-delayed or fp8-current or mxfp8"]),
    (RTX_BLACKWELL, {}, {}, ["fp8-delayed on RTX Blackwell / off"]),
    (CDNA_3, {}, {}, ["fp8-delayed on CDNA 3 / off"]),
    (HOPPER, {"flash_package": True}, {},
     ["another attention / cuDNN's, as --attention-backend auto takes it"]),
    (HOPPER, {}, {"window": Window(size=64)}, ["windows or sinks / attention without them"]),
    (HOPPER, {}, {"head": 64}, ["heads of 64 channels / 128 on Hopper"]),
    (BLACKWELL, {}, {"head": 64}, []),
    (BLACKWELL, {}, {"head": 256}, ["heads of 256 channels / 16 to 128, by 16"]),
    (HOPPER, {"fp8_attention": False}, {"head": 64}, []),
]  # fmt: skip


@for_each(("gpu", "kernels", "model", "broken"), IN_8_BITS)
def test_attention_in_8_bits_goes_with_recipes_heads_and_samples(
    gpu: GpuArchitecture, kernels: dict[str, Any], model: dict[str, Any], broken: list[str]
) -> None:
    had = Kernels(**{"quantised": "fp8-delayed", "fp8_attention": True, **kernels})
    case = job(llama(**{"head": 128, **model}), settings=Settings(kernels=had))
    case = replace(case, gpu_architecture=gpu)
    assert [f"{one.have} / {one.limit}" for one in check_fp8_attention(case)] == broken


def test_graphs_have_samples_of_one_shape_in_every_runtime() -> None:
    """Whatever is in a graph, it is refused where micro-batches differ in length, and there alone,
    by the rule of all runtimes."""
    assert check_shapes in JOB_RULES
    for batching in BATCHINGS:
        lengths = Lengths(lengths=(64, 512), counts=(9, 1), batching=batching)
        for value in ("none", *GRAPHED):
            settings = CUDA_GRAPHS.write(Settings(), value)
            assert settings is not None
            case = job(replace(llama(), lengths=lengths), settings=settings)
            refused = batching in (LONGEST, GROUPED) and value != "none"
            assert bool([*check_shapes(case)]) == refused
            for name in RUNTIMES:
                said = [text for text in runtime_named(name).refusals(case) if batching in text]
                assert bool([text for text in said if "one length" in text]) == refused


MODELS = {
    path.stem: model
    for path in library_files("models")
    if (model := as_decoder(read_model(path).architecture)) is not None
}


@for_each("name", sorted(MODELS))
def test_models_that_may_be_trained_in_part_are_told(name: str) -> None:
    """By the rules that such a job breaks."""
    model = MODELS[name]
    target = next(one for one in targets_of(model) if one in BRIDGE_NAMES)
    case = TrainingJob(
        model=model,
        micro_batch=1,
        global_batch=1,
        settings=Settings(tuning=Tuning(rank=8, targets=(target,))),
    )
    broken = [*check_tuning(case), *check_sparse(case), *check_compressed(case)]
    whole = [
        one for one in broken if one.limit in ("a model without", "training of all parameters")
    ]
    assert tunable(model) == (not whole)
    assert not tunable(model) or not [*check_tuning(case)]
