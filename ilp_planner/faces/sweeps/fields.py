"""The fields that a sweep can vary, and the effect of a value on a request.

Their names are the keywords of `ilp_planner.problem`, constraints among them, and the keys of model
and cluster files, with as many of their tables as distinguish them from others: `layers`,
`experts.top_k`, `inter_node.bandwidth`.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields as fields_of
from dataclasses import is_dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.base.files import Document
from ilp_planner.inputs.constraints import KEEP, NAMES, constraints_of
from ilp_planner.inputs.files import DEFAULT_CLUSTER, DEFAULT_MODEL, InputFiles
from ilp_planner.inputs.request import FILES, Reference, Request
from ilp_planner.inputs.table import BY_KEYWORD, INPUTS
from ilp_planner.specs.cluster_reader import DEVICE_KEYS
from ilp_planner.specs.cluster_writer import toml_text
from ilp_planner.specs.machine import CONSTANTS
from ilp_planner.specs.toml_reader import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ilp_planner.faces.sweeps.axes import Axis
    from ilp_planner.inputs.constraints import Constraints

Path = tuple[str, ...]

# Fields that have a second name, as options of the command line have.
ALIASES = {row.alias: row.said for row in INPUTS if row.alias}
OF_REQUESTS = (*FILES, "gpus", *(row.said for row in INPUTS if row.said != "price"), *NAMES)
HELD = {"model": DEFAULT_MODEL, "cluster": DEFAULT_CLUSTER}  # files of which fields are varied
# Which fields are set before others: what a file says is changed when it is known which file.
OF_FILE, IN_FILE, OF_REQUEST = range(3)
# Tables that plain models have not, with names of theirs.
OF_HYBRIDS = ("mamba", "delta", "encoder", "sounds")
LISTED = 8  # fields of one name that a message lists


class Field:
    """A field of a request.

    name: as the table of the sweep calls it. order: fields with a lower one are set before.
    """

    def __init__(self, name: str, order: int, put: Callable[[Request, str], Request]) -> None:
        self.name = name
        self.order = order
        self.put = put

    def check(self, text: str) -> None:
        """Refuse a text that is no value under any request.

        Raises
        ------
        UsageError: the found and the expected value.
        """
        if self.order == OF_REQUEST:
            self.put(Request(files={}), text)


def find_field(said: str, axes: tuple[Axis, ...], base: Request) -> Field:
    """Return the field of a name.

    Parameters
    ----------
    axes: all that is varied; the first model and the first cluster define the fields.
    base: the rest of the request.

    Raises
    ------
    UsageError: no field has this name, with the nearest one that has; or several have.
    """
    name = said.replace("-", "_")
    name = ALIASES.get(name, name)
    if name in OF_REQUESTS:
        return Field(name, OF_FILE if name in (*FILES, "gpus") else OF_REQUEST, _setter(name))
    first = _first(axes, base)
    known = [(kind, path) for kind in HELD for path in _paths(kind, held(first, kind))]
    found = _called(said, known)
    if not found:
        names = [*OF_REQUESTS, *dict.fromkeys(path[-1] for _, path in known)]
        hint = nearest(name, names)
        if not hint.startswith("did you mean"):
            hint = f"expected a keyword of `ilp_planner.problem` as {', '.join(OF_REQUESTS[:4])}, "
            hint += "or a key of the model's or the cluster's file"
        raise UsageError(f"vary: found {said!r}, which is no field; {hint}")
    if len(found) > 1:
        every = ", ".join(".".join((kind, *path)) for kind, path in found[:LISTED])
        more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
        raise UsageError(f"vary: found {said!r}, which several fields are called: {every}{more}")
    kind, _ = found[0]
    return Field(said, IN_FILE, lambda request, text: _with_file_value(request, kind, said, text))


def _first(axes: tuple[Axis, ...], base: Request) -> Request:
    """Return the request of the first model and the first cluster."""
    for axis in axes:
        if axis.field in (*FILES, "gpus"):
            base = _setter(axis.field)(base, axis[0])
    return base


def _called(said: str, known: list[tuple[str, Path]]) -> list[tuple[str, Path]]:
    """Return the fields of files that a name says; one alone if it says all of its path, or if the
    others lie in tables below its own."""
    found = [(kind, path) for kind, path in known if _is_called(said, (kind, *path))]
    whole = [(kind, path) for kind, path in found if f"{kind}.{said}".endswith(".".join(path))]
    above = [
        (kind, path)
        for kind, path in found
        if all((kind, *path[:-1]) == (other, *one[: len(path) - 1]) for other, one in found)
    ]
    return next((one for one in (whole, above) if len(one) == 1), found)


def _is_called(said: str, path: Path) -> bool:
    """Tell whether a name says a path: its last key, and some of its tables, in order."""
    words = said.split(".")
    if words[-1] != path[-1]:
        return False
    rest = iter(path[:-1])
    return all(word in rest for word in words[:-1])


# ---- fields of requests --------------------------------------------------------------------------


def _setter(name: str) -> Callable[[Request, str], Request]:
    """Return the setter of a field of a request.

    It raises UsageError for a text that cannot be a value.
    """
    if name == "gpus":
        return with_cluster
    if name in FILES:
        return lambda request, text: _with_reference(request, name, text)
    if name in NAMES:
        return lambda request, text: with_constraints(request, {name: text})
    row = BY_KEYWORD[name]
    return lambda request, text: replace(
        request, **dict[str, Any]({row.name: row.kind.read(name, text)})
    )


def with_cluster(request: Request, name: str) -> Request:
    """Return a request for the cluster of a name, or of so many GPUs."""
    return _with_reference(request, "cluster", name)


def _with_reference(request: Request, kind: str, name: str) -> Request:
    return replace(request, files={**request.files, kind: Reference(name=name)})


def with_constraints(request: Request, said: Mapping[str, str]) -> Request:
    """Return a request with some constraints besides its own.

    Raises
    ------
    UsageError: a text that cannot be a value.
    """
    texts = tuple({**request.constraints.texts, **said}.items())
    if KEEP in said or request.constraints.keep:
        return replace(request, constraints=_read.__wrapped__(texts))
    return replace(request, constraints=_read(texts))


@lru_cache(maxsize=1024)
def _read(said: tuple[tuple[str, str], ...]) -> Constraints:
    from ilp_planner.formats.saved_start import with_kept_stages

    return with_kept_stages(constraints_of(dict(said)))


# ---- fields of files -----------------------------------------------------------------------------


def held(request: Request, kind: str) -> Reference:
    """Return a model or a cluster with its content: of a cluster, all numbers.

    Raises
    ------
    SpecError, UsageError: it is not there, or malformed.
    """
    reference = request.files.get(kind) or Reference(name=HELD[kind])
    if reference.text is not None:
        return reference
    return _held(kind, reference.name, request.text_only)


@lru_cache(maxsize=256)
def _held(kind: str, name: str, text_only: bool) -> Reference:
    from ilp_planner.specs.cluster_writer import cluster_text

    files = InputFiles(Request(files={kind: Reference(name=name)}, text_only=text_only))
    if kind == "model":
        files.model_or_default()
        return files.held[kind]
    text = cluster_text(files.whole_cluster)
    return Reference(name=name, sha256=Document(name, text).sha256, text=text)


def _with_file_value(request: Request, kind: str, said: str, text: str) -> Request:
    """Return a request with another value of one key in its model or cluster.

    Raises
    ------
    SpecError: the file lacks the key, or has several.
    """
    changed = _changed(held(request, kind), kind, said, text)
    return replace(request, files={**request.files, kind: changed})


@lru_cache(maxsize=1024)
def _changed(reference: Reference, kind: str, said: str, text: str) -> Reference:
    """Return a model or a cluster that says something else of one key."""
    paths = _called(said, [(kind, path) for path in _paths(kind, reference)])
    if len(paths) != 1:
        found = f"{len(paths)} fields" if paths else "no field"
        raise SpecError(f"{reference.name}: {said}: found {found} of this name, expected one")
    values = tomllib.loads(reference.text or "")
    table: Any = values
    *inside, last = paths[0][1]
    for key in inside:
        table = table[int(key)] if isinstance(table, list) else table.setdefault(key, {})
    table[last] = _toml_value(text)
    written = Document(reference.name, toml_text(values))
    return Reference(name=reference.name, sha256=written.sha256, text=written.text)


def _toml_value(text: str) -> object:
    """Return the value of a text in TOML; the text itself if it means nothing there."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _paths(kind: str, reference: Reference) -> list[Path]:
    """Return the keys that a model or a cluster has, or may have, each with the tables that it is
    in."""
    values = tomllib.loads(reference.text or "")
    written = _written(values)
    possible = _of_model(values) if kind == "model" else _of_devices(values)
    return list(dict.fromkeys((*written, *possible)))


def _written(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths to all values that are there; of tables in a list, by their numbers."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _written(inner, (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, inner in enumerate(value):
            yield from _written(inner, (*path, str(number)))
    elif path not in (("name",), ("family",), ("notes",)):
        yield path


def _of_model(values: dict[str, Any]) -> Iterator[Path]:
    """Yield the keys that the architecture of a model may have; those of scans, if it has some."""
    from ilp_planner.specs.model import ARCHITECTURES

    own = values.get("architecture", {})
    for path in _of_dataclass(ARCHITECTURES[values["family"]], ("architecture",)):
        if path[1] not in OF_HYBRIDS or path[1] in own:
            yield path


def _of_dataclass(kind: Any, path: Path) -> Iterator[Path]:
    hints = get_type_hints(kind)
    for field in fields_of(kind):
        parts = [part for part in get_args(hints[field.name]) if is_dataclass(part)]
        if parts:
            yield from _of_dataclass(parts[0], (*path, field.name))
        else:
            yield (*path, field.name)


def _of_devices(values: dict[str, Any]) -> Iterator[Path]:
    """Yield the keys that the devices of a cluster may have."""
    for name, device in values["devices"].items():
        for key in DEVICE_KEYS:
            if key not in ("peak", "machine"):
                yield "devices", name, key
        if "machine" in device:
            yield from (("devices", name, "machine", key) for key in CONSTANTS)
