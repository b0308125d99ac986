"""AMP's published profiles in the planner's own terms: a layer profile, and a native table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.base.files import read_json
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.costs.profiles.measurements import ISOLATED, Measurements, Record, measurements_of
from ilp_planner.peers.amp.profile import PASSES, AmpProfile

if TYPE_CHECKING:
    from pathlib import Path


# ---- for other cost models -----------------------------------------------------------------------


STATE_BYTES = 16  # fp16 weight and gradient, fp32 weight and two Adam moments, per parameter
GRADIENT_BYTES = 4  # AMP's trials reduce gradients in fp32


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


# ---- as a native table ---------------------------------------------------------------------------
# Forward seconds of one sample of each layer, timed by itself. AMP charges a layer three times its
# forward pass; a row has all that was measured between two cuts. Memory it does not measure: the
# memory of layers follows from their dimensions, and is written as an analytic figure (columns of
# bytes; the row's provenance is that of its time).


def amp_table(profile: AmpProfile) -> Measurements:
    """Return the rows of one model as a native table, a row per layer."""
    model, notes = profile.model, []
    held: LayerProfile | None = None
    try:
        held = layer_profile(profile)
    except ProfileError:
        notes.append(f"{model.name!r}: its memory is not known, so the table has none")
    shape = model.shape
    sizes = {} if shape is None else {"hidden": shape.hidden, "sequence": shape.sequence}
    rows: list[dict[str, Any]] = []
    for (device, tp), forward in (profile.whole or profile.forward).items():
        for layer, name in enumerate(model.layers):
            row: dict[str, Any] = {
                "record": Record.LAYER,
                "device": device,
                "name": name,
                "layers": str(layer),
                "timing": ISOLATED,
                "tp": tp,
                "micro_batch": 1,
                **sizes,
                "time_s": PASSES * float(forward[layer]),
                "forward_s": float(forward[layer]),
                "backward_s": (PASSES - 1) * float(forward[layer]),
            }
            if held is not None:
                row |= {
                    "state_bytes": float(held.state[device, tp][layer]),
                    "activation_bytes": float(held.activation[device, tp][layer]),
                    "gradient_bytes": float(held.gradients[layer]) / tp,
                    "input_bytes": float(held.boundary[layer]),
                    "output_bytes": float(held.boundary[layer + 1]),
                }
            rows.append(row)
    return measurements_of(
        rows, profile.source, machine={"format": "amp", "model": model.name}, notes=notes
    )


def amp_models(path: Path) -> dict[str, dict[str, str]]:
    """Return the models of a file, and for each the names of its devices in the table: name ->
    instance.

    A device has the GPU's name, or its instance's if several instances have the GPU.

    Raises
    ------
    ProfileError: the file is none of AMP's.
    """
    root = read_json(path, ProfileError)
    profiles = root.get("profiles") if isinstance(root, dict) else None
    if not isinstance(profiles, dict) or not all(isinstance(p, dict) for p in profiles.values()):
        raise ProfileError(f"{path}: expected an object with profiles, found {root!r:.60}")
    found: dict[str, set[tuple[str, str]]] = {}
    for entry in profiles.values():
        names = [str(entry.get(key, "")) for key in ("model", "device", "instance")]
        found.setdefault(names[0], set()).add((names[1], names[2]))
    models = {}
    for model, pairs in found.items():
        gpus = [gpu for gpu, _ in pairs]
        models[model] = {
            gpu if gpu and gpus.count(gpu) == 1 else instance: instance
            for gpu, instance in sorted(pairs)
        }
    return models
