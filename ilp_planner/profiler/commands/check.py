"""`ilp-plan profile check`."""

from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.terminal import echo

IMPLAUSIBLE = 1  # exit code where a row cannot be right


def check(file: o.Table, as_json: o.Json = False) -> int:
    """Find what is implausible in a table of measurements.

    Exit code 1 where a row cannot be right; 0 where rows are unusual at most.
    """
    from ilp_planner.costs.profiles.measurements import read_measurements
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.profiler.check.table import (
        Severity,
        check_lines,
        check_object,
        check_table,
        check_verdict,
    )

    table = read_measurements(file)
    findings = check_table(table)
    if as_json:
        print_json(check_object(table, findings))
    else:
        if findings:
            echo(check_lines(table, findings) + "\n")
        echo(f"{file}: {check_verdict(table, findings)}")
    wrong = any(finding.severity == Severity.ERROR for finding in findings)
    return IMPLAUSIBLE if wrong else 0
