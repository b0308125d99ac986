"""The keywords of `ilp_planner.problem` that are settings, as editors know them.

`python -m tests.settings.keywords` writes them from the table of settings.
"""

from pathlib import Path

from ilp_planner.settings import keywords
from ilp_planner.settings.table import DEMANDS

FILE = Path(str(keywords.__file__))
HEAD = '''"""The settings that are keywords of Python, with their types.

`python -m tests.settings.keywords` makes them of the table of settings.
"""

from collections.abc import Sequence
from typing import TypedDict


class Demands(TypedDict, total=False):
    """What plans must have, and which devices they may use."""

'''


def text() -> str:
    """Return the module."""
    rows = (
        f"    {setting.name}: {setting.domain.python} | None\n"
        for setting in DEMANDS
        if setting.help
    )
    return HEAD + "".join(rows)


if __name__ == "__main__":
    FILE.write_text(text())
