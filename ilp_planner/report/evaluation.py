"""What there is to say about a plan that somebody else claims something about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from ilp_planner.coverage import proved_gap
from ilp_planner.report.tables import (
    describe_bound,
    describe_gap,
    new_table,
    proved_by,
)

if TYPE_CHECKING:
    from rich.table import Table

    from ilp_planner.certificate import CertificateCheck
    from ilp_planner.coverage import Coverage
    from ilp_planner.formats.saved_plan import Claim


def proof_lines(
    claim: Claim | None,
    check: CertificateCheck | None,
    iteration_time: float,
    coverage: Coverage,
) -> list[tuple[str, str]]:
    """Say what is proved: by the certificate where it was checked, else what the file claims.

    Parameters
    ----------
    iteration_time: seconds, as evaluated; counts with `check`. coverage: what the proof is about;
        a plan outside has no gap to its bound.

    Raises
    ------
    SolverError: the bound is above the time of a plan that it is about.
    """
    outside = coverage.outside
    place = f"outside: {outside}" if outside else "inside the space of the proof"
    lines = [("proof", place), ("among", coverage.among)]
    if check is not None:
        by = "the certificate, derived again" if check.holds else "what is left of the certificate"
        lines.append(("bound", describe_bound(check.bound, by)))
        if not outside:
            lines.append(("gap", describe_gap(proved_gap(iteration_time, check.bound))))
        return lines
    if claim is None:
        return [*lines, ("bound", "none: the plan came from elsewhere")]
    lines.append(("claimed bound", describe_bound(claim.bound, proved_by(claim))))
    if not outside:
        gap = f"{describe_gap(claim.gap)}; --check-certificate derives it again"
        lines.append(("claimed gap", gap))
    return lines


def certificate_table(check: CertificateCheck, parts: str = "part") -> Table:
    """Return a row per part of a certificate. parts: what to call them."""
    columns = (parts, "claimed bound", "derived again", "by", "holds")
    table = new_table(*columns, left=("part", "by", "holds"))
    for part in check.parts:
        cells = (
            str(part.part),
            describe_bound(part.claimed, ""),
            describe_bound(part.rederived, ""),
            part.by,
            "yes" if part.holds else "NO",
        )
        table.add_row(*map(Text, cells))
    return table
