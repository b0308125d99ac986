"""From `--want 'tp=8 micro_batch=16'` to questions to a table."""

from __future__ import annotations

import difflib
import itertools
import math
import re
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import UsageError
from ilp_planner.costs.profiles.measurements import Record, layer_range
from ilp_planner.costs.profiles.predictions import Want
from ilp_planner.faces.cli.values import option_size
from ilp_planner.profiler.predict.answers import AnyWant, CollectiveWant, ProductWant

if TYPE_CHECKING:
    from collections.abc import Sequence

LAYER_KEYS = (
    "tp", "micro_batch", "sequence", "hidden", "device", "name", "layers", "split", "record",
)  # fmt: skip
COLLECTIVE_KEYS = (
    "collective", "bytes", "group_size", "hosts", "stride", "groups", "device", "dtype",
)  # fmt: skip
PRODUCT_KEYS = ("flop", "device", "dtype")
KINDS = {"collective": COLLECTIVE_KEYS, "flop": PRODUCT_KEYS}
ALIASES = {
    "micro_batch_size": "micro_batch",
    "mbs": "micro_batch",
    "sequence_length": "sequence",
    "hidden_size": "hidden",
    "layer": "layers",
    "size": "bytes",
}
COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter")
RECORDS = (Record.LAYER, Record.OPERATOR, Record.STEP)
TEXTS = ("device", "name", "dtype", "collective", "layers", "record")
PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
FLOP = re.compile(r"((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([KMGTP]?)(?:FLOP)?")
WHOLE = re.compile(r"[1-9][0-9]{0,11}")
MOST = 100_000  # rows that one --want may ask for
EXAMPLE = "expected KEY=VALUE ... such as 'tp=8 micro_batch=16'"


def parse_wants(texts: Sequence[str]) -> tuple[AnyWant, ...]:
    """Return the questions; `tp=2,4 micro_batch=8,16` asks for every combination.

    Raises
    ------
    UsageError: an unknown key, a key that is missing, or a value that cannot be one.
    """
    return tuple(want for text in texts for want in _parse(text))


def _parse(text: str) -> list[AnyWant]:
    given = _pairs(text)
    kind = next((name for name in KINDS if name in given), "")
    allowed = KINDS.get(kind, LAYER_KEYS)
    for key in given:
        if key not in allowed:
            raise UsageError(_unknown(text, key, kind, allowed))
    missing = [k for k in ("bytes", "group_size") if kind == "collective" and k not in given]
    if missing:
        raise UsageError(
            f"--want: found {text!r} without {' and '.join(missing)}, expected "
            "'collective=all_reduce group_size=8 bytes=64MiB'"
        )
    choices = [[(key, _value(key, one)) for one in values] for key, values in given.items()]
    if math.prod(map(len, choices)) > MOST:
        raise UsageError(f"--want: found {text!r}, expected at most {MOST} combinations")
    return [_want(kind, dict(chosen)) for chosen in itertools.product(*choices)]


def _pairs(text: str) -> dict[str, list[str]]:
    """Return key -> values. A word without `=` goes on with the one before: `bytes=64 MiB`."""
    words: list[str] = []
    for word in text.split():
        if "=" in word or not words:
            words.append(word)
        else:
            words[-1] += f" {word}"
    found: dict[str, list[str]] = {}
    for word in words:
        key, equals, rest = word.partition("=")
        key = key.strip().lower().replace("-", "_").lstrip("_")
        key = ALIASES.get(key, key)
        values = [value.strip() for value in rest.split(",") if value.strip()]
        if not equals or not values:
            raise UsageError(f"--want: found {word!r}, {EXAMPLE}")
        if key in found:
            raise UsageError(
                f"--want: {key!r} is there twice in {text!r}, expected {key}="
                f"{','.join((*found[key], *values))}"
            )
        found[key] = values
    if not found:
        raise UsageError(f"--want: found nothing, {EXAMPLE}")
    return found


def _want(kind: str, values: dict[str, Any]) -> AnyWant:
    if kind == "collective":
        name, size = values.pop("collective"), values.pop("bytes")
        if values["group_size"] < values.get("hosts", 1):
            raise UsageError(
                f"--want: group_size={values['group_size']} hosts={values['hosts']}: expected a "
                f"device on each host: group_size={values['hosts']} or more"
            )
        return CollectiveWant(name=name, size=size, **values)
    return ProductWant(**values) if kind == "flop" else Want(**values)


def _value(key: str, text: str) -> Any:
    def refuse(expected: str) -> UsageError:
        return UsageError(f"--want: {key}: found {text!r}, expected {expected}")

    if key == "bytes":
        whole = WHOLE.fullmatch(text)
        return float(text if whole else option_size("--want: bytes", text))
    if key == "flop":
        match = FLOP.fullmatch(text)
        if match is None or not math.isfinite(float(match[1])):
            raise refuse("a number of FLOP such as 1e12 or 1TFLOP")
        return float(match[1]) * PREFIXES[match[2]]
    if key == "split":
        if text not in {"0", "1"}:
            raise refuse("0 or 1")
        return int(text)
    if key == "layers":
        try:
            layer_range(text)
        except ValueError:
            raise refuse("a layer or a range of layers such as '1-24'") from None
    if key == "record":
        if text not in RECORDS:
            raise refuse(f"one of {', '.join(RECORDS)}")
        return Record(text)
    if key == "collective":
        name = text.lower().replace("-", "_")
        if name not in COLLECTIVES:
            raise refuse(f"one of {', '.join(COLLECTIVES)}")
        return name
    if key in TEXTS:
        return text
    if not WHOLE.fullmatch(text):
        raise refuse("a whole number of at least 1")
    return int(text)


def _unknown(text: str, key: str, kind: str, allowed: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, allowed, 1, 0.6)
    guess = f" (did you mean {near[0]!r}?)" if near else ""
    what = {"collective": "of a collective ", "flop": "of a matrix product "}.get(kind, "")
    hint = ""
    if not kind and key in {*COLLECTIVE_KEYS, *PRODUCT_KEYS}:
        hint = "; of a collective, name it first: collective=all_reduce"
    return (
        f"--want: found {key!r} in {text!r}{guess}, expected {what}some of "
        f"{', '.join(allowed)}{hint}"
    )
