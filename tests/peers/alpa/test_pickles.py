"""The unpickler of Alpa's database builds a few known classes and nothing else."""

import os
import pickle
import struct
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import ProfileError
from ilp_planner.peers.alpa.pickles import read_alpa_pickle
from ilp_planner.peers.alpa.profile import read_alpa
from tests.alpa_cases import MeshProfilingResult, database, pickled
from tests.examples import examples


class Call:
    """Pickles as a call."""

    def __init__(self, what, *arguments, state=None) -> None:
        self.parts = (what, arguments) if state is None else (what, arguments, state)

    def __reduce__(self):
        return self.parts


def refusal(content: bytes) -> str:
    with pytest.raises(ProfileError) as caught:
        read_alpa_pickle(content, "evil.pkl")
    text = str(caught.value)
    assert text.startswith("evil.pkl: ")
    assert "\n" not in text
    return text


def outcome(content: bytes) -> str:
    """Return the error, '' for none; anything else than a ProfileError fails the test."""
    try:
        read_alpa_pickle(content, "some.pkl")
    except ProfileError as error:
        return str(error)
    return ""


def global_of(name: str) -> bytes:
    module, _, attribute = name.rpartition(".")
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("value", "name"),
    [
        (lambda mark: Call(os.system, f"touch {mark}"), "system"),
        (lambda mark: Call(eval, f"open({str(mark)!r}, 'w')"), "eval"),
        (lambda mark: Call(exec, f"open({str(mark)!r}, 'w')"), "exec"),
        (lambda mark: Call(open, str(mark), "w"), "open"),
        (lambda mark: Call(getattr, {}, "clear"), "getattr"),
        (lambda mark: Call(subprocess.Popen, ["touch", str(mark)]), "Popen"),
        (lambda mark: {("default", (1, 2)): Call(os.system, f"touch {mark}")}, "system"),
        (lambda mark: [database(), (Call(os.system, f"touch {mark}"),)], "system"),
        (lambda mark: Call(__import__, "os"), "__import__"),
    ],
)
def test_nothing_that_is_named_is_run(tmp_path, value, name: str, protocol: int) -> None:
    mark = tmp_path / "ran"
    message = refusal(pickled(value(mark), protocol))
    assert name in message
    assert "nothing of it was run" in message
    assert not mark.exists()


def test_the_whole_reader_refuses_too(tmp_path) -> None:
    mark = tmp_path / "ran"
    path = tmp_path / "prof_database.pkl"
    path.write_bytes(pickle.dumps(Call(os.system, f"touch {mark}")))
    with pytest.raises(ProfileError, match="system"):
        read_alpa(path)
    assert not mark.exists()


def test_no_module_is_imported() -> None:
    """Not even a harmless one: importing runs what a module says."""
    assert "this" not in sys.modules
    refusal(global_of("this.s") + b".")
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00", id="ends early"),
        pytest.param(b"", id="empty"),
        pytest.param(b"hello", id="text"),
        pytest.param(b"Pos.system\n.", id="persistent id"),
        pytest.param(b"\x80\x02U\x02idQ.", id="persistent id on the stack"),
        pytest.param(b"(S'touch x'\nios\nsystem\n.", id="INST"),
        pytest.param(b"(" + global_of("os.system") + b"S'touch x'\no.", id="OBJ"),
        pytest.param(b"\x80\x02\x82\x01.", id="extension registry"),
        pytest.param(b"\x80\x05\x97.", id="buffer from outside"),
        pytest.param(b"\x80\x04(\x8f\x90.", id="set"),
        pytest.param(b"\x80\x04K\x01K\x02.", id="two values"),
        pytest.param(b"\x80\x04.", id="no value"),
        pytest.param(b"\x80\x04h\x07.", id="memo that is not there"),
        pytest.param(b"\x80\x04K\x01u.", id="mark that is not there"),
        pytest.param(b"\x80\x04K\x01K\x02a.", id="append to a number"),
        pytest.param(b"\x80\x04}K\x01b.", id="state of a dict"),
        pytest.param(b"\x80\x04](K\x01eK\x01R.", id="calling a list"),
        pytest.param(b"\x80\x04}]K\x01s.", id="a list as a key"),
        pytest.param(global_of("builtins.list") + b"(K\x01tR.", id="calling list"),
        pytest.param(global_of("builtins.list") + b")\x81.", id="making a list"),
        pytest.param(
            global_of("collections.defaultdict") + b"(K\x01tR.", id="defaultdict of a number"
        ),
        pytest.param(
            b"\x80\x04" + global_of("alpa.mesh_profiling.MeshProfilingResult") + b")\x81K\x05b.",
            id="state that is no dict",
        ),
        pytest.param(
            b"\x80\x04"
            + global_of("alpa.mesh_profiling.MeshProfilingResult")
            + b")\x81N}K\x01K\x02s\x86b.",
            id="state in slots",
        ),
        pytest.param(b"\x80\x04\x8c\x02os\x8c\x06system\x93.", id="STACK_GLOBAL"),
        pytest.param(b"\x80\x04K\x01K\x02\x93.", id="STACK_GLOBAL of numbers"),
        pytest.param(
            b"\x80\x04\x8c\x14alpa.mesh_profiling\x8c\x1fMeshProfilingResult.__init__\x93.",
            id="attribute of a known class",
        ),
        pytest.param(
            global_of("numpy.dtype") + b"(\x8c\x01OtR.", id="numpy number that is an object"
        ),
        pytest.param(global_of("numpy.dtype") + b"(}tR.", id="numpy number that is a dict"),
        pytest.param(global_of("_codecs.encode") + b"(X\x01\x00\x00\x00aU\x03rottR.", id="codec"),
    ],
)
def test_other_content_is_refused_in_one_line(content: bytes) -> None:
    refusal(content)


def test_state_cannot_set_what_a_class_is() -> None:
    """A state is kept as data: it replaces no method and no `__class__`."""
    value = MeshProfilingResult()
    value.__dict__["__class__"] = "changed"
    value.__dict__["__setstate__"] = "changed"
    found = read_alpa_pickle(pickled(value), "odd.pkl")
    assert type(found).__name__ == "Result"
    assert found.attributes["__class__"] == "changed"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".", id="bytearray"),
        pytest.param(b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".", id="bytes"),
        pytest.param(b"\x80\x04\x8d" + struct.pack("<Q", 2**40) + b".", id="text"),
        pytest.param(b"\x80\x04\x8b" + struct.pack("<i", 2**30) + b".", id="number"),
        pytest.param(b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b"N.", id="frame"),
    ],
)
def test_a_length_is_not_believed(content: bytes) -> None:
    tracemalloc.start()
    try:
        assert "\n" not in outcome(content)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_a_far_place_of_the_memo_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        read_alpa_pickle(b"\x80\x04Nr" + struct.pack("<I", 2**32 - 1) + b".", "evil.pkl")
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_tuples_of_tuples_do_not_take_forever() -> None:
    """Hashing one looks at every value within, shared ones each time."""
    doubled = b"K\x01" + b"".join(b"q\x01h\x01\x86" for _ in range(100))
    message = refusal(b"\x80\x04}" + doubled + b"Ns.")
    assert "without end" in message


@examples(150)
@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_bytes_give_a_value_or_one_line(content: bytes, protocol: int) -> None:
    assert "\n" not in outcome(b"\x80" + bytes([protocol]) + content)


@examples(50)
@given(st.integers(0, 5), st.data())
def test_a_damaged_database_gives_a_value_or_one_line(protocol: int, data) -> None:
    content = bytearray(pickled(database(), protocol))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    assert "\n" not in outcome(bytes(content))
