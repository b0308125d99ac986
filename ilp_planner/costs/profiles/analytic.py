"""A profile without measurements: arithmetic at the rate of large products, bytes over bandwidth.

Good for a first plan, and for the order of magnitude of everything. `work.py` has the rules,
`analytic_*.py` the work of each operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError
from ilp_planner.costs.profiles.analytic_resnet import resnet_work
from ilp_planner.costs.profiles.analytic_transformer import gpt_work, t5_work
from ilp_planner.costs.profiles.table import MIB, OperatorRow, Origin, Profile, Provenance, RowKey
from ilp_planner.costs.profiles.work import Exchange, Work, exchange_time, kernel_time
from ilp_planner.specs.cluster import SLOWEST_TAKEN
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.t5 import T5

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ilp_planner.specs.cluster import ClusterSpec, Device
    from ilp_planner.specs.link import Link
    from ilp_planner.specs.model import ModelSpec

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
