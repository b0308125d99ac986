"""The cases of mixed clusters: what the published searches found, and what is asked for."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MetisCase:
    """One row of the table: Metis's samples, 10 layers, 128 samples, tp and micro-batches up to 4.

    published: what Metis's search reports, and what that plan is worth. known: the optimum of its
    space by an exact search of others. Milliseconds. t4, a100: devices of each node. slower: T4
    profiles are the A100 ones, so many times slower; None without T4.
    """

    name: str
    published: str
    known: float
    t4: tuple[int, ...]
    a100: tuple[int, ...]
    slower: float | None = 8
    vocabulary: int = 51200


@dataclass(frozen=True, kw_only=True)
class ScaleCase:
    """Generated instances (`generated.py`) of one size.

    target: the gap asked for. limit: seconds. network: `fast` or `slow` links between nodes.
    """

    network: str
    types: int
    devices_per_type: int
    layers: int
    target: float
    limit: float

    @property
    def name(self) -> str:
        """What tables call it."""
        size = f"{self.types} types x {self.devices_per_type} devices, {self.layers} layers"
        return f"{size}, {self.network} network"


METIS_CASES = (
    MetisCase(name="shipped example", published="2396.7, really 3600.8, out of memory",
     known=3125.445, t4=(4,), a100=(4, 4, 4), slower=1, vocabulary=0),
    MetisCase(name="12 A100 + 4 T4", published="3988.1 (4095.0 by default)", known=3837.05, t4=(4,),
     a100=(4, 4, 4)),
    MetisCase(name="8 A100 + 8 T4", published="5060.8 (reports 4815.7, loses a layer)",
     known=4728.07, t4=(4, 4), a100=(4, 4)),
    MetisCase(name="4 + 4", published="9776.6", known=9292.8, t4=(4,), a100=(4,)),
    MetisCase(name="2 + 2", published="27997.5 (reports 20875.4, out of memory)", known=18422.4,
     t4=(2,), a100=(2,)),
    MetisCase(name="16 + 16", published="2702.9", known=2445.7, t4=(4,) * 4, a100=(4,) * 4),
    MetisCase(name="16 A100", published="2461.9, out of memory", known=2496.8, t4=(), a100=(8, 8),
     slower=None),
)  # fmt: skip

# What AMP's own search predicts for its best plan, seconds, and what was asked for at most.
AMP_PUBLISHED = {
    "homogeneous": (1.2443, None),
    "het_cluster": (1.0859, 1.0617),
    "het_model": (1.1502, 1.1444),
}

SCALE_CASES = tuple(
    ScaleCase(
        network=network,
        types=types,
        devices_per_type=devices,
        layers=layers,
        target=target,
        limit=limit,
    )
    for network in ("fast", "slow")
    for types, devices, layers, target, limit in (
        (3, 64, 48, 0.005, 60),
        (3, 16, 96, 0.01, 200),
        (2, 256, 32, 0.01, 200),
    )
)
SEEDS = (0, 1, 2)
MICRO_BATCHES = 64
