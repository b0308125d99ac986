"""Mutants that no test can notice, as they do the same: listed by hand, each with the reason."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from tests.mutants.mutations import Mutation, mutations

FILE = Path(__file__).with_name("equivalent.toml")


@cache
def reasons() -> dict[tuple[str, str, str], str]:
    """Return the reason by the module, the function and the change."""
    listed = tomllib.loads(FILE.read_text())["mutant"]
    return {(row["module"], row["function"], row["change"]): row["reason"] for row in listed}


def reason(module: str, mutation: Mutation) -> str | None:
    """Return why a mutant of a module does the same as the module; None: it may not."""
    return reasons().get((module, mutation.function, mutation.text))


def strangers(module: str, source: str) -> list[tuple[str, str]]:
    """Return what is listed of a module though no mutant of it is so."""
    known = {(mutation.function, mutation.text) for mutation in mutations(source)}
    listed = [rest for of, *rest in reasons() if of == module]
    return [(function, change) for function, change in listed if (function, change) not in known]
