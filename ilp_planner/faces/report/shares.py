"""The sources of a plan's time, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import format_percent
from ilp_planner.costs.profiles.shares import predicted_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.costs.profiles.shares import Share
    from ilp_planner.costs.profiles.table import Provenance

NOTHING = 5e-5  # a share below it is nothing that anybody would read


def share_lines(shares: Mapping[Provenance, Share]) -> list[tuple[str, str]]:
    """Return `93.10 % measured, 6.90 % interpolated (off by 2.10 %)`; nothing if it is not
    known."""
    if not shares:
        return []
    parts = []
    for source, share in shares.items():
        if share.share < NOTHING:
            continue
        text = f"{format_percent(share.share)} {source}"
        if share.error is not None and source != "measured":
            text += f" (off by {format_percent(share.error)} as a rule)"
        parts.append(text)
    return [("time rests on", ", ".join(parts))]


def share_object(shares: Mapping[Provenance, Share]) -> dict[str, Any]:
    """Return shares by source, their expected error if it is known, and of all that was predicted
    from measurements."""
    return {
        "provenance": {str(source): share.share for source, share in shares.items()},
        "provenance_error": {
            str(source): share.error
            for source, share in shares.items()
            if share.error is not None and source != "measured"
        },
        "predicted_error": predicted_error(shares),
    }
