"""Training settings in Megatron-LM's arguments: `Settings` from values, and back."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.flags import Value, flag_of, flags_by_key
from ilp_planner.formats.megatron.values import MegatronArguments, given
from ilp_planner.schedule.formulas import USUAL
from ilp_planner.settings.keys import KEYS
from ilp_planner.settings.table import LOSS_FUSION
from ilp_planner.settings.values import FUSED_LOSS, with_fields, with_inner_ranks
from ilp_planner.specs.training import (
    GRAPHED,
    MIXTURES,
    MUON_MODES,
    OF_MATRICES,
    OFFLOADED,
    ORDERS,
    PRECISIONS,
    USUAL_FORMATS,
    Kernels,
    Offload,
    OptimizerSettings,
    Recompute,
    Settings,
)

FSDP = {
    "no_shard": "none",
    "optim": "optimizer",
    "optim_grads": "gradients",
    "optim_grads_params": "parameters",
}
FSDP_OF = {"gradients": "optim_grads", "parameters": "optim_grads_params"}
WIDTHS = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
# (bytes of both moments) -> Megatron's names of their types, the most exact first.
MOMENTS = {
    8: ("fp32", "fp32"),
    6: ("fp32", "bf16"),
    5: ("fp32", "fp8"),
    4: ("bf16", "bf16"),
    3: ("bf16", "fp8"),
    2: ("fp8", "fp8"),
}
# Optimisers that keep one number per parameter; Adam keeps two, and so does AdaMuon, the usual
# method of `adaptive_muon`.
ONE_MOMENT = ("sgd", "lion", *OF_MATRICES)


# Fields of settings with an argument of their own, the value of which they are.
FLAGS = {field: key.name for field, key in KEYS["megatron"].items()}
DEFAULTS, NOTHING_SAID = Settings(), MegatronArguments()
# Megatron's names of recipes of 8-bit products; that of 4-bit ones is Transformer Engine's own.
FP8_RECIPES = {
    "delayed": "fp8-delayed",
    "tensorwise": "fp8-current",
    "blockwise": "fp8-blockwise",
    "mxfp8": "mxfp8",
}
FP8_RECIPES_OF = {recipe: name for name, recipe in FP8_RECIPES.items()}


def recipe_of(args: MegatronArguments) -> str:
    """Return the recipe of quantised products, empty for none: not of a factory's own quantisers,
    nor of local modules without Transformer Engine's products."""
    if local_of(args):
        return ""
    if args.given("fp4"):
        return "nvfp4" if args["fp4_recipe"] == "nvfp4" else ""
    return FP8_RECIPES.get(args.text("fp8_recipe"), "") if args.given("fp8") else ""


def local_of(args: MegatronArguments) -> bool:
    """Return whether modules are Megatron's own instead of Transformer Engine's."""
    return args["transformer_impl"] == "local" or args.words("spec")[:1] == ("local",)


def graphs_of(args: MegatronArguments) -> str:
    """Return Megatron's way of CUDA graphs, in the words of its newest releases; empty for none."""
    kind = args.text("cuda_graph_impl")
    if args.on("enable_cuda_graph"):
        kind = "local"
    elif args.on("external_cuda_graph"):
        kind = "transformer_engine"
    if kind == "local" and "full_iteration" in graph_modules(args):
        return "full_iteration"
    return "" if kind == "none" else kind


def graph_modules(args: MegatronArguments) -> tuple[str, ...]:
    """Return the modules of a layer in graphs; nothing: all of it."""
    given = args.words("cuda_graph_modules") or args.words("cuda_graph_scope")
    return tuple(word for text in given for word in text.split(",") if word != "full")


def precision_of(args: MegatronArguments) -> str:
    """Return the type of parameters and activations."""
    return next((name for name in ("bf16", "fp16") if args.on(name)), "fp32")


def granularity_of(args: MegatronArguments) -> str:
    """Return the recomputation: `none`, `selective` or `full`."""
    if args.on("recompute_activations") or args.on("moe_layer_recompute"):
        return "selective"
    return args.text("recompute_granularity") or "none"


def sequence_parallel_of(args: MegatronArguments) -> bool:
    """Return whether it is on: Megatron turns it off silently without tensor parallelism."""
    return args.on("sequence_parallel") and args.whole("tensor_model_parallel_size") > 1


def settings_of(args: MegatronArguments) -> Settings:
    """Return the settings of checked arguments."""
    padded = args.given("padded_vocab_size")
    own = {field: _read(args, field) for field in FLAGS}
    found = Settings(
        sequence_parallel=sequence_parallel_of(args),
        order=ORDERS[1] if args.on("use_tp_pp_dp_mapping") else ORDERS[0],
        precision=precision_of(args),
        vocab_multiple=1 if padded else args.whole("make_vocab_size_divisible_by"),
        recompute=_recompute(args),
        offload=_offload(args),
        optimizer=_optimizer(args),
        kernels=_kernels(args),
    )
    return with_inner_ranks(with_fields(found, own), _inner(args))


def _read(args: MegatronArguments, field: str) -> Any:
    """Return the value of a field that has an argument of its own; negative numbers mean none.

    Raises
    ------
    SpecError: layers differ.
    """
    kind, key = type(attrgetter(field)(DEFAULTS)), FLAGS[field]
    if kind is bool:
        word = KEYS["megatron"][field].words.get(True)
        return args.text(key) == word if word else args.on(key)
    if kind is str:
        return _word(args, key, KEYS["megatron"][field].heard) or attrgetter(field)(DEFAULTS)
    return args.whole(key) if kind is int else max(0.0, args.number(key))


def _word(args: MegatronArguments, key: str, heard: Mapping[str, str]) -> str:
    """Return the word of an argument, the same for all layers."""
    words = {heard.get(word, word) for word in args.words(key)}
    if len(words) > 1:
        raise SpecError(
            f"{flag_of(key)}: found {', '.join(sorted(words))} in different layers, expected one "
            "for all"
        )
    return words.pop() if words else args.text(key)


def _flag_values(settings: Settings) -> dict[str, Value]:
    """Return the arguments of fields that have one of their own, if Megatron's default differs;
    those with a word for every layer are last."""
    values = ((field, attrgetter(field)(settings)) for field in FLAGS)
    found = {
        FLAGS[field]: KEYS["megatron"][field].words.get(value, value)
        for field, value in values
        if value != _read(NOTHING_SAID, field)
    }
    many = {key: (value,) for key, value in found.items() if flags_by_key()[key][0].many}
    return {key: value for key, value in found.items() if key not in many} | many


def settings_values(settings: Settings, *, gated: bool) -> dict[str, Value]:
    """Return the arguments that say settings, save for tp, pp and the vocabulary's padding.

    Parameters
    ----------
    gated: the model has SwiGLU; its fusion has a switch of its own.

    Raises
    ------
    SpecError: Megatron has no arguments for it.
    """
    if settings.schedule != USUAL:
        raise SpecError(f"settings.schedule: found {settings.schedule}, expected {USUAL}")
    values = given(
        ("hierarchical_context_parallel_sizes", settings.hierarchy, settings.hierarchy),
        ("sequence_parallel", True, settings.sequence_parallel),
        ("use_tp_pp_dp_mapping", True, settings.order == ORDERS[1]),
    )
    values = _flag_values(settings) | values | _quantised_values(settings)
    values |= _recompute_values(settings.recompute)
    values |= _offload_values(settings.offload)
    values |= given((settings.precision, True, settings.precision != "fp32"))
    return values | _optimizer_values(settings) | _kernel_values(settings, gated)


def _inner(args: MegatronArguments) -> int:
    sizes = args["hierarchical_context_parallel_sizes"]
    return int(sizes[0]) if isinstance(sizes, tuple) else 0


def _recompute(args: MegatronArguments) -> Recompute:
    granularity = granularity_of(args)
    none = args.text("recompute_method") == "block" and args["recompute_num_layers"] == 0
    if granularity == "none" or (granularity == "full" and none):
        return Recompute()
    if granularity == "full":
        return Recompute(
            granularity="full",
            method=args.text("recompute_method"),
            layers=args.whole("recompute_num_layers"),
            distribute=args.on("distribute_saved_activations"),
        )
    modules = args.words("recompute_modules") or ("core_attn",)
    if args.on("moe_layer_recompute") and "moe" not in modules:
        modules = (*modules, "moe")
    if MIXTURES in modules:  # with the norms that read them
        modules = tuple(name for name in modules if name != "layernorm")
    return Recompute(granularity="selective", modules=modules)


def _recompute_values(recompute: Recompute) -> dict[str, Value]:
    if recompute.granularity == "none":
        return {}
    values: dict[str, Value] = {"recompute_granularity": recompute.granularity}
    if recompute.granularity == "selective":
        again = {"mhc_recompute_layer_num": 1} if MIXTURES in recompute.modules else {}
        return values | {"recompute_modules": recompute.modules} | again
    values |= {"recompute_method": recompute.method, "recompute_num_layers": recompute.layers}
    if recompute.distribute:
        values["distribute_saved_activations"] = True
    return values


def _offload(args: MegatronArguments) -> Offload:
    """Return the activations that go to the host, of modules that the models read here have."""
    layers = max(0, args.whole("cpu_offloading_num_layers"))
    if layers or not args.on("fine_grained_activation_offloading"):
        return Offload(layers=layers)
    modules = tuple(word for word in args.words("offload_modules") if word in OFFLOADED)
    smallest = max(0, args.whole("min_offloaded_tensor_size"))
    return Offload(modules=modules, smallest=smallest) if modules else Offload()


def _offload_values(offload: Offload) -> dict[str, Value]:
    on = bool(offload.modules)
    return given(
        ("cpu_offloading_num_layers", offload.layers, offload.layers),
        ("fine_grained_activation_offloading", True, on),
        ("offload_modules", offload.modules, on),
        ("min_offloaded_tensor_size", offload.smallest, on and offload.smallest != 2**20),
    )


def _optimizer(args: MegatronArguments) -> OptimizerSettings:
    name = args.text("optimizer")
    if name == "soap":
        raise SpecError("--optimizer: found soap, expected one whose states are modelled, as adam")
    width = PRECISIONS[precision_of(args)]
    aware = args.on("use_precision_aware_optimizer")
    return OptimizerSettings(
        name=name,
        sharding=_sharding(args),
        gradient=_gradient(args),
        master=_master(args, aware) if width == 2 else 0,
        moments=_moments(args, name, aware),
        muon_tp_mode=_muon_mode(args),
        muon_steps=max(1, args.whole("muon_num_ns_steps")),
        offload=min(1.0, max(0.0, args.number("optimizer_offload_fraction")))
        if args.on("optimizer_cpu_offload")
        else 0,
        keeps_master=args.on("optimizer_cpu_offload") and not aware,
        overlap_offload=args.on("optimizer_cpu_offload")
        and args.on("overlap_cpu_optimizer_d2h_h2d"),
    )


def _muon_mode(args: MegatronArguments) -> str:
    """Return the way of Muon with divided matrices; of others nothing is said."""
    mode = args.text("muon_tp_mode")
    if args.text("optimizer") not in OF_MATRICES:
        return OptimizerSettings().muon_tp_mode
    if mode not in MUON_MODES:
        raise SpecError(f"--muon-tp-mode: found {mode}, expected {', '.join(MUON_MODES)}")
    return mode


def _sharding(args: MegatronArguments) -> str:
    if args.on("use_megatron_fsdp"):
        return FSDP[args.text("data_parallel_sharding_strategy")]
    if args.on("use_torch_fsdp2"):
        return "parameters" if args.on("torch_fsdp2_reshard_after_forward") else "gradients"
    sharded = args.on("use_distributed_optimizer") or args.text("optimizer") == "dist_muon"
    return "optimizer" if sharded else "none"


def _gradient(args: MegatronArguments) -> int:
    """Return bytes of a gradient in the buffer that micro-batches add up in."""
    precision = precision_of(args)
    if precision == "fp32" or args.on("accumulate_allreduce_grads_in_fp32"):
        return 2 if args.on("grad_reduce_in_bf16") and precision == "bf16" else 4
    if precision == "fp16":
        return 2
    # Megatron adds bf16 gradients up in 4 bytes unless told otherwise.
    return 2 if args.on("grad_reduce_in_bf16") or args["main_grads_dtype"] == "bf16" else 4


def _master(args: MegatronArguments, aware: bool) -> int:
    """Return bytes of the copy that is stepped.

    The precision-aware optimiser keeps of a bf16 parameter's copy only the 16 bits that the
    parameter lacks (`store_param_remainders`, on by default), unless the recipe of 8 bits scales
    by other than delayed maxima (`specs.training.STEPPED_IN_FULL`).
    """
    if not aware:
        return 4
    delayed = args.text("fp8_recipe") == "delayed"
    remainders = args.on("bf16") and not args.on("optimizer_cpu_offload") and delayed
    return 2 if remainders or args["main_params_dtype"] == "fp16" else 4


def _moments(args: MegatronArguments, name: str, aware: bool) -> int:
    if name == "sgd":
        return 4 if args.number("sgd_momentum") else 0
    if name in ONE_MOMENT:
        return 4
    if not aware:
        return 8
    return WIDTHS[args.text("exp_avg_dtype")] + WIDTHS[args.text("exp_avg_sq_dtype")]


def _optimizer_values(settings: Settings) -> dict[str, Value]:
    optimizer, precision = settings.optimizer, settings.precision
    fsdp = optimizer.sharding in FSDP_OF
    sharded = optimizer.sharding != "none"
    values = given(
        ("use_distributed_optimizer", True, sharded),
        ("use_megatron_fsdp", True, fsdp),
        ("data_parallel_sharding_strategy", FSDP_OF.get(optimizer.sharding), fsdp),
        ("ckpt_format", "fsdp_dtensor", fsdp),
        ("muon_tp_mode", optimizer.muon_tp_mode, optimizer.of_matrices),
        (
            "muon_num_ns_steps",
            optimizer.muon_steps,
            optimizer.of_matrices and optimizer.muon_steps != DEFAULTS.optimizer.muon_steps,
        ),
    )
    return values | state_values(optimizer, precision)


def state_values(optimizer: OptimizerSettings, precision: str) -> dict[str, Value]:
    """Return the arguments for bytes of gradients, copies and moments."""
    gradient, moments, offload = optimizer.gradient, optimizer.moments, optimizer.offload
    hosted = offload > 0 and not optimizer.keeps_master
    aware = optimizer.name == "adam" and (hosted or moments != 8 or (optimizer.master == 2))
    typed = aware and moments in MOMENTS and moments != 8
    first, second = MOMENTS.get(moments, ("", ""))
    half = aware and optimizer.master == 2 and (precision == "fp16" or offload)
    return given(
        ("grad_reduce_in_bf16", True, precision == "bf16" and gradient == 2),
        ("accumulate_allreduce_grads_in_fp32", True, precision == "fp16" and gradient == 4),
        ("sgd_momentum", 0.0, optimizer.name == "sgd" and moments == 0),
        ("use_precision_aware_optimizer", True, aware),
        ("exp_avg_dtype", first, typed),
        ("exp_avg_sq_dtype", second, typed),
        ("main_params_dtype", "fp16", half),
        ("optimizer_cpu_offload", True, offload),
        ("optimizer_offload_fraction", offload, offload and offload != 1),
        ("overlap_cpu_optimizer_d2h_h2d", True, offload and optimizer.overlap_offload),
    )


def _kernels(args: MegatronArguments) -> Kernels:
    local, recipe = local_of(args), recipe_of(args)
    number_format = args.text("fp4") or args.text("fp8")
    ends, graphs = bool(recipe) and args.on("first_last_layers_bf16"), graphs_of(args)
    unfused = local or args.text("attention_backend") in ("unfused", "local")
    activation = "bias_swiglu_fusion" if args.on("swiglu") else "bias_gelu_fusion"
    native = args.on(LOSS_FUSION) and args.text("cross_entropy_fusion_impl") != "te"
    return Kernels(
        implementation="local" if local else "transformer_engine",
        attention="unfused" if unfused else "flash",
        loss_kernel="native" if native else "te",
        fused_activation=args.on(activation),
        quantised=recipe,
        number_format=""
        if number_format == USUAL_FORMATS.get(recipe) or not recipe
        else number_format,
        quantised_parameters=bool(recipe)
        and args.on("fp4_param_gather" if recipe == "nvfp4" else "fp8_param_gather"),
        exact_first=args.whole("num_layers_at_start_in_bf16") if ends else 0,
        exact_last=args.whole("num_layers_at_end_in_bf16") if ends else 0,
        graphs=graphs,
        graphed=()
        if graphs in ("", "full_iteration")
        else tuple(name for name in graph_modules(args) if name in GRAPHED),
    )


def _quantised_values(settings: Settings) -> dict[str, Value]:
    kernels, recipe = settings.kernels, settings.kernels.quantised
    eight, four = recipe in FP8_RECIPES_OF, recipe == "nvfp4"
    number_format = kernels.number_format or USUAL_FORMATS.get(recipe)
    low, ends = kernels.quantised_parameters, kernels.exact_first + kernels.exact_last > 0
    # Their gather goes through the buffer of the gradients (`param_and_grad_buffer.py`).
    shared = recipe == "mxfp8" and low and settings.optimizer.overlap_parameters
    return given(
        ("fp8", number_format, eight),
        ("fp8_recipe", FP8_RECIPES_OF.get(recipe), eight and recipe != "fp8-delayed"),
        ("fp8_param_gather", True, eight and low),
        ("reuse_grad_buf_for_mxfp8_param_ag", True, shared),
        ("fp4", number_format, four),
        ("fp4_param_gather", True, four and low),
        ("first_last_layers_bf16", True, ends),
        ("num_layers_at_start_in_bf16", kernels.exact_first, ends and kernels.exact_first != 1),
        ("num_layers_at_end_in_bf16", kernels.exact_last, ends and kernels.exact_last != 1),
        ("cuda_graph_impl", kernels.graphs, kernels.graphs),
        ("cuda_graph_modules", kernels.graphed, kernels.graphed),
        # Its check of losses asks the device; scaled losses of fp16 go without it anyway.
        ("check_for_nan_in_loss_and_grad", False, kernels.graphs == "full_iteration"),
    )


def _kernel_values(settings: Settings, gated: bool) -> dict[str, Value]:
    kernels = settings.kernels
    local = kernels.implementation == "local"
    if local and kernels.attention != "unfused":
        raise SpecError(
            "kernels.attention: found flash with local modules, which have unfused attention in "
            "Megatron, expected kernels.implementation transformer_engine"
        )
    activation = "bias_swiglu_fusion" if gated else "bias_gelu_fusion"
    return given(
        ("transformer_impl", "local", local),
        ("attention_backend", "unfused", not local and kernels.attention == "unfused"),
        ("cross_entropy_fusion_impl", "te", FUSED_LOSS.read(settings) == "te"),
        (activation, False, not kernels.fused_activation),
    )
