"""YAML is read safely: one value for a key, within limits, without anything that runs."""

import pytest
import yaml

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.base.yaml_files import BYTES, read_yaml, scalar


def read(text: str) -> object:
    return read_yaml(Document("a.yaml", text), SpecError)


@pytest.mark.parametrize(
    "text", ["{a: 1, b: [true, null, 1.5, 100_000]}", "a: &x {b: 1}\nc: {<<: *x, d: 2}", "[]", "7"]
)
def test_as_the_library_reads_it(text: str) -> None:
    assert read(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: {c: 1, c: 2}\n", "line 2, column 11: not valid YAML: found the key 'c' twice"),
        ("a: [1\n", "not valid YAML"),
        ("a: !!python/object/apply:os.system [true]\n", "could not determine a constructor"),
        ("[a, b]: 1\n", "as a key"),
        ("a: 1\n---\nb: 2\n", "expected a single document"),
        ("[" * 70 + "]" * 70, "more than 64 deep"),
        ("[" * 100_000, "more than 64 deep"),
        ("a: " + "9" * 50, "digits"),
        ("a: " + "9" * 5000, "not valid YAML"),
        ("a: &a [*a]\n", "entries"),
        ("# " + "x" * BYTES, "256 KiB"),
        ("a: \x00", "not valid YAML"),
        ("a: 2026-99-99\n", "not valid YAML"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=r"^a\.yaml: ") as error:
        read(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_anchors_cannot_multiply() -> None:
    """Nine lines of nine each would be a billion values; none is made."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 9)]
    with pytest.raises(SpecError, match="100,000 entries"):
        read("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("true", True), ("[1, 2]", [1, 2]), ("null", None), ("a: b: c", "a: b: c")],
)
def test_one_value(text: str, value: object) -> None:
    assert scalar(text) == value
