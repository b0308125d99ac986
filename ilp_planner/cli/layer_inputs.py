"""From options, or from what a saved plan recorded, to a problem of whole layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ilp_planner.cli.inputs import check_unchanged, find_model, plan_folders
from ilp_planner.cli.layer_checks import check_megatron_options, check_options, refuse_model
from ilp_planner.cli.layer_files import LayerFiles
from ilp_planner.cli.layer_profiles import (
    amp_experiment,
    group_profile,
    metis_profile,
    native_table,
    table_profile,
)
from ilp_planner.cli.options import DEFAULT_CLUSTER, DEFAULT_GLOBAL_BATCH
from ilp_planner.cli.table_inputs import find_tables, records_in
from ilp_planner.cli.values import split_profile
from ilp_planner.errors import PlanError, ProfileError, UsageError
from ilp_planner.library import find_spec

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.formats.saved_groups import GroupInputs, SavedGroups
    from ilp_planner.problem import Problem
    from ilp_planner.profiles.amp import AmpProfile
    from ilp_planner.profiles.layers import LayerProfile
    from ilp_planner.profiles.metis import MetisProfile

LAYER_PROFILES = ("metis", "amp")
LAYER_COSTS = ("metis", "amp")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCase:
    """A problem of whole layers, and the inputs that it was built from, with hashes."""

    problem: Problem[Any]
    inputs: GroupInputs


def plans_layers(asked: GroupInputs) -> bool:
    """Tell whether to plan whole layers: when devices differ, when costs or profile are of layers,
    or when the model's operators have no estimates (`family = "decoder"`).

    Raises
    ------
    SpecError, UsageError: a file or an option that cannot be used.
    """
    kind, path = split_profile(asked.files["profile"].name)
    if kind in LAYER_PROFILES or asked.cost_model in LAYER_COSTS or asked.space:
        return True
    if "hostfile" in asked.files or "clusterfile" in asked.files:
        return True
    if asked.cost_model != "native":
        return False
    from ilp_planner.specs.cluster_reader import read_cluster

    name = asked.name("cluster") or DEFAULT_CLUSTER
    if len(read_cluster(find_spec(name, "clusters")).type_names) > 1:
        return True
    named = asked.name("model")
    if kind == "table":
        found = records_in(find_tables(path)[0])
        if "operator" not in found or "layer" not in found:
            return "layer" in found
    return (
        named is not None
        and kind in ("analytic", "table")
        and find_model(named)[0].family == "decoder"
    )


def build_layer_case(asked: GroupInputs, folders: tuple[Path, ...] = ()) -> LayerCase:
    """Read all inputs and build the problem.

    Parameters
    ----------
    asked: where its files have hashes, take of several files that a name may mean the one with that
        content.
    folders: where relative paths may begin, besides the current folder.

    Raises
    ------
    SpecError, ProfileError, UsageError: what cannot be planned, and why.
    """
    files = LayerFiles(asked, folders)
    check_options(files)
    return megatron_case(files) if asked.space == "megatron" else group_case(files)


def rebuild_layer_case(
    saved: SavedGroups, file: Path, *, accept_changed: bool = False
) -> LayerCase:
    """Build the problem of a saved plan again, from its inputs.

    Parameters
    ----------
    accept_changed: judge by the inputs as they are now.

    Raises
    ------
    PlanError: an unknown space, or an input is not what it was when the plan was saved.
    SpecError, ProfileError: an input is not there or cannot be used.
    """
    from ilp_planner.spaces.registry import SPACES

    if saved.inputs.space and saved.inputs.space not in SPACES:
        raise PlanError(
            f"{file}: inputs.space: found {saved.inputs.space!r}, "
            f"expected one of {', '.join(SPACES)}"
        )
    case = build_layer_case(saved.inputs, plan_folders(file))
    if not accept_changed:
        for kind, then in saved.inputs.files.items():
            check_unchanged(file, kind, then, case.inputs.files[kind])
    return case


def check_num_layers(problem: Problem[Any], layers: int | None) -> None:
    """Refuse another number of layers than `--num-layers` says.

    Raises
    ------
    ProfileError: with the number that would do.
    """
    found = len(problem.costs.chain)
    if layers is not None and layers != found:
        raise ProfileError(
            f"{problem.profile_source}: --num-layers: found {layers}, expected {found}, which the "
            "profile has, embedding and head included"
        )


def group_case(files: LayerFiles) -> LayerCase:
    """Build the problem of planning groups of devices."""
    from ilp_planner.spaces.build import build_group_problem

    asked = files.asked
    if files.kind == "amp":
        refuse_model(files)
        experiment = amp_experiment(files)
        profile, name = experiment.profile, experiment.profile.model.name
        cluster, metis = experiment.cluster, None
        batch, sizes = asked.global_batch or experiment.global_batch, None
        source: AmpProfile | MetisProfile | LayerProfile = profile
    else:
        cluster, metis = files.cluster()
        batch = asked.global_batch or DEFAULT_GLOBAL_BATCH
        source, name, sizes = group_profile(files, cluster, batch)
    problem = build_group_problem(
        cluster,
        source,
        model=name,
        global_batch=batch,
        cost_model=asked.cost_model,
        sizes=sizes,
        metis_cluster=metis,
        micro_batch_sizes=asked.micro_batch_sizes,
        memory_limit=asked.memory_limit,
        max_stages=asked.max_stages,
        max_tp=asked.max_tp,
        space=asked.space,
        memory_rule=asked.memory_rule or "device",
        placement=asked.placement or "default",
    )
    inputs = replace(
        asked,
        files=files.held,
        global_batch=batch,
        space=problem.space,
        memory_rule=problem.memory_rule,
        placement=problem.placement,
    )
    return LayerCase(problem=problem, inputs=inputs)


def megatron_case(files: LayerFiles) -> LayerCase:
    """Build the problem of planning for Megatron-LM."""
    from ilp_planner.spaces.megatron.build import build_megatron_problem

    asked = files.asked
    check_megatron_options(files)
    cluster, model = files.cluster_file(), files.model()
    if model is None:
        raise UsageError(
            "--model: found none, expected the model that was profiled: --runtime megatron "
            "needs its dimensions"
        )
    profile = None
    if files.kind == "metis":
        from ilp_planner.profiles.metis_layers import metis_layer_profile

        rows, _, sizes = metis_profile(files, model)
        profile = metis_layer_profile(
            rows, hidden=sizes.need("hidden"), sequence=sizes.need("sequence")
        )
    elif files.kind == "table":
        profile = table_profile(files, native_table(files), cluster, model)
    else:
        files.keep("profile", "")
    batch = asked.global_batch or DEFAULT_GLOBAL_BATCH
    problem = build_megatron_problem(
        cluster,
        model,
        global_batch=batch,
        micro_batch_sizes=asked.micro_batch_sizes,
        memory_limit=asked.memory_limit,
        max_stages=asked.max_stages,
        max_tp=asked.max_tp,
        max_cp=asked.max_cp,
        profile=profile,
    )
    inputs = replace(
        asked,
        files=files.held,
        global_batch=batch,
        memory_rule=problem.memory_rule,
        placement=problem.placement,
    )
    return LayerCase(problem=problem, inputs=inputs)
