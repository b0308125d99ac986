"""The terms of a layer's time and memory in a scaling law, and their values at a point.

A point is (tp, micro_batch, sequence, hidden); a dimension that a table does not have is 1. With
n = micro_batch x sequence tokens, a transformer layer multiplies matrices (2 n h^2 FLOP each, up to
a factor), attends (n s h), passes n h numbers through element-wise kernels and reads weights (h^2):
Narayanan et al. 2021, arXiv 2104.04473, appendix. Of each of them there is a part that tensor
parallelism divides and one that it does not. Every term grows with samples and sequence or stays.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.base.numerics import Floats

DIMENSIONS = ("tp", "micro_batch", "sequence", "hidden")
TP, MICRO_BATCH, SEQUENCE, HIDDEN = range(4)
ALIKE = 1e-9  # of 1 - cosine: two terms that the rows cannot tell apart


class Quantity(StrEnum):
    """The kind of number of a column.

    time: of passes over a micro-batch. step: seconds, once per iteration. held: bytes for any
    micro-batch. whole: likewise, of all tensor-parallel devices together. kept: bytes of a
    micro-batch. both: bytes, held and kept together. work: FLOP and traffic. count: a number of
    something, without scaling.
    """

    TIME = "time"
    STEP = "step"
    HELD = "held"
    WHOLE = "whole"
    KEPT = "kept"
    BOTH = "both"
    WORK = "work"
    COUNT = "count"


QUANTITIES = {
    "time_s": Quantity.TIME,
    "forward_s": Quantity.TIME,
    "backward_s": Quantity.TIME,
    "optimizer_s": Quantity.STEP,
    "parameters": Quantity.WHOLE,
    "weight_bytes": Quantity.HELD,
    "gradient_bytes": Quantity.HELD,
    "state_bytes": Quantity.HELD,
    "activation_bytes": Quantity.KEPT,
    "forward_workspace_bytes": Quantity.KEPT,
    "backward_workspace_bytes": Quantity.KEPT,
    "memory_bytes": Quantity.BOTH,
    "input_bytes": Quantity.KEPT,
    "output_bytes": Quantity.KEPT,
    "message_bytes": Quantity.KEPT,
    "messages": Quantity.COUNT,
    "flop": Quantity.WORK,
    "traffic_bytes": Quantity.WORK,
}
"""The columns that can be predicted."""

# Of two terms that the rows cannot tell apart the first one counts, so the order is what is assumed
# where a dimension was never varied: time and weights then grow with the square of the width, all
# else in proportion to tokens and width, and tensor parallelism divides.
TERMS: dict[Quantity, tuple[str, ...]] = {
    Quantity.TIME: (
        "nhh/tp", "1", "nh", "nh/tp", "hh/tp", "1/tp", "par", "par nh", "hh", "nsh/tp", "ns/tp",
    ),
    Quantity.STEP: ("hh/tp", "1", "h/tp", "hh", "h"),
    Quantity.HELD: ("hh/tp", "1", "hh", "h/tp", "h", "1/tp"),
    Quantity.WHOLE: ("hh", "h", "1"),
    Quantity.KEPT: (
        "nh/tp", "nh", "1", "ns/tp", "nsh/tp", "n/tp", "n", "par nh", "1/tp", "hh/tp", "par",
    ),
    Quantity.BOTH: ("hh/tp", "nh/tp", "hh", "nh", "ns/tp", "nsh/tp", "h/tp", "h", "1"),
    Quantity.WORK: (
        "nhh/tp", "nh/tp", "nh", "nsh/tp", "ns/tp", "hh/tp", "hh", "h/tp", "h", "n/tp", "1", "1/tp",
    ),
    Quantity.COUNT: ("1",),
}  # fmt: skip
TIMES = frozenset({Quantity.TIME, Quantity.STEP})


def terms(points: Floats, quantity: Quantity) -> Floats:
    """Return every term at every point, float64 [n, terms].
    points: float64 [n, 4], in the order of DIMENSIONS."""
    tp, samples, sequence, hidden = points.T
    tokens = samples * sequence
    parallel = (tp > 1).astype(np.float64)
    one = np.ones_like(tp)
    known = {
        "1": one,
        "1/tp": 1 / tp,
        "par": parallel,
        "n": tokens,
        "n/tp": tokens / tp,
        "h": hidden,
        "h/tp": hidden / tp,
        "hh": hidden**2,
        "hh/tp": hidden**2 / tp,
        "nh": tokens * hidden,
        "nh/tp": tokens * hidden / tp,
        "par nh": parallel * tokens * hidden,
        "nhh/tp": tokens * hidden**2 / tp,
        "ns/tp": tokens * sequence / tp,
        "nsh/tp": tokens * sequence * hidden / tp,
    }
    return np.stack([known[name] for name in TERMS[quantity]], axis=1)


def distinct_terms(design: Floats) -> NDArray[np.intp]:
    """Return the columns to keep: the first of columns that are proportional on all rows.
    design: float64 [n, terms], at least 0."""
    norms = np.sqrt((design**2).sum(axis=0))
    scaled = design / np.where(norms > 0, norms, 1.0)
    cosines = scaled.T @ scaled
    kept: list[int] = []
    for column in range(design.shape[1]):
        if norms[column] > 0 and not any(cosines[column, k] > 1 - ALIKE for k in kept):
            kept.append(column)
    return np.array(kept, dtype=np.intp)
