"""`ilp-plan calibrate`, and its result in lines and as JSON."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.base.files import Document, check_writable, read_document, write_text
from ilp_planner.base.library import find_spec
from ilp_planner.base.units import counted, format_percent, format_seconds
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.report.tables import Table, exact_seconds
from ilp_planner.faces.schemas import headed
from ilp_planner.inputs.table import PROBLEM

if TYPE_CHECKING:
    from ilp_planner.analysis.calibration.calibrate import Calibration, Constant, Judged


def calibrate(
    runs_file: Annotated[
        Path,
        typer.Argument(
            metavar="RUNS",
            help="Table of runs, CSV: run (launch script, plan or launch line), and seconds, "
            "milliseconds or tokens_per_second; also name, weight, gpus, device.",
        ),
    ],
    cluster: Annotated[str | None, o.cluster_option(default=False)] = None,
    gpus: o.Gpus = None,
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
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.inputs.files import cluster_or_gpus
    from ilp_planner.specs.cluster_reader import read_cluster
    from ilp_planner.specs.cluster_writer import with_machine

    named = cluster_or_gpus(cluster, gpus)
    if named is None:
        raise UsageError(
            "--cluster: found none, expected the machine of the runs, as --cluster mine.toml or "
            "--gpus 16xA100-80GB"
        )
    if output is not None:
        check_writable(output, [runs_file, Path(named)])
    names = list(dict.fromkeys(name.strip() for name in fit.split(",") if name.strip()))
    check_names(names)
    document = cluster_document(named)
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


def cluster_document(named: str) -> Document:
    """Return the file of a cluster, or the text of one for so many GPUs, all numbers written."""
    from ilp_planner.inputs.files import find_cluster
    from ilp_planner.specs.cluster_writer import cluster_text
    from ilp_planner.specs.gpu_cluster import is_gpus

    if is_gpus(named):
        return Document(named, cluster_text(find_cluster(named)))
    return read_document(find_spec(named, "clusters"), SpecError)


def constant_table(found: "Calibration") -> Table:
    """Return a row per constant that was fitted."""
    table = Table("constant", "default", "fitted", "from runs", left=("constant",))
    for constant in found.constants:
        if not constant.why:
            values = [_shown(constant.name, v) for v in (constant.default, constant.value)]
            table.add(constant.name, *values, str(constant.runs))
    return table


def run_table(found: "Calibration") -> Table:
    """Return a row per run."""
    table = Table(
        "run", "GPUs", "measured", "predicted before", "after", "off", "left out", left=("run",)
    )
    for judged in found.runs:
        alone = "-" if judged.error is None else f"{100 * judged.error:+.1f} %"
        off = f"{100 * (judged.after / judged.run.seconds - 1):+.1f} %"
        times = map(exact_seconds, (judged.run.seconds, judged.before, judged.after))
        cells = (judged.run.name, str(judged.run.job.world), *times, off, alone)
        table.add(*cells)
    return table


def calibration_lines(found: "Calibration") -> list[tuple[str, str]]:
    """Say how well the constants predict, and the constants that were not fitted."""
    from ilp_planner.specs.time_errors import machine_known

    runs = found.runs
    before = sum(abs(j.before / j.run.seconds - 1) for j in runs) / len(runs)
    lines = [
        ("machine", f"{found.device}, from {counted(len(runs), 'run')}"),
        ("error before", f"{format_percent(before)} by the defaults"),
        ("expected error", machine_known(found.machine).text),
    ]
    lines += [("at its limit", _limit(c)) for c in found.constants if c.limited]
    reasons: dict[str, list[str]] = {}
    for constant in found.constants:
        if constant.why:
            reasons.setdefault(constant.why, []).append(constant.name)
    lines += [("not fitted", f"{', '.join(names)}: {why}") for why, names in reasons.items()]
    lines += [("LEFT OUT", _explained(judged)) for judged in found.left_out]
    return lines


def _limit(constant: "Constant") -> str:
    value = _shown(constant.name, constant.value)
    return f"{constant.name} {value}: the runs ask for more than a machine of this kind does"


def _explained(judged: "Judged") -> str:
    run, factor = judged.run, judged.after / judged.run.seconds
    much = f"{max(factor, 1 / factor):.3g} x off"
    return (
        f"{run.place}: {run.name}: measured {exact_seconds(run.seconds)}, predicted "
        f"{exact_seconds(judged.after)}, {much}: no constants explain it, see its unit and its job"
    )


def calibration_object(found: "Calibration") -> dict[str, Any]:
    """Return the object of `--json`."""
    return {
        **headed("calibrate"),
        "device": found.device,
        "expected_error": found.machine.error,
        "calibration_runs": found.machine.runs,
        "constants": [
            {
                "name": constant.name,
                "default": constant.default,
                "value": constant.value,
                "fitted": not constant.why,
                "runs": constant.runs,
                "reason": constant.why,
            }
            for constant in found.constants
        ],
        "runs": [_object(judged) for judged in found.runs],
        "left_out": [_object(judged) for judged in found.left_out],
    }


def _object(judged: "Judged") -> dict[str, Any]:
    return {
        "run": judged.run.name,
        "place": judged.run.place,
        "gpus": judged.run.job.world,
        "weight": judged.run.weight,
        "measured_s": judged.run.seconds,
        "before_s": judged.before,
        "after_s": judged.after,
        "left_out_s": judged.alone,
        "left_out_error": judged.error,
    }


def _shown(name: str, value: float) -> str:
    """Return a constant for a table."""
    from ilp_planner.specs.machine import DURATIONS

    return format_seconds(value) if name in DURATIONS else f"{value:.4g}"
