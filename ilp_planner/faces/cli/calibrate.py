"""`ilp-plan calibrate`."""

from pathlib import Path
from typing import Annotated

import typer

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import check_writable, read_document, write_text
from ilp_planner.base.library import find_spec
from ilp_planner.faces.cli import options as o
from ilp_planner.inputs.table import PROBLEM


def calibrate(
    runs_file: Annotated[
        Path,
        typer.Argument(
            metavar="RUNS",
            help="Table of runs, CSV: run (launch script, plan or launch line), and seconds, "
            "milliseconds or tokens_per_second; also name, weight, gpus, device.",
        ),
    ],
    cluster: Annotated[str, o.cluster_option(default=False)],
    output: Annotated[
        Path | None,
        o.shown("--output", "Where to save the cluster with its machine's constants.", "FILE"),
    ] = None,
    fit: Annotated[
        str,
        o.option(
            PROBLEM,
            "--fit",
            "Constants to fit.",
            "NAME,...",
            default="what the runs say enough of",
        ),
    ] = "",
    as_json: o.Json = False,
) -> None:
    """Fit the constants of a machine to iteration times that you measured on it."""
    from ilp_planner.analysis.calibration.calibrate import calibrate as calibrated
    from ilp_planner.analysis.calibration.calibrate import check_cluster
    from ilp_planner.analysis.calibration.free import check_names
    from ilp_planner.analysis.calibration.runs import read_runs
    from ilp_planner.faces.report.calibration import (
        calibration_lines,
        calibration_object,
        constant_table,
        run_table,
    )
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.specs.cluster_reader import read_cluster
    from ilp_planner.specs.cluster_writer import with_machine

    file = find_spec(cluster, "clusters")
    if output is not None:
        check_writable(output, [runs_file, file])
    names = list(dict.fromkeys(name.strip() for name in fit.split(",") if name.strip()))
    check_names(names)
    document = read_document(file, SpecError)
    spec = read_cluster(document)
    check_cluster(spec)
    found = calibrated(read_runs(runs_file, spec), spec, names)
    if output is not None:
        note = f"`ilp-plan calibrate {runs_file.name}`"
        write_text(output, with_machine(document, found.device, found.machine, note))
    if as_json:
        print_json(calibration_object(found))
        return
    print_report(calibration_lines(found), constant_table(found), run_table(found))
