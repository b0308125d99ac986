"""The ten questions of `docs/howto/finetune.md`: the verdict and the bytes of each."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.faces.cli.main import main

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "finetune.md").read_text()
PAGE = PAGE.partition("## Ten questions")[2]
ASKED = re.findall(r"^ilp-plan (fit .* --verdict)$", PAGE, re.MULTILINE)
SAID = re.findall(r"^\| [^|]+ \| (fits|may not fit|does not fit), ([0-9.]+) \|", PAGE, re.MULTILINE)


def test_there_are_ten() -> None:
    assert len(ASKED) == len(SAID) == 10


@pytest.mark.parametrize(("asked", "said"), list(zip(ASKED, SAID, strict=True)))
def test_a_question_is_answered_as_the_page_says(
    asked: str, said: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(shlex.split(asked))
    line = capsys.readouterr().out.splitlines()[0]
    verdict, size = re.match(r"([A-Z ]+?) +([0-9.]+) GiB", line).groups()  # type: ignore[union-attr]
    assert verdict.lower() == said[0]
    assert float(size) == pytest.approx(float(said[1]), abs=0.051)


run: Callable[[list[str]], None] = main
