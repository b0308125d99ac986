"""A call is a process that prints JSON or says one line, and ends with the call."""

import asyncio
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from ilp_planner.faces.schemas import schema
from ilp_planner.faces.tools import table as calls
from ilp_planner.faces.tools.table import Answer, call


def called(name: str, given: dict[str, object], most: float = 60.0) -> Answer:
    return asyncio.run(call(name, given, most))


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the script that calls run instead of Python."""
    script = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(script))
    return script


def write(script: Path, text: str) -> None:
    script.write_text(f"#!/bin/bash\n{text}\n")
    script.chmod(0o755)


def test_what_is_printed_is_found_whatever_the_exit_code(stand_in: Path) -> None:
    write(stand_in, """echo '{"fits": false}'; echo "ilp-plan: note: x" >&2; exit 6""")
    assert called("fit", {}) == Answer({"fits": False}, "ilp-plan: note: x", 6)


def test_an_error_is_the_line_of_the_command(stand_in: Path) -> None:
    write(stand_in, 'echo "ilp-plan: a.toml: no such file" >&2; exit 1')
    assert called("fit", {}) == Answer(None, "ilp-plan: a.toml: no such file", 1)
    write(stand_in, "kill -9 $$")
    assert called("fit", {}) == Answer(None, "fit: ended with status -9", -9)


def test_nothing_of_a_call_lives_on_after_it(
    stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "GRACE", 0.0)
    write(stand_in, f"sleep 1000 & echo $! > {tmp_path}/worker; sleep 1000")
    answer = called("why", {"plan": "p"}, most=0.5)
    assert (answer.found, answer.code) == (None, 4)
    assert answer.text == "why: found no end after 0.5 s, and was stopped"
    worker = (tmp_path / "worker").read_text().strip()
    state, most = Path("/proc") / worker / "stat", time.monotonic() + 10
    while state.exists() and state.read_text().split()[2] != "Z":  # a killed one ends soon
        assert time.monotonic() < most


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 10**6, "\u00e9" * 40_000])
def test_a_text_that_no_process_can_be_given_is_refused(text: str) -> None:
    for name, given in (("fit", {"job": text}), ("compare", {"plans": ["a.json", text]})):
        answer = called(name, given)
        assert (answer.found, answer.code) == (None, 2)
        assert "expected a text without NUL and half characters" in answer.text
        assert len(answer.text) < 300
        answer.text.encode()


def test_a_real_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a script that would leave a mark if it were run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text(
        "#!/bin/bash\ntouch owned\ntorchrun --nproc-per-node 2 pretrain_gpt.py --num-layers 2 "
        "--hidden-size 64 --num-attention-heads 4 --micro-batch-size 1 --global-batch-size 2 "
        "--seq-length 128 --max-position-embeddings 128 --vocab-size 999 "
        "--data-path $(touch owned)\n"
    )
    answer = called("fit", {"job": "run.sh", "gpus": "2xA100-80GB"})
    assert answer.found is not None, answer.text
    jsonschema.validate(answer.found, schema("fit"))
    assert answer.found["verdict"] == "FITS"
    assert not (tmp_path / "owned").exists()
