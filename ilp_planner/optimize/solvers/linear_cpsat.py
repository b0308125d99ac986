"""A linear model in OR-Tools CP-SAT, with any rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.errors import SolverError
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solvers.base import GraphSolution
from ilp_planner.optimize.solvers.cpsat import OBJECTIVE_BITS

if TYPE_CHECKING:
    from ilp_planner.base.deadline import Deadline
    from ilp_planner.optimize.solvers.arc_flow import LinearModel
    from ilp_planner.optimize.solvers.base import Limits

NAME = "cp-sat"
PRESOLVE = False
"""With it, OR-Tools 9.15 loses optima of such models (as in google/or-tools, issue 5293), and saves
no time where there are so few arcs."""


def solve_linear(
    model: LinearModel, limits: Limits, deadline: Deadline, work: float = math.inf
) -> GraphSolution:
    """Return the arcs that cost least, ascending, with the model's own time and a bound.

    Arcs cost nothing and maxima one each; rows say how large a maximum is at least, or have whole
    numbers. Times are rounded down to integers, at most 2**44 in the objective: the loss is less
    than one per arc of a solution and row. An interrupt waits for the end.

    work: as CpSat's.

    Raises
    ------
    SolverError: CP-SAT finds no arcs that rows allow, or refuses the model.
    """
    from ortools.sat.python import cp_model

    most = sum(high for _, _, high in model.maxima)
    scale = 2.0 ** (OBJECTIVE_BITS - 1 - math.frexp(most)[1])
    program = cp_model.CpModel()
    arcs = [program.new_bool_var("") for _ in range(model.arcs)]
    maxima = [
        program.new_int_var(math.floor(low * scale), math.ceil(high * scale), name)
        for name, low, high in model.maxima
    ]
    columns = [*arcs, *maxima]
    for rows in model.rows.values():
        for (row, values), low, high in zip(
            rows.entries(), rows.low.tolist(), rows.high.tolist(), strict=True
        ):
            held = [columns[column] for column in row]
            if max(row) < model.arcs:
                whole = cp_model.LinearExpr.weighted_sum(held, [int(value) for value in values])
                program.add_linear_constraint(whole, int(low), int(high))
                continue
            weights = [
                1 if column >= model.arcs else math.ceil(value * scale)
                for column, value in zip(row, values, strict=True)
            ]
            at_least = cp_model.LinearExpr.weighted_sum(held, weights)
            program.add(at_least >= math.floor(low * scale))
    program.minimize(sum(maxima))
    solver = cp_model.CpSolver()
    solver.parameters.cp_model_presolve = PRESOLVE
    solver.parameters.max_time_in_seconds = deadline.left
    solver.parameters.max_deterministic_time = work
    solver.parameters.num_workers = limits.workers
    solver.parameters.random_seed = limits.seed % 2**31
    solver.parameters.catch_sigint_signal = False
    status = solver.solve(program)
    if status in (cp_model.INFEASIBLE, cp_model.MODEL_INVALID):
        raise SolverError(f"cp-sat: {solver.status_name(status).lower()}: {program.validate()}")
    path: tuple[int, ...] = ()
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        path = tuple(np.flatnonzero(solver.boolean_values(arcs)).tolist())
    proved = status == cp_model.OPTIMAL
    tired = solver.response_proto.deterministic_time >= work
    return GraphSolution(
        path=path,
        objective=model.value(path) if path else math.inf,
        bound=max(0.0, solver.best_objective_bound) / scale,
        status=Status.OPTIMAL if proved else Status.FEASIBLE if path else Status.UNKNOWN,
        stopped_by=Stop.PROOF if proved else Stop.EFFORT if tired else Stop.TIME,
        solver=NAME,
    )
