"""Layer rows of a made-up model: what they say follows from simple laws."""

from collections.abc import Iterable
from typing import Any

from ilp_planner.costs.profiles.measurements import Measurements, measurements_of

MIB = 2**20
KINDS = (("embedding", "0", 0.1, 40.0), ("layer", "1-4", 1.0, 20.0), ("head", "5", 0.5, 40.0))


def layer_row(kind: tuple[str, str, float, float], tp: int, size: int, **more: Any) -> dict:
    """Return one row: 1 ms + 2 ms per sample of a layer of weight 1, divided by tp."""
    name, layers, weight, parameters = kind
    forward = weight * (1e-3 + 2e-3 * size / tp) / 3
    return {
        "record": "layer",
        "device": "A100",
        "name": name,
        "layers": layers,
        "dtype": "bf16",
        "tp": tp,
        "micro_batch": size,
        "sequence": 128,
        "hidden": 64,
        "flop": weight * size * 1e9 / tp,
        "time_s": 3 * forward,
        "forward_s": forward,
        "backward_s": 2 * forward,
        "optimizer_s": 1e-4 * parameters / tp,
        "weight_bytes": 2 * parameters * MIB / tp,
        "state_bytes": 18 * parameters * MIB / tp,
        "activation_bytes": 8.0 * size * MIB * weight / tp,
        "forward_workspace_bytes": 1.0 * MIB,
        "backward_workspace_bytes": (2.0 + size) * MIB,
        "input_bytes": 2.0 * 128 * 64 * size,
        "output_bytes": 2.0 * 128 * 64 * size,
        **more,
    }


def layer_table(
    degrees: Iterable[int] = (1, 2), sizes: Iterable[int] = (1, 2, 4), **more: Any
) -> Measurements:
    """Return a table of all kinds under all degrees and sizes."""
    sizes = tuple(sizes)
    rows = [layer_row(kind, tp, size, **more) for tp in degrees for size in sizes for kind in KINDS]
    return measurements_of(rows, "made-up.csv", machine={"model": "made up"})
