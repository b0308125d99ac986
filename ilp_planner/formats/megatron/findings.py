"""Faults of arguments, and the place where Megatron-LM would notice."""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ilp_planner.formats.megatron.flags import flag_of, flags_by_key
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
