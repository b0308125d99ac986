"""The decision, and nothing else: what a training system needs to know to run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How one operator runs on the devices of its stage.

    tp, dp: tensor- and data-parallel degrees; their product is the number of devices of the stage.
    split: which dimension tensor parallelism splits (0: the usual Megatron order, 1: swapped).
    recompute: forget the activations after the forward pass and compute them again.
    """

    tp: int = 1
    dp: int = 1
    split: int = 0
    recompute: bool = False

    def __post_init__(self) -> None:
        if self.tp < 1 or self.dp < 1:
            raise ValueError(f"tp and dp must be >= 1, found tp={self.tp}, dp={self.dp}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Operators [start, stop) of the model's chain on devices [first_device, first_device +
    devices)."""

    start: int
    stop: int
    first_device: int
    devices: int
    strategies: tuple[Strategy, ...]

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ValueError(f"devices must be >= 1, found {self.devices}")
        if len(self.strategies) != self.stop - self.start:
            raise ValueError(
                f"a stage of {self.stop - self.start} operators needs as many strategies, "
                f"found {len(self.strategies)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole pipeline.

    micro_batch: samples that enter the pipeline together, over all replicas of a stage
    (Megatron's per-replica micro-batch size is micro_batch / dp).
    """

    model: str
    global_batch: int
    micro_batch: int
    stages: tuple[Stage, ...]

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches per iteration, B."""
        return self.global_batch // self.micro_batch

    @property
    def devices(self) -> int:
        """Devices of all stages together."""
        return sum(stage.devices for stage in self.stages)
