"""What no reader takes: every input of these is refused in one line that names the limit."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.analysis.calibration.runs import read_runs
from ilp_planner.base.errors import PlannerError, ProfileError, SpecError
from ilp_planner.base.files import read_document, read_json
from ilp_planner.base.limits import (
    DIGITS,
    JSON_BYTES,
    NESTING,
    LongNumber,
    as_whole,
    check_parsed,
    whole_number,
)
from ilp_planner.costs.profiles.measurements import read_measurements
from ilp_planner.formats.megatron.values import parse_values
from ilp_planner.peers.alpa.pickles import read_alpa_pickle
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.link import Link
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import read_layout
from ilp_planner.specs.toml_reader import read_toml
from tests.analysis.calibration.machines import lab
from tests.small import CLUSTER, MODEL

LONG = "9" * 5000


def toml(text: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        path = folder / "x.toml"
        path.write_text(text)
        return read_toml(path, None)

    return read


def model(old: str, new: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        path = folder / "x.toml"
        assert old in MODEL
        path.write_text(MODEL.replace(old, new))
        return read_model(path)

    return read


def cluster(old: str, new: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        path = folder / "x.toml"
        assert old in CLUSTER
        path.write_text(CLUSTER.replace(old, new))
        return read_cluster(path)

    return read


def json_text(text: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        path = folder / "x.json"
        path.write_text(text)
        return read_json(path, SpecError)

    return read


def table(rows: str, head: str = "") -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        path = folder / "x.csv"
        path.write_text(f"{head}record,layers,tp,micro_batch,time_s\n{rows}")
        return read_measurements(path)

    return read


def runs(rows: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        path = folder / "x.csv"
        path.write_text(f"run,seconds\n{rows}")
        return read_runs(path, lab())

    return read


def flags(*words: str) -> Callable[[Path], object]:
    return lambda folder: parse_values(words)


def layout(text: str) -> Callable[[Path], object]:
    return lambda folder: read_layout(text)


REFUSED = {
    "digits in TOML": (toml(f"[x]\na = 1\nb = {LONG}"), "line 3: b: found a number of 5000"),
    "digits in a list": (toml("a = [1, " + "9" * 400 + "]"), "a[1]: found a number of 400 digits"),
    "brackets in TOML": (toml("a = " + "[" * 2000 + "]" * 2000), "more than 64 deep"),
    "some brackets in TOML": (toml("a = " + "[" * 99 + "]" * 99), "a[0]"),
    "tables in TOML": (toml("[" + "a." * 50_000 + "a]"), "line 1: found tables and lists more"),
    "names in quotes": (toml('"a" . ' * 50_000 + "a = 1"), "line 1: found tables and lists more"),
    "megabytes of TOML": (toml("a = 1\n" * 180_000), "expected a file of at most 1.00 MiB"),
    "digits in JSON": (json_text('{"a": {"b": [0, ' + LONG + "]}}"), "a.b[1]: found a number of"),
    "brackets in JSON": (json_text("[" * 2000 + "]" * 2000), "expected at most 64"),
    "lines of a table": (table("layer,1,1,1,0.1\n" * 50_001), "found 50,002 lines, expected"),
    "empty lines of a table": (table("\n" * 50_001), "expected at most 50,000 in a table"),
    "comments of a table": (table("", "#\n" * 50_001), "expected at most 50,000 in a table"),
    "lines of runs": (runs("x,1\n" * 50_001), "found 50,002 lines, expected at most 50,000"),
    "values of JSON": (json_text("[" + "[]," * 1_000_000 + "0]"), "found 2,000,001 values, expe"),
    "megabytes of JSON": (json_text(" " * (JSON_BYTES + 1) + "1"), "at most 8.00 MiB"),
    "layers": (model("layers = 2", "layers = 100000000"), "layers must be at most 20000"),
    "a dimension": (model("hidden = 256", "hidden = 1" + "0" * 29), "at most 2147483647"),
    "a link": (cluster('bandwidth = "', 'bandwidth = "1e308 B/s" # '), "at most 1e+18 bytes/s"),
    "a slow link": (cluster('bandwidth = "', 'bandwidth = "1e-320 B/s" # '), "at least 1 bytes/s"),
    "devices of a link": (
        cluster("[links.intra_node]", f'[links.intra_node]\ncollectives.{LONG} = "1 GB/s"'),
        "a key must be at most 65536 devices",
    ),
    "memory": (cluster('memory = "', 'memory = "1e30 B" # '), "memory must be at most"),
    "layers of a layout": (layout(f"Et*{LONG}L"), "more than 20000 layers"),
    "stages of a layout": (layout("Et*2|(t*2|)*80000L"), "more than 20000 layers or 65536 stages"),
    "brackets of a layout": (layout("(" * 100_000), "brackets more than 64 deep"),
    "digits of a flag": (flags("--num-layers", LONG), "(5000 characters), expected a whole"),
    "a large flag": (flags("--hidden-size", "9" * 25), "at most 9223372036854775807"),
    "stages of flags": (flags("--pipeline-model-parallel-size", "65537"), "65537 stages, expected"),
    "virtual stages of flags": (
        flags(
            "--pipeline-model-parallel-size", "300", "--num-virtual-stages-per-pipeline-rank", "300"
        ),
        "a pipeline of 90000 stages, expected at most 65536",
    ),
    "entries of a pattern": (flags("--moe-layer-freq", "[1]*99999999"), "found '[1]*99999999'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name: str, tmp_path: Path) -> None:
    read, expected = REFUSED[name]
    with pytest.raises(PlannerError) as caught:
        read(tmp_path)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_no_more_is_read_than_the_limit(tmp_path: Path) -> None:
    """A device that never ends is refused as well."""
    with pytest.raises(SpecError, match="found more than"):
        read_document(Path("/dev/zero"), SpecError)
    whole = tmp_path / "whole.txt"
    whole.write_bytes(b"a" * 100)
    assert read_document(whole, SpecError, most=100).text == "a" * 100
    with pytest.raises(SpecError, match=r"at most 99 B"):
        read_document(whole, SpecError, most=99)


def test_what_is_within_the_limits_is_taken() -> None:
    deep: object = 10**DIGITS - 1
    for _ in range(NESTING):
        deep = {"a": deep}
    check_parsed(deep, "x", SpecError)
    with pytest.raises(SpecError, match="deep in one another"):
        check_parsed([deep], "x", SpecError)
    assert whole_number("-" + "9" * DIGITS) == -int("9" * DIGITS)
    assert isinstance(whole_number("1" + "0" * DIGITS), LongNumber)
    assert as_whole("12") == 12
    assert as_whole(LONG) >= 10**DIGITS


def test_a_link_takes_what_links_are() -> None:
    assert Link(bandwidth=1.8e12, latency=1e-6).bandwidth == 1.8e12
    with pytest.raises(ValueError, match="latency must be at least"):
        Link(bandwidth=1e9, latency=1e-320)


def keyed(key: bytes, times: int = 1) -> bytes:
    """Return a pickle of a dict that has what `key` leaves on the stack as a key, so many times."""
    return b"\x80\x04" + key + b"\x940}(" + b"h\x00K\x01" * times + b"u."


MEANT_TO_HANG = {
    "a deep key": b"\x80\x04})" + b"\x85" * 150_000 + b"K\x01s.",
    "a wide key, often": keyed(b"(" + b"K\x01" * 2**15 + b"t", 2000),
    "keys of one hash": b"\x80\x04}("
    + b"".join(b"\x8a\x10" + (k * (2**61 - 1)).to_bytes(16, "little") + b"K\x01" for k in range(99))
    + b"u.",
    "deep lists": b"\x80\x04" + b"]" * 150_000 + b"a" * 149_999 + b".",
    "a list in itself": b"\x80\x04]\x94h\x00a.",
    "a long text, often": pickle.dumps(["x" * 10**5] * 10**4),
}


@pytest.mark.parametrize("name", MEANT_TO_HANG)
def test_a_pickle_that_is_meant_to_hang(name: str) -> None:
    with pytest.raises(ProfileError, match=r"refused: the pickle .* nothing of it was run"):
        read_alpa_pickle(MEANT_TO_HANG[name], "x.pkl")


def test_the_same_key_may_come_again() -> None:
    """As often as a database of some thousand entries has it, in tuples of tuples."""
    key = (("all_reduce", ((0, 1), (2, 3))), "f32")
    assert read_alpa_pickle(pickle.dumps([{key: n} for n in range(2000)]), "x.pkl")[-1] == {
        key: 1999
    }


def test_json_at_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"a": [1] * 1000, "b": [[1.5, 2]] * 100}))
    assert read_json(path, SpecError)["b"][99] == [1.5, 2]
