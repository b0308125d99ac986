"""From `--profile` to times and memory of whole layers, and to sizes that it does not say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ilp_planner.cli.layer_checks import LAYER_OPTIONS
from ilp_planner.cli.options import DEFAULT_GLOBAL_BATCH
from ilp_planner.cli.table_inputs import find_tables, planned_layers, read_tables, wanted_rows
from ilp_planner.errors import UsageError

if TYPE_CHECKING:
    from ilp_planner.cli.layer_files import LayerFiles
    from ilp_planner.profiles.amp import AmpExperiment
    from ilp_planner.profiles.layers import LayerProfile
    from ilp_planner.profiles.measurements import Measurements
    from ilp_planner.profiles.metis import MetisProfile
    from ilp_planner.spaces.build import ModelSizes
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec

MOST_SAMPLES = 64  # of a replica, that an analytic profile is asked for; more are extrapolated


def group_profile(
    files: LayerFiles, cluster: ClusterSpec, batch: int
) -> tuple[MetisProfile | LayerProfile, str, ModelSizes | None]:
    """Return the profile, the name of its model and the sizes that it lacks."""
    model = files.model()
    if files.kind == "metis":
        return metis_profile(files, model)
    if files.kind == "table":
        return table_of_layers(files, cluster, model)
    from ilp_planner.profiles.analytic_layers import analytic_layers

    assert model is not None
    files.keep("profile", "")
    sizes = [1 << bit for bit in range(min(batch, MOST_SAMPLES).bit_length())]
    return analytic_layers(model, cluster, sizes), model.name, None


def metis_profile(
    files: LayerFiles, model: ModelSpec | None
) -> tuple[MetisProfile, str, ModelSizes]:
    """Return Metis's profile, the name of its model and the sizes that it lacks."""
    from ilp_planner.profiles.metis_files import FILE_NAME, read_metis_profile

    folder = files.find("profile", files.path, lambda name: FILE_NAME.fullmatch(name) is not None)
    return sized(files, read_metis_profile(folder), model)


def sized(
    files: LayerFiles, profile: MetisProfile, model: ModelSpec | None
) -> tuple[MetisProfile, str, ModelSizes]:
    """Return a profile, the name of its model and the sizes that it lacks."""
    from ilp_planner.spaces.build import ModelSizes, check_model_layers
    from ilp_planner.specs.chain_layers import segments

    asked = files.asked
    given = ModelSizes(hidden=asked.hidden, sequence=asked.sequence, vocabulary=asked.vocabulary)
    if model is None:
        return profile, profile.model_name or Path(files.path).name, given
    named = files.held["model"].name
    check_model_layers(profile, len(segments(model.operators)), named)
    return profile, model.name, _agreed(given, model, named)


def native_table(files: LayerFiles) -> Measurements:
    """Return the native table, and take note of what it held."""
    paths, digest = find_tables(files.path, files.recorded("profile"), files.folders)
    files.keep("profile", digest)
    return read_tables(paths)


def table_of_layers(
    files: LayerFiles, cluster: ClusterSpec, model: ModelSpec | None
) -> tuple[MetisProfile | LayerProfile, str, ModelSizes]:
    """Return the layers of a native table, in Metis's terms for its cost model; the name of its
    model, and the sizes that the table lacks."""
    from ilp_planner.profiles.convert.metis import metis_profile as converted
    from ilp_planner.spaces.build import ModelSizes

    asked = files.asked
    if asked.cost_model == "metis":
        wanted = wanted_rows(model, hidden=asked.hidden, sequence=asked.sequence)
        return sized(files, converted(native_table(files), wanted), model)
    table = native_table(files)
    profile = table_profile(files, table, cluster, model)
    name = table.machine.get("model") or Path(files.path.split(",")[0]).stem
    return profile, name if model is None else model.name, ModelSizes()


def table_profile(
    files: LayerFiles, table: Measurements, cluster: ClusterSpec, model: ModelSpec | None
) -> LayerProfile:
    """Return the layers of a native table, those predicted that it lacks."""
    asked = files.asked
    return planned_layers(
        table,
        cluster,
        model,
        wanted=wanted_rows(model, hidden=asked.hidden, sequence=asked.sequence),
        most_samples=min(asked.global_batch or DEFAULT_GLOBAL_BATCH, MOST_SAMPLES),
        max_tp=asked.max_tp,
    )


def amp_experiment(files: LayerFiles) -> AmpExperiment:
    """Return the experiment, on the devices of `--cluster` or `--hostfile` where given."""
    from ilp_planner.profiles.amp import read_amp, read_amp_profile
    from ilp_planner.specs.hostfile import read_hostfile

    asked = files.asked
    file = files.find("profile", files.path)
    if "hostfile" in asked.files:
        hostfile = files.find("hostfile", asked.files["hostfile"].name)
        hosts = read_hostfile(hostfile)
        return read_amp(file, asked.experiment, hosts=hosts, hostfile=str(hostfile))
    experiment = read_amp(file, asked.experiment)
    if "cluster" not in asked.files:
        return experiment
    cluster = files.cluster_file()
    names = [cluster.device_types[name].profile for name in cluster.type_names]
    profile = read_amp_profile(file, experiment.profile.model.name, names)
    return replace(experiment, cluster=cluster, profile=profile)


def _agreed(given: ModelSizes, model: ModelSpec, named: str) -> ModelSizes:
    """Return the sizes of a model; those given beside it must be the same, but for a vocabulary of
    0."""
    architecture = model.architecture
    found = {}
    for size, attribute in (
        ("hidden", "hidden"),
        ("sequence", "sequence"),
        ("vocabulary", "vocab"),
    ):
        said = getattr(architecture, attribute, None)
        asked = getattr(given, size)
        if asked and said not in (None, asked):
            raise UsageError(f"{LAYER_OPTIONS[size]}: found {asked}, expected {said} as in {named}")
        found[size] = said if asked is None else asked
    return replace(given, **found)
