"""Arc flow, and linear models with any rows, in OR-Tools CP-SAT."""

from __future__ import annotations

import contextlib
import math
import threading
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import SolverError
from ilp_planner.base.numerics import PROVED
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solvers.arc_flow import (
    above,
    capacity_rows,
    cover_rows,
    flow_rows,
    maxima_of,
    ordered_path,
)
from ilp_planner.optimize.solvers.backend import ArcFlow
from ilp_planner.optimize.solvers.base import GraphSolution

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ilp_planner.base.deadline import Deadline
    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.solvers.arc_flow import LinearModel
    from ilp_planner.optimize.solvers.arc_reduction import Reduced
    from ilp_planner.optimize.solvers.backend import Search
    from ilp_planner.optimize.solvers.base import Limits


# ---- arc flow ------------------------------------------------------------------------------------


OBJECTIVE_BITS = 44
"""A path costs at most 2**44 units: enough for 1e-9 of it, and a double holds it exactly."""
SUM_BITS = 60
"""CP-SAT refuses objectives whose terms could add up to more than int64 holds."""


class CpSat(ArcFlow):
    """CP-SAT over one boolean per arc, times rounded down to integers.

    Rounding down makes every path shorter, so CP-SAT's bound holds for the graph. A path that is
    optimal after rounding is within (weight + its arcs) / scale seconds of the optimum (its arcs
    count twice if they have an extra, each peak once), less than 1e-9 of it in practice.
    """

    name = "cp-sat"
    needs = "ortools"

    def __init__(self, *, reduce: bool = True, work: float = math.inf) -> None:
        """Take its limits.

        Parameters
        ----------
        work: of all that it solves together, in CP-SAT's deterministic time, about one per second
            of an idle core. With one worker, its result depends on nothing else.
        """
        super().__init__(reduce=reduce)
        self.work = work

    def solve_reduced(
        self, problem: Reduced, search: Search, limits: Limits, deadline: Deadline
    ) -> Stop:
        """Solve in a thread; report in the graph's own seconds."""
        run = _Run(problem, search, limits, self.work)
        search.tolerance = max(PROVED, run.tolerance)
        try:
            return run(deadline)
        finally:
            self.work -= run.worked


def integer_scale(graph: StageGraph) -> float:
    """Return units per second, a power of two: scaling is exact, only rounding down loses."""
    slowest = float(graph.time.max())
    longest = int(np.unique(graph.start).size)
    peaks = float(graph.peaks.max(axis=1).sum())
    most = slowest * (graph.weight + longest) + float(graph.extra.max()) * longest
    path = math.log2(most + peaks)
    terms = slowest * graph.weight + float(graph.time.sum() + graph.extra.sum())
    everything = math.log2(terms + peaks)
    return 2.0 ** math.floor(min(OBJECTIVE_BITS - path, SUM_BITS - everything))


class _Run:
    """One CP-SAT search, in a thread of its own so that the caller's thread can be interrupted."""

    def __init__(self, problem: Reduced, search: Search, limits: Limits, work: float) -> None:
        from ortools.sat.python import cp_model

        self.problem, self.search, self.limits = problem, search, limits
        self.work, self.worked = work, 0.0
        graph = problem.graph
        self.scale = integer_scale(graph)
        self.units = self._floor(graph.time)
        # Rounding loses less than one unit per arc (and one of its extra), one in the bottleneck of
        # each micro-batch after the first, and one in each peak; a broken weight's rest is a peak.
        per_arc = 2 if graph.extra.any() else 1
        longest = int(np.unique(graph.start).size)
        lost = (math.ceil(graph.weight) + per_arc * longest + len(graph.peaks)) / self.scale
        self.tolerance = float(lost) / problem.bound
        self.cp_model = cp_model
        self.news: SimpleQueue[tuple[NDArray[np.bool_] | None, float]] = SimpleQueue()
        self.model, self.arc = self._model()
        self.solver = cp_model.CpSolver()

    def _floor(self, seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.floor(seconds * self.scale).astype(np.int64)

    def _model(self) -> tuple[Any, list[Any]]:
        cp_model, graph = self.cp_model, self.problem.graph
        units = self.units.tolist()
        model = cp_model.CpModel()
        arc = [model.new_bool_var("") for _ in units]
        bottleneck = model.new_int_var(
            math.floor(self.problem.bottleneck * self.scale), int(self.units.max()), "bottleneck"
        )
        flow = flow_rows(graph)
        for (columns, signs), right in zip(flow.entries(), flow.low.tolist(), strict=True):
            terms = [arc[column] for column in columns]
            ones = [int(sign) for sign in signs]
            model.add(cp_model.LinearExpr.weighted_sum(terms, ones) == int(right))
        for columns, _ in cover_rows(graph).entries():
            terms = [arc[column] for column in columns]
            model.add_exactly_one(terms)  # implied; as a clique it propagates better than flow
            if graph.weight > 0:
                times = [units[column] for column in columns]
                model.add(bottleneck >= cp_model.LinearExpr.weighted_sum(terms, times))
        capacity = capacity_rows(graph)
        for (columns, uses), most in zip(capacity.entries(), capacity.high.tolist(), strict=True):
            terms, devices = [arc[column] for column in columns], [int(use) for use in uses]
            model.add(cp_model.LinearExpr.weighted_sum(terms, devices) <= int(most))
        maxima = [bottleneck, *self._peaks(model, arc)]
        costs = (self.units + self._floor(graph.extra)).tolist()
        total = cp_model.LinearExpr.weighted_sum(arc, costs) + sum(maxima[1:])
        model.minimize(math.floor(graph.weight) * bottleneck + total)
        hint = self.problem.translated(self.search.path)
        if hint:
            for number, variable in enumerate(arc):
                model.add_hint(variable, int(number in hint))
            values = self._floor(np.array(maxima_of(graph, hint))).tolist()
            for variable, value in zip(maxima, values, strict=False):  # a rest goes without
                model.add_hint(variable, value)
        return model, arc

    def _peaks(self, model: Any, arc: list[Any]) -> list[Any]:
        """Return a variable for each peak, at least what the arc over each operator has.

        Integers weigh the bottleneck by whole numbers: the rest of its weight is a peak.
        """
        graph, variables = self.problem.graph, []
        cover = cover_rows(graph)
        peaks, leasts, rest = graph.peaks, self.problem.peaks, graph.weight % 1
        if rest:
            peaks = np.vstack([peaks, rest * graph.time])
            leasts = np.append(leasts, rest * self.problem.bottleneck)
        for peak, lowest in zip(peaks, self._floor(leasts).tolist(), strict=True):
            units = self._floor(peak)
            variable = model.new_int_var(lowest, int(units.max()), "")
            for columns, more in above(cover, units, lowest).entries():
                terms, values = [arc[column] for column in columns], [int(value) for value in more]
                weighted = self.cp_model.LinearExpr.weighted_sum(terms, values)
                model.add(variable >= lowest + weighted)
            variables.append(variable)
        return variables

    def __call__(self, deadline: Deadline) -> Stop:
        """Run until the deadline, tell the search, return why it ended."""
        cp_model, parameters = self.cp_model, self.solver.parameters
        if not deadline.goon():
            return Stop.TIME
        if self.work <= 0:
            return Stop.EFFORT
        parameters.max_deterministic_time = self.work
        parameters.max_time_in_seconds = deadline.left
        parameters.num_workers = self.limits.workers
        parameters.random_seed = self.limits.seed % 2**31
        parameters.relative_gap_limit = self.limits.gap
        # CP-SAT's own handler would swallow Ctrl-C when this runs in the main thread, and no other
        # thread gets it.
        parameters.catch_sigint_signal = False
        self.solver.best_bound_callback = lambda bound: self.news.put((None, bound))
        outcome: list[Any] = []
        thread = threading.Thread(target=self._solve, args=(outcome,), daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                self._report(0.1)
                if not deadline.left:  # the memory is full, or CP-SAT's clock was set back
                    self.solver.stop_search()
        except BaseException:
            self.search.progress = None  # keep what was found without calling the caller again
            raise
        finally:
            while thread.is_alive():
                self.solver.stop_search()
                thread.join(0.05)
            self._finish(outcome[0])
        self.worked = self.solver.response_proto.deterministic_time
        if outcome[0] != cp_model.OPTIMAL:
            return Stop.TIME if self.worked < self.work else Stop.EFFORT
        # CP-SAT calls it optimal as well when it reaches the gap limit.
        proved = self.solver.best_objective_bound > self.solver.objective_value - 0.5
        return Stop.PROOF if proved else Stop.GAP

    def _solve(self, outcome: list[Any]) -> None:
        """Run in the thread: leave a status, or the exception."""
        run = self

        class Solutions(self.cp_model.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]
            def on_solution_callback(self) -> None:
                values = np.fromiter((self.boolean_value(arc) for arc in run.arc), dtype=bool)
                run.news.put((values, 0.0))

        try:
            outcome.append(self.solver.solve(self.model, Solutions()))
        except BaseException as error:
            outcome.append(error)

    def _report(self, wait: float) -> None:
        """Pass on the result of a callback; wait up to `wait` seconds for it."""
        with contextlib.suppress(Empty):
            chosen, bound = self.news.get(timeout=wait)
            self._update(chosen, bound)

    def _update(self, chosen: NDArray[np.bool_] | None, bound: float) -> None:
        path: tuple[int, ...] = ()
        if chosen is not None:
            path = ordered_path(self.problem.graph, np.flatnonzero(chosen))
        # Exact: the bound is below 2**53, the scale a power of two.
        self.search.update(self.problem.original(path), bound / self.scale)

    def _finish(self, status: Any) -> None:
        cp_model = self.cp_model
        if isinstance(status, BaseException):
            raise SolverError(f"cp-sat: {status}") from status
        if status == cp_model.MODEL_INVALID:
            raise SolverError(f"cp-sat: invalid model: {self.model.validate()}")
        if status == cp_model.INFEASIBLE:
            if self.search.none_fits():
                return
            raise SolverError("cp-sat: claims that a graph with a path has none")
        chosen = None
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            chosen = np.array(self.solver.boolean_values(self.arc), dtype=bool)
        self._update(chosen, self.solver.best_objective_bound)


# ---- a linear model with any rows ----------------------------------------------------------------


PRESOLVE = False
"""With it, OR-Tools 9.15 loses optima of such models (as in google/or-tools, issue 5293), and saves
no time where there are so few arcs."""
ANY = 2**63 - 1
"""The upper end of a row that has none."""


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
    solver, messages, parameters = _without_pandas()
    most = sum(high for _, _, high in model.maxima)
    scale = 2.0 ** (OBJECTIVE_BITS - 1 - math.frexp(most)[1])
    program = messages.CpModelProto()
    for _ in range(model.arcs):
        program.variables.add().domain.extend((0, 1))
    for name, low, high in model.maxima:
        variable = program.variables.add()
        variable.name = name
        variable.domain.extend((math.floor(low * scale), math.ceil(high * scale)))
    for rows in model.rows.values():
        for (row, values), low, high in zip(
            rows.entries(), rows.low.tolist(), rows.high.tolist(), strict=True
        ):
            if max(row) < model.arcs:
                _add_row(program, row, map(int, values), (int(low), int(high)))
                continue
            weights = (
                1 if column >= model.arcs else math.ceil(value * scale)
                for column, value in zip(row, values, strict=True)
            )
            _add_row(program, row, weights, (math.floor(low * scale), ANY))
    program.objective.vars.extend(range(model.arcs, model.arcs + len(model.maxima)))
    program.objective.coeffs.extend([1] * len(model.maxima))
    parameters.cp_model_presolve = PRESOLVE
    parameters.max_time_in_seconds = deadline.left
    parameters.max_deterministic_time = work
    parameters.num_workers = limits.workers
    parameters.random_seed = limits.seed % 2**31
    parameters.catch_sigint_signal = False
    run = solver.SolveWrapper()
    run.set_parameters(parameters)
    response = run.solve(program)
    refused = {messages.INFEASIBLE: "infeasible", messages.MODEL_INVALID: "model_invalid"}
    if response.status in refused:
        why = solver.CpSatHelper.validate_model(program)
        raise SolverError(f"cp-sat: {refused[response.status]}: {why}")
    path: tuple[int, ...] = ()
    if response.status in (messages.OPTIMAL, messages.FEASIBLE):
        path = tuple(np.flatnonzero([*response.solution][: model.arcs]).tolist())
    proved = response.status == messages.OPTIMAL
    tired = response.deterministic_time >= work
    return GraphSolution(
        path=path,
        objective=model.value(path) if path else math.inf,
        bound=max(0.0, response.best_objective_bound) / scale,
        status=Status.OPTIMAL if proved else Status.FEASIBLE if path else Status.UNKNOWN,
        stopped_by=Stop.PROOF if proved else Stop.EFFORT if tired else Stop.TIME,
        solver=CpSat.name,
    )


def _without_pandas() -> tuple[Any, Any, Any]:
    """Return OR-Tools' compiled half of CP-SAT, the module with its messages, and parameters.

    The module `cp_model` around it imports pandas, which takes a third of a second, three times as
    long as it takes to solve such a model. Versions before 9.15 have messages of their own.
    """
    solver = import_module("ortools.sat.python.cp_model_helper")
    if not hasattr(solver, "SolveWrapper"):
        solver = import_module("ortools.sat.python.swig_helper")
    if hasattr(solver, "CpModelProto"):
        return solver, solver, solver.SatParameters()
    from ortools.sat import cp_model_pb2, sat_parameters_pb2

    return solver, cp_model_pb2, sat_parameters_pb2.SatParameters()


def _add_row(
    program: Any, row: Iterable[int], values: Iterable[int], domain: tuple[int, int]
) -> None:
    """Add a row, without columns of value 0."""
    linear = program.constraints.add().linear
    pairs = [(column, value) for column, value in zip(row, values, strict=True) if value]
    linear.vars.extend([column for column, _ in pairs])
    linear.coeffs.extend([value for _, value in pairs])
    linear.domain.extend(domain)
