"""From a request to AMP's profile and experiment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError
from ilp_planner.inputs.profiles import refuse_profile, source_of
from ilp_planner.peers.amp.profile import AmpProfile, read_amp, read_amp_profile
from ilp_planner.peers.amp.tables import layer_profile
from ilp_planner.specs.hostfile import read_hostfile

if TYPE_CHECKING:
    from ilp_planner.costs.profiles.layers import LayerProfile
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.peers.amp.profile import AmpExperiment

PROFILE = AmpProfile


def experiment(files: InputFiles) -> AmpExperiment:
    """Return the experiment of an `amp:FILE`, on the devices of a cluster or a hostfile if one is
    named.

    Raises
    ------
    UsageError: a model is named beside it.
    """
    asked = files.request
    if "model" in asked.files:
        raise UsageError(
            f"model: found {asked.name('model')}, expected none: the experiment of an amp:FILE "
            "says its model"
        )
    file = files.find("profile", files.path)
    if "hostfile" in asked.files:
        document = files.document("hostfile")
        hosts = read_hostfile(document)
        return read_amp(file, asked.experiment, hosts=hosts, hostfile=document.name)
    experiment = read_amp(file, asked.experiment)
    if "cluster" not in asked.files and "cluster" not in files.objects:
        return experiment
    cluster = files.cluster_file()
    names = [cluster.device_types[name].profile for name in cluster.type_names]
    profile = read_amp_profile(file, experiment.profile.model.name, names)
    return replace(experiment, cluster=cluster, profile=profile)


def amp_source(files: InputFiles) -> AmpProfile:
    """Return AMP's profile.

    Raises
    ------
    UsageError: it is of another kind, or a model is named beside it.
    """
    given = files.objects.get("profile")
    if isinstance(given, AmpProfile):
        return given
    if given is not None or files.kind != "amp":
        refuse_profile(
            "amp", "amp:FILE", files.request.profile if given is None else source_of(given)
        )
    profile: AmpProfile = files.experiment.profile
    return profile


def layers(files: InputFiles) -> tuple[LayerProfile, str, str]:
    """Return AMP's profile in the planner's own terms, and the names of its model and itself."""
    profile = amp_source(files)
    name = files.model_name if "profile" in files.objects else ""
    return layer_profile(profile), name or profile.model.name, profile.source
