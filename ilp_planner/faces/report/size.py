"""The clusters on which a run ends in time, for people and as JSON."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.size.failures import MTBF
from ilp_planner.base.numerics import PROVED
from ilp_planner.base.units import DAY, HOUR, counted, format_percent, number_ranges
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report.brief import short_count
from ilp_planner.faces.report.expected import known_of
from ilp_planner.faces.report.parallelism import BETWEEN, degree_words
from ilp_planner.faces.report.stages import training_words
from ilp_planner.faces.report.tables import Table
from ilp_planner.faces.report.verdict import searched_set
from ilp_planner.faces.schemas import headed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.analysis.size.gpus import OnGpu, Wish
    from ilp_planner.analysis.size.size import Choice, Sized

SMALLEST, CHEAPEST = "smallest", "cheapest"
GAP_CLOSED = "no cluster of up to twice the nodes of the smallest is cheaper by more"
GAP_OPEN = (
    "another cluster of the same GPUs, of up to twice the nodes of the smallest, may be cheaper by "
    "as much; --time-limit gives more time"
)
MOST_RANGES = 6  # of numbers that are told one by one
ONES = ("tp 1", "pp 1", "cp 1", "ep 1")  # degrees that need not be said


def days_text(seconds: float) -> str:
    """Return `29.7 days`, below two days hours."""
    hours = seconds / HOUR
    return f"{seconds / DAY:.1f} days" if seconds >= 2 * DAY else f"{hours:.3g} hours"


def size_lines(
    model: str, wish: Wish, found: Sequence[OnGpu], asked: float
) -> Iterator[tuple[str, str]]:
    """Yield the verdict first: the cheapest or smallest cluster of all, and what is proved. asked:
    a gap that is good enough."""
    tokens = short_count(wish.tokens)
    limit = days_text(wish.seconds)
    ended = [one for one in found if one.found is not None and one.found.smallest is not None]
    if ended:
        yield from _best(wish, found, ended, asked)
    yield from _none([one for one in found if one not in ended], limit)
    known = next(one for one in found if one.found is not None)
    yield (
        "the run",
        f"{model}, {tokens} tokens in at most {limit}: {known.steps:,.0f} "
        f"{'step' if known.steps == 1 else 'steps'} of {known.batch} x {known.sample:.0f}",
    )
    yield "failures", failures_text(wish)
    late = [
        f"{choice.gpus:,} {one.gpu} ({days_text(ends[1])})"
        for one in ended
        for _, choice in choices(one)
        if (ends := interval(choice)) is not None and ends[1] > wish.seconds
    ]
    if late:
        yield "may end late", f"1 of 10 such runs takes longer than {limit}: {', '.join(late)}"
    if ended:
        closed = all(_sized(one).gap <= max(asked, PROVED) for one in ended)
        yield "gap", GAP_CLOSED if closed else GAP_OPEN
    unpriced = [name for name in wish.gpus if math.isnan(wish.price(name))]
    if 0 < len(unpriced) < len(wish.gpus):
        more = ",".join(f"{name}=..." for name in unpriced)
        yield "no price", f"not compared by price: {', '.join(unpriced)}; --price takes {more} too"
    for note in dict.fromkeys(note for one in found for note in one.notes):
        yield "note", note
    for one in found:
        if one.refused:
            yield one.gpu, one.refused
    if ended:
        one, choice = _best_of(wish, ended)
        yield (
            "next",
            f"ilp-plan solve {shlex.quote(model)} --gpus {choice.gpus}x{one.gpu} "
            f"--global-batch-size {one.batch} --prefer-plain 0 --output plan.json, with this "
            "command's other options",
        )


def _best_of(wish: Wish, ended: Sequence[OnGpu]) -> tuple[OnGpu, Choice]:
    """Return the cheapest cluster, without prices the smallest, and its kind of GPU; of equal ones
    that of the fewest GPU-hours."""
    priced = [one for one in ended if not math.isnan(wish.price(one.gpu))]
    if not priced:
        found = [(one, _smallest(one)) for one in ended]
        return min(found, key=lambda each: (each[1].gpus, hours_of(each[1])))
    cheapest = [(one, choices(one)[-1][1]) for one in priced]
    return min(cheapest, key=lambda each: (each[1].cost, hours_of(each[1])))


def _best(
    wish: Wish, found: Sequence[OnGpu], ended: Sequence[OnGpu], asked: float
) -> Iterator[tuple[str, str]]:
    best, choice = _best_of(wish, ended)
    priced = not math.isnan(wish.price(best.gpu))
    what = CHEAPEST if priced else SMALLEST
    rivals = list((_cheaper if priced else _smaller)(wish, found, choice, asked))
    said = f"{what}{' found' * bool(rivals)}: {days_text(choice.taken)}"
    yield f"{choice.gpus:,} x {best.gpu}", said + f", price {choice.cost:,.0f}" * priced
    if rivals:
        more = "cheaper" if priced else "smaller"
        yield f"NOT PROVED {what.upper()}", f"there may be a {more} cluster of {', '.join(rivals)}"
    yield from proofs(ended)


def _cheaper(wish: Wish, found: Sequence[OnGpu], best: Choice, asked: float) -> Iterator[str]:
    """Yield the kinds of GPU whose clusters may cost less by more than a gap, and how much less."""
    for one in found:
        if one.found is not None and not math.isnan(wish.price(one.gpu)):
            less = 1 - one.found.cheapest_bound / best.cost
            if less > max(asked, PROVED):
                yield f"{one.gpu}, by up to {format_percent(less)}"


def _smaller(wish: Wish, found: Sequence[OnGpu], best: Choice, asked: float) -> Iterator[str]:
    """Yield the kinds of GPU of which fewer are not ruled out. Where one node is not, nothing is
    known of its parts either."""
    for one in found:
        if one.found is not None:
            least = [n * one.found.node_size if n > 1 else 1 for n in one.found.open[:1]]
            if min((*least, *one.found.parts_open), default=best.gpus) < best.gpus:
                yield one.gpu


def proofs(ended: Sequence[OnGpu]) -> Iterator[tuple[str, str]]:
    """Yield what is proved of the smallest clusters: of all that are proved together."""
    proved: dict[str, list[OnGpu]] = {}
    for one in ended:
        if not _sized(one).open and not _sized(one).parts_open:
            proved.setdefault(_fewer(one), []).append(one)
    for fewer, some in proved.items():
        names = ", ".join(f"{_smallest(one).gpus:,} {one.gpu}" for one in some)
        if not fewer:
            names += ": no cluster is smaller"
        else:
            among = searched_set(_smallest(some[0]).problem, None, nodes=fewer)
            names += f": no {among} ends in time"
        yield "PROVED SMALLEST", names
    for one in ended:
        gpus = f"{_smallest(one).gpus:,} {one.gpu}"
        if left := _sized(one).open:
            nodes = counted(_smallest(one).nodes, "node")
            text = f"{gpus} are {nodes}: {_open_text(left)} not ruled out"
        elif left := _sized(one).parts_open:
            text = f"{gpus}: {number_ranges(left)} GPUs, part of a node, are not ruled out"
        else:
            continue
        yield "NOT PROVED", f"{text} for a {_sized(one).noun}; --time-limit gives more time"


def _fewer(one: OnGpu) -> str:
    """Return what is ruled out: whole nodes, or the asked parts of one below the smallest; empty if
    there is nothing smaller."""
    sized, gpus = _sized(one), _smallest(one).gpus
    if not sized.parts:
        return "fewer whole nodes"
    fewer = [str(part) for part in sized.parts if part < gpus]
    return f"{' or '.join(fewer)} GPU{'s' * (fewer[-1:] > ['1'])}" if fewer else ""


def _open_text(numbers: Sequence[int]) -> str:
    """Return `3-5, 9 nodes`, of many ranges `214 numbers of nodes from 160 to 959 are`."""
    text = number_ranges(numbers)
    if text == "1":
        return "1 node is"
    if text.count(",") < MOST_RANGES:
        return f"{text} nodes are"
    return f"{len(numbers)} numbers of nodes from {min(numbers)} to {max(numbers)} are"


def _none(found: Sequence[OnGpu], limit: str) -> Iterator[tuple[str, str]]:
    for one in found:
        if one.found is None:
            continue
        most = one.found.most * one.found.node_size
        if one.found.open:
            left = _open_text(one.found.open)
            yield (
                "NOT FOUND",
                f"{one.gpu}: no {one.found.noun} was found that ends within {limit}; {left} not "
                "ruled out; --time-limit gives more time",
            )
        else:
            yield (
                "PROVED IMPOSSIBLE",
                f"no {one.found.noun} on a cluster of up to {most:,} {one.gpu} ends within {limit}",
            )


def failures_text(wish: Wish) -> str:
    """Say what is assumed of failures."""
    failures = wish.failures
    if math.isinf(failures.mtbf) and failures.every is None:
        return "none are counted"
    usual = " (Llama 3's)" if failures.mtbf == MTBF else ""
    parts = [f"one per {failures.mtbf:,.0f} GPU-hours{usual}"]
    every = (
        "as often as is best" if failures.every is None else f"every {failures.every / 60:g} min"
    )
    parts.append(f"checkpoints {every}, {failures.save:g} s each")
    parts.append(f"a restart {failures.restart / 60:g} min")
    if failures.repair:
        parts.append(f"a node away {failures.repair / HOUR:g} h")
    return "assumed: " + ", ".join(parts)


def size_table(wish: Wish, found: Sequence[OnGpu], asked: float) -> Table:
    """Return a row per cluster that ends in time. asked: a gap that is good enough."""
    spared = any(c.spares for one in found for _, c in choices(one))
    priced = any(not math.isnan(wish.price(one.gpu)) for one in found)
    heads = ["GPUs", "", *(["spare nodes"] if spared else []), "ends in", "4 of 5 runs"]
    heads += ["lost", "GPU-hours", *(["price"] if priced else []), "gap", "plan"]
    table = Table(*heads, left=("GPUs", "", "plan"))
    for one in found:
        for what, choice in choices(one):
            sized = _sized(one)
            cells = [f"{choice.gpus:,} {one.gpu}", what]
            cells += [str(choice.spares)] * spared
            cells += [days_text(choice.taken), interval_text(choice), format_percent(choice.lost)]
            cells.append(f"{hours_of(choice):,.0f}")
            if priced:
                known = not math.isnan(wish.price(one.gpu))
                cells.append(f"{choice.cost:,.0f}" if known else "-")
            gap = format_percent(max(sized.gap, asked)) if CHEAPEST in what else ""
            table.add(*cells, gap, plan_text(choice))
    return table


def hours_of(choice: Choice) -> float:
    """Return the GPU-hours that are billed, spares included."""
    return choice.gpus / choice.nodes * (choice.nodes + choice.spares) * choice.taken / HOUR


def choices(one: OnGpu) -> list[tuple[str, Choice]]:
    """Return the clusters of a kind of GPU with what they are: one if it is both."""
    if one.found is None or one.found.smallest is None or one.found.cheapest is None:
        return []
    smallest, cheapest = one.found.smallest, one.found.cheapest
    if smallest.gpus == cheapest.gpus:
        return [(f"{SMALLEST}, {CHEAPEST}", cheapest)]
    return [(SMALLEST, smallest), (CHEAPEST, cheapest)]


def interval(choice: Choice) -> tuple[float, float] | None:
    """Return the seconds between which 4 of 5 such runs end; None if that is not known."""
    error = known_of(choice.problem, choice.plan).error
    return None if error is None else (choice.taken * error.low, choice.taken * error.high)


def interval_text(choice: Choice) -> str:
    """Return `27.9 to 33.1 d`, in the unit of `days_text` for the predicted time."""
    ends = interval(choice)
    unit, name = (DAY, "d") if choice.taken >= 2 * DAY else (HOUR, "h")
    return "-" if ends is None else f"{ends[0] / unit:.3g} to {ends[1] / unit:.3g} {name}"


def plan_text(choice: Choice) -> str:
    """Return the degrees of a plan that are not 1, and its recomputation."""
    evaluation = evaluate(choice.problem, choice.plan)
    degrees, _ = degree_words(choice.problem, choice.plan, evaluation)
    told = [word for word in degrees if word not in ONES]
    again = [word for word in training_words(choice.plan, brief=True) if "recomput" in word][:1]
    return BETWEEN.join([*told, *again])


def size_object(model: str, wish: Wish, found: Sequence[OnGpu]) -> dict[str, Any]:
    """Return the object of `--json`."""
    return {
        **headed("size"),
        "model": model,
        "tokens": wish.tokens,
        "days": wish.seconds / DAY,
        "failures": {
            "gpu_hours_between": None if math.isinf(wish.failures.mtbf) else wish.failures.mtbf,
            "restart_s": wish.failures.restart,
            "checkpoint_s": wish.failures.save,
            "checkpoint_every_s": wish.failures.every,
            "repair_s": wish.failures.repair,
        },
        "gpus": [_gpu_object(wish, one) for one in found],
        "notes": list(dict.fromkeys(note for one in found for note in one.notes)),
    }


def _gpu_object(wish: Wish, one: OnGpu) -> dict[str, Any]:
    sized = one.found
    price = wish.price(one.gpu)
    smallest = None if sized is None else sized.smallest
    cheapest = None if sized is None else sized.cheapest
    return {
        "gpu": one.gpu,
        "reason": one.refused,
        "steps": one.steps or None,
        "price_per_gpu_hour": None if math.isnan(price) else price,
        "node_size": None if sized is None else sized.node_size,
        "most_nodes": None if sized is None else sized.most,
        "not_ruled_out": [] if sized is None else list(sized.open),
        "parts_of_node": [] if sized is None else list(sized.parts),
        "parts_not_ruled_out": [] if sized is None else list(sized.parts_open),
        "smallest": None if smallest is None else _choice(smallest, price),
        "cheapest": None if cheapest is None else _choice(cheapest, price),
        "cheapest_of_nodes": None if cheapest is None else _sized(one).cheapest_most,
        "cheapest_gap": None if cheapest is None else _sized(one).gap,
    }


def _choice(choice: Choice, price: float) -> dict[str, Any]:
    ends = interval(choice)
    return {
        "gpus": choice.gpus,
        "nodes": choice.nodes,
        "spare_nodes": choice.spares,
        "iteration_s": choice.seconds,
        "bound_s": choice.bound,
        "days": choice.taken / DAY,
        "days_low": None if ends is None else ends[0] / DAY,
        "days_high": None if ends is None else ends[1] / DAY,
        "lost_share": choice.lost,
        "checkpoint_every_s": None if math.isinf(choice.every) else choice.every,
        "gpu_hours": hours_of(choice),
        "price": None if math.isnan(price) else choice.cost,
        "plan": plan_text(choice),
    }


def _smallest(one: OnGpu) -> Choice:
    found = _sized(one).smallest
    assert found is not None
    return found


def _sized(one: OnGpu) -> Sized:
    assert one.found is not None
    return one.found
