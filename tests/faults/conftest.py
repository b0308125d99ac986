"""Commands run in the process, as for the tests of the command line."""

from tests.faces.cli.conftest import fake, folder, ilp_plan, operators, saved, tiny

__all__ = ("fake", "folder", "ilp_plan", "operators", "saved", "tiny")
