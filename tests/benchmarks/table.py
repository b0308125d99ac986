"""Tables of the manual, made from the measured results."""

import re
from pathlib import Path
from typing import Any

from tests.benchmarks.cases import CASES, ROOT

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


def write_table(name: str, table: str) -> None:
    """Put a table between its markers, on the page of the manual that has them."""
    page, text, shown = _place(name)
    page.write_text(f"{text[: shown.start(1)]}{table}\n{text[shown.end(1) :]}")


def shown_table(name: str) -> str:
    """Return the table between the markers of a name, as the manual shows it."""
    return _place(name)[2][1].removesuffix("\n")


def _place(name: str) -> tuple[Path, str, re.Match[str]]:
    """Return the one page of the manual with the markers of a table, its text, and the place."""
    pattern = re.compile(f"<!-- {name}: begin -->\n(.*?)<!-- {name}: end -->", re.DOTALL)
    pages = [(page, page.read_text()) for page in sorted((ROOT / "docs").rglob("*.md"))]
    found = [(*page, shown) for page in pages for shown in pattern.finditer(page[1])]
    if len(found) != 1:
        raise SystemExit(f"docs: {len(found)} pages have the markers of {name}, expected 1")
    return found[0]
