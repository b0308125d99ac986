"""`ilp-plan show`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ilp_planner.base.errors import PlanError, UsageError
from ilp_planner.base.files import check_writable, resolved, write_text
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.completion import plans
from ilp_planner.faces.cli.terminal import echo
from ilp_planner.faces.cli.values import number_of_tokens
from ilp_planner.formats.saved_json import read_saved

if TYPE_CHECKING:
    from ilp_planner.faces.page.view import View
    from ilp_planner.formats.saved_check import Judgement

MOST = 2  # plans beside each other


def show(
    plan_files: Annotated[
        list[Path],
        typer.Argument(
            metavar="PLAN...",
            help="A saved plan, or two to put beside each other.",
            autocompletion=plans,
        ),
    ],
    html: Annotated[
        Path | None,
        o.shown(
            "--html",
            "Where to write the page; without any output, a file of the plan's name with .html.",
            "FILE",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        o.shown("--trace", "Where to write a trace that Perfetto opens.", "FILE"),
    ] = None,
    png: Annotated[
        Path | None,
        o.shown("--png", "Where to write a picture, .png or .svg.", "FILE"),
    ] = None,
    price: Annotated[
        str | None,
        o.plain(
            "--price",
            "What a device costs per hour instead of what the cluster says, as 2.5, or of every "
            "type, as a100=2.5,t4=0.4.",
            "PRICE",
        ),
    ] = None,
    tokens: o.Tokens = None,
    accept_changed: o.AcceptChanged = False,
) -> None:
    """Draw saved plans: a page that needs no network, a trace, a picture.

    A plan that is not legal is drawn too, and marked.
    """
    if len(plan_files) > MOST:
        raise UsageError(f"PLAN: found {len(plan_files)} plans, expected at most {MOST}")
    if trace is not None and len(plan_files) > 1:
        raise UsageError("--trace: found two plans, expected one: a trace is of one iteration")
    if html is trace is png is None:
        html = own_page(plan_files[0])
    outputs = [file for file in (html, trace, png) if file is not None]
    if len({resolved(file) for file in outputs}) < len(outputs):
        raise UsageError("--html, --trace, --png: found the same file twice, expected each its own")
    if png is not None:
        from ilp_planner.faces.page.picture import check_picture

        check_picture(png)
    run_tokens = number_of_tokens(tokens)
    for file in outputs:
        check_writable(file, plan_files)
    judgements = [judged(file, price, accept_changed=accept_changed) for file in plan_files]
    views = [
        view(file, found, run_tokens) for file, found in zip(plan_files, judgements, strict=True)
    ]
    if html is not None:
        from ilp_planner.faces.page.render import plan_page

        write_text(html, plan_page(views, remarks=remarks(judgements)))
    if trace is not None:
        save_trace(trace, views[0])
    if png is not None:
        from ilp_planner.faces.page.picture import write_picture

        write_picture(png, views)
    for file, found in zip(plan_files, judgements, strict=True):
        if found.fault:
            tell(f"ilp-plan: note: {file}: {found.fault}")
    verdicts = "; ".join(f"{shown.name}: {shown.headline.text}" for shown in views)
    tell(f"{', '.join(map(str, outputs))} written. {verdicts}")


def tell(text: str) -> None:
    """Print one line to stderr, with control characters in names of files shown as `?`."""
    echo(text.replace("\n", "?"), err=True)


def own_page(plan_file: Path) -> Path:
    """Return the default path of a plan's page: beside the plan, and never over a file of another
    kind.

    Raises
    ------
    UsageError: there is another file of that name.
    """
    from ilp_planner.faces.page.render import GENERATOR

    page = plan_file.with_suffix(".html")
    if page.is_file():
        with page.open(encoding="utf-8", errors="replace") as file:
            if f'content="{GENERATOR}"' not in file.read(1000):
                raise UsageError(
                    f"--html: found none, and {page} is there and was not written by "
                    f"`{GENERATOR}`: expected a file to write"
                )
    return page


def judged(plan_file: Path, price: str | None, *, accept_changed: bool) -> "Judgement":
    """Return a saved plan judged again, at the prices that were given."""
    from ilp_planner.formats.saved_check import judge_saved
    from ilp_planner.formats.saved_problem import problem_of
    from ilp_planner.specs.prices import with_prices

    saved = read_saved(plan_file)
    problem = problem_of(saved, plan_file, accept_changed=accept_changed)
    if price is not None:
        problem = replace(problem, cluster=with_prices(problem.cluster, price))
    try:
        return judge_saved(problem, saved, certificate=False)
    except PlanError as error:
        raise PlanError(f"{plan_file}: {error}") from None


def view(plan_file: Path, found: "Judgement", tokens: float | None) -> "View":
    """Return the view of a plan. tokens: of a training run; None: nothing is said of one."""
    from ilp_planner.faces.page.view import view_of

    return view_of(found, name=plan_file.name, stem=plan_file.stem, tokens=tokens)


def remarks(judgements: "list[Judgement]") -> list[str]:
    """Say if plans beside each other are of different problems, so that their times and bounds
    differ in meaning."""
    from ilp_planner.analysis.compare.judge import other_problem

    if len(judgements) < 2:
        return []
    first, second = (found.problem for found in judgements)
    other = other_problem(first, second)
    if not other:
        return []
    return [f"These plans are of different problems: of the second, {other}."]


def save_trace(file: Path, shown: "View") -> None:
    """Write the iteration of a plan as a trace.

    Raises
    ------
    PlanError: it was not run.
    """
    from ilp_planner.schedule.trace import write_trace

    if shown.simulated is None:
        raise PlanError(f"{shown.name}: no trace: {shown.missing['timeline']}")
    write_trace(file, shown.simulated.timeline)
