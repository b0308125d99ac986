"""Arc flow through PuLP: CBC that comes with it, other solvers that it finds, .lp and .mps."""

from __future__ import annotations

import dataclasses
import math
import re
import signal
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.children import Watched, ended
from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import InfeasibleError, SolverError, UsageError
from ilp_planner.base.files import write_text
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solvers.arc_flow import (
    LinearModel,
    linear_model,
    ordered_path,
    solver_scale,
)
from ilp_planner.optimize.solvers.arc_reduction import Reduced, reduced
from ilp_planner.optimize.solvers.backend import MILP_TOLERANCE, ArcFlow, Search, printed_floor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.optimize.solvers.base import Limits

CBC = ("PULP_CBC_CMD", "COIN_CMD")
"""PuLP's names for CBC: its own copy, and one on the search path."""
GRACE = 5.0
"""Seconds that CBC may take past its time limit before it is asked to stop."""
LAST_WORDS = 2.0
"""Seconds that CBC has to write down what it found when it is asked to stop."""


class Pulp(ArcFlow):
    """The solver that PuLP calls `solver`; CBC when empty. One thread, for any limits say.

    Only CBC's bound is known, from its log, and lowered by its tolerances: for other solvers the
    bound is that of the reduction. A hint serves as cutoff, it is not passed on.
    """

    name = "pulp"
    needs = "pulp"
    tolerance = 2 * MILP_TOLERANCE

    def __init__(self, solver: str = "", *, reduce: bool = True) -> None:
        super().__init__(reduce=reduce)
        self.solver = solver

    def available(self) -> bool:
        """Tell whether PuLP is installed and finds the solver."""
        if not super().available():
            return False
        try:
            self._pulp_solver()
        except UsageError:
            return False
        return True

    def run(self, search: Search, limits: Limits, deadline: Deadline) -> Stop:
        """Refuse an unknown solver also when there is nothing left to solve."""
        self._pulp_solver()
        return super().run(search, limits, deadline)

    def _pulp_solver(self, **options: Any) -> Any:
        """Return PuLP's solver object.

        Raises
        ------
        UsageError: PuLP does not know the solver, or it is not installed.
        """
        import pulp

        with warnings.catch_warnings():  # PuLP 3.3 deprecates its own CBC in favour of its own CBC
            warnings.simplefilter("ignore", DeprecationWarning)
            known = pulp.listSolvers()
            for name in (self.solver,) if self.solver else CBC:
                if name in known:
                    solver = pulp.getSolver(name, msg=False, **options)
                    if solver.available():
                        return solver
            found = ", ".join(pulp.listSolvers(onlyAvailable=True)) or "none"
        raise UsageError(f"pulp: solver {self.solver or 'CBC'!r} is not available, found {found}")

    def solve_reduced(
        self, problem: Reduced, search: Search, limits: Limits, deadline: Deadline
    ) -> Stop:
        """Run CBC, or let PuLP run another solver."""
        model = linear_model(problem, scale=solver_scale(problem))
        program = _program(model, range(model.arcs))
        seconds = deadline.left
        if not deadline.goon():
            return Stop.TIME
        solver = self._pulp_solver(timeLimit=seconds, gapRel=limits.gap)
        if solver.name not in CBC:
            return self._foreign(solver, program, problem, search, deadline)
        with tempfile.TemporaryDirectory(prefix="ilp-planner-") as folder:
            cbc = _Cbc(solver, program, Path(folder))
            user = False
            try:
                cbc.run(seconds, limits)
            except KeyboardInterrupt:
                user = True
                search.progress = None  # keep what it found, without calling the caller again
            chosen = cbc.chosen()
            path = ordered_path(problem.graph, chosen) if chosen else ()
            claim, proved = cbc.bound()
            if claim == math.inf and not search.none_fits():
                raise SolverError("pulp: claims that a graph with a path has none")
            bound = claim / model.scale * (1 - MILP_TOLERANCE)
            search.update(problem.original(path), bound)
        if user:
            return Stop.USER
        return Stop.PROOF if proved else Stop.TIME

    def _foreign(
        self, solver: Any, program: Any, problem: Reduced, search: Search, deadline: Deadline
    ) -> Stop:
        """Let PuLP run a solver without a known log: it gives a path, no bound.

        Nor a proof that there is no path: some of PuLP's interfaces call a model infeasible when
        their solver ran out of time.
        """
        import pulp

        try:
            program.solve(solver)
        except (pulp.PulpError, OSError, ImportError, AttributeError) as error:
            raise SolverError(f"pulp: {solver.name}: {error}") from error
        chosen = _chosen({v.name: v.value() or 0.0 for v in program.variables()})
        if program.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
            search.offer(problem.original(ordered_path(problem.graph, chosen)))
        if not deadline.goon():
            return Stop.TIME
        return Stop.GAP if search.path else Stop.ERROR


def write_program(graph: StageGraph, path: Path, form: str, *, constant: float = 0.0) -> None:
    """Write the arc-flow model of a graph as a file, in seconds; variable x_7 is arc 7.

    Parameters
    ----------
    form: `lp` or `mps`.
    constant: seconds that every path takes besides, as a variable that has this value.

    Raises
    ------
    InfeasibleError: the graph has no path, so there is no model.
    OutputError: the file cannot be written.
    """
    problem = reduced(graph)
    if not problem.graph.arcs:
        raise InfeasibleError("no sequence of stages covers all operators: no model to write")
    model = linear_model(problem, scale=1.0)
    write_model(model, problem.arcs.tolist(), path, form, constant=constant)


def write_model(
    model: LinearModel, names: Iterable[object], path: Path, form: str, *, constant: float = 0.0
) -> None:
    """Write a model as a file; names: of its arcs' variables, after `x_`. Otherwise as
    `write_program`."""
    if constant:
        fixed = ("constant", constant, constant)
        cost = np.append(model.cost, 1.0)
        model = dataclasses.replace(model, cost=cost, maxima=(*model.maxima, fixed))
    program = _program(model, names)
    # PuLP writes files only.
    with tempfile.TemporaryDirectory(prefix="ilp-planner-") as folder:
        file = Path(folder) / "model"
        (program.writeLP if form == "lp" else program.writeMPS)(str(file))
        text = file.read_text()
    write_text(path, text)


def _program(model: LinearModel, names: Iterable[object]) -> Any:
    """Return the model as a PuLP problem; names: of arc variables, after `x_`."""
    import pulp

    program = pulp.LpProblem("stages", pulp.LpMinimize)
    variable = getattr(program, "add_variable", pulp.LpVariable)  # the former since PuLP 3.3.1
    columns = [variable(f"x_{name}", 0, 1, cat="Integer") for name in names]
    columns += [variable(name, low, high) for name, low, high in model.maxima]
    program.setObjective(
        pulp.LpAffineExpression(list(zip(columns, model.cost.tolist(), strict=True)))
    )
    for name, rows in model.rows.items():
        for number, (row, values) in enumerate(rows.entries()):
            low, high = float(rows.low[number]), float(rows.high[number])
            sense = pulp.LpConstraintGE if low > -math.inf else pulp.LpConstraintLE
            program.addConstraint(
                pulp.LpConstraint(
                    pulp.LpAffineExpression(
                        [(columns[c], v) for c, v in zip(row, values, strict=True)]
                    ),
                    pulp.LpConstraintEQ if low == high else sense,
                    f"{name}_{number}",
                    low if low > -math.inf else high,
                )
            )
    return program


def _chosen(values: dict[str, float]) -> list[int]:
    return [int(name[2:]) for name, value in values.items() if name[:2] == "x_" and value > 0.5]


class _Cbc:
    """One run of CBC: PuLP writes the model and reads the solution, the process and its log are
    ours.

    PuLP would wait for the process without a way to end it, and drop the bound.
    """

    def __init__(self, solver: Any, program: Any, folder: Path) -> None:
        self.solver, self.program = solver, program
        self.model, self.log = folder / "model.mps", folder / "log"
        self.solution = folder / "solution"
        self.killed = False
        self.names = program.writeMPS(str(self.model), rename=1)

    def run(self, seconds: float, limits: Limits) -> None:
        """Run until CBC ends; when interrupted, ask it to stop, then raise.

        Raises
        ------
        SolverError: CBC fails.
        """
        command = [self.solver.path, str(self.model)]
        command += ["-sec", f"{seconds:.3f}", "-timeMode", "elapsed", "-ratio", str(limits.gap)]
        seed = str(limits.seed % 2**31)
        # No -threads: with two, the CBC in PuLP 3.3 hangs once in some hundred runs near the limit.
        command += ["-randomSeed", seed, "-randomCbcSeed", seed]
        command += ["-solve", "-printingOptions", "all", "-solution", str(self.solution)]
        end = Deadline(seconds + GRACE)
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the planner, which then asks CBC to stop
            )
            watched = Watched(process.pid)
            try:
                while process.poll() is None and end.goon():
                    if watched.frozen:
                        process.kill()
                        raise SolverError(f"pulp: CBC: {Watched.why}")
                    try:
                        process.wait(0.1)
                    except subprocess.TimeoutExpired:
                        continue
            finally:
                if process.poll() is None:
                    self._stop(process)
        if process.returncode != 0 and not self.killed:
            raise SolverError(f"pulp: CBC: {ended(process.returncode)}")

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGINT)  # CBC then writes its best solution and its bound
        try:
            process.wait(LAST_WORDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.killed = True

    def chosen(self) -> list[int]:
        """Return the arcs of the best solution, empty without one."""
        import pulp

        if not self.solution.exists():
            return []
        variables, names, rows, _ = self.names
        answer = self.solver.readsol_MPS(str(self.solution), self.program, variables, names, rows)
        status, values = answer[0], answer[1]
        return _chosen(values) if status == pulp.LpStatusOptimal else []

    def bound(self) -> tuple[float, bool]:
        """Return the best bound in the log (model units, 0.0 for none, inf when there is no
        solution) and whether CBC calls it a proof."""
        return read_cbc_log(self.log.read_text(errors="replace"))


def read_cbc_log(log: str) -> tuple[float, bool]:
    """Return the lower bound in a CBC log (0.0 when it has none), and whether CBC proved
    optimality.

    The bound is inf when CBC proved that there is no solution.
    Only the relaxation and the final report count: "best possible" in the lines between may be that
    of one of CBC's heuristics on a part of the problem.
    """
    if re.search(r"^(Problem is infeasible|Result - Problem proven infeasible)\b", log, re.M):
        return math.inf, True
    bounds = [0.0]
    number = r"([-+]?\d[\d.]*(?:e[-+]?\d+)?)\b"
    relaxation = re.search(rf"^Continuous objective value is {number}", log, re.M)
    if relaxation:
        bounds.append(printed_floor(relaxation[1]))
    report = log[log.rfind("\nResult - ") :] if "\nResult - " in log else ""
    proved = report.startswith("\nResult - Optimal solution found\n")
    name = "Objective value" if proved else "Lower bound"
    final = re.search(rf"^{name}:\s+{number}", report, re.M)
    if final:
        bounds.append(printed_floor(final[1]))
    return max(bounds), proved
