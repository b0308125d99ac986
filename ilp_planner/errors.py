"""Everything a user can have caused, each with the exit code that the command line gives it.

A message names the file, the key, what was found and what was expected, on one line.
"""


class PlannerError(Exception):
    """Root of all errors that are reported as one line, without a traceback."""

    exit_code = 1


class SpecError(PlannerError, ValueError):
    """A model, cluster or training specification that cannot be used."""


class ProfileError(PlannerError, ValueError):
    """A profile that is missing, malformed or holds nothing that can be planned with."""


class PlanError(PlannerError, ValueError):
    """A saved or imported plan that cannot be read or belongs to another problem."""


class OutputError(PlannerError, OSError):
    """A file that cannot be written."""


class UsageError(PlannerError, ValueError):
    """Options that contradict each other or ask for the impossible."""

    exit_code = 2


class InfeasibleError(PlannerError):
    """Proved: no plan fits. Says which stage or operator, and by how many bytes."""

    exit_code = 3


class SolverError(PlannerError, RuntimeError):
    """A solver failed, or claimed something that the evaluator refutes."""
