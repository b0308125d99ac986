"""The plan spaces by name, and the one that a request is for."""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import UsageError
from ilp_planner.base.peers import layer_profiles, peers
from ilp_planner.inputs.constraints import constraints_of, space_with
from ilp_planner.inputs.devices import beyond_memory
from ilp_planner.inputs.likeness import DEVICES
from ilp_planner.inputs.table import BY_NAME, INPUTS
from ilp_planner.inputs.tables import find_tables, records_in
from ilp_planner.specs.fabric import Fabric
from ilp_planner.specs.kernel_constants import FLASH_VERSION
from ilp_planner.specs.prices import with_prices
from ilp_planner.specs.training import RECOMPUTATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.inputs.request import Request
    from ilp_planner.spaces.training.runtime import Runtime
    from ilp_planner.specs.cluster import ClusterSpec


class SpaceEntry(NamedTuple):
    """The facts about a space before its import.

    build: `module:function`, or the function itself, from `InputFiles` to a problem.
    cost_models: with costs for its plans. options: parameters of a request that it has, beside the
    common ones. layers: its plans are of whole layers. constrained: `Constraints` hold for its
    plans; constraints on devices hold for plans of any space. some: constraints that hold if the
    others do not, and their possible values. limits: the alternative, out of `INSTEAD`. runtime:
    `module:name` of the training system of its plans; empty for the other spaces. memory: its costs
    have a model of memory.
    """

    build: str | Callable[[InputFiles], Problem[Any]]
    cost_models: tuple[str, ...]
    options: tuple[str, ...] = ()
    layers: bool = True
    constrained: bool = False
    some: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    limits: tuple[str, ...] = ()
    runtime: str = ""
    memory: bool = True


SPACES: dict[str, SpaceEntry] = {
    "operators": SpaceEntry(
        "ilp_planner.spaces.operators.build:build",
        ("native", "aceso"),
        ("max_stage_nodes",),
        layers=False,
        limits=("max_stages", "memory_limit"),
    ),
    "groups": SpaceEntry(
        "ilp_planner.spaces.groups.build:build",
        ("native", "metis"),
        ("shares", "stage_tp", "seats"),
        some={"recompute": (*RECOMPUTATIONS, "core_attn")},
        limits=("max_tp", "max_stages", "memory_limit"),
    ),
    **{
        name: SpaceEntry(**fields)
        for peer in peers().values()
        for name, fields in peer.spaces.items()
    },
    **{
        name: SpaceEntry(
            f"ilp_planner.spaces.training.{build}",
            ("native",),
            ("max_cp", "precision", "batching"),
            constrained=True,
            runtime=f"ilp_planner.spaces.training.{runtime}",
        )
        for name, build, runtime in (
            ("megatron", "build:build", "runtime:MEGATRON"),
            ("torchtitan", "torchtitan:build", "torchtitan:NEWEST"),
            ("torchtitan@0.2.2", "torchtitan:build_earlier", "torchtitan:EARLIER"),
            ("deepspeed", "deepspeed:build", "deepspeed:DEEPSPEED"),
        )
    },
}
# Spaces of what one training system runs.
RUNTIMES = tuple(name for name, entry in SPACES.items() if entry.runtime)
ALIASES = {"planner": "groups"}  # what spaces were called before
# Inputs that only some spaces have.
OPTIONS = tuple(
    row.name for row in INPUTS if any(row.name in entry.options for entry in SPACES.values())
)
LAYER_PARAMETERS = (*OPTIONS, "experiment", "max_tp", "hidden", "sequence", "vocabulary")
# A constraint, and what limits the plans of other spaces.
INSTEAD = {
    "tp": "max_tp",
    "pp": "max_stages",
    "headroom": "memory_limit",
}


def space_named(name: str) -> str:
    """Return today's name of a space; other texts as they are."""
    return ALIASES.get(name, name)


def runtime_named(name: str) -> Runtime:
    """Return the answers of one of `RUNTIMES` to a search."""
    module, _, attribute = SPACES[name].runtime.partition(":")
    found: Runtime = getattr(importlib.import_module(module), attribute)
    return found


def register(name: str, entry: SpaceEntry) -> None:
    """Add a space, so that requests can name it."""
    SPACES[name] = entry


def with_micro_batch(asked: Request, *, runtime: bool) -> Request:
    """Return a request with the micro-batch in its own field.

    runtime: the space is of one, if it is of a replica, as in the runtime's own words.
    """
    if not asked.micro_batch:
        return asked
    if not runtime:
        return replace(asked, micro_batch=(), micro_batch_sizes=asked.micro_batch)
    own = constraints_of({"micro_batch_size": asked.micro_batch})
    constraints = asked.constraints.with_(micro_batch_size=own.micro_batch_size)
    return replace(asked, micro_batch=(), constraints=constraints)


def build_problem(files: InputFiles) -> Problem[Any]:
    """Read all inputs of a request and build its problem.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    """
    space = space_of(files)
    files.request = with_micro_batch(files.request, runtime=bool(SPACES[space].runtime))
    build = SPACES[space].build
    if isinstance(build, str):
        module, _, function = build.partition(":")
        build = getattr(importlib.import_module(module), function)
    problem: Problem[Any] = build(files)
    if files.request.price:
        cluster = with_prices(problem.cluster, files.request.price)
        problem = replace(problem, cluster=cluster)
    files.compare_with_today()
    request = replace(
        files.request,
        files=files.held,
        space=space,
        global_batch=problem.global_batch,
        memory_limits=problem.limits_of_types,
    )
    remarks = () if files.model is None else files.model.remarks
    return replace(
        problem,
        spec=files.model,
        request=None if files.objects else request,
        files=files,
        notes=(
            *problem.notes,
            *remarks,
            *problem.cluster.notes,
            *without_effect(files, space, problem.cluster),
            *files.notes,
        ),
    )


def without_effect(files: InputFiles, space: str, cluster: ClusterSpec) -> Iterator[str]:
    """Yield a note on everything that was said and counts for nothing here."""
    asked, model = files.request, files.model
    yield from beyond_memory(cluster, asked.memory_limit)
    if cluster.fabric != Fabric() and not SPACES[space].runtime:
        yield (
            f"links.fabric of {cluster.name}: without effect, only plans of training systems "
            f"({', '.join(RUNTIMES)}) pass leaf switches"
        )
    for name in cluster.type_names:
        if (version := cluster.device_types[name].flash_attention) != FLASH_VERSION:
            yield (
                f"flash_attention {version} of {name}: without effect on the plans of a search, "
                "none of which asks for that package; it counts in launch lines that do"
            )
    costs = peers().get(asked.cost_model)
    if asked.vocabulary is not None and not (costs and costs.vocabulary):
        yield f"vocabulary {asked.vocabulary}: without effect, only Metis's costs need one"
    if model is not None and files.kind in model.profile and files.kind != "aceso":
        yield f"profile.{files.kind} of {model.name}: without effect, only Aceso's files need a key"
    estimated = files.kind == "analytic" and "profile" not in files.objects
    if model is None or (estimated and not SPACES[space].layers):
        return
    if model.micro_batch_sizes != model.architecture.micro_batch_sizes:
        yield (
            f"micro_batches of {model.name}: without effect, they are tried of estimated operators"
        )


def space_of(files: InputFiles) -> str:
    """Return the name of the space that a request is for, checked against its other fields.

    Raises
    ------
    UsageError: an unknown space, or a contradictory request.
    """
    asked = files.request
    models = tuple(dict.fromkeys(m for entry in SPACES.values() for m in entry.cost_models))
    named = {"space": tuple(SPACES), "cost_model": models}
    for row in INPUTS:
        said, known = getattr(asked, row.name), named.get(row.name, row.values)
        said = space_named(said) if row.name == "space" else said
        silent = () if row.usual is True else ("",)  # there is always a cost model
        if known and said not in (*silent, *known):
            name = row.name
            raise UsageError(f"{name}: found {said!r}, expected one of {', '.join(known)}")
    space = space_named(asked.space) or default_space(files)
    check_together(files, space)
    return space


def default_space(files: InputFiles) -> str:
    """Return the space of a request that names none: Megatron-LM's, if it runs the model on such a
    cluster and the times are estimated; otherwise of operators, if all devices are equal and costs
    and profile are of operators, and of whole layers elsewhere.

    Raises
    ------
    SpecError, ProfileError, UsageError: a file that cannot be used.
    """
    asked = files.request
    able = [name for name, entry in SPACES.items() if asked.cost_model in entry.cost_models]
    layers = [name for name in able if SPACES[name].layers]
    if "operators" not in able:
        return layers[0]
    if "megatron" in able and _for_megatron(files):
        return "megatron"
    reason = _of_layers(files)
    if not reason:
        return "operators"
    if not layers:
        raise UsageError(
            f"`cost_model={asked.cost_model}`: found {reason}, expected `cost_model=native`; or "
            "what has operators: equal devices, a model of family gpt, t5 or resnet, and "
            "`profile=aceso:FOLDER` or analytic"
        )
    return layers[0]


def _for_megatron(files: InputFiles) -> bool:
    """Tell whether a request without a space is about Megatron-LM: a decoder on nodes that it can
    be launched on, estimated or measured layer by layer in a table of ours."""
    from ilp_planner.specs.decoder import as_decoder

    if {"hostfile", "clusterfile", "profile"} & {*_hosts(files), *files.objects}:
        return False
    measured = files.kind == "table" and files.model is not None and _rows(files) == {"layer"}
    if files.kind != "analytic" and not measured:
        return False
    decoder = as_decoder(files.model_or_default().architecture)
    return decoder is not None and files.cluster_file().equal_nodes


def _hosts(files: InputFiles) -> set[str]:
    """Return the files of Metis's that describe the devices."""
    return {kind for kind in ("hostfile", "clusterfile") if kind in files.request.files}


def _rows(files: InputFiles) -> set[str]:
    """Return whether a native table has rows of operators, of layers or both."""
    place = find_tables(files.path, files.recorded("profile"), files.folders)[0]
    return set(records_in(place)) & {"operator", "layer"}


def _is_decoder(files: InputFiles) -> bool:
    """Tell whether a model with samples of any length is named."""
    named = "model" in files.request.files or "model" in files.objects
    return named and files.model is not None and files.model.family == "decoder"


def _of_layers(files: InputFiles) -> str:
    """Return the input of whole layers: the profile, devices that differ, or a model without
    estimates of operators (`family = "decoder"`); empty: nothing."""
    from ilp_planner.costs.profiles.table import Profile

    given = files.objects.get("profile")
    if given is not None:
        return "" if isinstance(given, Profile) else "a profile of whole layers"
    asked = files.request
    if files.kind in layer_profiles():
        return f"{asked.profile}, which is of whole layers"
    for kind in sorted(_hosts(files), reverse=True):
        return f"a `{kind}`, whose devices are planned in whole layers"
    types = files.cluster[0].type_names
    if len(types) > 1:
        return f"devices that differ ({', '.join(types)}), which are planned in whole layers"
    if files.kind == "table":
        rows = _rows(files)
        if len(rows) < 2:
            return f"{asked.profile}, which is of whole layers" if "layer" in rows else ""
    model = files.model
    if model is None or files.kind == "aceso" or model.family != "decoder":
        return ""
    return f"{model.name} of family decoder, which is planned in whole layers"


def check_together(files: InputFiles, space: str) -> None:
    """Refuse contradictory requests.

    Raises
    ------
    UsageError: with the contradiction and a repair.
    """
    asked, entry, named = files.request, SPACES[space], files.request.files
    if asked.cost_model not in entry.cost_models:
        own = next(n for n, other in SPACES.items() if asked.cost_model in other.cost_models)
        expected = " or ".join(f"`cost_model={name}`" for name in entry.cost_models)
        raise UsageError(
            f"`space={space}`: expected {expected}, which has costs for its plans, found "
            f"{asked.cost_model}, which has them for `space={own}`"
        )
    others = [name for name in LAYER_PARAMETERS if name not in entry.options]
    layered = [name for name in others if getattr(asked, name) not in (None, "")]
    if layered and not entry.layers:
        of = next((n for n, one in SPACES.items() if layered[0] in one.options), "groups")
        raise UsageError(
            f"{layered[0]}: found operators to plan, expected whole layers: `space={of}` plans "
            "these"
        )
    for option in OPTIONS:
        value = getattr(asked, option)
        if value and value != BY_NAME[option].usual and option not in entry.options:
            own, its = next(pair for pair in SPACES.items() if option in pair[1].options)
            able = asked.cost_model in its.cost_models
            also = "" if able else f" with `cost_model={its.cost_models[0]}`"
            raise UsageError(f"`{option}={value}`: expected `space={own}`{also}, found {space}")
    of_plans = asked.constraints.but(DEVICES).texts
    for name, text in () if entry.constrained else of_plans.items():
        values = entry.some.get(name, ())
        if {*text.split(",")} <= {*values}:
            continue
        own = space_with(name, text)
        instead = f"`{INSTEAD[name]}`" if INSTEAD.get(name) in entry.limits else ", ".join(values)
        have = f", which has {instead}" if instead else ""
        raise UsageError(f"`{name}={text}`: expected `space={own}`, found {space}{have}")
    if asked.placement and "placement" not in entry.options:
        raise UsageError(
            f"`placement={asked.placement}`: found it with `space={space}`, expected none: a "
            "choice of `space=amp` alone"
        )
    if asked.memory_rule and not entry.memory:
        raise UsageError(
            f"`memory_rule={asked.memory_rule}`: found it with `cost_model={asked.cost_model}`, "
            "which has no model of memory, expected none"
        )
    for kind in ("hostfile", "clusterfile"):
        if kind in named and not entry.layers:
            raise UsageError(
                f"`{kind}`: found it with `space={space}`, which has equal devices, expected a "
                "`cluster`; `space=groups` plans whole layers on the nodes of a `hostfile`"
            )
        for name in DEVICES:
            if kind in named and name in asked.constraints.texts:
                text = asked.constraints.texts[name]
                raise UsageError(
                    f"`{name}={text}`: found a `{kind}`, expected a `cluster`, or a `{kind}` with "
                    "fewer nodes"
                )
        if kind in named and "cluster" in named:
            raise UsageError(f"`{kind}`: found `cluster` too, expected one of the two")
    if files.kind == "amp" and "clusterfile" in named:
        raise UsageError(
            "`clusterfile`: found an amp:FILE, which says what its nodes are, expected only a "
            "`hostfile`"
        )
    if asked.experiment and files.kind != "amp":
        raise UsageError(f"experiment: expected `profile=amp:FILE`, found {asked.profile}")
    for name in ("hidden", "sequence", "vocabulary"):
        sized = files.kind in ("metis", "table") or "profile" in files.objects
        if getattr(asked, name) is None or sized:
            continue
        if name != "sequence" or files.kind != "analytic" or not _is_decoder(files):
            raise UsageError(
                f"{name}: expected `profile=metis:FOLDER` or FILE.csv of whole layers, which may "
                f"not say it, found {asked.profile}"
            )
