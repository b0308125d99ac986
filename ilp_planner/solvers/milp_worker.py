"""Runs MathOpt in a process of its own; started by file name, imports nothing of this package.

HiGHS inside MathOpt can not be interrupted: it ignores the interrupter, and a thread that runs it
holds up the end of the process. A process can be ended at any time, and what it logged is kept.

Protocol: pickles. In: a request (a dict, see `solve`) or None, which asks to stop the solve. Out:
("log", line), ("done", dict) or ("error", text). The end of the input ends the process.
"""

from __future__ import annotations

import datetime
import os
import pickle
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def solve(request: dict[str, Any], send: Callable[[tuple[str, Any]], None], stop: Any) -> None:
    """Solve one request and send its outcome.

    request: model (serialised MathOpt ModelProto), solver (name of a MathOpt SolverType), seconds,
    gap (relative), seed, hint (value of each variable, or empty). stop: a SolveInterrupter.
    """
    from ortools.math_opt import model_pb2
    from ortools.math_opt.python import mathopt

    model = mathopt.Model.from_model_proto(model_pb2.ModelProto.FromString(request["model"]))
    # `threads` stays unset: HiGHS refuses it here (and the refusal surfaces as an AttributeError),
    # SCIP is built without.
    parameters = mathopt.SolveParameters(
        time_limit=datetime.timedelta(seconds=request["seconds"]),
        relative_gap_tolerance=request["gap"],
        absolute_gap_tolerance=0.0,
        random_seed=request["seed"],
    )
    hints = []
    if request["hint"]:
        start = {model.get_variable(at): value for at, value in enumerate(request["hint"])}
        hints.append(mathopt.SolutionHint(variable_values=start))

    def log(lines: Any) -> None:
        for line in lines:
            send(("log", line))

    result = mathopt.solve(
        model,
        mathopt.SolverType[request["solver"]],
        params=parameters,
        model_params=mathopt.ModelSolveParameters(solution_hints=hints),
        msg_cb=log,
        interrupter=stop,
    )
    values: Any = []
    if result.has_primal_feasible_solution():
        values = result.variable_values(list(model.variables()))
    termination = result.termination
    send(
        (
            "done",
            {
                "reason": termination.reason.name,
                "limit": termination.limit.name if termination.limit else "",
                "detail": termination.detail,
                "bound": termination.objective_bounds.dual_bound,
                "values": values,
            },
        )
    )


def serve() -> None:
    """Serve requests from standard input, one at a time, until it closes."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # solvers print as they please: away from the replies
    lock = threading.Lock()

    def send(message: tuple[str, Any]) -> None:
        with lock:
            pickle.dump(message, replies)
            replies.flush()

    def work(request: dict[str, Any], stop: Any) -> None:
        try:
            solve(request, send, stop)
        except Exception as error:
            send(("error", f"{type(error).__name__}: {error}"))

    from ortools.util.python.solve_interrupter import SolveInterrupter

    stop = None
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            os._exit(0)  # the planner is gone: no reason to finish a solve
        if request is None:
            if stop is not None:
                stop.interrupt()
            continue
        stop = SolveInterrupter()
        threading.Thread(target=work, args=(request, stop), daemon=True).start()


if __name__ == "__main__":
    serve()
