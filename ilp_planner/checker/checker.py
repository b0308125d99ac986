#!/usr/bin/env python3
"""Check a saved plan and its proof, sharing nothing with the planner.

    python checker.py plan.json

Standard library only; fractions where a plan is judged, whole numbers where a bound is proved
(times in picoseconds, sizes in bytes). Written from docs/reference/costs.md, which has the cost
formulas, and docs/reference/certificate.md, which has the format and the argument. Nothing of the
file is believed but the rows of its profile and the set of plans that it names; prices steer, any
of them give a true bound, and poor ones a weak bound.

Every rounding makes a bound smaller: times of rows and sizes are rounded down, the limit of memory
up, a price is whole, and the quotient of a priced sum is rounded down.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls

import hashlib
import heapq
import json
import operator
import sys
import time
import tomllib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, cached_property, partial
from importlib.util import module_from_spec, spec_from_file_location
from itertools import accumulate, combinations, pairwise, permutations, product
from math import gcd, isqrt, lcm
from pathlib import Path
from typing import Any, NamedTuple

SCHEMA, OF_FILE = "ilp-planner plan", 8  # of the whole file and its version
VERSION, OF_JOBS = 1, 2  # of the format: of plans of operators, of training jobs
OF_LAYERS = 2  # of plans of whole layers
MIB = 1 << 20
PS = 10**12  # picoseconds of a second
GRAIN = 10**24  # parts of a second, in which rows are that no straight line gives
Q = 1 << 12  # a priced sum is in 1 / Q picoseconds; a price is in 1 / Q picoseconds per byte
NEVER = 1 << 90  # stands for no way
LARGEST_FILE = 64 << 20
SLACK = Fraction(1, 10**9)  # relative: a memory limit and a saved time are met up to this
LADDER = (0, *sorted({int(2 ** (rung / 32)) for rung in range(32 * 50)}))  # prices of stages
COARSE, FINE = 16, 4  # rungs that a search for the best price begins with
AROUND = (0, -5, 5, -16, 16)  # rungs from the best price, at which labels are bounded
AT_ONCE = 32  # operators that priced sums are continued by
MOST_AHEAD = 300  # tables that are kept of what is ahead of labels
MOST_PRICES = 33
SAVED = Fraction(1, 10**6)  # relative: saved figures are true to this
WEAKER = Fraction(1, 100)  # a proof that is farther below the claim is a fault
LABELS = 520_000  # of all stages
EFFORTS = (0, 1_000, 10_000, 60_000, 200_000, LABELS)  # of one stage, one try after another
INNER = 2  # stands for the ends of a stage, where only what is between them is bounded
MOST_PAIRS = 12_000_000  # places of stages between windows, at most
ROUNDS = 1_000  # paths whose stages are solved, at most
COSTS = ("aceso", "native")
COLUMNS = 8  # of a row: forward, backward, input, output, weights, activations, two reserved
LONGEST_COLLECTIVE = 100  # seconds
MOST_SECONDS, MOST_BYTES = 10**9, 1 << 60  # of one row: far below NEVER, whatever is added up
MOST_DEVICES = 1 << 16
MOST_LAYERS, MOST_GROUPS, MOST_TYPES, MOST_RANKS = 1 << 12, 5_000, 5, 1 << 9
UNLIMITED = 1 << 40  # micro-batches
LEVELS = 12  # stages after one that bounds tell apart
FEW = 5_000  # stages of a box that labels look into before it is narrow
LOOKS = 30_000  # labels of a box with one of its prices, at most
STAGES = 500_000  # that are looked at in the boxes of a case, with labels
SPLITS = 200  # a box is narrow if its figures are closer than this part of the target
OPTIMIZER_BANDWIDTH = 700 * 10**9  # bytes per second


Table = dict[Any, Any]


class RefusedError(Exception):
    """A file that proves nothing, in one line."""


# ---- reading -------------------------------------------------------------------------------------


def _number(text):
    """Read a decimal number exactly; an exponent beyond any float is refused."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > 60 or len(exponent) > 5 or abs(int(exponent or 0)) > 400:
        raise ValueError(f"found {text[:40]}, expected a number that a float can hold")
    return Fraction(text)


def _no_number(text):
    raise ValueError(f"found {text}, expected a number")


def _once(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def loads(text: str) -> Any:
    """Return what a JSON text says, with exact numbers."""
    return json.loads(text, parse_float=_number, parse_constant=_no_number, object_pairs_hook=_once)


def read(path: str) -> Any:
    """Read a file as JSON with exact numbers.

    Raises RefusedError.
    """
    try:
        file = Path(path)
        if not file.is_file():
            raise RefusedError("found no file, expected a plan of `ilp-plan solve --output`")
        size = file.stat().st_size
        if size > LARGEST_FILE:
            raise RefusedError(f"found {size} bytes, expected at most {LARGEST_FILE}; not read")
        text = file.read_bytes()[:LARGEST_FILE].decode()
        return loads(text)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise RefusedError(f"cannot be read as JSON: {reason}") from None


def get(record, key, kind, least=None, most=None):
    """Return a value of an object, of one kind: int, Fraction (any number), str, bool, list, dict.

    Raises RefusedError: it is missing, of another kind, or out of range.
    """
    if not isinstance(record, dict) or key not in record:
        raise RefusedError(f"{key}: missing")
    return typed(record[key], key, kind, least, most)


def typed(value, key, kind, least=None, most=None):
    """Return the value itself if it is of the kind and in the range."""
    accepted = (int, Fraction) if kind is Fraction else kind
    wrong = not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool)
    if wrong or (least is not None and value < least) or (most is not None and value > most):
        names = {int: "a whole number", Fraction: "a number", str: "a text", bool: "true or false",
                 list: "a list", dict: "an object"}  # fmt: skip
        span = "" if least is None else f" from {least}" + ("" if most is None else f" to {most}")
        raise RefusedError(f"{key}: found {shown(value)}, expected {names[kind]}{span}")
    return value


def shown(value):
    """Return a value of a file as part of one line: short, without line ends."""
    if isinstance(value, list | dict):  # perhaps too deep for `repr`
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    return repr(value[:60]) if isinstance(value, str) else str(value)[:60]


def wholes(record, key, least, most):
    """Return an ascending list of different whole numbers."""
    found = [typed(x, key, int, least, most) for x in get(record, key, list)]
    if not found or sorted(set(found)) != found:
        raise RefusedError(f"{key}: expected different whole numbers, ascending")
    return found


# ---- costs (docs/reference/costs.md) -------------------------------------------------------------


COLUMN_FIRST = ("enc-attention-qkv", "enc-MLP-GEMM-1")
ROW_FIRST = ("enc-attention-dense", "enc-MLP-GEMM-2")
TOKEN = ("enc-1st-layernorm", "enc-2nd-layernorm", "enc-post-attention-dropout",
         "enc-post-MLP-dropout")  # fmt: skip


def layout(name, option, of_input):
    """Return (copies, parts of three dimensions), None: any."""
    tp, dp, split = option
    token, column, head = (tp, (1, dp, 1)), (1, (1, dp, tp)), (1, (dp, tp, 1))
    batch = (tp, (dp, 1, 1))
    if name == "encoder-embedding":
        return None if of_input else token
    if name == "gpt-post-process":
        return batch if of_input else None
    if name == "final-layernorm":
        return token if of_input else batch
    if name in TOKEN:
        return token
    if name in COLUMN_FIRST:
        return token if of_input == (split == 0) else column
    if name in ROW_FIRST:
        return column if of_input == (split == 0) else token
    if name == "enc-attention-score":
        return column if of_input else head
    if name in ("enc-attention-softmax", "enc-attention-dropout"):
        return head
    if name == "enc-attention-context":
        return head if of_input else column
    return column if name == "enc-MLP-gelu" else batch


def change(have, want):
    """Return (collective forward, collective backward, devices); () if none, None if impossible."""
    if have is None or want is None or have == want:
        return ()
    pairs = list(zip(have[1], want[1], strict=True))
    if have[0] > want[0]:
        grows = any(a < b for a, b in pairs)
        return ("split", "all_gather", have[0] // want[0]) if grows else None
    for i, (a, b) in enumerate(pairs):
        if a > b:
            if have[0] < want[0]:
                return ("all_gather", "split", a // b)
            if any(j != i and c < d for j, (c, d) in enumerate(pairs)):
                return ("all_to_all", "all_to_all", a // b)
    return None


class Costs:
    """The cost model over the rows of a certificate: exact fractions of seconds and bytes."""

    def __init__(self, record, plans):
        self.name = get(record, "costs", str)
        if self.name not in COSTS:
            raise RefusedError(
                f"costs: found {self.name[:40]!r}, expected one of {', '.join(COSTS)}"
            )
        self.aceso = self.name == "aceso"
        self.family = get(record, "family", str)
        self.names = [typed(x, "operators", str) for x in get(record, "operators", list)]
        last = len(self.names) - 1
        self.chain = [typed(x, "chain", int, 0, last) for x in get(record, "chain", list)]
        self.samples = wholes(record, "samples", 1, 1 << 20)
        self.degrees = wholes(record, "tensor_degrees", 1, 1 << 16)
        self.splits = wholes(record, "splits", 0, 1 << 10)
        self.per_node = plans["per_node"]
        self.state = 4 if self.family == "resnet" else 8
        if not self.chain or len(self.chain) > 1 << 17:
            raise RefusedError(f"chain: found {len(self.chain)} operators, expected 1 to {1 << 17}")
        self.rows: Table = {}
        for row in get(record, "rows", list):
            if not isinstance(row, list) or len(row) != 4 + COLUMNS:
                raise RefusedError(f"rows: expected lists of {4 + COLUMNS} numbers")
            u, m, t, split = (typed(x, "rows", int, 0) for x in row[:4])
            ways = (("samples", self.samples), ("tensor_degrees", self.degrees),
                    ("splits", self.splits))  # fmt: skip
            for x, (key, known) in zip(row[1:4], ways, strict=True):
                if x not in known:  # the set of plans would be narrower than the rows allow
                    raise RefusedError(f"rows: found {shown(x)}, expected one of {key}")
            values = tuple(
                Fraction(typed(x, "rows", Fraction, 0, MOST_SECONDS if i < 2 else MOST_BYTES))
                for i, x in enumerate(row[4:])
            )
            if (u, m, t, split) in self.rows:
                raise RefusedError(
                    f"rows: operator {u} with {m} samples, tp {t}, split {split} twice"
                )
            self.rows[u, m, t, split] = values
        self.links = []
        for key in ("intra_node", "inter_node"):
            rates = [Fraction(typed(x, key, Fraction, 1)) for x in get(record, key, list)]
            if not rates:
                raise RefusedError(f"{key}: found no bandwidths, expected some")
            self.links.append(rates)
        self.tables: Table = {}
        for table in get(record, "collectives", list):
            name, devices = get(table, "name", str), get(table, "devices", int, 2)
            sizes = get(table, "mib", list), get(table, "seconds", list)
            if len(sizes[0]) != len(sizes[1]):
                raise RefusedError("collectives: mib and seconds differ in length")
            both = zip(*sizes, strict=True)
            times = {
                typed(s, "mib", int): Fraction(typed(t, "seconds", Fraction, 0, MOST_SECONDS))
                for s, t in both
            }
            self.tables[name, devices] = times
        self._moves: Table = {}
        self._sent: Table = {}

    # ---- rules of the cost models native and aceso

    def kept(self, u, row):
        """Bytes that the operator keeps for its backward pass."""
        if self.aceso and self.names[u] == "enc-attention-dropout":
            return row[5] * Fraction(3, 2)
        return Fraction(0) if self.shared(u) else row[5]

    def shared(self, u):
        """Whether its memory is counted with a neighbour's."""
        name = self.names[u]
        return self.aceso and (
            name in ("enc-attention-dropout", "enc-attention-softmax", "bn1")
            or "-bn3" in name
            or ("-downsample" in name and "0-0" not in name)
        )

    def starts(self, u):
        """Whether the input of this operator is always kept."""
        name = self.names[u]
        if self.aceso:
            return name == "enc-1st-layernorm" or "-conv1" in name
        return name.endswith(("1st-layernorm", "-conv1"))

    def in_flight(self, behind, micro_batches):
        """Micro-batches in flight at the peak."""
        return behind + 1 if self.aceso else min(behind + 1, micro_batches)

    def transfer(self, size, cross):
        """Seconds of a message of so many bytes, inside a node or between nodes."""
        if size <= 0:
            return Fraction(0)
        key = size, cross
        if key not in self._sent:
            table, size = self.links[cross], Fraction(size)
            of = self._aceso_transfer if self.aceso else self._native_transfer
            self._sent[key] = of(size / MIB, size, table)
        return self._sent[key]

    @staticmethod
    def _aceso_transfer(mib, size, table):
        if mib >= 1:
            index = (mib.numerator // mib.denominator).bit_length() - 1
            index -= index >= 1
        else:
            index = -((mib.denominator // mib.numerator).bit_length() - 1)
        return size / (table[-1] if index >= len(table) else table[max(index, -len(table))])

    @staticmethod
    def _native_transfer(mib, size, table):
        most = 1 << (len(table) - 1)
        if mib <= 1 or mib >= most:
            return size / (table[0] if mib <= 1 else table[-1])
        i = (mib.numerator // mib.denominator).bit_length() - 1
        low, high = (1 << i) * MIB / table[i], (2 << i) * MIB / table[i + 1]
        return low + (high - low) * (mib - (1 << i)) / (1 << i)

    def collective(self, name, devices, size):
        """Seconds of one collective on a tensor of so many bytes."""
        table, mib = self.tables.get((name, devices), {}), Fraction(size) / MIB
        if self.aceso:
            for whole in (round(mib), round(mib - 1) if mib >= 1 else -1):
                if whole in table:
                    return Fraction(table[whole])
            return Fraction(LONGEST_COLLECTIVE)
        known = sorted((s, t) for s, t in table.items() if s > 0 and t < LONGEST_COLLECTIVE)
        if not known:
            share = {"all_reduce": Fraction(2, devices), "all_gather": Fraction(1)}
            each = share.get(name, Fraction(1, devices))
            return each * (devices - 1) * self.transfer(size, 0)
        if mib > known[-1][0]:
            return known[-1][1] * mib / known[-1][0]
        if mib <= known[0][0]:
            return Fraction(known[0][1])
        i = bisect_left(known, (mib,))
        (s0, t0), (s1, t1) = known[i - 1], known[i]
        return t0 + (t1 - t0) * (mib - s0) / (s1 - s0)

    def nodes(self, devices):
        """Nodes that a stage on so many devices is on."""
        return -(-devices // self.per_node)

    def iteration_work(self, row, tp, dp):
        """Seconds once per iteration: gradients reduced, and the optimiser's step."""
        if self.aceso:
            return Fraction(0)
        size = row[4]
        optimizer = 2 * self.state * size / OPTIMIZER_BANDWIDTH
        if dp == 1 or size == 0:
            return optimizer
        nodes = self.nodes(tp * dp)
        if nodes == 1:
            return optimizer + Fraction(2, dp) * (dp - 1) * self.transfer(size, 0)
        network = tp * size / self.links[1][-1]
        inside = self.transfer(size, 0) if dp > nodes else 0
        return optimizer + Fraction(2 * (dp - 1), dp) * max(network, inside)

    def stage_work(self, devices):
        """Seconds once per iteration and stage."""
        if self.aceso or self.nodes(devices) == 1:
            return Fraction(0)
        latency = max(Fraction(0), 2 * self.transfer(MIB, 1) - self.transfer(2 * MIB, 1))
        return 2 * (self.nodes(devices) - 1) * latency

    def reshard(self, u, have, v, want, size):
        """Seconds between two neighbours, forward and backward; None if there is no way."""
        if self.aceso and self.family == "t5":
            return Fraction(0)
        key = u, have, v, want, size
        if key not in self._moves:
            self._moves[key] = self._reshard(self.names[u], have, self.names[v], want, size)
        return self._moves[key]

    def _reshard(self, a, have, b, want, size):
        if self.nodes(have[0] * have[1]) > 1:
            dp = have[1]
            alone = layout(a, (1, dp, have[2]), False), layout(b, (1, dp, want[2]), True)
            if change(*alone) != ():
                return None
        move = change(layout(a, have, False), layout(b, want, True))
        if move is None:
            return None
        each = [self.collective(x, move[2], size) for x in move[:2] if x != "split"]
        return sum(each, Fraction(0))

    def options(self, micro_batch, devices):
        """Return (tp, dp, split) of all ways to use the devices that the profile could know."""
        found = []
        for tp in self.degrees:
            dp = devices // tp
            if tp * dp != devices or micro_batch % dp or tp * self.nodes(devices) > devices:
                continue
            if micro_batch // dp in self.samples:
                found += [(tp, dp, split) for split in self.splits]
        return found

    def row(self, u, micro_batch, option):
        """The row of an operator with an option; None if it was not profiled."""
        return self.rows.get((u, micro_batch // option[1], option[0], option[2]))

    def output(self, u, micro_batch, option, degree):
        """Bytes sent: of the row at the tensor degree of the stage's first operator."""
        row = self.row(u, micro_batch, (degree, *option[1:]))
        return row[3] if row else Fraction(10**6 * MIB if self.aceso else 1 << 60)


# ---- seconds and memory of a plan ----------------------------------------------------------------


def judge(costs, plans, plan):
    """Return (seconds of an iteration, [(seconds, bytes) per stage], faults) of a plan, exactly."""
    faults: list[str] = []
    stages: list[tuple[Fraction, Fraction]] = []
    first = position = 0
    batch, micro_batches = plans["batch"], get(plan, "micro_batches", int, 1, plans["batch"])
    if get(plan, "global_batch", int, 1, 1 << 40) != batch or batch % micro_batches:
        faults.append(f"{micro_batches} micro-batches of a batch of {batch}")
    M = batch // micro_batches
    if M not in plans["micro_batches"]:
        faults.append(f"micro-batch {M} is none of the set")
    listed = get(plan, "stages", list)
    for s, stage in enumerate(listed):
        start, stop = get(stage, "start", int, 0), get(stage, "stop", int, 0, len(costs.chain))
        g = get(stage, "devices", int, 1, MOST_DEVICES)
        if get(stage, "first_device", int, 0, MOST_DEVICES) != first or not legal(plans, first, g):
            faults.append(f"stage {s}: {g} devices from {stage['first_device']} on")
        if start != position or start >= stop:
            faults.append(f"stage {s}: operators {start} to {stop}, expected from {position} on")
            return Fraction(0), stages, faults
        ways = []
        for run in get(stage, "strategies", list):
            option = tuple(get(run, key, int, 0, 1 << 20) for key in ("tp", "dp", "split"))
            count = get(run, "count", int, 1, len(costs.chain))
            ways += [(option, get(run, "recompute", bool))] * count
            if len(ways) > stop - start:
                break
        known = costs.options(M, g)
        bad = [x for x, _ in ways if x not in known]
        if len(ways) != stop - start or bad:
            faults.append(f"stage {s}: {len(ways)} operators, {bad[:1] or 'too few or too many'}")
            return Fraction(0), stages, faults
        place = (g, len(listed) - 1 - s, enters(plans, first), leaves(plans, first + g))
        cost = stage_cost(costs, M, micro_batches, costs.chain[start:stop], ways, place)
        if cost is None:
            faults.append(f"stage {s}: an operator or a change of layout that is not profiled")
            return Fraction(0), stages, faults
        if cost[1] > plans["limit"] * (1 + SLACK):
            faults.append(f"stage {s}: {float(cost[1]):.0f} bytes, above {plans['limit']}")
        stages.append(cost)
        first, position = first + g, stop
    whole = [nodes * plans["per_node"] for nodes in plans["nodes"]]
    if first not in whole or len(stages) > plans["max_stages"]:
        faults.append(f"{len(stages)} stages on {first} devices")
    if position != len(costs.chain):
        faults.append(f"{position} operators, expected {len(costs.chain)}")
    times = [seconds for seconds, _ in stages] or [Fraction(0)]
    return (micro_batches - 1) * max(times) + sum(times), stages, faults


def stage_cost(costs, M, B, ops, ways, place):
    """Return (seconds, bytes) of a stage; None if it cannot run."""
    g, behind, enter, leave = place
    rows = [costs.row(u, M, option) for u, (option, _) in zip(ops, ways, strict=True)]
    if None in rows:
        return None
    m, kept = len(ops), [costs.kept(u, row) for u, row in zip(ops, rows, strict=True)]
    work = costs.stage_work(g)
    seconds = costs.transfer(rows[0][2], enter)
    seconds += costs.transfer(costs.output(ops[-1], M, ways[-1][0], ways[0][0][0]), leave)
    live, saved, run, peak = rows[0][2] + sum(kept), Fraction(0), Fraction(0), Fraction(0)
    for q, (row, (option, again)) in enumerate(zip(rows, ways, strict=True)):
        seconds += row[0] + row[1] + (row[0] if again else 0)
        work += costs.iteration_work(row, *option[:2])
        if q:
            moved = costs.reshard(ops[q - 1], ways[q - 1][0], ops[q], option, row[2])
            if moved is None:
                return None
            seconds += moved
        if q + 1 < m:
            closes = True
            if again and ways[q + 1][1]:
                shared = costs.shared(ops[q])
                closes = not shared and costs.starts(ops[q + 1])
                run += kept[q]
                saved += 0 if closes else kept[q]
                closes = closes or (not shared and q + 2 == m)
            if closes:
                peak, run = max(peak, run), Fraction(0)
    weights = sum(row[4] for row in rows)
    reserved = sum(max((row[c] for row in rows[:-1]), default=Fraction(0)) for c in (6, 7))
    if costs.aceso:
        reserved = max(reserved, weights)
    memory = costs.state * weights + (live - saved) * costs.in_flight(behind, B) + peak + reserved
    return seconds + work / B, memory


def legal(plans, first, g):
    """Tell whether a stage may have g devices from this one on."""
    per, last = plans["per_node"], first + g - 1
    whole = first % per == 0 and g % per == 0
    inside = whole or first // per == last // per
    return g in plans["groups"] and inside and last < plans["devices"]


def enters(plans, first):
    """Tell whether a stage from this device on receives from another node: 0 or 1."""
    return int(first > 0 and first % plans["per_node"] == 0)


def leaves(plans, last):
    """Tell whether a stage that ends before this device sends to another node: 0 or 1."""
    return int(last % plans["per_node"] == 0)


# ---- bounds of stages by prices ------------------------------------------------------------------


class Group:
    """All that stages on g devices cost, for one size of micro-batch; rounded down, by kind u and
    option o: [u][o] = (time, again, kept, weights, input, reserved forward, backward), enter[cross]
    [u][o], leave[cross][u][o][degree]; steps[u, v][o] = [(p, time)] from option o of u to p of v,
    None if every change is free."""

    def __init__(self, costs, M, B, g):
        self.costs, self.g = costs, g
        options = costs.options(M, g)
        self.degrees = sorted({o[0] for o in options})
        self.options = options
        self.degree = [self.degrees.index(o[0]) for o in options]
        once = costs.stage_work(g) / B
        kinds = range(len(costs.names))
        self.cost: list[Any] = []
        self.enter: tuple[list[Any], list[Any]] = ([], [])
        self.leave: tuple[list[Any], list[Any]] = ([], [])
        for u in kinds:
            known = [costs.row(u, M, o) for o in options]
            each: list[Any] = []
            for row, o in zip(known, options, strict=True):
                if row is None:
                    each.append(None)
                    continue
                time_ = row[0] + row[1] + costs.iteration_work(row, *o[:2]) / B
                sizes = (costs.kept(u, row), row[4], row[2], row[6], row[7])
                each.append((down(time_ * PS), down(row[0] * PS), *map(down, sizes)))
            self.cost.append(each)
            for cross in (0, 1):
                self.enter[cross].append(
                    [row and down((costs.transfer(row[2], cross) + once) * PS) for row in known]
                )
                self.leave[cross].append([row and [
                    down(costs.transfer(costs.output(u, M, o, t), cross) * PS) for t in self.degrees
                ] for row, o in zip(known, options, strict=True)])  # fmt: skip
        self.there = [[o for o in range(len(options)) if each[o]] for each in self.cost]
        pairs = dict.fromkeys(zip(costs.chain, costs.chain[1:], strict=False))
        self.moves = {}
        for u, v in pairs:
            rows = [costs.row(v, M, o) for o in options]
            self.moves[u, v] = [[self._move(u, p, v, o, rows[o]) for o in range(len(options))]
                                for p in range(len(options))]  # fmt: skip
        self._drop_dominated(pairs)
        self.steps: Table = {}
        self.back: Table = {}
        for u, v in pairs:
            table = self.moves[u, v]
            ways = [(p, o) for p in self.there[u] for o in self.there[v]]
            if all(table[p][o] == 0 for p, o in ways):
                self.steps[u, v] = self.back[u, v] = None
                continue
            known = [(p, o) for p, o in ways if table[p][o] < NEVER]
            self.steps[u, v] = [[(o, Q * table[p][o]) for x, o in known if x == p]
                                for p in range(len(options))]  # fmt: skip
            self.back[u, v] = [[(p, Q * table[p][o]) for p, x in known if x == o]
                               for o in range(len(options))]  # fmt: skip
        # least times of each operator, whatever the option, and their sums
        self.least = [min((self.cost[u][o][0] for o in self.there[u]), default=NEVER)
                      for u in kinds]  # fmt: skip
        self.sums = [0]
        for u in costs.chain:
            self.sums.append(self.sums[-1] + self.least[u])
        self.reserve = [[min((self.cost[u][o][c] for o in self.there[u]), default=0)
                         for u in kinds] for c in (5, 6)]  # fmt: skip

    def _move(self, u, p, v, o, row):
        if row is None or self.cost[u][p] is None:
            return NEVER
        found = self.costs.reshard(u, self.options[p], v, self.options[o], row[2])
        return NEVER if found is None else down(found * PS)

    def _drop_dominated(self, pairs):
        """Forget options that another one of the same degree is no worse than in everything."""
        before: Table = {}
        after: Table = {}
        for u, v in pairs:
            before.setdefault(v, []).append(u)
            after.setdefault(u, []).append(v)
        for u, ways in enumerate(self.there):
            if not ways:
                continue
            figures = {o: (
                *self.cost[u][o], self.enter[0][u][o], self.enter[1][u][o],
                *self.leave[0][u][o], *self.leave[1][u][o],
                *(line[o] for x in before.get(u, ()) for line in self.moves[x, u]),
                *(x for v in after.get(u, ()) for x in self.moves[u, v][o]),
            ) for o in ways}  # fmt: skip
            kept = []
            for o in ways:
                if not any(
                    p != o and self.degree[p] == self.degree[o] and (p in kept or p > o)
                    and all(a <= b for a, b in zip(figures[p], figures[o], strict=True))
                    and (p in kept or figures[p] != figures[o])
                    for p in ways
                ):  # fmt: skip
                    kept.append(o)
            self.there[u] = kept


def down(value, parts=1):
    """Round a fraction down to a whole number of so many parts."""
    return value.numerator * parts // value.denominator


class Priced:
    """The operators of a group under a price of memory: for kind u and option o, in 1 / Q ps."""

    def __init__(self, group, in_flight, floor, price):
        costs = group.costs
        factor = costs.state + floor  # Aceso reserves the weights at least: a floor of 1 counts it
        size = len(group.options)
        self.plain, self.again, self.save = [], [], []
        self.input = []
        for u, each in enumerate(group.cost):
            plain, again, save, into = ([NEVER] * size for _ in range(4))
            for o in group.there[u]:
                time_, redo, kept, weights, inputs, _, _ = each[o]
                plain[o] = Q * time_ + price * (factor * weights + in_flight * kept)
                again[o] = Q * redo
                save[o] = price * in_flight * kept
                into[o] = price * in_flight * inputs
            self.plain.append(plain)
            self.again.append(again)
            self.save.append(save)
            self.input.append(into)
        self.price, self.floor = price, floor
        self.enter = [[[NEVER if o not in ways else Q * group.enter[x][u][o] + self.input[u][o]
                        for o in range(size)] for u, ways in enumerate(group.there)]
                      for x in (0, 1)]  # fmt: skip
        self.leave = [[[NEVER if o not in ways else Q * min(group.leave[x][u][o])
                        for o in range(size)] for u, ways in enumerate(group.there)]
                      for x in (0, 1)]  # fmt: skip


def complete(rest, group, priced, chain, closes, start, stop, most=NEVER):
    """Continue the least priced sums [again][o] after each operator of stages that end before
    `stop`, from the last one back to `start`.

    rest: those that are known, first the priced end of the stage. closes: the run of recomputation
    ends after it. most: bytes that one pair of recomputed neighbours may keep.
    """
    size, there = len(group.options), group.there
    x0, x1 = rest[-1]
    for q in range(stop - len(rest), start, -1):
        v, u = chain[q], chain[q - 1]
        steps, plain, again = group.steps[u, v], priced.plain[v], priced.again[v]
        y0, y1, least0, least1 = [NEVER] * size, [NEVER] * size, NEVER, NEVER
        for o in there[v]:
            y0[o] = a = plain[o] + x0[o]
            y1[o] = b = plain[o] + again[o] + x1[o]
            least0, least1 = a if a < least0 else least0, b if b < least1 else least1
        x0, x1 = [NEVER] * size, [NEVER] * size
        save, kept, keep = priced.save[u], group.cost[u], closes[q - 1]
        for p in there[u]:
            b0, b1 = least0, least1
            if steps is not None:
                b0 = b1 = NEVER
                for o, r in steps[p]:
                    a, b = y0[o] + r, y1[o] + r
                    b0, b1 = a if a < b0 else b0, b if b < b1 else b1
            x0[p] = b0 if b0 < b1 else b1
            if kept[p][2] <= most:
                b1 = b1 if keep else b1 - save[p]
                x1[p] = b0 if b0 < b1 else b1
            else:
                x1[p] = b0
        rest.append((x0, x1))


class Stages:
    """Lower bounds, in picoseconds, of stages of one size of micro-batch."""

    def __init__(self, costs, plans, M, prices):
        self.costs, self.M, self.B = costs, M, plans["batch"] // M
        self.limit = plans["limit"] + -(-plans["limit"] // 10**9)  # met up to a rounding
        self.groups = {}
        for g in plans["groups"]:
            if g <= plans["devices"] and costs.options(M, g):
                group = Group(costs, M, self.B, g)
                if any(group.there):
                    self.groups[g] = group
        chain = costs.chain
        self.n = len(chain)
        self.closes = [
            i + 1 < self.n and costs.starts(chain[i + 1]) and not costs.shared(chain[i])
            for i in range(self.n)
        ]
        self.prices, self._priced, self._swept, self._solved, self.met = prices, {}, {}, {}, {}
        self._ahead: Table = {}
        self.tops: Table = {}

    def priced(self, g, flight, floor, price):
        """Return the operators of a group under a price."""
        key = g, flight, floor, price
        if key not in self._priced:
            self._priced[key] = Priced(self.groups[g], flight, floor, price)
        return self._priced[key]

    def prices_of(self, g, flight):
        """Return (floor, price) of a group; memory alone with a price so high that it forbids."""
        return self.prices.get((g, flight), [(0, 0)])

    def sweep(self, g, flight, leave, stop, longest, prices):
        """Return bounds of stages that end before `stop`, shortest first: [(entering inside a node,
        from another node)]; the last is of one that takes more than `longest` ps, as all longer
        ones do, or is as long as any whose operators alone take no more."""
        group, chain = self.groups[g], self.costs.chain
        length = stop - bisect_left(group.sums, group.sums[stop] - longest)
        if length < 1:
            return ()
        # a copy of this stretch of the chain elsewhere has the same bounds
        key = (g, flight, leave, longest, tuple(prices), tuple(chain[stop - length : stop]))
        if key not in self._swept:
            found = [(-NEVER, -NEVER)] * length
            for floor, price in sorted(prices, key=operator.itemgetter(1), reverse=True):
                priced = self.priced(g, flight, floor, price)
                found = self._sweep(group, priced, leave, stop, longest, found)
            self._swept[key] = found
        return self._swept[key]

    def _sweep(self, group, priced, leave, stop, longest, known):
        there, chain, closes = group.there, self.costs.chain, self.closes
        u, (enter0, enter1), none = chain[stop - 1], priced.enter, [0] * len(group.options)
        ends = none, none if closes[stop - 1] else [-x for x in priced.save[u]]
        rest = [(priced.leave[leave][u],) * 2 if leave < INNER else ends]
        price, floor = priced.price, priced.floor
        forward = backward = 0  # reserved by all operators but the last
        found: list[Any] = []
        for size, pair in enumerate(known):
            u = chain[stop - 1 - size]
            if size:
                forward = max(forward, group.reserve[0][u])
                backward = max(backward, group.reserve[1][u])
            if size == len(rest):
                start = stop - min(len(known), size + AT_ONCE)
                complete(rest, group, priced, chain, closes, start, stop)
            x0, x1 = rest[size]
            plain, again = priced.plain[u], priced.again[u]
            in0 = in1 = least = NEVER
            e0, e1 = (enter0[u], enter1[u]) if leave < INNER else (none, none)
            for o in there[u]:
                a, b = x0[o], again[o] + x1[o]
                a = plain[o] + (a if a < b else b)
                least = a if a < least else least
                b = a + e1[o]
                a += e0[o]
                in0, in1 = a if a < in0 else in0, b if b < in1 else in1
            # with a floor, the weights stand for what is reserved
            room = price * (self.limit - (0 if floor else forward + backward))
            a, b = (in0 - room) // Q, (in1 - room) // Q
            found.append((max(a, pair[0]), max(b, pair[1])))
            if least - room > Q * longest:
                break
        return found

    def farthest(self, g, flight, enter, leave, low, high, longest):
        """Return the last place that a stage which begins in low .. high may end before."""
        return min(
            self._farthest(g, self.priced(g, flight, *price), enter, leave, low, high, longest)
            for price in self.prices_of(g, flight)
        )

    def _farthest(self, g, priced, enter, leave, low, high, longest):
        group, chain, closes = self.groups[g], self.costs.chain, self.closes
        there, size = group.there, len(group.options)
        enters, sends = priced.enter[enter], priced.leave[leave]
        most = Q * longest + priced.price * self.limit
        last, q = -1, low
        end = bisect_right(group.sums, group.sums[high] + longest) - 1
        y0: Any = None
        y1: Any = None
        last0 = last1 = NEVER
        while q < end:
            u = chain[q]
            plain, again = priced.plain[u], priced.again[u]
            z0, z1 = [NEVER] * size, [NEVER] * size
            if y0 is not None:
                back = group.back[chain[q - 1], u]
                for o in there[u]:
                    b0, b1 = last0, last1
                    if back is not None:
                        b0 = b1 = NEVER
                        for p, r in back[o]:
                            a, b = y0[p] + r, y1[p] + r
                            b0, b1 = a if a < b0 else b0, b if b < b1 else b1
                    z0[o], z1[o] = b0 + plain[o], b1 + plain[o] + again[o]
            if q <= high:
                for o in there[u]:
                    a = plain[o] + enters[u][o]
                    z0[o] = a if a < z0[o] else z0[o]
                    a += again[o]
                    z1[o] = a if a < z1[o] else z1[o]
            y0, y1, last0, last1, send = [NEVER] * size, [NEVER] * size, NEVER, NEVER, NEVER
            keep, save, gone = closes[q], priced.save[u], sends[u]
            for o in there[u]:
                a, b = z0[o], z1[o]
                m = a if a < b else b
                c = b if keep else b - save[o]
                y0[o], y1[o] = m, (a if a < c else c)
                last0, last1 = m if m < last0 else last0, y1[o] if y1[o] < last1 else last1
                m += gone[o]
                send = m if m < send else send
            if send <= most:
                last = q + 1
            q += 1
        return last

    # ---- exact bounds of single stages

    def ahead(self, place, degree, stop, start, most, price):
        """Return what is ahead of labels of a stage, with the first operator's tensor degree."""
        g, flight, _, leave = place
        group, key = self.groups[g], (g, flight, leave, degree, stop, most, price)
        if key not in self._ahead:
            if len(self._ahead) > MOST_AHEAD:
                self._ahead.clear()
            last, send = self.costs.chain[stop - 1], [NEVER] * len(group.options)
            for o in group.there[last]:
                send[o] = Q * group.leave[leave][last][o][degree]
            self._ahead[key] = [(send, send)]
        rest, priced = self._ahead[key], self.priced(g, flight, *price)
        complete(rest, group, priced, self.costs.chain, self.closes, start, stop, most)
        return rest

    def key(self, g, flight, enter, leave, start, stop):
        """Name a stage by all that its time depends on."""
        return g, flight, enter, leave, tuple(self.costs.chain[start:stop])

    def solve(self, place, start, stop, ceiling):
        """Return the search for the fastest one of the stages from one operator to another; it goes
        on if it is asked for again. ceiling: of the seconds that are ever asked for."""
        key = place, tuple(self.costs.chain[start:stop]), ceiling
        if key not in self._solved:
            self._solved[key] = Labels(self, place, start, stop, ceiling)
        return self._solved[key]


class Labels:
    """The fastest stage from one operator to another, by labels in the order of their bounds: the
    first complete one is the optimum, and the least bound is one of the stage at any time. Stages
    are classed by the largest run of recomputation, which lets the root of a class count it."""

    def __init__(self, stages, place, start, stop, ceiling):
        group, self.ops = stages.groups[place[0]], stages.costs.chain[start:stop]
        ops, self.ceiling = self.ops, ceiling * Q
        shared = len(ops) > 1 and stages.costs.shared(ops[-2])
        self.heap, self.classes, self.seen, self.count = list[Any](), list[Class](), Table(), 0
        sizes = sorted({group.cost[u][o][2] for u in set(ops[:-1]) for o in group.there[u]} - {0})
        for degree in range(len(group.degrees)):
            first = [o for o in group.there[ops[0]] if group.degree[o] == degree]
            for run in run_classes([] if shared else sizes) if first else ():
                one = Class(stages, place, degree, start, stop, run, max(sizes, default=0))
                if one.bound < self.ceiling:
                    self.heap.append((one.bound, 0, len(self.classes), None))
                    self.classes.append(one)
        heapq.heapify(self.heap)
        self.serial = len(self.classes)

    def look(self, cutoff, most):
        """Return (a bound in picoseconds, labels looked at, whether more of them may raise it): the
        optimum, `cutoff` if nothing is faster, or what `most` labels of all looks prove."""
        before, heap, cutoff = self.count, self.heap, min(cutoff * Q, self.ceiling)
        while heap and heap[0][0] < cutoff:
            bound, _, number, label = heap[0]
            done = label is not None and label[0] == len(self.ops)
            if done or self.count >= most:
                return bound // Q, self.count - before, not done
            heapq.heappop(heap)
            if label is None and self.classes[number].ascends(self.ceiling):
                heapq.heappush(heap, (self.classes[number].bound, 0, number, None))
                continue
            if label is None:
                self.classes[number].look_ahead()
                made = self.classes[number].begin(number)
            else:
                if dominated(label[4:], self.seen.setdefault(label[:4], {})):
                    continue
                made = self.classes[label[1]].extend(label)
            self.count += 1
            for value, child in made:
                if value < self.ceiling:
                    self.serial += 1
                    heapq.heappush(heap, (value, -child[0], self.serial, child))
        return cutoff // Q, self.count - before, False


def dominated(figures, rivals):
    """Tell whether a label is no better than a rival in any figure, a larger peak counted as bytes
    that add up; else it is a rival from now on."""
    spent, size, weights, run, peak, forward, backward = figures
    for (v, w, x, y, z), (times, sizes) in rivals.items():
        if v <= weights and w <= run and y <= forward and z <= backward:
            place = bisect_right(times, spent)
            if place and sizes[place - 1] + (x - peak if x > peak else 0) <= size:
                return True
    times, sizes = rivals.setdefault(figures[2:], ([], []))
    last = place = bisect_left(times, spent)
    while last < len(times) and sizes[last] >= size:
        last += 1
    times[place:last], sizes[place:last] = [spent], [size]
    return False


def run_classes(sizes):
    """Return (least, most) bytes of the largest run of recomputation: every stage is in a class.
    sizes: of pairs that a run may have."""
    if not sizes:
        return [(0, NEVER)]
    step = max(1, len(sizes) // 4)
    edges = sorted({*sizes[::-step][:4], *(sizes[-1] * 5**x // 4**x for x in range(1, 9))})
    return list(zip([0, *edges], [*edges, NEVER], strict=True))


class Class:
    """Stages with one degree of the first operator, and a largest run between two sizes.

    A label: operators done, class, option, again, time (1 / Q ps), bytes that add up, weights, open
    run, largest run, reserved forward, reserved backward.
    """

    def __init__(self, stages, place, degree, start, stop, run, largest):
        self.stages, self.place, self.group = stages, place, stages.groups[place[0]]
        group, self.degree, self.start, self.stop = self.group, degree, start, stop
        self.ops, self.closes = stages.costs.chain[start:stop], stages.closes[start:stop]
        self.flight, self.enter = place[1], group.enter[place[2]]
        self.first = [o for o in group.there[self.ops[0]] if group.degree[o] == degree]
        self.least, self.most = run
        self.pairs = self.most if self.most < largest else NEVER
        m, costs = len(self.ops), stages.costs
        self.aceso, self.state = costs.aceso, costs.state
        self.shared = [costs.shared(u) for u in self.ops]
        self.droppable = m > 1 and self.shared[-2]
        self.rest = [[0] * (m + 1), [0] * (m + 1)]  # reserved at least from q on, without the last
        for c in (0, 1):
            for q in range(m - 2, -1, -1):
                self.rest[c][q] = max(self.rest[c][q + 1], group.reserve[c][self.ops[q]])
        self.tried: Table = {}
        self.bound, self.top = -NEVER, (0, 0)
        self.like = place[:2], degree, self.pairs
        hint = stages.tops.get(self.like)
        self.step = FINE if hint else COARSE
        for floor, price in [hint] if hint else stages.prices_of(*place[:2]):
            least = min(bisect_left(LADDER, price), len(LADDER) - 1)
            self.root(floor, price if hint else least)

    def ascends(self, enough):
        """Look once for the best price, from that of a similar stage on, until the bound is high
        enough; tell whether there was any to look for."""
        begun, step, self.step = self.top, self.step, 0
        while self.bound < enough and step and len(self.tried) < 40:
            floor, rung = self.top
            self.root(floor, min(rung + step, len(LADDER) - 1))
            self.root(floor, max(rung - step, 0))
            if self.top == (floor, rung):
                step //= 2
        self.stages.tops[self.like] = self.top
        met = self.stages.met.setdefault(self.place[:2], set())
        met.add((self.top[0], LADDER[self.top[1]]))
        return self.top != begun

    def root(self, floor, rung):
        """Bound the class by one price."""
        key = floor, rung
        if key not in self.tried:
            self.tried[key] = value = self._root(floor, LADDER[rung])
            if value > self.bound:
                self.bound, self.top = value, key

    def look_ahead(self):
        """Keep what is ahead of labels at prices around the best one."""
        floor, rung = self.top
        prices = [LADDER[min(max(rung + x, 0), len(LADDER) - 1)] for x in AROUND]
        self.ahead = [(price, self._ahead(floor, price)) for price in prices]
        self.lines: Table = {}  # by operators to come, recomputed, option: (sum, price)

    def _ahead(self, floor, price):
        return self.stages.ahead(self.place, self.degree, self.stop, self.start, self.pairs,
                                 (floor, price))  # fmt: skip

    def _root(self, floor, price):
        priced = self.stages.priced(*self.place[:2], floor, price)
        x0, x1 = self._ahead(floor, price)[len(self.ops) - 1]
        u, value = self.ops[0], NEVER
        for o in self.first:
            begin = priced.plain[u][o] + Q * self.enter[u][o] + priced.input[u][o]
            value = min(value, begin + x0[o], begin + priced.again[u][o] + x1[o])
        reserved = 0 if floor else self.rest[0][0] + self.rest[1][0]
        return value + price * (self.least + reserved - self.stages.limit)

    def begin(self, number):
        """Yield the labels of the first operator, with their bounds."""
        u, costs = self.ops[0], self.stages.costs
        for o in self.first:
            time_, redo, kept, weights, inputs, _, _ = self.group.cost[u][o]
            size = costs.state * weights + self.flight * (kept + inputs)
            spent = Q * (time_ + self.enter[u][o])
            for again in (0, 1):
                label = (1, number, o, again, spent + again * Q * redo, size, weights, 0,
                         self.least, self.rest[0][0], self.rest[1][0])  # fmt: skip
                yield self.valued(label)

    def extend(self, label):
        """Yield the labels that are an operator longer, with their bounds."""
        done, number, p, before, spent, size, weights, run, peak, forward, backward = label
        group, ops, flight = self.group, self.ops, self.flight
        u, v, last = ops[done - 1], ops[done], done + 1 == len(ops)
        mine = group.cost[u][p]
        forward = max(forward, mine[5], self.rest[0][done])
        backward = max(backward, mine[6], self.rest[1][done])
        steps = group.steps[u, v]
        for o, moved in [(o, 0) for o in group.there[v]] if steps is None else steps[p]:
            time_, redo, kept, more, _, _, _ = group.cost[v][o]
            for again in (0, 1):
                total, open_, top, closing = size, run, peak, True
                if before and again:
                    open_ += mine[2]
                    if open_ > self.most:
                        continue
                    closing = self.closes[done - 1]
                    if not closing:
                        total -= flight * mine[2]
                        closing = last and not self.shared[done - 1]
                if closing:
                    top, open_ = open_ if open_ > top else top, 0
                yield self.valued((
                    done + 1, number, o, again, spent + moved + Q * (time_ + again * redo),
                    total + self.state * more + flight * kept, weights + more, open_, top,
                    forward, backward,
                ))  # fmt: skip

    def valued(self, label):
        """Return a bound on all stages that begin with a label, and the label."""
        done, _, o, again, spent, size, weights, run, peak, forward, backward = label
        reserved = forward + backward
        if self.aceso and weights > reserved:
            reserved = weights
        more = size + (peak if self.droppable or run < peak else run) - self.stages.limit
        key = len(self.ops) - done, again, o
        if key not in self.lines:
            self.lines[key] = [(rest[key[0]][again][o], price) for price, rest in self.ahead]
        if done == len(self.ops):
            return (NEVER if more + reserved > 0 else spent + self.lines[key][0][0]), label
        held = more + (weights if self.top[0] else reserved)
        return spent + max([rest + price * held for rest, price in self.lines[key]]), label


# ---- bounds of pipelines -------------------------------------------------------------------------


class Pipelines:
    """Plans of one size of micro-batch below a target, in picoseconds.

    A node is (devices used, stages to come), at a place of the chain; a step is (devices before,
    devices, stages after) of a stage.
    """

    def __init__(self, stages, plans, target):
        self.stages, self.plans, self.target = stages, plans, target
        self.n, self.B, devices = stages.n, stages.B, plans["devices"]
        groups = stages.groups
        chain = stages.costs.chain
        total = sum(min(g.least[u] for g in groups.values()) for u in chain) if groups else NEVER
        # a plan below the target has no stage above this: (B - 1) t + max(t, total) < target
        self.longest = target // self.B
        if self.B > 1:
            self.longest = min(self.longest, max(0, target - total) // (self.B - 1))
        most = min(plans["max_stages"], devices, self.n)
        ends, steps = {(devices, 0)}, []
        for k in range(most):
            for d in sorted({d for d, x in ends if x == k}, reverse=True):
                for g in groups:
                    if d >= g and legal(plans, d - g, g):
                        steps.append((d - g, g, k))
                        ends.add((d - g, k + 1))
        begun, kept = {(0, k) for k in range(most + 1)}, []
        for d, g, k in sorted(steps):
            if (d, k + 1) in begun:
                begun.add((d + g, k))
                kept.append((d, g, k))
        self.steps, self.tried = kept, {}
        self._windows()
        self.value = target
        if self.pairs:
            grain = 1
            if self.pairs > MOST_PAIRS:  # places that repeat in the chain have the same bounds
                again = (chain + chain)[self.n // 2 + 1 :].index(chain[self.n // 2]) + 1
                again = again if 4 * again < self.n else 1
                grain = -(-isqrt(self.pairs // (MOST_PAIRS + 1)) // again) * again
            self._arcs(max(grain, 1))
            self.value = self.best()[0]

    def place(self, d, g, k):
        """Return the group, micro-batches in flight and crossings of a step's stage."""
        plans = self.plans
        flight = self.stages.costs.in_flight(k, self.B)
        return g, flight, enters(plans, d), leaves(plans, d + g)

    def _windows(self):
        """Bound the place of every node: from both ends by the operators alone, then from the
        beginning with memory."""
        longest, n, plans = self.longest, self.n, self.plans
        low = {(plans["devices"], 0): n}
        for d, g, k in sorted(self.steps, key=lambda x: (-x[0] - x[1], x[2])):
            if (d + g, k) in low:
                sums = self.stages.groups[g].sums
                at = bisect_left(sums, sums[low[d + g, k]] - longest)
                low[d, k + 1] = min(at, low.get((d, k + 1), n))
        high = {(0, k + 1): 0 for d, g, k in self.steps if d == 0}
        steps = []
        for d, g, k in sorted(self.steps):
            a, b = low.get((d, k + 1), n + 1), high.get((d, k + 1), -1)
            if a > b or (d + g, k) not in low:
                continue
            reach = self.stages.farthest(*self.place(d, g, k), a, b, longest)
            if reach >= low[d + g, k]:
                high[d + g, k] = max(reach, high.get((d + g, k), -1))
                steps.append((d, g, k))
        self.low, self.high, self.steps = low, high, steps

    @property
    def pairs(self):
        """Stages from window to window, at most; 0: no plan is below the target."""
        if self.high.get((self.plans["devices"], 0), -1) < self.n:
            return 0
        size = {
            node: 1 + max(-1, self.high[node] - self.low.get(node, self.n)) for node in self.high
        }
        return sum(size[d, k + 1] * size[d + g, k] for d, g, k in self.steps)

    def _arcs(self, grain=1):
        """List (step, start, stop, bound) of all stages that may be part of a plan below the
        target: from the end, then only those that the beginning reaches. A place of a grain of
        several stands for itself and those after it, and a stage for what is in all of its own."""
        live = {(self.plans["devices"], 0): {self.n}}
        into: Table = {}
        for d, g, k in sorted(self.steps, key=lambda x: (x[2], -x[0])):
            a, b = self.low[d, k + 1] // grain * grain, self.high[d, k + 1]
            flight, enter, leave = self.place(d, g, k)[1:]
            leave, inner = (leave, 0) if grain == 1 else (INNER, grain - 1 if d else 0)
            prices = self.stages.prices_of(g, flight)
            for stop in live.get((d + g, k), ()):
                if stop > self.high.get((d + g, k), -1):
                    continue
                found = self.stages.sweep(g, flight, leave, stop, self.longest, prices)
                first = max(a, (stop - len(found) - inner + grain - 1) // grain * grain)
                for start in range(first, min(b, stop - (grain == 1)) + 1, grain):
                    less = start + inner
                    bound = found[stop - 1 - less][enter] if less < stop else 1
                    if bound <= self.longest:
                        live.setdefault((d, k + 1), set()).add(start)
                        into.setdefault((d, g, k), []).append([start, stop, max(bound, 1)])
        self.arcs = {step: into[step] for step in self.steps if step in into}
        for arcs in self.arcs.values():
            arcs.sort()

    def _ahead(self):
        """Return least (sum, slowest) from the beginning to each node, dropping arcs that no
        beginning reaches."""
        found = {(0, k + 1, 0): (0, 0) for _, _, k in self.steps}
        for (d, g, k), arcs in sorted(self.arcs.items()):
            kept = []
            for arc in arcs:
                start, stop, bound = arc
                before = found.get((d, k + 1, start))
                if before is None:
                    continue
                kept.append(arc)
                node = d + g, k, stop
                total, slowest = before[0] + bound, max(before[1], bound)
                known = found.get(node)
                if known:
                    total, slowest = min(total, known[0]), min(slowest, known[1])
                found[node] = total, slowest
            self.arcs[d, g, k] = kept
        return found

    def best(self):
        """Return (ps, path) of the fastest pipeline by the bounds of its stages, or (target, None)
        if none is below the target; forget arcs that are part of none.

        A label is (slowest, sum, arc, the label after it); the path is from the beginning.
        """
        ahead, more, target = self._ahead(), self.B - 1, self.target
        labels = {(self.plans["devices"], 0, self.n): [(0, 0, None, None)]}
        for step, arcs in sorted(self.arcs.items(), key=lambda x: (x[0][2], -x[0][0])):
            d, g, k = step
            kept = []
            for arc in arcs:
                start, stop, bound = arc
                after = labels.get((d + g, k, stop))
                if not after:
                    continue
                total, slowest = ahead[d, k + 1, start]
                made = []
                for label in after:
                    top = bound if bound > label[0] else label[0]
                    least = label[1] + bound
                    worst = top if top > slowest else slowest
                    if more * worst + least + total < target:
                        made.append((top, least, (step, arc), label))
                if made:
                    kept.append(arc)
                    node = d, k + 1, start
                    labels[node] = pareto(labels.get(node, []) + made)
            self.arcs[step] = kept
        value, path = target, None
        for (d, _, start), found in labels.items():
            for label in found if d == 0 and start == 0 else ():
                if more * label[0] + label[1] < value:
                    value, path = more * label[0] + label[1], label
        listed: list[Any] = []
        while path is not None and path[2] is not None:
            listed.append(path[2])
            path = path[3]
        return value, listed

    def prove(self, most):
        """Raise the bound on plans: solve stages of the fastest pipeline until it is made of solved
        ones, or above the target, with more labels each time; return how many were looked at.

        Where there are too many stages, those with ends on a grid are listed, as bounds of others.
        """
        if self.value == self.target or not most or self.pairs > MOST_PAIRS:
            return 0
        stages, tried, left = self.stages, self.tried, most
        for count in range(1, ROUNDS + 1):
            self.value, path = self.best()
            if not path:
                break
            todo = []
            for (d, g, k), (start, stop, bound) in path:
                place = self.place(d, g, k)
                key = stages.key(*place, start, stop)
                top = max([b for _, (i, _, b) in path if i != start], default=0)
                rest = sum(b for _, (i, _, b) in path if i != start)
                # the time of this stage from which on the path is above the target
                need = (self.target - rest + self.B - 1) // self.B
                if need <= top:
                    need = self.target - rest - (self.B - 1) * top
                need = min(max(need, bound + 1), self.longest + 1)
                effort, reached = tried.get(key, (0, 0))
                if effort < len(EFFORTS) and (effort or reached < need):
                    todo.append((-effort, bound, need, key, place, start, stop))
            if not todo or left <= 0:
                break
            effort, _, need, key, place, start, stop = max(todo)
            one = stages.solve(place, start, stop, self.longest + 1)
            found, looked, more = one.look(need, EFFORTS[-effort])
            left -= looked
            # a stage that reached its need is tried again from the beginning if it must do more
            reached = need if found >= need else NEVER
            tried[key] = (1 - effort, 0) if more else (0, reached)
            for step, arcs in self.arcs.items():
                if self.place(*step) == place:
                    for arc in arcs:
                        if arc[1] - arc[0] == stop - start and key == stages.key(*place, *arc[:2]):
                            arc[2] = max(arc[2], found)
            if count & (count - 1) == 0:
                self._sharpen()
        return most - left

    def _sharpen(self):
        """Raise the bounds of all arcs by the prices that stages were solved with."""
        new = {}
        for (g, flight), prices in self.stages.met.items():
            used = self.stages.prices.setdefault((g, flight), [(0, 0)])
            new[g, flight] = sorted(prices.difference(used))
            used += new[g, flight]
        for (d, g, k), arcs in self.arcs.items():
            _, flight, enter, leave = self.place(d, g, k)
            prices = new.get((g, flight))
            for arc in arcs if prices else ():
                found = self.stages.sweep(g, flight, leave, arc[1], self.longest, prices)
                size = arc[1] - arc[0]
                beyond = self.longest + 1  # of the last that is found, or longer
                arc[2] = max(arc[2], found[size - 1][enter] if size <= len(found) else beyond)


def pareto(labels):
    """Keep the labels that no other one is below in both figures."""
    labels.sort(key=lambda label: label[:2])
    kept, least = [], NEVER
    for label in labels:
        if label[1] < least:
            least = label[1]
            kept.append(label)
    return kept


# ---- plans of layers: costs (docs/reference/costs.md) --------------------------------------------


class Link(NamedTuple):
    """A message takes latency + bytes / rate; rings: rate of a collective, by least devices."""

    latency: Fraction
    rate: Fraction
    rings: tuple[tuple[int, Fraction], ...] = ()

    def ring(self, devices):
        """Bytes per second of a ring of so many devices."""
        return max((x for x in self.rings if x[0] <= devices), default=(0, self.rate))[1]


class Replicas(NamedTuple):
    """Replicas of a stage, with all that its layers take and hold on them.

    name: of the set's plans, the same as one's stage. kinds: device types, ascending; use: devices
    of each type, and seats. rows: by what is recomputed (none, selective, full), of each kind of
    replica: (seconds of every layer; of a short last micro-batch; memory: (limit, bytes once, per
    micro-batch, while it runs) of every layer). peaks: (seconds, [seconds of every layer]): the
    most of these, beyond those. state: as `follow` has it. parts: (type, tp, samples of each one).
    end: seconds that the last stage takes besides; None: it cannot be the last one. mean: samples
    of a replica. after: in Metis's space, the first rank after it.
    """

    name: Any
    kinds: tuple[int, ...]
    use: tuple[int, ...]
    parts: Any
    rows: Any
    peaks: Any
    state: Any
    end: Any = Fraction(0)
    mean: int = 0
    after: int = 0


def share(curves, counts, samples):
    """Give each replica a sample and every further one to the replica that is done first with it;
    curves[kind][x]: seconds of x samples. Return the samples of each, by kind."""
    heap = [(max(curve[1:3]), kind, 1, r) for kind, curve in enumerate(curves)
            for r in range(counts[kind])]  # fmt: skip
    heapq.heapify(heap)
    for _ in range(samples - len(heap)):
        seconds, kind, x, r = heap[0]
        more = max(seconds, curves[kind][x + 2]) if x + 2 < len(curves[kind]) else seconds
        heapq.heapreplace(heap, (more, kind, x + 1, r))
    return [sorted((x for _, kind, x, _ in heap if kind == k), reverse=True)
            for k in range(len(counts))]  # fmt: skip


class Layers:
    """The cost models of whole layers over the rows of a certificate, and the groups that stages
    may have; exact fractions of seconds and bytes."""

    def __init__(self, record, plans):
        self.plans, self.name = plans, get(record, "costs", str)
        if self.name not in ("metis", "native"):
            raise RefusedError(f"costs: found {shown(self.name)}, expected metis or native")
        self.metis, types = self.name == "metis", len(plans["types"])
        self.layers = get(record, "layers", int, 2, MOST_LAYERS)
        self.rows: Table = {}
        self.pairs: Table = {}
        rates = [None] * types if self.metis else get(record, "rates", list)
        self.memory = [None if x is None else Fraction(typed(x, "rates", Fraction, 1, MOST_BYTES))
                       for x in rates]  # fmt: skip
        if len(self.memory) != types:
            raise RefusedError(f"rates: found {len(self.memory)}, expected {types}")
        for pair in get(record, "pairs", list):
            key = get(pair, "type", int, 0, types - 1), get(pair, "tp", int, 1, MOST_DEVICES)
            if key in self.pairs:
                raise RefusedError(f"pairs: type {key[0]} with tp {key[1]} twice")
            samples, times = wholes(pair, "samples", 1, 1 << 40), get(pair, "time", list)
            if len(samples) != len(times):
                raise RefusedError(f"time: found {len(times)} rows, expected {len(samples)}")
            found = self.pairs[key] = {"samples": samples}
            for x, row in zip(samples, times, strict=True):
                self.rows[*key, x] = self._numbers({"time": row}, "time")
            if self.metis:
                found["mib"] = [self._numbers({"mib": x}, "mib") for x in get(pair, "mib", list)]
                found["sync"] = [Fraction(typed(x, "sync", Fraction, -MOST_SECONDS, MOST_SECONDS))
                                 for x in get(pair, "sync", list)]  # fmt: skip
                if not len(found["mib"]) == len(found["sync"]) == len(samples):
                    raise RefusedError("pairs: mib, sync and samples differ in length")
            else:
                held = "state", "activation", "workspace", "per_sample"
                found |= {name: self._numbers(pair, name) for name in held}
                found["again"] = get(pair, "again", dict) if "again" in pair else {}
                for way, own in found["again"].items():
                    times = get(own, "time", list)
                    if len(times) != len(samples):
                        raise RefusedError(f"again: {shown(way)} has other rows than time")
                    for x, row in zip(samples, times, strict=True):
                        self.rows[*key, x, way] = self._numbers({"time": row}, "time")
                    found["again"][way] = {name: self._numbers(own, name) for name in held}
                rate = self.memory[key[0]]
                found["step"] = (
                    self._numbers(pair, "optimizer") if "optimizer" in pair
                    else [2 * x / rate if rate else Fraction(0) for x in found["state"]]
                )  # fmt: skip
                found["most"] = get(pair, "most_samples", int, 1) if "most_samples" in pair else 0
        names = ("hidden", "sequence", "vocabulary")
        self.links: Table = {}
        if self.metis:
            self.parameters = self._numbers(record, "parameters")
            self.optimizer, self.generator = (
                Fraction(get(record, x, Fraction, 0, MOST_SECONDS))
                for x in ("optimizer", "batch_generator")
            )
            self.sizes = [get(record, x, int, 0, 1 << 40) for x in names]
            self.rates = [Fraction(typed(x, "bandwidth", Fraction, Fraction(1, 10**6)))
                          for x in get(record, "bandwidth", list)]  # fmt: skip
            if len(self.rates) != types:
                raise RefusedError(f"bandwidth: found {len(self.rates)}, expected {types}")
        else:
            if len({frozenset(pair["again"]) for pair in self.pairs.values()}) > 1:
                raise RefusedError("again: expected the same kinds of all pairs")
            self.isolated = get(record, "isolated", bool)
            self.shares = [Fraction(get(record, x, Fraction, 0, MOST_LAYERS))
                           for x in ("launch_share", "device_share", "tensor_loss")]  # fmt: skip
            self.gradients = self._numbers(record, "gradients")
            self.boundary = self._numbers(record, "boundary", 1)
            for link in get(record, "links", list):
                a, b = (get(link, x, int, 0, types - 1) for x in ("from", "to"))
                inside = get(link, "inside", bool)
                rings = [typed(x, "rings", list) for x in get(link, "rings", list)]
                if any(len(x) != 2 for x in rings):
                    raise RefusedError("rings: expected [devices, rate]")
                self.links[a, b, inside] = self.links[b, a, inside] = Link(
                    Fraction(get(link, "latency", Fraction, 0, MOST_SECONDS)),
                    Fraction(get(link, "rate", Fraction, 1)),
                    tuple((typed(n, "rings", int, 2), Fraction(typed(x, "rings", Fraction, 1)))
                          for n, x in rings),
                )  # fmt: skip
            for a, b in product(range(types), range(types)):
                if (a, b, False) not in self.links or (a, a, True) not in self.links:
                    raise RefusedError(f"links: none from type {a} to {b}, or inside its nodes")
        self._sends: Table = {}
        self._predicted: Table = {}
        self._whole: Table = {}

    def _numbers(self, record, key, more=0):
        found = [Fraction(typed(x, key, Fraction, 0, MOST_BYTES)) for x in get(record, key, list)]
        if len(found) != self.layers + more:
            raise RefusedError(f"{key}: found {len(found)}, expected {self.layers + more}")
        return found

    # ---- micro-batches

    def batch(self, B):
        """Return (samples of a micro-batch, of the last one)."""
        size = -(-self.plans["batch"] // B)
        return size, self.plans["batch"] - (B - 1) * size

    def constant(self, B):
        """Seconds of an iteration, whatever the plan."""
        return self.generator * B / 1000 if self.metis else Fraction(0)

    # ---- groups of devices

    def row(self, kind, tp, samples, failed=False, way=()):
        """Seconds of every layer with so many samples, recomputed in a way or not; None if that is
        not known, or failed."""
        if self.metis:
            found = self.rows.get((kind, tp, samples))
            return found and [x / 1000 for x in found]
        known, most = self.pairs[kind, tp]["samples"], self.pairs[kind, tp]["most"]
        if most and samples > most and not failed:
            return None
        key = kind, tp, samples, way
        if key not in self._predicted:
            line = self._straight if len(known) > 1 else self._launched
            found = line(*key) if samples else [Fraction(0)] * self.layers
            plain = self.row(kind, tp, samples, True) if way else found
            self._predicted[key] = list(map(max, found, plain))
        return self._predicted[key]

    def whole(self, kind, tp, samples):
        """Seconds of all layers."""
        key = kind, tp, samples
        if key not in self._whole:
            self._whole[key] = sum(self.row(kind, tp, samples, True))
        return self._whole[key]

    def _straight(self, kind, tp, samples, way):
        """Seconds of every layer on the lines through rows of several numbers of samples."""
        known, found = self.pairs[kind, tp]["samples"], []
        low = max(min(bisect_right(known, samples), len(known) - 1) - 1, 0)
        x, y = known[low : low + 2]
        for p, q in zip(self.rows[kind, tp, x, *way], self.rows[kind, tp, y, *way], strict=True):
            slope = (q - p) / (y - x)
            if samples > y:
                p, slope = q - (y - x) * max(slope, 0), max(slope, 0)
            elif samples < x:
                slope = min(max(slope, 0), p / x)
            found.append(p + (samples - x) * slope)
        return found

    def _launched(self, kind, tp, samples, way):
        """Seconds of every layer by the only row that there is: the launch floor and the work."""
        [x] = self.pairs[kind, tp]["samples"]
        launch, device, _ = self.shares
        share, rate, found = device * self.divided(tp), self.memory[kind], []
        works = [self._alone(other, way, self.memory[other] / rate if other != kind else 1)
                 for other in sorted({k for k, _ in self.pairs})
                 if other == kind or (rate and self.memory[other])]  # fmt: skip
        for row, *work in zip(self.rows[kind, tp, x, *way], *works, strict=True):
            model, own = (launch * row + n * share * min(work) for n in (samples, x))
            seconds = model if self.isolated else row * model / own if own else row * 0
            found.append(Fraction(down(seconds * GRAIN), GRAIN))
        return found

    def divided(self, tp):
        """Share of a layer's work that each of so many devices has."""
        return Fraction(1, tp) + self.shares[2] * (1 - Fraction(1, tp))

    def _alone(self, kind, way, factor):
        """Seconds of every layer for a sample on one device of a type, at most, times a factor."""
        tp = min(t for k, t in self.pairs if k == kind)
        x = self.pairs[kind, tp]["samples"][0]
        return [s * factor / x / self.divided(tp) for s in self.rows[kind, tp, x, *way]]

    def groups(self, B, several, order):
        """Yield the groups that a stage may have with so many micro-batches.

        several: which groups of several types there are. order: of types, in Metis's space.
        """
        S, last = self.batch(B)
        if self.plans["by_rank"]:
            ranks = [kind for kind in order for _ in range(self.plans["counts"][kind])]
            for first in range(len(ranks)):
                for size in powers(len(ranks) - first):
                    types = ranks[first : first + size]
                    for tp in powers(size):
                        if all(tp in self.plans["degrees"][kind] for kind in types):
                            yield from self.metis_groups(types, tp, S, (first, first + size), ranks)
            return
        for count, parts in enumerate(self._options(S, several)):
            if count > MOST_GROUPS:
                raise RefusedError(f"micro_batches: {B} has more than {MOST_GROUPS} groups")
            if all(tp * n <= self.plans["counts"][kind]
                   and sum(size // tp for size in self.plans["sizes"][kind]) >= n
                   for kind, tp, n in parts):  # fmt: skip
                if self.metis:
                    by_name = sorted(parts, key=lambda x: self.plans["types"][x[0]])
                    types = [kind for kind, tp, n in by_name for _ in range(tp * n)]
                    yield from self.metis_groups(types, parts[0][1], S, (), ())
                else:
                    yield from self._native(parts, S, last)

    def _options(self, S, several):
        """Yield the (type, tp, replicas) of groups, whatever fits."""
        plans = self.plans
        counts, degrees, types = plans["counts"], plans["degrees"], range(len(plans["types"]))
        for kind in types:
            for tp in degrees[kind]:
                for n in range(1, min(S, counts[kind] // tp) + 1):
                    if (-(-S // n)) * (n - 1) < S if plans["uneven"] else S % n == 0:
                        yield ((kind, tp, n),)
        most = {"none": 1, "pairs": 2}.get(several, len(types))
        replicas = [n for n in range(1, min(S, max(counts)) + 1)
                    if several == "all" or n & (n - 1) == 0]  # fmt: skip
        for size in range(2, min(most, S) + 1):
            for kinds in combinations(types, size):
                for tps in product(*(degrees[kind] for kind in kinds)):
                    if len({*tps}) > 1:
                        continue
                    fitting = [[n for n in replicas if n * tp <= counts[kind]]
                               for kind, tp in zip(kinds, tps, strict=True)]  # fmt: skip
                    for chosen in product(*fitting):
                        if sum(chosen) <= S:
                            yield tuple(zip(kinds, tps, chosen, strict=True))

    def _made(self, name, parts, use, **said):
        """Return a group: its devices and seats of each type, and its state."""
        plans = self.plans
        kinds = tuple(kind for kind, n in enumerate(use) if n)
        seats = tuple(sum(len(own) * (t // tp) for k, t, own in parts if k == kind)
                      for kind, tp, _ in plans["seats"])  # fmt: skip
        within = len(kinds) == 1 and use[kinds[0]] < max(plans["sizes"][kinds[0]])
        taken = use[kinds[0]] if within and plans["equal"][kinds[0]] else 0
        return Replicas(name=name, kinds=kinds, use=(*use, *seats), parts=parts,
                     state=(kinds, within, taken), **said)  # fmt: skip

    def _native(self, parts, S, last):
        if any((kind, tp) not in self.pairs for kind, tp, _ in parts):
            return
        total = sum(n for _, _, n in parts)
        if len(parts) == 1:
            shares = [[-(-(S - r) // total) for r in range(total)]]
        else:
            curves = [[self.whole(kind, tp, x) for x in range(S + 1)] for kind, tp, _ in parts]
            shares = share(curves, [n for _, _, n in parts], S)
        found = [(kind, tp, tuple(own)) for (kind, tp, _), own in zip(parts, shares, strict=True)]
        keys = [(kind, tp, x) for kind, tp, own in found for x in sorted({*own})]
        asked = {"full" if way == "block" else way for way in self.plans["ways"]} - {"none"}
        ways = sorted(asked)
        if any(self.row(*key) is None for key in keys) or any(
            way not in self.pairs[kind, tp]["again"] for kind, tp, _ in keys for way in ways
        ):
            return
        use = [0] * len(self.plans["types"])
        for kind, tp, own in found:
            use[kind] = tp * len(own)
        once, per_byte = self.best_ring(found)
        rest = dict.fromkeys((kind, tp, -(-x * last // S)) for kind, tp, x in keys)
        rows = {}
        for way in ((), *((way,) for way in ways)):
            memory = []
            for kind, tp, x in keys:
                pair = self.pairs[kind, tp]
                pair = pair["again"][way[0]] if way else pair
                growing = zip(pair["workspace"], pair["per_sample"], strict=True)
                memory.append((self.plans["limits"][kind], pair["state"],
                               [x * act for act in pair["activation"]],
                               [fixed + x * more for fixed, more in growing]))  # fmt: skip
            loads = [self.row(*key, True, way) for key in keys]
            busy = [self.row(*key, True, way) for key in rest] if last < S else []
            rows[way[0] if way else "none"] = loads, busy, memory
        steps = [self.pairs[kind, tp]["step"] for kind, tp, _ in found]
        peak = [[per_byte * g + s for g, s in zip(self.gradients, step, strict=True)]
                for step in steps]  # fmt: skip
        name = tuple((kind, tp, tuple(sorted(own))) for kind, tp, own in found)
        yield self._made(name, found, use, rows=rows, peaks=[(once, peak)])

    def metis_groups(self, types, tp, S, span, ranks):
        """Yield the group of these devices, by rank, if Metis can run it; all of it in milliseconds
        and MiB."""
        dp, L = len(types) // tp, self.layers
        mean, leads = S // dp, types[::tp]
        uniform = len({*types}) == 1
        if uniform and mean * dp != S:
            return
        shares = [mean] * dp if uniform else self._metis_shares(leads, tp, S)
        known = max((max(pair["samples"]) for pair in self.pairs.values()), default=0)
        if shares is None or not 1 <= mean <= known or (not span and 0 in shares):
            return
        uniform = uniform or (len({*types}) == 1 and {*shares} == {mean})
        runs = {(kind, x) for kind, x in zip(leads, shares, strict=True) if x}
        loads, memory = [], []
        for kind, x in sorted(runs):
            rows = [self.row(kind, tp, part) for part in ([x] if uniform else halves(x))]
            if None in rows:
                return
            loads.append([sum(row) for row in zip(*rows, strict=True)])
        zero = [Fraction(0)] * L
        for r, (kind, x) in enumerate(zip(leads, shares, strict=True)):
            limit = min(self.plans["limits"][k] for k in types[r * tp : (r + 1) * tp])
            mib = self._of("mib", kind, tp, x if uniform else halves(x)[0]) if x else zero
            memory.append(
                (NEVER if self.plans["summed"] else limit, [m * MIB for m in mib], zero, zero)
            )
        if self.plans["summed"]:
            parts = [mean]
            if not uniform:
                size = len(ranks) // dp
                split = self._metis_shares([ranks[r * size] for r in range(dp)], tp, S)
                parts = [part for x in split or () for part in halves(x)]
            wanted = [self._of("mib", ranks[0], tp, part) for part in parts]
            if None in wanted or not parts:
                return
            limit = sum(self.plans["limits"][k] for k in types) - Fraction(MIB, 1000)
            memory.append(
                (limit, [5 * sum(m) * MIB for m in zip(*wanted, strict=True)], zero, zero)
            )
        rates = [self.rates[kind] for kind in {*types}]
        ring = Fraction(2 * (dp - 1), dp) / (min(rates) * MIB) / 1000 / tp
        inner = self.parameters[1]
        sizes = [self.parameters[0], *[inner] * (L - 2), self.parameters[-1]]
        step = [self.optimizer / tp / L / 1000] * L
        sync = [self._of("sync", kind, tp, mean) for kind in {*types}]
        use = [0] * len(self.plans["types"])
        for kind in types:
            use[kind] += 1
        by_kind = [(kind, tp, tuple(x for k, x in zip(leads, shares, strict=True) if k == kind))
                   for kind in sorted({*leads})]  # fmt: skip
        name: Any = (span, tp, tuple(shares))
        if not span:
            name = tuple((kind, tp, tuple(sorted(own))) for kind, tp, own in by_kind)
        found = self._made(
            name, by_kind, use, rows={"none": (loads, [], memory)}, mean=mean,
            peaks=[(Fraction(0), [[ring * x for x in sizes]]), (Fraction(0), [step])],
            end=None if None in sync else max(sync) / 1000,
        )  # fmt: skip
        if span:
            found = found._replace(state=(found.kinds, False, span[0]), use=(), after=span[1])
        yield found

    def _metis_shares(self, leads, tp, S):
        """Split samples by the speed of whole models, in floating point as Metis does."""
        speeds = []
        for kind in leads:
            seconds = 0.0
            for x in self.rows.get((kind, tp, 1), ()):
                seconds += float(x)
            if not seconds:
                return None
            speeds.append(1.0 / seconds)
        together = 0.0
        for x in speeds:
            together += x
        parts = [S * (x / together) for x in speeds]
        samples = [int(x) for x in parts]
        order = sorted(range(len(parts)), key=lambda r: parts[r] - int(parts[r]), reverse=True)
        for r in order[: S - sum(samples)]:
            samples[r] += 1
        return samples

    def _of(self, what, kind, tp, samples):
        pair = self.pairs.get((kind, tp), {"samples": []})
        known = pair["samples"]
        return pair[what][known.index(samples)] if samples in known else None

    # ---- messages

    def best_ring(self, parts):
        """Return the least (seconds, seconds per byte) of reducing gradients over replicas that are
        packed: of each type they fill a node, or are in one."""
        dp = sum(len(own) for _, _, own in parts)
        pieces, hops = lcm(*(tp for _, tp, _ in parts)), []
        if dp == 1:
            return Fraction(0), Fraction(0)
        for kind, tp, own in parts:
            sizes, within = self.plans["sizes"][kind], self.links[kind, kind, True]
            between = self.links[kind, kind, False]
            inside = within.latency, Fraction(pieces // tp) / within.ring(dp)
            outside = between.latency, pieces / between.rate
            if min(len(own), self.filled(kind, tp)) > 1:
                hops.append(inside)
            if len(own) > max(sizes) // tp:
                hops.append(outside)
            elif len(parts) == 1 and not hops:  # in one large node or in several small ones
                hops.append(tuple(map(min, inside, outside)))
        kinds = [kind for kind, _, _ in parts]
        for a, b in zip(kinds, kinds[1:] + kinds[:1], strict=True) if len(kinds) > 1 else ():
            hops.append((self.links[a, b, False].latency, pieces / self.links[a, b, False].rate))
        return turns(hops, dp, pieces)

    def filled(self, kind, tp):
        """Replicas on a filled node of a type, at least."""
        return min((n // tp for n in self.plans["sizes"][kind] if n >= tp), default=1)

    def send(self, group, B, to, cut):
        """Return the least seconds (of every micro-batch, of an iteration) of sending over a cut to
        a group. to: (its types, whether it is smaller than a node, where it is: `near`, in the
        sender's node; `apart`, in no node of the sender's; `any`)."""
        if self.metis:
            hidden, sequence, vocabulary = self.sizes
            size = Fraction(group.mean * sequence * hidden)
            if cut == self.layers - 1:
                size = Fraction(group.mean * sequence * vocabulary, group.parts[0][1])
            rate = min(self.rates[kind] for kind in {*group.kinds, *to[0]})
            return Fraction(0), size / (rate * MIB) / 1000
        key = group.name, B, to
        if key not in self._sends:
            S, last = self.batch(B)
            full = self.best_transfer(group, [own for _, _, own in group.parts], to)
            rest = Fraction(0), Fraction(0)
            if last < S:
                own = [[-(-x * last // S) for x in each] for _, _, each in group.parts]
                rest = self.best_transfer(group, own, to)
            self._sends[key] = full, [(1 - Fraction(last, S)) * x for x in rest]
        size = self.boundary[cut]
        return tuple(once + per_byte * size for once, per_byte in self._sends[key])

    def best_transfer(self, group, shares, to):
        """Return the least (seconds, seconds per byte of a sample) of a message there and back."""
        kinds, within, where = to
        if len(group.kinds) == 1:
            shares = [[max(shares[0])] * len(shares[0])]
            kind, tp = group.parts[0][:2]
            beside = self.links[kind, kind, True]
            inside = 2 * beside.latency, 2 * Fraction(shares[0][0], tp) / beside.rate
            may = group.state[1] and within and kinds == group.kinds and where != "apart"
            if may and (where == "near" or len(self.plans["sizes"][kind]) == 1):
                return inside
        ways = [(Fraction(0), Fraction(0))]
        for (kind, tp, _), own in zip(group.parts, shares, strict=True):
            sizes = self.plans["sizes"][kind]
            fills = len({*sizes}) == 1 and sizes[0] % tp == 0 and tp * len(own) >= sizes[0]
            alone = where == "apart" or fills
            behind = within and kinds == (kind,) and not alone
            if behind and len(group.parts) > 1:
                continue  # these may share a node with the receiver: the others send
            full = self.filled(kind, tp)
            if behind and len(own) > full and any(n % tp for n in sizes):
                full = 1  # the receiver may be where replicas leave devices over
            load = sum(sorted(own)[:full])
            others = kinds if alone else tuple(k for k in kinds if k != kind) or (kind,)
            links = [self.links[kind, other, False] for other in others]
            slowest = min(link.rate for link in links)
            ways.append((2 * max(link.latency for link in links), 2 * load / slowest))
        across = tuple(map(max, *ways)) if len(ways) > 1 else ways[0]
        if len(group.kinds) == 1 and may:
            return tuple(map(min, across, inside))
        return across

    def follow(self, group, state):
        """Yield (state, where the next group is) of a group before another one. A state: types of
        the group; whether it is smaller than a node; and its first rank in Metis's space, else the
        devices that are taken in its node by it and by the groups after it, if these are known."""
        kinds, within, taken = state
        if self.plans["by_rank"]:
            if group.after == taken:
                yield group.state, (kinds, within, "any")
            return
        kind = kinds[0]
        size, own = max(self.plans["sizes"][kind]), group.use[kind]
        if not taken or not 0 < own < size:
            yield group.state, (kinds, within, "any")
            return
        yield group.state, (kinds, within, "apart")
        if taken + own <= size:
            alone = len(group.kinds) == 1
            after = (kinds, True, taken + own) if alone else group.state
            yield after, (kinds, within, "near" if alone else "any")

    # ---- seconds of whole plans

    def transfer(self, stage, after):
        """Return (seconds, seconds per byte of a sample) of sending from replicas (node, devices,
        samples) to others."""
        nodes, there = self.plans["nodes"], {node for node, _, _ in after}
        here, loads = {node for node, _, _ in stage}, dict[int, int]()
        if len({nodes[node][0] for node in here}) == 1:
            most = max(x for _, _, x in stage)
            stage = [(node, tp, most) for node, tp, _ in stage]
        if here == there and len(here) == 1:
            kind = nodes[min(here)][0]
            link = self.links[kind, kind, True]
            return 2 * link.latency, 2 * max(Fraction(x, tp) for _, tp, x in stage) / link.rate
        for node, _, x in stage:
            loads[node] = loads.get(node, 0) + x
        ways = []
        for node, load in loads.items():
            kind = nodes[node][0]
            for other in sorted(there - {node}) or [node]:
                link = self.links[kind, nodes[other][0], other == node]
                ways.append((2 * link.latency, 2 * load / link.rate))
        return tuple(map(max, (Fraction(0), Fraction(0)), *ways))

    def ring(self, stage):
        """Return (seconds, seconds per byte) of reducing gradients over replicas (node, devices,
        samples)."""
        nodes = self.plans["nodes"]
        if len(stage) == 1:
            return Fraction(0), Fraction(0)
        pieces, hops = lcm(*(tp for _, tp, _ in stage)), []
        seats: Table = {}
        for node, tp, _ in stage:
            seats.setdefault(node, []).append(tp)
        order = sorted(seats, key=lambda node: (nodes[node][0], node))
        for node in order:
            link = self.links[nodes[node][0], nodes[node][0], True]
            if len(seats[node]) > 1:
                rings = Fraction(pieces // min(seats[node]))
                hops.append((link.latency, rings / link.ring(len(stage))))
        for a, b in zip(order, order[1:] + order[:1], strict=True) if len(order) > 1 else ():
            link = self.links[nodes[a][0], nodes[b][0], False]
            hops.append((link.latency, pieces / link.rate))
        return turns(hops, len(stage), pieces)

    def judged(self, B, stages, groups, seats):
        """Return (seconds, [(seconds, bytes) per stage], faults) of stages (first layer, the one
        after, ..., recomputation) of groups, on replicas (node, devices, samples)."""
        (S, last), costs, faults, extra = self.batch(B), [], [], self.constant(B)
        part, peaks, count = Fraction(last, S), [], len(stages)
        for s, ((i, j, _, _, way), group) in enumerate(zip(stages, groups, strict=True)):
            ranges, flight = Ranges(group, part, False), min(count - s, B)
            seconds = ranges.time(i, j, way)
            most = ranges.most(i, j, way, seconds)
            if s + 1 < count and self.metis:
                extra += self.send(group, B, (groups[s + 1].kinds, False, "any"), j)[1]
            elif s + 1 < count:
                size = self.boundary[j]
                once, per_byte = self.transfer(seats[s], seats[s + 1])
                seconds += once + per_byte * size
                if last < S:
                    fewer = [(node, tp, -(-x * last // S)) for node, tp, x in seats[s]]
                    once, per_byte = self.transfer(fewer, seats[s + 1])
                    extra += (1 - part) * (once + per_byte * size)
            if not self.metis:
                once, per_byte = self.ring(seats[s])
                step = max(sum(self.pairs[kind, tp]["step"][i:j]) for kind, tp, _ in group.parts)
                most[0] = once + per_byte * sum(self.gradients[i:j]) + step
            if s + 1 == count:
                extra += B * (group.end or 0)
            sizes = [(once + flight * each, limit) for limit, once, each in ranges.bytes(i, j, way)]
            if (group.end is None and s + 1 == count) or any(x > y * (1 + SLACK) for x, y in sizes):
                faults.append(f"stage {s}: {float(max(sizes)[0]):.0f} bytes, or rows that lack")
            # under Metis's rule the last one is of all devices in sum
            costs.append((seconds, max(x for x, _ in sizes[: len(sizes) - self.plans["summed"]])))
            peaks.append(most)
        times = [seconds for seconds, _ in costs]
        total = (B - 2 + part) * max(times) + sum(times) + extra
        return total + sum(map(max, zip(*peaks, strict=True))), costs, faults


def turns(hops, dp, pieces):
    """Return (seconds, seconds per byte) of a ring of dp ranks over these hops, the slowest of
    which counts."""
    once, per_byte = (max(hop[k] for hop in hops) for k in (0, 1))
    return 2 * (dp - 1) * once, Fraction(2 * (dp - 1), dp * pieces) * per_byte


def powers(limit):
    """Powers of two up to a limit."""
    return [1 << bit for bit in range(limit.bit_length())]


def halves(samples):
    """The powers of two that add up to a number, the largest first."""
    return [x for x in reversed(powers(samples)) if samples & x]


# ---- plans of layers: seconds and memory of a plan -----------------------------------------------


class Ranges:
    """What a group takes and holds of layers [i, j): exact, or (whole) in 1 / Q ps and bytes that
    are rounded down."""

    def __init__(self, group, part, whole):
        self.group, self.part, self.whole = group, part, whole
        self.of = (lambda x: down(x, Q * PS)) if whole else (lambda x: x)
        self.peaks = [(self.of(once), [sums(x, self.of) for x in rows])
                      for once, rows in group.peaks]  # fmt: skip
        self.known: Table = {}

    def rows(self, again):
        """Return the sums of the group's rows, with a recomputation."""
        if again not in self.known:
            of, whole, byte = self.of, self.whole, down if self.whole else (lambda x: x)
            loads, last, memory = self.group.rows[again]
            self.known[again] = (
                [sums(x, of) for x in loads], [sums(x, of) for x in last],
                [(byte(limit) + whole + down(limit * SLACK) * whole, sums(fixed, byte),
                  sums(each, byte), [byte(x) for x in running])
                 for limit, fixed, each, running in memory],
            )  # fmt: skip
        return self.known[again]

    def _slowest(self, column, i, j, way):
        again, c = way
        plain = self.rows("none")[column]
        if again == "none":
            return max([x[j] - x[i] for x in plain])
        pairs = zip(self.rows(again)[column], plain, strict=True)
        return max([x[c] - x[i] + y[j] - y[c] for x, y in pairs])

    def time(self, i, j, way):
        """Seconds of a micro-batch, without messages. way: layers before which one are recomputed,
        and how."""
        return self._slowest(0, i, j, way)

    def once(self, i, j):
        """Return those of them that are the same with all recomputations."""
        return [once + max([x[j] - x[i] for x in rows]) for once, rows in self.peaks]

    def most(self, i, j, way, took):
        """Return the seconds of which an iteration has the most of all its stages, once each.
        took: its time."""
        found = self.once(i, j)
        if self.rows("none")[1]:
            # rounded up, if at all
            full = self.part * (took + (j - i) * self.whole)
            busy = self._slowest(1, i, j, way) - (-down(-full) if self.whole else full)
            found.append(max(busy, 0))
        return found

    def bytes(self, i, j, way):
        """Yield (limit, bytes, bytes for each micro-batch in flight) of each kind of replica."""
        again, c = way
        for one, plain in zip(self.rows(again)[2], self.rows("none")[2], strict=True):
            limit, (fixed, each, running), (more, further, others) = one[0], one[1:], plain[1:]
            once = fixed[c] - fixed[i] + more[j] - more[c]
            once += max((*running[i:c], *others[c:j]))
            yield limit, once, each[c] - each[i] + further[j] - further[c]

    def held(self, i, j, way):
        """Return the micro-batches in flight that fit, at most."""
        found = UNLIMITED
        for limit, once, each in self.bytes(i, j, way):
            room = limit - once
            found = min(found, -1 if room < 0 else room // each if each else found)
        return found


def sums(row, of):
    """Return the sums of the first numbers of a row: of none, one ... all."""
    found = [of(Fraction(0))]
    for x in row:
        found.append(found[-1] + of(x))
    return found


def judge_layers(costs, plans, cases, plan):
    """Return (seconds of an iteration, [(seconds, bytes) per stage], faults) of a plan, exactly."""
    nothing, stages, listed = Fraction(0), [], get(plan, "stages", list)
    B, position, seen = get(plan, "micro_batches", int, 1, plans["batch"]), 0, list[int]()
    if get(plan, "global_batch", int, 1, 1 << 40) != plans["batch"] or B not in cases:
        return nothing, [], [f"{B} micro-batches of this batch are none of the set"]
    place = [(node, kind) for node, (kind, size) in enumerate(plans["nodes"]) for _ in range(size)]
    for s, stage in enumerate(listed):
        start, stop = get(stage, "start", int, 0), get(stage, "stop", int, 0, costs.layers)
        shares = [typed(x, "samples", int, 0, 1 << 40) for x in get(stage, "samples", list)]
        devices = [typed(x, "devices", int, 0, len(place) - 1) for x in get(stage, "devices", list)]
        tp = get(stage, "tp", int, 1) if isinstance(stage.get("tp"), int) else 0
        if start != position or start >= stop or tp * len(shares) != len(devices) or not shares:
            return nothing, [], [f"stage {s}: layers {start} to {stop} on {len(devices)} devices"]
        way = recomputed(stage, start, stop, plans["ways"])
        if way is None:
            return nothing, [], [f"stage {s}: its recomputation is none of the set"]
        position, seen = stop, seen + devices
        replicas = [devices[r : r + tp] for r in range(0, len(devices), tp)]
        stages.append((start, stop, shares, replicas, way))
    faults = []
    if position != costs.layers or len(stages) > plans["max_stages"]:
        faults.append(f"{position} layers in {len(stages)} stages")
    order = list(dict.fromkeys(place[d][1] for d in seen))
    ranks = [d for kind in order for d, (_, other) in enumerate(place) if other == kind]
    whole = plans["by_rank"]
    if len({*seen}) < len(seen) or (whole and (seen != ranks or len(ranks) < len(place))):
        faults.append("a device is used twice, or not as the set has it")
    if faults:
        return nothing, [], faults
    found, first, seats = [], 0, []
    known = {} if whole else {x.name: x for x in costs.groups(B, cases[B][0], ())}
    for s, (_, _, shares, replicas, _) in enumerate(stages):
        tp, size = len(replicas[0]), sum(map(len, replicas))
        types = [place[d][1] for replica in replicas for d in replica]
        if whole:
            span = first, first + size
            every = costs.metis_groups(
                types, tp, costs.batch(B)[0], span, [place[d][1] for d in seen]
            )
            group = next((x for x in every if x.name == (span, tp, tuple(shares))), None)
        else:
            own: Table = {}
            for r, x in zip(replicas, shares, strict=True):
                own.setdefault(place[r[0]][1], []).append(x)
            name = tuple((kind, tp, tuple(sorted(x))) for kind, x in sorted(own.items()))
            alike = all(len({place[d] for d in r}) == 1 for r in replicas)
            group = known.get(name) if alike and packed(plans, replicas, place) else None
        if group is None:
            return nothing, [], [f"stage {s}: a group, shares or places that are none of the set"]
        found.append(group)
        first += size
        seats.append([(place[r[0]][0], len(r), x) for r, x in zip(replicas, shares, strict=True)])
    return costs.judged(B, stages, found, seats)


def recomputed(stage, start, stop, ways):
    """Return (how, before which layer) a stage's layers are recomputed; None: none of the set."""
    said = stage.get("recompute", {})
    known = {
        "none": {},
        "selective": {"granularity": "selective", "modules": ["core_attn"]},
        "full": {"granularity": "full", "method": "uniform", "layers": 1},
    }
    for way in ways:
        if said == known.get(way):
            return (way, stop) if said else ("none", start)
    count = said.get("layers") if isinstance(said, dict) and "block" in ways else 0
    block = {"granularity": "full", "method": "block", "layers": count}
    if isinstance(count, int) and count > 0 and said == block:
        return "full", min(stop, max(start, 1) + count)
    return None


def packed(plans, replicas, place):
    """Tell whether of a stage's nodes of each type at most one has room for another replica."""
    seats, roomy = [place[r[0]] for r in replicas], []
    for node, kind in {*seats}:
        if (seats.count((node, kind)) + 1) * len(replicas[0]) <= plans["nodes"][node][1]:
            roomy.append(kind)
    return len(roomy) == len({*roomy})


# ---- plans of layers: bounds ---------------------------------------------------------------------


class Chain:
    """Pipelines of groups with one number of micro-batches, and one order of types in Metis's
    space: no plan of them takes less than `prove` says. Times in 1 / Q ps, rounded down.

    A stage is [first layer, group, tops, rest, micro-batches that it holds, priced sum], by the
    layer after it; tops: figures of which the most of all stages counts, `weights` times: its time,
    and what an iteration has once.
    """

    def __init__(self, costs, plans, B, case, order):
        (several, prices), (S, last) = case, costs.batch(B)
        part = Fraction(last, S)
        self.costs, self.plans, self.B = costs, plans, B
        self.weight, self.n = B - 2 + part, costs.layers
        self.groups = list(costs.groups(B, several, order))
        self.ranges = [Ranges(group, part, True) for group in self.groups]
        self.capacity = () if order else (*plans["counts"], *(x for _, _, x in plans["seats"]))
        # of each vector of prices, what every group pays, and all devices
        self.priced = [
            ([sum(map(operator.mul, own, group.use)) for group in self.groups],
             sum(map(operator.mul, own, self.capacity)))
            for own in [row[1:] for row in prices] or [[0] * len(self.capacity)]
        ]  # fmt: skip
        self._sent: Table = {}
        self._ways: Table = {}
        self.all_ranks = sum(plans["counts"]) if order else 0

    def needs(self, behind):
        """Micro-batches in flight with so many stages after."""
        return min(behind + 1, self.B)

    def sent(self, g, to, cut):
        """Return (time, rest) that sending adds."""
        key = g, to, cut
        if key not in self._sent:
            self._sent[key] = tuple(
                down(x, Q * PS) for x in self.costs.send(self.groups[g], self.B, to, cut)
            )
        return self._sent[key]

    def ways(self, g, state):
        """Return [(state, where the next one is)] of a group before a state; None: the last one."""
        key = g, state
        if key not in self._ways:
            group = self.groups[g]
            if state is None:
                fits = group.after == self.all_ranks if self.all_ranks else True
                self._ways[key] = [(group.state, None)] if fits else []
            else:
                self._ways[key] = list(self.costs.follow(group, state))
        return self._ways[key]

    def stages(self, longest, target):
        """List the stages that take at most so long, but for those that prices leave out before
        memory is looked at."""
        bare: list[Any] = [[] for _ in range(self.n + 1)]
        for g, (group, ranges) in enumerate(zip(self.groups, self.ranges, strict=True)):
            end = self.n if group.end is not None else self.n - 1
            rest = down((group.end or 0) * self.B * Q * PS)
            for i in range(end):
                for j in range(i + 1, end + 1):
                    took = ranges.time(i, j, ("none", i))
                    if took > longest:
                        break
                    bare[j].append((i, g, (took, *ranges.once(i, j)), rest * (j == self.n)))
        dims = 1 + len(self.groups[0].peaks)
        _, bare, _ = self.left(bare, (0,) * dims, (longest, *[NEVER] * (dims - 1)), target)
        return [[(i, g, tops, rest, held) for i, g, _, rest in row
                 for tops, held in self.runs(self.ranges[g], i, j, longest)]
                for j, row in enumerate(bare)]  # fmt: skip

    def runs(self, ranges, i, j, longest):
        """Return [(tops, micro-batches held)] of a stage by what it recomputes: in the order of how
        much, without those that hold no more than a faster one."""
        ways, found = self.plans["ways"], list[Any]()
        least, most = self.needs(int(j < self.n)), self.needs(self.n - j)
        every = [("none", i)] if "none" in ways else []
        if "block" in ways:
            every += [("full", c) for c in range(max(i, 1) + 1, max(min(j, self.n - 1), i) + 1)]
        every += [(way, j) for way in ("selective", "full") if way in ways]
        for way in every:
            held, took = ranges.held(i, j, way), ranges.time(i, j, way)
            if held < least or took > longest:
                continue
            tops = (took, *ranges.most(i, j, way, took))
            if any(x >= held and all(map(operator.le, y, tops)) for y, x in found):
                continue
            found.append((tops, held))
            if held >= most and way[0] == "none":
                break  # to recompute takes longer and frees what nothing needs
        return found

    def prove(self, target):
        """Return what no plan takes less than, at most the target."""
        constant = down(self.costs.constant(self.B) * Q * PS)
        if not self.groups:
            return target
        # what the last stage takes besides is measured, and may be less than nothing
        gained = min((0, *(group.end for group in self.groups if group.end is not None)))
        longest = down((target - constant - gained * self.B * Q * PS) / (self.weight + 1))
        stages = self.stages(longest, target - constant)
        every = [x for row in stages for x in row]
        if not every:
            return target
        dims = len(every[0][2])
        # messages add to the time of a stage, so that the longest one says nothing of it
        low = (0,) * dims
        high = (longest, *(max(x[2][d] for x in every) for d in range(1, dims)))
        return constant + self.boxes(stages, low, high, target - constant)

    def value(self, tops, low):
        """Seconds of the figures of which the most counts."""
        times, of = self.weight.numerator, self.weight.denominator
        return times * max(tops[0], low[0]) // of + sum(map(max, tops[1:], low[1:]))

    def boxes(self, stages, low, high, target):
        """Return a bound on plans below the target whose figures are from low to high: boxes of
        these are split, the one with the least bound first, until labels settle them."""
        heap: list[Any] = [(0, 0, low, high, stages, range(len(self.priced)))]
        serial, left, best = 0, STAGES, target
        while heap and heap[0][0] < best and left > 0:
            least, _, low, high, stages, near = heapq.heappop(heap)
            bound, stages, high = self.left(stages, low, high, best)
            bound = max(bound, least)
            size = sum(map(len, stages))
            left -= size + 1
            spread = [self.weight * (high[0] - low[0]), *map(operator.sub, high[1:], low[1:])]
            wide, exact = [x * SPLITS > target for x in spread], bound >= best
            if not (exact or (wide[0] and size > FEW)):
                tried = list[Any]()
                for n in near:
                    found, exact, looked = self.labels(stages, low, high, n, best)
                    tried.append((found, n))
                    bound, left = max(bound, found), left - size - looked
                    if exact:
                        break
                n = max(tried)[1]
                near = range(max(n - 1, 0), min(n + 2, len(self.priced)))
            if exact or not any(wide):
                best = min(best, bound)
                continue
            d = 0 if wide[0] and size > FEW else spread.index(max(spread))
            middle, serial = (low[d] + high[d]) // 2, serial + 2
            below, above = (*high[:d], middle, *high[d + 1 :]), (*low[:d], middle, *low[d + 1 :])
            heapq.heappush(heap, (bound, serial, low, below, stages, near))
            heapq.heappush(heap, (bound, serial + 1, above, high, stages, near))
        return min(best, heap[0][0]) if heap else best

    def left(self, stages, low, high, target):
        """Return (a bound on the plans of a box, the stages of those below the target, the highest
        figures of these): whatever sending takes, by prices of devices alone, one after another."""
        bound = -NEVER
        for priced, budget in self.priced:
            costs = [[(x[2][0] + x[3] + priced[x[1]], x) for x in row
                      if all(map(operator.le, x[2], high))] for row in stages]  # fmt: skip
            before, after = [0] + [NEVER] * self.n, [NEVER] * self.n + [0]
            for v in range(1, self.n + 1):
                before[v] = min((before[x[0]] + cost for cost, x in costs[v]), default=NEVER)
            bound = max(bound, before[self.n] + self.value(low, low) - budget)
            if bound >= target:
                return target, [], high
            for v in range(self.n, 0, -1):
                for cost, x in costs[v]:
                    after[x[0]] = min(after[x[0]], after[v] + cost)
            stages = [[x for cost, x in row
                       if before[x[0]] + cost + after[v] - budget + self.value(x[2], low) < target]
                      for v, row in enumerate(costs)]  # fmt: skip
            every = [x[2] for row in stages for x in row]
            if not every:
                return target, [], high
            highest = [max(x) for x in zip(*every, strict=True)]
            high = (high[0], *map(min, high[1:], highest[1:]))
        return bound, stages, high

    def labels(self, stages, low, high, number, target):
        """Return (a bound on the plans of a box, whether it is the time of one or the target, how
        many labels): pipelines from the last layer on, in the order of their bounds."""
        largest = max((x[4] for row in stages for x in row if x[4] < UNLIMITED), default=0)
        levels = min(LEVELS, self.plans["max_stages"] - 1, self.B - 1, largest)
        known: Table = {}
        priced, budget = self.priced[number]

        def moves(v, state, behind):
            """Return (least priced sum of all stages before v, [(what more a stage takes, stage,
            state, its time, its rest)])."""
            key = v, state, min(behind, levels)
            if key in known:
                return known[key]
            need, found, least = self.needs(key[2]), [], NEVER
            for x in stages[v]:
                i, g, tops, rest, held = x
                if held < need:
                    continue
                for to, where in self.ways(g, state):
                    message, more = self.sent(g, where, v) if where else (0, 0)
                    seconds, more = tops[0] + message, more + rest
                    if seconds > high[0] or (i == 0 and self.all_ranks and to[2]):
                        continue
                    value = seconds + more + priced[g] + (moves(i, to, behind + 1)[0] if i else 0)
                    if value < NEVER:
                        found.append((value, x, to, seconds, more))
                        least = min(least, value)
            found.sort(key=operator.itemgetter(0))
            known[key] = least, [(value - least, *x) for value, *x in found]
            return known[key]

        least = moves(self.n, None, 0)[0]
        nothing = (0,) * len(low)
        heap = [(self.value(low, low) + least - budget, 0, self.n, None, 0, nothing, 0, 0,
                 (0,) * len(self.capacity))]  # fmt: skip
        seen: Table = {}
        serial = 0
        for looked in range(LOOKS):
            if not heap or heap[0][0] >= target:
                return target, True, looked
            bound, _, v, state, behind, tops, total, paid, use = heapq.heappop(heap)
            if v == 0:
                return bound, True, looked
            figures = (behind, *tops, total, *use)
            rivals = seen.setdefault((v, state), [])
            if any(all(map(operator.le, x, figures)) for x in rivals):
                continue
            rivals.append(figures)
            least, ways = moves(v, state, behind)
            for loss, (i, g, own, _, held), to, seconds, rest in ways:
                if paid + least + loss - budget + self.value(tops, low) >= target:
                    break
                now = tuple(map(operator.add, use, self.groups[g].use))
                if (
                    held < self.needs(behind)
                    or behind == self.plans["max_stages"]
                    or any(map(operator.gt, now, self.capacity))
                ):
                    continue
                made = (max(tops[0], seconds), *map(max, tops[1:], own[1:]))
                spent, charged = total + seconds + rest, paid + seconds + rest + priced[g]
                value = charged + moves(i, to, behind + 1)[0] - budget if i else spent
                value += self.value(made, low)
                if value < target:
                    serial += 1
                    one = (value, serial, i, to, behind + 1, made, spent, charged, now)
                    heapq.heappush(heap, one)
        return min(target, heap[0][0]) if heap else target, not heap, LOOKS


# ---- training runtimes ---------------------------------------------------------------------------


DEGREES = ("tp", "cp", "ep", "etp", "dp", "pp", "micro_batch", "order")
ONLY = (*DEGREES[:3], "dp", "pp", "micro_batch_size", "virtual_stages")
RANK_ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
REMAINDERS = ("first", "last", "alone")
LOOKS_OF_CUTS = 3_000  # partial layouts of a variant, at most
SIMULATED = 400_000  # passes of a variant's pipelines, at most
PASSES = 4  # of embedding and output
MOST_STAGED = 256  # ranks of a pipeline
BYTE, MORE = 1 << 20, 64  # parts of a byte in which memory is counted; bytes that a limit is up
CONTEXT, COMMUNICATOR = 600 * MIB, 250 * MIB  # outside of PyTorch: always, for a group of ranks
BLOCK, UNIFORM = "block", "uniform "  # the first layers of stages are computed again
FRAGMENTS = 20  # one part in so many of the peak is lost between tensors
# Settings that decide nothing without replicas (r), or pp, tp, cp, ep, ep etp above 1; those that
# follow from these; and the rules by which runtimes make them of degrees.
IDLE = {"sharding": "r", "instances": "r", "cp_comm": "c", "cp_inner": "c", "overlap_tensor": "t",
        "overlap_experts": "e", "dispatcher": "x"}  # fmt: skip
WITH = {"from_master": "r", "overlap_gradients": "r", "overlap_parameters": "r", "compiled": "t"}
TOLD: Table = {
    "megatron": {"sequence_parallel": lambda form, own: "t" in form},
    "torchtitan": {
        "sequence_parallel": lambda form, own: "t" in form,
        "overlap_gradients": lambda form, own: "p" not in form,
        "overlap_parameters": lambda form, own: True,
        "from_master": lambda form, own: "r" in form and own["sharding"] != "optimizer",
        "sharding": lambda form, own: None if "r" in form else "none",
        "instances": lambda form, own: None if "r" in form else 1,
    },
    "deepspeed": {
        "sequence_parallel": lambda form, own: "t" in form and "p" in form,
        "overlap_gradients": lambda form, own: "p" not in form and own["sharding"] != "none",
        "sharding": lambda form, own: None if "r" in form else "optimizer",
    },
}
USUAL = {  # of what a model's text leaves out
    "": {"gated": False, "bias": True, "qkv_bias": False, "norm": "layernorm", "tied": True,
         "positions": "learned", "dropout": 0.1, "qk_norm": False, "clamp": 0, "sinks": False,
         "projection_bias": False, "output_bias": False, "norm_at": "input", "qk_norm_of": "head",
         "attention_gate": False},
    "experts": {"shared_ffn": 0, "groups": 1, "top_groups": 0, "shared_gate": False, "latent": 0},
    "latent": {"query_rank": 0},
    "window": {"chunked": False},
}  # fmt: skip
KEPT = ("kept", "input", "embedding", "loss", "moment", "again", "chunk")  # of a layer, and ends
STATES = ("always", "step", "start", "second", "left")  # of a layer, and of the rest of a rank
ENDS = ("backward", "end", "stays", "reserved")


def set_of_jobs(record):
    """Read the set of training jobs that a proof is about."""
    found: Table = {
        key: get(record, key, int, 1, MOST_DEVICES)
        for key in ("devices", "devices_per_node", "max_tp", "max_cp", "max_stages")
    }
    found |= {
        "space": get(record, "space", str), "training": True,
        "batch": get(record, "global_batch", int, 1, 1 << 20),
        "micro_batches": wholes(record, "micro_batches", 1, 1 << 20),
        "limit": get(record, "memory_limit_bytes", int, 1, MOST_BYTES),
        "layers": get(record, "layers", int, 1, 1 << 9),
        "sequence": get(record, "sequence", int, 1, 1 << 40),
        "kv_heads": get(record, "kv_heads", int, 0, 1 << 20),
        "divided": [typed(x, "divided_by_tp", int, 1, 1 << 40)
                    for x in get(record, "divided_by_tp", list)],
        "experts": [typed(x, "experts", int, 1, 1 << 30) for x in get(record, "experts", list)],
        "experts_by_tp": get(record, "experts_by_tp", bool),
        "orders": get(record, "orders", int, 1, len(RANK_ORDERS)),
        "asked": get(record, "asked", str), "only": {},
        "choices": [typed(x, "choices", str) for x in get(record, "choices", list)],
        "recompute": [typed(x, "recompute", str) for x in get(record, "recompute", list)],
        **{key: get(record, key, bool) for key in ("blocks", "interleaves")},
    }  # fmt: skip
    if len(found["experts"]) not in (0, 2):
        raise RefusedError("experts: expected their number and width, or nothing")
    if not found["choices"] or not (found["recompute"] or found["blocks"]):
        raise RefusedError("choices, recompute: found none, expected some")
    if found["devices"] % found["devices_per_node"]:
        raise RefusedError(f"devices: {found['devices']} are no whole nodes")
    for key in get(record, "only", dict):
        if key not in ONLY:
            raise RefusedError(f"only: not checked: {shown(key)}")
        found["only"][key] = set(wholes(record["only"], key, 1, 1 << 20))
    return found


def divisors(number):
    """Return the divisors of a number, ascending."""
    low = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)})


def degrees_of(plans):
    """Yield all degrees that keep the rules, in the order of `DEGREES`."""

    def allows(key, value):
        return key not in plans["only"] or value in plans["only"][key]

    batch, devices, counts = plans["batch"], plans["devices"], set(plans["micro_batches"])
    most, kv = min(plans["layers"] + 2, plans["max_stages"]), plans["kv_heads"]
    for tp in divisors(plans["devices_per_node"]):
        if tp > plans["max_tp"] or any(n % tp for n in plans["divided"]) or not allows("tp", tp):
            continue
        if kv and kv % tp and tp % kv:
            continue
        for cp in divisors(devices // tp):
            long = plans["sequence"] % (tp * cp) or (cp > 1 and plans["sequence"] % (2 * cp))
            if cp > plans["max_cp"] or long or not allows("cp", cp):
                continue
            for pp in divisors(devices // (tp * cp)):
                dp = devices // (tp * cp * pp)
                if pp > most or batch % dp or not (allows("pp", pp) and allows("dp", dp)):
                    continue
                for size in divisors(batch // dp):
                    if batch // (dp * size) not in counts or not allows("micro_batch_size", size):
                        continue
                    for ep, etp in expert_degrees(plans, tp, tp * cp * dp):
                        if not allows("ep", ep):
                            continue
                        yield tp, cp, ep, etp, dp, pp, size, 0
                        alike = pp == 1 or dp == 1 or (etp or tp) * ep != tp * cp
                        if plans["orders"] > 1 and not alike:
                            yield tp, cp, ep, etp, dp, pp, size, 1


def expert_degrees(plans, tp, rest):
    """Return the possible (ep, etp) of a stage of so many ranks."""
    if not plans["experts"]:
        return [(1, 0)]
    count, width = plans["experts"]
    return [
        (ep, etp) for etp in sorted({1, tp} if plans["experts_by_tp"] else {1})
        if width % etp == 0 and rest % etp == 0 for ep in divisors(gcd(count, rest // etp))
    ]  # fmt: skip


class Jobs:
    """The model, the device and the settings of a certificate, of which figures of all degrees are
    computed."""

    name = "training"

    def __init__(self, record, plans):
        if "job" not in record:
            raise RefusedError("job: missing; an older release wrote figures instead: solve again")
        self.layers = computed(layer_costs().Costs, record["job"], plans["devices_per_node"])
        agree_model(self.layers, plans)
        self.layers.ways = priced(plans)
        plans["pattern"] = self.layers.pattern
        self.forms = {}
        for row in get(record["job"], "forms", list):
            choice, form, number = row if isinstance(row, list) and len(row) == 3 else (-1,) * 3
            typed(number, "forms", int, 0, len(self.layers.settings) - 1)
            self.forms[typed(choice, "forms", int, 0), typed(form, "forms", str)] = number
        agree_settings(self.layers.settings, self.forms, plans["space"])

    def number(self, key, choice):
        """Return the number of the settings that a choice has with degrees."""
        tp, cp, ep, etp, dp, pp, _, _ = key
        replicated = dp * cp > 1 or (etp and tp * cp * dp > ep * etp)
        holds = (replicated, pp > 1, tp > 1, cp > 1, ep > 1, ep * etp > 1)
        form = "".join(letter for letter, one in zip("rptcex", holds, strict=True) if one)
        if (choice, form) not in self.forms:
            raise RefusedError(f"forms: choice {choice} with degrees {form or 'of 1'}: missing")
        return self.forms[choice, form]

    def said(self, choice):
        """Return the settings of the first choice, or how another one's differ from these."""
        found, every = {}, self.layers.settings
        for (one, form), number in self.forms.items():
            own, first = vars(every[number]), vars(every[self.forms.get((0, form), 0)])
            for key in own.keys() - {"own", "place", "level", "w"} if one == choice else ():
                if own[key] != first[key] or (choice == 0 and isinstance(own[key], str)):
                    found[key, own[key]] = f"{key} {own[key]}"
        return ", ".join(found[key] for key in sorted(found, key=str)) or "none but the first"


def agree_settings(settings, forms, space):
    """Refuse settings of a choice that are not what the runtime makes of it with degrees: what
    these leave idle is as with any other choice, and nothing else differs."""
    known: Table = {}
    for (choice, form), number in forms.items():
        own = vars(settings[number])
        told = {name: rule(form, own) for of, rules in TOLD.items() if space.startswith(of)
                for name, rule in rules.items()}  # fmt: skip
        for name in own.keys() - {"own", "place", "level", "w"}:
            letters, idle = IDLE.get(name, ""), name in IDLE and IDLE[name] not in form
            key = name, *([] if idle else [choice, *(x in form for x in WITH.get(name, letters))])
            expected = told.get(name)
            if expected is None:
                expected = known.setdefault(key, own[name])
            if own[name] != expected:
                raise RefusedError(f"settings: choice {choice} with degrees {form or 'of 1'}: "
                                   f"{name}: found {own[name]}, expected {expected}")  # fmt: skip


@cache
def layer_costs():
    """Return the module with the costs of layers: the file beside this one."""
    path = Path(__file__).with_name("costs.py")
    spec = spec_from_file_location("costs_of_layers", path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise RefusedError(f"{path.name}: missing beside {Path(__file__).name}, expected for jobs")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def computed(make, *of):
    """Return what is computed of figures of the file; those that give no number are refused."""
    try:
        return make(*of)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RefusedError(f"job: {type(error).__name__}: {str(error)[:120]}") from None


@cache
def spans(pattern):
    """Return what tells the layers of each kind from one to another. pattern: the kind of every
    layer."""
    kinds = range(max(pattern) + 1)
    return cache(lambda start, stop: tuple(pattern[start:stop].count(kind) for kind in kinds))


def agree_model(layers, plans):
    """Refuse a set whose degrees are not those that divide the model."""
    model, e = layers.model, layers.model.experts
    inner = {e.shared_ffn} - {0} if e else set()
    inner |= {model.ffn for one in layers.models if not one.experts}
    said = {
        "layers": model.layers, "sequence": model.sequence,
        "kv_heads": 0 if model.latent else model.kv_heads,
        "divided": sorted({model.heads} | inner), "experts": [e.count, e.ffn] if e else [],
        "experts_by_tp": not model.bias,
    }  # fmt: skip
    for key, expected in said.items():
        if plans[key] != expected:
            raise RefusedError(f"{key}: found {plans[key]}, expected {expected} of the model")


def parts_of(keys, sizes):
    """Return bytes by name in parts of a byte, to the nearest one."""
    return dict(zip(keys, (round(x * BYTE) for x in sizes), strict=True))


def read_jobs(records, plans, jobs):
    """Read the choices of settings that go with all degrees; each of these must have a record."""
    found: Table = {key: [] for key in degrees_of(plans)}
    if len(records) != len(found):
        what = "missing" if len(records) < len(found) else "fewer"
        expected = f"{len(found)}: degrees of the set are {what}"
        raise RefusedError(f"cases: found {len(records)}, expected {expected}")
    for key, choices in zip(sorted(found), records, strict=True):
        listed = [typed(x, "choice", int, 0, len(plans["choices"]) - 1)
                  for x in typed(choices, "cases", list)]  # fmt: skip
        if len({*listed}) < len(listed):
            raise RefusedError("cases: a choice twice with the same degrees")
        found[key] = [Job(plans, key, choice, jobs) for choice in listed]
    return found


class Job:
    """Plans of one choice of degrees and settings, whose figures are computed of the model, the
    device and the settings; a pair of figures is (exact, rounded down), a stage is (its layers of
    each kind, those that are computed again)."""

    def __init__(self, plans, key, choice, jobs):
        self.tp, self.cp, self.ep, self.etp, self.dp, self.pp, self.size, self.order = key
        self.plans, self.choice, self.L = plans, choice, plans["layers"]
        self.M, self.span = plans["batch"] // (self.dp * self.size), spans(plans["pattern"])
        self.all = self.span(0, self.L)  # layers of each kind
        groups = (self.tp, self.pp, self.dp * self.cp, self.cp, self.ep)
        self.outside = BYTE * (CONTEXT + COMMUNICATOR * sum(size > 1 for size in groups))
        self.room = BYTE * (plans["limit"] + MORE)
        self.number = jobs.number(key, choice)
        self.own = jobs.layers.settings[self.number]
        self.costs = computed(jobs.layers.job, key, self.number)
        self.known: Table = {}
        self.memory: Table = {}

    # ---- figures

    @cached_property
    def least(self):
        """Picoseconds of a micro-batch through all layers, and through one, at least."""
        return [*map(ps, computed(self.costs.least))]

    @cached_property
    def kinds(self):
        """Of each rank the first one with the same links."""
        return computed(self.costs.kinds)

    def pairs(self, make):
        """Return the figures of every rank, exactly and rounded down. make: of a kind of rank."""
        rows = {kind: computed(make, kind) for kind in {*self.kinds}}
        whole = {kind: [ps(x) for x in row] for kind, row in rows.items()}
        return [rows[kind] for kind in self.kinds], [whole[kind] for kind in self.kinds]

    @cached_property
    def chain(self):
        """Seconds of the passes of embedding and output; of a layer of each kind, and once more."""

        def chain(kind):
            found = self.costs.chain(kind)
            ends = [found.pop(name) for name in ("embedding", "output")]
            row = [x for one in ends for x in (one.forward, one.back)]
            for one in found.values():
                row += one.forward, one.back, *one.again
            return row

        return self.pairs(chain)

    @cached_property
    def sync(self):
        """Seconds of synchronisation: fixed, of embedding and output, of a layer of each kind."""

        def sync(kind):
            fixed, each = self.costs.sync(kind)
            return [fixed, each.pop("embedding"), each.pop("output"), *each.values()]

        return self.pairs(sync)

    @cached_property
    def sends(self):
        """Seconds from each rank to the next one and back."""
        found = computed(self.costs.sends)
        return found, [ps(x) for x in found]

    @cached_property
    def constant(self):
        """Seconds of an iteration of every layout."""
        found = computed(self.costs.constant)
        return found, ps(found)

    def states(self, several):
        """Return the bytes of a layer of each kind, and what those of a rank besides are."""
        if several in self.memory:
            return self.memory[several]
        states = computed(self.costs.states, several)
        ranks = (0, min(1, self.pp - 1), self.pp - 1)

        @cache
        def edge(place, there):
            rank = ranks[place]
            found = computed(self.costs.edge, there, rank, several, states)
            return computed(parts_of, STATES + ENDS, found)

        self.memory[several] = [computed(parts_of, STATES, one) for one in states], edge
        return self.memory[several]

    @cached_property
    def holds(self):
        """Whether the states of all layers fit the ranks, with one stage on each."""
        own = sum(n * x["always"] for n, x in zip(self.all, self.states(False)[0], strict=True))
        return own <= self.pp * self.room

    def row(self, way, several):
        """Return the bytes of a recomputation, with one stage on each rank or several."""
        key = BLOCK if isinstance(way, int) else way, several
        if key not in self.memory:
            own = [computed(parts_of, KEPT, computed(one.kept, key[0]).values())
                   for one in self.costs.layers]  # fmt: skip
            self.memory[key] = own, *self.states(several)
        return self.memory[key]

    @cached_property
    def alike(self):
        """Of each rank the first one that takes as long with the same layers."""
        first: Table = {}
        return [r if r in (0, self.pp - 1) else first.setdefault(kind, r)
                for r, kind in enumerate(self.kinds)]  # fmt: skip

    def stage(self, start, stop, way=0):
        """Return a stage of the layers from one to another."""
        own = self.span(start, stop)
        return own, self.span(start, min(stop, start + way)) if isinstance(way, int) else own

    def each(self, rank, way, low=1):
        """Return seconds of a rank's own embedding and output, both ways; of a layer of each kind,
        both ways and once more."""
        key = self.alike[rank], isinstance(way, int) or way, low
        if key not in self.known:
            names, row = priced(self.plans), self.chain[low][rank]
            row = row if low else [Fraction(x) for x in row]
            width, name = 2 + len(names), "uniform 1" if isinstance(way, int) else way
            place = 2 + names.index(name) if name in names else None  # nothing is computed again
            there = (rank == 0,) * 2 + (rank == self.pp - 1,) * 2
            self.known[key] = (
                [x * y for x, y in zip(row, there, strict=False)],
                [
                    (row[k], row[k + 1], row[k + place] if place else 0)
                    for k in range(PASSES, len(row), width)
                ],
            )
        return self.known[key]

    def passes(self, rank, stage, way, low=1, ends=(1, 1)):
        """Seconds of both passes of a micro-batch through a stage. ends: whether embedding and
        output are there."""
        (ef, eb, of, ob), each = self.each(rank, way, low)
        first, last = ends
        forward, backward = first * ef + last * of, first * eb + last * ob
        for n, again, (f, b, more) in zip(*stage, each, strict=True):
            forward, backward = forward + n * f, backward + n * b + again * more
        return forward, backward

    def synced(self, rank, counts, low=1):
        """Seconds of a rank's synchronisation."""
        row = self.sync[low][rank]
        fixed, first, last, *each = row if low else [Fraction(x) for x in row]
        ends = fixed + (rank == 0) * first + (rank == self.pp - 1) * last
        return ends + sum(map(operator.mul, counts, each))

    def seconds(self, stages, way, low=1):
        """Seconds of an iteration with these stages, one after the other: in 1F1B, or interleaved
        with messages that travel while ranks compute."""
        pp, last = self.pp, len(stages) - 1
        passes = [self.passes(s % pp, x, way, low, (s == 0, s == last))
                  for s, x in enumerate(stages)]  # fmt: skip
        half = [x // 2 if low else Fraction(x) / 2 for x in self.sends[low]]
        synced = max(self.synced(r, self.layers_of(stages[r::pp]), low) for r in range(pp))
        every = *map(list, zip(*passes, strict=True)), half
        scale = lcm(*(x.denominator for row in every for x in row))
        run = one_by_one if len(stages) == pp else woven
        took = run(self.M, *([int(x * scale) for x in row] for row in every))
        if low:
            return took + synced + self.constant[1]
        return Fraction(took, scale) + synced + Fraction(self.constant[0])

    def layers_of(self, stages):
        """Return the layers of each kind of several stages."""
        return [*map(sum, zip(*(counts for counts, _ in stages), strict=True))]

    def has(self, settings):
        """Whether a plan has these settings."""
        every: Table = {}
        plain = {**settings, "turn": 0}  # as `judge_job` takes it: none, or pp
        for part in (plain, *(get(settings, name, dict) for name in ("optimizer", "kernels"))):
            if any(layer_costs().unread(part, vars(self.own))):
                return False
            every |= part
        return all(every.get(key) == value for key, value in vars(self.own).items()
                   if key not in ("own", "place", "level", "w"))  # fmt: skip

    # ---- memory

    def needed(self, rank, stages, way):
        """Bytes of a rank with these stages, in parts of a byte. The formula stands in
        docs/reference/costs.md."""
        row, total = self.row(way, len(stages) > 1), self.layers_of(stages)
        own, chunk, first = row[0], 1, way if isinstance(way, int) else 0
        if isinstance(way, str) and way.startswith(UNIFORM):
            chunk, first = int(way.removeprefix(UNIFORM)), self.L
        plain, again = [], []
        for counts, _ in stages:
            left, some = first, []
            for n in counts:
                some.append(min(n, left))
                left -= some[-1]
            again.append(some)
            plain.append(sum((n - m) * x["kept"]
                             for n, m, x in zip(counts, some, own, strict=True)))  # fmt: skip
        kept = [x + -(-sum(some) // chunk) * own[0]["input"]
                for x, some in zip(plain, again, strict=True)]  # fmt: skip
        kept[0] += (rank == 0) * own[0]["embedding"]
        mixes = held_mixes(self.M, len(stages), self.pp, self.pp - 1 - rank)
        most = max(sum(map(operator.mul, mix, kept)) for mix in mixes)
        given = min((x for x, some in zip(plain, again, strict=True) if any(some)), default=0)
        layer = once = 0
        for x, n, m in zip(own, total, map(sum, zip(*again, strict=True)), strict=True):
            layer = max(layer, x["moment"] * (m < n))
            once = max(once, m and x["again"] + (min(chunk, m) - 1) * x["chunk"])
        moments = most + layer, most - given * (once > 0) + once
        return self.peak(rank, row, total, most, moments, sum(kept), max(layer, once))

    def peak(self, rank, row, counts, most, moments, kept, longest):
        """Return the bytes of a rank. most: kept by all micro-batches, kept: by one. moments: what
        there is while a layer goes back. longest: of one of them, above what is kept."""
        own, states, edge_of = row
        place = 0 if rank == 0 else 2 if rank == self.pp - 1 else 1
        edge = edge_of(place, tuple(n > 0 for n in counts))
        held = {key: edge[key] + sum(n * x[key] for n, x in zip(counts, states, strict=True))
                for key in STATES}  # fmt: skip
        end = edge["end"]
        if edge["stays"]:
            end = max(end, longest + edge["backward"]) + max(0, held["left"])
        loss = own[0]["loss"] * (rank == self.pp - 1)
        moments = (x + edge["backward"] for x in moments)
        moment = max(most + loss, most - kept + end, held["step"], 0, *moments)
        peak = max(held["always"] + moment, held["start"], held["second"])
        return peak + peak // FRAGMENTS + edge["reserved"] + self.outside

    # ---- bounds

    @cached_property
    def most(self):
        """Stages of a rank, at most."""
        several = self.pp > 1 and self.plans["interleaves"] and self.M % self.pp == 0
        return (self.L + 2) // self.pp if several else 1

    def among(self, sizes, virtual):
        """Tell whether a layout with so many layers on each stage is one of the set."""
        pp, last, asked = self.pp, self.pp - 1, self.plans["only"].get("virtual_stages", {virtual})
        if virtual > self.most or virtual not in asked:
            return False
        if virtual == 1 or len(self.all) > 1:
            return virtual == 1 or min(sizes[1:-1]) == max(sizes[1:-1]) > 0
        own = [sizes[r::pp] for r in range(pp)]
        return any(
            all(x == spread(sum(x), virtual, way, r == 0, r == last) for r, x in enumerate(own))
            for way in REMAINDERS
        )

    def bound(self, target):
        """Return what no plan of the job takes less than, in picoseconds, at most the target."""
        whole, layer = self.least
        if self.M * max(whole // self.pp, -(-self.L // self.pp) * layer) >= target:
            return target
        if not self.holds:
            return target
        least = [f + b for f, b, _ in self.fastest(0)]
        work = self.M * sum(map(operator.mul, least, self.all)) // self.pp
        if work + self.constant[1] >= target:
            return target
        self.lightest, self.plain = max(1, min(least)), Table()
        self.passed = [0, *accumulate(map(least.__getitem__, self.plans["pattern"]))]
        self.plain[1] = self.reaches(0, target)
        if not self.plain[1] and self.most == 1:
            return target
        for way in (*self.plans["recompute"], *[1] * (self.plans["blocks"] and self.L > 1)):
            target = self.variants(way, target)
        return target

    def fastest(self, way):
        """Return (forward, backward, once more) of a layer of each kind on the fastest rank."""
        every = [self.each(r, way)[1] for r in {*self.alike}]
        return [[*map(min, zip(*kind, strict=True))] for kind in zip(*every, strict=True)]

    def reaches(self, way, target, few=1, many=1):
        """Tell whether 1F1B, or layouts with few to many stages on each rank, several, may take
        less than a target, if each rank takes all layers that it can: one that ends at the same
        layer takes no longer with more layers before it."""
        cuts = Cuts(self, few, REMAINDERS[1])  # with the fewest layers of ranks
        steps = [(f, b + more * isinstance(way, str)) for f, b, more in self.fastest(way)]
        f, b = ([0, *accumulate(step[k] for step in map(steps.__getitem__, self.plans["pattern"]))]
                for k in (0, 1))  # fmt: skip
        output, both = sum(self.each(self.pp - 1, way)[0][2:]), [*map(operator.add, f, b)]

        def taken(r, begin, held, stop):
            (ef, eb, of, ob), _ = self.each(self.alike[r], way)
            passes = f[stop] - f[begin] + ef + of, b[stop] - b[begin] + eb + ob
            once = self.synced(r, self.span(begin, stop))
            if many > 1:
                n = r and (stop - begin) // many
                more = self.repeated(r, stop - begin, way, few) if held else 0
                return once + self.M * (sum(passes) + more), ef + eb + n * both[1]
            rest = f[-1] - f[stop] + b[-1] - b[stop] + cuts.message[r] + output * (r < self.pp - 1)
            row = Rank._make((0, (), *passes, passes, passes, 0, 0, 0))
            return once + cuts.own(r, row, passes[0] + rest, passes[1] + rest), sum(passes)

        for held in (False, True)[: 1 + (many > 1)]:  # by time, then with memory as well
            begin, limit = 0, target - self.constant[1]
            for r in range(self.pp - 1):
                ends = range(begin, bisect_right(both, both[begin] + limit // self.M, begin))
                stop = begin - 1 + bisect_left(ends, (limit,), key=partial(taken, r, begin, held))
                if stop < begin:
                    return False
                begin, limit = stop, limit - taken(r, begin, held, stop)[1] - cuts.send[r]
            if taken(self.pp - 1, begin, held, self.L)[0] >= limit:
                return False
        return cuts.spare >= 0

    def repeated(self, rank, count, way, few):
        """Return the picoseconds of first layers that a rank of several stages computes again, so
        few that it may fit; NEVER: it does not. Other recomputations are part of its passes."""
        if isinstance(way, str):
            return 0 if self.least_needed(rank, count, way, 0, few) <= self.room else NEVER
        own, again = self.row(way, True)[0][0], min(count, few - 1)
        more = self.fastest(way)[0][2]

        def room_left(n):
            return self.room - self.least_needed(rank, count, way, n, few)

        if room_left(again) < 0:
            if own["input"] >= own["kept"] or room_left(count) < 0:
                return NEVER
            again = bisect_left(range(count + 1), 0, again, key=room_left)
        return again * more

    def least_needed(self, rank, count, way, again, few):
        """Bytes of a rank with so many layers in `few` stages or more, at least. Before its first
        backward pass it holds as many micro-batches as there are ranks of all its stages but the
        last one, and of that one for itself and each rank after it."""
        row, chunk = self.row(way, True), 1
        (own,) = row[0]
        if isinstance(way, str) and way.startswith(UNIFORM):
            chunk, again = int(way.removeprefix(UNIFORM)), count

        def kept(layers, repeated):
            return (layers - repeated) * own["kept"] + -(-repeated // chunk) * own["input"]

        others = count - -(-count // few)  # layers that are not in the last stage, at least
        one = kept(count, again) + (rank == 0) * own["embedding"]
        some = min(again, others) if own["input"] < own["kept"] else 0
        most = (self.pp - rank) * one + rank * (chunk == 1) * min(kept(others, some),
                                                                  kept(others, 0))  # fmt: skip
        moment = own["again"] + (min(chunk, count) - 1) * own["chunk"] if again else own["moment"]
        if isinstance(way, int):
            moment = min(own["moment"], own["again"])
        return self.peak(rank, row, (count,), most, (most + moment,), one, moment)

    def variants(self, way, target):
        """Bound 1F1B and interleaved 1F1B with a recomputation."""
        allowed = self.plans["only"].get("virtual_stages")
        stages = [(1, 1)] * (self.plain[1] and self.reaches(way, target))
        stages += [(2, self.most)] * (self.most > 1)
        if stages and self.pp > MOST_STAGED:
            raise RefusedError(f"degrees: not checked: {self.pp} pipeline ranks")
        while stages:
            few, many = stages.pop()
            if allowed and not allowed.intersection(range(few, many + 1)):
                continue
            if len(self.all) > 1 < many:
                for v in sorted({*range(few, many + 1)}.intersection(allowed or range(many + 1))):
                    target = self.layouts(v, way, target)
            elif few == many:
                target = self.variant(few, way, target)
            elif self.reaches(way, target, few, many):
                stages += [((few + many) // 2 + 1, many), (few, (few + many) // 2)]
        return target

    def variant(self, v, way, target):
        """Bound the layouts with so many stages on each rank."""
        for remainder in REMAINDERS if v > 1 else REMAINDERS[:1]:
            cuts, most = Cuts(self, v, remainder), self.L - 1
            if way == 1 and "uniform 1" in self.plans["recompute"]:
                ranks = ((r, n + max(0, cuts.spare)) for r, n in enumerate(cuts.fewest))
                most = max(max(cuts.sizes(*x)) for x in ranks) - 1  # all layers is that
            ranges: list[Any] = [(way, way)] if isinstance(way, str) else [(1, most)] * (most > 0)
            while ranges:
                first, last = ranges.pop()
                found, split = cuts.least(first, last, target)
                if split:
                    middle = (first + last) // 2
                    ranges += [(middle + 1, last), (first, middle)]
                else:
                    target = found
        return target

    def layouts(self, v, way, target):
        """Bound interleaved layouts of layers that differ: with as many in each stage but the first
        and the last."""
        if v not in self.plain:
            every = [*self.even(v, target)]
            cuts: Any = Cuts(self, v, REMAINDERS[0]) if every else None
            plain = ([self.stage(*one) for one in x] for x in every)
            left = [x for x, own in zip(every, plain, strict=True) if cuts.whole(own, 0) < target]
            self.plain[v] = cuts, left
        passed, (cuts, left) = 0, self.plain[v]
        for ends in left:
            longest = max(stop - start for start, stop in ends)
            # with more first layers that are computed again it takes no less time
            for n in [way] if isinstance(way, str) else range(1, longest + 1):
                own = [self.stage(a, b, n) for a, b in ends]
                bound = cuts.whole(own, n)
                if bound >= target:
                    break
                if all(self.needed(r, own[r :: self.pp], n) <= self.room for r in range(self.pp)):
                    passed += 2 * self.M * len(own)
                    if passed <= SIMULATED:
                        bound = max(bound, self.seconds(own, n))
                    target = min(target, bound)
                    break
        return target

    def even(self, v, target):
        """Yield the layouts whose stages but the first and the last have as many layers, and whose
        ranks may take less than a target: all their layers, and once those before them."""
        stages, most, passed = self.pp * v, target - self.constant[1], self.passed
        for each in range(1, self.L // (stages - 2) + 1):
            rest = self.L - each * (stages - 2)
            if self.M * each * v * (self.pp > 2) * self.lightest > most:
                return
            for first in range(rest + 1):
                sizes = 0, first, *[each] * (stages - 2), rest - first
                cuts = [*accumulate(sizes)]
                sums = [passed[cut] for cut in cuts]
                for r in {0, max(0, self.pp - 2), self.pp - 1}:
                    ends = zip(sums[r :: self.pp], sums[r + 1 :: self.pp], strict=False)
                    if self.M * sum(b - a for a, b in ends) + sums[r] > most:
                        break
                else:
                    yield [*pairwise(cuts)]


def priced(plans):
    """Return the recomputations of whole ranks, and that of a layer alone, which blocks are of."""
    whole = UNIFORM + "1"
    return [*plans["recompute"], *[whole] * (plans["blocks"] and whole not in plans["recompute"])]


def ps(seconds):
    """Return whole picoseconds of computed seconds, less what floating point may have added."""
    return int(seconds * (PS - 1))


@cache
def held_mixes(M, virtual, pp, behind):
    """Return the micro-batches that a rank holds of each of its stages before a backward pass, of
    all moments; those that no other moment exceeds."""
    if virtual == 1:
        return [(min(behind + 1, M),)]
    warm = min(2 * behind + (virtual - 1) * pp + 1, M * virtual)
    counts, found = [0] * virtual, set()
    for step in range(min(M * virtual, warm + 2 * pp * virtual)):
        counts[step % (pp * virtual) // pp] += 1
        if step >= warm - 1:
            found.add(tuple(counts))
            counts[virtual - 1 - (step - warm + 1) % (pp * virtual) // pp] -= 1
    return [one for one in found if not any(
        one != x and all(map(operator.le, one, x)) for x in found)]  # fmt: skip


class Rank(NamedTuple):
    """Picoseconds of a rank with so many layers, and those of each kind: passes, all and of its
    first and last stages; of the passes before its first backward one, and after its last forward
    one; synchronisation."""

    layers: int
    counts: tuple[int, ...]
    forward: int
    backward: int
    first: tuple[int, int]
    last: tuple[int, int]
    ahead: int
    late: int
    synced: int


class Cuts:
    """Layouts of 1F1B or interleaved 1F1B, by the layers of each rank; a bound of them below a
    target, with a recomputation or with the first layers of each stage computed again, of a range
    of numbers of them."""

    def __init__(self, job, virtual, remainder):
        self.job, self.v, self.remainder, self.known = job, virtual, remainder, Table()
        pp, v = job.pp, virtual
        self.half = half = [x // 2 for x in job.sends[1]]
        self.send = [2 * x for x in half[:-1]] + [0]
        whole = v * sum(half) - half[-1]
        # of the way of a micro-batch from a rank's first stage to the end and back to its last one
        before = [*accumulate(half, initial=0)]
        self.message = [whole - before[r] + max(0, before[-2] - before[r]) for r in range(pp)]
        self.fewest = [v - 1 + (0 < r < pp - 1 or (r == 0 < v - 1 and remainder == "first"))
                       for r in range(pp)]  # fmt: skip
        self.spare = job.L - sum(self.fewest)

    def warm(self, rank):
        """Return the passes of each stage of a rank before its first backward one."""
        pp, v = self.job.pp, self.v
        turns, left = divmod(2 * (pp - rank - 1) + (v - 1) * pp + 1, v * pp)
        return [turns * pp + min(max(left - k * pp, 0), pp) for k in range(v)]

    def sizes(self, rank, count):
        """Return the layers of each stage of a rank."""
        if self.v == 1:
            return [count]
        return spread(count, self.v, self.remainder, rank == 0, rank == self.job.pp - 1)

    def rank(self, rank, stages, way):
        """Return the figures of a rank with these stages."""
        key = rank, way, *stages
        if key not in self.known:
            job, last, warm = self.job, len(stages) - 1, self.warm(rank)
            passes = [job.passes(rank, x, way, 1, (k == 0, k == last))
                      for k, x in enumerate(stages)]  # fmt: skip
            ways, counts = [*zip(*passes, strict=True)], job.layers_of(stages)
            early = [sum(map(operator.mul, warm, x)) for x in ways]
            own = *map(sum, ways), passes[0], passes[-1], *early, job.synced(rank, counts)
            self.known[key] = Rank._make((sum(counts), tuple(counts), *own))
        return self.known[key]

    def figures(self, rank, start, count, way):
        """Return the figures of a rank with so many layers, the first one of them at `start`."""
        ends = pairwise(accumulate(self.sizes(rank, count), initial=start))
        return self.rank(rank, [self.job.stage(*one, way=way) for one in ends], way)

    def whole(self, stages, way):
        """Return the picoseconds that a layout takes at least, of all its stages."""
        pp = self.job.pp
        rows = [self.rank(r, stages[r::pp], way) for r in range(pp)]
        return self.alone(rows) + max(x.synced for x in rows) + self.job.constant[1]

    def rows(self, rank, start, way):
        """Return the figures of a rank by its layers, as far as they are below the target."""
        job, found, fewest = self.job, [], self.fewest[rank]
        for count in range(fewest, min(fewest + self.spare, job.L - start) + 1):
            row = self.figures(rank, start, count, way)
            took = job.M * (row.forward + row.backward) + row.synced + job.constant[1]
            if took >= self.target:
                break
            found.append(row)
        return found if job.pp > 1 else [x for x in found if x.layers == job.L]

    def fill(self, make):
        """Set the figures of every rank by the layer that it starts with: the same for all, if
        layers are alike. make: of a rank and a start."""
        self.ranks, known, differ = list[Any](), dict[Any, Any](), len(self.job.all) > 1
        for r in range(self.job.pp):
            key, begin = self.job.alike[r] if self.shared else r, sum(self.fewest[:r])
            starts = range(begin, begin + self.spare + 1 if r else 1) if differ else (0,)
            for b in starts:
                if (key, b) not in known:
                    known[key, b] = make(r, b)
            rows = {b: known[key, b] for b in starts}
            other: list[Any] = [] if differ else rows[0]
            self.ranks.append(defaultdict(lambda other=other: other, rows))  # type: ignore[misc]

    def own(self, rank, row, there, back):
        """Return the picoseconds from a rank's first pass to the end of its last one, at least.

        there: from the beginning of its first forward pass to that of its first backward one, back:
        from the end of its last forward pass to that of its last backward one.
        """
        M, v, pp = self.job.M, self.v, self.job.pp
        both = M * (row.forward + row.backward)
        k = 2 * (pp - rank - 1) + (v - 1) * pp + 1 if v > 1 else pp - rank
        if M * v <= k:
            return max(both, there + M * row.backward, M * row.forward + back)
        if v > 1:
            return both + max(0, there - row.ahead) + max(0, back - row.late)
        on, to = self.send[rank] // 2, self.half[rank - 1] if rank else 0  # both ends wait
        there -= k * (row.forward + on)
        back -= k * row.backward + (k - 1) * to + on
        return both + M * on + (M - 1) * to + max(0, there) + max(0, back)

    def tables(self):
        """Find bounds of what is from each rank on, by the layers before it. False: none is below
        the target."""
        job, L, pp = self.job, self.job.L, self.job.pp
        if self.spare < 0 or not all(any(x.values()) for x in self.ranks):
            return False
        every = [[row[end].layers for row in x.values() for end in (0, -1) if row]
                 for x in self.ranks]  # fmt: skip
        least, most = [*map(min, every)], [*map(max, every)]
        low = [max(sum(least[:r]), L - sum(most[r:])) for r in range(pp + 1)]
        high = [min(sum(most[:r]), L - sum(least[r:])) for r in range(pp + 1)]
        # all forward and one backward, the reverse, and synchronisation, at least
        after: list[Table] = [{} for _ in range(pp)] + [{L: (0, 0, 0)}]
        for r in reversed(range(pp)):
            follow, rows = after[r + 1], self.ranks[r]
            for b in range(low[r], high[r] + 1):
                there = back = synced = NEVER
                for x in rows[b]:
                    if b + x.layers in follow:
                        ahead, late, once = follow[b + x.layers]
                        there = min(there, ahead + x.forward + x.last[1])
                        back = min(back, late + x.last[0] + x.backward)
                        synced = min(synced, max(once, x.synced))
                if there < NEVER:
                    after[r][b] = there, back, synced
        if 0 not in after[0]:
            return False
        before: list[Table] = [{0: (0, 0)}] + [{} for _ in range(pp)]
        for r in range(pp):
            follow, on = after[r + 1], before[r + 1]
            for b, (there, back) in before[r].items():
                for x in self.ranks[r][b]:
                    if b + x.layers in follow:
                        ahead, late = on.get(b + x.layers, (NEVER, NEVER))
                        on[b + x.layers] = (min(ahead, there + x.forward - x.first[0]),
                                            min(late, back + x.backward - x.first[1]))  # fmt: skip
        self.once = after[0][0][2] + job.constant[1]
        self.arcs: Table = {}
        self.value: list[Table] = [{} for _ in range(pp)] + [{L: 0}]
        limit = self.target - self.once
        for r in reversed(range(pp)):
            follow = self.value[r + 1]
            for b, (there, back) in before[r].items():
                found = []
                for x in self.ranks[r][b]:
                    if b + x.layers not in follow:
                        continue
                    ahead, late, _ = after[r + 1][b + x.layers]
                    own = self.own(r, x, there + x.forward + ahead + self.message[r],
                                   back + x.backward + late + self.message[r])  # fmt: skip
                    through = sum(x.first) + self.send[r]
                    far = max(own, through + follow[b + x.layers])
                    if far < limit:
                        found.append((far, through, x, ahead, late))
                if found:
                    self.value[r][b] = min(x[0] for x in found)
                    self.arcs[r, b] = found
        return 0 in self.value[0]

    def used(self):
        """Return what tells the figures that are left of a rank and a start."""
        left: Table = {}
        for (r, b), found in self.arcs.items():
            left.setdefault((r, b * (len(self.job.all) > 1)), set()).update(
                x[2].layers for x in found
            )
        ranks = self.ranks
        return lambda r, b: [x for x in ranks[r][b] if x.layers in left.get((r, b), ())]

    def fitting(self, first, last):
        """Leave out what does not fit a rank; of a range of numbers, with the first one that does:
        with less it does not, and with more it takes no less time."""
        job, used, known = self.job, self.used(), dict[Any, Any]()
        ways = [first] if first == last else range(first, last + 1)

        def fitted(r, x):
            stages = [(x.counts, ())]
            if self.v > 1:
                stages = [((n,), ()) for n in self.sizes(r, x.layers)]
            return next((w for w in ways if job.needed(r, stages, w) <= job.room), None)

        def make(r, b):
            found = []
            for x in used(r, b):
                if (r, x.counts) not in known:
                    known[r, x.counts] = fitted(r, x)
                way = known[r, x.counts]
                if way is not None:
                    found.append(x if way == first else self.figures(r, b, x.layers, way))
            return found

        self.shared = False
        self.fill(make)

    def least(self, first, last, target):
        """Return the least picoseconds of all layouts, or the target if that is less, a lower bound
        of them once the looks run out; and whether the range has to be split first."""
        job, pp, self.target, self.shared = self.job, self.job.pp, target, self.v == 1
        self.fill(lambda r, b: self.rows(r, b, first))
        if not self.tables():
            return target, False
        self.fitting(first, last)
        if not self.tables():
            return target, False
        if first != last:
            return target, True
        # bound, ranks to come, rows of those before, their layers, seconds of their first stages,
        # of the largest of them, and of all of their other stages
        heap: list[Any] = [(self.value[0][0], pp, (), 0, 0, 0, 0, 0)]
        looks = simulated = 0
        while heap:
            value, left, rows, layers, prefix, reached, there, back = heapq.heappop(heap)
            if value + self.once >= target:
                return target, False
            if left < 0 or looks > LOOKS_OF_CUTS or simulated > SIMULATED:
                return value + self.once, False
            looks += 1
            r = pp - left
            if not left:
                value = max(value, self.alone(rows))
                if value + self.once < target:
                    simulated += 2 * job.M * pp * self.v
                    each = [self.sizes(rank, x.layers) for rank, x in enumerate(rows)]
                    sizes = (x for chunk in zip(*each, strict=True) for x in chunk)
                    ends = pairwise(accumulate(sizes, initial=0))
                    stages = [job.stage(*one, first) for one in ends]
                    value = max(value, job.seconds(stages, first) - self.once)
                heapq.heappush(heap, (value, -1, rows, layers, prefix, reached, there, back))
                continue
            for _, through, x, ahead, late in self.arcs.get((r, layers), ()):
                own = self.own(r, x, there + x.forward + ahead + self.message[r],
                               back + x.backward + late + self.message[r])  # fmt: skip
                took, on = max(reached, prefix + own), prefix + through
                bound = max(value, took, on + self.value[r + 1][layers + x.layers])
                if bound + self.once < target:
                    others = there + x.forward - x.first[0], back + x.backward - x.first[1]
                    entry = bound, left - 1, (*rows, x), layers + x.layers, on, took, *others
                    heapq.heappush(heap, entry)
        return target, False

    def alone(self, rows):
        """Return the least that the ranks of one layout take, each with all others as they are."""
        prefix = found = 0
        for r, x in enumerate(rows):
            before, after = rows[:r], rows[r + 1 :]
            there = sum(y.forward - y.first[0] for y in before) + x.forward
            there += sum(y.forward + y.last[1] for y in after) + self.message[r]
            back = sum(y.backward - y.first[1] for y in before) + x.backward
            back += sum(y.last[0] + y.backward for y in after) + self.message[r]
            found = max(found, prefix + self.own(r, x, there, back))
            prefix += sum(x.first) + self.send[r]
        return found


def one_by_one(M, forward, backward, half):
    """Return when the last rank ends in 1F1B, if sender and receiver wait for each other.

    Between two passes a rank offers what the last one made and asks for what the next one needs;
    a message travels, for `half` of the rank before it, when both ends are there; then the rank
    goes on. Nothing ends earlier if a pass or a message takes longer.
    """
    ranks = len(forward)
    orders = []
    for rank in range(ranks):
        ahead = min(M, ranks - 1 - rank)
        order = [(0, m) for m in range(ahead)]
        for m in range(M - ahead):
            order += [(0, m + ahead), (1, m)]
        orders.append(order + [(1, m) for m in range(M - ahead, M)])
    at, free, ends = [0] * ranks, [0] * ranks, [-1] * ranks
    sent: Table = {}
    wanted: Table = {}
    moved = True
    while moved:
        moved = False
        for rank in (*range(ranks), *reversed(range(ranks))):
            while ends[rank] < 0:
                place, order, now = at[rank], orders[rank], free[rank]
                goals = []
                if place:
                    kind, m = order[place - 1]
                    other = rank - 1 if kind else rank + 1
                    if 0 <= other < ranks:
                        goals.append((kind, other, m))
                        moved |= goals[-1] not in sent
                        sent.setdefault(goals[-1], now)
                if place < len(order):
                    kind, m = order[place]
                    other = rank + 1 if kind else rank - 1
                    if 0 <= other < ranks:
                        goals.append((kind, rank, m))
                        moved |= goals[-1] not in wanted
                        wanted.setdefault(goals[-1], now)
                if any(goal not in sent or goal not in wanted for goal in goals):
                    break
                moved = True
                for goal in goals:
                    way = half[goal[1] if goal[0] else goal[1] - 1]
                    now = max(now, max(sent[goal], wanted[goal]) + way)
                if place == len(order):
                    ends[rank] = now
                else:
                    kind, _ = order[place]
                    free[rank], at[rank] = now + (backward if kind else forward)[rank], place + 1
    return max(ends)


@cache
def spread(layers, virtual, remainder, first, last):
    """Return the layers of each stage of a rank. first, last: whether the rank is."""
    alone = remainder == "alone"
    count = virtual - (alone and first) - (alone and last)
    each, more = divmod(layers, count)
    found = [each + (k < more) for k in range(count)]
    if remainder != "first" and not last:
        found.reverse()
    return [0] * (alone and first) + found + [0] * (alone and last)


def woven(M, forward, backward, half):
    """Return when the last rank ends in interleaved 1F1B, in groups of as many micro-batches as
    there are ranks; a rank waits for messages that it needs, for nothing else."""
    ranks, stages = len(half), len(forward)
    group, each = stages, M * stages // ranks
    at, free = [0] * ranks, [0] * ranks
    done: Table = {}

    def pass_of(kind, k, rank):
        turn, place = divmod(k, group)
        chunk = place // ranks
        if kind:
            chunk = stages // ranks - 1 - chunk
        return kind, chunk * ranks + rank, turn * ranks + place % ranks

    orders = []
    for rank in range(ranks):
        ahead = min(each, 2 * (ranks - 1 - rank) + stages - ranks)
        order = [(0, k) for k in range(ahead)]
        for k in range(each - ahead):
            order += [(0, k + ahead), (1, k)]
        order += [(1, k) for k in range(each - ahead, each)]
        orders.append([pass_of(kind, k, rank) for kind, k in order])
    moved = True
    while moved:
        moved = False
        for rank in (*range(ranks), *reversed(range(ranks))):
            order = orders[rank]
            while at[rank] < len(order):
                kind, stage, m = order[at[rank]]
                source = stage + 1 if kind else stage - 1
                now = free[rank]
                if 0 <= source < stages:
                    if (kind, source, m) not in done:
                        break
                    sent = half[min(source, stage) % ranks]
                    now = max(now, done[kind, source, m] + sent)
                now += (backward if kind else forward)[stage]
                done[kind, stage, m] = free[rank] = now
                at[rank] += 1
                moved = True
    return max(free)


def judge_job(plans, cases, plan, objective):
    """Return (seconds, [(seconds of a micro-batch, bytes) per stage], faults, what is not checked)
    of a plan. objective: its seconds as the file says them."""
    faults: list[str] = []
    unknown: list[str] = []
    stages, settings = get(plan, "stages", list), get(plan, "settings", dict)
    virtual = get(plan, "virtual", int, 1, 1 << 9)
    M, L = get(plan, "micro_batches", int, 1), plans["layers"]
    cp, pp = get(settings, "cp", int, 1, MOST_DEVICES), len(stages) // virtual
    if not stages or len(stages) % virtual:
        raise RefusedError(f"plan.stages: found {len(stages)}, expected {virtual} on every rank")
    first = stages[0]
    samples, order = get(first, "samples", list), get(settings, "order", str)
    size = typed(samples[0] if samples else None, "samples", int, 1)
    place = RANK_ORDERS.index(order) if order in RANK_ORDERS else -1
    experts = get(settings, "ep", int), get(settings, "etp", int)
    tp = get(first, "tp", int, 1, MOST_DEVICES) // cp
    key = (tp, cp, *experts, len(samples), pp, size, place)
    width = key[0] * cp
    if key[4] * width * pp != plans["devices"] or key not in cases:
        faults.append(f"degrees {', '.join(map(str, key))}: none of the set")
        return Fraction(0), [], faults, unknown
    if get(plan, "global_batch", int) != plans["batch"] or M * size * key[4] != plans["batch"]:
        faults.append(f"{M} micro-batches of {size} samples of {key[4]} replicas")
    position = 0
    for s, stage in enumerate(stages):
        start, stop = get(stage, "start", int), get(stage, "stop", int)
        if start != position or stop <= start:
            faults.append(f"stage {s}: elements {start} to {stop}, expected from {position} on")
            return Fraction(0), [], faults, unknown
        position, rank = stop, s % pp
        every = range(key[4])
        blocks = [(rank * key[4] + d if key[7] < 1 else d * pp + rank) * width for d in every]
        expected = [x for block in blocks for x in range(block, block + width)]
        held = [
            [typed(x, name, int, 0) for x in get(stage, name, list)]
            for name in ("devices", "samples")
        ]
        if held != [expected, [size] * key[4]] or get(stage, "tp", int) != width:
            faults.append(f"stage {s}: other devices, degrees or samples than its rank has")
    if position != L + 2:
        faults.append(f"{position} elements, expected {L + 2}")
        return Fraction(0), [], faults, unknown
    again = get(settings, "recompute", dict)
    way = get(again, "granularity", str)
    if way == "selective":
        way = " ".join(typed(x, "modules", str) for x in get(again, "modules", list))
    elif way == "full":
        count = get(again, "layers", int, 1)
        way = count if again.get("method") == "block" else f"{again.get('method')} {count}"
    if isinstance(way, str) and way not in plans["recompute"]:
        faults.append(f"recomputation {shown(way)} is none of the set")
        return Fraction(0), [], faults, unknown
    if any(layer_costs().unread(again, ("granularity", "modules", "method", "layers"))):
        faults.append("recomputation: shared among ranks, which is none of the set")
    job = next((job for job in cases[key] if job.has(settings)), None)
    if job is None:
        faults.append("settings: none of the set with these degrees")
        return Fraction(0), [], faults, unknown
    # of the chain, whose first element is the embedding and whose last one the output
    places = [(max(0, x["start"] - 1), min(L, x["stop"] - 1)) for x in stages]
    if not job.among([stop - start for start, stop in places], virtual):
        faults.append(f"stages: {virtual} on each rank, in a layout that is none of the set")
        return Fraction(0), [], faults, unknown
    turns = settings.get("turn", 0) in (0, pp)
    if not turns or (virtual > 1 and settings.get("overlap_sends") is not True):
        unknown.append("seconds and memory of this order of micro-batches")
        return Fraction(objective), [(None, None)] * len(stages), faults, unknown
    counts, last = [job.stage(*ends, way) for ends in places], len(places) - 1
    needed = [job.needed(rank, counts[rank::pp], way) for rank in range(pp)]
    if any(x > job.room for x in needed):
        faults.append("memory: a rank has more than fits")
        return Fraction(0), [], faults, unknown
    each = [sum(job.passes(s % pp, x, way, 0, (s == 0, s == last))) for s, x in enumerate(counts)]
    costs = [(x, Fraction(needed[s % pp], BYTE)) for s, x in enumerate(each)]
    return job.seconds(counts, way, 0), costs, faults, unknown


def agree_job(text, plans, model, asked):
    """Compare the set, and the model of which layers are computed, with a model's text and what it
    leaves to defaults. asked: the tokens of a sample that were asked for; None: the model's own."""
    try:
        said = get(tomllib.loads(text), "architecture", dict)
    except (ValueError, RecursionError):
        raise RefusedError("inputs.model: expected TOML") from None
    if asked is not None:
        said = {**said, "sequence": asked}
    said = {**{key: {} for key in USUAL}, **said, "": said}
    every: list[Any] = [(key, said, plans, {}) for key in ("layers", "sequence")]
    for part, usual in USUAL.items():
        text, own = said[part], getattr(model, part) if part else model
        if bool(text) != bool(own):
            raise RefusedError(f"inputs.model: {part}: found {shown(text)}, not so as proved")
        known = layer_costs().OF_PARTS[part] if part else layer_costs().OF_MODEL
        every += [(key, text, vars(own), usual) for key in known if own]
    for key, text, own, usual in every:
        found = text.get(key, usual.get(key)) if isinstance(text, dict) else text
        if found is not None and not isinstance(found, list | dict) and found != own[key]:
            raise RefusedError(
                f"inputs.model: {key}: found {shown(found)}, expected {own[key]} as proved"
            )


def said_of_jobs(plans, jobs, cases, claimed):
    """Return what is said of a set of training jobs."""
    taken = sum(map(len, cases.values()))
    every = len(cases) * len(plans["choices"])
    left = [f"{every - taken} of {every} choices of settings, idle or refused by the runtime; "
            f"{faster_left(plans, jobs, cases, claimed)}"]  # fmt: skip
    if plans["asked"]:
        left.append(f"all but {plans['asked']}")
    only = (f"{key.replace('_', ' ')} {' or '.join(map(str, sorted(of)))}"
            for key, of in plans["only"].items())  # fmt: skip
    left += [f"all but {one}" for one in only if one not in plans["asked"].split(", ")]
    left += ["recomputation of some layers of a stage"] * (not plans["blocks"])
    several = "several stages of a rank"
    if plans["interleaves"] and len({*plans["pattern"]}) > 1:
        several += " without as many layers in all stages but the first and the last"
    elif plans["interleaves"]:
        several += " that are not as even as can be, or have the ends alone"
    left.append(several)
    left += narrower_jobs(plans)
    return {
        "set": f"{plans['space']}, {plans['layers']} layers, {plans['devices']} devices in nodes "
        f"of {plans['devices_per_node']}, {len(cases)} degrees, settings "
        f"{'; '.join(map(jobs.said, range(len(plans['choices']))))}, recomputation "
        f"{', '.join(plans['recompute'])}, batch {plans['batch']}",
        "limits": f"{plans['limit'] / MIB:.1f}", "left_out": left,
        "on": f", plans on all of {plans['devices']} devices",
        "believed": f"the model, the figures of a device and its links, and "
        f"{len(jobs.layers.settings)} settings, of which seconds and bytes of layers are computed",
    }  # fmt: skip


def narrower_jobs(plans):
    """Yield what the set leaves out of all plans that the model and the devices allow."""
    batch, devices = plans["batch"], plans["devices"]
    yield f"plans on other than all of {devices} devices"
    most = {"max_tp": ("tp", plans["devices_per_node"]), "max_cp": ("cp", devices),
            "max_stages": ("pp", min(devices, plans["layers"] + 2))}  # fmt: skip
    for key, (name, all_) in most.items():
        if plans[key] < all_ and name not in plans["only"]:
            yield f"{name} above {plans[key]}"
    if plans["orders"] < len(RANK_ORDERS):
        yield "another order of ranks"
    if any(n not in plans["micro_batches"] for n in divisors(batch)):
        yield f"other than {', '.join(map(str, plans['micro_batches']))} micro-batches"


def faster_left(plans, jobs, cases, claimed):
    """Say which choices of settings that have no case may take less than the claim."""
    found, named = 0, []
    for key, listed in cases.items():
        known = {job.number: False for job in listed}  # whether these settings may take less
        for choice in range(len(plans["choices"])):
            number = jobs.number(key, choice)
            if number not in known:
                job = Job(plans, key, choice, jobs)
                known[number] = job.bound(claimed) < claimed
            if known[number]:
                found += 1
                named.append(f"{jobs.said(choice)} with {' '.join(map(str, key))}")
    if not found:
        return "none of them takes less"
    more = f" and {found - 3} others" * (found > 3)
    return f"{found} of them might take less: {'; '.join(named[:3])}{more}"


# ---- the file and its verdict --------------------------------------------------------------------


def set_of_plans(record):
    """Read the set of plans that a proof is about."""
    per, nodes = (
        get(record, "devices_per_node", int, 1, 1 << 14),
        wholes(record, "nodes", 1, 1 << 14),
    )
    found = {
        "nodes": nodes,
        "devices": per * nodes[-1],
        "per_node": per,
        "groups": wholes(record, "devices_of_stages", 1, 1 << 14),
        "max_stages": get(record, "max_stages", int, 1, MOST_DEVICES),
        "batch": get(record, "global_batch", int, 1, 1 << 40),
        "micro_batches": wholes(record, "micro_batches", 1, 1 << 20),
        "limit": get(record, "memory_limit_bytes", int, 1, 1 << 60),
    }
    if found["devices"] > MOST_DEVICES:
        raise RefusedError(
            f"nodes: found {found['devices']} devices, expected {MOST_DEVICES} at most"
        )
    for group in found["groups"]:  # parts of a node, or 2, 4, 8 ... whole ones
        if group > per and (group % per or (group // per).bit_count() > 1):
            raise RefusedError(f"devices_of_stages: found {group}, no whole nodes of {per} devices")
    for size in found["micro_batches"]:
        if found["batch"] % size:
            raise RefusedError(f"micro_batches: {size} does not divide the batch {found['batch']}")
    return found


def set_of_layers(record):
    """Read the set of plans of whole layers that a proof is about."""
    types = [typed(x, "types", str) for x in get(record, "types", list)]
    if not 0 < len(types) <= MOST_TYPES:
        raise RefusedError(f"types: found {len(types)}, expected 1 to {MOST_TYPES}")
    nodes = []
    for node in get(record, "nodes", list):
        if not isinstance(node, list) or len(node) != 3:
            raise RefusedError("nodes: expected [type, devices, nodes]")
        kind, size = typed(node[0], "nodes", int, 0, len(types) - 1), node[1]
        nodes += [(kind, size)] * typed(node[2], "nodes", int, 1, MOST_DEVICES)
        if typed(size, "nodes", int, 1) * len(nodes) > MOST_DEVICES:
            raise RefusedError(f"nodes: found more than {MOST_DEVICES} devices")
    sizes = [[size for kind, size in nodes if kind == k] for k in range(len(types))]
    every = [get(record, x, list) for x in ("memory_limit_bytes", "tensor_degrees")]
    if any(len(x) != len(types) for x in every) or not all(sizes):
        raise RefusedError("types: expected nodes, tensor_degrees and a memory limit of each")
    degrees = [wholes({"tensor_degrees": x}, "tensor_degrees", 1, MOST_DEVICES) if x else []
               for x in every[1]]  # fmt: skip
    found = {
        "space": get(record, "space", str), "types": types, "nodes": nodes, "sizes": sizes,
        "limits": [Fraction(typed(x, "memory_limit_bytes", int, 1, MOST_BYTES)) for x in every[0]],
        "degrees": degrees, "counts": [sum(x) for x in sizes],
        "equal": [len(x) > 1 == len({*x}) for x in sizes],
        "batch": get(record, "global_batch", int, 1, MOST_DEVICES),
        "micro_batches": wholes(record, "micro_batches", 1, MOST_DEVICES),
        "max_stages": get(record, "max_stages", int, 1, MOST_DEVICES),
        "ways": [typed(x, "recompute", str) for x in get(record, "recompute", list)],
        "uneven": get(record, "uneven", bool), "summed": get(record, "summed", bool),
    }  # fmt: skip
    for way in found["ways"]:
        if way not in ("none", "selective", "full", "block"):
            raise RefusedError(
                f"recompute: found {shown(way)}, expected none, selective, full, block"
            )
    if found["space"] not in ("groups", "metis"):
        raise RefusedError(f"space: found {shown(found['space'])}, expected groups or metis")
    # Metis's stages have ranks one after the other, so that every device is in one of them
    found["by_rank"] = found["space"] == "metis"
    if found["summed"] and not found["by_rank"]:
        raise RefusedError("summed: found true, expected false but in the space metis")
    if found["by_rank"] and sum(found["counts"]) > MOST_RANKS:
        raise RefusedError(f"nodes: found {sum(found['counts'])} devices, expected {MOST_RANKS}")
    found["seats"] = [
        (kind, tp, sum(size // tp for size in own)) for kind, own in enumerate(sizes)
        for tp in degrees[kind] if any(size % tp for size in own)
    ]  # fmt: skip
    for B in found["micro_batches"]:
        size = -(-found["batch"] // B)
        last = found["batch"] - (B - 1) * size
        if not 0 < last <= size or (last < size and not found["uneven"]):
            raise RefusedError(f"micro_batches: {B} do not share {found['batch']} samples")
    return found


def read_cases(records, plans):
    """Read (which groups of several types there are, prices) of every number of micro-batches."""
    found, width = {}, len(plans["types"]) + len(plans["seats"])
    for record in records:
        B, prices = get(record, "micro_batches", int, 1), []
        several = get(record, "several", str)
        if several not in ("all", "powers", "pairs", "none"):
            expected = "all, powers, pairs or none"
            raise RefusedError(f"several: found {shown(several)}, expected {expected}")
        for row in get(record, "prices", list):
            row = [typed(x, "prices", int, 0, 1 << 70) for x in typed(row, "prices", list)]
            if len(row) != 1 + width:
                raise RefusedError(f"prices: expected [longest stage, {width} prices]")
            prices.append((row[0] * Q, *row[1:]))
        if len(prices) >= MOST_PRICES:
            raise RefusedError(f"prices: found {len(prices)}, expected at most {MOST_PRICES - 1}")
        if B in found:
            raise RefusedError(f"cases: {B} micro-batches twice")
        found[B] = several, sorted(prices)
    for B in plans["micro_batches"]:
        if B not in found:
            raise RefusedError(f"cases: {B} micro-batches of the set are missing")
    return found


def read_prices(records, micro_batches, floors):
    """Read the prices of every size of micro-batch; each must have a case. floors: whether the
    costs reserve the weights at least."""
    found: Table = {}
    for record in records:
        size = get(record, "micro_batch", int, 1)
        if size in found:
            raise RefusedError(f"cases: micro-batch {size} twice")
        of = found[size] = {}
        for row in get(record, "prices", list):
            if not isinstance(row, list) or len(row) != 4:
                raise RefusedError("prices: expected [devices, in flight, floor, price]")
            g, flight = (typed(x, "prices", int, 1, 1 << 40) for x in row[:2])
            floor = typed(row[2], "prices", int, 0, int(floors))
            price = typed(row[3], "prices", int, 0, 1 << 60)
            of.setdefault((g, flight), [(0, 0)]).append((floor, price))
            if len(of[g, flight]) > MOST_PRICES:
                raise RefusedError(f"prices: expected at most {MOST_PRICES - 1} of a group")
    for size in micro_batches:
        if size not in found:
            raise RefusedError(f"cases: micro-batch {size} of the set is missing")
    return found


def agree(root, plans, costs):
    """Compare the set of plans and the costs with the inputs that the file names.

    Raises RefusedError: they differ, or a text is not the one of its hash.
    """
    inputs = get(root, "inputs", dict)
    said = {"cost_model": costs.name, "global_batch": plans["batch"], "space": "operators"}
    if "training" in plans:
        said = {"global_batch": plans["batch"], "space": plans["space"]}
    elif "space" in plans:
        said["space"] = plans["space"]
    else:
        said["memory_limit_bytes"] = plans["limit"]
    limits = typed(inputs.get("memory_limits_bytes", {}), "memory_limits_bytes", dict)
    for name, found in limits.items():
        own = plans.get("types", [])
        said[f"memory_limits_bytes.{name}"] = (
            plans["limits"][own.index(name)] if name in own else plans.get("limit", found)
        )
    for key, value in said.items():
        found = limits.get(key.partition(".")[2], inputs.get(key, value))
        close = isinstance(found, Fraction) and 0 <= found - value < 1
        if found != value and not (close and not isinstance(value, str)):
            expected = value if isinstance(value, str) else int(value)
            raise RefusedError(
                f"inputs.{key}: found {shown(found)}, expected {expected!r} as proved"
            )
    for name in ("model", "cluster", "hostfile"):
        one = inputs.get(name)
        text = one.get("text") if isinstance(one, dict) else None
        if not isinstance(text, str):
            continue
        if hashlib.sha256(text.encode(errors="replace")).hexdigest() != one.get("sha256"):
            raise RefusedError(f"inputs.{name}: the text is not the one of its sha256")
        if name == "model" and "training" in plans:
            agree_job(text, plans, costs.layers.model, inputs.get("sequence"))
        if name == "model":
            agree_name(text, get(root, "plan", dict))
        if name == "hostfile" and "types" in plans:
            agree_hosts(text, plans)
        if name == "cluster":
            plans["other_nodes"] = agree_nodes(text, plans)


def agree_name(text, plan):
    """Refuse a plan of another model than the text is of."""
    try:
        name = tomllib.loads(text).get("name")
    except (ValueError, RecursionError):
        raise RefusedError("inputs.model: expected TOML") from None
    if name is not None and plan.get("model") != name:
        found = shown(plan.get("model"))
        raise RefusedError(f"plan.model: found {found}, expected {shown(name)} as inputs.model has")


def agree_hosts(text, plans):
    """Refuse a set whose nodes have other numbers of devices than the hosts of Metis's file."""
    found = sorted(x.split()[0] for x in text.split("slots=")[1:] if x.split())
    expected = sorted(str(size) for _, size in plans["nodes"])
    if found != expected:
        raise RefusedError(f"inputs.hostfile: slots: found {shown(' '.join(found))}, expected "
                           f"{' '.join(expected)} as proved")  # fmt: skip


def agree_nodes(text, plans):
    """Return how many nodes a cluster has beside those that the plans are about; it must have
    these: (type, devices), of which a plan of one type has no type."""
    try:
        found: Table = defaultdict(int)
        for nodes in get(tomllib.loads(text), "nodes", list):
            count = get(nodes, "count", int, 1, MOST_DEVICES) if "count" in nodes else 1
            kind = get(nodes, "device", str) if "types" in plans else ""
            found[kind, get(nodes, "devices", int)] += count
    except (ValueError, TypeError, RecursionError, RefusedError) as error:
        said = str(error) if isinstance(error, RefusedError) else "expected TOML with nodes"
        raise RefusedError(f"inputs.cluster: {said}") from None
    if "types" in plans:
        own = [(plans["types"][kind], size) for kind, size in plans["nodes"]]
    elif "training" in plans:
        size = plans["devices_per_node"]
        own = [("", size)] * (plans["devices"] // size)
    else:
        own = [("", plans["per_node"])] * plans["nodes"][-1]
    for node in {*own}:
        if found[node] < own.count(node):
            what = f"nodes of {node[1]} {node[0] or 'devices'}"
            raise RefusedError(f"inputs.cluster: {what}: found {found[node]}, expected "
                               f"{own.count(node)} as proved")  # fmt: skip
    return sum(found.values()) - len(own)


def misstated(root, seconds, stages):
    """Yield the times and sizes that the file says of a plan and that are not the plan's."""
    said = [("result", "objective_s", seconds), ("evaluation", "iteration_time_s", seconds)]
    evaluation = root.get("evaluation")
    listed = evaluation.get("stages") if isinstance(evaluation, dict) else None
    if listed is not None and (not isinstance(listed, list) or len(listed) != len(stages)):
        yield f"evaluation.stages: expected a list of {len(stages)}"
        listed = None
    for part, key, expected in said:
        one = root.get(part)
        if isinstance(one, dict) and key in one:
            yield from _differs(f"{part}.{key}", one[key], expected)
    for s, (one, cost) in enumerate(zip(listed or (), stages, strict=False)):
        for key, expected in zip(("time_s", "memory_bytes"), cost, strict=True):
            if expected is None:
                continue
            found = one.get(key) if isinstance(one, dict) else None
            yield from _differs(f"evaluation.stages.{s}.{key}", found, expected)


def overstated(root, claimed, seconds):
    """Yield what the file says of a bound beyond the claim of its proof. seconds: of the plan."""
    if claimed > seconds * (1 + SLACK):
        yield f"bound_s: found {float(claimed):.12g}, above the plan's {float(seconds):.12g} s"
    result = root.get("result")
    if isinstance(result, dict):
        gap = max(Fraction(0), 1 - claimed / seconds)
        status = result.get("status", "feasible")
        if status != "feasible" and (status != "optimal" or gap > SAVED):
            yield f"result.status: found {shown(status)}, expected feasible with this bound"
        if typed(result.get("gap", gap), "result.gap", Fraction, 0, 1) < gap - SAVED:
            yield f"result.gap: found {float(result['gap']):.2g}, expected {float(gap):.2g}"
    for part in ("result", "certificate"):
        one = root.get(part)
        if isinstance(one, dict) and one.get("bound_s") is not None:
            said = typed(one["bound_s"], f"{part}.bound_s", Fraction, 0, MOST_SECONDS)
            if said > claimed * (1 + SLACK):
                yield (f"{part}.bound_s: found {float(said):.12g}, expected at most "
                       f"{float(claimed):.12g} as in the proof")  # fmt: skip


def _differs(key, found, expected):
    number = isinstance(found, int | Fraction) and not isinstance(found, bool)
    if not number or abs(found - expected) > SAVED * expected:
        said = f"{float(found):.12g}" if number and abs(found) < 10**300 else shown(found)
        yield f"{key}: found {said}, expected {float(expected):.12g}"


def narrower_layers(plans, costs, cases):
    """Yield what the set leaves out of all plans that the profile and the devices allow."""
    batch, found = plans["batch"], set(plans["micro_batches"])
    for B in range(1, min(batch, 1 << 16) + 1):
        size = -(-batch // B)
        if (size * (B - 1) < batch if plans["uneven"] else batch % B == 0) and B not in found:
            yield "other numbers of micro-batches"
            break
    if plans.get("other_nodes"):
        yield f"{plans['other_nodes']} other nodes"
    fewer = [str(B) for B, (several, _) in cases.items() if several != "all"]
    if fewer and len(plans["types"]) > 1 and plans["space"] == "groups":
        yield f"some or all groups of several types with {', '.join(fewer)} micro-batches"
    if plans["max_stages"] < min(sum(plans["counts"]), costs.layers):
        yield f"more than {plans['max_stages']} stages"


def narrower(plans, costs):
    """Yield what the set leaves out of all plans that the profile and the devices allow."""
    per, devices = plans["per_node"], plans["devices"]
    every = plans["nodes"][-1] + plans.get("other_nodes", 0)
    fewer = set(range(1, every + 1)).difference(plans["nodes"])
    if fewer:
        yield f"plans on {', '.join(map(str, sorted(fewer)))} nodes"
    replicas = {1}
    if not costs.aceso:
        replicas |= {g // t for g in plans["groups"] for t in costs.degrees if g % t == 0}
    sizes = sorted({m * dp for m in costs.samples for dp in replicas})
    left = [m for m in sizes if plans["batch"] % m == 0 and m not in plans["micro_batches"]]
    if left:
        yield f"micro-batch {', '.join(map(str, left))}"
    nodes = 1 if costs.aceso else devices // per
    whole = [per << x for x in range(1, nodes.bit_length())]
    missing = [g for g in (1, 2, 4, 8) if g <= per and g not in plans["groups"]]
    missing += [g for g in whole if g not in plans["groups"]]
    if missing:
        yield f"stages of {', '.join(map(str, missing))} devices"
    if plans["max_stages"] < min(devices, len(costs.chain)):
        yield f"more than {plans['max_stages']} stages"


def opened(record: Any) -> tuple[Any, Any, Any, int]:
    """Read a proof: the set of plans, their costs, the prices of each case, and the claim in
    picoseconds, rounded down by as much as rounding may be."""
    version = get(record, "version", int)
    costs: Any
    of_jobs = "table" in record and get(record, "table", dict).get("costs") == Jobs.name
    named = record.get("set")
    of_layers = "space" in named if isinstance(named, dict) else version == OF_LAYERS
    expected = OF_JOBS if of_jobs else OF_LAYERS if of_layers else VERSION
    if version != expected:
        older = "; an older release wrote it: solve again" if 0 < version < expected else ""
        raise RefusedError(
            f"certificate.independent.version: found {shown(version)}, expected {expected}{older}"
        )
    named, table = get(record, "set", dict), get(record, "table", dict)
    listed = get(record, "cases", list)
    if of_jobs:
        plans = set_of_jobs(named)
        costs = Jobs(table, plans)
        cases = read_jobs(listed, plans, costs)
    elif "space" in named:
        plans = set_of_layers(named)
        costs, cases = Layers(table, plans), read_cases(listed, plans)
    else:
        plans = set_of_plans(named)
        costs = Costs(table, plans)
        cases = read_prices(listed, plans["micro_batches"], costs.aceso)
    claimed = get(record, "bound_s", Fraction, 0, MOST_SECONDS) * PS * (1 - SLACK)
    return plans, costs, cases, down(Fraction(claimed))


def prove(plans: Any, costs: Any, cases: Any, claimed: int) -> dict[int, int]:
    """Return by size of micro-batch what no plan takes less than, in picoseconds, at most the
    claim."""
    found: dict[Any, int] = {}
    if "training" in plans:
        least = claimed
        for key, jobs in cases.items():
            for job in jobs:
                found[key, job.choice] = least = job.bound(least)
        return found or {(): 0}
    if "space" in plans:
        whole = plans["by_rank"]
        orders = list(permutations(range(len(plans["types"])))) if whole else [()]
        for B in plans["micro_batches"]:
            found[B] = claimed * Q
            for order in orders:
                found[B] = Chain(costs, plans, B, cases[B], order).prove(found[B])
            found[B] //= Q
        return found
    every: list[Any] = []
    for size in plans["micro_batches"]:
        stages = Stages(costs, plans, size, cases[size])
        for nodes in plans["nodes"]:
            on = {**plans, "devices": nodes * plans["per_node"]}
            every.append((size, Pipelines(stages, on, claimed)))
    left = LABELS
    for most in (LABELS // 16, LABELS):  # what is hard comes last, with all that is left
        for _, one in every:
            left -= one.prove(min(most, left))
    for size, one in every:
        found[size] = min(one.value, found.get(size, one.value))
    return found


def said_of_layers(plans, costs, cases, _):
    """Return what is said of a set of plans of whole layers."""
    counts = zip(plans["counts"], plans["types"], plans["degrees"], strict=True)
    types = (f"{n} {name} (tp {', '.join(map(str, tps)) or 'none'})" for n, name, tps in counts)
    rule = "devices type by type" if plans["by_rank"] else "packed"
    rule += ", shares that differ by a sample" * plans["uneven"]
    rule += ", memory by Metis's rule" * plans["summed"]
    batches = ", ".join(map(str, plans["micro_batches"]))
    limits = ", ".join(f"{float(x) / MIB:.1f}" for x in plans["limits"])
    return {
        "set": f"groups of {' and '.join(types)}, {rule}, recomputation "
        f"{', '.join(plans['ways'])}, at most {plans['max_stages']} stages, {batches} "
        f"micro-batches of {plans['batch']} samples",
        "limits": limits, "left_out": list(narrower_layers(plans, costs, cases)),
        "believed": f"{len(costs.rows)} rows and the bytes of the profile, and the figures of the "
        f"cluster, of {costs.layers} layers",
    }  # fmt: skip


def said_of_operators(plans, costs, *_):
    """Return what is said of a set of plans of operators."""
    sizes, groups, nodes = (
        ", ".join(map(str, plans[key])) for key in ("micro_batches", "groups", "nodes")
    )
    return {
        "set": f"{nodes} nodes of {plans['per_node']} devices, at most {plans['max_stages']} "
        f"stages of {groups} devices, micro-batch {sizes} of {plans['batch']} samples",
        "limits": f"{plans['limit'] / MIB:.1f}", "left_out": list(narrower(plans, costs)),
        "believed": f"{len(costs.rows)} rows and the tables of the profile, and the chain of "
        f"{len(costs.chain)} operators",
    }  # fmt: skip


def check(root: Any) -> dict[str, Any]:
    """Return the verdict on an open plan file.

    Raises RefusedError.
    """
    try:
        return checked(root)
    except ArithmeticError as error:  # figures of the file that no float holds
        raise RefusedError(f"certificate: {type(error).__name__}: {error}") from None


def checked(root: Any) -> dict[str, Any]:
    """Return the verdict on an open plan file."""
    begin = time.perf_counter()
    certificate = get(root, "certificate", dict)
    if root.get("schema", SCHEMA) != SCHEMA:
        raise RefusedError(f"schema: found {shown(root['schema'])}, expected {SCHEMA!r}")
    typed(root.get("version", OF_FILE), "version", int, 1, OF_FILE)
    if "independent" not in certificate:
        raise RefusedError(
            "certificate.independent: missing; `ilp-plan solve --check` writes it, or says why "
            "there is none"
        )
    record = get(certificate, "independent", dict)
    plans, costs, cases, claimed = opened(record)
    agree(root, plans, costs)
    plan = get(root, "plan", dict)
    unknown: list[str] = []
    if "training" in plans:
        objective = get(get(root, "result", dict), "objective_s", Fraction, 0, MOST_SECONDS)
        seconds, stages, faults, unknown = judge_job(plans, cases, plan, objective)
    elif "space" in plans:
        seconds, stages, faults = judge_layers(costs, plans, cases, plan)
    else:
        seconds, stages, faults = judge(costs, plans, plan)
    parts = prove(plans, costs, cases, claimed)
    bound = Fraction(min(parts.values()), PS)
    if not faults:
        faults += misstated(root, seconds, stages)
    if not faults:
        faults += overstated(root, record["bound_s"], seconds)
    if not faults and bound > seconds:
        faults.append("the bound is above the plan: one of the two is wrong")
    said = said_of_layers if "space" in plans else said_of_operators
    said = said_of_jobs if "training" in plans else said
    return {
        "seconds": seconds, "stages": stages, "faults": faults, "bound": bound, "parts": parts,
        "claimed": Fraction(claimed, PS), "unknown": unknown, **said(plans, costs, cases, claimed),
        "took": time.perf_counter() - begin,
    }  # fmt: skip


def faults_of(verdict: dict[str, Any]) -> list[str]:
    """Return what does not hold."""
    faults = list(verdict["faults"])
    if verdict["bound"] < verdict["claimed"] * (1 - WEAKER):
        faults.append(f"the proof is {weaker(verdict)}")
    return faults


def weaker(verdict: dict[str, Any]) -> str:
    """Return how much less than the claim is proved; empty if all of it is."""
    bound, claimed = verdict["bound"], verdict["claimed"]
    if bound >= claimed:
        return ""
    return f"{float(100 - 100 * bound / claimed):.2g} % below the {float(claimed):.9g} s claimed"


def clean(text: str) -> str:
    """Return a text of a file as one line that any terminal prints as it is."""
    return "".join(x if x.isascii() and x.isprintable() else "?" for x in text)


def told(verdict: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a verdict."""
    yield from map(clean, lines_of(verdict))


def lines_of(verdict):
    """Yield the lines of a verdict, with names as the file has them."""
    faults = faults_of(verdict)
    seconds, bound = float(verdict["seconds"]), float(verdict["bound"])
    legality = "not legal" if verdict["faults"] else "legal"
    yield f"plan      {len(verdict['stages'])} stages, {legality}"
    if not verdict["faults"]:
        fullest = max(
            (memory for _, memory in verdict["stages"] if memory is not None), default=None
        )
        yield f"seconds   {seconds:.9g} s per iteration"
        if fullest is not None:
            yield f"memory    {float(fullest) / MIB:.1f} of {verdict['limits']} MiB"
        yield f"gap       {max(0.0, 1 - bound / seconds):.2g}"
    yield f"proved    no plan of the set takes less than {bound:.9g} s"
    yield f"set       {verdict['set']}, {verdict['limits']} MiB of a device"
    yield f"believed  {verdict['believed']}: as in this file, compared with no other"
    for what in verdict["unknown"]:
        yield f"believed  not checked: {what}"
    if verdict["left_out"]:
        yield f"left out  {'; '.join(verdict['left_out'])}"
    if weaker(verdict):
        yield f"weaker    {weaker(verdict)}: what is between is not known"
    for fault in faults:
        yield f"FAULT     {fault}"
    yield f"checked   {'independently' if not faults else 'and refused'}, {verdict['took']:.1f} s"


def main(arguments: list[str]) -> int:
    """Check a file; 0: the plan is legal and the claim proved, 1: not, 2: no file named."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("checker: usage: python checker.py plan.json", file=sys.stderr)
        return 2
    try:
        verdict = check(read(arguments[0]))
    except RefusedError as error:
        print(clean(f"checker: {arguments[0]}: {error}"), file=sys.stderr)
        return 1
    print("\n".join(told(verdict)))
    return int(bool(faults_of(verdict)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
