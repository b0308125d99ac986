"""Predicted rows of compute: rows that were measured, each predicted from others that were.

python -m tests.benchmarks --suite predict

Data: Metis's samples (layers of a GPT on A100, tp 1/2/4, micro-batch 1/2/4), Aceso's operators of
five GPTs, two T5s and a Wide-ResNet (V100, tp 1 to 8, four micro-batches), Alpa's matrix products.
Every operator and split dimension is a series of its own, forward and backward pass apart. The rows
that a prediction may see are all that it is made from; nothing is fitted across series.

Two rules are measured on the same rows: straight lines in the micro-batch, which know no other
tensor-parallel degree, and time in proportion to samples over tp from the nearest row.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilp_planner.costs.profiles.analytic_transformer import gpt_work
from ilp_planner.peers.aceso.source import read_aceso_profile
from ilp_planner.peers.metis.files import read_metis_profile
from ilp_planner.profiler.predict.crossvalidation import Trials, expected_error, is_inside, peers_of
from ilp_planner.profiler.predict.features import HIDDEN, MICRO_BATCH, TP, Quantity
from ilp_planner.profiler.predict.law import fit_law
from ilp_planner.specs.model_reader import read_model
from tests.benchmarks.cases import ROOT
from tests.benchmarks.table import write_table

Rows = tuple[NDArray[np.float64], NDArray[np.float64]]

DATA = ROOT.parent / "shared" / "data"
ACESO = DATA / "aceso" / "eurosys"
METIS = DATA / "metis" / "profile_data_samples"
ALPA = DATA / "alpa" / "prof_database.json"
RESULTS = Path(__file__).parent / "results" / "prediction.json"
GPTS = ("gpt3-350m", "gpt3-1.3b", "gpt3-2.6b", "gpt3-6.7b", "scale-layer-64")
OPERATORS = {
    "V100 operators of GPT and T5": (
        "gpt_350M", "gpt_1_3B", "gpt_2_6B", "gpt_6_7B", "gpt_scale-layer", "t5_770M", "t5_3B",
    ),
    "V100 operators of Wide-ResNet": ("resnet_2B",),
}  # fmt: skip
HALF = 2  # bytes of a number
DEVICES = 8
ROUNDING = 1e-6  # relative: an error that is none
OURS, LINE, PROPORTION, CLAIMED = "ours", "line", "proportion", "claimed"


@dataclass
class Found:
    """Errors of one protocol on one data set. method -> absolute relative errors, NaN where the
    method says nothing; `claimed` -> those that ours expects, in the same order."""

    errors: dict[str, list[float]] = field(default_factory=dict)

    def add(self, method: str, errors: Any) -> None:
        self.errors.setdefault(method, []).extend(np.atleast_1d(errors).tolist())

    def scores(self) -> dict[str, Any]:
        """Return what is kept of it."""
        found: dict[str, Any] = {"values": len(self.errors[OURS])}
        for method, errors in self.errors.items():
            known = np.array(errors)[np.isfinite(errors)]
            if known.size:
                found[method] = {
                    "mape": round(float(known.mean()), 5),
                    "median": round(float(np.median(known)), 5),
                    "values": int(known.size),
                }
        if CLAIMED in found:
            errors, claims = np.array(self.errors[OURS]), np.array(self.errors[CLAIMED])
            said = np.isfinite(claims) & np.isfinite(errors)
            kept = errors[said] <= 2 * claims[said] + ROUNDING
            found[CLAIMED]["within_twice"] = round(float(kept.mean()), 4)
        return found


def measure() -> None:
    """Run all protocols, write the results and the manual's table."""
    from tests.benchmarks.prediction_table import prediction_table

    found: dict[str, dict[str, Any]] = {}
    for name, parts in sorted(run().items()):
        found[name] = {protocol: part.scores() for protocol, part in parts.items()}
        for protocol, scores in found[name].items():
            ours = scores[OURS]
            print(f"{name:40} {protocol:44} {ours['mape']:8.2%} {ours['median']:8.2%}")
    if not found:
        print("predict: left out, there is no data in ../shared/data")
        return
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    write_table("prediction", prediction_table(found))


def run() -> dict[str, dict[str, Found]]:
    """Return data set -> protocol -> errors, of the data that is there."""
    found: dict[str, dict[str, Found]] = {}
    if METIS.is_dir():
        found["A100 layers (Metis)"] = degrees_and_samples(metis_rows())
    if ACESO.is_dir():
        for name, keys in OPERATORS.items():
            for key in keys:
                add_all(found, name, degrees_and_samples(aceso_rows((key,))))
                add_all(found, f"{name}, activations", memory((key,)))
        found["V100 operators, another GPT"] = other_sizes()
    if ALPA.is_file():
        found["V100 matrix products (Alpa)"] = products()
    return found


def add_all(found: dict[str, dict[str, Found]], name: str, more: dict[str, Found]) -> None:
    """Add what was found on one table to its data set."""
    for protocol, part in more.items():
        whole = found.setdefault(name, {}).setdefault(protocol, Found())
        for method, errors in part.errors.items():
            whole.add(method, errors)


# ---- tensor-parallel degree and micro-batch ------------------------------------------------------


def metis_rows() -> Iterator[Rows]:
    """Yield points and seconds of the distinct layers, and of the whole pass over them."""
    profile = read_metis_profile(METIS)
    keys = sorted(profile.rows)
    at = points([key.tp for key in keys], [key.samples for key in keys])
    for layer in (0, 1, profile.layers - 1):
        yield at, np.array([profile.rows[key].compute[layer] for key in keys]) / 1e3
    yield at, np.array([profile.rows[key].forward_backward or np.nan for key in keys]) / 1e3


def aceso_rows(
    keys: tuple[str, ...], columns: tuple[str, ...] = ("forward", "backward")
) -> Iterator[Rows]:
    """Yield points and values of every operator, split dimension and column."""
    for key in keys:
        frame = read_aceso_profile(ACESO, key, devices_per_node=DEVICES).frame()
        for _, group in frame.groupby(["operator", "split"], sort=True):
            at = points(group["tp"], group["micro_batch"])
            for column in columns:
                yield at, group[column].to_numpy(np.float64)


def points(degrees: Any, samples: Any) -> NDArray[np.float64]:
    """Return points of which only degree and samples are known, float64 [n, 4]."""
    found = np.ones((len(degrees), 4))
    found[:, TP], found[:, MICRO_BATCH] = degrees, samples
    return found


def protocols(at: NDArray[np.float64]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield the name of a protocol, and which rows are left out together."""
    for row in range(len(at)):
        out = np.arange(len(at)) == row
        inside = is_inside(at[~out], at[row])
        yield "one row, others on all sides" if inside else "one row at a corner", out
    degrees, samples = np.unique(at[:, TP]), np.unique(at[:, MICRO_BATCH])
    last_degree, last_samples = at[:, TP] == degrees[-1], at[:, MICRO_BATCH] == samples[-1]
    yield "all of the largest tp", last_degree
    yield "all of the largest micro-batch", last_samples
    either = last_degree | last_samples
    yield "both, where they meet", either


def degrees_and_samples(series: Iterator[Rows]) -> dict[str, Found]:
    """Return the errors of all protocols over tp and micro-batch, the series being one table."""
    found: dict[str, Found] = {}
    rests: dict[str, list[tuple[Trials, NDArray[np.float64]]]] = {}
    for at, values in series:
        tested = Trials(fit_law(at, values, Quantity.TIME))
        for name, out in protocols(at):
            rest = fit_law(at[~out], values[~out], Quantity.TIME)
            asked = out
            if name == "both, where they meet":
                asked = (at == at.max(axis=0)).all(axis=1)
            part = found.setdefault(name, Found())
            part.add(OURS, off(rest.at(at[asked]), values[asked]))
            part.add(LINE, off(straight(at[~out], values[~out], at[asked]), values[asked]))
            part.add(
                PROPORTION, off(in_proportion(at[~out], values[~out], at[asked]), values[asked])
            )
            if not name.startswith("one row"):
                rests.setdefault(name, []).append((Trials(rest), at[asked]))
        for name, left in (
            ("one row, others on all sides", tested.between),
            ("one row at a corner", tested.edge),
        ):
            if left.errors.size:
                # What the other rows of the series make one expect.
                others = np.maximum(left.errors.size - 1, 1)
                found[name].add(CLAIMED, (left.errors.sum() - left.errors) / others)
    for name, trials in rests.items():
        found[name].add(CLAIMED, claims(trials))
    return found


def claims(trials: list[tuple[Trials, NDArray[np.float64]]]) -> list[float]:
    """Return the errors that each series expects at its points; NaN where it cannot tell."""
    found = []
    for own, points_of in trials:
        others = peers_of(own, [test for test, _ in trials])
        said = [expected_error(own, others, own.law, point) for point in points_of]
        found += [np.nan if claim is None else claim for claim in said]
    return found


def memory(keys: tuple[str, ...]) -> dict[str, Found]:
    """Return the errors of bytes kept for the backward pass, the keys being one table."""
    found: dict[str, Found] = {}
    rests: dict[str, list[tuple[Trials, NDArray[np.float64]]]] = {}
    for at, values in aceso_rows(keys, ("activations",)):
        for name, out in protocols(at):
            if name.startswith("one row") or name == "both, where they meet":
                continue
            out = out & (values > 0)
            if not out.any():
                continue
            rest = fit_law(at[~out], values[~out], Quantity.KEPT)
            part = found.setdefault(name, Found())
            part.add(OURS, off(rest.at(at[out]), values[out]))
            part.add(LINE, off(straight(at[~out], values[~out], at[out]), values[out]))
            part.add(PROPORTION, off(in_proportion(at[~out], values[~out], at[out]), values[out]))
            rests.setdefault(name, []).append((Trials(rest), at[out]))
    for name, trials in rests.items():
        found[name].add(CLAIMED, claims(trials))
    return found


def off(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return absolute relative errors."""
    return np.abs(predicted / measured - 1)


def straight(
    at: NDArray[np.float64], values: NDArray[np.float64], asked: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return straight lines in the micro-batch at the same degree; NaN without a row of it."""
    found = np.full(len(asked), np.nan)
    for place, point in enumerate(asked):
        here = at[:, TP] == point[TP]
        x, y = at[here, MICRO_BATCH], values[here]
        order = np.argsort(x)
        x, y = x[order], y[order]
        if x.size == 1:
            found[place] = y[0] * point[MICRO_BATCH] / x[0]
        elif x.size:
            low = int(np.clip(np.searchsorted(x, point[MICRO_BATCH]) - 1, 0, x.size - 2))
            slope = (y[low + 1] - y[low]) / (x[low + 1] - x[low])
            found[place] = y[low] + slope * (point[MICRO_BATCH] - x[low])
    return found


def in_proportion(
    at: NDArray[np.float64], values: NDArray[np.float64], asked: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the nearest row's value, in proportion to samples and width over tp."""
    nearest = np.abs(np.log2(asked)[:, None] - np.log2(at)[None]).sum(axis=2).argmin(axis=1)
    size = asked[:, MICRO_BATCH] / asked[:, TP] * asked[:, HIDDEN]
    from_ = at[nearest]
    return values[nearest] * size / (from_[:, MICRO_BATCH] / from_[:, TP] * from_[:, HIDDEN])


# ---- width of the model --------------------------------------------------------------------------


def other_sizes() -> dict[str, Found]:
    """Return the errors of one GPT's operators, and of its layer, predicted from other GPTs."""
    import pandas as pd

    models = {}
    for name in GPTS:
        spec = read_model(ROOT / "models" / f"{name}.toml")
        models[float(spec.architecture.hidden)] = spec  # type: ignore[union-attr]
    parts = []
    for hidden, spec in models.items():
        frame = read_aceso_profile(ACESO, spec.profile["aceso"], devices_per_node=DEVICES).frame()
        parts.append(frame[frame["split"] == 0].assign(hidden=hidden))
    table = pd.concat(parts)

    @cache
    def work_of(hidden: float, tp: float, samples: float) -> Any:
        return gpt_work(models[hidden].architecture, samples, int(tp), HALF)  # type: ignore[arg-type]

    sizes: dict[str, list[OfSize]] = {}
    for operator, group in table.groupby("operator", sort=True):

        def work(asked: NDArray[np.float64], operator: str = str(operator)) -> Any:
            kernels = [work_of(p[HIDDEN], p[TP], p[MICRO_BATCH])[operator].forward for p in asked]
            return np.array(
                [[sum(k.flops for k in one), sum(k.traffic for k in one)] for one in kernels]
            )

        at = points(group["tp"], group["micro_batch"])
        at[:, HIDDEN] = group["hidden"]
        for column in ("forward", "backward"):
            values = group[column].to_numpy(np.float64)
            for hidden in models:
                out = at[:, HIDDEN] == hidden
                where = "between the others" if min(models) < hidden < max(models) else "beyond"
                for what, known in (("", None), (", FLOP and traffic known", work)):
                    rest = fit_law(at[~out], values[~out], Quantity.TIME, known)
                    sizes.setdefault(f"{where}{what}", []).append(
                        OfSize(
                            operator=str(operator),
                            hidden=hidden,
                            at=at[out],
                            values=values[out],
                            predicted=rest.at(at[out]),
                            ruled=in_proportion(at[~out], values[~out], at[out]),
                            rest=Trials(rest),
                        )
                    )
    found: dict[str, Found] = {}
    for name, parts_of in sizes.items():
        for hidden in models:
            _add_size(found, name, [one for one in parts_of if one.hidden == hidden])
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class OfSize:
    """One column of one operator of one model, predicted from the other models."""

    operator: str
    hidden: float
    at: NDArray[np.float64]
    values: NDArray[np.float64]
    predicted: NDArray[np.float64]
    ruled: NDArray[np.float64]
    rest: Trials


def _add_size(found: dict[str, Found], name: str, parts: list[OfSize]) -> None:
    """Add the operators of one model, and the sums that make its layer."""
    if not parts:
        return
    said = claims([(one.rest, one.at) for one in parts])
    layers: dict[tuple[float, float], NDArray[np.float64]] = {}
    part = found.setdefault(f"operators of a size {name}", Found())
    for one in parts:
        mine, said = said[: len(one.at)], said[len(one.at) :]
        part.add(OURS, off(one.predicted, one.values))
        part.add(PROPORTION, off(one.ruled, one.values))
        part.add(CLAIMED, mine)
        if one.operator.startswith("enc-"):
            rows = np.stack([one.predicted, one.ruled, one.values, one.predicted * mine], axis=1)
            for point, row in zip(one.at, rows, strict=True):
                key = (point[TP], point[MICRO_BATCH])
                layers[key] = layers.get(key, 0.0) + row
    whole = found.setdefault(f"its whole layer, a size {name}", Found())
    for ours, rule, real, claimed in layers.values():
        whole.add(OURS, abs(ours / real - 1))
        whole.add(PROPORTION, abs(rule / real - 1))
        whole.add(CLAIMED, claimed / ours)


def products() -> dict[str, Found]:
    """Return the errors of square products by FLOP, and of a rule in proportion to it."""
    from ilp_planner.peers.alpa.profile import read_alpa
    from ilp_planner.profiler.predict.curve import left_out_error
    from ilp_planner.profiler.predict.products import beyond_error, product_rows, product_seconds

    found: dict[str, Found] = {}
    for dtype, rows in product_rows(read_alpa(ALPA)).groupby("dtype", sort=True):
        order = np.argsort(rows["flop"].to_numpy(np.float64))
        sizes = rows["flop"].to_numpy(np.float64)[order]
        times = rows["time_s"].to_numpy(np.float64)[order]
        for place in range(1, sizes.size - 1):
            out = np.arange(sizes.size) == place
            part = found.setdefault(f"one size, {dtype}", Found())
            part.add(OURS, off(product_seconds(sizes[~out], times[~out], sizes[out]), times[out]))
            part.add(PROPORTION, off(times[place - 1] * sizes[out] / sizes[place - 1], times[out]))
            part.add(CLAIMED, left_out_error(sizes[~out], times[~out]))
        large = sizes > 2 * 2048.0**3
        part = found.setdefault(f"all above 2048 x 2048, {dtype}", Found())
        part.add(
            OURS, off(product_seconds(sizes[~large], times[~large], sizes[large]), times[large])
        )
        last = np.flatnonzero(~large)[-1]
        part.add(PROPORTION, off(times[last] * sizes[large] / sizes[last], times[large]))
        part.add(CLAIMED, [beyond_error(sizes[~large], times[~large], f) for f in sizes[large]])
    return found


if __name__ == "__main__":
    measure()
