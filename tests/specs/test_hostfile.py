import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.specs.hostfile import read_hostfile


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("IP1 8 \nIP2 8\n", [("IP1", 8), ("IP2", 8)]),
        ("a slots=16\n", [("a", 16)]),
        ("\n# nodes\n\na\tslots = 4  # first\n\n", [("a", 4)]),
        ("10.0.0.1 slots=4\n10.0.0.1 slots=4", [("10.0.0.1", 4), ("10.0.0.1", 4)]),
        ("\ufeffa 2\r\nb 2\r\n", [("a", 2), ("b", 2)]),
        ("worker-7.cluster.local slots=100", [("worker-7.cluster.local", 100)]),
    ],
)
def test_reads(tmp_path, text, hosts):
    """Both forms, any number of digits, blank lines, comments and repeated names."""
    path = tmp_path / "hostfile"
    path.write_text(text, encoding="utf-8")
    assert read_hostfile(path) == tuple(hosts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have a line 'NAME slots=N' per node, found none"),
        ("# none\n", "must have a line 'NAME slots=N' per node, found none"),
        ("a 4\n8\n", "line 2: expected 'NAME slots=N' or 'NAME N', found '8'"),
        ("a slots=\n", "line 1: expected 'NAME slots=N' or 'NAME N', found 'a slots='"),
        ("a slots=0\n", "line 1: slots must be 1 to 65536, found 0"),
        ("a slots=-1\n", "line 1: expected"),
        ("a 4.5\n", "line 1: expected"),
        ("a 4 8\n", "line 1: expected"),
        ("a ４\n", "line 1: expected"),  # noqa: RUF001 - another alphabet's digit
        ("a " + "9" * 5000, "line 1: slots must be 1 to 65536, found 9999"),
    ],
)
def test_one_line_per_error(tmp_path, text, message):
    path = tmp_path / "hostfile"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as error:
        read_hostfile(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_no_file(tmp_path):
    with pytest.raises(SpecError, match="no such file"):
        read_hostfile(tmp_path / "absent")
    with pytest.raises(SpecError, match="cannot be read"):
        read_hostfile(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="UTF-8"):
        read_hostfile(tmp_path / "bytes")
