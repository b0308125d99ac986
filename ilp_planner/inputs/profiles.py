"""From the name of a profile to times and memory of operators or of whole layers, and to sizes that
it does not say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ilp_planner.base.errors import ProfileError, SpecError, UsageError
from ilp_planner.inputs.tables import find_tables, planned_layers, read_tables, wanted_rows

if TYPE_CHECKING:
    from ilp_planner.costs.profiles.amp import AmpProfile
    from ilp_planner.costs.profiles.layers import LayerProfile
    from ilp_planner.costs.profiles.measurements import Measurements
    from ilp_planner.costs.profiles.metis import MetisProfile
    from ilp_planner.costs.profiles.table import Profile
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec

MOST_SAMPLES = 64  # of a replica, that an analytic profile is asked for; more are extrapolated


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizes:
    """Sizes that Metis's files leave to its command line. None: not known.

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


class MetisSource(NamedTuple):
    """Metis's profile, the name of its model and the sizes that it lacks."""

    profile: MetisProfile
    model: str
    sizes: ModelSizes


class LayerSource(NamedTuple):
    """Layers in the planner's own terms, the name of their model, and the profile's name if that is
    not its own source."""

    profile: LayerProfile
    model: str
    named: str


# ---- layers -------------------------------------------------------------------------------------


def metis_source(files: InputFiles) -> MetisSource:
    """Return the profile in Metis's terms.

    Raises
    ------
    UsageError: it is of another kind. ProfileError: not there, malformed, or of another model.
    """
    from ilp_planner.costs.profiles.metis import MetisProfile

    model, asked = files.model, files.request
    if "profile" in files.objects:
        given = files.objects["profile"]
        if not isinstance(given, MetisProfile):
            refuse_profile("metis", "metis:FOLDER", source_of(given))
        return _sized(files, given, model)
    if files.kind == "metis":
        from ilp_planner.costs.profiles.metis_files import FILE_NAME, read_metis_profile

        folder = files.find(
            "profile", files.path, lambda name: FILE_NAME.fullmatch(name) is not None
        )
        return _sized(files, read_metis_profile(folder), model)
    if files.kind != "table":
        refuse_profile("metis", "metis:FOLDER", asked.profile)
    from ilp_planner.costs.profiles.convert.metis import metis_profile as converted

    wanted = wanted_rows(model, hidden=asked.hidden, sequence=asked.sequence)
    return _sized(files, converted(native_table(files), wanted), model)


def amp_source(files: InputFiles) -> AmpProfile:
    """Return AMP's profile.

    Raises
    ------
    UsageError: it is of another kind, or a model is named beside it.
    """
    from ilp_planner.costs.profiles.amp import AmpProfile

    given = files.objects.get("profile")
    if isinstance(given, AmpProfile):
        return given
    if given is not None or files.kind != "amp":
        refuse_profile(
            "amp", "amp:FILE", files.request.profile if given is None else source_of(given)
        )
    return files.experiment.profile


def layer_source(files: InputFiles, cluster: ClusterSpec) -> LayerSource:
    """Return any profile of layers in the planner's own terms.

    Raises
    ------
    UsageError: it is of operators. ProfileError: not there, malformed, or of another model.
    """
    given = files.objects.get("profile")
    if given is not None:
        return _given_layers(files, given)
    if files.kind == "metis":
        return _from_metis(metis_source(files))
    model = files.model
    if files.kind == "amp":
        from ilp_planner.costs.profiles.amp import layer_profile

        profile = files.experiment.profile
        return LayerSource(layer_profile(profile), profile.model.name, profile.source)
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
    from ilp_planner.costs.profiles.amp import AmpProfile, layer_profile
    from ilp_planner.costs.profiles.layers import LayerProfile
    from ilp_planner.costs.profiles.metis import MetisProfile

    if isinstance(given, MetisProfile):
        return _from_metis(metis_source(files))
    model = files.model_name
    if isinstance(given, AmpProfile):
        return LayerSource(layer_profile(given), model or given.model.name, given.source)
    if not isinstance(given, LayerProfile):
        raise UsageError(
            f"profile: found a {type(given).__name__}, expected a profile of whole layers"
        )
    return LayerSource(given, model or "model", given.source)


def _from_metis(source: MetisSource) -> LayerSource:
    from ilp_planner.costs.profiles.metis_layers import metis_layer_profile

    profile, model, sizes = source
    layers = metis_layer_profile(
        profile, hidden=sizes.need("hidden"), sequence=sizes.need("sequence")
    )
    return LayerSource(layers, model, metis_name(profile))


def source_of(profile: Any) -> str:
    """Return the user's name of a profile that was given as an object."""
    from ilp_planner.costs.profiles.metis import MetisProfile

    return metis_name(profile) if isinstance(profile, MetisProfile) else str(profile.source)


def metis_name(profile: MetisProfile) -> str:
    """Return the user's name of a profile of Metis's."""
    return f"metis:{profile.source}"


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


def _sized(files: InputFiles, profile: MetisProfile, model: ModelSpec | None) -> MetisSource:
    """Return a profile, the name of its model and the sizes that it lacks."""
    from ilp_planner.specs.chain_layers import segments

    asked = files.request
    given = ModelSizes(hidden=asked.hidden, sequence=asked.sequence, vocabulary=asked.vocabulary)
    if model is None:
        name = files.model_name or profile.model_name or Path(files.path).name
        return MetisSource(profile, name or "model", given)
    named = asked.name("model") or model.name
    check_model_layers(profile, len(segments(model.operators)), named)
    return MetisSource(profile, model.name, _agreed(given, model, named))


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


def _agreed(given: ModelSizes, model: ModelSpec, named: str) -> ModelSizes:
    """Return the sizes of a model; sizes given beside it must be the same, but for a vocabulary of
    0."""
    architecture = model.architecture
    agreed = {}
    for size, attribute in (
        ("hidden", "hidden"),
        ("sequence", "sequence"),
        ("vocabulary", "vocab"),
    ):
        said = getattr(architecture, attribute, None)
        asked = getattr(given, size)
        if asked and said not in (None, asked):
            raise UsageError(f"{size}: found {asked}, expected {said} as in {named}")
        agreed[size] = said if asked is None else asked
    return replace(given, **agreed)


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
    from ilp_planner.costs.profiles.aceso import SAME_FILES, read_aceso_profile

    if "aceso" not in model.profile:
        named = files.request.name("model") or model.name
        raise SpecError(
            f"{named}: profile.aceso: found nothing, expected the model's name in {files.path}"
        )
    key = model.profile["aceso"]
    prefixes = tuple(f"{k}_" for k in {key, SAME_FILES.get(key, key)})
    folder = files.find(
        "profile",
        files.path,
        lambda name: name.startswith("p2p_") or name.removeprefix("prim_").startswith(prefixes),
    )
    return read_aceso_profile(folder, key, devices_per_node=cluster.devices_per_node)


def _table_of_operators(
    files: InputFiles, model: ModelSpec, cluster: ClusterSpec, *, exact: bool
) -> Profile:
    """Return the operators of native tables."""
    from ilp_planner.costs.profiles.aceso import LARGEST_TENSOR_DEGREE
    from ilp_planner.costs.profiles.completed_operators import completed_operators
    from ilp_planner.costs.profiles.operator_table import operator_profile

    table, wanted, most = native_table(files), wanted_rows(model), cluster.devices_per_node
    if table.machine.get("format") == "aceso":
        most = min(most, LARGEST_TENSOR_DEGREE.get(table.machine.get("model", ""), most))
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
