"""Small sweeps, and places that solve their points at once, or lose them."""

from collections.abc import Callable

from ilp_planner.faces.sweeps.axes import axis_of
from ilp_planner.faces.sweeps.executors.registry import Done
from ilp_planner.faces.sweeps.journal import Row
from ilp_planner.faces.sweeps.points import Sweep
from ilp_planner.faces.sweeps.work import Chunk, Outcome, Solved, Task
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.optimize.solvers.base import Limits

LIMITS = Limits(seconds=30.0, workers=1, prefer_plain=0.02)


def sweep_of(model: str = "llama3-8b", **vary: object) -> Sweep:
    """Return a sweep of a model over some fields."""
    base = Request(files={"model": Reference(name=model)})
    axes = tuple(axis_of(name, values) for name, values in vary.items())
    return Sweep(base=base, axes=axes, limits=LIMITS)


def found(task: Task) -> Outcome:
    """Return a row without solving anything: its seconds tell the point."""
    name = task.request.files["cluster"].name.partition("x")[0]
    count = int(name) if name.isdecimal() else 8
    seconds = 1.0 + task.number
    return Outcome(
        {
            "gpus": count,
            "gpu": "H100-80GB",
            "billed": [["H100-80GB", 8, None, None]],
            "status": "optimal",
            "step_s": seconds,
            "bound_s": seconds,
            "gap": 0.0,
            "tokens_per_s": 8.0 / seconds,
            "tokens_per_s_per_gpu": 1.0 / seconds,
            "mfu": 0.5,
            "peak_memory_bytes": 2.0**36,
            **dict.fromkeys(("tp", "cp", "ep", "dp", "virtual_stages"), 1),
            "pp": 2,
        }
    )


class AtOnce:
    """An executor that answers as soon as it is asked.

    solve: what answers. lose: tells whether a worker is lost with a point, which it is asked before
    each try. seconds: that each point is said to take. most: points of a chunk that are answered.
    """

    def __init__(
        self,
        solve: Callable[[Task], Outcome] = found,
        lose: Callable[[int], bool] = lambda number: False,
        slots: int = 3,
        seconds: float = 1.0,
        most: int = 10**9,
    ) -> None:
        self.solve, self.lose, self.slots = solve, lose, slots
        self.seconds, self.most = seconds, most
        self.given: list[Task] = []
        self.sizes: list[int] = []
        self.open: list[Chunk] = []
        self.cancelled = False

    def submit(self, chunk: Chunk) -> None:
        assert len(self.open) < self.slots
        self.given += chunk.tasks
        self.sizes.append(len(chunk.tasks))
        self.open.append(chunk)

    def collect(self, seconds: float) -> list[Done]:
        chunk = self.open.pop()  # not in the order in which they were given
        if sum(self.lose(task.number) for task in chunk.tasks):
            return [Done(chunk.number, None, "its process was killed by signal 9")]
        outcomes = tuple(self.solve(task) for task in chunk.tasks[: self.most])
        return [Done(chunk.number, Solved(outcomes, self.seconds * len(outcomes)))]

    def cancel(self) -> None:
        self.cancelled = True


def rows_by_values(rows: list[Row]) -> dict[tuple[str, ...], Row]:
    """Return rows by the values of their points."""
    return {tuple(row["values"].values()): row for row in rows}
