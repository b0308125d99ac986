"""`ilp-plan mcp`."""

from typing import Annotated

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.cli.help import SOLVER
from ilp_planner.faces.cli.options import option
from ilp_planner.faces.cli.values import finite_seconds


def mcp(
    time_limit: Annotated[
        float,
        option(
            SOLVER,
            "--time-limit",
            "Seconds that one call may take; a search without a limit of its own gets no more.",
            "S",
            default=True,
            min=1.0,
        ),
    ] = 300.0,
) -> None:
    """Serve solve, fit, why, compare and doctor to agents, by the Model Context Protocol.

    It speaks over standard input and output, and ends when these do. Every call is a process of its
    own; launch scripts that are named are read, and nothing of them is run.
    """
    try:
        from ilp_planner.faces.tools.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise UsageError(
            "mcp: found no package mcp, expected it installed: pip install 'ilp-planner[mcp]'"
        ) from None
    serve(finite_seconds(time_limit))
