"""The verbs `size` and `supports` of a model."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import UsageError, described
from ilp_planner.base.limits import LEAST_DAYS
from ilp_planner.faces.api.words import RENAMED, Printed, brief_text, python_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Unpack

    from ilp_planner.analysis.size.failures import Failures
    from ilp_planner.analysis.size.gpus import OnGpu, Wish
    from ilp_planner.analysis.supports import Support
    from ilp_planner.inputs.keywords import Inputs
    from ilp_planner.specs.model import ModelSpec

NAMES = (str, os.PathLike)


def without_command(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return lines without the next command of the command line."""
    return [(head, text) for head, text in lines if head != "next"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Size(Printed):
    """The clusters on which a run ends in time. found: one entry per kind of GPU, as asked."""

    model: str
    wish: Wish
    found: tuple[OnGpu, ...]
    gap: float

    def __repr__(self) -> str:
        ended = [one.gpu for one in self.found if one.found and one.found.smallest]
        return f"<Size {self.model}, in time on {', '.join(ended) or 'none'}>"

    def __str__(self) -> str:
        from ilp_planner.faces.report.size import size_lines, size_table

        table = size_table(self.wish, self.found, self.gap)
        lines = size_lines(self.model, self.wish, self.found, self.gap)
        return brief_text(without_command(lines), [table] if table.rows else [])

    @property
    def summary(self) -> dict[str, Any]:
        """The output of `ilp-plan size --json`."""
        from ilp_planner.faces.report.size import size_object

        return size_object(self.model, self.wish, self.found)


def size(
    model: str | os.PathLike[str] | ModelSpec,
    *,
    tokens: str | float,
    days: float,
    gpus: str | Sequence[str],
    max_gpus: int | None = None,
    mtbf: float | None = None,
    restart: str | float = "15 min",
    checkpoint: str | float = "60 s",
    checkpoint_every: str | float | None = None,
    repair: str | float = 0.0,
    spares: int | None = None,
    gap: float = 0.01,
    seconds: float = 200.0,
    constraints: str | os.PathLike[str] | Mapping[str, object] | None = None,
    **said: Unpack[Inputs],
) -> Size:
    """Find the smallest and the cheapest clusters on which a training run ends in time, with a
    proof that fewer nodes, or other ones, do not.

    Parameters
    ----------
    model: a name, a path, or a ModelSpec that a file can say.
    tokens: of the run, as `2e12` or `"2T"`. days: that it may take.
    gpus: kinds of GPU, as `"H100,H200"` or a list. max_gpus: of a cluster; None: 16,384.
    mtbf: GPU-hours between two failures that stop the job; inf: none; None: Llama 3's 50,700.
    restart, checkpoint, checkpoint_every, repair: seconds, or a text as `"15 min"`: until it trains
        again, that a checkpoint stops training, between two checkpoints (None: the best), and until
        a failed node is back (0: another one is there at once). spares: idle nodes that take over,
        with repair; None: as many as keep the job from standing still.
    gap: how much less a cluster may cost than the one that is called the cheapest. seconds: of
        search.
    constraints, said: as `problem` takes them, but for those of nodes and of measured profiles;
        price: of a GPU and hour: 2.5, or `"H100=2.5,H200=3.2"`.

    Raises
    ------
    SpecError, UsageError: the run cannot be sized, with the reason. InfeasibleError: no kind of GPU
    can train the model.
    """
    from ilp_planner.analysis.size.gpus import size_on_gpus, wish_of
    from ilp_planner.analysis.size.inputs import NODES
    from ilp_planner.faces.api.problem import request_for
    from ilp_planner.faces.cli.values import number_of_tokens
    from ilp_planner.optimize.solvers.base import Limits

    price = said.pop("price", None)
    of_nodes = {RENAMED.get(name, name) for name in NODES}
    if other := next((name for name in said if name in of_nodes), ""):
        raise UsageError(f"size: found {other!r}, which sizing says; expected none")
    if (
        isinstance(days, bool)
        or not isinstance(days, int | float)
        or not LEAST_DAYS <= days < math.inf
    ):
        raise UsageError(
            f"days: found {described(days)}, expected a number, {LEAST_DAYS:.2g} or more"
        )
    with python_words():
        found_tokens = number_of_tokens(tokens)
        assert found_tokens is not None
        request, objects = request_for("size", {"model": model}, said, constraints)
        if objects:
            raise UsageError("model: found one that no file can say, expected a name or a path")
        wish = wish_of(
            found_tokens,
            days,
            gpus,
            price=None if price is None else str(price),
            failures=_failures(mtbf, restart, checkpoint, checkpoint_every, repair, spares),
            most=max_gpus,
        )
        found = size_on_gpus(request, wish, Limits(seconds=seconds, gap=gap))
    return Size(model=request.files["model"].name, wish=wish, found=tuple(found), gap=gap)


def _failures(
    mtbf: float | None,
    restart: str | float,
    checkpoint: str | float,
    every: str | float | None,
    repair: str | float,
    spares: int | None,
) -> Failures:
    """Return the failures that a run must expect.

    Raises
    ------
    UsageError: a value is not possible, or spares are said without a time of repair.
    """
    from ilp_planner.analysis.size.failures import MTBF, Failures

    if mtbf is not None and (isinstance(mtbf, bool) or not mtbf > 0):
        raise UsageError(f"mtbf: found {mtbf!r}, expected GPU-hours above 0")
    found = Failures(
        mtbf=MTBF if mtbf is None else mtbf,
        restart=_seconds("restart", restart),
        save=_seconds("checkpoint", checkpoint),
        every=None if every is None else _seconds("checkpoint_every", every),
        repair=_seconds("repair", repair) if repair else 0.0,
        spares=spares,
    )
    if spares is not None and not found.repair:
        raise UsageError(f"spares: found {spares} without repair, expected the time of a repair")
    return found


def _seconds(name: str, said: str | float) -> float:
    from ilp_planner.faces.cli.values import option_seconds

    return option_seconds(name, said if isinstance(said, str) else f"{said} s")


@dataclass(frozen=True, kw_only=True, repr=False)
class Supports(Printed):
    """The support of a model by training systems, exports and the tables of GPUs."""

    found: Support

    def __repr__(self) -> str:
        planned = [row.runtime for row in self.found.planned if not row.refused]
        return f"<Supports {self.found.model.name}, planned for {', '.join(planned) or 'none'}>"

    def __str__(self) -> str:
        from ilp_planner.faces.report.supports import supports_lines, supports_tables

        lines = without_command(supports_lines(self.found))
        return brief_text(lines, supports_tables(self.found))

    @property
    def summary(self) -> dict[str, Any]:
        """The output of `ilp-plan supports --json`."""
        from ilp_planner.faces.report.supports import supports_object

        return supports_object(self.found)


def supports(
    model: str | os.PathLike[str] | ModelSpec,
    *,
    gpus: str | Sequence[str] = (),
    devices: int = 8,
    text_only: bool = False,
) -> Supports:
    """Return the training systems that plan a model, the exports that write it, the expected errors
    of predicted times, and the reason of each refusal.

    Parameters
    ----------
    model: a name, a path, or a ModelSpec.
    gpus: kinds of GPU whose expected error is told, as `"H100,B200"` or a list; none: those with
        published runs.
    devices: GPUs of a job.
    text_only: take the text of a model of text and pictures or sounds.

    Raises
    ------
    SpecError: there is no such model or GPU.
    """
    from ilp_planner.analysis.supports import support_of
    from ilp_planner.faces.api.words import positive
    from ilp_planner.inputs.files import find_model

    names = gpus.split(",") if isinstance(gpus, str) else list(gpus)
    with python_words():
        spec = find_model(str(model), text_only=text_only) if isinstance(model, NAMES) else model
        return Supports(found=support_of(spec, names, positive("devices", devices)))
