"""`ilp-plan size`."""

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from ilp_planner.analysis.size.inputs import NODES
from ilp_planner.base.errors import UsageError
from ilp_planner.base.limits import LEAST_DAYS
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.help import SOLVER
from ilp_planner.faces.cli.options import option, solving, taking
from ilp_planner.faces.cli.request_options import SOLVE, request_options
from ilp_planner.faces.cli.terminal import finish
from ilp_planner.faces.cli.values import number_of_tokens, option_seconds, solve_limits
from ilp_planner.inputs.files import DEFAULT_MODEL
from ilp_planner.inputs.request import Request

if TYPE_CHECKING:
    from ilp_planner.analysis.size.failures import Failures

RUN, FAILING = "Run", "Failures"
asked, failing = partial(option, RUN), partial(option, FAILING)
# Of the options of `solve`.
INPUTS = tuple(name for name in SOLVE if name not in NODES)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The run, and what it may be on."""

    tokens: Annotated[str, asked("--tokens", "Of the run, as 2T or 300e9.", "TOKENS")] = ""
    days: Annotated[float | None, asked("--days", "That it may take.", "DAYS", min=0.0)] = None
    gpus: Annotated[
        str, asked("--gpus", "Kinds of GPU, as H100,H200; `ilp-plan gpus` lists them.", "NAMES")
    ] = ""
    price: Annotated[
        str | None,
        asked(
            "--price",
            "Of a GPU and hour: 2.5, or H100=2.5,H200=3.2, or 2.5,3.2.",
            "PRICE",
        ),
    ] = None
    max_gpus: Annotated[
        int, o.number(RUN, "--max-gpus", "GPUs of a cluster at most.", True, least=1)
    ] = 16_384


@dataclass(frozen=True, kw_only=True)
class Failing:
    """What fails, and what is done about it."""

    mtbf: Annotated[
        str | None,
        failing(
            "--mtbf",
            "GPU-hours between two failures that stop the job, or none; Llama 3's 50,700 without "
            "this option.",
            "HOURS",
        ),
    ] = None
    restart: Annotated[
        str, failing("--restart", "Time until it trains again.", "TIME", default=True)
    ] = "15 min"
    checkpoint: Annotated[
        str,
        failing("--checkpoint", "Time that a checkpoint stops training.", "TIME", default=True),
    ] = "60 s"
    checkpoint_every: Annotated[
        str | None,
        failing("--checkpoint-every", "Time between two; as often as is best.", "TIME"),
    ] = None
    repair: Annotated[
        str | None,
        failing(
            "--repair",
            "Time until a failed node is back; without it, another one is there at once.",
            "TIME",
        ),
    ] = None
    spares: Annotated[
        int | None,
        o.number(
            FAILING,
            "--spares",
            "Idle nodes that take over, with --repair; as many as keep the job from standing "
            "still for more than 1 % of the time.",
            least=0,
        ),
    ] = None

    def failures(self) -> "Failures":
        """Return what the options say.

        Raises
        ------
        UsageError: a value that is none, or spares where nothing is repaired.
        """
        from ilp_planner.analysis.size.failures import MTBF, Failures

        if self.spares is not None and self.repair is None:
            raise UsageError(
                f"--spares: found {self.spares} without --repair, expected the time until a failed "
                "node is back, as --repair '24 h'"
            )
        every = self.checkpoint_every
        return Failures(
            mtbf=MTBF if self.mtbf is None else hours(self.mtbf),
            restart=option_seconds("--restart", self.restart),
            save=option_seconds("--checkpoint", self.checkpoint),
            every=None if every is None else option_seconds("--checkpoint-every", every),
            repair=0.0 if self.repair is None else option_seconds("--repair", self.repair),
            spares=self.spares,
        )


@taking(request=request_options(*INPUTS), run=Asked, failing=Failing)
def size(
    request: Request,
    *,
    run: Asked,
    failing: Failing,
    gap: Annotated[
        float,
        option(
            SOLVER,
            "--gap",
            "How much less a cluster may cost than the one that is called the cheapest.",
            "FRACTION",
            default=True,
            min=0.0,
        ),
    ] = 0.01,
    time_limit: Annotated[
        float,
        solving("--time-limit", "Seconds of search.", "S", default=True, min=0.0),
    ] = 200.0,
    workers: o.Workers = None,
    as_json: o.Json = False,
) -> None:
    """Tell how many GPUs of which kind a training run needs to end in time, and at which price.

    Every number of whole nodes below the smallest one is ruled out by a bound on all plans, and so
    is every cheaper one up to twice the smallest, but for the gap.
    """
    from ilp_planner.analysis.size.gpus import size_on_gpus, wish_of
    from ilp_planner.faces.report.console import print_brief, tell_of_compiling
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.faces.report.live import saying
    from ilp_planner.faces.report.size import size_lines, size_object, size_table

    tokens = number_of_tokens(run.tokens or None)
    missing = [
        name
        for name, said in (("--tokens", tokens), ("--days", run.days), ("--gpus", run.gpus))
        if said is None or said == ""
    ]
    if missing:
        raise UsageError(
            f"{missing[0]}: found nothing, expected it, as in `ilp-plan size llama3-8b --tokens 1T "
            "--days 30 --gpus H100,H200`"
        )
    assert tokens is not None
    assert run.days is not None
    if run.days < LEAST_DAYS:
        raise UsageError(f"--days: found {run.days:g}, expected {LEAST_DAYS:.2g} or more")
    wish = wish_of(
        tokens, run.days, run.gpus, price=run.price, failures=failing.failures(), most=run.max_gpus
    )
    limits = solve_limits(time_limit, gap, None, workers, None)
    tell_of_compiling()
    with saying() as said:
        found = size_on_gpus(request, wish, limits, said)
    finish()
    model = request.files["model"].name if "model" in request.files else DEFAULT_MODEL
    if as_json:
        print_json(size_object(model, wish, found))
        return
    table = size_table(wish, found, gap)
    lines = size_lines(model, wish, found, gap)
    print_brief(list(lines), [table] if table.rows else [])


def hours(said: str) -> float:
    """Return the hours of `--mtbf`; inf for none.

    Raises
    ------
    UsageError: it is no number above 0.
    """
    if said == "none":
        return math.inf
    try:
        found = float(said)
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise UsageError(f"--mtbf: found {said!r}, expected GPU-hours, as 50000, or none")
    return found
