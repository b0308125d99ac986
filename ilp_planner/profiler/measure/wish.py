"""The wish of a measurement, and its outcome.

One rank's share of a Wide ResNet: stem, blocks, head.

Its operators are Aceso's, with one ReLU to a block, the last. Tensor parallelism divides the output
channels of convolutions (split 0: outputs are gathered, gradients of inputs summed) or their input
channels (split 1, operators only: outputs summed, gradients of inputs gathered); everything else
works on whole tensors (`profiles.analytic`).

Operators of a Wide ResNet: each runs by itself on one rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch.nn import functional

from ilp_planner.base.errors import UsageError
from ilp_planner.costs.profiles.analytic import resnet_work
from ilp_planner.costs.profiles.measurements import Record, RowStatus
from ilp_planner.profiler.measure.convolution import (
    averaged,
    convolved,
    divides_inputs,
    normed,
    part,
    pooled,
    weight_shape,
)
from ilp_planner.profiler.measure.decoder_job import decoder_of, job_of
from ilp_planner.profiler.measure.modules import made
from ilp_planner.profiler.measure.operators import ChainJob
from ilp_planner.profiler.measure.shard import HEAD, STEM, check_degree
from ilp_planner.profiler.measure.t5_job import T5Job
from ilp_planner.profiler.measure.transformer_operators import Operator, Shape
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.t5 import T5
from ilp_planner.specs.training import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ilp_planner.costs.profiles.work import Work
    from ilp_planner.profiler.measure.operators import Job
    from ilp_planner.specs.architecture import Architecture
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.resnet import Block, Convolution


# ---- convolution operators -----------------------------------------------------------------------


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
    """Makes operators of one shard; messages over cuts come from `profiles.analytic`."""

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


# ---- resnet job ----------------------------------------------------------------------------------


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


# ---- wish ----------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """Degrees besides tensor parallelism, of decoders. context: context-parallel ones. experts:
    expert-parallel ones besides 1, if all parts are measured. tensor: tensor-parallel ones of
    experts, 1 or the other parts' degree; none: the same."""

    context: tuple[int, ...] = (1,)
    experts: tuple[int, ...] = ()
    tensor: tuple[int, ...] = ()


NOWHERE = Spread()


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The wished measurements. sequences: tokens of a sample, none: the model's; copies: of each
    kind of layer in the stack; repeats: None: as many as fit in a few seconds; records: `layer`,
    `operator`."""

    model: ModelSpec
    degrees: tuple[int, ...]
    micro_batch_sizes: tuple[int, ...]
    sequences: tuple[int, ...]
    copies: int = 2
    repeats: int | None = None
    spread: Spread = NOWHERE
    records: tuple[Record, ...] = (Record.LAYER, Record.OPERATOR)

    @property
    def operators(self) -> bool:
        """Tell whether there are operators to measure."""
        return Record.OPERATOR in self.records and has_operators(self.model)

    def jobs(self, dtype: str) -> list[Job]:
        """Return every shard, with neighbours that differ in the micro-batch only.

        Raises
        ------
        UsageError: the model is not measured, a degree does not divide it, or it has no tokens to
            choose.
        """
        for etp in self.spread.tensor:
            if etp not in (1, *self.degrees):
                known = ", ".join(map(str, sorted({1, *self.degrees})))
                raise UsageError(f"etp: found {etp}, expected 1 or a tp that is measured: {known}")
        return [
            self._job(tokens, {"tp": tp, "micro_batch": size, "dtype": dtype}, spread)
            for tokens in self.sequences or (None,)
            for tp in self.degrees
            for spread in self._spreads(tp)
            for size in sorted(self.micro_batch_sizes)
        ]

    def _spreads(self, tp: int) -> list[dict[str, Any]]:
        """Return the different context- and expert-parallel degrees."""
        found = {
            (cp, ep, etp)
            for cp in self.spread.context
            for ep, etp in [
                (1, 0),
                *(
                    (ep, 0 if etp == tp else etp)
                    for ep in sorted({1, *self.spread.experts})
                    for etp in self.spread.tensor or (tp,)
                    if etp in (1, tp)
                ),
            ]
        }
        return [{"cp": cp, "ep": ep, "etp": etp} for cp, ep, etp in sorted(found)]

    def _job(self, tokens: int | None, shard: dict[str, Any], spread: dict[str, Any]) -> Job:
        chain = chain_job(self.model.architecture, **shard)
        if chain is None:
            return job_of(decoder_of(self.model, tokens), **shard, **spread)
        for name, degree in spread.items():
            if degree > 1:
                raise UsageError(
                    f"{name}: found {degree}, expected none: model {self.model.name!r} is no "
                    "decoder"
                )
        if tokens is not None:
            why = "has two sequences of its own" if chain.sizes else "has no tokens"
            raise UsageError(
                f"sequence: found {tokens}, expected none: model {self.model.name!r} {why}"
            )
        return chain


def chain_job(model: Architecture, *, tp: int, micro_batch: int, dtype: str) -> ChainJob | None:
    """Return the job; its first rank's share is measured; None of another family.

    Raises
    ------
    UsageError: tp does not divide the model.
    """
    kinds: dict[str, type[ChainJob]] = {"t5": T5Job, "resnet": ResnetJob}
    if model.family not in kinds:
        return None
    check_degree(tp, model.tensor_parts)
    return kinds[model.family](
        model=model, micro_batch=micro_batch, tp=tp, settings=Settings(precision=dtype)
    )


def has_operators(model: ModelSpec) -> bool:
    """Tell whether operators of a model are measured."""
    return isinstance(model.architecture, Gpt | T5 | WideResNet)


@dataclass(kw_only=True)
class Summary:
    """How the rows went. exhausted, failed: names of rows; of the latter with the reason."""

    measured: int = 0
    there: int = 0
    exhausted: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something was not measured."""

    status: RowStatus
    why: str

    @property
    def columns(self) -> dict[str, Any]:
        """Return the columns that say so."""
        return {"status": self.status, "source": self.why[:200]}
