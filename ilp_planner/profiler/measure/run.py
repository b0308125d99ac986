"""The one verb: measure a model on this machine into a table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import MeasureError, ProfileError, UsageError
from ilp_planner.costs.profiles.measurements import Measurements, Record
from ilp_planner.profiler.measure.journal import Journal, begun
from ilp_planner.profiler.measure.sweep import Sweep
from ilp_planner.profiler.measure.target import Target, open_target
from ilp_planner.profiler.measure.wish import NOWHERE, Spread, Summary, Wish, has_operators
from ilp_planner.specs.usual import is_implied

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.profiler.measure.operators import Job
    from ilp_planner.specs.model import ModelSpec

IMPLEMENTATION = (
    "PyTorch without compilation; gradients added up in fp32; Adam, fused, clipped to norm 1"
)


def measure_model(
    model: ModelSpec,
    *,
    output: Path,
    degrees: tuple[int, ...] = (1,),
    spread: Spread = NOWHERE,
    micro_batch_sizes: tuple[int, ...] = (1,),
    sequences: tuple[int, ...] = (),
    device: str | None = None,
    device_name: str | None = None,
    dtype: str | None = None,
    links: Measurements | None = None,
    repeats: int | None = None,
    copies: int = 2,
    records: tuple[Record, ...] = (Record.LAYER, Record.OPERATOR),
    resume: bool = False,
    progress: Callable[[float, str], None] = lambda share, what: None,
) -> Summary:
    """Measure every shard of a model; `output` has each row as soon as it is measured.

    degrees, micro_batch_sizes, sequences: tensor-parallel, samples of a replica, tokens of a sample
        (none: the model's). spread: context- and expert-parallel degrees.
    device: `cuda` or `cpu`; None: a GPU if there is one. links: collectives to be added to the
        times.
    progress: called with the finished share of the work, and the next step.

    Raises
    ------
    UsageError: the model has nothing that is measured, or a degree does not divide it.
    MeasureError: the device is missing, or does not answer any more.
    ProfileError: the table to go on with is another one's, or `links` has no all-reduces.
    """
    wish = Wish(
        model=model,
        degrees=degrees,
        spread=spread,
        micro_batch_sizes=micro_batch_sizes,
        sequences=sequences,
        copies=copies,
        repeats=repeats,
        records=records,
    )
    if Record.LAYER not in records and not has_operators(model):
        raise UsageError(
            f"model {model.name!r}: found family {model.family!r}, expected gpt, t5 or resnet: of "
            "others only whole layers are measured"
        )
    target = open_target(device, dtype, precision=model.precision, name=device_name)
    jobs = wish.jobs(target.dtype)  # refuses what cannot be measured before anything is
    if links is not None:
        _check_links(links)
    try:
        kernels = _kernels(wish, target, jobs[0])
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise MeasureError(
            f"{target.name} cannot be used in {target.dtype}: {text[:200]}"
        ) from None
    machine = target.describe() | {
        "model": model.name,
        "architecture": _architecture(jobs[0].model),
        "links": "not in the times"
        if links is None
        else f"in the times, of {Path(links.source).name}",
        "implementation": IMPLEMENTATION,
        **kernels,
    }
    known = begun(output, machine) if resume else {}
    journal = Journal(output, machine, append=bool(known))
    try:
        return Sweep(wish, target, journal, known=known, links=links, progress=progress).run()
    finally:
        journal.close()


def _architecture(model: Any) -> str:
    """Return the dimensions that a model's name lacks; the tokens of a sample are in every row."""
    known = ("sequence", "max_position_embeddings")
    return ", ".join(
        f"{one.name} {getattr(model, one.name)}"
        for one in dataclasses.fields(model)
        if one.name not in known
        and getattr(model, one.name) != one.default
        and not is_implied(model, one.name)
    )


def _kernels(wish: Wish, target: Target, job: Job) -> dict[str, str]:
    """Return the kernel of attention or convolutions, in words."""
    found = job.describe(target.device, target.number)
    if wish.operators and "attention" in found:
        found["attention"] += "; operators: unfused"
    return found


def _check_links(links: Measurements) -> None:
    rows = links.of(Record.COLLECTIVE)
    if not (rows["name"] == "all_reduce").any():
        raise ProfileError(
            f"{links.source}: expected rows of all_reduce, which tensor parallelism needs; "
            "`ilp-plan profile measure-links` makes them"
        )
