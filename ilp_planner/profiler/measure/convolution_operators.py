"""Operators of a Wide ResNet: each runs by itself on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.nn import functional

from ilp_planner.profiler.measure.convolution import (
    averaged,
    convolved,
    divides_inputs,
    normed,
    pooled,
    weight_shape,
)
from ilp_planner.profiler.measure.operator import Operator, Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.profiler.measure.resnet_job import ResnetJob
    from ilp_planner.specs.resnet import Block, Convolution


def resnet_operators(job: ResnetJob, split: int) -> dict[str, Operator]:
    """Return every operator by name, in the order of the chain."""
    make = _Maker(job, split)
    model, maps = job.model, job.micro_batch
    base, edge = model.in_channels, model.image // 2
    stem, last = (maps, base, edge, edge), job.shapes("head")[0]
    found = {
        "conv1": make.stem(),
        "bn1": make.norm("bn1", stem),
        "relu1": make.plain("relu1", _relu, (stem,)),
        "maxpool": make.plain("maxpool", lambda x: (pooled(x),), (stem,)),
    }
    for block in model.each_block():
        found |= make.block(block)
    found["avgpool"] = make.plain("avgpool", lambda x: (averaged(x),), (last,))
    found["fc"] = make.plain(
        "fc",
        lambda x, w, b: (functional.linear(x, w, b),),
        ((maps, model.features),),
        ((model.classes, model.features), (model.classes,)),
    )
    return found


def _relu(maps: Any) -> Any:
    return (functional.relu(maps),)


class _Maker:
    """Makes operators of one shard; messages over cuts come from `profiles.analytic_resnet`."""

    def __init__(self, job: ResnetJob, split: int) -> None:
        self.job, self.split = job, split

    def plain(
        self,
        name: str,
        run: Callable[..., Any],
        inputs: tuple[Shape, ...],
        weights: tuple[Shape, ...] = (),
        *,
        sent: tuple[tuple[float, str], ...] = (),
    ) -> Operator:
        """Return an operator; the blocks' are told apart by their shapes only."""
        work, width = self.job.works[name], self.job.settings.width
        return Operator(
            run=run,
            inputs=inputs,
            weights=weights,
            live=work.input / width,
            left=work.output / width,
            sent=sent,
            step=name.split("-")[-1],
        )

    def norm(self, name: str, shape: Shape) -> Operator:
        """Return a batch normalisation."""
        channels = (shape[1],)
        return self.plain(name, lambda x, w, b: (normed(x, w, b),), (shape,), (channels, channels))

    def stem(self) -> Operator:
        """Return the first convolution, of images that want no gradient."""
        first, edge = self.job.model.stem, self.job.model.image
        return self.plain(
            "conv1",
            lambda x, w: (self.convolved(x.detach(), w, first),),
            ((self.job.micro_batch, first.inputs, edge, edge),),
            (self.weight(first),),
            sent=self.sent(first, edge)[:1],
        )

    def block(self, block: Block) -> dict[str, Operator]:
        """Return the operators of a block."""
        size, name, edge = self.job.micro_batch, block.name, block.input_size
        found = {}
        for step in (1, 2, 3):
            convolution = block.convolutions[f"{name}-conv{step}"]
            found[f"{name}-conv{step}"] = self.plain(
                f"{name}-conv{step}",
                self.branch(convolution) if step == 1 else self.alone(convolution),
                ((size, convolution.inputs, edge, edge),),
                (self.weight(convolution),),
                sent=self.sent(convolution, edge),
            )
            edge = convolution.size
            made = (size, convolution.outputs, edge, edge)
            found[f"{name}-bn{step}"] = self.norm(f"{name}-bn{step}", made)
        found[f"{name}-downsample"] = self.merge(block, made)
        found[f"{name}-relu"] = self.plain(f"{name}-relu", _relu, (made,))
        return found

    def alone(self, convolution: Convolution) -> Callable[..., Any]:
        """Return a convolution."""
        return lambda x, w: (self.convolved(x, w, convolution),)

    def branch(self, convolution: Convolution) -> Callable[..., Any]:
        """Return one with its input passed on as the residual: their gradients are added here."""
        return lambda x, w: (self.convolved(x, w, convolution), x.view_as(x))

    def merge(self, block: Block, made: Shape) -> Operator:
        """Return the addition of the residual, projected and normed first if shapes change."""
        name, edge = f"{block.name}-downsample", block.input_size
        if not block.projects:
            return self.plain(name, lambda x, r: (x + r,), (made, made))
        projection = block.convolutions[name]
        return self.plain(
            name,
            lambda x, r, w: (x + normed(self.convolved(r, w, projection)),),
            (made, (self.job.micro_batch, block.inputs, edge, edge)),
            (self.weight(projection),),
            sent=self.sent(projection, edge),
        )

    def convolved(self, maps: Any, weight: Any, convolution: Convolution) -> Any:
        """Return feature maps."""
        return convolved(maps, weight, convolution, self.job.tp, self.split)

    def weight(self, convolution: Convolution) -> Shape:
        """Return the shape of this rank's weights."""
        return weight_shape(convolution, self.job.tp, self.split)

    def sent(self, convolution: Convolution, edge: int) -> tuple[tuple[float, str], ...]:
        """Return the numbers of the all-reduces that move as much: a gathered tensor's half."""
        size = float(self.job.micro_batch)
        source = size * convolution.inputs * edge**2
        result = size * convolution.outputs * convolution.size**2
        if divides_inputs(convolution, self.job.tp, self.split):
            return (result, "forward"), (source / 2, "backward")
        return (result / 2, "forward"), (source, "backward")
