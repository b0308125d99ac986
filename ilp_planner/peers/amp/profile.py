"""AMP's published profiles: forward seconds per layer of one sample, its models and its clusters.

One JSON file holds `clusters` (an experiment each: nodes, model, global batch), `profiles` (one per
model, instance type and tensor-parallel degree) and a section of dimensions per model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.errors import ProfileError, SpecError
from ilp_planner.base.file_kinds import FileKind, refuse_other_kind
from ilp_planner.base.files import read_json
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.peers.amp.cluster import amp_cluster, on_hosts, read_amp_nodes
from ilp_planner.peers.amp.models import AmpModel, child, dimension, read_model
from ilp_planner.specs.toml_reader import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ilp_planner.base.numerics import Floats
    from ilp_planner.specs.cluster import ClusterSpec

PASSES = 3  # AMP: forward and backward take three times the forward pass
STATE_BYTES = 16  # fp16 weight and gradient, fp32 weight and two Adam moments, per parameter
GRADIENT_BYTES = 4  # AMP's trials reduce gradients in fp32
LONGEST = 1e9  # seconds; no layer takes longer, and none takes less than 1 / LONGEST


@dataclass(frozen=True, kw_only=True, eq=False)
class AmpProfile:
    """Measured rows of one model on the device types of one cluster.

    source: for the user. forward: (device type, tp) -> float64 [L], seconds of the forward pass of
    one sample, tensor-parallel communication included. whole: likewise, with operators before each
    layer, or after the last, that AMP does not charge; empty: nothing does.
    """

    source: str
    model: AmpModel
    forward: Mapping[tuple[str, int], Floats]
    whole: Mapping[tuple[str, int], Floats] = field(default_factory=dict)

    def degrees(self, device: str) -> tuple[int, ...]:
        """Tensor-parallel degrees that a device type has rows for, ascending."""
        return tuple(sorted(tp for kind, tp in self.forward if kind == device))


@dataclass(frozen=True, kw_only=True, eq=False)
class AmpExperiment:
    """One of the clusters of a file, with the model and the batch that it trains."""

    name: str
    cluster: ClusterSpec
    profile: AmpProfile
    global_batch: int


def read_amp(
    path: Path, experiment: str = "", *, hosts: Sequence[tuple[str, int]] = (), hostfile: str = ""
) -> AmpExperiment:
    """Read one experiment.

    experiment: its name; may be left out when the file has one.
    hosts: (name, slots) of a DeepSpeed hostfile, to run on instead of on all devices of the nodes;
        hostfile: where they come from, to blame.

    Raises
    ------
    SpecError, ProfileError: one line with the file, the key, the found and the expected value.
    """
    root = _root(path)
    clusters = child(root, "clusters")
    name = _chosen(clusters, experiment)
    table = child(clusters, name)
    nodes = read_amp_nodes(table)
    if hosts or hostfile:
        nodes = on_hosts(nodes, hosts, file=hostfile or "hostfile")
    cluster, instances = amp_cluster(name, nodes)
    profile = _profile(root, table.text("model"), instances, str(path))
    return AmpExperiment(
        name=name, cluster=cluster, profile=profile, global_batch=dimension(table, "gbs")
    )


def read_amp_profile(path: Path, model: str, devices: Sequence[str]) -> AmpProfile:
    """Read the rows of a model for device types of a cluster that is described elsewhere.

    devices: names of the cluster's types in profiles (`Device.profile`); each is the
        `instance` or the `device` of some profile.
    """
    root = _root(path)
    instances = {}
    entries = [child(child(root, "profiles"), key) for key in child(root, "profiles").values]
    for device in devices:
        named = {
            entry.text("instance")
            for entry in entries
            if device in (entry.text("instance"), entry.text("device"))
        }
        if len(named) > 1:
            found = ", ".join(sorted(named))
            raise ProfileError(
                f"{path}: profiles: {device!r} must be of one instance, found {found}"
            )
        instances[device] = named.pop() if named else device
    return _profile(root, model, instances, str(path))


def _root(path: Path) -> Table:
    refuse_other_kind(path, FileKind.AMP, ProfileError)
    values = read_json(path, ProfileError)
    if not isinstance(values, dict):
        raise ProfileError(
            f"{path}: expected an object with clusters and profiles, found {values!r:.60}"
        )
    return Table(values, file=str(path))


def _chosen(clusters: Table, experiment: str) -> str:
    names = list(clusters.values)
    if not experiment and len(names) == 1:
        return names[0]
    if experiment not in names:
        found = repr(experiment) if experiment else "no experiment to choose"
        known = ", ".join(names) or "none"
        raise SpecError(f"{clusters.file}: `experiment`: expected one of {known}, found {found}")
    return experiment


# ---- rows ---------------------------------------------------------------------------------------


def _profile(root: Table, model: str, instances: Mapping[str, str], source: str) -> AmpProfile:
    shape = read_model(root, model)
    profiles = child(root, "profiles")
    rows: dict[tuple[str, int], tuple[str, list[float]]] = {}
    for key in sorted(profiles.values):
        entry = child(profiles, key)
        if entry.text("model") != model:
            continue
        found = entry.text("instance"), entry.whole("tp")
        if found in rows:
            raise entry.error(
                f"must differ from {rows[found][0]} in instance or tp, found the same"
            )
        if entry.whole("mbs", 1) != 1:
            raise entry.error(f"mbs must be 1: AMP scales one sample, found {entry.whole('mbs')}")
        rows[found] = key, _forward(entry, shape)
    forward: dict[tuple[str, int], Floats] = {}
    whole: dict[tuple[str, int], Floats] = {}
    begins = [0, *(row + 1 for row in shape.rows[:-1])]  # of what a cut leaves in one piece
    for device, instance in instances.items():
        known = {tp: row for (name, tp), (_, row) in rows.items() if name == instance}
        if not known:
            there = ", ".join(sorted({name for name, _ in rows})) or "none"
            raise ProfileError(
                f"{root.file}: profiles: expected rows of {model!r} on {instance!r}, "
                f"found those on {there}"
            )
        for tp, row in sorted(known.items()):
            seconds = np.array(row, dtype=np.float64)
            forward[device, tp] = seconds[list(shape.rows)]
            whole[device, tp] = np.add.reduceat(seconds, begins)
    return AmpProfile(source=f"amp:{source}", model=shape, forward=forward, whole=whole)


def _forward(entry: Table, model: AmpModel) -> list[float]:
    """Return the seconds of all layers."""
    values = entry.values.get("forward_s")
    if not isinstance(values, list):
        raise entry.error(f"forward_s must be a list of seconds, found {values!r:.60}")
    for place, value in enumerate(values):
        if type(value) not in (int, float) or not 1 / LONGEST < value < LONGEST:
            raise entry.error(f"forward_s[{place}] must be positive seconds, found {value!r:.60}")
    if "n_layers" in entry.values and entry.whole("n_layers") != len(values):
        raise entry.error(
            f"n_layers must be the length of forward_s ({len(values)}), "
            f"found {entry.whole('n_layers')}"
        )
    if model.profiled and len(values) != model.profiled:
        raise entry.error(
            f"forward_s must have {model.profiled} layers, as {model.name!r} has with its "
            f"{np.count_nonzero(model.parameters)} blocks, found {len(values)}"
        )
    if model.rows[-1] >= len(values):
        raise entry.error(
            f"forward_s must have at least {model.rows[-1] + 1} layers, which {model.name!r} "
            f"names, found {len(values)}"
        )
    return values


# ---- for other cost models ----------------------------------------------------------------------


def layer_profile(profile: AmpProfile) -> LayerProfile:
    """Return the rows as a layer profile: one sample per micro-batch, as measured.

    Layers take all that was measured between two cuts. Memory is not measured. State: 16 bytes per
    parameter (mixed-precision Adam). Activations without recomputation, as the model's `memory`
    counts them. The gradients of parameters that every tensor-parallel rank has whole are reduced
    as if the ranks divided them.

    Raises
    ------
    ProfileError: the memory of the model's layers is unknown.
    """
    model, memory = profile.model, profile.model.memory
    if memory is None:
        raise ProfileError(
            f"{profile.source}: {model.name!r}: expected a model whose memory follows from its "
            "dimensions, found another one; cost model 'amp' needs no memory"
        )
    state, activation = {}, {}
    for device, tp in profile.forward:
        state[device, tp] = STATE_BYTES * (memory.parameters / tp + memory.repeated)
        activation[device, tp] = memory.kept + memory.divided / tp
    rows = profile.whole or profile.forward
    time = {LayerKey(d, tp, 1): PASSES * row for (d, tp), row in rows.items()}
    return LayerProfile(
        source=profile.source,
        layers=model.layers,
        time=time,
        state=state,
        activation=activation,
        workspace={key: np.zeros(len(model.layers)) for key in state},
        gradients=GRADIENT_BYTES * (memory.parameters + memory.repeated),
        boundary=np.concatenate([[0.0], memory.sent[:-1], [0.0]]),
        measured=frozenset(time),
        isolated=True,
        notes=(
            "AMP profiles one sample only, and no memory: larger micro-batches and all memory are "
            "predictions",
        ),
    )
