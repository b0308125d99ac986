"""Layouts of pipelines as text: what is written is read back, and nonsense is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.specs.pipeline_layout import (
    LayoutStage,
    PipelineLayout,
    even_layout,
    read_layout,
    split_layout,
    with_layers,
    write_layout,
)
from tests.examples import for_each


@st.composite
def layouts(draw: st.DrawFn) -> PipelineLayout:
    middle = draw(st.lists(st.integers(0, 12) | st.just(4), max_size=40))
    predictions = draw(st.integers(0, 2))
    first = LayoutStage(layers=draw(st.integers(0, 9)), embedding=True)
    last = LayoutStage(layers=draw(st.integers(0, 9)), prediction_layers=predictions, loss=True)
    return PipelineLayout((first, *(LayoutStage(layers=n) for n in middle), last))


@given(layouts())
def test_what_is_written_is_read_back(layout: PipelineLayout):
    assert read_layout(write_layout(layout)) == layout


@for_each(
    ("text", "layers"),
    [
        ("Et*7|t*9|t*9|t*7L", (7, 9, 9, 7)),
        ("Ettt|(tttt|)*6tttttL", (3, *[4] * 6, 5)),
        ("E|t*16|t*16|L", (0, 16, 16, 0)),
        ("Et,t|t,tL", (2, 2)),
    ],
)
def test_megatron_texts(text: str, layers: tuple[int, ...]):
    assert tuple(stage.layers for stage in read_layout(text).stages) == layers


def test_equal_stages_are_written_once():
    assert write_layout(even_layout(48, 8)) == "Et*6|(t*6|)*6t*6L"
    assert write_layout(split_layout([7, 9, 9, 7])) == "Et*7|t*9|t*9|t*7L"


@for_each(
    ("text", "said"),
    [
        ("t*4|t*4L", "must begin with the embedding"),
        ("Et*4|t*4", "end with the loss"),
        ("Et*4|EtL", "one embedding"),
        ("Et*4|x*4L", "found 'x'"),
        ("Et*4|Lt", "in this order"),
        ("E(t*9999999|)*2L", "more than 20000 layers or 65536 stages"),
    ],
)
def test_bad_texts(text: str, said: str):
    with pytest.raises(SpecError, match=said):
        read_layout(text)


def test_uneven_split_is_refused():
    with pytest.raises(ValueError, match="not divisible"):
        even_layout(33, 4)


@given(layouts(), st.integers(1, 60))
def test_a_layout_with_other_layers_is_as_like_as_can_be(layout: PipelineLayout, layers: int):
    mended = with_layers(layout, layers)
    assert mended.layers == layers
    assert len(mended.stages) == len(layout.stages)
    held = sum(stage.layers > 0 for stage in layout.stages)
    if abs(layers - layout.layers) <= held:
        for old, new in zip(layout.stages, mended.stages, strict=True):
            assert abs(old.layers - new.layers) <= 1
            assert replace(old, layers=0) == replace(new, layers=0)
