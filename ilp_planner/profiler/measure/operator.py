"""One operator as a rank runs it by itself: its work, and the message over a cut around it.

Sizes are as Aceso has them: `activation_bytes` stay allocated after an operator's forward pass, its
output included, and the workspaces are memory above that. `input_bytes` and `output_bytes` include
tensors that bypass an operator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.profiler.measure.job import Job

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator on one rank.

    run: its inputs -> its outputs, differentiable ones only. inputs: shapes of the former.
    weights: shapes of the parameters that `run` gets after the inputs. bias: parameters that
    another operator adds. live, left: numbers that cross a cut before and after it. sent: numbers
    of every all-reduce that it needs, and the pass. step: its kind, if its name says its place too;
    operators of one step and equal shapes are equal. logits: numbers in single precision that it
    makes besides.
    """

    run: Callable[..., Any]
    inputs: tuple[Shape, ...]
    weights: tuple[Shape, ...] = ()
    bias: int = 0
    live: float
    left: float
    sent: tuple[tuple[float, str], ...] = ()
    step: str = ""
    logits: float = 0.0


def needed(operator: Operator, job: Job) -> float:
    """Return about how many bytes the operator needs at most: a few tensors like its outputs."""
    width = job.settings.width
    weights = sum(map(math.prod, operator.weights))
    moving = 2 * sum(map(math.prod, operator.inputs)) + 4 * operator.left
    single = 4 * (weights + 3 * operator.logits)
    return width * (moving + 2 * operator.logits + 2 * weights) + single


def known_sizes(operator: Operator, job: Job) -> dict[str, Any]:
    """Return the columns that need no measuring: the message over a cut."""
    width = job.settings.width
    return {"input_bytes": operator.live * width, "output_bytes": operator.left * width}


def sent_bytes(operator: Operator, job: Job) -> tuple[list[float], list[float]]:
    """Return the bytes of every all-reduce of the forward and the backward pass."""
    ways: dict[str, list[float]] = {"forward": [], "backward": []}
    for size, way in operator.sent if job.tp > 1 else ():
        ways[way].append(size * job.settings.width)
    return ways["forward"], ways["backward"]


_KEPT: dict[tuple[Any, ...], Any] = {}  # masks and tokens of the shape that is measured


def once(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return the cached object of a key; of each first word the last one is kept."""
    if key not in _KEPT:
        for old in [k for k in _KEPT if k[0] == key[0]]:
            del _KEPT[old]
        _KEPT[key] = make()
    return _KEPT[key]


def causal(tokens: int, device: Any) -> Any:
    """Return the masked scores, bool [tokens, tokens]."""
    return once(
        ("mask", tokens, str(device)),
        lambda: torch.ones(tokens, tokens, dtype=torch.bool, device=device).triu_(1),
    )


def random_words(shape: Shape, vocab: int, device: Any) -> Any:
    """Return random words, int64 [batch, tokens]."""
    return once(
        ("tokens", shape, vocab, str(device)), lambda: torch.randint(vocab, shape, device=device)
    )
