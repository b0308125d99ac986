"""A profile without measurements: arithmetic at the rate of large products, bytes over bandwidth.

Good for a first plan, and for the order of magnitude of everything. `work.py` has the rules,
`analytic_*.py` the work of each operator of the other models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError
from ilp_planner.costs.profiles.analytic_transformer import gpt_work, t5_work
from ilp_planner.costs.profiles.table import MIB, OperatorRow, Origin, Profile, Provenance, RowKey
from ilp_planner.costs.profiles.work import (
    Exchange,
    Kernel,
    Work,
    exchange_time,
    kernel_time,
    streaming,
)
from ilp_planner.specs.cluster import SLOWEST_TAKEN
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.t5 import T5

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ilp_planner.specs.cluster import ClusterSpec, Device
    from ilp_planner.specs.link import Link
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.resnet import Block, Convolution


# ---- work of a Wide ResNet's operators -----------------------------------------------------------
# Tensor parallelism divides the output channels of convolutions; every other operator works on
# whole tensors. So a convolution gathers its output, and backward reduces the gradient of its
# input.
# In single precision a 3 x 3 convolution of stride 1 runs as Winograd's F(4 x 4, 3 x 3), as in
# cuDNN: a quarter of the multiplications, but tensors and weights are transformed into memory
# first, with 36 numbers for 16 of a tensor and for 9 of the weights (Lavin, Gray 2016, arXiv
# 1509.09308).


WINOGRAD_PRODUCTS = 36 / (16 * 9)
WINOGRAD_TENSOR = 36 / 16
WINOGRAD_WEIGHTS = 36 / 9
INDEX = 8  # bytes of a max-pooling index


@dataclass(frozen=True, slots=True)
class Images:
    """One device's share of a micro-batch. number: bytes of a number."""

    samples: int
    degree: int
    number: int

    def size(self, channels: int, edge: int) -> float:
        """Return the bytes of a batch of feature maps."""
        return float(self.samples * channels * edge**2 * self.number)


def resnet_work(resnet: WideResNet, samples: int, degree: int, number: int) -> dict[str, Work]:
    """Return the work of every operator. samples: micro-batch of the replica. degree:
    tensor-parallel ranks. number: bytes of a number."""
    images = Images(samples, degree, number)
    base, edge = resnet.in_channels, resnet.image
    outer, inner = images.size(base, edge // 2), images.size(base, edge // 4)
    features = images.size(resnet.features, 1)
    last = images.size(resnet.features, edge >> (len(resnet.blocks) + 1))
    classes = images.size(resnet.classes, 1)
    classifier = number * resnet.parameters["fc"].total
    flops = samples * resnet.flops["fc"]
    found = {
        "conv1": _convolution(images, resnet.stem, past=0.0, edge=edge, first=True),
        "bn1": _normalisation(outer, past=0.0),
        "relu1": _relu(outer),
        "maxpool": Work(
            forward=streaming(outer + inner * (1 + INDEX / number)),
            backward=streaming(2 * outer + inner * (1 + INDEX / number)),
            input=outer,
            output=inner,
            activations=inner * (1 + INDEX / number),
            backward_reserved=outer + inner,
        ),
    }
    for block in resnet.each_block():
        found.update(_block(images, block))
    found["avgpool"] = Work(
        forward=streaming(last + features),
        backward=streaming(last + features),
        input=last,
        output=features,
        activations=features,
        backward_reserved=last,
    )
    found["fc"] = Work(
        forward=(Kernel(flops, features + classifier + classes),),
        backward=(Kernel(flops, features + classifier + classes),) * 2,
        input=features,
        output=classes,
        activations=classes,
        backward_reserved=classifier,
    )
    return found


def _block(images: Images, block: Block) -> dict[str, Work]:
    residual = images.size(block.inputs, block.input_size)
    output = images.size(block.outputs, block.output_size)
    found = {}
    edge = block.input_size
    for step in (1, 2, 3):
        convolution = block.convolutions[f"{block.name}-conv{step}"]
        # The block's input is its own residual; later convolutions carry it past.
        past = 0.0 if step == 1 else residual
        made = images.size(convolution.outputs, convolution.size)
        work = _convolution(
            images, convolution, past=past, edge=edge, keeps=residual, merges=step == 1
        )
        found[f"{block.name}-conv{step}"] = work
        found[f"{block.name}-bn{step}"] = _normalisation(made, past=residual)
        edge = convolution.size
    found[f"{block.name}-downsample"] = _downsample(images, block, residual, output)
    found[f"{block.name}-relu"] = _relu(output)
    return found


def _convolution(
    images: Images,
    convolution: Convolution,
    *,
    past: float,
    edge: int,
    keeps: float = 0.0,
    merges: bool = False,
    first: bool = False,
) -> Work:
    """Return one convolution.

    past: bytes that travel past it. keeps: bytes of the residual that go on beside its output.
    edge: pixels along an edge of its input.
    merges: the gradient of the residual is added to that of its input, three tensors at once.
    first: no gradient of its input is wanted.
    """
    source = images.size(convolution.inputs, edge)
    result = images.size(convolution.outputs, convolution.size)
    part = result / images.degree
    merged = 3 * source + (result if images.degree > 1 else 0.0) if merges else 0.0
    weights = images.number * convolution.parameters.split / images.degree
    flops = images.samples * convolution.flops / images.degree
    if convolution.kernel == 3 and convolution.stride == 1 and images.number == 4:
        workspace = WINOGRAD_TENSOR * (source + part) + WINOGRAD_WEIGHTS * weights
        traffic = source + weights + part + 2 * workspace
        kernels = (*streaming(traffic), Kernel(flops * WINOGRAD_PRODUCTS, workspace))
    else:
        workspace = max(result + part, 2 * weights)
        kernels = (Kernel(flops, source + weights + part),)
    gathering = streaming(2 * result) if images.degree > 1 else ()
    return Work(
        forward=kernels + gathering,
        backward=kernels if first else 2 * kernels,
        forward_exchanges=(Exchange("all_gather", part),),
        backward_exchanges=() if first else (Exchange("all_reduce", source),),
        input=past + source,
        output=keeps + result,
        activations=result,
        forward_reserved=workspace,
        backward_reserved=0.0 if first else max(workspace, source + result, merged),
    )


def _normalisation(size: float, *, past: float) -> Work:
    """Return a batch normalisation: forward it reads twice, backward each of two tensors twice."""
    return Work(
        forward=streaming(3 * size),
        backward=streaming(5 * size),
        input=past + size,
        output=past + size,
        activations=size,
        backward_reserved=2 * size,
    )


def _relu(size: float) -> Work:
    return Work(
        forward=streaming(2 * size),
        backward=streaming(3 * size),
        input=size,
        output=size,
        activations=size,
        backward_reserved=2 * size,
    )


def _downsample(images: Images, block: Block, residual: float, output: float) -> Work:
    """Return the addition of the residual, projected and normalised first if shapes change."""
    addition = streaming(3 * output)
    if not block.projects:
        return Work(
            forward=addition,
            backward=streaming(0.0),
            input=residual + output,
            output=output,
            activations=output,
            backward_reserved=output,
        )
    projection = _convolution(
        images, block.convolutions[f"{block.name}-downsample"], past=output, edge=block.input_size
    )
    normalisation = _normalisation(output, past=0.0)
    return Work(
        forward=projection.forward + normalisation.forward + addition,
        backward=projection.backward + normalisation.backward,
        forward_exchanges=projection.forward_exchanges,
        backward_exchanges=projection.backward_exchanges,
        input=residual + output,
        output=output,
        activations=2 * output,
        forward_reserved=output + (output + output / images.degree if images.degree > 1 else 0.0),
        backward_reserved=residual + output,
    )


# ---- analytic ------------------------------------------------------------------------------------


TENSOR_DEGREES = (1, 2, 4, 8)
PRIMITIVES = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
MESSAGES = tuple(2**i * MIB for i in range(11))  # bytes: 1, 2, 4 ... 1024 MiB
SPLIT = 0


def analytic_profile(
    model: ModelSpec, cluster: ClusterSpec, micro_batch_sizes: Sequence[int] | None = None
) -> Profile:
    """Estimate every operator of a model on a cluster.
    micro_batch_sizes: samples per replica; the model's own list when None.

    Raises
    ------
    SpecError: a micro-batch below 1, nodes of several kinds, or a device type without the model's
        precision.
    """
    samples = check_samples(
        model.micro_batch_sizes if micro_batch_sizes is None else micro_batch_sizes
    )
    device = cluster.device
    link, between = cluster.link(0, 0), cluster.slowest_between
    possible = [t for t in TENSOR_DEGREES if t <= cluster.devices_per_node]
    degrees = tuple(t for t in possible if model.architecture.tensor_parts % t == 0)
    rows: dict[RowKey, OperatorRow] = {}
    for micro_batch in samples:
        for degree in degrees:
            weights = operator_weights(model, degree)
            for operator, work in operator_work(model, micro_batch, degree).items():
                key = RowKey(operator=operator, micro_batch=micro_batch, tp=degree, split=SPLIT)
                forward, backward = work_times(work, degree, device, link, model.precision)
                rows[key] = OperatorRow(
                    forward=forward,
                    backward=backward,
                    input=work.input,
                    output=work.output,
                    weights=weights.get(operator, 0.0),
                    activations=work.activations,
                    forward_reserved=work.forward_reserved,
                    backward_reserved=work.backward_reserved,
                    provenance=Provenance.ANALYTIC,
                )
    left_out = [str(t) for t in possible if t not in degrees]
    notes = []
    if left_out:
        notes.append(f"tp {', '.join(left_out)}: does not divide {model.name}, left out")
    if not cluster.symmetric:
        notes.append(SLOWEST_TAKEN)
    estimated = Origin(Provenance.ANALYTIC)
    collectives = link_collectives(rows.values(), possible[1:], link)
    return Profile(
        source="analytic",
        micro_batch_sizes=samples,
        tensor_degrees=degrees,
        splits=(SPLIT,),
        rows=rows,
        collectives=collectives,
        intra_node=bandwidths(link),
        inter_node=bandwidths(between),
        collective_origins={
            key: dict.fromkeys(table, estimated) for key, table in collectives.items()
        },
        link_origins=(estimated, estimated),
        notes=tuple(notes),
    )


def operator_work(model: ModelSpec, micro_batch: int, degree: int) -> dict[str, Work]:
    """Return the work of every distinct operator for one micro-batch of one replica, per device."""
    architecture, number = model.architecture, model.bytes_per_number
    if isinstance(architecture, Gpt):
        return gpt_work(architecture, micro_batch, degree, number)
    if isinstance(architecture, T5):
        return t5_work(architecture, micro_batch, degree, number)
    if isinstance(architecture, WideResNet):
        return resnet_work(architecture, micro_batch, degree, number)
    raise SpecError(
        f"model {model.name!r}: family {model.family!r} has no estimates of single operators, "
        "expected gpt, t5 or resnet; `cost_model=native` plans its whole layers"
    )


def operator_weights(model: ModelSpec, degree: int) -> dict[str, float]:
    """Return the bytes of parameters on each tensor-parallel rank, by operator with any."""
    number = model.bytes_per_number
    return {
        operator: number * (held.split / degree + held.whole)
        for operator, held in model.architecture.parameters.items()
    }


def work_times(
    work: Work, degree: int, device: Device, link: Link, precision: str
) -> tuple[float, float]:
    """Return seconds of the forward and the backward pass. link: to the tensor-parallel peers."""
    return (
        kernel_time(work.forward, device, precision)
        + sum(exchange_time(e, degree, link) for e in work.forward_exchanges),
        kernel_time(work.backward, device, precision)
        + sum(exchange_time(e, degree, link) for e in work.backward_exchanges),
    )


def check_samples(samples: Iterable[int]) -> tuple[int, ...]:
    """Return micro-batch sizes ascending and once.

    Raises
    ------
    SpecError: there is none, or one is below 1.
    """
    found = tuple(sorted(set(samples)))
    if not found or found[0] < 1:
        raise SpecError(
            f"micro-batch size: must be at least 1, found {found[0] if found else 'none'}"
        )
    return found


def link_collectives(
    rows: Iterable[OperatorRow], groups: Sequence[int], link: Link
) -> dict[tuple[str, int], dict[int, float]]:
    """Return tables at the sizes that cost models look up: inputs in whole MiB, and one less."""
    whole = {round(row.input / MIB) for row in rows}
    sizes = sorted(whole | {s - 1 for s in whole if s > 0})
    return ring_tables(sizes, groups, link)


def ring_tables(
    sizes: Iterable[int], groups: Iterable[int], link: Link
) -> dict[tuple[str, int], dict[int, float]]:
    """Return seconds of every collective in groups of so many devices, by whole MiB."""
    return {
        (primitive, devices): {
            # Size 0 stands for everything that rounds to it.
            size: exchange_time(Exchange(primitive, max(size, 0.5) * MIB), devices, link)
            for size in sizes
        }
        for primitive in PRIMITIVES
        for devices in groups
    }


def bandwidths(link: Link) -> tuple[float, ...]:
    """Return effective bytes/s of each message size, latency included."""
    return tuple(size / (link.latency + size / link.bandwidth) for size in MESSAGES)
