"""Published rows, each with what was predicted of it by constants that did not see it."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results" / "accuracy.json"


class Point(NamedTuple):
    """A row. suite: that predicted it. kind: class. unit: of measured and predicted, s or GiB.
    source: of the measurement, with its licence."""

    suite: str
    kind: str
    name: str
    unit: str
    measured: float
    predicted: float
    source: str

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1


def known() -> list[Point]:
    """Return the points that were written down last."""
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return [Point(*row) for row in rows]


def keep(suite: str, points: Iterable[Point]) -> None:
    """Write down the points of a suite in place of its last ones, a line each."""
    found = [point for point in known() if point.suite != suite]
    found += [
        point._replace(measured=_short(point.measured), predicted=_short(point.predicted))
        for point in points
    ]
    found.sort(key=lambda point: (point.suite, point.kind, point.name))
    lines = ",\n".join(json.dumps(point, ensure_ascii=False) for point in found)
    RESULTS.write_text(f"[\n{lines}\n]\n")


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def by_class(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return the points of each class, in the order of their names."""
    found: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda one: one.kind):
        found.setdefault(point.kind, []).append(point)
    return found
