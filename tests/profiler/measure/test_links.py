"""Measuring links: an operation that was not done is found out, and who failed is named."""

import math
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ilp_planner.base.errors import MeasureError
from ilp_planner.profiler.measure import links
from ilp_planner.profiler.measure.links import expected_time
from ilp_planner.profiler.measure.links_ops import Operation, make_operation
from ilp_planner.profiler.measure.links_plan import (
    OPERATIONS,
    LinkSettings,
    cases_of,
    series_of,
    settings_of,
)
from ilp_planner.profiler.measure.links_rank import cause_of


def test_settings_survive_the_way_to_another_process():
    settings = LinkSettings(
        output="a b.csv", backend="gloo", sizes=(1024, 4096), operations=("all_reduce",), seconds=3
    )
    assert settings_of(settings.to_json()) == settings


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_an_operation_that_did_nothing_is_found_out(name, ranks):
    """Not one of the ranks may think that values came which were never sent."""
    if name == "send_recv" and ranks > 2:
        pytest.skip("messages are between two")
    wrong = 0
    for rank in range(ranks):
        operation = make_operation(name, 64 * ranks**2, range(ranks), rank, None, "cpu")
        operation.fill()
        wrong += not operation.right()
    # A broadcast leaves the values of the one whose turn it is.
    assert wrong >= (ranks - 1 if name == "broadcast" else ranks)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_result_that_lacks_its_last_value_is_found_out(name, monkeypatch):
    """Bring the right values by hand, then all but one."""
    import torch
    import torch.distributed as dist

    result = {}

    def all_reduce(buffer, group):
        result["at"] = buffer
        buffer.fill_(3.0)
        buffer[-1] = 4.0

    def gather(whole, share, group):
        result["at"] = whole
        whole.copy_(torch.tensor([1.0, 2.0]).repeat_interleave(whole.numel() // 2))

    def scatter(share, whole, group):
        result["at"] = share
        share.fill_(1.0)  # what rank 0 gets: 0 + 1

    def all_to_all(received, sent, group):
        result["at"] = received
        received.copy_(torch.tensor([1.0, 3.0]).repeat_interleave(received.numel() // 2))

    def broadcast(buffer, root, group):
        result["at"] = buffer

    def recv(received, other, group):
        result["at"] = received
        received.fill_(2.0)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    for one in ("all_gather_single", "all_gather_into_tensor"):
        monkeypatch.setattr(dist, one, gather, raising=False)
    for one in ("reduce_scatter_single", "reduce_scatter_tensor"):
        monkeypatch.setattr(dist, one, scatter, raising=False)
    monkeypatch.setattr(dist, "all_to_all_single", all_to_all)
    monkeypatch.setattr(dist, "broadcast", broadcast)
    monkeypatch.setattr(dist, "send", lambda *a, **k: None)
    monkeypatch.setattr(dist, "recv", recv)
    operation = make_operation(name, 256, [0, 1], 0, None, "cpu")
    operation.fill()
    operation.run()
    assert operation.right()
    result["at"][-1] = -7.0
    assert not operation.right()


@dataclass
class Alone:
    """A world of one rank, which agrees with itself."""

    rank: int = 0
    devices: tuple = ("CPU", "CPU")
    backend: str = "gloo"
    device: str = "cpu"
    room: bool = True
    seen: list = field(default_factory=list)

    def all(self, mine):
        return mine

    def slowest(self, mine):
        return list(mine)

    def barrier(self):
        self.seen.append("barrier")

    def synchronize(self):
        self.seen.append("synchronize")

    def has_room(self, size):
        return self.room


@pytest.fixture
def series():
    return series_of(cases_of([0, 0]), ["all_reduce"], [1024])[0]


def operation(*, right=True, calls=None):
    return Operation(
        run=lambda: calls.append("run") if calls is not None else None,
        fill=lambda: None,
        right=lambda: right,
        quiet=lambda: None,
    )


def test_a_wrong_result_ends_the_measuring(series, monkeypatch):
    monkeypatch.setattr(links, "make_operation", lambda *a: operation(right=False))
    with pytest.raises(MeasureError, match="all_reduce among 2, 1024 bytes: its result is wrong"):
        links._row(Alone(), series, [None], 1024, 5, 1.0)


def test_every_repeat_begins_at_a_barrier_and_ends_when_the_device_is_done(series, monkeypatch):
    calls = []
    monkeypatch.setattr(links, "make_operation", lambda *a: operation(calls=calls))
    world = Alone()
    row = links._row(world, series, [None], 1024, 5, 1.0)
    assert row["repeats"] == 5
    assert world.seen.count("barrier") == 2 + 5
    assert world.seen[-2:] == ["barrier", "synchronize"]
    assert row["time_s"] > 0
    assert row["record"] == "collective"
    assert (row["group_size"], row["hosts"], row["stride"], row["groups"]) == (2, 1, 1, 1)


def test_short_of_time_it_repeats_less(series, monkeypatch):
    monkeypatch.setattr(links, "make_operation", lambda *a: operation(calls=[]))
    assert links._row(Alone(), series, [None], 1024, 20, 0.0)["repeats"] == 3


def test_short_of_memory_the_row_says_so(series, monkeypatch):
    row = links._row(Alone(room=False), series, [None], 1024, 5, 1.0)
    assert row["status"] == "out_of_memory"
    assert "time_s" not in row


def test_a_device_that_has_not_the_memory_is_no_failure(series, monkeypatch):

    def refuse(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    monkeypatch.setattr(links, "make_operation", refuse)
    assert links._row(Alone(), series, [None], 1024, 5, 1.0)["status"] == "out_of_memory"


def test_a_device_that_is_lost_is(series, monkeypatch):

    def refuse(*_):
        raise RuntimeError("CUDA error: device lost")

    monkeypatch.setattr(links, "make_operation", refuse)
    with pytest.raises(RuntimeError, match="device lost"):
        links._row(Alone(), series, [None], 1024, 5, 1.0)


def test_what_a_larger_size_will_take():
    assert expected_time([], 1024) == 0.0
    assert expected_time([(1000, 1e-3)], 101_000) == pytest.approx(1e-3 + 1e-3)
    assert expected_time([(1000, 1e-3), (2000, 2e-3)], 4000) == pytest.approx(4e-3)
    assert expected_time([(1000, 2e-3), (2000, 1e-3)], 4000) == pytest.approx(1e-3)
    assert expected_time([(1000, 1e-3), (2000, math.inf)], 4000) == math.inf


@dataclass
class Failure:
    exitcode: int
    timestamp: int
    error_file: str = "nowhere"
    message: str = ""


def test_the_one_that_died_is_why_the_others_lost_it(tmp_path):
    told = tmp_path / "error.json"
    told.write_text("{}")
    lost = Failure(1, 100, str(told), "rank 0: connection closed by peer")
    killed = Failure(-signal.SIGKILL, 100)
    assert cause_of({0: lost, 1: killed}) == "rank 1 died of SIGKILL (out of memory?)"
    # The launcher ends those that do not answer, half a minute later.
    killed.timestamp = 130
    assert cause_of({0: lost, 1: killed}) == "rank 0: connection closed by peer"


def test_the_launchers_own_signal_is_not_the_cause(tmp_path):
    told = tmp_path / "error.json"
    told.write_text("{}")
    failures = {0: Failure(-signal.SIGTERM, 100), 1: Failure(1, 100, str(told), "disk full")}
    assert cause_of(failures) == "disk full"
    assert cause_of({0: Failure(7, 100)}) == "rank 0 ended with exit code 7"
    assert Path(told).exists()
