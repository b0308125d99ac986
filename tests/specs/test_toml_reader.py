import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.specs.toml_reader import Table, read_toml
from tests.examples import for_each


def table(**values):
    return Table(values, file="lab.toml", where="node 'a'")


def refusal(read):
    with pytest.raises(SpecError) as error:
        read()
    message = str(error.value)
    assert "\n" not in message
    return message


def test_values_come_back_typed():
    values = table(
        name="a", count=2, blocks=[3, 4], share=0.5, memory="32 GiB", rate="1 GB/s", latency="5 us"
    )
    assert values.text("name") == "a"
    assert values.whole("count") == 2
    assert values.wholes("blocks") == (3, 4)
    assert values.number("share") == 0.5
    assert values.size("memory") == 32 * 2**30
    assert values.rate("rate") == 1e9
    assert values.duration("latency") == 5e-6
    assert values.whole("absent", 7) == 7
    assert values.rate("absent", 2.0) == 2.0
    assert values.texts("absent") == {}


@for_each(
    ("read", "found", "expected"),
    [
        ("size", "-3 GiB", "memory must be positive, found '-3 GiB'"),
        ("size", "3", "memory must have a unit out of"),
        ("size", 32, "memory must have a unit out of"),
        ("size", True, "memory must be a number with a unit such as '32 GiB', found 'true'"),
        ("rate", "fast", "memory must be a number with a unit such as '300 GB/s', found 'fast'"),
        ("whole", 0, "memory must be a whole number of at least 1, found 0"),
        ("whole", -3, "memory must be a whole number of at least 1, found -3"),
        ("whole", 1.5, "memory must be a whole number of at least 1, found 1.5"),
        ("whole", True, "memory must be a whole number of at least 1, found true"),
        ("whole", "4", "memory must be a whole number of at least 1, found '4'"),
        ("wholes", [], "memory must be a list of whole numbers of at least 1, found []"),
        ("wholes", [3, 0], "memory must be a list of whole numbers of at least 1, found [3, 0]"),
        ("wholes", 3, "memory must be a list of whole numbers of at least 1, found 3"),
        ("number", float("nan"), "memory must be a positive number, found nan"),
        ("number", float("inf"), "memory must be a positive number, found inf"),
        ("number", "1", "memory must be a positive number, found '1'"),
        ("text", " ", "memory must be a text, found ' '"),
        ("text", {"a": 1}, "memory must be a text, found a table"),
        ("table", 3, "memory must be a table [memory], found 3"),
        ("texts", {"a": 1}, "memory must be a table of texts, found a table"),
        ("scalars", {"a": [1]}, "memory must be a table of texts and numbers, found a table"),
    ],
)
def test_a_wrong_value_is_named_with_file_and_key(read, found, expected):
    message = refusal(lambda: getattr(table(memory=found), read)("memory"))
    assert message.startswith(f"lab.toml: node 'a': {expected}")


@for_each("read", ["text", "whole", "number", "size", "rate", "flops", "table"])
def test_a_missing_key_is_named(read):
    message = refusal(lambda: getattr(table(), read)("memory"))
    assert message == "lab.toml: node 'a': memory is missing"


def test_an_unknown_key_suggests_the_nearest():
    message = refusal(lambda: table(memmory="3 GiB").expect(["memory", "count"]))
    assert message == "lab.toml: node 'a': unknown key 'memmory', did you mean 'memory'?"
    message = refusal(lambda: table(zzz=1).expect(["memory", "count"]))
    assert message == "lab.toml: node 'a': unknown key 'zzz', expected memory, count"


def test_an_unknown_choice_suggests_the_nearest():
    message = refusal(lambda: table(family="gtp").choice("family", ["gpt", "t5"]))
    assert message == (
        "lab.toml: node 'a': family must be one of gpt, t5, found 'gtp' (did you mean 'gpt'?)"
    )


def test_a_constructor_is_blamed_on_the_file():
    def construct():
        with table().blamed():
            raise ValueError("hidden must be even, found 3")

    assert refusal(construct) == "lab.toml: node 'a': hidden must be even, found 3"


def test_tables_are_named_by_name_or_number():
    root = Table({"nodes": [{"name": "a"}, {}]}, file="lab.toml")
    first, second = root.tables("nodes", ["name", "count"])
    assert refusal(lambda: first.whole("count")) == "lab.toml: node 'a': count is missing"
    assert refusal(lambda: second.whole("count")) == "lab.toml: node 2: count is missing"
    empty = Table({"nodes": []}, file="lab.toml")
    assert "at least one entry" in refusal(lambda: empty.tables("nodes", []))
    single = Table({"nodes": {"name": "a"}}, file="lab.toml")
    assert "must be tables [[nodes]]" in refusal(lambda: single.tables("nodes", []))


def test_a_long_value_is_cut():
    message = refusal(lambda: table(memory=list(range(1000))).whole("memory"))
    assert message.endswith("...")
    assert len(message) < 150


def test_files_that_cannot_be_read(tmp_path):
    missing = tmp_path / "no.toml"
    assert refusal(lambda: read_toml(missing, [])) == f"{missing}: no such file"
    assert refusal(lambda: read_toml(tmp_path, [])).startswith(f"{tmp_path}: cannot be read: ")
    binary = tmp_path / "b.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    message = refusal(lambda: read_toml(binary, []))
    assert message == f"{binary}: must be a UTF-8 text, found other bytes"


def test_malformed_toml_gives_the_line(tmp_path):
    path = tmp_path / "m.toml"
    path.write_text("name = 'a'\nlayers = = 3\n")
    message = refusal(lambda: read_toml(path, []))
    assert message.startswith(f"{path}: line 2, column 10: not valid TOML: ")
    path.write_text('name = "a')
    assert refusal(lambda: read_toml(path, [])).startswith(f"{path}: end of document: not valid")
