"""Models as model files: of launch lines, and made in Python."""

import json
from dataclasses import MISSING, fields, is_dataclass

from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.usual import is_implied


def model_text(spec: ModelSpec, *, source: str = "") -> str:
    """Return the TOML of a model, values that are defaults left out; `read_model` reads the same.

    Parameters
    ----------
    source: of the model, for readers of the file.
    """
    lines = [f"# {' '.join(source.split())}"] if source else []
    lines += [f"{key} = {_text(getattr(spec, key))}" for key in ("name", "family", "precision")]
    if spec.micro_batch_sizes != spec.architecture.micro_batch_sizes:
        lines.append(f"micro_batches = {_text(spec.micro_batch_sizes)}")
    lines += ["", *_table("architecture", spec.architecture)]
    tables = {"profile": spec.profile} if spec.profile else {}
    for name, values in (
        tables | {f"export.{_text(k)}": v for k, v in spec.export.items()}
    ).items():
        lines += ["", f"[{name}]", *(f"{_text(k)} = {_text(v)}" for k, v in values.items())]
    return "\n".join([*lines, ""])


def _table(name: str, value: object) -> list[str]:
    lines, inner = [f"[{name}]"], []
    for field in fields(value):  # type: ignore[arg-type]
        found = getattr(value, field.name)
        if is_implied(value, field.name):
            continue
        if is_dataclass(found):
            inner += ["", *_table(f"{name}.{field.name}", found)]
        elif field.default is MISSING or found != field.default:
            lines.append(f"{field.name} = {_text(found)}")
    return [*lines, *inner]


def _text(value: object) -> str:
    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")
