"""What is wrong with arguments, and where Megatron-LM would notice."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ilp_planner.formats.megatron.flags import flag_of

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

    flag: the argument, as it is typed. found: of what its parser refuses, all there is to say.
    fix: what would repair it, where one value does; others: what else might, in this order
    (`repairs` says how they are written). stage: one of STAGES.
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


def broken(key: str, found: object, expected: str, fix: str = "", stage: str = VALIDATE) -> Finding:
    """Return what is wrong with the value of a key."""
    return Finding(flag_of(key), str(found), expected, fix, stage)


config = partial(broken, stage=CONFIG)  # what `TransformerConfig` refuses


def one_of(key: str, other: str, stage: str = VALIDATE) -> Finding:
    """Return that two arguments exclude each other."""
    return broken(key, f"{flag_of(other)} with it", "one of them", stage=stage)


def needs(
    key: str, other: str, expected: str = "", *, found: str = "", stage: str = VALIDATE
) -> Finding:
    """Return that an argument, or its value that was found, needs another one."""
    need = flag_of(other)
    what = f"{found} without {need}" if found else f"no {need}"
    return broken(key, what, expected or need, need, stage)
