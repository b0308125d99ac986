"""A Wide ResNet's parts as PyTorch modules with the shapes that one tensor-parallel rank holds.

A rank computes its share of a convolution's channels. Its own share stands in for the others' when
outputs (or, of split 1, gradients of inputs) are gathered: the copying is there, the message is
not. The norm of a projected residual learns nothing, as in the model's count of parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from ilp_planner.profiler.measure.shard import HEAD, STEM

if TYPE_CHECKING:
    from ilp_planner.profiler.measure.wish import ResnetJob
    from ilp_planner.specs.resnet import Block, Convolution


def part(kind: str, job: ResnetJob) -> Any:
    """Return a part without values."""
    if kind == STEM:
        return Stem(job)
    return Head(job) if kind == HEAD else Bottleneck(job, job.blocks[kind])


class Gathered(torch.autograd.Function):  # type: ignore[misc]
    """The channels of all ranks; backward, this rank's share of their gradient."""

    @staticmethod
    def forward(ctx: Any, share: Any, ranks: int) -> Any:
        """Return as many copies, one after the other."""
        ctx.ranks = ranks
        return torch.cat([share] * ranks, dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the first share."""
        return gradients[0].chunk(ctx.ranks, dim=1)[0].contiguous(), None


class Sliced(torch.autograd.Function):  # type: ignore[misc]
    """This rank's share of the channels; backward, the gradients of all ranks."""

    @staticmethod
    def forward(ctx: Any, whole: Any, ranks: int) -> Any:
        """Return the first share."""
        ctx.ranks = ranks
        return whole.chunk(ranks, dim=1)[0].contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return as many copies, one after the other."""
        return torch.cat([gradients[0]] * ctx.ranks, dim=1), None


def divides_inputs(convolution: Convolution, ranks: int, split: int) -> bool:
    """Tell whether input channels are divided: the three of an image never are."""
    return split == 1 and convolution.inputs % ranks == 0


def weight_shape(convolution: Convolution, ranks: int, split: int = 0) -> tuple[int, ...]:
    """Return the shape of a rank's weights."""
    inputs, outputs = convolution.inputs, convolution.outputs
    if divides_inputs(convolution, ranks, split):
        inputs //= ranks
    else:
        outputs //= ranks
    return outputs, inputs, convolution.kernel, convolution.kernel


def convolved(maps: Any, weight: Any, convolution: Convolution, ranks: int, split: int = 0) -> Any:
    """Return the feature maps that a convolution makes, all channels of them."""
    by_inputs = divides_inputs(convolution, ranks, split)
    if by_inputs and ranks > 1:
        maps = Sliced.apply(maps, ranks)
    padding = convolution.kernel // 2
    found = functional.conv2d(maps, weight, stride=convolution.stride, padding=padding)
    return found if by_inputs or ranks == 1 else Gathered.apply(found, ranks)


def pooled(maps: Any) -> Any:
    """Return the largest of every 3 x 3 pixels, half as many along an edge."""
    return functional.max_pool2d(maps, kernel_size=3, stride=2, padding=1)


def normed(maps: Any, weight: Any = None, bias: Any = None) -> Any:
    """Return batch-normalised feature maps, as in training."""
    return functional.batch_norm(maps, None, None, weight, bias, training=True)


class Convolved(nn.Module):  # type: ignore[misc]
    """A convolution and its norm."""

    def __init__(self, convolution: Convolution, ranks: int, *, learns: bool = True) -> None:
        super().__init__()
        self.convolution, self.ranks = convolution, ranks
        self.weight = nn.Parameter(torch.empty(weight_shape(convolution, ranks)))
        self.norm = nn.BatchNorm2d(convolution.outputs, affine=learns)

    def forward(self, maps: Any) -> Any:
        """Return feature maps [batch, channels, edge, edge]."""
        return self.norm(convolved(maps, self.weight, self.convolution, self.ranks))


class Stem(nn.Module):  # type: ignore[misc]
    """From images to the first feature maps, a quarter as many pixels along an edge."""

    def __init__(self, job: ResnetJob) -> None:
        super().__init__()
        self.convolved = Convolved(job.model.stem, job.tp)

    def forward(self, batch: Any) -> Any:
        """Return feature maps."""
        return pooled(functional.relu(self.convolved(batch[0])))


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Three convolutions, the residual, one ReLU."""

    def __init__(self, job: ResnetJob, block: Block) -> None:
        super().__init__()
        *steps, last = block.convolutions.values()
        self.projection = Convolved(last, job.tp, learns=False) if block.projects else None
        steps += [] if block.projects else [last]
        self.steps = nn.Sequential(*(Convolved(step, job.tp) for step in steps))

    def forward(self, batch: Any, maps: Any) -> Any:
        """Return the next feature maps."""
        residual = maps if self.projection is None else self.projection(maps)
        return functional.relu(self.steps(maps) + residual)


class Head(nn.Module):  # type: ignore[misc]
    """The mean over all pixels, the scores of the classes, and their loss."""

    def __init__(self, job: ResnetJob) -> None:
        super().__init__()
        self.scores = nn.Linear(job.model.features, job.model.classes)

    def forward(self, batch: Any, maps: Any) -> Any:
        """Return the mean loss of the classes."""
        return functional.cross_entropy(self.scores(averaged(maps)).float(), batch[1])


def averaged(maps: Any) -> Any:
    """Return the mean over all pixels [batch, channels]."""
    return functional.adaptive_avg_pool2d(maps, 1).flatten(1)
