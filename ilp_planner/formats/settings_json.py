"""The settings of a training job as JSON: one object per dataclass, every field by its name.

Fields that are missing keep their defaults, so that plans stay readable when settings are added;
keys that are not known are refused.
"""

import dataclasses
from dataclasses import fields
from typing import Any

from ilp_planner.formats.json_fields import Fields
from ilp_planner.specs.training import (
    Kernels,
    Offload,
    OptimizerSettings,
    Recompute,
    Settings,
)

INSIDE: dict[str, type[Recompute | Offload | OptimizerSettings | Kernels]] = {
    "recompute": Recompute,
    "offload": Offload,
    "optimizer": OptimizerSettings,
    "kernels": Kernels,
}


def encode_settings(settings: Settings) -> dict[str, Any]:
    """Return all fields as JSON-ready values."""
    found = dataclasses.asdict(settings)
    found["recompute"]["modules"] = list(settings.recompute.modules)
    found["offload"]["modules"] = list(settings.offload.modules)
    found["kernels"]["graphed"] = list(settings.kernels.graphed)
    found["carried"] = list(settings.carried)
    return found


def decode_settings(found: Fields) -> Settings:
    """Read settings.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    inside = {
        key: _decode(found.inside(key), kind) for key, kind in INSIDE.items() if key in found.values
    }
    settings: Settings = _decode(found, Settings, inside)
    return settings


def encode_recompute(recompute: Recompute) -> dict[str, Any]:
    """Return the values that differ from the defaults of `Recompute`, ready for JSON; {}: nothing
    is recomputed."""
    plain, found = Recompute(), dataclasses.asdict(recompute)
    changed = {name: value for name, value in found.items() if value != getattr(plain, name)}
    return {name: [*v] if isinstance(v, tuple) else v for name, v in changed.items()}


def decode_recompute(found: Fields) -> Recompute:
    """Read the recomputation.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    recompute: Recompute = _decode(found, Recompute)
    return recompute


def _decode(found: Fields, kind: Any, ready: dict[str, Any] | None = None) -> Any:
    """Read one object into a dataclass; the type of a field's default is its type."""
    values = dict(ready or {})
    names = [field.name for field in fields(kind)]
    found.only(names)
    defaults = kind()
    for name in names:
        if name in found.values and name not in values:
            values[name] = _value(found, name, getattr(defaults, name))
    try:
        return kind(**values)
    except ValueError as error:
        raise found.error(found.where.rpartition(".")[2], str(error), "an object") from None


def _value(found: Fields, name: str, default: object) -> object:
    if isinstance(default, bool):
        return found.boolean(name)
    if isinstance(default, int):
        return found.whole(name)
    if isinstance(default, float):
        return found.number(name)
    if isinstance(default, tuple):
        return found.texts(name)
    return found.text(name)
