"""A predicted number, and how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ilp_planner.profiles.table import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One number.

    value: seconds or bytes. provenance: `measured` where the table has the row itself. error: mean
    absolute relative error of predictions of this kind, by cross-validation on the same table; None
    where the table has too few rows to tell, 0 where measured. basis: how it was made, in words.
    """

    value: float
    provenance: Provenance
    error: float | None
    basis: str
