"""Predictions of figures that a measured table lacks. The profiler makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ilp_planner.base.parts import part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from ilp_planner.base.numerics import Floats
    from ilp_planner.costs.profiles.measurements import Measurements, Record
    from ilp_planner.costs.profiles.table import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """Rows that are asked for; None means all of the table's.

    Without record, layers and operators. sequence, hidden: None means each row's.
    """

    device: str | None = None
    tp: int | None = None
    micro_batch: int | None = None
    sequence: int | None = None
    hidden: int | None = None
    name: str | None = None
    layers: str | None = None
    split: int | None = None
    record: Record | None = None


class Collectives(Protocol):
    """Predicts the time of any collective from a table."""

    def predict(self, name: str, size: float, *, group_size: int, **group: Any) -> Prediction:
        """Return the time of one collective. size: bytes of the whole tensor."""

    def seconds(self, name: str, sizes: ArrayLike, *, group_size: int, **group: Any) -> Floats:
        """Return seconds, float64, of collectives of several sizes."""


def collectives(table: Measurements) -> Collectives:
    """Return a predictor of collectives.

    Raises
    ------
    ProfileError: the table has none.
    """
    predictor: Collectives = part("profiler.predict.collectives:CollectivePredictor")(table)
    return predictor


def complete(table: Measurements, wants: Sequence[Want]) -> Measurements:
    """Return the table with predictions of the wanted rows that it lacks.

    Raises
    ------
    ProfileError: nothing can be predicted.
    """
    found: Measurements = part("profiler.predict.answers:complete")(table, wants)
    return found
