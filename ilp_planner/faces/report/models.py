"""The catalogue of models, for people and as JSON."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ilp_planner.faces.report.tree import Table
from ilp_planner.specs.parameter_count import parameter_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.model_reader import Entry


BILLION = 1e9
WORDS = 16  # letters of a source that has neither paper nor configuration


def models_table(entries: Sequence[Entry]) -> Table:
    """Return a row per model."""
    left = ("model", "family", "source")
    shown = Table("model", "parameters", "family", "layers", "hidden", "source", left=left)
    for entry in entries:
        model = entry.model
        shown.add(
            model.name,
            f"{parameter_count(model) / BILLION:.2f} B",
            model.family,
            *(_size(model, name) for name in ("layers", "hidden")),
            _short(entry),
        )
    return shown


def models_legend() -> list[tuple[str, str]]:
    """Return remarks that the table lacks."""
    return [
        ("source", "a paper, or whose configuration it is; --json has it in full"),
        ("parameters", "shared ones once, no layers of multi-token prediction; --json to the unit"),
        ("MODEL", "`ilp-plan models MODEL` writes the file of one, of a config.json too"),
    ]


def entry_object(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON."""
    return model_object(entry.model) | {"hub": list(entry.hub), "source": entry.source}


def model_object(model: ModelSpec) -> dict[str, Any]:
    """Return a model as JSON."""
    architecture = model.architecture
    return {
        "name": model.name,
        "family": model.family,
        "parameters": parameter_count(model),
        "layers": getattr(architecture, "layers", None),
        "hidden": getattr(architecture, "hidden", None),
        "precision": model.precision,
        "tokens": architecture.tokens,
        "notes": list(model.remarks),
    }


def _short(entry: Entry) -> str:
    """Return the source in a few words: a paper, else who published the configuration."""
    paper = re.search(r"arXiv [\d.]+\d", entry.source)
    if paper:
        return paper[0]
    if entry.hub:
        return entry.hub[0].partition("/")[0]
    text = re.split(r"[;:,(]|\. ", entry.source)[0].strip().removesuffix(".")
    return text if len(text) <= WORDS else f"{text[: WORDS - 3]}..."


def _size(model: ModelSpec, name: str) -> str:
    found = getattr(model.architecture, name, None)
    return "-" if found is None else str(found)
