"""`ilp-plan profile predict`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.cli import options as o

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.costs.profiles.measurements import Measurements
    from ilp_planner.profiler.predict.answers import Answer, AnyWant
    from ilp_planner.profiler.predict.assessment import Judged
    from ilp_planner.profiler.predict.layers import LayerPredictor


def predict(
    file: o.Table,
    wants: Annotated[
        list[str] | None,
        o.plain(
            "--want",
            "Rows to predict, several times if need be: tp, micro_batch, sequence, hidden, "
            "device, name, layers, split; or collective, group_size, hosts, stride, groups, bytes; "
            "or flop and dtype. tp=2,4 asks for both.",
            "'KEY=VALUE ...'",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        o.plain(
            "--report",
            "Where to write how well the table predicts its own rows, one HTML page.",
            "FILE",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        o.plain("--output", "Where to save the table with the predicted rows, CSV.", "FILE"),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Predict rows that a table lacks, each with where it comes from and its expected error."""
    from ilp_planner.base.files import check_writable, resolved, write_text
    from ilp_planner.costs.profiles.measurements import read_measurements
    from ilp_planner.profiler.commands.wants import parse_wants
    from ilp_planner.profiler.predict.layers import LayerPredictor

    asked = parse_wants(wants or [])
    if not asked and report is None:
        raise UsageError(
            "profile predict: nothing is asked for, expected --want 'tp=8 micro_batch=16' or "
            "--report FILE.html"
        )
    if output is not None and not asked:
        raise UsageError("--output: no rows are asked for, expected --want as well")
    for path in (report, output):
        if path is not None:
            check_writable(path, [file])
    if report is not None and output is not None and resolved(report) == resolved(output):
        raise UsageError(f"--report and --output are both {report}, expected two files")
    table = read_measurements(file)
    predictor = LayerPredictor(table)
    answers, judged = find_answers(predictor, asked)
    if output is not None:
        save(table, answers, output)
    if report is not None:
        from ilp_planner.profiler.report.prediction_page import prediction_page

        judged = judge_all(predictor)
        write_text(report, prediction_page(table, judged, answers))
    show(table, answers, judged, as_json=as_json)


def find_answers(
    predictor: "LayerPredictor", wants: "Sequence[AnyWant]"
) -> "tuple[list[Answer], tuple[Judged, ...]]":
    """Answer everything, and judge the sources of the answers."""
    from ilp_planner.costs.profiles.predictions import Want
    from ilp_planner.profiler.predict.answers import (
        CollectiveWant,
        ProductWant,
        answer_collectives,
        answer_layers,
        answer_products,
    )
    from ilp_planner.profiler.predict.assessment import (
        judge_collectives,
        judge_layers,
        judge_products,
    )

    table = predictor.table
    found, used = answer_layers(predictor, [w for w in wants if isinstance(w, Want)])
    collectives = [w for w in wants if isinstance(w, CollectiveWant)]
    products = [w for w in wants if isinstance(w, ProductWant)]
    found += answer_collectives(table, collectives) + answer_products(table, products)
    judged = (
        *judge_layers(predictor, used),
        *(judge_collectives(table) if collectives else ()),
        *(judge_products(table) if products else ()),
    )
    return found, judged


def judge_all(predictor: "LayerPredictor") -> "tuple[Judged, ...]":
    """Judge every row of the table; a bar shows the progress on a terminal."""
    from ilp_planner.profiler.predict.assessment import (
        MEMORY_COLUMNS,
        TIME_COLUMNS,
        judge_collectives,
        judge_layers,
        judge_products,
    )
    from ilp_planner.profiler.report.measuring import share_bar

    with share_bar() as show:
        layers = judge_layers(
            predictor,
            columns=(*TIME_COLUMNS, *MEMORY_COLUMNS),
            progress=lambda share: show(share, "leaving out each row"),
        )
    table = predictor.table
    return (*layers, *judge_collectives(table), *judge_products(table))


def save(table: "Measurements", answers: "Sequence[Answer]", output: Path) -> None:
    """Write the table with the rows that it lacked."""
    from ilp_planner.costs.profiles.measurements import join, measurements_of, write_measurements

    rows = [answer.row for answer in answers if not answer.there]
    added = [measurements_of(rows, table.source)] if rows else []
    write_measurements(output, join([table, *added], table.source))


def show(
    table: "Measurements", answers: "Sequence[Answer]", judged: "Sequence[Judged]", *, as_json: bool
) -> None:
    """Print the answers, and what their errors rest on."""
    from ilp_planner.faces.report.console import print_report
    from ilp_planner.faces.report.json_report import print_json
    from ilp_planner.profiler.report.prediction import (
        answer_table,
        prediction_lines,
        prediction_object,
    )

    if as_json:
        print_json(prediction_object(table, answers, judged))
        return
    tables = [answer_table(answers)] if answers else []
    print_report(prediction_lines(table, answers, judged), *tables)
