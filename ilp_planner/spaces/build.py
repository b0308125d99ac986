"""From a cluster and a profile of layers to a problem that can be solved: checks, costs and
limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ilp_planner.errors import ProfileError, SpecError, UsageError
from ilp_planner.problem import Problem
from ilp_planner.profiles.amp import AmpProfile
from ilp_planner.profiles.metis import MetisProfile
from ilp_planner.specs.degrees import divisors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.costs.groups import GroupTables
    from ilp_planner.profiles.layers import LayerProfile
    from ilp_planner.spaces.amp.costs import AmpCosts
    from ilp_planner.spaces.base import Space
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.metis_cluster import MetisCluster

COST_MODELS = ("native", "metis", "amp")
SPACES = ("planner", "metis", "amp")
MEMORY_RULES = ("device", "metis")
PLACEMENTS = ("default", "free")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizes:
    """What Metis's files leave to its command line. None: not known.

    hidden: width of the layers. sequence: tokens of a sample. vocabulary: entries of the word
    embedding; 0 makes Metis's last cut free.
    """

    hidden: int | None = None
    sequence: int | None = None
    vocabulary: int | None = None

    def need(self, name: str) -> int:
        """Return a size.

        Raises
        ------
        UsageError: it is not known.
        """
        value: int | None = getattr(self, name)
        if value is None:
            raise UsageError(
                f"{name}: found nothing, expected a number (or `model`): "
                "a Metis profile does not say it"
            )
        return value


def build_group_problem(
    cluster: ClusterSpec,
    profile: LayerProfile | MetisProfile | AmpProfile,
    *,
    model: str,
    global_batch: int,
    cost_model: str = "native",
    sizes: ModelSizes | None = None,
    metis_cluster: MetisCluster | None = None,
    micro_batch_sizes: Sequence[int] = (),
    memory_limit: float | None = None,
    max_stages: int | None = None,
    max_tp: int | None = None,
    space: str = "",
    memory_rule: str = "device",
    placement: str = "default",
) -> Problem[Any]:
    """Check the inputs against each other and freeze them.

    Parameters
    ----------
    profile: as read; its rows may be under the cluster's `Device.profile` names.
    model: its name.
    sizes: of the model, where the profile is Metis's.
    metis_cluster: what Metis reads, where its files describe the cluster; derived from `cluster`
        otherwise.
    micro_batch_sizes: samples over all replicas to try; empty: every divisor of the global batch.
    memory_limit: bytes per device, at most the device's own memory; None: all of it.
    space: of plans; empty: AMP's for its cost model, otherwise the planner's.

    Raises
    ------
    SpecError, ProfileError, UsageError: what cannot be planned, and why.
    """
    space = space or ("amp" if cost_model == "amp" else "planner")
    _check_choices(cost_model, space, memory_rule, placement)
    limits = checked_limits(cluster, global_batch, memory_limit)
    if max_stages is not None and space != "planner":
        raise UsageError(f"max_stages: `space={space}` has pipelines of any length, found it set")
    if space == "amp":
        for name, value in (
            ("micro_batch_sizes", micro_batch_sizes),
            ("memory_limit", memory_limit),
        ):
            if value:
                raise UsageError(
                    f"{name}: found it with `space=amp`, which tries every micro-batch and has "
                    "no model of memory"
                )
    sizes = sizes or ModelSizes()
    costs, notes = _costs(
        cost_model, cluster, profile, sizes, metis_cluster, limits, max_tp, placement, global_batch
    )
    batches, remarks = micro_batch_counts(global_batch, micro_batch_sizes)
    top = max((tp for degrees in costs.degrees().values() for tp in degrees), default=0)
    if top < 1 or (max_tp is not None and max_tp < 1):
        raise ProfileError(f"{_source(profile)}: no rows of tp up to {max_tp}")
    if max_tp is not None and max_tp > top and cost_model != "metis":  # which says so itself
        remarks.append(f"tp above {top}: not profiled, left out")
    stages = min(cluster.device_count, len(costs.chain))
    return Problem(
        model=model,
        cluster=cluster,
        costs=costs,
        global_batch=global_batch,
        micro_batches=batches,
        memory_limits=limits,
        max_stages=stages if max_stages is None else min(stages, max_stages),
        max_tp=top if max_tp is None else min(top, max_tp),
        space=_space(space, memory_rule, placement),
        profile_source=_source(profile),
        notes=tuple(dict.fromkeys((*notes, *remarks))),
    )


def _space(space: str, memory_rule: str, placement: str) -> Space[Any, Any]:
    """Return the space of a name, with what was chosen of it."""
    if space == "metis":
        from ilp_planner.spaces.metis.space import MetisSpace

        return MetisSpace(summed=memory_rule == "metis")
    if space == "amp":
        from ilp_planner.spaces.amp.space import AmpSpace

        return AmpSpace(free=placement == "free")
    from ilp_planner.spaces.groups.space import GroupSpace

    return GroupSpace()


def checked_limits(
    cluster: ClusterSpec, global_batch: int, memory_limit: float | None
) -> dict[str, float]:
    """Check the batch and the limit, and return the bytes that each device type may use.

    Parameters
    ----------
    memory_limit: bytes per device; None: all of the device's own memory.

    Raises
    ------
    SpecError: not positive.
    """
    if global_batch < 1:
        raise SpecError(f"global batch size: must be at least 1, found {global_batch}")
    if memory_limit is not None and not memory_limit > 0:
        raise SpecError(f"memory limit: must be positive, found {memory_limit:.0f} bytes")
    return {
        name: min(float(cluster.device_types[name].memory), memory_limit or math.inf)
        for name in cluster.type_names
    }


def _check_choices(cost_model: str, space: str, memory_rule: str, placement: str) -> None:
    """Refuse names that are none, and combinations that mean nothing."""
    for name, found, known in (
        ("cost_model", cost_model, COST_MODELS),
        ("space", space, SPACES),
        ("memory_rule", memory_rule, MEMORY_RULES),
        ("placement", placement, PLACEMENTS),
    ):
        if found not in known:
            raise UsageError(f"{name}: expected one of {', '.join(known)}, found {found!r}")
    for own in ("metis", "amp"):
        if space == own and cost_model != own:
            raise UsageError(
                f"`space={own}`: expected `cost_model={own}`, whose space it is, found {cost_model}"
            )
    if cost_model == "amp" and space != "amp":
        raise UsageError(
            "`cost_model=amp`: expected `space=amp`, as it has costs for pipelines of equal "
            f"stages only, found {space}"
        )
    if memory_rule == "metis" and space != "metis":
        raise UsageError(
            f"`memory_rule=metis`: expected `space=metis`, which it is a rule of, found {space}"
        )
    if placement == "free" and cost_model != "amp":
        raise UsageError(
            f"`placement=free`: expected `cost_model=amp`, found {cost_model}: all others place "
            "their stages anyway"
        )


def _costs(
    cost_model: str,
    cluster: ClusterSpec,
    profile: LayerProfile | MetisProfile | AmpProfile,
    sizes: ModelSizes,
    metis_cluster: MetisCluster | None,
    limits: Mapping[str, float],
    max_tp: int | None,
    placement: str,
    global_batch: int,
) -> tuple[GroupTables | AmpCosts, tuple[str, ...]]:
    """Return the cost model, and remarks on what it is made of."""
    if cost_model == "amp":
        from ilp_planner.spaces.amp.costs import AmpCosts
        from ilp_planner.spaces.amp.degrees import amp_space

        if not isinstance(profile, AmpProfile):
            _refuse_profile(cost_model, profile)
        amp = AmpCosts(profile=profile, repaired=placement == "free")
        space = amp_space(amp, cluster, global_batch, max_tp=max_tp)
        return amp, (*profile.notes, *space.notes)
    if cost_model == "metis":
        if not isinstance(profile, MetisProfile):
            _refuse_profile(cost_model, profile)
        return _metis_costs(cluster, profile, sizes, metis_cluster, limits, max_tp)
    from ilp_planner.costs.layers import layer_costs
    from ilp_planner.profiles.device_names import for_cluster

    rows = for_cluster(_layer_profile(profile, sizes), cluster)
    notes = () if metis_cluster is None else metis_cluster.notes
    if rows.links is not None:
        # Every placement of a group has to be bounded, measured or not.
        notes += (
            f"{rows.source}: measured links count in tensor-parallel messages; gradient rings and "
            "sends between stages rest on the cluster's links",
        )
    return layer_costs(rows, cluster, limits), (*notes, *rows.notes)


def _metis_costs(
    cluster: ClusterSpec,
    profile: MetisProfile,
    sizes: ModelSizes,
    metis_cluster: MetisCluster | None,
    limits: Mapping[str, float],
    max_tp: int | None,
) -> tuple[GroupTables | AmpCosts, tuple[str, ...]]:
    from ilp_planner.spaces.metis.costs import MetisCosts
    from ilp_planner.spaces.metis.formulas import MetisFormulas
    from ilp_planner.specs.metis_cluster import metis_cluster_of

    costs = MetisCosts(
        formulas=MetisFormulas(
            profile=profile,
            cluster=metis_cluster_of(cluster) if metis_cluster is None else metis_cluster,
            hidden=sizes.need("hidden"),
            sequence=sizes.need("sequence"),
            vocabulary=sizes.need("vocabulary"),
            row_names={name: cluster.device_types[name].profile for name in cluster.type_names},
        ),
        max_tp=max_tp,
        limits=limits,
    )
    return costs, costs.notes


def _layer_profile(
    profile: LayerProfile | MetisProfile | AmpProfile, sizes: ModelSizes
) -> LayerProfile:
    """Return any profile in the planner's own terms."""
    if isinstance(profile, MetisProfile):
        from ilp_planner.profiles.metis_layers import metis_layer_profile

        hidden, sequence = sizes.need("hidden"), sizes.need("sequence")
        return metis_layer_profile(profile, hidden=hidden, sequence=sequence)
    if isinstance(profile, AmpProfile):
        from ilp_planner.profiles.amp import layer_profile

        return layer_profile(profile)
    return profile


def _refuse_profile(cost_model: str, profile: LayerProfile | MetisProfile | AmpProfile) -> NoReturn:
    expected = {"amp": "amp:FILE", "metis": "metis:FOLDER"}[cost_model]
    raise UsageError(
        f"`cost_model={cost_model}`: expected `profile={expected}`, which its formulas are made "
        f"for, found {_source(profile)}"
    )


def _source(profile: LayerProfile | MetisProfile | AmpProfile) -> str:
    prefix = "metis:" if isinstance(profile, MetisProfile) else ""
    return f"{prefix}{profile.source}"


def micro_batch_counts(
    global_batch: int, sizes: Sequence[int]
) -> tuple[tuple[int, ...], list[str]]:
    """Return the numbers of micro-batches to try, ascending, and what was left out."""
    if not sizes:
        return divisors(global_batch), []
    if min(sizes) < 1:
        raise SpecError(f"micro-batch size: must be at least 1, found {min(sizes)}")
    usable = sorted({global_batch // size for size in sizes if global_batch % size == 0})
    left = [str(size) for size in dict.fromkeys(sizes) if global_batch % size]
    if not usable:
        nearest = sizes[0] * max(1, round(global_batch / sizes[0]))
        raise SpecError(
            f"global batch size: {global_batch} is not divisible by micro-batch "
            f"{', '.join(left)}; {nearest} would be"
        )
    notes = [f"micro-batch {', '.join(left)}: does not divide {global_batch}, left out"]
    return tuple(usable), notes if left else []


def check_model_layers(profile: MetisProfile, layers: int, model: str) -> None:
    """Refuse a model with another number of layers than was profiled.

    Parameters
    ----------
    layers: of the model, embedding and head included. model: to blame.

    Raises
    ------
    ProfileError: with both numbers.
    """
    if layers != profile.layers:
        raise ProfileError(
            f"{profile.source}: profiled with {profile.layers} layers, embedding and head "
            f"included, found {layers} in {model}"
        )
