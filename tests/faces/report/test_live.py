"""The live line."""

import io
import math
import sys

import pytest

from ilp_planner.faces.report.live import Progress


def test_silent_when_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress(2.0, 1.0)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_shown_on_a_terminal_and_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Progress() as progress:
        progress(2.0, 1.0)
        assert progress.live is not None
        progress.live.refresh()
    assert "incumbent 2.000 s" in terminal.getvalue()


def test_line() -> None:
    progress = Progress()
    assert progress.line(0.4) == "incumbent none  bound none  gap -  elapsed 0 s"
    progress(math.inf, 1.0)
    assert progress.line(3) == "incumbent none  bound 1.000 s  gap -  elapsed 3 s"
    progress(2.0, 1.0)
    assert progress.line(70) == "incumbent 2.000 s  bound 1.000 s  gap 50.00 %  elapsed 70 s"
    progress(2.0, 2.0)
    assert "proved optimal" in progress.line(70)
