"""The same solves twice, without and with a choice: what it is worth, and what looking for it
takes.

Every row is the command line twice, each in a process of its own on two cores, with compiled
kernels; seconds are those of both cores together.
"""

import json
import platform
import resource
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import percent, write_table
from tests.benchmarks.warm import CORES, solve

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results"
SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Twice:
    """A suite of such solves.

    name: of its table in the manual; its results have it too. cases: what is asked of `ilp-plan
    solve`. ways: the two choices, by what a row calls them: their options. heads: of the columns of
    both plans and of the seconds of the second search. chained: the second search starts from the
    plan of the first.
    """

    name: str
    cases: tuple[str, ...]
    ways: dict[str, tuple[str, ...]]
    heads: tuple[str, str, str]
    chained: bool = False

    @property
    def results(self) -> Path:
        """Where measured rows are."""
        return RESULTS / f"{self.name.replace('-', '_')}.json"

    def measure(self, only: str, seconds: float | None) -> None:
        """Measure the cases whose words contain `only`; write the results and the table."""
        known = json.loads(self.results.read_text())["rows"] if self.results.exists() else []
        rows: dict[str, Row] = {row["case"]: row for row in known}
        for case in self.cases:
            if only in case:
                rows[case] = {"case": case} | self._both(case, seconds or SECONDS)
                print(self.name, json.dumps(rows[case]), flush=True)
                machine = f"Python {platform.python_version()}, {CORES} cores"
                order = [rows[name] for name in self.cases if name in rows]
                record = {"machine": machine, "rows": order}
                self.results.write_text(json.dumps(record, indent=1) + "\n")
        write_table(self.name, self.table([rows[n] for n in self.cases if n in rows]))

    def _both(self, case: str, seconds: float) -> Row:
        """Solve a case in both ways."""
        words = [*case.split(), "--space", "groups", "--time-limit", str(seconds)]
        found: Row = {}
        with tempfile.TemporaryDirectory() as folder:
            plan = Path(folder) / "plan.json"
            for name, options in self.ways.items():
                start = ["--start", str(plan)] if self.chained and plan.exists() else []
                keep = ["--output", str(plan)] if self.chained and not found else []
                found[name] = measured([*words, *options, *keep, *start])
        return found

    def table(self, rows: Sequence[Row]) -> str:
        """Return as Markdown the plan's seconds in both ways, and what the searches take."""
        first, second, more = self.heads
        head = ["case", first, "gap", "CPU-s", second, "gap", more, "less"]
        lines = [line(head), "|---|" + "---:|" * 7]
        for row in rows:
            cells = [row["case"]]
            for name in self.ways:
                one = row[name]
                none = one["objective_s"] is None
                cells += ["no plan" if none else f"{one['objective_s']:.3f}"]
                cells += ["-" if none else percent(one["gap"]), f"{one['cpu_s']:.1f}"]
            before, after = (row[name]["objective_s"] for name in self.ways)
            cells.append("-" if None in (before, after) else percent(1 - after / before))
            lines.append(line(cells))
        return "\n".join(lines)


def measured(words: Sequence[str]) -> Row:
    """Solve; return the plan's seconds, its gap, and the seconds of all cores."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    row = solve(words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {name: row[name] for name in ("wall_s", "objective_s", "gap")} | {"cpu_s": cpu}
