"""The constants of a machine that runs can determine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.analysis.calibration.fit import FREE, HOST
from ilp_planner.base.errors import UsageError
from ilp_planner.job.states import rhythm
from ilp_planner.specs.toml_reader import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.specs.training import TrainingJob

FELT = 1e-3  # relative change of a run's time that says something of a constant
# Constants that are fitted without being asked for -> different runs that this needs. Frameworks
# differ most in their attention: of published FSDP runs, 5 with it free predict the others to
# 3-5 %, without it to 10-15 %.
NEEDS = {
    "sustained": 1,
    "attention": 3,
    "attention_backward": 3,
    "streaming": 5,
    "grouped": 10,
    "links": 10,
    "network": 10,
    "sharded_exposed": 10,
    "host_forward": 10,
    "host_backward": 10,
}


def moved(name: str, value: float) -> float:
    """Return another usual value of a constant. The floor of the host is looked for from above."""
    free = FREE[name]
    if value < HOST.get(name, 0.0):
        return HOST[name]
    return value + free.scale if value + free.scale <= free.high else value - free.scale


def reasons(jobs: Sequence[TrainingJob], felt: Mapping[str, int], per_node: int) -> dict[str, str]:
    """Return why a constant is not fitted to runs; empty for fitted ones.

    Parameters
    ----------
    jobs: different ones. felt: by how many of them each constant changes. per_node: devices.
    """
    lengths = {job.model.sequence for job in jobs}
    lacking = {
        "grouped": ("no run has experts", any(job.model.experts for job in jobs)),
        "network": ("no run crosses nodes", any(job.world > per_node for job in jobs)),
        "sharded_exposed": (
            "no run shards gradients or parameters",
            any(rhythm(job).in_passes for job in jobs),
        ),
        "attention": (f"all samples have {min(lengths)} tokens", len(lengths) > 1),
    }
    lacking["attention_backward"] = lacking["attention"]
    found = {}
    for name in FREE:
        why, given = lacking.get(name, ("", True))
        if name not in NEEDS:
            found[name] = "only when asked for"
        elif not given:
            found[name] = why
        elif not felt[name]:
            found[name] = "no run depends on it"
        elif len(jobs) < NEEDS[name]:
            found[name] = f"needs {NEEDS[name]} different runs, found {len(jobs)}"
        else:
            found[name] = ""
    return found


def asked(names: Sequence[str], felt: Mapping[str, int], runs: int) -> dict[str, str]:
    """Return why a constant is not fitted if a user names the fitted ones; empty for fitted ones.

    Parameters
    ----------
    felt: by how many of the different runs each constant changes. runs: how many these are.

    Raises
    ------
    UsageError: more constants than runs, or one that no run says anything of.
    """
    if len(names) > runs:
        raise UsageError(
            f"fit: found {len(names)} constants and {runs} different run{'s' * (runs > 1)}, "
            f"expected at least as many runs; `fit={','.join(names[:runs])}` would do"
        )
    for name in names:
        if not felt[name]:
            some = [other for other in FREE if felt[other]]
            raise UsageError(
                f"fit: no run depends on {name!r}, expected some of {', '.join(some) or 'none'}"
            )
    return {name: "" if name in names else "not asked for" for name in FREE}


def check_names(names: Sequence[str]) -> None:
    """Refuse unknown constants.

    Raises
    ------
    UsageError: names the nearest.
    """
    for name in names:
        if name not in FREE:
            raise UsageError(f"fit: found {name!r}, {nearest(name, tuple(FREE))}")
