"""Schemas that are derived from where keys are declared: dataclasses with their docstrings, tuples
of keys and of columns."""

import inspect
import re
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

TYPES: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}
# What a docstring says of fields: `links, network: share of the rate ...`.
SAID = re.compile(r"(?:(?<=[.:;] )|^)((?:[a-z_*][a-z_*0-9]*, )*[a-z_*][a-z_*0-9]*): ")

# What docstrings leave to the names.
FIELDS = {
    "sequence_parallel": "Whether tensor-parallel ranks divide what they would repeat.",
    "precision": "Training precision.",
    "recompute": "What is computed again.",
    "offload": "What waits in the host's memory.",
    "optimizer": "What the optimiser keeps.",
    "kernels": "How ranks compute.",
    "tuning": "What of the model is trained; all of it, if it is missing.",
    "graphed": "What of a layer CUDA graphs start.",
    "name": "What it is called.",
    "overlap_gradients": "Whether gradients travel while passes run.",
    "overlap_parameters": "Whether parameters travel while passes run.",
    "modules": "Parts of every layer, in Megatron's names.",
    "layers": "Number of layers.",
    "hidden": "Width of the hidden states.",
    "heads": "Attention heads.",
    "positions": "How positions are told.",
    "max_position_embeddings": "Positions that there are.",
    "latent": "Latent attention; null without.",
    "experts": "Mixture of experts; null without.",
    "rotary": "How positions turn; null for the usual way.",
    "window": "Sliding windows; null without.",
    "memory_source": "What the memory rests on.",
    "top_groups": "Groups of experts that a token goes to.",
    "factor": "By how much positions are stretched.",
    "original": "Positions that the model was trained with first.",
}
# Keys that are left out of results where they say nothing.
MISSING_AT_REST = ("tuning", "moment_format", "muon_tp_mode", "muon_steps", "packed")


def described(text: str) -> dict[str, str]:
    """Return what a docstring says of each name above `Raises`, whole sentences on one line."""
    text = " ".join(inspect.cleandoc(text).partition("\nRaises\n---")[0].split())
    found = list(SAID.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return {
        name: " ".join(text[match.end() : end].split()).rstrip(" ,;")
        for match, end in zip(found, ends, strict=True)
        for name in match[1].split(", ")
    }


def of_class(kind: type, *, optional: bool = False, said: dict[str, str] | None = None) -> Any:
    """Return the schema of the fields of a dataclass.

    optional: those with a default may be missing, as in files; otherwise all are there, and numbers
    that do not exist are null. said: descriptions, before those of the docstring.
    """
    hints, words = get_type_hints(kind), described(kind.__doc__ or "") | (said or {})
    properties = {
        field.name: _described(
            of_type(hints[field.name], optional=optional),
            words.get(field.name) or FIELDS[field.name],
        )
        for field in fields(kind)
    }
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    there = [name for name in properties if name not in MISSING_AT_REST]
    return closed(properties, needed if optional else there)


def of_type(hint: Any, *, optional: bool) -> dict[str, Any]:
    """Return the schema of a type as it is annotated."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (kind,) = [one for one in inner if one is not type(None)]
        return nullable(of_type(kind, optional=optional))
    if hint in TYPES:
        name = TYPES[hint]
        return {"type": [name, "null"]} if hint is float and not optional else {"type": name}
    if is_dataclass(hint):
        return of_class(hint, optional=optional)
    if origin is tuple:
        items = [of_type(one, optional=optional) for one in inner if one is not ...]
        return {"type": "array", "items": items[0]}
    assert hasattr(origin, "keys"), hint
    return {"type": "object", "additionalProperties": of_type(inner[1], optional=optional)}


def closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return an object that has no other keys."""
    found: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return found | ({"required": sorted(required)} if required else {})


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the same, or null."""
    if "type" not in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return schema | {"type": list(dict.fromkeys([*kinds, "null"]))}


def _described(schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"description": sentence(text), **schema}


def sentence(text: str) -> str:
    """Return a text as a sentence."""
    return f"{text[:1].upper()}{text[1:].rstrip(' ,;.')}."
