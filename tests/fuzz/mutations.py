"""From a real example to a hostile one: bytes, tokens, lines, numbers, nesting, JSON values."""

import json
import random
import re
from typing import Any

NUMBERS = (
    "0", "-1", "1e308", "1e-320", "1e400", "nan", "inf", "9" * 40, "9" * 5000, "2147483648",
    "9223372036854775808", "0.1", "100000000", "1e29", "-0.0", "0x10", "1_000", "65537", "20001",
)  # fmt: skip
TEXTS = (
    "", " ", "\x00", "\x1b[2J", "\u202e", "\ue000", "\ue010\ue001", "\ufeff", "a" * 300, "../../x",
    "$(x)", "`x`", "${A[@]}", "'", '"', "\\", "[[", "((", "{1..9}", "|", "*", "\ud7ff", "None",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, [], {}, "", "x", 0, -1, 10**30, 1e308, 1e-320, [[]], [1] * 50, {"a": {}}, 2**31,
)  # fmt: skip
PAIRS = (b"()", b"[]", b"{}", b'""', b"''", b"$(", b"${")


def mutated(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """Return an example changed a few times. other: to take parts from."""
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        data = draw.choice(CHANGES)(data, other, draw)
    return data[: 1 << 21]


def _bytes(data: bytes, other: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data or b"x")
    for _ in range(draw.choice((1, 2, 8))):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def _cut(data: bytes, other: bytes, draw: random.Random) -> bytes:
    start, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[end:] if draw.random() < 0.7 else data[:end]


def _spliced(data: bytes, other: bytes, draw: random.Random) -> bytes:
    at, start = draw.randrange(len(data) + 1), draw.randrange(len(other) + 1)
    return data[:at] + other[start : start + draw.choice((1, 10, 100, 1000))] + data[at:]


def _repeated(data: bytes, other: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data) + 1)
    part = data[start : start + draw.choice((1, 5, 40))]
    times = draw.choice((2, 10, 100, 2000))
    return data[:start] + part * times + data[start:]


def _line(data: bytes, other: bytes, draw: random.Random) -> bytes:
    rows = data.split(b"\n")
    at = draw.randrange(len(rows))
    do = draw.randrange(3)
    if do == 0:
        rows.insert(draw.randrange(len(rows)), rows[at])
    elif do == 1:
        del rows[at]
    else:
        rows.insert(at, draw.choice(other.split(b"\n")))
    return b"\n".join(rows)


def _number(data: bytes, other: bytes, draw: random.Random) -> bytes:
    return _replaced(rb"\d+(\.\d+)?", draw.choice(NUMBERS).encode(), data, draw)


def _token(data: bytes, other: bytes, draw: random.Random) -> bytes:
    words = re.findall(rb"\w+", other) or [b"x"]
    new = draw.choice(TEXTS).encode() if draw.random() < 0.5 else draw.choice(words)
    return _replaced(rb"\w+|[^\w\s]", new, data, draw)


def _replaced(pattern: bytes, new: bytes, data: bytes, draw: random.Random) -> bytes:
    places = list(re.finditer(pattern, data))
    if not places:
        return data + new
    place = draw.choice(places)
    return data[: place.start()] + new + data[place.end() :]


def _nested(data: bytes, other: bytes, draw: random.Random) -> bytes:
    pair, times = draw.choice(PAIRS), draw.choice((1, 5, 70, 2000))
    start, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + pair[:-1] * times + data[start:end] + pair[-1:] * times + data[end:]


def _json(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """Change one value of JSON, wherever it is; another change of what is none."""
    try:
        root = json.loads(data)
    except (ValueError, RecursionError):
        return draw.choice((_number, _token, _line))(data, other, draw)
    value: Any = root
    while isinstance(value, dict | list) and value:
        key = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
        if draw.random() < 0.3 or not isinstance(value[key], dict | list):
            _change(value, key, draw)
            break
        value = value[key]
    return json.dumps(root).encode()


def _change(holder: Any, key: Any, draw: random.Random) -> None:
    do = draw.randrange(4)
    if do == 0:
        del holder[key]
    elif do == 1 and isinstance(holder, dict):
        holder[draw.choice(TEXTS)] = holder.pop(key)
    elif do == 2 and isinstance(holder, list):
        holder += holder[: draw.choice((1, 100))]
    else:
        holder[key] = draw.choice(VALUES)


CHANGES = (
    _bytes, _cut, _spliced, _repeated, _line, _number, _number, _token, _token, _nested, _json,
    _json,
)  # fmt: skip
