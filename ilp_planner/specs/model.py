"""The model specification: an architecture, a precision, and the model's names in other tools."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ilp_planner.specs.architecture import Architecture, check_counts
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.t5 import T5
from ilp_planner.specs.toml_reader import Scalar

ARCHITECTURES: Mapping[str, type[Gpt] | type[T5] | type[WideResNet] | type[Decoder]] = {
    kind.family: kind for kind in (Gpt, T5, WideResNet, Decoder)
}
PRECISIONS: Mapping[str, int] = {"fp16": 2, "bf16": 2, "fp32": 4}  # bytes of a number
# What the tables of a model file may be named after: formats of profiles, and training systems.
PROFILES = ("aceso", "metis", "amp")
SYSTEMS = ("aceso", "megatron", "torchtitan", "autoparallel", "deepspeed", "nemo", "swift", "peft")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model to train.

    precision: of parameters and activations, `fp16`, `bf16` or `fp32`.
    architecture: the family and its dimensions.
    micro_batch_sizes: samples per replica to try; the family's when empty.
    profile: profile format -> the model's key there (`aceso` -> `gpt_1_3B`).
    export: export format -> its own settings, handed on as they are.
    remarks: on assumptions, for readers of the plan.
    """

    name: str
    precision: str
    architecture: Architecture
    micro_batch_sizes: tuple[int, ...] = ()
    profile: Mapping[str, str] = field(default_factory=dict, hash=False)
    export: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict, hash=False)
    remarks: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("name must not be empty")
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"precision must be one of {', '.join(PRECISIONS)}, found {self.precision!r}"
            )
        for size in self.micro_batch_sizes:
            check_counts(micro_batch_sizes=size)
        if not self.micro_batch_sizes:
            object.__setattr__(self, "micro_batch_sizes", self.architecture.micro_batch_sizes)

    @property
    def family(self) -> str:
        """Return `gpt`, `t5`, `resnet` or `decoder`."""
        return self.architecture.family

    @property
    def bytes_per_number(self) -> int:
        """Return the size of a parameter or an activation."""
        return PRECISIONS[self.precision]

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """Return the names of the operators along the chain; equal names are equal operators."""
        return self.architecture.operators
