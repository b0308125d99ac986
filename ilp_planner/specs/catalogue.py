"""The models that come with the planner: their files, names at Hugging Face, and sources."""

from dataclasses import dataclass
from pathlib import Path

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document, read_document
from ilp_planner.base.library import hub_names, library_files
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.model_reader import read_model


@dataclass(frozen=True, slots=True)
class Entry:
    """One of them. hub: its names at Hugging Face. source: of its numbers, from its file."""

    model: ModelSpec
    hub: tuple[str, ...]
    source: str


def catalogue() -> tuple[Entry, ...]:
    """Return all of them, by name."""
    names: dict[Path, list[str]] = {}
    for hub, path in hub_names().items():
        names.setdefault(path, []).append(hub)
    return tuple(_entry(path, names.get(path, [])) for path in library_files("models"))


def _entry(path: Path, hub: list[str]) -> Entry:
    document = read_document(path, SpecError)
    return Entry(read_model(document), tuple(hub), source_of(document))


def source_of(document: Document) -> str:
    """Return the comment that a model file begins with, on one line."""
    lines = []
    for line in document.text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)
