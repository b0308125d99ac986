import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.units import (
    DURATION_UNITS,
    FLOPS_UNITS,
    RATE_UNITS,
    SIZE_UNITS,
    format_bytes,
    format_percent,
    format_seconds,
    number_ranges,
    parse_count,
    parse_duration,
    parse_flops,
    parse_rate,
    parse_size,
)

PARSERS = [
    (parse_size, "GiB"),
    (parse_rate, "GB/s"),
    (parse_flops, "TFLOP/s"),
    (parse_duration, "us"),
]
counts = st.integers(min_value=1, max_value=10**6)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("32 GiB", 32 * 2**30),
        ("32GiB", 32 * 2**30),
        ("28000 MB", 28_000_000_000),
        ("28000 MiB", 28000 * 2**20),
        ("0.5 KiB", 512),
        ("1e3 kB", 10**6),
        (" 1.5 GB ", 1_500_000_000),
        ("7 B", 7),
    ],
)
def test_parse_size(text, size):
    assert parse_size(text) == size


def test_parse_the_other_quantities():
    assert parse_rate("300 GB/s") == 300e9
    assert parse_rate("100 Gbit/s") == 12.5e9
    assert parse_flops("125 TFLOP/s") == parse_flops("125 TFLOPS") == 125e12
    assert parse_duration("5 us") == parse_duration("5 µs") == 5e-6
    assert parse_duration("2 min") == 120


@pytest.mark.parametrize(("parse", "unit"), PARSERS)
@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("-3", "memory must be positive, found '-3 {unit}'"),
        ("0", "memory must be positive, found '0 {unit}'"),
        ("nan", "memory must be a number with a unit such as"),
        ("inf", "memory must be a number with a unit such as"),
        ("many", "memory must be a number with a unit such as"),
        ("", "memory must be a number with a unit such as"),
        ("1e999", "memory must be finite, found '1e999 {unit}'"),
    ],
)
def test_bad_numbers_are_refused(parse, unit, number, expected):
    with pytest.raises(ValueError, match=r"^memory must be") as error:
        parse(f"{number} {unit}", what="memory")
    assert str(error.value).startswith(expected.format(unit=unit))
    assert f"found '{number} {unit}'" in str(error.value)


@pytest.mark.parametrize(("parse", "unit"), PARSERS)
@pytest.mark.parametrize("text", ["32", "32 gallons", "3 GiB extra"])
def test_units_are_demanded(parse, unit, text):
    with pytest.raises(ValueError, match=f"found '{text}'"):
        parse(text)


@pytest.mark.parametrize(
    ("parse", "text"), [(parse_size, "32 Gb"), (parse_rate, "100 gb/s"), (parse_rate, "100 Gb/s")]
)
def test_bits_are_not_bytes(parse, text):
    with pytest.raises(ValueError, match=r"must have a unit out of .*(32 GB|100 Gbit/s)"):
        parse(text)


@pytest.mark.parametrize("change", [str.lower, str.upper])
@pytest.mark.parametrize(
    ("parse", "units"),
    [(parse_size, SIZE_UNITS), (parse_flops, FLOPS_UNITS), (parse_duration, DURATION_UNITS)],
)
def test_the_case_of_a_unit_does_not_matter(parse, units, change):
    for unit in units:
        assert parse(f"40 {change(unit)}") == parse(f"40 {unit}")


@pytest.mark.parametrize("text", [80, "80", "80 gigs"])
def test_a_missing_unit_is_repaired_as_the_message_says(text):
    with pytest.raises(ValueError, match=rf"as in '80 GiB' or '80 GB', found {text!r}$"):
        parse_size(text)


def test_a_unit_can_make_a_number_infinite():
    with pytest.raises(ValueError, match="size must be finite, found '1e307 GiB'"):
        parse_size("1e307 GiB")


def test_less_than_a_byte_is_no_size():
    with pytest.raises(ValueError, match="at least 1 B"):
        parse_size("0.1 B")


@given(counts, st.sampled_from(list(SIZE_UNITS)))
def test_sizes_are_exact(count, unit):
    assert parse_size(f"{count} {unit}") == count * SIZE_UNITS[unit]


@given(
    counts,
    st.sampled_from(
        [
            *((parse_rate, unit, factor) for unit, factor in RATE_UNITS.items()),
            *((parse_flops, unit, factor) for unit, factor in FLOPS_UNITS.items()),
            *((parse_duration, unit, factor) for unit, factor in DURATION_UNITS.items()),
        ]
    ),
)
def test_rates_and_times_scale_with_their_unit(count, quantity):
    parse, unit, factor = quantity
    assert parse(f"{count} {unit}") == pytest.approx(count * float(factor), rel=1e-15)


@given(st.integers(min_value=1, max_value=2**59))
def test_bytes_survive_a_round_trip(size):
    shown = format_bytes(size)
    assert float(shown.split()[0]) < 1024
    assert parse_size(shown) == pytest.approx(size, rel=0.006)


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_seconds_survive_a_round_trip(seconds):
    assert parse_duration(format_seconds(seconds)) == pytest.approx(seconds, rel=0.0006)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_bytes(0), "0 B"),
        (format_bytes(1023), "1023 B"),
        (format_bytes(28000 * 2**20), "27.34 GiB"),
        (format_bytes(2**30 - 1), "1.00 GiB"),
        (format_bytes(-3 * 2**30), "-3.00 GiB"),
        (format_bytes(math.inf), "-"),
        (format_seconds(99.691), "99.69 s"),
        (format_seconds(448.727), "448.7 s"),
        (format_seconds(0.1187), "118.7 ms"),
        (format_seconds(0.99999), "1 s"),
        (format_seconds(5e-6), "5 us"),
        (format_seconds(0.0), "0 us"),
        (format_seconds(math.nan), "-"),
        (format_percent(0.0), "0.00 %"),
        (format_percent(0.00312), "0.31 %"),
        (format_percent(1e-9), "<0.01 %"),
        (format_percent(-1e-9), ">-0.01 %"),
        (format_percent(math.inf), "-"),
    ],
)
def test_formats(shown, expected):
    assert shown == expected


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([7], "7"), ([0, 1, 2, 3], "0-3"), ([7, 0, 1, 2], "0-2, 7"), ([0, 2, 4], "0, 2, 4"), ([], "")],
)
def test_number_ranges(numbers: list[int], text: str) -> None:
    assert number_ranges(numbers) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("15T", 15e12),
        ("15e12", 15e12),
        ("2B", 2e9),
        ("1.5b", 1.5e9),
        ("300 M", 3e8),
        ("20k", 2e4),
        ("7", 7.0),
        (3e11, 3e11),
    ],
)
def test_counts_of_tokens(text: str | float, number: float) -> None:
    assert parse_count(text) == number


@pytest.mark.parametrize("text", ["", "0", "-1B", "many", "15 GB", "1e400", "nan", "inf", "1e308T"])
def test_what_is_no_count_of_tokens(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number of tokens, as 15e12 or 15T"):
        parse_count(text)
