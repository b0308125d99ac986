"""A layout is asked for as `even`, as layers of every stage or in Megatron's letters."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import UsageError
from ilp_planner.settings.asked_layout import asked_layout
from ilp_planner.specs.pipeline_layout import (
    even_layout,
    is_even,
    read_layout,
    split_layout,
    write_layout,
)
from tests.examples import examples

COUNTS = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@examples(50)
@given(counts=COUNTS, prediction=st.integers(0, 1))
def test_counts_and_letters_mean_the_same_layout(counts: list[int], prediction: int) -> None:
    layout = split_layout(counts, prediction_layers=prediction)
    for asked in (asked_layout(counts), asked_layout(write_layout(layout))):
        assert asked.of(sum(counts), prediction, len(counts)) == layout
        assert layout in asked
        assert asked.of(sum(counts) + 1, prediction, len(counts)) is None
        assert asked.of(sum(counts), prediction, len(counts) + 1) is None
        assert split_layout([*counts, 1]) not in asked
        assert asked_layout(str(asked)) == asked
        asked.check("it", sum(counts), prediction)


@examples(50)
@given(layers=st.integers(1, 40), stages=st.integers(1, 12), counts=COUNTS)
def test_even_is_what_megatron_has_without_a_layout(
    layers: int, stages: int, counts: list[int]
) -> None:
    even = asked_layout("even")
    expected = None if layers % stages else even_layout(layers, stages)
    assert even.of(layers, 0, stages) == expected
    assert (split_layout(counts) in even) == is_even(split_layout(counts), 0)
    even.check("any", layers, 0)


@examples(50)
@given(counts=COUNTS, layers=st.integers(1, 60), letters=st.booleans())
def test_a_layout_of_other_layers_is_refused_with_one_that_would_do(
    counts: list[int], layers: int, letters: bool
) -> None:
    if sum(counts) == layers:
        return
    asked = asked_layout(write_layout(split_layout(counts)) if letters else counts)
    words = f"layout: found {sum(counts)} layers, expected the {layers} of it; `layout="
    with pytest.raises(UsageError, match=f"^{re.escape(words)}") as refused:
        asked.check("it", layers, 0)
    repair = re.search(r"`layout=([^`]+)` has them$", str(refused.value))
    assert repair is not None
    asked_layout(repair[1]).check("it", layers, 0)
    assert read_layout(repair[1]).layers == layers if letters else "t" not in repair[1]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "layout: found '', expected even, any, the layers of every stage as 10,11,11 or"),
        (True, "layout: found True, expected even"),
        ([1.5], "layout: found [1.5], expected even"),
        ("3,-1", "layout: found '3,-1', expected even"),
        ("Et|tm", "layout: found 'Et|tm', expected even"),
        ("Etx|L", "; expected E, t, m, L, | and x*n or (..)*n, found 'x'"),
    ],
)
def test_what_is_no_layout(value: object, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        asked_layout(value)


@pytest.mark.parametrize(
    ("value", "prediction", "words"),
    [
        ([2, 0, 2], 0, "layout: found nothing in stage 1, expected a layer or more in every stage"),
        (
            "Et|tttL",
            1,
            "layout: found 0,0 layers of multi-token prediction (m) in its stages, expe",
        ),
        ("Etttt|mm|L", 2, "layout: found 0,2,0 layers of multi-token prediction"),
    ],
)
def test_a_layout_that_no_plan_has(value: object, prediction: int, words: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(words)}"):
        asked_layout(value).check("it", 4, prediction)
