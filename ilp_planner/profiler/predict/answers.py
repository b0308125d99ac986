"""Questions to a table's predictions, and the answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import format_bytes
from ilp_planner.costs.profiles.measurements import Measurements, Record
from ilp_planner.costs.profiles.predictions import Want
from ilp_planner.costs.profiles.table import Prediction, Provenance
from ilp_planner.profiler.predict.assessment import describe_point
from ilp_planner.profiler.predict.completion import (
    SOURCE,
    is_in_table,
    predicted_row,
    row_prediction,
    wanted_points,
)
from ilp_planner.profiler.predict.region import row_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ilp_planner.profiler.predict.layers import LayerPredictor
    from ilp_planner.profiler.predict.series import Series


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveWant:
    """A collective that is asked for. size: bytes of the whole tensor. groups: None means as many
    at once as the hosts have room for."""

    name: str
    size: float
    group_size: int
    hosts: int = 1
    stride: int = 1
    groups: int | None = None
    device: str = ""
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductWant:
    """A product of two matrices that is asked for."""

    flop: float
    device: str = ""
    dtype: str = ""


AnyWant = Want | CollectiveWant | ProductWant


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """A predicted row.

    what: in words. where: its dimensions, in words. time: seconds of it all. row: of the native
    table. known: it was measured. there: the table has it, maybe as a prediction.
    """

    record: Record
    what: str
    where: str
    time: Prediction
    row: Mapping[str, Any]
    known: bool = False
    there: bool = False


def answer_layers(
    predictor: LayerPredictor, wants: Iterable[Want]
) -> tuple[list[Answer], list[Series]]:
    """Return an answer per series and point that is asked for, each once, and the series.

    Raises
    ------
    ProfileError: a want that the table has no rows for.
    """
    answers: list[Answer] = []
    used: dict[int, Series] = {}
    seen = set()
    for want in wants:
        for series, point in wanted_points(predictor, want):
            key = (id(series), point.tobytes())
            if key in seen:
                continue
            seen.add(key)
            used[id(series)] = series
            time = row_prediction(predictor, series, point)
            known = row_at(series.points, point) is not None
            row = predicted_row(predictor, series, point)
            if known:
                row.pop("source")
            answers.append(
                Answer(
                    record=series.key.record,
                    what=str(series.key),
                    where=describe_point(series, point),
                    time=time,
                    row=row,
                    known=known,
                    there=is_in_table(series, point),
                )
            )
    return answers, list(used.values())


def answer_collectives(table: Measurements, wants: Iterable[CollectiveWant]) -> list[Answer]:
    """Return an answer per collective.

    Raises
    ------
    ProfileError: the table has no collectives.
    """
    from ilp_planner.profiler.predict.collectives import CollectivePredictor

    asked = list(wants)
    if not asked:
        return []
    predictor = CollectivePredictor(table)
    answers = []
    for want in asked:
        columns = ("device", "name", "dtype", "group_size", "hosts", "stride")
        said = {name: getattr(want, name) for name in columns} | {"bytes": want.size}
        if want.groups is not None:
            said["groups"] = want.groups
        hosts = "1 host" if want.hosts == 1 else f"{want.hosts} hosts"
        stride = f", stride {want.stride}" if want.stride > 1 else ""
        where = f"{want.group_size} on {hosts}{stride}, {format_bytes(want.size)}"
        time = predictor.predict(**asdict(want))
        answers.append(_answer(Record.COLLECTIVE, want.name, where, said, time))
    return answers


def answer_products(table: Measurements, wants: Iterable[ProductWant]) -> list[Answer]:
    """Return an answer per matrix product.

    Raises
    ------
    ProfileError: the table has no products, or products of several types.
    """
    from ilp_planner.profiler.predict.products import ProductPredictor

    asked = list(wants)
    if not asked:
        return []
    predictor = ProductPredictor(table)
    answers = []
    for want in asked:
        said = {"device": want.device, "dtype": want.dtype, "flop": want.flop}
        where = f"{want.flop:.6g} FLOP" + (f", {want.dtype}" if want.dtype else "")
        time = predictor.predict(**asdict(want))
        answers.append(_answer(Record.MATMUL, "matrix product", where, said, time))
    return answers


def _answer(
    record: Record, what: str, where: str, said: Mapping[str, Any], time: Prediction
) -> Answer:
    """Return an answer with these columns in its row."""
    row = {
        "record": record.value,
        **said,
        "time_s": time.value,
        "provenance": time.provenance.value,
        "source": SOURCE,
    }
    if time.error is not None:
        row["error"] = time.error
    known = time.provenance is Provenance.MEASURED
    return Answer(
        record=record, what=what, where=where, time=time, row=row, known=known, there=known
    )
