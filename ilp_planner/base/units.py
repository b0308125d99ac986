"""Quantities with their unit written out, in both directions.

Decimal prefixes are SI and binary ones IEC, always: 1 GB is 10^9 bytes, 1 GiB is 2^30 bytes. Some
tools write MB and mean 2^20: Aceso's memory limit of 28000 MB is `28000 MiB` here. The case of a
unit does not matter if it cannot turn bytes into bits.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
SIZE_UNITS = {
    **{unit: 1024**power for power, unit in enumerate(BINARY)},
    "KB": 10**3,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
}
BIT_UNITS = {"Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}
RATE_UNITS: dict[str, Decimal] = {
    **{f"{unit}/s": Decimal(factor) for unit, factor in SIZE_UNITS.items()},
    **{f"{unit}/s": Decimal(factor) / 8 for unit, factor in BIT_UNITS.items()},
}
FLOPS_UNITS = {
    f"{prefix}{unit}": 10**power
    for unit in ("FLOP/s", "FLOPS")
    for power, prefix in ((0, ""), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E"))
}
DURATION_UNITS: dict[str, Decimal] = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),  # micro sign, as keyboards type it
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
}
# What counts of tokens may end in, of any case.
COUNT_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
GIGA, TERA = 1e9, 1e12
HOUR, DAY = 3600, 86_400  # seconds
QUANTITY = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\s\d.]\S*)?\s*")


def parse_size(text: str | float, *, what: str = "size") -> int:
    """Return a number of bytes from `32 GiB` (2^30) or `32 GB` (10^9).

    Parameters
    ----------
    what: the quantity's name, for the message.

    Raises
    ------
    ValueError: not a number with a unit, not finite, or less than one byte.
    """
    size = round(_parse(text, SIZE_UNITS, what, ("32 GiB", "32 GB")))
    if size < 1:
        raise ValueError(f"{what} must be at least 1 B, found {text!r}")
    return size


def parse_rate(text: str | float, *, what: str = "rate") -> float:
    """Return bytes per second from `300 GB/s` or `100 Gbit/s`; refuse the same as `parse_size`."""
    return float(_parse(text, RATE_UNITS, what, ("300 GB/s", "300 Gbit/s")))


def parse_flops(text: str | float, *, what: str = "rate") -> float:
    """Return FLOP per second from `125 TFLOP/s`; refuse the same as `parse_size`."""
    return float(_parse(text, FLOPS_UNITS, what, ("125 TFLOP/s",)))


def parse_duration(text: str | float, *, what: str = "duration") -> float:
    """Return seconds from `5 us`; refuse the same as `parse_size`."""
    return float(_parse(text, DURATION_UNITS, what, ("5 us",)))


def parse_count(text: str | float) -> float:
    """Return a number of tokens from `15T`, `2B` or `3e11`.

    Raises
    ------
    ValueError: no number, not above 0, or not finite.
    """
    match = QUANTITY.fullmatch(str(text))
    factor = COUNT_UNITS.get((match[2] or "").lower()) if match else None
    number = float(match[1]) * factor if match and factor else 0.0
    if not 0 < number < math.inf:
        raise ValueError(f"tokens: found {text!r}, expected a number of tokens, as 15e12 or 15T")
    return number


def format_bytes(size: float) -> str:
    """Return bytes for a table, in binary units: `26.41 GiB`; `-` when there is none."""
    if not math.isfinite(size):
        return "-"
    power = 0
    while power < len(BINARY) - 1 and round(abs(size) / 1024**power, 2 if power else 0) >= 1024:
        power += 1
    return f"{size / 1024**power:.{2 if power else 0}f} {BINARY[power]}"


def format_seconds(seconds: float) -> str:
    """Return a time for a table, four digits: `99.69 s`, `118.7 ms`, `5 us`; `-` for no number."""
    if not math.isfinite(seconds):
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        rounded = float(f"{seconds * factor:.4g}")
        if abs(rounded) >= 1 or unit == "us":
            return f"{rounded:.10g} {unit}"
    raise AssertionError("unreachable")


def format_percent(fraction: float) -> str:
    """Return a share for a table: `0.31 %`.

    A share that is not zero is never shown as zero (`<0.01 %`), so that a gap of 0 always means
    proved. `-` when there is none.
    """
    if not math.isfinite(fraction):
        return "-"
    percent = 100 * fraction
    if 0 < abs(percent) < 0.005:
        return "<0.01 %" if percent > 0 else ">-0.01 %"
    return f"{percent:.2f} %"


def counted(number: int, noun: str) -> str:
    """Return `1 node`, `3 nodes` or `3 micro-batches`."""
    return f"{number} {plural(number, noun)}"


def plural(number: int, noun: str) -> str:
    """Return `node` of one, `nodes` or `micro-batches` of others."""
    if number == 1:
        return noun
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"


def number_ranges(numbers: Iterable[int], between: str = ", ") -> str:
    """Return `0-3, 7` for 0, 1, 2, 3, 7."""
    parts = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        parts.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return between.join(parts)


def _parse(
    text: str | float, units: Mapping[str, int | Decimal], what: str, examples: Sequence[str]
) -> Decimal:
    """Return a number of base units."""
    match = QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(
            f"{what} must be a number with a unit such as {examples[0]!r}, found {text!r}"
        )
    number, unit = match.groups()
    known = _known_unit(unit or "", units)
    if known is None:
        repairs = [f"{number} {example.split()[1]}" for example in examples]
        raise ValueError(
            f"{what} must have a unit out of {', '.join(units)}, as in "
            f"{' or '.join(map(repr, repairs))}, found {text!r}"
        )
    if float(number) <= 0:
        raise ValueError(f"{what} must be positive, found {text!r}")
    value = Decimal(number) * units[known] if math.isfinite(float(number)) else Decimal("inf")
    if not math.isfinite(float(value)):
        raise ValueError(f"{what} must be finite, found {text!r}")
    return value


def _known_unit(unit: str, units: Mapping[str, int | Decimal]) -> str | None:
    """Return a unit as it is listed, in any case, unless a small b could stand for bits: `Gb` and
    `gb/s` could, `gb` of a size could not."""
    if unit in units:
        return unit
    if re.search(r"b(?!it)", unit) and ("/" in unit or unit != unit.lower()):
        return None
    return {name.casefold(): name for name in units}.get(unit.casefold())
