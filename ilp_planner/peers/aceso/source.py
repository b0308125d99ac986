"""From a request to Aceso's profile of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError
from ilp_planner.peers.aceso.profile import SAME_FILES, read_aceso_profile

if TYPE_CHECKING:
    from ilp_planner.costs.profiles.table import Profile
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec


def operators(files: InputFiles, model: ModelSpec, cluster: ClusterSpec) -> Profile:
    """Return the profile of a model's operators.

    Raises
    ------
    SpecError: the model does not say its name in the database. ProfileError: not there, malformed.
    """
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
