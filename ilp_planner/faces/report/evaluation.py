"""The judgement of a plan with the claims of its file, in lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.units import counted, format_seconds
from ilp_planner.faces.report.brief import problem_text
from ilp_planner.faces.report.lines import evaluation_lines
from ilp_planner.faces.report.stages import stage_table
from ilp_planner.faces.report.tables import (
    Table,
    describe_bound,
    describe_gap,
    exact_seconds,
    proved_by,
)
from ilp_planner.faces.report.verdict import judgement_verdict
from ilp_planner.optimize.coverage import proved_gap

if TYPE_CHECKING:
    from ilp_planner.formats.saved_check import Judgement
    from ilp_planner.optimize.certificate import CertificateCheck


def print_judgement(judgement: Judgement, tokens: float | None = None, *, as_json: bool) -> None:
    """Print a verdict. tokens: of a training run; None: nothing is said of one."""
    from ilp_planner.faces.report.console import print_brief
    from ilp_planner.faces.report.json_report import judgement_object, print_json

    if as_json:
        print_json(judgement_object(judgement, tokens))
        return
    details = judgement_lines(judgement, tokens)
    print_brief(verdict_lines(judgement), judgement_tables(judgement), details)


def judgement_tables(judgement: Judgement) -> list[Table]:
    """Return the stages of a plan that has a price, and the parts of its certificate."""
    problem, plan, evaluation = judgement.problem, judgement.saved.plan, judgement.evaluation
    tables = [] if evaluation.cost is None else [stage_table(problem, plan, evaluation)]
    if judgement.certificate is not None:
        name = problem.space.part_key.replace("_", "-")
        tables.append(certificate_table(judgement.certificate, name))
    return tables


def verdict_lines(judgement: Judgement) -> list[tuple[str, str]]:
    """Say in two lines how long an iteration takes, whether the plan is legal, and how far from the
    best it can be; a claim of the file that was not derived again is called one."""
    problem, plan, evaluation = judgement.problem, judgement.saved.plan, judgement.evaluation
    what = problem_text(problem, plan)
    if not evaluation.legal:
        rules = counted(len(evaluation.violations), "rule")
        return [("NOT LEGAL", f"it breaks {rules}: {evaluation.violations[0]}"), ("plan", what)]
    step = (f"{format_seconds(evaluation.iteration_time)} per step", what)
    if judgement.faults:
        return [step, ("NOT AS CLAIMED", f"legal, but {judgement.fault}")]
    verdict = judgement_verdict(judgement)
    claimed = judgement.saved.claim is not None and not judgement.coverage.outside
    word = "derived again" if judgement.certificate is not None else "claimed by the file"
    return [step, (verdict.head, f"{verdict.text}{f'; {word}' if claimed else ''}")]


def judgement_lines(judgement: Judgement, tokens: float | None = None) -> list[tuple[str, str]]:
    """Say the verdict of the evaluator, and the proof. tokens: of a training run."""
    plan, evaluation = judgement.saved.plan, judgement.evaluation
    judged = evaluation_lines(judgement.problem, plan, evaluation, tokens)
    return [*judged, *proof_lines(judgement)]


def proof_lines(judgement: Judgement) -> list[tuple[str, str]]:
    """Say the proof: by the certificate if it was checked, else the claims of the file. A plan that
    the proof is not about has no gap to its bound."""
    check, claim = judgement.certificate, judgement.saved.claim
    among, outside = judgement.coverage
    place = f"outside: {outside}" if outside else "inside the space of the proof"
    lines = [("proof", place), ("among", among)]
    if check is not None:
        by = "the certificate, derived again" if check.holds else "what is left of the certificate"
        lines.append(("bound", describe_bound(check.bound, by)))
        if not outside:
            gap = proved_gap(judgement.evaluation.iteration_time, check.bound)
            lines.append(("gap", describe_gap(gap)))
        return [*lines, *_aim_lines(judgement)]
    if claim is None:
        return [*lines, ("bound", "none: the plan came from elsewhere")]
    if not judgement.saved.certificate:
        unproved = f"{exact_seconds(claim.bound)}; the file has no certificate that proves it"
        return [*lines, ("claimed bound", "none" if claim.bound <= 0 else unproved)]
    lines.append(("claimed bound", describe_bound(claim.bound, proved_by(claim))))
    if not outside:
        gap_text = f"{describe_gap(claim.gap)}; --check-certificate derives it again"
        lines.append(("claimed gap", gap_text))
    if claim.fastest is not None:
        found = f"{exact_seconds(claim.fastest.objective)}, {claim.fastest.status}"
        lines.append(("claimed fastest", f"{found}: its plan is in the file"))
    aim = judgement.saved.aim
    if aim:
        what = (
            f"{aim.get('name')}, compared with {counted(len(aim.get('sets', ())), 'set')} of nodes"
        )
        lines.append(("objective", f"{what}; --check-certificate derives their bounds again"))
    return lines


def _aim_lines(judgement: Judgement) -> list[tuple[str, str]]:
    """Say the bounds of an objective over sets of nodes that were derived again."""
    aim = judgement.aim
    if aim is None:
        return []
    holds = "derived again" if aim.holds else "NOT as claimed"
    sets = f"{counted(len(aim.sets), 'set')} of nodes, {holds}"
    value, bound = (
        exact_seconds(number) if aim.figure == "seconds" else f"{number:.4g} per iteration"
        for number in (aim.value, aim.bound)
    )
    return [("objective", f"{aim.objective}: {value}, at least {bound}, {sets}"),
            ("objective gap", describe_gap(aim.gap))]  # fmt: skip


def certificate_table(check: CertificateCheck, parts: str = "part") -> Table:
    """Return a row per part of a certificate. parts: their name."""
    columns = (parts, "claimed bound", "derived again", "by", "holds")
    table = Table(*columns, left=("part", "by", "holds"))
    for part in check.parts:
        cells = (
            str(part.part),
            describe_bound(part.claimed, ""),
            describe_bound(part.rederived, ""),
            part.by,
            "yes" if part.holds else "NO",
        )
        table.add(*cells)
    return table
