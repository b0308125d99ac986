"""The keywords of `ilp_planner.problem`, as editors know them.

`python -m tests.inputs.keywords` writes them from the tables of settings and of inputs.
"""

from pathlib import Path

from ilp_planner.inputs import keywords
from ilp_planner.inputs.table import INPUTS
from ilp_planner.settings.table import DEMANDS

FILE = Path(str(keywords.__file__))
HEAD = '''"""The keywords of Python that are settings or inputs, with their types.

`python -m tests.inputs.keywords` makes them of the two tables.
"""

from collections.abc import Sequence
from typing import TypedDict


class Demands(TypedDict, total=False):
    """What plans must have, and which devices they may use."""

'''
MORE = '''

class Inputs(Demands, total=False):
    """What a request says besides."""

'''
END = """

KEYWORDS = Inputs.__annotations__
"""


def text() -> str:
    """Return the module."""
    demands = ((row.name, row.domain.python) for row in DEMANDS if row.help)
    inputs = ((row.said, row.kind.python) for row in INPUTS)
    first, second = (
        "".join(f"    {name}: {kind} | None\n" for name, kind in rows) for rows in (demands, inputs)
    )
    return HEAD + first + MORE + second + END


if __name__ == "__main__":
    FILE.write_text(text())
