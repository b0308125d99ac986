"""A decoder as a model file, for models that only a launch line describes."""

import json
from dataclasses import MISSING, fields, is_dataclass

from ilp_planner.specs.decoder import Decoder


def model_text(name: str, precision: str, model: Decoder, *, source: str = "") -> str:
    """Return the TOML of a model, values that are defaults left out.

    Parameters
    ----------
    source: where the model comes from, for whoever reads the file.
    """
    lines = [f"# {' '.join(source.split())}"] if source else []
    lines += [f"name = {json.dumps(name)}", 'family = "decoder"', f'precision = "{precision}"', ""]
    return "\n".join([*lines, *_table("architecture", model), ""])


def _table(name: str, value: object) -> list[str]:
    lines, inner = [f"[{name}]"], []
    for field in fields(value):  # type: ignore[arg-type]
        found = getattr(value, field.name)
        if is_dataclass(found):
            inner += ["", *_table(f"{name}.{field.name}", found)]
        elif field.default is MISSING or found != field.default:
            lines.append(f"{field.name} = {_text(found)}")
    return [*lines, *inner]


def _text(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value)
