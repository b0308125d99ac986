"""Every combination is a point, and its key says all that its result depends on."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import PlannerError, UsageError
from tests.faces.sweeps.cases import LIMITS, sweep_of
from tests.small import write_specs


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_numbers_and_places_belong_to_each_other(lengths: list[int], data: st.DataObject) -> None:
    names = ("global_batch", "tp", "pp", "layers")
    vary = {name: list(range(1, n + 1)) for name, n in zip(names, lengths, strict=False)}
    sweep = sweep_of(**vary)
    number = data.draw(st.integers(0, sweep.size - 1))
    point = sweep.point(number)
    assert sweep.number(sweep.places(number)) == number
    assert sweep.number_of(point.values) == number
    assert {name: int(value) in vary[name] for name, value in point.values.items()} == (
        dict.fromkeys(vary, True)
    )


def test_all_combinations_are_there_once_and_the_last_field_changes_first() -> None:
    points = list(sweep_of(tp=[1, 2], global_batch=[64, 128, 256]).points())
    assert [tuple(point.values.values()) for point in points] == [
        (tp, batch) for tp in ("1", "2") for batch in ("64", "128", "256")
    ]


def test_points_that_are_no_longer_asked_for_have_no_number() -> None:
    sweep = sweep_of(tp=[1, 2])
    assert sweep.number_of({"tp": "4"}) is None
    assert sweep.number_of({"pp": "1"}) is None


def test_ten_million_points_are_counted_without_being_made() -> None:
    sweep = sweep_of(tp="1..2000000000", pp="1..2000000000")
    assert sweep.size == 2_000_000_000**2


def test_keys_differ_with_everything_that_decides_a_result(tmp_path: Path) -> None:
    write_specs(tmp_path)
    model, cluster = str(tmp_path / "tiny.toml"), str(tmp_path / "pair.toml")
    sweep = sweep_of(
        model, cluster=[cluster], global_batch=[32, 64], tp=["1", "1,2"], layers=[2, 3]
    )

    def keys(sweep):
        return [sweep.key(sweep.request(point)) for point in sweep.points()]

    before = keys(sweep)
    assert len({*before}) == sweep.size == 8
    assert keys(sweep) == before
    assert not {*before} & {*keys(replace(sweep, limits=replace(LIMITS, seconds=3.0)))}
    other = tmp_path / "other.toml"
    other.write_text((tmp_path / "tiny.toml").read_text().replace("heads = 4", "heads = 8"))
    changed = sweep_of(
        str(other), cluster=[cluster], global_batch=[32, 64], tp=["1", "1,2"], layers=[2, 3]
    )
    assert not {*before} & {*keys(changed)}


def test_a_profile_is_known_by_its_content(tmp_path: Path) -> None:
    names = []
    for text in ("a", "b"):
        file = tmp_path / f"{text}.csv"
        file.write_text(text)
        names.append(str(file))
    sweep = sweep_of(profile=names)
    one, other = (sweep.key(sweep.request(point)) for point in sweep.points())
    assert one != other
    assert sweep.content("model") != ""


def test_a_bad_combination_is_an_error_of_its_point_alone() -> None:
    sweep = sweep_of(heads=[32, 33])
    good, bad = sweep.points()
    sweep.request(good)
    # The file says it; whoever reads it refuses.
    assert "33" in (sweep.request(bad).files["model"].text or "")
    missing = sweep_of(cluster=["nowhere"])
    with pytest.raises(PlannerError):
        missing.request(missing.point(0))


@pytest.mark.parametrize(
    ("vary", "line"),
    [
        (
            {"gpus": "8xH100", "cluster": ["a100-4x8"]},
            "vary: found cluster beside gpus, expected one of the two",
        ),
        (
            {"global_batch": [8], "global-batch": [16]},
            "vary: found 'global_batch' twice, expected every field once",
        ),
    ],
)
def test_fields_that_contradict_each_other_are_refused(vary: dict[str, object], line: str) -> None:
    with pytest.raises(UsageError) as raised:
        sweep_of(**vary)
    assert str(raised.value) == line
