"""Runs MathOpt in a process of its own; started by file name, imports nothing of this package.

HiGHS inside MathOpt can not be interrupted: it ignores the interrupter, and a thread that runs it
holds up the end of the process. A process can be ended at any time, and its log is kept.

Protocol: pickles. In: a request (a dict, see `solve`) or None, to stop the solve. Out: ("log",
line), ("done", dict) or ("error", text). The end of the input ends the process.
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
    gap (relative), seed, hint (value of each variable, or empty). stop: as of `interrupter`.
    """
    from ortools.math_opt import model_pb2
    from ortools.math_opt.python import mathopt

    model = read_model(model_pb2.ModelProto.FromString(request["model"]))
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
        **({} if stop is None else {"interrupter": stop}),
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


def read_model(proto: Any) -> Any:
    """Return the MathOpt model of a proto with ids from 0."""
    from ortools.math_opt.python import mathopt

    if hasattr(mathopt.Model, "from_model_proto"):
        return mathopt.Model.from_model_proto(proto)
    model = mathopt.Model()  # before OR-Tools 9.15 it has no reader
    columns, rows, terms = proto.variables, proto.linear_constraints, proto.linear_constraint_matrix
    ends = zip(columns.lower_bounds, columns.upper_bounds, columns.integers, strict=True)
    variables = [model.add_variable(lb=low, ub=high, is_integer=whole) for low, high, whole in ends]
    sides = zip(rows.lower_bounds, rows.upper_bounds, strict=True)
    constraints = [model.add_linear_constraint(lb=low, ub=high) for low, high in sides]
    for row, column, value in zip(terms.row_ids, terms.column_ids, terms.coefficients, strict=True):
        constraints[row].set_coefficient(variables[column], value)
    costs = proto.objective.linear_coefficients
    for column, value in zip(costs.ids, costs.values, strict=True):
        model.objective.set_linear_coefficient(variables[column], value)
    return model


def interrupter() -> Any:
    """Return a SolveInterrupter; None with an OR-Tools that has none, before 9.15."""
    try:
        from ortools.util.python.solve_interrupter import SolveInterrupter
    except ImportError:
        return None
    return SolveInterrupter()


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
        stop = interrupter()
        threading.Thread(target=work, args=(request, stop), daemon=True).start()


if __name__ == "__main__":
    serve()
