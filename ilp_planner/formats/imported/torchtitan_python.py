"""torchtitan's configurations in Python, as of its release 0.3.0: a function of a registry, read
and never run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.imported.python_config import Made, PythonFile, Unknown, flat_keys, unnamed
from ilp_planner.formats.imported.rows import Arguments, Says, each, only, switch
from ilp_planner.formats.imported.table import Reading, System, dotted_option
from ilp_planner.formats.imported.torchtitan import SYSTEM as OF_TOML
from ilp_planner.formats.imported.torchtitan import finish, of_columns
from ilp_planner.formats.megatron.launchers import Open
from ilp_planner.settings.keys import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.base.files import Document
    from ilp_planner.formats.imported.words import Files

RUNTIME = "torchtitan"
ROOT = "Trainer.Config"
# Where torchtitan looks for the module that `--module` names; the first that is there.
PLACES = (
    "{0}/config_registry.py", "{0}.py", "torchtitan/models/{0}/config_registry.py",
    "torchtitan/experiments/{0}/config_registry.py",
)  # fmt: skip
POLICIES = {"FullAC": "full", "SelectiveAC": "selective"}
BUILDERS = ("_build_llama3_layers", "_build_qwen3_layers")
(QUANTISED,) = (key for key in KEYS[RUNTIME].values() if key.name == "components.quantization")


def module_pairs(words: Sequence[str], files: Files) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a launch with `--module` and `--config`, and then its own.

    Raises
    ------
    SpecError: the module is not here, or has no such configuration.
    """
    said: dict[str, str] = {}
    rest = list(words)
    while rest:
        if not (word := rest.pop(0)).startswith("--"):
            raise SpecError(f"{word!r:.80}: expected an option that begins with --")
        said |= [dotted_option(word, rest)]
    module = said.pop("module", "").replace(".", "/")
    folder = files.folder
    around = [folder, *folder.resolve().parents[:3], *files.modules, Path()]
    named = (here / place.format(module) for place in PLACES for here in around)
    found = next((path for path in named if files.is_there(path)), None)
    if found is None:
        raise SpecError(
            f"--module: found {module or 'none'}, whose configurations are not here, expected "
            f"them in {folder} or in torchtitan's folder, the current one"
        )
    from ilp_planner.base.yaml_files import scalar

    pairs = dict(python_keys(files.document(found), said.pop("config", "")))
    yield from (pairs | {key: scalar(value) for key, value in said.items()}).items()


def python_keys(document: Document, chosen: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys of a configuration of a file.

    Parameters
    ----------
    chosen: the function; empty: the only one that returns a configuration.

    Raises
    ------
    SpecError: no Python, or no such function; or it does not return what can be read.
    """
    file = PythonFile(document)
    names = file.configurations(ROOT)
    if not chosen and len(names) == 1:
        chosen = names[0]
    if chosen not in names:
        found = chosen or f"{len(names)} functions that return {ROOT}"
        raise SpecError(
            f"{document.name}: found {found}, expected one of them: --set config=NAME: "
            f"{', '.join(names)}"
        )
    made = file.result(chosen)
    if not isinstance(made, Made):
        raise SpecError(
            f"{document.name}: line {made.line}: {chosen} returns {made.text}, which only running "
            f"it would tell, expected {ROOT}(...)"
        )
    if (more := unnamed(made)) is not None:
        raise SpecError(
            f"{document.name}: line {more.line}: found {more.text}, which only running it would "
            "tell, expected each value with its name"
        )
    yield "config", chosen
    spec = made.values.pop("model_spec", None)
    made.values.setdefault("activation_checkpoint", Made("SelectiveAC.Config"))
    family = Path(document.name).parent.name
    for key, value in (*flat_keys(made), *_model(spec, family)):
        yield key, _said(key, value, document.name)


def _model(spec: Any, folder: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a model: of torchtitan's own by name, or of one that the file builds."""
    if not isinstance(spec, Made):
        yield "model.flavor", spec
        return
    family = spec.name.rpartition(".")[0].rpartition(".")[2] or folder
    own, named = (spec.values.pop(key, None) for key in ("model", "flavor"))
    flavor = spec.arguments.pop(0) if spec.arguments else named
    if own is None:
        yield "model.name", family
        yield "model.flavor", flavor
    elif isinstance(own, Made):
        yield "model.class", unnamed(own) or own.kind
        yield from flat_keys(own, "model.")
    else:
        yield "model.class", own
    converters = spec.values.pop("converters", None)
    if (more := unnamed(spec)) is not None:
        yield "model.flavor", more
    yield from flat_keys(Made("", [], spec.values), "model.")
    if converters:
        yield "converters", converters
    # Lists of names of modules: those of all layers are what a converter usually has.
    for one in converters if isinstance(converters, list) else ():
        names = one.values.get("fqns", ["layers"]) if isinstance(one, Made) else ["layers"]
        if names != ["layers"]:
            yield "converters.fqns", names
        if isinstance(one, Made):
            others = {key: value for key, value in one.values.items() if key != "fqns"}
            yield from flat_keys(Made("", [], others), "converters.")
            if (more := unnamed(one)) is not None:
                yield "converters", more


def _said(key: str, value: Any, name: str) -> Any:
    """Return a value as keys have it; one that is not known is open."""
    if unknown := next((one for one in leaves(value) if isinstance(one, Unknown)), None):
        message = f"{key}: found {unknown.text}, which only running it would tell, expected a value"
        return Open(key, message, f"--set {key}=VALUE", f"{name}: line {unknown.line}: ")
    if key == "activation_checkpoint.class":
        return POLICIES.get(value, value)
    if value is None and key in ("activation_checkpoint", "model.layers.attention.qk_norm"):
        return "none"
    if isinstance(value, list) and any(isinstance(one, Made) for one in value):
        return ", ".join(one.kind if isinstance(one, Made) else str(one) for one in value)
    if isinstance(value, Made):  # of the model, where its parts are
        return value.kind
    return value


def leaves(value: Any) -> Iterator[Any]:
    """Yield the values in lists in one another."""
    for one in value if isinstance(value, list) else ():
        yield from leaves(one)
    if not isinstance(value, list):
        yield value


def _heads(value: Any) -> Arguments:
    return {"group_query_attention": True, "num_query_groups": value}


def _converters(value: Any) -> Arguments:
    by_class = {word: name for name, word in QUANTISED.words.items()}
    names = str(value).split(", ")
    if "LoRAConverter" in names:
        raise ValueError("none: adapters, which train few parameters, are not modelled")
    if len(names) != 1 or names[0] not in by_class:
        raise ValueError(f"one of {', '.join(by_class)}, whose products are modelled")
    return {f"settings.{QUANTISED.field}": by_class[names[0]]}


def _finish(reading: Reading) -> None:
    """Say also that CUDA graphs replay the passes, unless they are turned off."""
    finish(reading)
    if str(reading.given.get("training.disable_cuda_graphs")).lower() != "true":
        reading.say("settings.kernels.graphs", "full_iteration", "training.disable_cuda_graphs")


LAYERS = "model.layers"
MODE = OF_TOML.rows["activation_checkpoint.mode"]
ROWS: dict[str, Says] = {
    **{key: row for key, row in OF_TOML.rows.items() if key not in (
        "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option",
        "model.converters",
    )},
    **of_columns(RUNTIME),
    "activation_checkpoint": MODE,
    # whole sections, where what they are is not known
    **dict.fromkeys(("parallelism", "training", "compile"), only()),
    "activation_checkpoint.class": MODE,
    "config": lambda value: {},
    "converters": _converters,
    "converters.fqns": only(["layers"], otherwise='["layers"]: others are not modelled'),
    "training.disable_cuda_graphs": lambda value: {},
    "model.class": only("Llama3Model", "Qwen3Model", otherwise="a model of Llama or Qwen3"),
    # arguments of `model_registry`
    "model.num_mtp_layers": only(0, otherwise="0: layers of multi-token prediction are not read"),
    "model.moe_comm_backend": only("standard", otherwise="standard: others are not modelled here"),
    "model.tp_gemm_backend": only("default", otherwise="default: others are not modelled"),
    "model.dim": "hidden_size",
    "model.vocab_size": "padded_vocab_size",
    "model.enable_weight_tying": switch({}, {"untie_embeddings_and_output_weights": True}),
    f"{LAYERS}.class": {
        BUILDERS[0]: {"swiglu": True, "normalization": "RMSNorm", "add_bias_linear": False,
                      "position_embedding_type": "rope"},
        BUILDERS[1]: {"swiglu": True, "normalization": "RMSNorm", "add_bias_linear": False,
                      "position_embedding_type": "rope", "qk_layernorm": True},
    },
    f"{LAYERS}.n_layers": "num_layers",
    f"{LAYERS}.n_heads": "num_attention_heads",
    f"{LAYERS}.n_kv_heads": _heads,
    f"{LAYERS}.head_dim": "kv_channels",
    f"{LAYERS}.hidden_dim": "ffn_hidden_size",
    f"{LAYERS}.attention.qk_norm": each(("none",), {"qk_layernorm": False}),
    f"{LAYERS}.attention.qkv_linear.wqkv.bias": switch({"add_qkv_bias": True}),
    f"{LAYERS}.rope.theta": lambda value: {"rotary_base": int(value)},
}  # fmt: skip

SYSTEM = OF_TOML._replace(
    rows=ROWS,
    aside=(
        *OF_TOML.aside, "loss*", "dataloader*", "validator*", "metrics*", "profiler*", "*.class",
        "hf_assets_path", "lr_scheduler*", "optimizer*", "checkpoint*", "training.*",
        "model.attn_backend", "model.eps", "model.norm.*", "model.lm_head.*", "dump_folder",
        "model.tok_embeddings.*", f"{LAYERS}.rope.*", f"{LAYERS}.attn_backend", f"{LAYERS}.dim",
        "parallelism.spmd_backend", "debug*", "comm*", "activation_checkpoint.*",
    ),
    finish=_finish,
    runtime=RUNTIME,
)  # fmt: skip
assert isinstance(SYSTEM, System)
