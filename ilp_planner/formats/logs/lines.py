"""Lines of text of training systems, as a table: the mark of a line, and the reader of its numbers.

A file is read once, line by line; lines of several systems may be mixed, and the system with most
steps counts. A carriage return ends a line as well, as progress bars have it.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.formats.logs import metrics as m
from ilp_planner.formats.logs.base import Record
from ilp_planner.formats.logs.runs import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LONGEST = 1 << 16  # characters of a line that are looked at
NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
WRITTEN = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?")
RANK = re.compile(r"^\s*\[?(?:rank\s*)?(\d{1,5})\]?:\s|\[rank\s*(\d{1,5})\]", re.IGNORECASE)


class Format(NamedTuple):
    """Lines of one system.

    title: of its log. token: in all of its lines. mark: of a line with a step, whose first group is
    the number of the step. pairs: names and values of such a line. mean: numbers are means since
    the line before.
    """

    title: str
    token: bytes
    mark: re.Pattern[str]
    pairs: Callable[[str], Iterable[tuple[str, str]]]
    mean: bool = False


def _by(pattern: str) -> Callable[[str], Iterator[tuple[str, str]]]:
    """Return a reader of names and values; a third group is a unit, that belongs to the name, or a
    letter for thousands and more."""
    found_by = re.compile(pattern)

    def read(text: str) -> Iterator[tuple[str, str]]:
        for found in found_by.finditer(text):
            name, value, *more = (group or "" for group in found.groups())
            unit = more[0] if more else ""
            plain = value.replace(",", "")
            if unit in SCALES:
                yield name, str(float(plain) * SCALES[unit])
            else:
                yield f"{name}_{unit}", plain

    return read


def _columns(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of columns, as `name: 1.5 | other: 2.5K`."""
    for cell in text.split("|"):
        name, colon, value = cell.rpartition(":")
        value = value.strip().replace(",", "")
        if not colon or not value:
            continue
        if value[-1] in SCALES and value[:-1].replace(".", "", 1).isdigit():
            value = str(float(value[:-1]) * SCALES[value[-1]])
        yield name.strip(), value


EQUAL = _by(rf"([A-Za-z][\w /]*?)\s*=\s*({NUMBER})(GB|GiB)?")
SPACED = _by(rf"([a-z_]+): +({NUMBER})(GiB)?")
NAMED_BEFORE = _by(rf"([a-z][a-z /]*(?:\(s\))?): ({NUMBER})")

FORMATS = tuple(
    Format(title, token, re.compile(mark.replace(r"(\d+)", r"([0-9]{1,15})")), pairs, mean)
    for title, token, mark, pairs, mean in (
        ("NeMo", b", iteration ", r"Training epoch \d+, iteration (\d+)/\d+ \|", _columns, False),
        ("Megatron-LM", b"iteration ", r"\biteration +(\d+)/ *\d+ \|", _columns, True),
        ("NeMo's progress bar", b"train_step_timing",
         r"global_step=(\d+)(?:\.0*)?,.*train_step_timing in s=", EQUAL, False),
        ("torchtitan", b"step: ", r"\bstep: *(\d+) +loss:", SPACED, True),
        ("DeepSpeed", b"CurrSamplesPerSec=", r"global_step=(\d+),.*CurrSamplesPerSec=", EQUAL,
         False),
        ("DeepSpeed", b"iter time (s):", r"\bsteps: (\d+) loss: .*iter time \(s\):", NAMED_BEFORE,
         False),
        ("nanotron", b"iteration: ", r"iteration: (\d+) / \d+ \|", _columns, True),
        ("nanoGPT", b"iter ", r"\biter (\d+): loss [\d.]+, time ", _by(rf"(time) ({NUMBER})(ms)"),
         False),
        ("a progress bar of Hugging Face's Trainer", b"it",
         r"(?<!\d)(\d+)/\d+ \[[\d:]+<[\d:?]+, *[\d.?]+ ?(?:s/it|it/s)", lambda text: (), False),
    )
)  # fmt: skip
NAMED = {"time_ms": "step_time_ms"}  # of nanoGPT
BAR = re.compile(r"\[(?:(\d+):)?(\d+):(\d+)<")
ARGUMENT = re.compile(r"^\s*(?:\d+:)?\s*([a-z]\w*) \.{2,} ?(.*?)\s*$")
TIMER = re.compile(rf"^\s*(?:\[?\w*\]?:)?\s*([a-z][\w/+-]*) \.{{2,}}: \(({NUMBER}), ({NUMBER})\)")
TIMER_MAX = re.compile(rf"^\s*(?:\[?\w*\]?:)?\s*([a-z][\w/+-]*) \.{{2,}}: ({NUMBER})\s*$")
TIMER_OF_RANKS = re.compile(r"^\s*(?:\[?\w*\]?:)?\s*([a-z][\w/+-]*):\s*$")
TIMER_RANK = re.compile(rf"^\s*(?:\[?\w*\]?:)?\s*rank +(\d+): ({NUMBER})\s*$")
NETWORK = re.compile(r"NCCL INFO (?:Using network |NET/)(\w+)")
SAVING = re.compile(r"\b[Ss]av(?:ing|ed)\b.{0,40}checkpoint")
MLLOG = ":::MLLOG"
# In lines that are no steps, but say something of the run.
OTHERS = (b":::MLLOG", b" ..", b"rank ", b":\n", b"NCCL INFO", b"aving", b"aved")


def read_lines(lines: Iterable[bytes]) -> Found:
    """Return what a text says of steps; nothing where no line is of a known system."""
    each = [Found(title=one.title) for one in FORMATS]
    shared, benchmark = Found(), _Benchmark()
    step, timer = 0, ""
    last: Found | None = None
    for place, whole in enumerate(lines, 1):
        for raw in whole.split(b"\r") if b"\r" in whole else (whole,):
            likely = [n for n, one in enumerate(FORMATS) if one.token in raw]
            other = any(token in raw for token in OTHERS) or raw.endswith(b":")
            if not likely and not other:
                continue
            text = raw[:LONGEST].decode("utf-8", "replace")
            if "\x1b" in text:
                text = COLOURS.sub("", text)
            begins, number = [], -1
            for number in likely:
                begins = list(FORMATS[number].mark.finditer(text))
                if begins:
                    break
            if begins:
                records = list(_records(FORMATS[number], begins, text, place))
                each[number].records += records
                last, step = each[number], records[-1].step
            elif not other:
                continue
            elif MLLOG in text:
                benchmark.take(text, place)
            elif last is not None and (one := _timer(text, timer)) is not None:
                timer = one.name
                _add(last.timers.setdefault(len(last.records) - 1, {}), one)
            elif found := ARGUMENT.match(text):
                shared.said.setdefault(found[1], found[2])
            elif found := NETWORK.search(text):
                shared.said.setdefault("NCCL network", found[1])
            elif SAVING.search(text):
                shared.saved.append(step)
    each.append(benchmark.found())
    best = max(each, key=lambda found: len(found.records))
    best.said = {**shared.said, **best.said}
    best.saved += shared.saved
    return best


def _records(form: Format, begins: list[re.Match[str]], text: str, place: int) -> Iterator[Record]:
    """Yield the steps of a line: more than one where ranks wrote over each other."""
    rank = RANK.search(text[: begins[0].start()])
    said = (rank[1] or rank[2]) if rank else ""
    for number, begin in enumerate(begins):
        end = begins[number + 1].start() if number + 1 < len(begins) else len(text)
        part = text[begin.start() : end]
        values = m.numbers([(NAMED.get(name, name), value) for name, value in form.pairs(part)])
        values.pop(m.STEP, None)
        if m.SECONDS in values:
            pass
        elif bar := BAR.search(part):
            hours, minutes, seconds = (int(group or 0) for group in bar.groups())
            values[m.TIME] = 3600.0 * hours + 60 * minutes + seconds
        elif written := WRITTEN.search(text):
            values.setdefault(m.TIME, _moment(written))
        yield Record(int(begin[1]), values, place, said, form.mean)


def _moment(written: re.Match[str]) -> float:
    day, clock, part = written.groups()
    try:
        moment = datetime.fromisoformat(f"{day} {clock}").timestamp()
    except (ValueError, OverflowError, OSError):
        return float("nan")
    return moment + float(f"0.{part or 0}")


# ---- timers of Megatron-LM -----------------------------------------------------------------------


class _Timed(NamedTuple):
    """Seconds of a timer. rank: -1: of the fastest and the slowest."""

    name: str
    least: float = float("nan")
    most: float = float("nan")
    rank: int = -1


def _timer(text: str, name: str) -> _Timed | None:
    """Return the timer of a line; None if it is of none. name: of the timer before, whose ranks may
    be said one a line."""
    if found := TIMER.match(text):
        return _Timed(found[1], float(found[2]) / 1e3, float(found[3]) / 1e3)
    if found := TIMER_MAX.match(text):
        return _Timed(found[1], most=float(found[2]) / 1e3)
    if found := TIMER_OF_RANKS.match(text):
        return _Timed(found[1])
    if name and (found := TIMER_RANK.match(text)):
        seconds = float(found[2]) / 1e3
        return _Timed(name, seconds, seconds, int(found[1]))
    return None


def _add(timers: dict[str, tuple[float, float, int]], one: _Timed) -> None:
    """Count a timer of a step: the fastest and the slowest rank, and which one that is."""
    if one.most != one.most:  # the head of lines with ranks
        return
    if one.name not in timers or one.rank < 0:
        timers[one.name] = (one.least, one.most, one.rank)
        return
    least, most, rank = timers[one.name]
    slower = one.most > most
    timers[one.name] = (min(least, one.least), max(most, one.most), one.rank if slower else rank)


# ---- MLPerf's result logs ------------------------------------------------------------------------

PROGRESS = ("step_num", "samples_count", "step", "epoch_num", "first_epoch_num")
LARGEST = 1e15  # number of a step, or of samples
LARGE = 1000  # more than any training has epochs
BEGINS = ("block_start", "epoch_start", "eval_stop")
ENDS = ("block_stop", "eval_start")


class _Point(NamedTuple):
    """Where training was at a moment. kind: what the progress counts, of `PROGRESS`."""

    kind: str
    progress: float
    moment: float
    place: int


class _Benchmark:
    """Reads `:::MLLOG` lines by several ways: losses with the samples trained until then, seconds
    or throughput that a submitter tracks, and the moments between which it trained. The way that
    tells most counts. Evaluations take no time of steps, unless nothing but their ends is logged.
    """

    PARAMETERS = ("global_batch_size", "max_sequence_length", "gradient_accumulation_steps",
                  "train_samples", "submission_benchmark", "submission_platform",
                  "number_of_nodes")  # fmt: skip

    def __init__(self) -> None:
        self.said: dict[str, str] = {}
        self.losses: list[tuple[_Point, _Point]] = []  # from one to the next
        self.spans: list[tuple[_Point, _Point]] = []
        self.tracked: list[tuple[_Point, dict[str, float]]] = []
        self.checks: list[tuple[_Point, _Point]] = []  # from evaluation to evaluation
        self.loss: _Point | None = None
        self.check: _Point | None = None
        self.begun: _Point | None = None
        self.coming = 0.0

    def take(self, text: str, place: int) -> None:
        """Count a line; one that is cut off says nothing."""
        try:
            said = json.loads(text[text.index("{") :])
            key, value, about = said["key"], said["value"], said.get("metadata") or {}
            kind = next((name for name in PROGRESS if name in about), "")
            point = _Point(kind, float(about.get(kind, 0)), said["time_ms"] / 1e3, place)
            count = float(about.get("epoch_count", 0))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return
        if any(m.finite(value) is None for value in (point.progress, point.moment, count)):
            return
        if key in self.PARAMETERS:
            self.said.setdefault(key, str(value))
        elif key in BEGINS:
            self.begun, self.loss = point, None
            self.coming = count if key == "block_start" else 0.0
        elif key in ENDS and self.begun is not None:
            last = point
            if self.coming:
                last = point._replace(progress=self.begun.progress + self.coming)
            self.spans.append((self.begun, last._replace(kind=last.kind or self.begun.kind)))
            self.begun = self.loss = None
        elif key == "eval_accuracy" and kind:
            if self.check is not None:
                self.checks.append((self.check, point))
            self.check = point
        elif key == "train_loss" and kind:
            if self.loss is not None and point.progress > self.loss.progress:
                self.losses.append((self.loss, point))
            if self.loss is None or point.progress > self.loss.progress:
                self.loss = point
        elif key in ("tracked_stats", "throughput") and kind:
            values = value if isinstance(value, dict) else {key: value}
            if "throughput" in values:
                values = {**values, "samples_per_second": values["throughput"]}
            if "train_step_time" in values:
                values = {**values, "step_time": values["train_step_time"]}
            self.tracked.append((point, m.numbers(values)))

    def found(self) -> Found:
        """Return the steps."""
        found = Found(title="MLPerf's log", said=self.said)
        batch = self._number("global_batch_size")
        if not batch:
            return found
        seconds, rates = (
            [
                Record(self._steps(point), {m.BATCH: batch, **values}, point.place, mean=True)
                for point, values in self.tracked
                if name in values
            ]
            for name in (m.SECONDS, m.SAMPLES_RATE)
        )
        ways = (self._timed(self.losses, batch), seconds, rates, self._timed(self.spans, batch))
        found.records = max(ways, key=len)
        if len(found.records) < 2:
            found.records = self._timed(self.checks, batch)
            found.notes.append("it has the moments of evaluations alone: their seconds are counted")
        return found

    @cached_property
    def _in_tokens(self) -> float:
        """Tokens of a sample, if progress is in tokens: all of it whole batches of them."""
        whole = self._number("global_batch_size") * self._number("max_sequence_length")
        points = [point for pair in (*self.spans, *self.checks) for point in pair]
        counted = [point.progress for point in points if point.kind.endswith("epoch_num")]
        if whole and any(counted) and all(value % whole == 0 for value in counted):
            return self._number("max_sequence_length")
        return 0.0

    def _timed(self, pairs: list[tuple[_Point, _Point]], batch: float) -> list[Record]:
        found: list[Record] = []
        for begun, ended in pairs:
            first, last = self._steps(begun), self._steps(ended)
            if last > first and (not found or last > found[-1].step):
                each = (ended.moment - begun.moment) / (last - first)
                values = {m.BATCH: batch, m.SECONDS: each}
                found.append(Record(last, values, ended.place, mean=True))
        return found

    def _steps(self, point: _Point) -> int:
        """Return the steps until a moment. Progress is in steps, samples, epochs or tokens."""
        batch, samples = self._number("global_batch_size"), self._number("train_samples")
        progress = point.progress
        if point.kind == "step_num":
            return round(min(progress, LARGEST))
        if point.kind != "samples_count" and self._in_tokens:
            progress /= self._in_tokens
        elif point.kind != "samples_count" and progress < min(batch, LARGE):
            progress *= samples
        return round(min(progress / batch, LARGEST))

    def _number(self, name: str) -> float:
        try:
            number = float(self.said[name])
        except (KeyError, ValueError):
            return 0.0
        return number if 1 <= number < LARGEST else 0.0
