import json
from pathlib import Path

import numpy as np
import pytest

from ilp_planner.base.errors import OutputError
from ilp_planner.schedule.engine import simulate
from ilp_planner.schedule.schedules import schedule_orders
from ilp_planner.schedule.trace import trace_events, write_trace
from tests.schedule.pipelines import equal_times


def test_a_trace_has_every_operation_where_it_runs(tmp_path: Path) -> None:
    times = equal_times(2, forward=2, input=2, weight=2)
    timeline = simulate(schedule_orders("zb-h1", 2, 3), times)
    write_trace(tmp_path / "trace.json", timeline)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [e["args"]["name"] for e in events if e["ph"] == "M"]
    assert names == ["rank 0", "rank 1"]
    slices = [e for e in events if e["ph"] == "X"]
    ours = [op for rank in range(2) for op in timeline.orders.of_rank(rank)]
    shown = [(e["name"], e["args"]["stage"], e["args"]["micro-batch"], e["pid"]) for e in slices]
    assert shown == [(f"{kind}{m}", stage, m, stage) for kind, stage, m in ours]
    assert [e["ts"] for e in slices] == (timeline.start * 1e6).tolist()
    assert {e["dur"] for e in slices} == {2e6}
    assert {e["tid"] for e in events if e["ph"] != "M"} == {0}  # a rank has one line


@pytest.mark.parametrize(("activations", "unit"), [(None, "micro-batches"), ([8, 8], "bytes")])
def test_a_trace_counts_what_is_held(activations: list[int] | None, unit: str) -> None:
    timeline = simulate(schedule_orders("1f1b", 2, 3), equal_times(2))
    given = None if activations is None else np.array(activations)
    events = trace_events(timeline, given)
    counters = [e for e in events if e["ph"] == "C" and e["pid"] == 0]
    each = 1 if activations is None else 8
    assert [e["args"][unit] // each for e in counters] == [1, 2, 2, 2, 2, 1, 0]
    assert counters[-1]["ts"] == timeline.finish[0] * 1e6


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    timeline = simulate(schedule_orders("1f1b", 1, 1), equal_times(1))
    with pytest.raises(OutputError, match="cannot be written"):
        write_trace(tmp_path / "none" / "trace.json", timeline)
