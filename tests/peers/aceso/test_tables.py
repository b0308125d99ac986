"""Aceso's database as native tables, and back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.measurements import read_measurements, write_measurements
from ilp_planner.costs.profiles.operator_table import operator_profile
from ilp_planner.costs.profiles.table import MIB, OperatorRow, Profile, Provenance, RowKey
from ilp_planner.peers.aceso.source import read_aceso_profile
from ilp_planner.peers.aceso.tables import (
    FAILED_SECONDS,
    aceso_table,
    check_exportable,
    write_aceso_profile,
)
from tests.examples import examples

DATABASE = Path(__file__).parents[4] / "shared" / "data" / "aceso" / "eurosys"
needs_data = pytest.mark.skipif(
    not DATABASE.is_dir(), reason="Aceso's profiles are not in ../shared/data/aceso"
)
MICROSECONDS = st.integers(1, 10**9).map(lambda n: n / 1000 * 1e-6)
SIZE = st.integers(0, 10**7).map(lambda n: n / 1000 * MIB)


def same_times(a: Profile, b: Profile) -> bool:
    """Tell whether collectives agree; one that failed is as good as another that did."""
    return a.collectives.keys() == b.collectives.keys() and all(
        table.keys() == b.collectives[key].keys()
        and all(
            b.collectives[key][size] == seconds
            or min(seconds, b.collectives[key][size]) >= FAILED_SECONDS
            for size, seconds in table.items()
        )
        for key, table in a.collectives.items()
    )


@st.composite
def databases(draw: st.DrawFn) -> Profile:
    names = ["encoder-embedding", "enc-1st-layernorm", "enc-MLP-GEMM-1"]
    keys = [RowKey(operator=n, micro_batch=m, tp=t, split=0)
            for m in (1, 2) for t in (1, 2) for n in names]  # fmt: skip
    failed = draw(st.sets(st.sampled_from(keys), max_size=3))
    rows = {
        key: OperatorRow(
            forward=draw(MICROSECONDS),
            backward=draw(MICROSECONDS),
            **{
                name: draw(SIZE)
                for name in ("input", "output", "weights", "activations", "forward_reserved",
                             "backward_reserved")
            },
        )
        for key in keys
        if key not in failed
    }  # fmt: skip
    times = st.dictionaries(
        st.integers(0, 4096), st.integers(1, 10**7).map(lambda n: n / 1000 * 1e-3), min_size=1
    )
    bandwidths = st.lists(
        st.integers(1, 10**6).map(lambda n: n / 1000 * 1000 * MIB), min_size=1, max_size=11
    ).map(tuple)
    return Profile(
        source="made up",
        micro_batch_sizes=tuple(sorted({key.micro_batch for key in rows})),
        tensor_degrees=tuple(sorted({key.tp for key in rows})),
        splits=(0,),
        rows=rows,
        collectives={("all_gather", 2): draw(times), ("all_reduce", 2): draw(times)},
        intra_node=draw(bandwidths),
        inter_node=draw(bandwidths),
        failed=frozenset(failed),
    )


@examples(2, more=10)
@given(profile=databases())
def test_import_export_and_reading_again_lose_nothing(
    profile: Profile, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("aceso")
    write_measurements(folder / "table.csv", aceso_table(profile, "gpt_made_up"))
    found = operator_profile(read_measurements(folder / "table.csv"), exact_sizes=True)
    assert found.rows == profile.rows
    assert found.failed == profile.failed
    assert same_times(found, profile)
    assert found.intra_node == pytest.approx(profile.intra_node, rel=1e-15)
    write_aceso_profile(found, folder, "gpt_made_up")
    again = read_aceso_profile(folder, "gpt_made_up", devices_per_node=8)
    assert again.rows == profile.rows
    assert again.failed == profile.failed
    assert same_times(again, profile)
    assert again.inter_node == pytest.approx(profile.inter_node, rel=1e-15)


@needs_data
@pytest.mark.parametrize("key", ["gpt_1_3B", "t5_770M", "gpt_scale-layer"])
def test_the_published_database(key: str, tmp_path: Path) -> None:
    profile = read_aceso_profile(DATABASE, key, devices_per_node=8)
    write_measurements(tmp_path / "table.csv", aceso_table(profile, key))
    found = operator_profile(read_measurements(tmp_path / "table.csv"), exact_sizes=True)
    assert found.rows == profile.rows
    assert same_times(found, profile)
    assert (found.intra_node, found.inter_node) == (profile.intra_node, profile.inter_node)


@needs_data
def test_collectives_say_the_whole_tensor() -> None:
    """Aceso's say what each device passes in: of a gathered tensor that is one share of n."""
    profile = read_aceso_profile(DATABASE, "gpt_1_3B", devices_per_node=8)
    frame = aceso_table(profile, "gpt_1_3B").frame
    rows = frame[(frame["record"] == "collective") & (frame["group_size"] == 4)]
    gathered = rows[rows["name"] == "all_gather"]["bytes"].max()
    reduced = rows[rows["name"] == "all_reduce"]["bytes"].max()
    assert gathered == 4 * reduced


def test_names_that_aceso_does_not_know() -> None:
    profile = Profile(
        source="made up",
        micro_batch_sizes=(3,),
        tensor_degrees=(1,),
        splits=(0,),
        rows={},
        collectives={},
        intra_node=(1.0,),
        inter_node=(1.0,),
    )
    with pytest.raises(ProfileError, match="begins with one of gpt_"):
        check_exportable(profile, "made up", "llama")
    with pytest.raises(ProfileError, match="micro-batch: found 3, expected some of 1, 2, 4, 8"):
        check_exportable(profile, "made up", "gpt_x")


def test_predicted_rows_are_counted() -> None:
    key = RowKey(operator="a", micro_batch=1, tp=1, split=0)
    row = OperatorRow(
        forward=1.0, backward=1.0, input=0.0, output=0.0, weights=0.0, activations=0.0,
        forward_reserved=0.0, backward_reserved=0.0, provenance=Provenance.INTERPOLATED,
    )  # fmt: skip
    profile = Profile(
        source="made up",
        micro_batch_sizes=(1,),
        tensor_degrees=(1,),
        splits=(0,),
        rows={key: row},
        collectives={},
        intra_node=(1.0,),
        inter_node=(1.0,),
    )
    notes = check_exportable(profile, "made up", "gpt_x")
    assert "1 of 1 operator rows are predictions" in notes
