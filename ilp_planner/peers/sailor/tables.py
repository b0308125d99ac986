"""Sailor's profiles as a native table.

Times are the file's: of whole replicas, tensor-parallel messages included. Bytes follow Sailor's
planner's count of the numbers in its files (`check_stage_fits` of
https://github.com/eth-easl/sailor, sailor/Planner/sailor_planner/cpp_src/planner_utils.cpp): single
precision; 24 bytes per parameter (Adam's two moments 8; weights, gradients, a buffer to reduce them
and DeepSpeed's copy 4 each), every kept activation 4 per sample in flight, and memory outside of
the tensors, 2 GB without tensor parallelism and 3 GB with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.costs.profiles.measurements import Measurements, Record, measurements_of
from ilp_planner.peers.sailor.profile import FLOAT_BYTES

if TYPE_CHECKING:
    from ilp_planner.peers.sailor.profile import SailorProfile

STATE_BYTES = 24  # per parameter
OUTSIDE, OUTSIDE_PARALLEL = 2e9, 3e9  # bytes on a device, alone and among tensor-parallel ranks
PRECISION = "fp32"


def sailor_table(
    profile: SailorProfile, *, hidden: int | None = None, sequence: int | None = None
) -> Measurements:
    """Return the rows of one model as a native table, a row per layer.
    hidden, sequence: sizes of the model, as the files lack them."""
    said = {"hidden": hidden, "sequence": sequence}
    sizes = {name: size for name, size in said.items() if size is not None}
    rows: list[dict[str, Any]] = []
    for key, times in profile.times.items():
        held = profile.sizes[key.tp]
        outside = OUTSIDE if key.tp == 1 else OUTSIDE_PARALLEL
        stepped = times[:, 2].any()
        for layer, (forward, backward, update) in enumerate(times.tolist()):
            parameters = float(held.parameters[layer])
            rows.append(
                {
                    "record": Record.LAYER,
                    "device": key.device,
                    "layers": str(layer),
                    "dtype": PRECISION,
                    "tp": key.tp,
                    "micro_batch": key.samples,
                    **sizes,
                    "time_s": forward + backward,
                    "forward_s": forward,
                    "backward_s": backward,
                    "optimizer_s": update if stepped else None,
                    "weight_bytes": FLOAT_BYTES * parameters,
                    "gradient_bytes": FLOAT_BYTES * parameters,
                    "state_bytes": STATE_BYTES * parameters,
                    "activation_bytes": FLOAT_BYTES * float(held.activations[layer]) * key.samples,
                    "forward_workspace_bytes": outside,
                    "output_bytes": FLOAT_BYTES * float(held.outputs[layer]) * key.samples,
                }
            )
    return measurements_of(
        rows,
        profile.source,
        machine={"format": "sailor", "model": profile.model},
        notes=profile.notes,
    )
