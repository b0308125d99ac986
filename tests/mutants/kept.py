"""What became of mutants, kept from one run to the next."""

import json
from pathlib import Path
from typing import Any

from tests.mutants.equivalent import equivalents, strangers
from tests.mutants.modules import Module
from tests.mutants.mutations import mutations

HEAD = "| module | mutants | drawn | killed | equivalent | survived | killed of the others |"


class Kept:
    """The outcomes of mutants by module and number: the test that noticed, or null."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.by: dict[str, dict[str, str | None]] = (
            json.loads(file.read_text()) if file.exists() else {}
        )

    def add(self, module: Module, outcomes: dict[int, str | None]) -> None:
        """Keep outcomes, and forget those of numbers that the module has no more."""
        count = len(mutations(module.file.read_text()))
        known = {**self.by.get(module.path, {}), **{str(n): by for n, by in outcomes.items()}}
        self.by[module.path] = {n: by for n, by in known.items() if int(n) < count}
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(json.dumps(self.by, indent=0))

    def survivors(self, module: Module) -> list[int]:
        """Return the numbers of the mutants that survived."""
        return sorted(int(n) for n, by in self.by.get(module.path, {}).items() if by is None)

    def row(self, module: Module) -> str:
        """Return a module's line of the table."""
        source = module.file.read_text()
        every, alive = mutations(source), self.survivors(module)
        same = len({*alive} & {*equivalents(module.path, source)})
        tried = len(self.by.get(module.path, {}))
        killed, others = tried - len(alive), max(1, tried - same)
        cells: list[Any] = [f"`{module.path}`", len(every), tried, killed, same]
        cells += [len(alive) - same, f"{killed / others:.0%}"]
        return f"| {' | '.join(map(str, cells))} |"

    def report(self, module: Module) -> list[str]:
        """Return a line for each mutant that survived and is not known to be equivalent, and for
        each one that is listed as equivalent and is none."""
        source = module.file.read_text()
        every, same = mutations(source), equivalents(module.path, source)
        lines = [
            f"{module.path}:{n} line {every[n].lines[0]}, {every[n].function}: {every[n].text}"
            for n in self.survivors(module)
            if n not in same
        ]
        for _, function, change, nth in strangers(module.path, source):
            text = f"{function}: {change}" + f" (nth = {nth})" * bool(nth)
            lines.append(f"{module.path}: listed as equivalent, not one mutant: {text}")
        for n, by in self.by.get(module.path, {}).items():
            if by is not None and int(n) in same:
                lines.append(f"{module.path}:{n}: listed as equivalent, noticed by {by}")
        return lines
