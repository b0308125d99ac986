"""Commands run in the process, as those of tests/faces/cli."""

from tests.faces.cli.conftest import folder, ilp_plan

__all__ = ["folder", "ilp_plan"]
