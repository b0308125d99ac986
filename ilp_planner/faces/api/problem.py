"""From names, paths or objects to a problem."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import SpecError, UsageError, described, with_article
from ilp_planner.faces.api.words import python_words

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.inputs.keywords import Inputs
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.inputs.request import Reference, Request
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec

NAMES = (str, os.PathLike)
# Which objects stand for an input, by the names of their types.
KINDS = {
    "model": ("ModelSpec",),
    "cluster": ("ClusterSpec",),
    "profile": ("Profile", "LayerProfile", "MetisProfile", "AmpProfile"),
}


def problem(
    model: str | os.PathLike[str] | ModelSpec | None = None,
    cluster: str | os.PathLike[str] | ClusterSpec | None = None,
    *,
    gpus: str | None = None,
    profile: str | os.PathLike[str] | object = "analytic",
    hostfile: str | os.PathLike[str] | None = None,
    clusterfile: str | os.PathLike[str] | None = None,
    lengths: str | os.PathLike[str] | None = None,
    constraints: str | os.PathLike[str] | Mapping[str, object] | None = None,
    **said: Unpack[Inputs],
) -> Problem[Any]:
    """Build a problem, by the rules of `ilp-plan solve`; the keywords are its options.

    Parameters
    ----------
    model, cluster: a name (`llama3-8b`), a path, or a ModelSpec and a ClusterSpec. A model may be a
        `config.json` of Hugging Face, or the name that it has there.
    text_only: of a model of text and pictures or sounds, its text alone.
    gpus: so many of the table of GPUs (`16xA100-80GB`) instead of a cluster: nodes, links and
        network of their generation are assumed, and notes say so.
    profile: `analytic`, `FILE.csv`, `aceso:FOLDER`, `metis:FOLDER`, `amp:FILE`, or a profile that
        was read before.
    space: `operators`, `groups`, `metis`, `amp` or `megatron`; None: plans of Megatron-LM for
        decoder-only models without a profile; else operators if all devices are equal and the
        profile and the cost model are of operators, whole layers elsewhere.
    shares: of `space="groups"`: `any`, or `even`: replicas of one type share a micro-batch equally
        and micro-batches divide the batch.
    stage_tp: of `space="groups"`: `one` tensor-parallel degree for all replicas of a stage, or
        `mixed`: each device type has its own.
    seats: of `space="groups"`: replicas of a stage are `packed` on few nodes; with `spread`, packed
        or equally many on each of several nodes of one type.
    precision: of training, or a recipe of products in 8 or 4 bits (`fp8-current`, `mxfp8`), of
        `space="megatron"`; None: the model's.
    micro_batch_sizes: to try: samples of a replica for a training runtime, of all replicas together
        for other spaces.
    price: of a device per hour: 2.5, of every type as `a100=2.5,t4=0.4`, or `spot`, for the spot
        prices of the cluster; None: as the cluster says.
    memory_limit: bytes, or a size with its unit (`28 GB`), of every device.
    tp, pp, cp, ep, dp, virtual_stages: possible values in plans of `space="megatron"`: 4, `[2, 4]`,
        `range(2, 9)` or `"2..8"`. micro_batch_group_size: likewise, how many micro-batches pass one
        virtual stage before the next one's turn; as many as pipeline ranks if nothing is said.
    layout: layers of every virtual stage: `even`, how many as `[10, 11, 11]`, or Megatron's letters
        as `Et*10|t*11|t*11L`.
    rank_order, recompute, sharding, cp_comm: likewise: names, one or several. sharding_copies:
        numbers of sharded copies, one or several. schedule: of the pipeline, some of `1f1b`
        (interleaved if ranks have several virtual stages), `interleaved-zb`, `zb-v` and
        `dualpipe-v` (divided backward passes).
    overlap: `data`, if nothing is said, or `none`. fused_loss: `native`, likewise, `none`,
        or `liger` (by PEFT and the Trainer).
    gradients, moments: types, `fp32` alone if nothing is said. optimizer: `adam`, likewise, or
        `muon`, with muon_tp_mode, muon_packing and muon_steps.
    keep: stages of saved plans that plans have as they are, as `plan.json:stage0`.
    tensor_overlap, expert_overlap: `on`, `off` or both, `off` if nothing is said. cuda_graphs: some
        of `none`, `attn`, `router`, `layer` and `full_iteration`, `none` likewise.
    optimizer_offload: shares of the states, from 0 to 1, that may be on the host.
    activation_offload: `none`, modules as `core_attn+attn_proj` or a number of layers whose
        activations may wait there, one or several; `none` if nothing is said. dispatcher: some of
        `alltoall`, `allgather` and `flex`. fused_permute, compile: `on`, `off` or both; the last
        `on` with `space="torchtitan"` alone.
    max_devices: of equal nodes, so many devices at most, in whole nodes.
    without: nodes that stay idle, by number from 0 or by the name of their group.
    headroom: bytes of every device that stay free, or a size with its unit.
    constraints: a TOML file with these keywords in a table `[constraints]`, or a mapping of them; a
        keyword that is given counts instead.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    """
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.spaces.objectives.any_nodes import build_for_any_nodes

    given: dict[str, Any] = {
        "model": model,
        "cluster": cluster,
        "hostfile": hostfile,
        "clusterfile": clusterfile,
        "lengths": lengths,
        "profile": profile,
    }
    with python_words():
        if gpus is not None:
            given["cluster"] = _gpus(gpus, cluster)
        request, objects = request_for("problem", given, said, constraints)
        return build_for_any_nodes(InputFiles(request, objects=objects))


def request_for(
    verb: str, given: Mapping[str, Any], said: Mapping[str, Any], constraints: Any
) -> tuple[Request, dict[str, Any]]:
    """Return the request of files, keywords and constraints, and the objects among the files that
    have no text.

    Parameters
    ----------
    verb: the function that was called, for messages.

    Raises
    ------
    TypeError: there is no such keyword. SpecError, UsageError: a value is not possible.
    """
    from ilp_planner.inputs.keywords import KEYWORDS
    from ilp_planner.inputs.request import Reference, request_of
    from ilp_planner.inputs.table import BY_KEYWORD

    if unknown := next((name for name in said if name not in KEYWORDS), ""):
        raise TypeError(f"{verb}() got an unexpected keyword argument {unknown!r}")
    files = {
        kind: _held(kind, value) or Reference(name=_named(kind, value))
        for kind, value in given.items()
        if value is not None
    }
    inputs = {name: value for name, value in said.items() if name in BY_KEYWORD}
    demands = {name: value for name, value in said.items() if name not in BY_KEYWORD}
    objects = {
        kind: given[kind]
        for kind, reference in files.items()
        if reference.text is None and not isinstance(given[kind], NAMES)
    }
    return request_of(files, inputs, _demanded(constraints, demands)), objects


def _demanded(given: Any, said: Mapping[str, object]) -> Constraints:
    """Return the constraints of a file or a mapping and of keywords; keywords precede.

    Raises
    ------
    SpecError, UsageError: it is no constraint.
    """
    from ilp_planner.formats.saved_start import with_kept_stages
    from ilp_planner.inputs.constraints import NAMES as KNOWN
    from ilp_planner.inputs.constraints import constraints_of
    from ilp_planner.inputs.constraints_file import read_constraints

    if isinstance(given, NAMES):
        given = read_constraints(Path(given)).texts
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"constraints: found {described(given)}, expected a path or a mapping")
    keywords = {name: value for name, value in said.items() if value is not None}
    every = {**(given or {}), **keywords}
    unknown = next((name for name in every if name not in KNOWN), None)
    if unknown is not None:
        raise UsageError(f"constraints: found {unknown!r}, expected some of {', '.join(KNOWN)}")
    return with_kept_stages(constraints_of(every))


def _gpus(said: object, cluster: Any) -> str:
    """Return the name of the cluster of so many GPUs.

    Raises
    ------
    UsageError: a cluster is named beside them, or the GPUs are unknown.
    """
    from ilp_planner.inputs.files import cluster_or_gpus

    if not isinstance(said, str):
        raise UsageError(f"gpus: found {described(said)}, expected a text as '16xA100-80GB'")
    named = None if cluster is None else _named("cluster", cluster)
    return str(cluster_or_gpus(named, said))


def _held(kind: str, value: Any) -> Reference | None:
    """Return a model or a cluster that was made in Python as the text that says it, so that a plan
    can be saved with it; None for other inputs, and without a text."""
    from ilp_planner.base.files import Document
    from ilp_planner.inputs.request import Reference
    from ilp_planner.specs.cluster_reader import read_cluster
    from ilp_planner.specs.cluster_writer import cluster_text
    from ilp_planner.specs.model_reader import read_model
    from ilp_planner.specs.model_writer import model_text

    texts: dict[str, tuple[Callable[[Any], str], Callable[[Document], object]]] = {
        "model": (model_text, read_model),
        "cluster": (cluster_text, read_cluster),
    }
    if kind not in texts or type(value).__name__ not in KINDS[kind]:
        return None
    write, read = texts[kind]
    document = Document(f"<{value.name}>", write(value))  # the name of no file
    try:
        same = read(document) == value
    except SpecError:
        same = False
    return Reference(**document._asdict(), sha256=document.sha256) if same else None


def _named(kind: str, value: Any) -> str:
    """Return the name or path of an input; a placeholder for an object that has neither."""
    if isinstance(value, NAMES):
        return value if isinstance(value, str) else str(Path(value))
    kinds = KINDS.get(kind, ())
    if type(value).__name__ in kinds:
        return "analytic" if kind == "profile" else str(value.name)
    names = ", ".join(["a name", "a path", *map(with_article, kinds)])
    raise UsageError(f"{kind}: found {described(value)}, expected one of {names}")
