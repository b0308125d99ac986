"""What was measured of the links, as a table."""

from ilp_planner.costs.profiles.measurements import measurements_of
from ilp_planner.profiler.report.measuring import links_table
from tests.faces.report.texts import text_of


def test_a_row_per_kind_of_groups_with_latency_and_rate():
    shared = {"record": "collective", "name": "all_reduce", "device": "A", "hosts": 1, "stride": 2}
    rows = [
        {**shared, "group_size": 4, "groups": 2, "bytes": size, "time_s": seconds}
        for size, seconds in ((10**6, 1e-3), (256, 2e-5))
    ]
    failed = {**rows[0], "bytes": 10**9, "time_s": None, "status": "out_of_memory"}
    message = {"record": "point_to_point", "bytes": 1024, "time_s": 1e-5}
    shown = text_of(links_table(measurements_of([*rows, failed, message], "x")))
    head, first, second = (line.split() for line in shown.splitlines()[:3])
    assert head[:5] == ["operation", "ranks", "groups", "hosts", "stride"]
    assert first == ["all_reduce", "4", "2", "1", "2", "20", "us", "976.56", "KiB", "1"]
    assert second == ["-", "-", "-", "-", "10", "us", "1.00", "KiB", "0.1024"]
