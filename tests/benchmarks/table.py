"""Tables of the README, made from the measured results."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.benchmarks.cases import CASES

if TYPE_CHECKING:
    from pathlib import Path

HEAD = (
    "| case | Aceso's search (ms) | best known before (ms) | bound known before (ms) "
    "| `ilp-plan` (ms) | proved gap | asked gap | first good plan (s) | proof (s) "
    "| peak memory (MB) | `cp-sat` gap, s | `milp` gap, s |"
)


def aceso_table(rows: list[dict[str, Any]]) -> str:
    """Return the comparison with Aceso's own search as Markdown."""
    found = {(row["case"], row["solver"]): row for row in rows}
    lines = [HEAD, "|---|" + "---:|" * 11]
    for case in CASES:
        row = found.get((case.name, "auto"))
        if row is None:
            lines.append(
                f"| {case.name} | {case.published} | {case.known} | | not measured |" + " |" * 7
            )
            continue
        legal = "" if not row["oracle_violations"] else " (illegal!)"
        proof = f"{row['wall_s']:.1f}" + ("" if row["stopped_by"] == "proof" else " (limit)")
        cells = [
            case.name,
            f"{case.published}",
            f"{case.known}",
            f"{case.bound or '-'}",
            f"**{row['oracle_ms']:.1f}**{legal}",
            percent(row["gap"]),
            percent(case.target),
            f"{row['first_good_s']:.1f}",
            proof,
            f"{row['peak_mb']:.0f}",
            alone(found.get((case.name, "cp-sat"))),
            alone(found.get((case.name, "milp"))),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def percent(gap: float) -> str:
    """Return a gap in percent; only an exact 0 prints as 0."""
    return "0" if gap == 0 else f"{gap * 100:.1e} %" if gap < 5e-5 else f"{gap * 100:.2f} %"


def alone(row: dict[str, Any] | None) -> str:
    """Return gap and seconds of one backend on its own."""
    return "-" if row is None else f"{percent(row['gap'])}, {row['wall_s']:.1f}"


def write_readme(readme: Path, name: str, table: str) -> None:
    """Put a table between its markers."""
    text = readme.read_text()
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{readme.name}: no markers {begin} ... {end}")
    readme.write_text(pattern.sub(lambda _: f"{begin}\n{table}\n{end}", text))
