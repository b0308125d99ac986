"""The verdict of `fit` and the changes that make a job fit, for people and as JSON."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.fit.needs import first_rank
from ilp_planner.base.units import counted, format_bytes, format_percent, format_seconds, plural
from ilp_planner.faces.report.analysis_memory import gibibytes
from ilp_planner.faces.report.expected import known_lines, known_object
from ilp_planner.faces.report.grid import grid_lines, styled_text, wrapped
from ilp_planner.faces.report.parallelism import (
    parallelism_lines,
    parallelism_object,
    parallelism_of_job,
)
from ilp_planner.faces.report.rates import (
    price_in,
    price_lines,
    price_object,
    rates_lines,
    rates_object,
    run_lines,
    run_object,
    run_of,
    samples_lines,
)
from ilp_planner.faces.report.tables import Table
from ilp_planner.faces.schemas import headed
from ilp_planner.job.verdict import MARGIN, PERCENT, reason
from ilp_planner.settings.job_options import uncounted_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.analysis.fit.fit import Change, Fit
    from ilp_planner.analysis.fit.judge import Judged
    from ilp_planner.analysis.fit.needs import Needs
    from ilp_planner.analysis.fit.trained import TrainedSo
    from ilp_planner.faces.report.rates import Price, Run

SHOWN = 0.01  # share of what a GPU needs, of a term that is named


def verdict_lines(as_is: Needs, *, width: int, styled: bool) -> Iterator[str]:
    """Yield two lines: whether the job fits and by how much on the deciding GPU, and the memory of
    that GPU."""
    job, stage = as_is.job, as_is.fullest
    needed, device = as_is.ranks[stage].needed, as_is.devices[stage]
    verdict, left = as_is.verdict, "left" if as_is.left >= 0 else "too much"
    why = f"; {reason(as_is.ranks[stage], device.memory)}" if verdict.fits is None else ""
    where = "every GPU" if job.pp == 1 else f"rank {first_rank(job, stage)} (stage {stage})"
    over = sum(as_is.room(rank) < 0 for rank in range(job.pp))
    stages = f"; {over} of {job.pp} stages are over" if over and job.pp > 1 else ""
    head = (
        f"{verdict:<16}{format_bytes(needed)} of {format_bytes(device.memory)} of {device.type} on "
        f"{where}: {format_bytes(abs(as_is.left))} {left}"
    )
    yield _coloured(wrapped(f"{head}{stages}{why}", width), verdict.colour, styled)
    terms = {**as_is.ranks[stage].terms}
    terms["outside PyTorch"] = sum(as_is.ranks[stage].outside.values())
    largest = sorted(terms.items(), key=lambda item: -item[1])
    shown = [f"{name} {gibibytes(size)}" for name, size in largest if size > SHOWN * needed]
    yield wrapped(f"{'holds':<16}{', '.join(shown)} GiB", width)


def time_lines(as_is: Judged, tokens: float | None, *, width: int) -> Iterator[str]:
    """Yield the time of the job as if there were room, and its rates. tokens: of a training run;
    None: nothing is said of one."""
    job = as_is.job
    would = "" if as_is.left >= 0 else ", were there room"
    yield wrapped(
        f"{'takes':<16}{format_seconds(as_is.seconds)} for {job.global_batch:,} "
        f"{plural(job.global_batch, 'sample')}{would}; "
        f"{as_is.done.tokens:,.0f} tokens/s on {job.world:,} {plural(job.world, 'GPU')}",
        width,
    )
    for name, text in (
        *known_lines(as_is.known),
        *parallelism_lines(parallelism_of_job(job)),
        *rates_lines(as_is.done, job.settings.precision),
        *samples_lines(job.model.on_ranks(job.settings.cp), job.micro_batch),
        *price_lines(price_of_job(as_is)),
        *run_lines(run_of_job(as_is, tokens)),
    ):
        yield wrapped(f"{name:<16}{text}", width)


def price_of_job(judged: Judged) -> Price | None:
    """Return the price of a job; None if a price is not known."""
    if judged.hourly is None:
        return None
    return price_in(judged.seconds, judged.hourly, judged.nodes, judged.done.tokens)


def run_of_job(judged: Judged, tokens: float | None) -> Run | None:
    """Return how long a job trains on so many tokens; None if nothing is asked."""
    return run_of(tokens, judged.done.tokens, judged.hourly) if tokens else None


def _coloured(text: str, colour: str, styled: bool) -> str:
    return styled_text(text, colour) if styled else text


def note_lines(notes: Sequence[str], *, width: int) -> Iterator[str]:
    """Yield remarks on assumptions."""
    yield from (wrapped(f"note    {note}", width) for note in dict.fromkeys(notes))


def change_lines(found: Fit, *, words: str, top: int, width: int) -> Iterator[str]:
    """Yield the changes as tables, with remarks.

    Parameters
    ----------
    words: the subject of changes. top: changes to show of one setting, and of two.
    """
    as_is = found.as_is
    for size, title in ((1, "one setting changed"), (2, "two settings changed")):
        kept = [change for change in found.changes if change.size == size]
        if kept:
            yield ""
            yield from _table(title, kept[:top], as_is, width)
            if len(kept) > top:
                yield f"... and {len(kept) - top} more (--top)"
    if found.more_gpus is not None:
        yield ""
        yield from _table("on the fewest more GPUs", [found.more_gpus], as_is, width)
    if found.free is not None and found.free.change is not None:
        yield ""
        yield from _table("all settings free", [found.free.change], as_is, width)
    yield ""
    yield from (wrapped(line, width) for line in _closing(found, words))


def _table(title: str, changes: Sequence[Change], as_is: Judged, width: int) -> list[str]:
    told = any(not change.judged.fits for change in changes)
    heads = ("time", "against\nas it is", "GiB\nleft", *("verdict",) * told)
    grid = Table(title, *heads, left=(title,))
    for change in changes:
        judged = change.judged
        grid.add(
            str(change.words),
            format_seconds(judged.seconds),
            signed_percent(judged.seconds / as_is.seconds - 1),
            gibibytes(judged.left),
            *(judged.verdict,) * told,
        )
    return grid_lines(grid, width)


def signed_percent(share: float) -> str:
    """Return `+2.10 %`, `-0.30 %`, or `0.00 %` and `<0.01 %` without a sign."""
    text = format_percent(abs(share))
    signed = share and text[0].isdigit()
    return f"{'+' if share > 0 else '-'}{text}" if signed else text


def _closing(found: Fit, words: str) -> Iterator[str]:
    """Yield the number of tried jobs, and sufficient memory or GPUs if nothing fits."""
    tried = f"{found.singles:,} jobs with one setting changed"
    if found.as_is.fits:
        best = "the fastest of each setting are above" if found.changes else "none is faster"
        yield f"tried   {tried}: {best}"
    else:
        best = "none fits"
        if found.changes:
            fastest = min(found.changes, key=lambda change: change.judged.seconds)
            fits = "fits" if fastest.judged.fits else "may fit, where none certainly does"
            best = f"the fastest that {fits}: {fastest.words}"
        yield f"tried   {tried} and {found.pairs:,} with two; {best}"
    if found.changes or found.more_gpus:
        yield f"words   what to add to the {words}, or to change or leave out there"
    free, plan = found.free, f"{found.noun} with all settings free"
    if free is not None:
        if free.change is not None:
            least = f"proved: {format_seconds(free.bound)} at least" if free.bound else "no bound"
            yield f"free    {least} for any {plan}, among {free.among}"
        elif free.impossible:
            yield f"free    proved: no {plan} fits, among {free.among}"
        else:
            yield f"free    no {plan} was found in time (--time-limit)"
    if found.changes and found.more_gpus is None and not found.as_is.fits:
        yield (
            f"GPUs    with nothing else changed it fits on no number of them, up to one of its "
            f"{counted(found.as_is.job.global_batch, 'sample')} per replica; a larger batch allows "
            "more"
        )
    if found.enough is not None:
        memory, gpus = found.enough.memory, found.enough.gpus
        batch = counted(found.as_is.job.global_batch, "sample")
        each = "not found"
        number = (
            f"not found with its batch of {batch}; --time-limit gives more time, a larger batch "
            "more replicas"
        )
        if memory is not None:
            bare = format_bytes((1 - MARGIN) * memory)
            each = f"{format_bytes(memory)} on each GPU, {PERCENT} of it to spare; {bare} with none"
        if gpus is not None:
            number = f"{gpus:,} of these GPUs, {PERCENT} of their memory to spare"
        yield f"enough  memory for some {found.noun} on as many GPUs: {each}"
        yield f"enough  GPUs for some {found.noun}: {number}"
    for way in found.otherwise:
        learns = "the same" if way.learns_the_same else "something else"
        words = " ".join([*_options(way)] or ["the same job"])
        yield (
            f"else    {words} fits, by {way.by}: {format_bytes(way.needed)}; it learns {learns}, "
            f"and `solve --runtime {way.runtime}` plans it"
        )


def uncounted_notes(found: Fit) -> tuple[str, ...]:
    """Return what is not counted of changes and is not of the job as it is."""
    more, free = found.more_gpus, found.free and found.free.change
    changes = (*found.changes, *((more,) if more else ()), *((free,) if free else ()))
    told = {*uncounted_in(found.as_is.job.settings)}
    notes = (note for one in changes for note in uncounted_in(one.judged.job.settings))
    return tuple(note for note in dict.fromkeys(notes) if note not in told)


def _options(way: TrainedSo) -> Iterator[str]:
    """Yield the options that say a way to train."""
    return (f"--{name.replace('_', '-')} {value}" for name, value in way.said.items())


def verdict_object(as_is: Needs, *, name: str, notes: Sequence[str]) -> dict[str, Any]:
    """Return whether the job fits: the GPU that decides, and its bytes."""
    job, stage = as_is.job, as_is.fullest
    rank = as_is.ranks[stage]
    return {
        **headed("fit"),
        "model": name,
        "fits": as_is.verdict.fits,
        "verdict": str(as_is.verdict),
        "gpus": job.world,
        "parallelism": parallelism_object(parallelism_of_job(job)),
        "decides": {
            "rank": first_rank(job, stage),
            "stage": stage,
            "device": as_is.devices[stage].type,
            "needed": rank.needed,
            "limit": as_is.devices[stage].memory,
            "left": as_is.left,
            "terms": dict(rank.terms),
            "outside": dict(rank.outside),
        },
        "notes": list(dict.fromkeys(notes)),
    }


def changes_object(found: Fit, tokens: float | None = None) -> dict[str, Any]:
    """Return the time of the job, the changes that make it fit, and the number of tried jobs.
    tokens: of a training run; None: nothing is said of one."""
    free, enough, as_is = found.free, found.enough, found.as_is
    return {
        "seconds": as_is.seconds,
        **known_object(as_is.known, as_is.seconds),
        "throughput": rates_object(as_is.done),
        **price_object(price_of_job(as_is)),
        "run": run_object(run_of_job(as_is, tokens)),
        "changes": [_change(change, as_is, tokens) for change in found.changes],
        "tried": {"singles": found.singles, "pairs": found.pairs},
        "more_gpus": None if found.more_gpus is None else _change(found.more_gpus, as_is, tokens),
        "free": None
        if free is None
        else {
            "change": None if free.change is None else _change(free.change, as_is, tokens),
            "bound": free.bound if isfinite(free.bound) else None,
            "among": free.among,
            "impossible": free.impossible,
            "runtime": free.runtime,
        },
        "enough": None if enough is None else {"memory": enough.memory, "gpus": enough.gpus},
        "otherwise": [
            {"add": [*_options(one)], "needed": one.needed, "runtime": one.runtime, "by": one.by}
            for one in found.otherwise
        ],
    }


def _change(change: Change, as_is: Judged, tokens: float | None) -> dict[str, Any]:
    judged, words = change.judged, change.words
    return {
        "settings": list(change.settings),
        "language": words.language,
        "add": list(words.add),
        "drop": list(words.drop),
        "fields": list(words.fields),
        "environment": dict(words.environment),
        "gpus": judged.job.world,
        "seconds": judged.seconds,
        "relative": judged.seconds / as_is.seconds,
        "left": judged.left,
        "verdict": str(judged.verdict),
        "parallelism": parallelism_object(parallelism_of_job(judged.job)),
        "throughput": rates_object(judged.done),
        **price_object(price_of_job(judged)),
        "run": run_object(run_of_job(judged, tokens)),
    }
