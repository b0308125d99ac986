"""Megatron-LM's verdict on a launch line, without Megatron-LM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.arguments import read_arguments
from ilp_planner.formats.megatron.repairs import PARSE, Finding
from ilp_planner.formats.megatron.rules import check_arguments, check_environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of a launch line. accepted: by Megatron's own checks."""

    accepted: bool
    findings: tuple[Finding, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether nothing is known that is wrong with it."""
        return not self.findings


def judge(
    words: Sequence[str] | str,
    world: int | None = None,
    *,
    environment: Mapping[str, str] | None = None,
) -> Verdict:
    """Return Megatron's verdict on a launch line.

    Parameters
    ----------
    environment: variables that are set; None: unknown, and not judged.
    """
    try:
        args = read_arguments(words, world, environment=environment)
    except SpecError as error:
        flag, _, rest = str(error).partition(": ")
        return Verdict(accepted=False, findings=(Finding(flag=flag, found=rest, stage=PARSE),))
    findings = check_arguments(args)
    if environment is not None:
        findings = (*check_environment(args), *findings)
    return Verdict(accepted=not any(f.rejected for f in findings), findings=findings)
