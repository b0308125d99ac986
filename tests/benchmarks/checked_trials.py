"""Trials of the independent checker in full: bounds of random instances, edits, seeded mistakes.

python -m tests.benchmarks --suite checked-trials [--only 'mistakes megatron']
python -m tests.checker bounds megatron 0 50  # one slice, as JSON

A slice is a process of its own. What is known of the checker as it is now is not measured again,
so that a run may be ended and begun anew.
"""

import ast
import hashlib
import io
import tokenize
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from tests.benchmarks.cases import ROOT
from tests.benchmarks.kept import CORES, Kept, measured
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table

Row = dict[str, Any]
FILES = tuple(ROOT / "ilp_planner/checker" / name for name in ("checker.py", "costs.py"))
SPACES = ("operators", "groups", "metis", "megatron", "torchtitan", "deepspeed")
FALSE = ("refused", "weaker proof said", "another set said", "believed", "missed")
NOTICED = FALSE[:2]
UNFILED = "false, without a proof"  # that no plan fits, or a plan without a proof: nothing to check


class Trial(NamedTuple):
    """A trial: the seeds of a slice, slices at most, and, from a row, how many of what is asked for
    it has; `goal`: so many are asked for of every space."""

    size: int
    most: int
    counted: Callable[[Row], int]
    goal: int


TRIALS = {
    "bounds": Trial(50, 40, lambda row: row.get("instances", 0), 1000),
    "edits": Trial(1700, 6, lambda row: row["edits"], 1700),  # 10,200 of six spaces
    "mistakes": Trial(50, 40, lambda row: sum(row.get(x, 0) for x in FALSE), 17),
}


def kept() -> Kept:
    """Return what is known of the slices."""
    keys = [(name, space, trial.size * k) for name, trial in TRIALS.items() for space in SPACES
            for k in range(trial.most)]  # fmt: skip
    return Kept("checked_trials", keys, lambda row: (row["trial"], row["space"], row["first"]))


def digest() -> str:
    """Return the hash of the checker, of both files."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in FILES)).hexdigest()[:12]


def measure(only: str, seconds: float | None) -> None:
    """Run the slices that are asked for, two at a time; write the tables."""
    rows, lock, now = kept(), Lock(), digest()
    del seconds

    def run(name: str, space: str) -> None:
        trial, found = TRIALS[name], 0
        known = {(x["space"], x["first"]): x for x in rows.rows if x["trial"] == name}
        for k in range(trial.most):
            if found >= trial.goal:
                return
            row = known.get((space, k * trial.size), {})
            if row.get("checker") != now:
                words = (name, space, str(k * trial.size), str(trial.size))
                counts = measured("tests.checker", *words)
                row = {"trial": name, "space": space, "first": k * trial.size,
                       "count": trial.size, "checker": now, **counts}  # fmt: skip
                with lock:
                    rows.add(row)
            found += trial.counted(row)

    asked = [(name, space) for name in TRIALS for space in SPACES if only in f"{name} {space}"]
    with ThreadPoolExecutor(CORES) as pool:
        for done in [pool.submit(run, *one) for one in asked]:
            done.result()
    write_tables()


def write_tables() -> None:
    """Write what is known."""
    for name, table in tables(kept().rows).items():
        write_table(name, table)


COLUMNS = {
    "bounds": ("instances", "bounds above the optimum", "equal to it", "the least, of it"),
    "edits": ("edits", "read and judged", "accepted and false", "more than a line", "slowest (s)"),
    "mistakes": ("false claims", "noticed", *FALSE[2:], UNFILED),
}


def tables(rows: list[Row]) -> dict[str, str]:
    """Return the tables of the page by name: the counts of every space, and the list of mistakes
    that are not noticed."""
    found = {}
    for name, heads in COLUMNS.items():
        lines = [line(["space", *heads]), line(["---", *["---:"] * len(heads)])]
        for space in SPACES:
            of = [row for row in rows if row["trial"] == name and row["space"] == space]
            if of:
                lines.append(line([space, *CELLS[name](of)]))
        found[f"checked-{name}"] = "\n".join(lines)
    return {**found, "checked-unnoticed": mistakes_table(rows)}


def _sum(rows: list[Row], *keys: str) -> int:
    return sum(row.get(key, 0) for row in rows for key in keys)


def _bounds(rows: list[Row]) -> list[str]:
    """Return instances, bounds above and equal to their optimum, and the least share of it."""
    above = sum(len(row["above"]) for row in rows)
    least = min(row["lowest"] for row in rows)
    return [f"{_sum(rows, 'instances')}", f"{above}", f"{_sum(rows, 'equal')}", f"{least:.4f}"]


def _edits(rows: list[Row]) -> list[str]:
    """Return edits, those that were judged, accepted with a false claim, or no line."""
    accepted, broken = (sum(len(row[x]) for row in rows) for x in ("accepted", "broken"))
    slowest = max(row["slowest_s"] for row in rows)
    edits = _sum(rows, "edits") + broken
    return [f"{edits}", f"{_sum(rows, 'judged')}", f"{accepted}", f"{broken}", f"{slowest:.1f}"]


def _mistakes(rows: list[Row]) -> list[str]:
    """Return false claims, and those that were noticed, or not and why."""
    every = [_sum(rows, *FALSE), _sum(rows, *NOTICED)]
    return [f"{x}" for x in (*every, *(_sum(rows, x) for x in (*FALSE[2:], UNFILED)))]


CELLS: dict[str, Callable[[list[Row]], list[str]]] = {
    "bounds": _bounds, "edits": _edits, "mistakes": _mistakes
}  # fmt: skip


def mistakes_table(rows: list[Row]) -> str:
    """Return the mistakes that no checker notices that believes what this one believes."""
    lines = [line(["space", "mistake in", "changed", "what becomes of it"]), line(["---"] * 4)]
    for row in rows:
        for _, said, place, function, text in row.get("named", ()):
            module = place.partition(":")[0]
            shown = text.replace("|", "\\|")
            lines.append(line([row["space"], f"`{module}` {function}", f"`{shown}`", said]))
    return "\n".join(lines)


def code_lines(*files: Path) -> int:
    """Return the lines of files that have code; by default of those of the checker."""
    return sum(map(_code_lines, files or FILES))


def _code_lines(path: Path) -> int:
    """Return the lines of a module that have code: no comment, docstring or blank line."""
    source = path.read_text()
    told: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                told |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    left = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
            tokenize.ENCODING, tokenize.ENDMARKER)  # fmt: skip
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in left:
            found |= set(range(token.start[0], token.end[0] + 1))
    return len(found - told)
