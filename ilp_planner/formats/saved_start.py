"""From a saved plan to the start of a search."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ilp_planner.formats.saved_json import read_saved
from ilp_planner.formats.saved_problem import space_of
from ilp_planner.formats.versions import OWN, versions
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.search.start import Start

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.formats.saved_plan import SavedPlan


def read_start(path: Path) -> Start:
    """Read the start of a search.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    return start_of(read_saved(path), str(path))


def start_of(saved: SavedPlan, name: str) -> Start:
    """Return the start of a search.

    Parameters
    ----------
    name: of the file, for people.
    """
    claim = saved.claim
    return Start(
        name=name,
        plan=saved.plan,
        space=space_of(saved),
        seconds=math.nan if claim is None else claim.objective,
        request=saved.inputs,
        certificate=saved.certificate,
        why_unproved=_why_unproved(saved),
        ended=claim is not None and claim.stopped_by is Stop.PROOF,
        prefer_plain=math.nan if claim is None else claim.prefer_plain,
        fastest=None if claim is None or claim.fastest is None else claim.fastest.plan,
    )


def _why_unproved(saved: SavedPlan) -> str:
    """Return why bounds may be of other costs than today's: only one version of the planner is
    known to have them."""
    run = None if saved.claim is None else saved.claim.run
    there, here = None if run is None else run.versions.get(OWN), versions().get(OWN)
    if there is None:
        return f"it does not say which {OWN} proved any"
    return "" if there == here else f"{OWN} {there} there, {here} here"
