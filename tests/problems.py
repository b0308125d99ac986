"""Problems of objects that are made in tests, without files."""

from typing import Any

from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.peers.amp.profile import AmpProfile
from ilp_planner.spaces.registry import build_problem

FORMATS = {AmpProfile: "amp:given"}  # what files would be called; any other profile: analytic


def build_group_problem(
    cluster: Any,
    profile: Any,
    *,
    model: str,
    sizes: Any = None,
    metis_cluster: Any = None,
    **asked: Any,
) -> Problem[Any]:
    """Return the problem of whole layers of a cluster and a profile.

    Parameters
    ----------
    model: its name. sizes: of it. metis_cluster: what Metis reads. asked: fields of a `Request`.
    """
    given = (
        {}
        if sizes is None
        else {name: getattr(sizes, name) for name in ("hidden", "sequence", "vocabulary")}
    )
    named = FORMATS.get(type(profile), "analytic")
    request = Request(files={"profile": Reference(name=named)}, **given, **asked)
    objects = {"cluster": cluster, "profile": profile, "model_name": model}
    if metis_cluster is not None:
        objects["metis_cluster"] = metis_cluster
    return build_problem(InputFiles(request, objects=objects))


def build_megatron_problem(
    cluster: Any, model: Any, *, profile: Any = None, **asked: Any
) -> Problem[Any]:
    """Return the problem of planning for Megatron-LM. asked: fields of a `Request`."""
    objects = {"cluster": cluster, "model": model}
    if profile is not None:
        objects["profile"] = profile
    return build_problem(InputFiles(Request(files={}, space="megatron", **asked), objects=objects))
