"""From the name of a profile to times and memory of operators or of whole layers, and to sizes that
it does not say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ilp_planner.base.errors import UsageError
from ilp_planner.base.parts import part
from ilp_planner.base.peers import layer_profiles
from ilp_planner.inputs.tables import find_tables, planned_layers, read_tables, wanted_rows

if TYPE_CHECKING:
    from ilp_planner.costs.profiles.layers import LayerProfile
    from ilp_planner.costs.profiles.measurements import Measurements
    from ilp_planner.costs.profiles.table import Profile
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec

MOST_SAMPLES = 64  # of a replica, that an analytic profile is asked for; more are extrapolated


class LayerSource(NamedTuple):
    """Layers in the planner's own terms, the name of their model, and the profile's name if that is
    not its own source."""

    profile: LayerProfile
    model: str
    named: str


# ---- layers -------------------------------------------------------------------------------------


def layer_source(files: InputFiles, cluster: ClusterSpec) -> LayerSource:
    """Return any profile of layers in the planner's own terms.

    Raises
    ------
    UsageError: it is of operators. ProfileError: not there, malformed, or of another model.
    """
    given = files.objects.get("profile")
    if given is not None:
        return _given_layers(files, given)
    if files.kind in layer_profiles():
        return _of_peer(files.kind, files)
    model = files.model
    if files.kind == "table":
        table = native_table(files)
        layers = table_profile(files, table, cluster, model)
        name = table.machine.get("model") or Path(files.path.split(",")[0]).stem
        return LayerSource(layers, name if model is None else model.name, layers.source)
    if files.kind != "analytic":
        raise UsageError(
            f"profile: found {files.request.profile}, expected FILE.csv, metis:FOLDER, amp:FILE or "
            "analytic to plan whole layers"
        )
    from ilp_planner.costs.profiles.analytic_layers import analytic_layers

    files.keep("profile", "")
    model = files.need_model("a model to estimate")
    sizes = [1 << bit for bit in range(min(files.global_batch, MOST_SAMPLES).bit_length())]
    layers = analytic_layers(model, cluster, sizes)
    return LayerSource(layers, model.name, layers.source)


def _given_layers(files: InputFiles, given: object) -> LayerSource:
    from ilp_planner.costs.profiles.layers import LayerProfile

    if isinstance(given, LayerProfile):
        return LayerSource(given, files.model_name or "model", given.source)
    for name in layer_profiles():
        if isinstance(given, part(f"peers.{name}.source:PROFILE")):
            return _of_peer(name, files)
    raise UsageError(f"profile: found a {type(given).__name__}, expected a profile of whole layers")


def _of_peer(name: str, files: InputFiles) -> LayerSource:
    """Return the layers of a system's own profile."""
    return LayerSource(*part(f"peers.{name}.source:layers")(files))


def source_of(profile: Any) -> str:
    """Return the user's name of a profile that was given as an object."""
    return str(getattr(profile, "named", profile.source))


def refuse_profile(cost_model: str, expected: str, found: str) -> NoReturn:
    """Refuse a profile that a cost model cannot use.

    Raises
    ------
    UsageError: always.
    """
    raise UsageError(
        f"`cost_model={cost_model}`: expected `profile={expected}`, which its formulas are made "
        f"for, found {found}"
    )


def native_table(files: InputFiles) -> Measurements:
    """Return the native table, and record its content."""
    paths, digest = find_tables(files.path, files.recorded("profile"), files.folders)
    files.keep("profile", digest)
    return read_tables(paths)


def table_profile(
    files: InputFiles, table: Measurements, cluster: ClusterSpec, model: ModelSpec | None
) -> LayerProfile:
    """Return the layers of a native table, with predictions of missing ones."""
    asked = files.request
    return planned_layers(
        table,
        cluster,
        model,
        wanted=wanted_rows(model, hidden=asked.hidden, sequence=asked.sequence),
        most_samples=min(files.global_batch, MOST_SAMPLES),
        max_tp=asked.max_tp,
    )


# ---- operators ----------------------------------------------------------------------------------


def operator_source(
    files: InputFiles, model: ModelSpec, cluster: ClusterSpec, *, exact: bool
) -> Profile:
    """Return the profile of operators.

    Parameters
    ----------
    exact: rows are used as they were measured, none is predicted.

    Raises
    ------
    SpecError: the model does not say its name in the profile.
    ProfileError: not there, malformed, or of something else. UsageError: it is of layers.
    """
    from ilp_planner.costs.profiles.table import Profile

    given = files.objects.get("profile")
    if isinstance(given, Profile):
        return given
    if files.kind == "analytic" and given is None:
        from ilp_planner.costs.profiles.analytic import analytic_profile

        files.keep("profile", "")
        sizes = {*model.micro_batch_sizes, *files.request.micro_batch_sizes}
        return analytic_profile(model, cluster, sorted(sizes))
    if files.kind == "table":
        return _table_of_operators(files, model, cluster, exact=exact)
    if files.kind != "aceso":
        raise UsageError(
            f"profile: found {files.request.profile}, expected FILE.csv, aceso:FOLDER or analytic, "
            "which have operators: this one has whole layers"
        )
    found: Profile = part("peers.aceso.source:operators")(files, model, cluster)
    return found


def _table_of_operators(
    files: InputFiles, model: ModelSpec, cluster: ClusterSpec, *, exact: bool
) -> Profile:
    """Return the operators of native tables."""
    from ilp_planner.costs.profiles.operator_table import completed_operators, operator_profile

    table, wanted, most = native_table(files), wanted_rows(model), cluster.devices_per_node
    if table.machine.get("format") == "aceso":
        largest = part("peers.aceso.source:LARGEST_TENSOR_DEGREE")
        most = min(most, largest.get(table.machine.get("model", ""), most))
    elif not exact:
        parts = model.architecture.tensor_parts
        degrees = [1 << bit for bit in range(most.bit_length())]
        table = completed_operators(
            table,
            wanted,
            samples=files.request.micro_batch_sizes,
            degrees=[tp for tp in degrees if parts % tp == 0],
        )
    return operator_profile(table, wanted, cluster, largest_degree=most, exact_sizes=exact)
