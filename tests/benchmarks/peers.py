"""Sailor's and Piper's plans and seconds beside the planner's, on the same instances and costs.

python -m tests.benchmarks --suite peers [--only TEXT] [--seconds 30]

Every search is a process of its own on two cores, with compiled kernels; seconds are counted from
its start. Its plans are judged by the peer's own formulas (`sailor_score.py`, `piper.py`), which
share nothing with the planner. What the peers' searches take is published or was measured on one
core by running them; both are in the data.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks import piper
from tests.benchmarks.kept import Kept, measured
from tests.benchmarks.peers_table import own_table, piper_table, rules_table, sailor_table
from tests.benchmarks.sailor_score import Sailor
from tests.benchmarks.sailor_space import Rules, best_plan
from tests.benchmarks.table import write_table
from tests.sailor_cases import DATA as SAILOR_DATA
from tests.sailor_cases import ZONE

Row = dict[str, Any]

SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class SailorCase:
    """Sailor's OPT-350 on A100-40 and V100-16 GPUs. cell: its number in the data; None: Sailor
    published no plan of this batch."""

    a100: int
    v100: int
    batch: int
    cell: int | None = None

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"sailor: {self.a100} A100 + {self.v100} V100, batch {self.batch}"


@dataclass(frozen=True, kw_only=True)
class PiperCase:
    """Piper's BERT with 32 layers. published: seconds of its search, as re-measured on one core."""

    devices: int
    published: str

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"piper: {self.devices} devices"


SAILOR_CASES = (
    SailorCase(a100=32, v100=96, batch=1024, cell=0),
    SailorCase(a100=80, v100=240, batch=1024, cell=1),
    SailorCase(a100=80, v100=240, batch=960),
    SailorCase(a100=80, v100=240, batch=1040),
    SailorCase(a100=128, v100=384, batch=1024, cell=2),
)
PIPER_CASES = (
    PiperCase(devices=64, published="0.19"),
    PiperCase(devices=512, published="2.6"),
    PiperCase(devices=2048, published="49-67"),
)
CASES: tuple[SailorCase | PiperCase, ...] = (*SAILOR_CASES, *PIPER_CASES)
# Sailor's space with all its rules, and without one of them.
RULES = {"all": Rules(), "one degree": Rules(degrees=False), "whole": Rules(short=False)}


def read_sailor() -> Sailor:
    """Return Sailor's published figures."""
    held = json.loads(SAILOR_DATA.read_text())
    parts = (held[name]["values"] for name in ("times", "layers", "network"))
    return Sailor(*parts, ZONE)


def kept() -> Kept:
    """Return what was written down last."""
    return Kept("peers", [case.name for case in CASES])


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose name contains `only`; write the results and the tables."""
    found, limit = kept(), seconds or SECONDS
    for case in CASES:
        if only not in case.name:
            continue
        data = SAILOR_DATA if isinstance(case, SailorCase) else piper.DATA
        if not data.is_file():
            print(f"{case.name}: left out, its data is not at ../shared/data/{data.parent.name}")
            continue
        row = {"case": case.name, "limit_s": limit, **_peer(case)}
        for costs in ("peer", "native") if isinstance(case, SailorCase) else ("peer",):
            row[costs] = _run(case.name, costs, limit)
        found.add(row)
    write_tables(found.rows)


def write_tables(rows: Sequence[Row]) -> None:
    """Write the tables of rows that are there, in the order of the cases."""
    found = {row["case"]: row for row in rows}
    for name, cases, table in (
        ("sailor", SAILOR_CASES, sailor_table),
        ("sailor-own", SAILOR_CASES, own_table),
        ("sailor-rules", SAILOR_CASES, rules_table),
        ("piper", PIPER_CASES, piper_table),
    ):
        own = [found[case.name] for case in cases if case.name in found]
        write_table(name, table(own))


def _peer(case: SailorCase | PiperCase) -> Row:
    """Return what the peer finds, by its own formulas."""
    if isinstance(case, PiperCase):
        chain = piper.read_chain()
        parts = chain.best(case.devices)
        if not chain.fits(parts):
            raise SystemExit(f"{case.name}: the plan of least load does not fit its memory")
        return {
            "search_s": case.published,
            "load_s": chain.seconds(parts),
            "timeline_s": chain.timeline(parts),
            "stages": len(parts),
        }
    sailor, gpus = read_sailor(), {"A100-40": case.a100, "V100-16": case.v100}
    cells = json.loads(SAILOR_DATA.read_text())["cells"]
    cell = {} if case.cell is None else cells[case.cell]
    best = {}
    for name, rules in RULES.items():
        found = best_plan(sailor, gpus, case.batch, rules)
        best[name] = None if found is None else found.seconds
    return {
        "search_s": cell.get("search_s"),
        "found_s": cell.get("sailor_iteration_s"),
        "best_s": best,
    }


def _run(name: str, costs: str, limit: float) -> Row:
    """Search in a process of its own; return its plans, judged by the peer, and when they came."""
    begun = time.time()
    row: Row = measured("tests.benchmarks.peers_one", str(begun), name, costs, str(limit))
    return {**row, "wall_s": time.time() - begun}
