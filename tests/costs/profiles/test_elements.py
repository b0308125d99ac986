"""Rows of single layers under any degrees, from native tables and from profiles of layers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.elements import (
    Shard,
    element_table,
    elements_of_layers,
    routed_elements,
)
from ilp_planner.costs.profiles.layer_table import layer_profile
from ilp_planner.costs.profiles.measurements import join, measurements_of, plain_rows
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.profiler.predict.series import find_series
from ilp_planner.specs.decoder import Decoder, Experts
from tests.costs.profiles.layer_rows import layer_row, layer_table
from tests.examples import for_each

DENSE = Decoder(layers=4, hidden=64, heads=4, sequence=128, vocab=512)
EXPERTS = Experts(count=4, top_k=2, ffn=64, dense_first=1)
MIXED = replace(DENSE, bias=False, experts=EXPERTS)
LAYER = ("layer", "1-4", 1.0, 20.0)


def rows(*more: dict[str, Any]) -> Any:
    """Return the made-up table with further rows of its layers 2 to 4."""
    added = [layer_row(LAYER, 2, 1, **{"layers": "2-4", **one}) for one in more]
    return join([layer_table(), measurements_of(added, "more.csv")], "both.csv")


def test_a_table_without_degrees_has_whole_samples_and_all_experts() -> None:
    found = element_table(layer_table(), MIXED)
    assert found.layers == 6
    shards = {shard for shard, _ in found.rows}
    assert {shard.cp for shard in shards} == {1}
    assert {(shard.ep, shard.etp) for shard in shards} == {(0, 0), (1, 1), (1, 2)}
    row = found.rows[Shard("A100", 2, 4, ep=1, etp=2), 3]
    assert row.both == pytest.approx(5e-3)
    assert row.forward == pytest.approx(row.both / 3)
    assert row.sent, "messages are not said to be left out"
    assert row.origin.provenance is Provenance.MEASURED
    assert found.rows[Shard("A100", 1, 1), 1].sent is False
    np.testing.assert_allclose(found.optimizer["A100", 1][1:5], 2e-3)


def test_rows_of_other_degrees_are_found_by_them_and_change_no_other_reader() -> None:
    table = rows(
        {"cp": 2, "time_s": 1.0, "messages": 2},
        {"ep": 4, "etp": 1, "time_s": 2.0},
        {"ep": 2, "time_s": 3.0},
    )
    found = element_table(table, MIXED)
    whole = Shard("A100", 2, 1)
    for shard, seconds in [
        (whole._replace(cp=2, ep=1, etp=2), 1.0),
        (whole._replace(ep=4, etp=1), 2.0),
        (whole._replace(ep=2, etp=2), 3.0),
    ]:
        assert found.rows[shard, 2].both == seconds
        assert (shard, 1) not in found.rows
    assert found.rows[whole._replace(cp=2, ep=1, etp=2), 2].sent is False
    plain = layer_profile(layer_table())
    for key, seconds in layer_profile(table).time.items():
        np.testing.assert_array_equal(seconds, plain.time[key])
    assert len(plain_rows(table.frame)) == len(layer_table().frame)
    same = zip(find_series(table), find_series(layer_table()), strict=True)
    assert all(np.array_equal(a.points, b.points) for a, b in same)


def test_layers_without_experts_do_not_depend_on_expert_parallelism() -> None:
    table = rows({"layers": "1", "cp": 2, "ep": 2, "time_s": 1.0, "forward_s": 0.3},
                 {"layers": "1", "cp": 2, "ep": 4, "time_s": 2.0, "forward_s": 0.5})  # fmt: skip
    row = element_table(table, MIXED).rows[Shard("A100", 2, 1, cp=2), 1]
    assert (row.both, row.forward) == (1.5, 0.4)


def test_a_profile_of_layers_is_one_without_other_degrees() -> None:
    profile = layer_profile(layer_table())
    found, table = elements_of_layers(profile, MIXED), element_table(layer_table(), MIXED)
    assert found.rows.keys() == table.rows.keys()
    assert all(row.both == pytest.approx(table.rows[key].both) for key, row in found.rows.items())
    ahead = replace(MIXED, prediction_layers=1)
    assert routed_elements(MIXED) == (False, False, True, True, True, False)
    assert routed_elements(ahead)[-1]


@for_each(
    ("decoder", "row", "message"),
    [
        (DENSE, {"ep": 2}, "'ep': found 2, expected nothing: the model has no experts"),
        (MIXED, {"ep": 3}, "'ep': found 3, expected a divisor of 4 experts"),
        (MIXED, {"ep": 2, "etp": 3}, "'etp': found 3, expected 1 or tp, 2"),
        (MIXED, {"cp": 3}, "'cp': found 3, expected a divisor of the sequence of 128 tokens"),
        (MIXED, {"cp": 2, "time_s": 0.0}, "'time_s': found 0, expected more than 0"),
        (MIXED, {"cp": 2, "forward_s": 9.0}, "'forward_s': found 9, expected at most time_s"),
    ],
)
def test_rows_that_cannot_be_of_the_model_are_refused(
    decoder: Decoder, row: dict[str, Any], message: str
) -> None:
    with pytest.raises(ProfileError) as caught:
        element_table(rows(row), decoder)
    assert message in str(caught.value)
    assert str(caught.value).startswith("both.csv: row 19: ")
    assert "\n" not in str(caught.value)


def test_one_row_of_each() -> None:
    with pytest.raises(ProfileError, match=r"row 20: 'layers': found layer 2 of A100, tp 2, cp 2"):
        element_table(rows({"cp": 2}, {"cp": 2}), MIXED)


@for_each("column", ["cp", "ep", "etp"])
def test_degrees_are_whole_numbers_of_at_least_one(column: str) -> None:
    for value in (0, 1.5, -1):
        with pytest.raises(ProfileError, match=f"row 1: '{column}': found '{value}"):
            measurements_of([layer_row(LAYER, 1, 1, **{column: value})], "wrong.csv")
