"""Values, lists and ranges of fields, and GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.sweeps.axes import Axis, axis_of, gpus_axis, parse_axis


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("global_batch=256,512", ["256", "512"]),
        ("pp=2..5", ["2", "3", "4", "5"]),
        ("pp=1,4..6,16", ["1", "4", "5", "6", "16"]),
        ("recompute=none;none,selective", ["none", "none,selective"]),
        ("devices.memory=64GiB, 80GiB", ["64GiB", "80GiB"]),
        ("model=../a.toml", ["../a.toml"]),
    ],
)
def test_values_are_those_that_the_text_says(text: str, values: list[str]) -> None:
    assert list(parse_axis(text)) == values


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ([256, 512], ["256", "512"]),
        (range(2, 5), ["2", "3", "4"]),
        (range(2, 9, 3), ["2", "5", "8"]),
        (7, ["7"]),
        ([["none", "selective"], "full"], ["none,selective", "full"]),
        ([True, 0.5], ["true", "0.5"]),
        ([range(2, 4)], ["2..3"]),  # one value, which allows both
    ],
)
def test_values_of_python_are_those_of_the_list(said: object, values: list[str]) -> None:
    assert list(axis_of("field", said)) == values


def test_a_range_is_never_written_out() -> None:
    axis = parse_axis("pp=1..2000000000")
    assert len(axis) == 2_000_000_000
    assert axis[1_999_999_999] == "2000000000"
    assert axis.index("1234567890") == 1234567889


@given(
    st.lists(
        st.one_of(
            st.integers(0, 50).map(lambda n: range(100 * n, 100 * n + 3)),
            st.integers(0, 50).map(lambda n: f"name{n}"),
        ),
        min_size=1,
        unique_by=str,
    )
)
def test_places_and_values_belong_to_each_other(parts: list[range | str]) -> None:
    axis = Axis("field", tuple(parts))
    assert len(axis) == len(list(axis))
    assert [axis.index(value) for value in axis] == list(range(len(axis)))
    assert axis.index("nowhere") is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("8..64xH100", [f"{n}xH100-80GB" for n in (8, 16, 32, 64)]),
        ("6..30xh100", [f"{n}xH100-80GB" for n in (8, 16)]),
        ("8,16,24xH100", [f"{n}xH100-80GB" for n in (8, 16, 24)]),
        ("8,16xH100,4xA100-80GB", ["8xH100-80GB", "16xH100-80GB", "4xA100-80GB"]),
        ("1..2xH100, 8xH100", ["1xH100-80GB", "2xH100-80GB", "8xH100-80GB"]),
    ],
)
def test_gpus_are_powers_of_two_or_a_list(text: str, names: list[str]) -> None:
    assert list(gpus_axis(text)) == names


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("pp", "vary: found 'pp', expected a field and its values, as in global_batch=256,512"),
        ("pp=", "vary: found 'pp=', expected a field and its values, as in global_batch=256,512"),
        ("pp=8..2", "pp: found '8..2', expected the smaller number first: 2..8"),
        ("pp=2,,4", "pp: found an empty value, expected one, as in pp=8,16"),
        ("pp=1..8,4", "pp: found 4 more than once, expected each value once"),
        (
            "gpus=8..64",
            "gpus: found '8..64' without a GPU, expected counts and a GPU, as in 8..256xH100 or "
            "8,16,24xH100",
        ),
        ("gpus=64..8xH100", "gpus: found 64..8, expected the smaller number first: 8..64"),
        ("gpus=9..15xH100", "gpus: found 9..15, in which no power of two is; 9,15 are both"),
    ],
)
def test_a_mistake_is_named(text: str, line: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_axis(text)
    assert str(raised.value) == line


def test_a_gpu_that_the_table_does_not_have_is_refused_with_those_like_it() -> None:
    with pytest.raises(UsageError, match=r"^gpus: found 'H1000', .*H100-80GB"):
        gpus_axis("8..64xH1000")
