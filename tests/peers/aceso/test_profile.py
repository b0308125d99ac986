"""The reader of Aceso's database, on folders that the tests write."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.table import MIB, OperatorRow, Profile, Provenance
from ilp_planner.peers.aceso.source import OPERATOR_COLUMNS, read_aceso_profile
from tests.small import ACESO

HEADER = ",".join(OPERATOR_COLUMNS)
ROW = "enc-MLP-gelu,100.5,200.25,8,16.5,4,12,1,2"
PRIMITIVES = {
    "gpt": ("all_gather", "all_reduce", "reduce_scatter", "all_to_all"),
    "t5": (),
    "resnet": ("all_gather", "all_to_all"),
}


def write(
    folder: Path,
    key: str = "gpt_tiny",
    *,
    files: str | None = None,
    micro_batches: tuple[int, ...] = (1, 2, 4, 8),
    degrees: tuple[int, ...] = (1, 2),
    splits: tuple[int, ...] = (0, 1),
    inter_node: bool = True,
) -> Path:
    """Write a whole database for one model; return its folder."""
    folder.mkdir(exist_ok=True)
    for m, t, a in itertools.product(micro_batches, degrees, splits):
        path = folder / f"{files or key}_mbs{m}_tp{t}_algo{a}.csv"
        path.write_text(f"{HEADER}\n{ROW}\n")
    for primitive, n in itertools.product(PRIMITIVES[key.split("_")[0]], degrees[1:]):
        path = folder / f"prim_{key}_{primitive}_{n}gpus.csv"
        path.write_text("data_size(MB),time(ms)\n8,1.5\n64,10\n")
    (folder / "p2p_intra_node.csv").write_text("1,2,4\n10, 20,40.5\n")
    if inter_node:
        (folder / "p2p_inter_node.csv").write_text("1,2,4\n1,2,3\n")
    return folder


def read(folder: Path, key: str = "gpt_tiny", devices_per_node: int = 2) -> Profile:
    return read_aceso_profile(folder, key, devices_per_node=devices_per_node)


# ---- what is there ------------------------------------------------------------------------------


def test_units_become_seconds_and_bytes(tmp_path: Path) -> None:
    profile = read(write(tmp_path / "db"))
    row = profile.row("enc-MLP-gelu", 2, 1, 1)
    assert row is not None
    assert row.forward == pytest.approx(100.5e-6)
    assert row.backward == pytest.approx(200.25e-6)
    assert (row.input, row.output) == (8 * MIB, 16.5 * MIB)
    assert (row.weights, row.activations) == (4 * MIB, 12 * MIB)
    assert (row.forward_reserved, row.backward_reserved) == (1 * MIB, 2 * MIB)
    assert row.provenance is Provenance.MEASURED
    assert profile.collectives["all_reduce", 2] == pytest.approx({8: 1.5e-3, 64: 10e-3})
    # "GB/s" that MiB are divided by to get milliseconds: 10 means 10 MiB/ms
    assert profile.intra_node == pytest.approx((10e3 * MIB, 20e3 * MIB, 40.5e3 * MIB))
    assert profile.inter_node == pytest.approx((1e3 * MIB, 2e3 * MIB, 3e3 * MIB))
    assert MIB / profile.intra_node[0] == pytest.approx(1 / 10 * 1e-3)


def test_a_whole_database_leaves_nothing_to_note(tmp_path: Path) -> None:
    profile = read(write(tmp_path / "db"))
    assert profile.notes == ()
    assert profile.source == "aceso:db"
    assert profile.micro_batch_sizes == (1, 2, 4, 8)
    assert profile.tensor_degrees == (1, 2)
    assert profile.splits == (0, 1)
    assert len(profile.rows) == 4 * 2 * 2
    assert set(profile.collectives) == {(p, 2) for p in PRIMITIVES["gpt"]}


@pytest.mark.parametrize(
    ("key", "micro_batches", "splits"),
    [("t5_tiny", (1, 2, 4, 8), (0,)), ("resnet_tiny", (16, 32, 48, 64), (0, 1))],
)
def test_each_family_has_its_own_files(
    tmp_path: Path, key: str, micro_batches: tuple[int, ...], splits: tuple[int, ...]
) -> None:
    folder = write(tmp_path / "db", key, micro_batches=micro_batches, splits=splits)
    profile = read(folder, key)
    assert profile.notes == ()
    assert profile.micro_batch_sizes == micro_batches
    assert profile.splits == splits
    assert {p for p, _ in profile.collectives} == set(PRIMITIVES[key.split("_")[0]])


def test_columns_in_another_order_and_spaces_are_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "db")
    names, fields = list(OPERATOR_COLUMNS), ROW.split(",")
    text = " , ".join(names[::-1]) + "\n" + " , ".join(fields[::-1]) + "\n"
    (folder / "gpt_tiny_mbs1_tp1_algo0.csv").write_text(text)
    profile = read(folder)
    assert profile.row("enc-MLP-gelu", 1, 1, 0) == profile.row("enc-MLP-gelu", 2, 1, 0)


def test_tensor_parallelism_stays_inside_a_node(tmp_path: Path) -> None:
    folder = write(tmp_path / "db", degrees=(1, 2, 4, 8))
    for devices in (1, 2, 4, 8, 16):
        profile = read(folder, devices_per_node=devices)
        assert max(profile.tensor_degrees) == min(devices, 8)
        assert profile.notes == ()


@pytest.mark.parametrize(("key", "splits"), [("gpt_350M", (0, 1)), ("t5_220M", (0,))])
def test_the_smallest_models_are_split_over_four_devices_at_most(
    tmp_path: Path, key: str, splits: tuple[int, ...]
) -> None:
    folder = write(tmp_path / "db", key, degrees=(1, 2, 4, 8), splits=splits)
    profile = read(folder, key, devices_per_node=8)
    assert profile.tensor_degrees == (1, 2, 4)
    assert not any(n == 8 for _, n in profile.collectives)
    assert profile.notes == ()


def test_t5_22b_reads_the_files_of_11b(tmp_path: Path) -> None:
    folder = write(tmp_path / "db", "t5_22B", files="t5_11B", splits=(0,))
    profile = read(folder, "t5_22B")
    assert profile.rows == read(folder, "t5_11B").rows
    assert profile.notes == ()


# ---- what is not --------------------------------------------------------------------------------


def test_missing_files_are_noted_and_planned_without(tmp_path: Path) -> None:
    folder = write(tmp_path / "db")
    for a in (0, 1):
        (folder / f"gpt_tiny_mbs8_tp1_algo{a}.csv").unlink()
    (folder / "prim_gpt_tiny_all_gather_2gpus.csv").unlink()
    profile = read(folder)
    (note,) = profile.notes
    assert "3 files" in note
    assert "gpt_tiny_mbs8_tp1_algo0.csv" in note
    assert "prim_gpt_tiny_all_gather_2gpus.csv" in note
    assert profile.row("enc-MLP-gelu", 8, 1, 0) is None
    assert profile.row("enc-MLP-gelu", 8, 2, 0) is not None
    assert ("all_gather", 2) not in profile.collectives


def test_a_value_that_no_file_has_is_not_offered(tmp_path: Path) -> None:
    profile = read(write(tmp_path / "db", micro_batches=(1, 4), degrees=(2,), splits=(1,)))
    assert profile.micro_batch_sizes == (1, 4)
    assert profile.tensor_degrees == (2,)
    assert profile.splits == (1,)
    (note,) = profile.notes
    assert note.endswith("...")  # not all of the many are named
    assert "\n" not in note


def test_without_links_between_nodes_those_inside_are_used(tmp_path: Path) -> None:
    profile = read(write(tmp_path / "db", inter_node=False))
    assert profile.inter_node == profile.intra_node
    (note,) = profile.notes
    assert "p2p_inter_node.csv" in note


def test_an_operator_that_failed_is_left_out_and_noted(tmp_path: Path) -> None:
    folder = write(tmp_path / "db")
    failed = "enc-1st-layernorm" + ",10000000.000" * 8
    for m in (1, 2):
        path = folder / f"gpt_tiny_mbs{m}_tp1_algo0.csv"
        path.write_text(f"{HEADER}\n{ROW}\n{failed}\n")
    profile = read(folder)
    (note,) = profile.notes
    assert "2 operator rows failed" in note
    assert profile.row("enc-1st-layernorm", 1, 1, 0) is None
    assert profile.row("enc-MLP-gelu", 1, 1, 0) is not None


def test_a_time_above_a_second_is_a_time(tmp_path: Path) -> None:
    folder = write(tmp_path / "db", "resnet_tiny", micro_batches=(16, 32, 48, 64))
    path = folder / "resnet_tiny_mbs64_tp1_algo0.csv"
    path.write_text(f"{HEADER}\nconv1,1000000.5,2345678,8,16,4,12,1,2\n")
    profile = read(folder, "resnet_tiny")
    row = profile.row("conv1", 64, 1, 0)
    assert row is not None
    assert (row.forward, row.backward) == pytest.approx((1.0000005, 2.345678))
    assert profile.notes == ()


# ---- what is wrong ------------------------------------------------------------------------------


def refused(call: Callable[[], object]) -> str:
    """Return the message of the refusal, one line."""
    with pytest.raises(ProfileError) as error:
        call()
    message = str(error.value)
    assert "\n" not in message
    return message


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    message = refused(lambda: read(tmp_path / "nowhere"))
    assert str(tmp_path / "nowhere") in message
    assert "no such profile folder" in message


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused(lambda: read(tmp_path / "file"))


def test_a_model_that_is_not_there_and_those_that_are(tmp_path: Path) -> None:
    folder = write(tmp_path / "db")
    write(folder, "t5_small", splits=(0,))
    message = refused(lambda: read(folder, "gpt_large"))
    assert str(folder) in message
    assert "'gpt_large'" in message
    assert "gpt_tiny, t5_small" in message


def test_a_family_that_is_not_known(tmp_path: Path) -> None:
    message = refused(lambda: read(write(tmp_path / "db"), "bert_large"))
    assert str(tmp_path / "db") in message
    assert "'bert_large'" in message
    assert "gpt, t5, resnet" in message


def test_an_empty_folder(tmp_path: Path) -> None:
    message = refused(lambda: read(tmp_path))
    assert str(tmp_path) in message
    assert "gpt_tiny_mbs*_tp*_algo*.csv" in message


def without(column: str) -> str:
    """Return a file of operators that lacks a column."""
    names = [name for name in OPERATOR_COLUMNS if name != column]
    return ",".join(names) + "\n" + ROW.rpartition(",")[0] + "\n"


def with_field(column: str, text: str) -> str:
    """Return a file of operators with a text in a field of its second row."""
    fields = ROW.split(",")
    fields[OPERATOR_COLUMNS.index(column)] = text
    return f"{HEADER}\n{ROW}\n{','.join(fields)}\n"


OPERATORS, GATHER = "gpt_tiny_mbs4_tp2_algo1.csv", "prim_gpt_tiny_all_gather_2gpus.csv"
INSIDE, BETWEEN = "p2p_intra_node.csv", "p2p_inter_node.csv"
SIZES = "data_size(MB),time(ms)"
# File, what it holds instead (None: it is gone), and what the refusal says.
WRONG: list[tuple[str, str | None, tuple[str, ...]]] = [
    (OPERATORS, "", ("'op_name'",)),
    *((OPERATORS, without(column), (repr(column),)) for column in OPERATOR_COLUMNS),
    *(
        (OPERATORS, with_field(column, text), ("line 3", repr(column), f"found {text!r}", ">= 0"))
        for column in OPERATOR_COLUMNS[1:]
        for text in ("many", "-1", "nan", "inf", "")
    ),
    (OPERATORS, f"{HEADER}\n{ROW}\nnorm,1,2\n", ("line 3", "9 fields expected, found 3")),
    (OPERATORS, f"{HEADER}\n\n{ROW}\nnorm,x,1,1,1,1,1,1,1\n", ("line 4",)),
    (OPERATORS, "\udcff\udcfe\x00op_name", ()),
    *((GATHER, f"{SIZES}\n1,1\n{line}\n", ("line 3", f"found {found}"))
      for line, found in (("8,fast", "'fast'"), ("8,-1", "'-1'"), ("nan,1", "'nan'"))),
    (GATHER, f"{SIZES}\n8\n", ("line 2", f"expected {SIZES}", "found '8'")),
    *((name, f"1,2,4\n10,{text},40\n", ("line 2", expected, f"found '{text}'"))
      for name in (INSIDE, BETWEEN)
      for text, expected in (("0", "> 0"), ("-1", ">= 0"), ("fast", ">= 0"), ("nan", ">= 0"))),
    (INSIDE, "1,2,4\n10,1e308,40\n", ("found '1e308'",)),
    (INSIDE, "1,2,4\n10,1e20,40\n", ("found '1e20'",)),
    (INSIDE, "1,2,4\n1e-300,20,40\n", ("found '1e-300'",)),
    (INSIDE, "1,2,4\n", ("expected a line of sizes and a line of bandwidths", "found 1 line")),
    (INSIDE, None, ("no such file",)),
]  # fmt: skip


def test_a_file_that_is_wrong_is_named_with_the_line(tmp_path: Path) -> None:
    folder = write(tmp_path / "db")
    for name, text, words in WRONG:
        path = folder / name
        before = path.read_bytes()
        if text is None:
            path.unlink()
        else:
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
        message = refused(lambda: read(folder))
        assert str(path) in message, (name, text)
        assert [word for word in words if word not in message] == [], (name, text, message)
        path.write_bytes(before)


# ---- the real one -------------------------------------------------------------------------------


@pytest.mark.skipif(not ACESO.exists(), reason="no ../shared/data/aceso")
def test_the_published_database() -> None:
    profile = read(ACESO / "eurosys", "gpt_1_3B", 8)
    assert profile.notes == ()
    assert profile.micro_batch_sizes == (1, 2, 4, 8)
    assert profile.tensor_degrees == (1, 2, 4, 8)
    assert profile.row("encoder-embedding", 1, 1, 0) == OperatorRow(
        forward=pytest.approx(173.631e-6),
        backward=pytest.approx(1486.725e-6),
        input=pytest.approx(0.008 * MIB),
        output=8 * MIB,
        weights=208 * MIB,
        activations=12 * MIB,
        forward_reserved=0.0,
        backward_reserved=220 * MIB,
    )
    small = read(ACESO / "miniset", "t5_770M", 4)
    assert any("p2p_inter_node.csv" in note for note in small.notes)
