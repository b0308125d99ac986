"""`python -m tests.lowest`: the lowest versions that pyproject.toml allows, as pip's constraints.

What the tests themselves use is pinned as in .constraints.txt.
"""

import re
import tomllib
from pathlib import Path

from tests.locked import locked

ROOT = Path(__file__).parents[1]
TOOLS = ("hypothesis", "pytest", "pytest-xdist", "setuptools")


def lower_bounds() -> dict[str, str]:
    """Return the lowest version of each package that the planner needs.

    Raises
    ------
    ValueError: a package has no lower bound.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = {}
    for requirement in project["dependencies"]:
        match = re.fullmatch(r"([A-Za-z0-9_-]+)>=([0-9.]+)", requirement)
        if match is None:
            raise ValueError(f"{requirement}: expected NAME>=VERSION")
        bounds[match[1]] = match[2]
    return bounds


def pins() -> dict[str, str]:
    """Return the versions in .constraints.txt, names in lower case."""
    return {package.name.lower(): package.version for package in locked()}


def main() -> None:
    """Print the constraints."""
    known = pins()
    for name, version in (lower_bounds() | {tool: known[tool] for tool in TOOLS}).items():
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
