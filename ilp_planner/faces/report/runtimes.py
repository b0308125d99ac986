"""The training systems and the searched settings of each, for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ilp_planner.faces.report.tree import Table
from ilp_planner.formats.exports import RELEASES, Runtime
from ilp_planner.spaces.registry import RUNTIMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ilp_planner.formats.exports import Export
    from ilp_planner.settings.base import Treatment

OPTIONS = "options"  # what JSON calls them
COLUMNS = ("setting", "plans have", "asked for", "how", "option", "remark")


def runtimes_table() -> Table:
    """Return a row per release of each system."""
    columns = ("export --to", "release", "what is written", "checked by", "solve --runtime")
    shown = Table(*columns, left=columns)
    for system, releases in RELEASES.items():
        for release, export in releases.items():
            shown.add(
                str(Runtime(system, release)),
                export.release or release,
                export.files,
                export.checked,
                _searched(system),
            )
    return shown


def runtimes_legend() -> list[tuple[str, str]]:
    """Return remarks that the table lacks."""
    return [
        ("solve --runtime", "searches what the system runs; the others take plans that they run"),
        ("RUNTIME", "`ilp-plan runtimes RUNTIME` says what is searched, fixed and left out"),
    ]


def runtime_lines(system: str) -> list[tuple[str, str]]:
    """Return the facts on a system, or on one release of it."""
    lines = [("runtime", system)]
    for release, export in _releases(system).items():
        lines.append(("release", export.release or release))
        lines.append(("written", export.files))
        lines.append(("checked by", export.checked))
    return [*lines, ("solve --runtime", _searched(system))]


def runtime_object(system: str) -> dict[str, Any]:
    """Return a system, or one release of it, as JSON."""
    return {
        "name": system,
        "releases": [
            {
                "to": str(Runtime(system.partition("@")[0], release)),
                "release": export.release or release,
                "written": export.files,
                "checked": export.checked,
            }
            for release, export in _releases(system).items()
        ],
        "searched": system in RUNTIMES,
    }


def treatments_table(rows: Iterable[Treatment]) -> Table:
    """Return a row per setting; the asking parameters are options."""
    shown = Table(*COLUMNS, left=COLUMNS)
    for row in rows:
        shown.add(*treatment_cells(row))
    return shown


def treatment_cells(row: Treatment) -> tuple[str, ...]:
    """Return the cells of a setting, in the order of `COLUMNS`."""
    return (
        row.setting,
        ", ".join(row.values) or "-",
        ", ".join(row.on_request),
        row.how,
        ", ".join(row.asked_by),
        row.remark,
    )


def treatments_legend(words: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the legend of the table's columns. words: the meaning of its words for how."""
    return [
        *words.items(),
        ("asked for", "the values that plans have only where the option asks for them"),
    ]


def treatment_object(row: Treatment) -> dict[str, Any]:
    """Return the treatment of a setting as JSON."""
    values = asdict(row)
    return {OPTIONS if name == "asked_by" else name: value for name, value in values.items()}


def _releases(system: str) -> Mapping[str, Export]:
    """Return the releases of a system, or the one that its name ends in."""
    name, _, only = system.partition("@")
    return {release: one for release, one in RELEASES[name].items() if only in ("", release)}


def _searched(system: str) -> str:
    return "yes" if system in RUNTIMES else "no"
