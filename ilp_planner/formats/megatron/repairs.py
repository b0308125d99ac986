"""Repairs that are offered for a broken rule: each is tried on all rules before it is.

A repair is the arguments to add, those to leave out, or another world size, as text:
`--global-batch-size 64`, `a world size of 8 with --global-batch-size 64`,
`--pipeline-model-parallel-layout 'Et*5|t*4L' without --account-for-loss-in-pipeline-split`.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.flags import find_flag, flag_of, flags_by_key
from ilp_planner.formats.megatron.launcher import smallest_world
from ilp_planner.formats.megatron.values import MegatronArguments, parse_values
from ilp_planner.specs.degrees import nearest_divisor, nearest_multiple

# Where: Megatron's own checks before anything is built, in their order, and what comes after.
PARSE, VALIDATE, CONFIG = "parse_args", "validate_args", "TransformerConfig"
BUILD, RUN, NEVER = "build", "run", "never"
STAGES = (PARSE, VALIDATE, CONFIG, BUILD, RUN, NEVER)
LATE = {
    BUILD: "Megatron accepts it and fails when it builds the groups or the model",
    RUN: "Megatron accepts it and fails in the first iteration",
    NEVER: "Megatron accepts it and does something else without a word",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that arguments break.

    flag: the argument, as it is typed. found: for refusals of its parser, the whole text.
    fix: the repair, if one value does; others: further possible repairs, in this order (`repairs`
    says how they are written). stage: one of STAGES.
    """

    flag: str
    found: str
    expected: str = ""
    fix: str = ""
    stage: str = VALIDATE
    others: tuple[str, ...] = field(default=(), compare=False)

    @property
    def rejected(self) -> bool:
        """Whether Megatron itself refuses the arguments for this."""
        return self.stage not in LATE

    def __str__(self) -> str:
        if self.stage == PARSE:
            return f"{self.flag}: {self.found}"
        line = f"{self.flag}: found {self.found}, expected {self.expected}"
        if self.fix and self.fix not in self.expected:
            line += f"; {self.fix} would do"
        return line if self.rejected else f"{line} ({LATE[self.stage]})"


class Seen(NamedTuple):
    """The value of an argument. flag: as it is typed. what: its value, or a fact beside it."""

    flag: str
    what: str
    stage: str

    def expected(self, expected: str, fix: str = "", *others: str) -> Finding:
        """Return that something else is expected."""
        return Finding(self.flag, self.what, expected, fix, self.stage, others)

    def multiple(self, unit: int, of: str) -> Finding:
        """Return that a multiple is expected; the nearest one repairs it."""
        fix = f"{self.flag} {nearest_multiple(int(self.what), unit)}"
        return self.expected(f"a multiple of {of} ({unit})", fix)

    def divisor(self, whole: int, of: str) -> Finding:
        """Return that a divisor is expected; the nearest one repairs it."""
        fix = f"{self.flag} {nearest_divisor(int(self.what), whole)}"
        return self.expected(f"a divisor of {of} ({whole})", fix)


def found(key: str, what: object, stage: str = VALIDATE) -> Seen:
    """Return the value of the argument of a key; `key` may also be a flag or the name of a
    variable."""
    return Seen(flag_of(key) if key in flags_by_key() else key, str(what), stage)


config = partial(found, stage=CONFIG)
built = partial(found, stage=BUILD)
run = partial(found, stage=RUN)
never = partial(found, stage=NEVER)


def one_of(key: str, other: str, stage: str = VALIDATE) -> Finding:
    """Return that two arguments exclude each other."""
    return found(key, f"{flag_of(other)} with it", stage).expected("one of them")


def needs(
    key: str, other: str, expected: str = "", *, value: str = "", stage: str = VALIDATE
) -> Finding:
    """Return that an argument, or one of its values, needs another one."""
    need = flag_of(other)
    what = f"{value} without {need}" if value else f"no {need}"
    return found(key, what, stage).expected(expected or need, need)


# Of a rule that is broken: its name, and what it finds.
Broken = tuple[str, Finding]
Check = Callable[[MegatronArguments], Sequence[Broken]]
WORLD = re.compile(r"a world size of (\d+)(?: with )?")
WHOLE = re.compile(r"(--[a-z-]+|a world size of) (\d+)")
MOST = 64  # other values that are tried for one argument
STEPS = 4  # arguments that a repair changes at most


@dataclass(frozen=True, slots=True)
class Repair:
    """added: values by argument. dropped: arguments to leave out. world: ranks; 0: as now."""

    added: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    world: int = 0

    def __str__(self) -> str:
        world = (f"a world size of {self.world}",) if self.world else ()
        added = (shlex.join(self.words),) if self.added else ()
        without = f" without {' and '.join(self.dropped)}" if self.dropped else ""
        return " with ".join(world + added) + without

    @property
    def words(self) -> tuple[str, ...]:
        """Return what is added, as it is typed."""
        return tuple(word for flag, values in self.added.items() for word in (flag, *values))

    def then(self, other: "Repair") -> "Repair":
        """Return both as one."""
        added = {flag: values for flag, values in self.added.items() if flag not in other.dropped}
        dropped = tuple(flag for flag in self.dropped if flag not in other.added)
        return Repair({**added, **other.added}, dropped + other.dropped, other.world or self.world)

    def on(self, args: MegatronArguments) -> MegatronArguments:
        """Return repaired arguments.

        Raises
        ------
        SpecError: Megatron's parser does not take the words.
        """
        values = {**args.values, **parse_values(self.words)}
        for flag in self.dropped:
            values.pop(find_flag(flag).key, None)
        changed = replace(args, values=values, world=self.world or args.world)
        said = args.world_said or self.world
        return changed if said else replace(changed, world=smallest_world(changed))


def read_repair(text: str) -> Repair:
    """Return what a text says to change."""
    world = WORLD.match(text)
    added, _, dropped = text[world.end() if world else 0 :].partition(" without ")
    values: dict[str, tuple[str, ...]] = {}
    flag = ""
    for word in shlex.split(added):
        if word.startswith("--"):
            flag = word
        values[flag] = (*values[flag], word) if flag in values else ()
    return Repair(
        values, tuple(dropped.split(" and ")) if dropped else (), int(world[1]) if world else 0
    )


def with_working_repairs(
    args: MegatronArguments, broken: Sequence[Broken], check: Check
) -> tuple[Finding, ...]:
    """Return what is wrong with arguments, each with a repair after which its rule complains no
    more and none does that did not before; without any if none is known."""
    trial = _Trial(args, Counter(map(_place, broken)), check)
    return tuple(
        replace(finding, fix=trial.repair_of((rule, finding)))
        if finding.fix.startswith(("--", "a world"))
        else finding
        for rule, finding in broken
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    """before: how often each rule complains of each argument."""

    args: MegatronArguments
    before: Counter[tuple[str, str]]
    check: Check

    def repair_of(self, broken: Broken) -> str:
        """Return a repair that works, as text: of one argument if there is one."""
        finding = broken[1]
        offered = [read_repair(text) for text in (finding.fix, *finding.others)]
        for repair in (*offered, *_nearby(self.args, finding.fix)):
            if self.left_after(repair, broken) == []:
                return str(repair)
        for first in offered:
            repair = first
            for _ in range(STEPS - 1):
                left = self.left_after(repair, broken) or []
                following = next((f.fix for _, f in left if f.fix.startswith("--")), "")
                if not following:
                    break
                repair = repair.then(read_repair(following))
                if self.left_after(repair, broken) == []:
                    return str(repair)
        return ""

    def left_after(self, repair: Repair, broken: Broken) -> list[Broken] | None:
        """Return what is wrong after a repair and should not be: the same as before, or what was
        right before. None: Megatron's parser does not take the repair."""
        try:
            after = self.check(repair.on(self.args))
        except SpecError:
            return None
        places = Counter(map(_place, after))
        worse = places - self.before
        if places[_place(broken)] >= self.before[_place(broken)]:
            worse[_place(broken)] += 1
        return [left for left in after if worse[_place(left)]]


def _nearby(args: MegatronArguments, text: str) -> Iterator[Repair]:
    """Yield other values for the one number that a repair gives, those near today's first."""
    match = WHOLE.fullmatch(text)
    if match is None:
        return
    now = args.whole(find_flag(match[1]).key) if match[1].startswith("--") else args.world
    for value in sorted(range(max(1, now - MOST), now + MOST), key=lambda value: abs(value - now)):
        yield read_repair(f"{match[1]} {value}")


def _place(broken: Broken) -> tuple[str, str]:
    rule, finding = broken
    return rule, finding.flag
