"""The request of a sweep, from the texts of options or the keywords of Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.cli.values import number_of_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.faces.sweeps.axes import Axis
    from ilp_planner.faces.sweeps.points import Sweep
    from ilp_planner.faces.sweeps.table import Wish
    from ilp_planner.inputs.request import Request
    from ilp_planner.optimize.solvers.base import Limits


def asked_sweep(
    request: Request,
    gpus: str | None,
    varied: Sequence[Axis],
    limits: Limits,
    *,
    all_devices: bool = False,
) -> Sweep:
    """Return the sweep of some GPUs and fields.

    Parameters
    ----------
    gpus: as `gpus_axis` reads them; None: the cluster of the request. varied: the first one changes
        last. all_devices: plans leave no node out.

    Raises
    ------
    UsageError: a field that does not exist, values that cannot be any, or nothing to vary.
    """
    from ilp_planner.faces.sweeps.axes import gpus_axis
    from ilp_planner.faces.sweeps.points import Sweep

    axes = tuple(varied)
    if gpus is not None:
        if "cluster" in request.files:
            known = request.files["cluster"].name
            raise UsageError(f"gpus: found {gpus} and `cluster={known}`, expected one of the two")
        axes = (gpus_axis(gpus), *axes)
    if not axes:
        raise UsageError(
            "vary: found nothing that is varied, expected `gpus=8..64xH100`, or a field with its "
            "values, as in `vary=global_batch=256,512`"
        )
    return Sweep(base=request, axes=axes, limits=limits, all_devices=all_devices)


def asked_wish(sweep: Sweep, objective: str, tokens: float | str | None, price: str | None) -> Wish:
    """Return the wishes for the table of a sweep.

    Parameters
    ----------
    objective: `time`, `price`, or `time,price`. tokens: of a training run. price: per device and
        hour, as `--price` says it.

    Raises
    ------
    UsageError: an impossible value.
    """
    from ilp_planner.faces.sweeps.points import device_types
    from ilp_planner.faces.sweeps.table import Wish
    from ilp_planner.spaces.objectives.objective import objective_named
    from ilp_planner.specs.prices import PriceList, price_list

    names = objective_named(objective).parts
    said = PriceList({}) if price is None else price_list(price, device_types(sweep))
    return Wish(objectives=names, tokens=number_of_tokens(tokens) or 0.0, prices=said)
