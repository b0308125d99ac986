"""Kept stages as JSON, with the content of their plans."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from ilp_planner.settings.kept import SAID, KeptStage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ilp_planner.formats.json_fields import Fields

KEYS = tuple(field.name for field in fields(KeptStage))


def encode_stages(stages: Iterable[KeptStage]) -> list[dict[str, Any]]:
    """Return stages as JSON-ready objects, with all that was read of their plans."""
    return [asdict(stage) for stage in stages]


def decode_stages(root: Fields, key: str) -> Iterator[KeptStage]:
    """Yield stages as `encode_stages` writes them.

    Raises
    ------
    PlanError: one line with the file, the key, the found and the expected value.
    """
    for each in root.each(key):
        each.only(KEYS)
        if not SAID.fullmatch(each.text("said")):
            raise each.error("said", "PLAN:stage0")
        yield KeptStage(
            said=each.text("said"),
            ranges=tuple((a, b) for a, b in _lists(each, "ranges", count=2)),
            devices=tuple(map(tuple, _lists(each, "devices"))),
            **{name: each.whole(name, least=1) for name in ("tp", "cp", "ep", "layers")},
            etp=each.whole("etp"),
            model=each.text("model"),
            cluster=each.text("cluster"),
        )


def _lists(root: Fields, key: str, count: int | None = None) -> Iterator[list[int]]:
    """Yield lists of whole numbers, at least one, `count` numbers in each or one or more."""
    values = root.listed(key)
    if not values or [] in values:
        raise root.error(key, "lists that are not empty")
    for number in range(len(values)):
        place = f"{key}[{number}]"
        one = type(root)({place: values[number]}, file=root.file, where=root.where)
        yield one.wholes(place, count=count)
