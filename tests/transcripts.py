"""Write what the commands of the manual print into its pages again.

python -m tests.transcripts [PAGE ...]

For changes that move numbers on many pages. Each page's commands are run in a folder of their own,
as its test does. Where a page shows all lines, it gets all; where it leaves some out, each shown
line that is printed no more becomes the printed one that is most like it. Read the difference: a
sentence around a block may speak of a number in it.
"""

import difflib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.manual import DOCS, LEFT_OUT, ROOT, Step, session
from tests.test_docs import COLUMNS, HELD_ELSEWHERE, SESSIONS

PROGRAM = Path(sys.executable).parent / "ilp-plan"


def again(step: Step, printed: str) -> list[str]:
    """Return the lines that a page shows of a step, by what it prints now."""
    lines = [line.rstrip() for line in printed.splitlines()]
    if not step.shown:
        return []
    if LEFT_OUT not in [line.strip() for line in step.shown]:
        return lines
    found, rest = [], lines
    for line in step.shown:
        same = [number for number, one in enumerate(rest) if one.split() == line.split()]
        if line.strip() == LEFT_OUT or not line.strip() or not rest:
            found.append(line)
            continue
        likeness = [difflib.SequenceMatcher(None, line, one).ratio() for one in rest]
        place = same[0] if same else likeness.index(max(likeness))
        found.append(rest[place])
        rest = rest[place + 1 :]
    return found


def rewritten(page: str, folder: Path) -> str:
    """Return a page's text with what its commands print in a folder."""
    text = (DOCS / page).read_text()
    environment = os.environ | {"COLUMNS": COLUMNS.get(page, "200"), "NO_COLOR": "1"}
    for step in session(text):
        words = (
            [sys.executable, "-c", step.example] if step.example else [str(PROGRAM), *step.words]
        )
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        if step.example:  # it may write what commands read
            continue
        old = "\n".join([f"$ {step.command}", *step.shown])
        new = "\n".join([f"$ {step.command}", *again(step, done.stdout + done.stderr)])
        assert text.count(old) >= 1, step.command
        text = text.replace(old, new, 1)
    return text


def main() -> None:
    """Rewrite the pages that are named; all that show commands if none is."""
    known = [page for page, steps in SESSIONS.items() if steps and page not in HELD_ELSEWHERE]
    for page in sys.argv[1:] or known:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "main"
            (folder / "solutions").mkdir(parents=True)
            for name in ("models", "clusters"):
                (folder / name).symlink_to(ROOT / name)
            (Path(place) / "shared").symlink_to(ROOT.parent / "shared")
            text = rewritten(page, folder)
        if text != (DOCS / page).read_text():
            (DOCS / page).write_text(text)
            print(page)


if __name__ == "__main__":
    main()
