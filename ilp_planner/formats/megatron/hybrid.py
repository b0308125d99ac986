"""Hybrids in Megatron-LM's arguments: patterns of layers, Mamba-2, gated delta nets.

Layers of one block are a pattern (`--hybrid-layer-pattern`), which has the stages of the pipeline
and the layers of multi-token prediction as well (`hybrid_layer_allocation.py` of `megatron.core`).
Layers of a gated delta net and an MLP or experts are those of a transformer with another attention
(`--experimental-attention-variant`, `--linear-attention-freq`).
"""

from typing import Any

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.flags import Value
from ilp_planner.formats.megatron.values import PROGRAM, MegatronArguments, given
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import DeltaNet, Mamba
from ilp_planner.specs.layer_kinds import BY_LETTERS, DELTA, LAYER_KINDS, write_pattern
from ilp_planner.specs.pipeline_layout import PipelineLayout, split_layout

PATTERN, EARLIER = "hybrid_layer_pattern", "hybrid_override_pattern"
PIPE, AHEAD = "|", "/"
PREDICTS = "*E"
SPARSE = "dsa"  # the variant of attention to keys that an indexer chooses
POOLED = "dsv4_hybrid"  # that of attention to pooled keys
VARIANT, FREQUENCY = "experimental_attention_variant", "linear_attention_freq"
MAMBA_KEYS = {
    "state": "mamba_state_dim", "head": "mamba_head_dim", "groups": "mamba_num_groups",
}  # fmt: skip
DELTA_KEYS = {
    "key_heads": "linear_num_key_heads", "value_heads": "linear_num_value_heads",
    "key": "linear_key_head_dim", "value": "linear_value_head_dim",
    "kernel": "linear_conv_kernel_dim",
}  # fmt: skip
STACK = ("megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec")


def pattern_of(args: MegatronArguments) -> str:
    """Return the pattern of a launch line, with pipes and slashes; empty for none."""
    return args.text(PATTERN) or args.text(EARLIER)


def program_of(args: MegatronArguments) -> str:
    """Return the program of Megatron-LM that trains such a model."""
    return "pretrain_hybrid.py" if pattern_of(args) else PROGRAM


def layers_in(pattern: str) -> int:
    """Return the layers of a pattern, those of multi-token prediction aside."""
    return len(pattern.partition(AHEAD)[0].replace(PIPE, ""))


def hybrid_of(args: MegatronArguments, layers: int, experts: bool) -> dict[str, Any]:
    """Return the fields of a `Decoder` that say its layers.

    Raises
    ------
    SpecError: a layer is of no kind, or there are others than the model has.
    """
    whole = pattern_of(args)
    if not whole:
        return _delta_of(args, layers, experts)
    flag = f"--{(PATTERN if args.text(PATTERN) else EARLIER).replace('_', '-')}"
    main, _, ahead = whole.partition(AHEAD)
    letters = main.replace(PIPE, "")
    one = {kind.letters for kind in LAYER_KINDS if kind.blocks == 1}
    if unknown := sorted(set(letters) - one):
        expected = " ".join(sorted(one))
        raise SpecError(f"{flag}: found layers {', '.join(unknown)}, expected {expected}")
    if args.whole("num_layers") not in (0, len(letters)):
        raise SpecError(
            f"{flag}: found {len(letters)} layers, expected --num-layers ({args['num_layers']})"
        )
    if ("E" in letters) != experts:
        have = f"layers of experts (E) in {letters}" if "E" in letters else f"none in {letters}"
        count = args["num_experts"] or "none"
        raise SpecError(
            f"--num-experts: found {count}, and {have} of {flag}: expected both or neither"
        )
    depths = ahead.split(AHEAD) if ahead else []
    if set(depths) - {PREDICTS}:
        raise SpecError(f"{flag}: found prediction by {ahead}, expected {PREDICTS} each")
    found: dict[str, Any] = {"pattern": letters}
    if "M" in letters:
        sizes: dict[str, Any] = {name: args.whole(key) for name, key in MAMBA_KEYS.items()}
        heads = args.whole("mamba_num_heads") or 2 * args.whole("hidden_size") // sizes["head"]
        found["mamba"] = Mamba(heads=heads, **sizes)
    if "G" in letters:
        found["delta"] = _delta(args)
    if depths:
        found["prediction_layers"] = len(depths)
    return found


def _delta(args: MegatronArguments) -> DeltaNet:
    return DeltaNet(**{name: args.whole(key) for name, key in DELTA_KEYS.items()})


def _delta_of(args: MegatronArguments, layers: int, experts: bool) -> dict[str, Any]:
    """Return the fields of layers with gated delta nets in place of attention."""
    variant, frequency = args.text(VARIANT), args[FREQUENCY]
    if variant in ("", SPARSE, POOLED) and not frequency:
        return {}
    if variant != "gated_delta_net":
        expected = "gated_delta_net" if frequency else f"gated_delta_net or {SPARSE}"
        raise SpecError(f"--experimental-attention-variant: found {variant or 'none'}, expected "
                        f"{expected}")  # fmt: skip
    if isinstance(frequency, tuple):
        linear = tuple(bool(entry) for entry in frequency)
    elif isinstance(frequency, int) and frequency:
        linear = tuple((i + 1) % frequency > 0 for i in range(layers))
    else:
        raise SpecError("--linear-attention-freq: found none, expected the layers with delta nets")
    if len(linear) != layers:
        raise SpecError(
            f"--linear-attention-freq: found {len(linear)} entries, expected --num-layers "
            f"({layers})"
        )
    inner = "E" if experts else "-"
    kinds = tuple(BY_LETTERS[f"{'G' if one else '*'}{inner}"] for one in linear)
    return {"pattern": write_pattern(kinds), "delta": _delta(args)} if any(linear) else {}


def hybrid_values(model: Decoder) -> dict[str, Value]:
    """Return the arguments that say a hybrid's layers."""
    if not model.pattern or model.compressed:
        return {}
    kinds = [LAYER_KINDS[kind] for kind in model.layer_kinds]
    found: dict[str, Value] = {}
    if kinds[0].blocks == 1:
        found["spec"] = STACK
        found[PATTERN] = model.pattern + model.prediction_layers * f"{AHEAD}{PREDICTS}"
    else:
        found[VARIANT] = "gated_delta_net"
        found[FREQUENCY] = tuple(int(kind.mixer == DELTA) for kind in kinds)
    for mixer, keys in ((model.mamba, MAMBA_KEYS), (model.delta, DELTA_KEYS)):
        if mixer is not None:
            found |= {key: getattr(mixer, name) for name, key in keys.items()}
    heads = model.mamba.heads if model.mamba else 0
    return found | given(("mamba_num_heads", heads, heads))


def piped_stages(args: MegatronArguments) -> int:
    """Return the stages that a pattern's pipes say; 0 if it has none."""
    main = pattern_of(args).partition(AHEAD)[0]
    return main.count(PIPE) + 1 if PIPE in main else 0


def hybrid_layout(args: MegatronArguments, pp: int, predictions: int) -> PipelineLayout | None:
    """Return the layout that a pattern's pipes say; None if it has none."""
    main = pattern_of(args).partition(AHEAD)[0]
    if PIPE not in main:
        return None
    stages = [len(stage) for stage in main.split(PIPE)]
    if len(stages) % pp:
        raise ValueError(f"{len(stages)} stages of the pattern are no multiple of {pp} ranks")
    return split_layout(stages, prediction_layers=predictions)


def with_pipes(values: dict[str, Value], layout: PipelineLayout) -> dict[str, Value]:
    """Return the arguments of a hybrid with its pipeline in the pattern."""
    if len(layout.stages) == 1:
        return values
    values.pop("num_virtual_stages_per_pipeline_rank", None)
    pattern = str(values[PATTERN])
    main, slash, ahead = pattern.partition(AHEAD)
    stages, start = [], 0
    for stage in layout.stages:
        stages.append(main[start : start + stage.layers])
        start += stage.layers
    values.pop("pipeline_model_parallel_layout", None)
    return values | {PATTERN: PIPE.join(stages) + slash + ahead}
