"""The request of a plan as JSON: the inputs by name, hash and, but for profiles, content.

Kept stages have the content of their plans.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError, UsageError
from ilp_planner.base.files import Document
from ilp_planner.inputs.constraints import ANY, KEEP, NAMES, Constraints, constraints_of
from ilp_planner.inputs.request import FILES, HELD, Reference, Request
from ilp_planner.inputs.table import INPUTS, Flag, Kind, Size, Whole, Wholes
from ilp_planner.settings.kept import SAID, KeptStage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ilp_planner.formats.json_fields import Fields

REFERENCE_KEYS = ("name", "sha256", "text")
SAVED = {row.saved: row for row in INPUTS if not isinstance(row.kind, Flag)}
OF_TYPES = "memory_limits_bytes"
KEYS = (*FILES, *SAVED, OF_TYPES, "constraints")
# Up to version 2, said of every plan of layers, also where there is no choice.
ALWAYS = {"memory_rule": "device", "placement": "default"}
# Up to version 2, of plans of operators.
OPERATOR_FILES = ("model", "cluster", "profile")
OPERATOR_KEYS = (
    *OPERATOR_FILES, "cost_model", "global_batch", "memory_limit_bytes", "micro_batches",
    "max_stages",
)  # fmt: skip
STAGE_KEYS = tuple(field.name for field in fields(KeptStage))


def encode_inputs(inputs: Request) -> dict[str, Any]:
    """Return the inputs as JSON-ready objects; missing values are left out."""
    values: dict[str, Any] = {
        kind: _encode_reference(inputs.files[kind]) for kind in FILES if kind in inputs.files
    }
    for key, row in SAVED.items():
        if row.built:  # of a problem that is not built
            values[row.name] = list(getattr(inputs, row.name)) or None
        value = getattr(inputs, row.attribute)
        if isinstance(row.kind, Size):
            limits = inputs.memory_limits or {}
            values[key] = None if value is None else _bytes(value)
            values[OF_TYPES] = {name: _bytes(limit) for name, limit in limits.items()} or None
        elif value != "" and value != ():
            values[key] = list(value) if isinstance(value, tuple) else value
    values["constraints"] = _encode_constraints(inputs.constraints) or None
    return {key: value for key, value in values.items() if value is not None}


def decode_inputs(fields: Fields, *, old: bool = False) -> Request:
    """Read the inputs.

    Parameters
    ----------
    old: of a version up to 2.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    fields.only(KEYS)
    files = {kind: _decode_reference(fields, kind) for kind in FILES if _given(fields, kind)}
    if "profile" not in files:
        raise fields.error("profile", "a profile")
    fields.whole("global_batch", least=1)
    said = {
        row.attribute: _decode_value(fields, key, row.kind)
        for key, row in SAVED.items()
        if _given(fields, key)
    }
    if old:
        said = {name: value for name, value in said.items() if value != ALWAYS.get(name)}
    return Request(
        **dict[str, Any](said),
        files=files,
        memory_limits=_decode_limits(fields, said.get("memory_limit")),
        constraints=_decode_constraints(fields),
    )


def _decode_value(fields: Fields, key: str, kind: Kind) -> Any:
    """Return the value of an input."""
    if isinstance(kind, Whole):
        return fields.whole(key, least=kind.least)
    if isinstance(kind, Wholes):
        return tuple(fields.wholes(key, least=1))
    return fields.number(key, least=1.0) if isinstance(kind, Size) else fields.text(key)


def _encode_constraints(constraints: Constraints) -> dict[str, Any]:
    """Return the constraints on plans, with the content of kept stages."""
    kept = {KEEP: encode_stages(constraints.keep)} if constraints.keep else {}
    return {**constraints.texts, **kept}


def _decode_constraints(root: Fields) -> Constraints:
    """Read the constraints on plans; files of before say nothing."""
    if not _given(root, "constraints"):
        return ANY
    fields = root.inside("constraints")
    fields.only(NAMES)
    said: dict[str, Any] = {name: fields.text(name) for name in fields.values if name != KEEP}
    if KEEP in fields.values:
        said[KEEP] = tuple(decode_stages(fields, KEEP))
    try:
        return constraints_of(said)
    except UsageError as error:
        raise PlanError(f"{fields.file}: {fields.where}.{error}") from None


def _decode_limits(root: Fields, most: float | None) -> dict[str, float] | None:
    """Read the bytes that each device type may use, at most the requested ones."""
    if not _given(root, "memory_limits_bytes"):
        return None
    fields = root.inside("memory_limits_bytes")
    limits = {name: fields.number(name, least=1.0) for name in fields.values}
    for name, limit in limits.items():
        if most is not None and limit > most:
            raise fields.error(name, f"at most {_bytes(most)}, the memory_limit_bytes")
    return limits


def decode_operator_inputs(fields: Fields) -> Request:
    """Read the inputs of a plan of operators, as files had them up to version 2.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    fields.only(OPERATOR_KEYS)
    return Request(
        files={kind: _decode_reference(fields, kind) for kind in OPERATOR_FILES},
        space="operators",
        cost_model=fields.text("cost_model"),
        global_batch=fields.whole("global_batch", least=1),
        memory_limit=fields.number("memory_limit_bytes", least=1.0),
        micro_batch_sizes=tuple(fields.wholes("micro_batches", least=1)),
        max_stages=fields.whole("max_stages", least=1),
    )


def _given(fields: Fields, key: str) -> bool:
    """Tell whether a key is there, and not null."""
    return key in fields.values and fields.optional(key)


def _bytes(limit: float) -> float:
    """Return a number of bytes, whole if it is."""
    return limit if limit % 1 else int(limit)


def _encode_reference(reference: Reference) -> dict[str, Any]:
    held = {} if reference.text is None else {"text": reference.text}
    return {"name": reference.name, "sha256": reference.sha256 or None, **held}


def _decode_reference(root: Fields, kind: str) -> Reference:
    fields = root.inside(kind)
    fields.only(REFERENCE_KEYS if kind in HELD else REFERENCE_KEYS[:2])
    name = fields.text("name")
    if not name or "\0" in name:
        raise fields.error("name", "a name or a path")
    digest = fields.text("sha256") if fields.optional("sha256") else ""
    text = fields.text("text") if "text" in fields.values else None
    if text is not None and Document(name, text).sha256 != digest:
        found = Document(name, text).sha256
        raise fields.error("sha256", f"{found}, as text has it", digest or "null")
    return Reference(name=name, sha256=digest, text=text)


# ---- kept stages ---------------------------------------------------------------------------------


def encode_stages(stages: Iterable[KeptStage]) -> list[dict[str, Any]]:
    """Return stages as JSON-ready objects, with all that was read of their plans."""
    return [asdict(stage) for stage in stages]


def decode_stages(root: Fields, key: str) -> Iterator[KeptStage]:
    """Yield stages as `encode_stages` writes them.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    for each in root.each(key):
        each.only(STAGE_KEYS)
        if not SAID.fullmatch(each.text("said")):
            raise each.error("said", "PLAN:stage0")
        yield KeptStage(
            said=each.text("said"),
            ranges=tuple((a, b) for a, b in _lists(each, "ranges", count=2)),
            devices=tuple(map(tuple, _lists(each, "devices"))),
            **{name: each.whole(name, least=1) for name in ("tp", "cp", "ep", "layers")},
            etp=each.whole("etp"),
            model=each.text("model"),
            cluster=each.text("cluster"),
        )


def _lists(root: Fields, key: str, count: int | None = None) -> Iterator[list[int]]:
    """Yield lists of whole numbers, at least one, `count` numbers in each or one or more."""
    values = root.listed(key)
    if not values or [] in values:
        raise root.error(key, "lists that are not empty")
    for number in range(len(values)):
        place = f"{key}[{number}]"
        one = type(root)({place: values[number]}, file=root.file, where=root.where)
        yield one.wholes(place, count=count)
