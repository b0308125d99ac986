"""One rank's share of a Wide ResNet: stem, blocks, head.

Its operators are Aceso's, with one ReLU to a block, the last. Tensor parallelism divides the output
channels of convolutions (split 0: outputs are gathered, gradients of inputs summed) or their input
channels (split 1, operators only: outputs summed, gradients of inputs gathered); everything else
works on whole tensors (`profiles.analytic_resnet`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ilp_planner.costs.profiles.analytic_resnet import resnet_work
from ilp_planner.profiler.measure.chain_job import ChainJob
from ilp_planner.profiler.measure.convolution import part
from ilp_planner.profiler.measure.convolution_operators import resnet_operators
from ilp_planner.profiler.measure.modules import made
from ilp_planner.profiler.measure.shard import HEAD, STEM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.costs.profiles.work import Work
    from ilp_planner.profiler.measure.operator import Operator
    from ilp_planner.specs.resnet import Block, WideResNet


class ResnetJob(ChainJob):
    """The measurement of a Wide ResNet."""

    model: WideResNet

    splits: ClassVar[tuple[int, ...]] = (0, 1)

    @cached_property
    def works(self) -> Mapping[str, Work]:
        """Return the work of every operator."""
        return resnet_work(self.model, self.micro_batch, self.tp, self.settings.width)

    @cached_property
    def blocks(self) -> Mapping[str, Block]:
        """Return the first block of every kind."""
        found: dict[str, Block] = {}
        for block in self.model.each_block():
            found.setdefault(self._kind(block.name), block)
        return found

    @staticmethod
    def _kind(block: str) -> str:
        """Return `group 1 entry` of `block-0-0`, `group 1 block` of later ones."""
        _, group, number = block.split("-")[:3]
        return f"group {int(group) + 1} {'block' if int(number) else 'entry'}"

    def kind_of(self, segment: str, first: str) -> str:
        """Return the place of a block; a group's first one is another than the rest."""
        return segment if segment in (STEM, HEAD) else self._kind(first)

    def flop(self, operator: str) -> float:
        """Return the arithmetic of an operator, for any algorithm."""
        convolution = self.model.convolutions.get(operator)
        if convolution is None:
            return super().flop(operator)
        return self.micro_batch * convolution.flops / self.tp

    def build(self, kind: str, *, device: Any, dtype: Any) -> Any:
        """Return a part as a module."""
        return made(lambda: part(kind, self), device=device, dtype=dtype)

    def batch(self, dtype: Any) -> tuple[Any, ...]:
        """Return images [batch, 3, edge, edge] and their classes, int64 [batch]."""
        size, edge = self.micro_batch, self.model.image
        images = torch.randn(size, 3, edge, edge).to(dtype)
        return images, torch.randint(self.model.classes, (size,))

    def shapes(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the shape of the feature maps before a part."""
        if kind == STEM:
            return ()
        if kind == HEAD:
            channels, edge = self.model.features, self.model.image >> (len(self.model.blocks) + 1)
        else:
            channels, edge = self.blocks[kind].inputs, self.blocks[kind].input_size
        return ((self.micro_batch, channels, edge, edge),)

    def handed(self, kind: str) -> tuple[float, float]:
        """Return the bytes that a part takes over and leaves; the stem takes the images."""
        taken, left = super().handed(kind)
        return (self.works["conv1"].input if kind == STEM else taken), left

    def operators(self, split: int) -> dict[str, Operator]:
        """Return every operator."""
        return resnet_operators(self, split)

    def describe(self, device: Any, dtype: Any) -> dict[str, str]:
        """Return the precision of convolutions."""
        if device.type != "cuda" or dtype != torch.float32:
            return {}
        allowed = torch.backends.cudnn.allow_tf32
        return {"float32 convolutions": "TF32" if allowed else "IEEE"}
