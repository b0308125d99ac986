"""Model specifications from TOML, and the catalogue of those that come with the planner.

`models/README.md` describes the format.
"""

from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from ilp_planner.base.errors import SpecError
from ilp_planner.base.file_kinds import FileKind, kind_of_text
from ilp_planner.base.files import Document, read_document
from ilp_planner.base.library import hub_names, library_files
from ilp_planner.specs.architecture import Architecture
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import (
    CompressedAttention,
    DeltaNet,
    Experts,
    LatentAttention,
    Mamba,
    Rotary,
    SparseAttention,
    Window,
)
from ilp_planner.specs.encoder import Encoder
from ilp_planner.specs.lengths import Lengths
from ilp_planner.specs.model import ARCHITECTURES, PRECISIONS, PROFILES, SYSTEMS, ModelSpec
from ilp_planner.specs.sounds import SoundEncoder
from ilp_planner.specs.toml_reader import Table, read_toml

# Tables of a decoder's architecture, by the type of the field.
TABLES: dict[Any, type[Any]] = {
    kind | None: kind
    for kind in (
        LatentAttention,
        Experts,
        Rotary,
        Window,
        Mamba,
        DeltaNet,
        SparseAttention,
        CompressedAttention,
        Encoder,
        SoundEncoder,
        Lengths,
    )
}
MAY_BE_ZERO = (
    "dense_first", "query_rank", "shared_ffn", "prediction_layers", "top_groups", "full_every",
    "none_every", "parallel_norms", "latent", "positions", "vectors", "scales", "window",
    "full_layers", "projector_ffn", "deepstack", "outputs", "images", "seconds", "channels",
    "marks", "chunk", "offset", "hashed",
)  # fmt: skip
SHARES = ("dropout",)  # numbers below 1, also 0
KEYS = ("name", "family", "precision", "micro_batches", "architecture", "profile", "export", "hub")


def read_model(source: Path | str | Document, *, text_only: bool = False) -> ModelSpec:
    """Read a model specification, or a `config.json` of Hugging Face.

    Parameters
    ----------
    text_only: of a model of text and pictures or sounds, its text alone.

    Raises
    ------
    SpecError: one line with the file, the key, the found and the expected value.
    """
    if not isinstance(source, Document):
        source = read_document(Path(source), SpecError)
    if is_config(source):
        from ilp_planner.specs.hugging_face.reader import read_config

        return read_config(source, text_only=text_only)
    root = read_toml(source, KEYS)
    if "hub" in root.values:
        root.texts_of("hub")
    family = root.choice(
        "family",
        tuple(ARCHITECTURES),
        "decoder: Llama, Mistral, Qwen, DeepSeek and other decoder-only transformers",
    )
    architecture = _read_architecture(root, family)
    if text_only and isinstance(architecture, Decoder):
        architecture = replace(architecture, encoder=None, sounds=None)
    root.table("profile", PROFILES, optional=True)
    export = root.table("export", SYSTEMS, optional=True)
    with root.blamed():
        return ModelSpec(
            name=root.text("name"),
            precision=root.choice("precision", tuple(PRECISIONS)),
            architecture=architecture,
            micro_batch_sizes=root.wholes("micro_batches", architecture.micro_batch_sizes),
            profile=root.texts("profile"),
            export={key: export.scalars(key) for key in export.values},
        )


def is_config(document: Document) -> bool:
    """Tell whether a text is a configuration of Hugging Face: JSON by its beginning or by the name
    of its file, and of no other kind."""
    kind = kind_of_text(document.text)
    seems_json = document.text.lstrip().startswith("{") or document.name.endswith(".json")
    return kind is FileKind.HUGGING_FACE or (kind in (None, FileKind.JSON) and seems_json)


def _read_architecture(root: Table, family: str) -> Architecture:
    kind = ARCHITECTURES[family]
    table = root.table("architecture", [f.name for f in fields(kind)])
    with table.blamed():
        return kind(**_read_fields(table, kind))


def _read_fields(table: Table, kind: type[Any]) -> dict[str, Any]:
    """Return the values that a table has for the fields of a dataclass, each of its field's type;
    keys without a default must be there."""
    values: dict[str, Any] = {}
    for f in fields(kind):
        if f.default is not MISSING and f.name not in table.values:
            continue
        readers: dict[Any, Any] = {
            int: table.natural if f.name in MAY_BE_ZERO else table.whole,
            bool: table.flag,
            str: table.text,
            float: table.share if f.name in SHARES else table.number,
            tuple[int, ...]: table.wholes,
            tuple[bool, ...]: table.flags,
        }
        if part := TABLES.get(f.type):
            inner = table.table(f.name, [field.name for field in fields(part)])
            with inner.blamed():
                values[f.name] = part(**_read_fields(inner, part))
        else:
            values[f.name] = readers[f.type](f.name)
    return values


# ---- the models that come with the planner -------------------------------------------------------


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
    return Entry(library_spec(path), tuple(hub), source_of(read_document(path, SpecError)))


def library_spec(path: Path) -> ModelSpec:
    """Return a model that comes with the planner. Its file is read once, unless it changes."""
    return _library_spec(path, path.stat().st_mtime_ns)


@cache
def _library_spec(path: Path, changed: int) -> ModelSpec:
    return read_model(path)


def source_of(document: Document) -> str:
    """Return the comment that a model file begins with, on one line."""
    lines = []
    for line in document.text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)
