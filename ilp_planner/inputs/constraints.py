"""Constraints on plans and their devices: `tp` 4, `pp` from 2 to 8, without node 3.

Degrees are numbers, lists of them or ranges (`4`, `2,4`, `2..8`), the others names, sizes or a
layout of the pipeline. Missing ones allow everything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ilp_planner.errors import UsageError
from ilp_planner.inputs.asked_layout import AskedLayout, asked_layout
from ilp_planner.inputs.kept import KeptStage, kept_stages
from ilp_planner.limits import as_whole, beyond
from ilp_planner.schedule import DIVIDED, PIPELINES
from ilp_planner.specs.pipeline_layout import REMAINDERS
from ilp_planner.specs.training import (
    CP_COMMUNICATIONS,
    OFFLOADED,
    OPERATORS,
    ORDERS,
    PARTS,
    RECOMPUTATIONS,
    SHARDINGS,
    Recompute,
)
from ilp_planner.units import SIZE_UNITS, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ilp_planner.specs.pipeline_layout import PipelineLayout

SWITCH = ("off", "on")
BOTH = "both"  # the two values of what has just two
DEGREES = (
    "tp", "pp", "cp", "ep", "dp", "micro_batch_size", "virtual_stages", "micro_batch_group_size",
)  # fmt: skip
CHOICES = {
    "remainder": REMAINDERS,
    "rank_order": ORDERS,
    "schedule": PIPELINES,
    "recompute": (*RECOMPUTATIONS, *PARTS),
    "sharding": SHARDINGS,
    "sharding_copies": ("1", "2"),
    "cp_comm": CP_COMMUNICATIONS,
    "overlap": ("data", "none"),
    "fused_loss": ("native", "none"),
    "gradients": ("fp32", "bf16"),
    "moments": ("fp32", "bf16", "fp8"),
    "tensor_overlap": SWITCH,
    "expert_overlap": SWITCH,
    "cuda_graphs": ("none", "attn", "router", "layer", "full_iteration"),
    "optimizer_offload": ("0", "0.25", "0.5", "0.75", "1"),
    "activation_offload": ("none", "core_attn", "qkv_linear+mlp_norm", "1"),
    "dispatcher": ("alltoall", "allgather", "flex"),
    "fused_permute": SWITCH,
    "compile": SWITCH,
}
# Values that plans of one space alone have; all others those of `megatron` may have.
ELSEWHERE = {
    ("recompute", OPERATORS): "torchtitan",
    ("compile", "on"): "torchtitan",
    **{("schedule", name): "torchtitan" for name in DIVIDED},
}
ALIASES = {"uniform": "full"}
LAYOUT = "layout"
OF_PLANS = (*DEGREES, LAYOUT, *CHOICES)
OF_DEVICES = ("max_devices", "without", "headroom")
KEEP = "keep"
AS_SAID = (LAYOUT, KEEP)  # whose commas do not part what may be instead
NAMES = (*OF_PLANS, KEEP, *OF_DEVICES)
SHARE = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,4})?")
ITEM = re.compile(r"([1-9][0-9]*)(?:\.\.([1-9][0-9]*))?")


@dataclass(frozen=True, slots=True)
class Numbers:
    """The whole numbers in some ranges: the least and the most of each, both included."""

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(a <= number <= b for a, b in self.ranges)

    def __str__(self) -> str:
        return ",".join(f"{a}" if a == b else f"{a}..{b}" for a, b in self.ranges)

    @property
    def most(self) -> int:
        """The largest one."""
        return max(b for _, b in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """A user's constraints on plans (`OF_PLANS`) and on their devices (`OF_DEVICES`).

    micro_batch_size: samples of a replica. micro_batch_group_size: micro-batches that pass one
    virtual stage before the next one's turn. layout: of the pipeline. remainder: some of
    `REMAINDERS`. rank_order: some of `ORDERS`. schedule: some of `PIPELINES`. recompute: some of
    `RECOMPUTATIONS` and of `PARTS`. sharding: some of `SHARDINGS`. sharding_copies: of sharded
    states, any numbers. cp_comm: some of `CP_COMMUNICATIONS`. overlap: whether messages of data
    parallelism travel while passes compute.
    fused_loss: source of the kernel. gradients, moments: types that they may be of.
    tensor_overlap, expert_overlap: whether messages of tensor and of expert parallelism travel
    while products run. cuda_graphs: parts of a job in them. optimizer_offload: shares of the states
    that may be on the host, any from 0 to 1. activation_offload: `none`, some of `OFFLOADED` joined
    by +, or a number of layers. dispatcher: of tokens to experts. fused_permute: tokens are put in
    the order of experts by one kernel. compile: layers are compiled by torch.compile. keep: stages
    that plans have. max_devices: at most, whole nodes of a cluster of equal ones. without: nodes
    that stay idle, by number or by the name of their group. headroom: bytes of every device that
    stay free.
    """

    tp: Numbers | None = None
    pp: Numbers | None = None
    cp: Numbers | None = None
    ep: Numbers | None = None
    dp: Numbers | None = None
    micro_batch_size: Numbers | None = None
    virtual_stages: Numbers | None = None
    micro_batch_group_size: Numbers | None = None
    layout: AskedLayout | None = None
    remainder: tuple[str, ...] = ()
    rank_order: tuple[str, ...] = ()
    schedule: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()
    sharding: tuple[str, ...] = ()
    sharding_copies: tuple[str, ...] = ()
    cp_comm: tuple[str, ...] = ()
    overlap: tuple[str, ...] = ()
    fused_loss: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    moments: tuple[str, ...] = ()
    keep: tuple[KeptStage, ...] = ()
    tensor_overlap: tuple[str, ...] = ()
    expert_overlap: tuple[str, ...] = ()
    cuda_graphs: tuple[str, ...] = ()
    optimizer_offload: tuple[str, ...] = ()
    activation_offload: tuple[str, ...] = ()
    dispatcher: tuple[str, ...] = ()
    fused_permute: tuple[str, ...] = ()
    compile: tuple[str, ...] = ()
    max_devices: int | None = None
    without: tuple[str, ...] = ()
    headroom: int | None = None

    @property
    def texts(self) -> dict[str, str]:
        """The given texts, by name, as `constraints_of` reads them."""
        said = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: _text(name, value) for name, value in said if value}

    def allows(self, name: str, value: int | str | PipelineLayout) -> bool:
        """Tell whether a plan may have a value of one of `OF_PLANS`."""
        allowed = getattr(self, name)
        return not allowed or value in allowed

    @property
    def one_layout(self) -> AskedLayout | None:
        """The layout that all plans have; None: several may be."""
        return None if self.layout is None or self.layout.free else self.layout

    @property
    def modules(self) -> tuple[str, ...]:
        """The parts of layers that may be computed again, if some are named."""
        return tuple(name for name in self.recompute if name in PARTS)

    def recomputes(self, recompute: Recompute) -> bool:
        """Tell whether a plan may have a recomputation."""
        asked = self.recompute
        if not asked or recompute.kind in asked:
            return True
        return recompute.kind == "selective" and set(recompute.modules) <= set(asked)

    def broken(self, found: Mapping[str, int | str | PipelineLayout]) -> Iterator[str]:
        """Yield the broken constraints of a plan. found: its values by name."""
        for name, value in found.items():
            if not self.allows(name, value):
                asked = _text(name, getattr(self, name))
                yield f"{name}: found {value}, only {asked} asked for"

    def but(self, names: Iterable[str]) -> Constraints:
        """Return the rest without some names."""
        blank = Constraints()
        return replace(self, **{name: getattr(blank, name) for name in names})

    def describe(self) -> str:
        """Return the constraints in words, as in `tp 4, pp 2..8`; empty: nothing."""
        return ", ".join(
            f"{name.replace('_', ' ')} {text if name in AS_SAID else text.replace(',', ' or ')}"
            for name, text in self.texts.items()
            if name not in OF_DEVICES
        )


ANY = Constraints()


def constraints_of(said: Mapping[str, object]) -> Constraints:
    """Return the constraints that numbers, texts and lists say; None says nothing.

    Raises
    ------
    UsageError: one line with the name, the found and the expected value.
    """
    found: dict[str, Any] = {}
    for name, value in said.items():
        if value is not None and value not in ((), []):
            found[name] = _READ[name](name, value)
    return Constraints(**found)


def space_with(name: str, text: str) -> str:
    """Return the space with plans that a named constraint can ask for."""
    return next((ELSEWHERE[name, v] for v in text.split(",") if (name, v) in ELSEWHERE), "megatron")


def names_of(recompute: Recompute) -> tuple[str, ...]:
    """Return the names that allow a recomputation."""
    return recompute.modules if recompute.kind == "selective" else (recompute.kind,)


def _text(name: str, value: Any) -> str:
    if name == "headroom":
        exact = (f"{value // n} {unit}" for unit, n in SIZE_UNITS.items() if value % n == 0)
        return min(exact, key=len)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _items(name: str, value: object, expected: str) -> list[str]:
    """Return the entries of a list, or of a text with commas."""
    values = [value] if isinstance(value, str | int) else value
    if not isinstance(values, list | tuple | range):
        raise _error(name, value, expected)
    for each in values:
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise _error(name, each, expected)
    return [text.strip() for each in values for text in str(each).split(",")]


def _numbers(name: str, value: object) -> Numbers:
    expected = "a whole number of at least 1, a list as 2,4 or a range as 2..8"
    if isinstance(value, range) and value.step == 1 and len(value) > 1:
        value = f"{value.start}..{value.stop - 1}"
    ranges = []
    for text in _items(name, value, expected):
        match = ITEM.fullmatch(text)
        if match is None:
            raise _error(name, text, expected)
        least, most = as_whole(match[1]), as_whole(match[2] or match[1])
        _check_limit(name, text, max(least, most))
        if least > most:
            raise _error(name, text, f"the smaller number first: {most}..{least}")
        ranges.append((least, most))
    return Numbers(tuple(dict.fromkeys(ranges)))


def _choices(name: str, value: object) -> tuple[str, ...]:
    known = CHOICES[name]
    two = len(known) == len(SWITCH)
    expected = f"some of {', '.join(known)}" + f", or {BOTH}" * two
    found = [ALIASES.get(text, text) for text in _items(name, value, expected)]
    if two and BOTH in found:
        return known
    for text in found:
        if text not in known:
            raise _error(name, text, expected)
    return tuple(name for name in known if name in found)


def _shares(name: str, value: object) -> tuple[str, ...]:
    expected = "shares from 0 to 1, as 0,0.5"
    values = [str(value)] if isinstance(value, float) else value
    if isinstance(values, list | tuple):
        values = [str(each) if isinstance(each, float) else each for each in values]
    found = set()
    for text in _items(name, values, expected):
        if not SHARE.fullmatch(text) or float(text) > 1:
            raise _error(name, text, expected)
        found.add(float(text))
    return tuple(f"{share:g}" for share in sorted(found))


def _counts(name: str, value: object) -> tuple[str, ...]:
    expected = "whole numbers of at least 1, as 1,2,4"
    found = {*_items(name, value, expected)}
    for text in found:
        if not re.fullmatch(r"[1-9][0-9]*", text):
            raise _error(name, text, expected)
        _check_limit(name, text, as_whole(text))
    return tuple(sorted(found, key=int))


def _offloads(name: str, value: object) -> tuple[str, ...]:
    expected = f"none, a number of layers, or some of {', '.join(OFFLOADED)} joined by +"
    found = {}
    for text in _items(name, value, expected):
        parts = text.split("+")
        if text != "none" and not re.fullmatch(r"[1-9][0-9]{0,5}", text):
            if not {*parts} <= {*OFFLOADED}:
                raise _error(name, text, expected)
            text = "+".join(part for part in OFFLOADED if part in parts)
        found[text] = text
    return tuple(sorted(found, key=lambda text: (text != "none", text)))


def _number(name: str, value: object) -> int:
    expected = "a whole number of at least 1"
    texts = _items(name, value, expected)
    if len(texts) != 1 or not re.fullmatch(r"[1-9][0-9]*", texts[0]):
        raise _error(name, value, expected)
    _check_limit(name, texts[0], as_whole(texts[0]))
    return int(texts[0])


def _nodes(name: str, value: object) -> tuple[str, ...]:
    expected = "nodes by number, as 3 or node3, or by the name of their group"
    found = _items(name, value, expected)
    if not all(found):
        raise _error(name, value, expected)
    return tuple(dict.fromkeys(found))


def _size(name: str, value: object) -> int:
    size = value
    if isinstance(value, str):
        try:
            size = parse_size(value, what=name)
        except ValueError as error:
            raise UsageError(str(error).replace(f"{name} ", f"{name}: ", 1)) from None
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise _error(name, value, "bytes, or a size with its unit: 2 GiB")
    _check_limit(name, value, size)
    return size


def _check_limit(name: str, said: object, number: int) -> None:
    """Refuse a number beyond its limit."""
    if expected := beyond(name, number):
        raise _error(name, said, expected)


def _error(name: str, found: object, expected: str) -> UsageError:
    return UsageError(f"{name}: found {found!r:.60}, expected {expected}")


_READ = {
    **dict.fromkeys(DEGREES, _numbers),
    LAYOUT: lambda name, value: asked_layout(value),
    **dict.fromkeys(CHOICES, _choices),
    KEEP: lambda name, value: kept_stages(value),
    "optimizer_offload": _shares,
    "sharding_copies": _counts,
    "activation_offload": _offloads,
    "max_devices": _number,
    "without": _nodes,
    "headroom": _size,
}
