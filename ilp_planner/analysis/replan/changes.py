"""Changes of a planned problem: its nodes, its batch, its constraints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError
from ilp_planner.inputs.constraints import ANY, Constraints
from ilp_planner.inputs.request import Reference

if TYPE_CHECKING:
    from ilp_planner.inputs.request import Request

CLUSTER, WITHOUT = "cluster", "without"
EXPECTED = (
    "expected what changes: nodes that are lost (`without`), `max_devices`, another `cluster`, "
    "`global_batch`, or a constraint"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The differences from before.

    demands: on plans, and on the nodes that they may use; `without` names nodes that are lost with
    all that they held. cluster: a name or a path, or so many GPUs; empty: the one of before.
    global_batch: samples; None: as before.
    """

    demands: Constraints = ANY
    cluster: str = ""
    global_batch: int | None = None

    @property
    def texts(self) -> dict[str, str]:
        """The given values, by name."""
        own = {CLUSTER: self.cluster, "global_batch": str(self.global_batch or "")}
        return {name: text for name, text in own.items() if text} | self.demands.texts

    @property
    def lost(self) -> tuple[str, ...]:
        """Names of nodes of the cluster of before that are lost."""
        return () if self.cluster else self.demands.without


def changed(asked: Request, changes: Changes) -> Request:
    """Return the request of a changed problem: demands go before its own of the same name, and
    nodes that are lost are left out beside those that were before.

    Raises
    ------
    UsageError: nothing changes.
    """
    if not changes.texts:
        raise UsageError(f"replan: found no change, {EXPECTED}")
    new = {name: getattr(changes.demands, name) for name in changes.demands.texts}
    if changes.lost:
        new[WITHOUT] = tuple(dict.fromkeys((*asked.constraints.without, *changes.lost)))
    elif changes.cluster:  # whose nodes have other numbers
        new.setdefault(WITHOUT, ())
    files = dict(asked.files)
    if changes.cluster:
        others = [kind for kind in ("hostfile", "clusterfile") if kind in files]
        if others:
            raise UsageError(
                f"cluster: found {changes.cluster} for a plan of a {' and a '.join(others)}, "
                "expected none: solve says another one"
            )
        files[CLUSTER] = Reference(name=changes.cluster)
    return replace(
        asked,
        files=files,
        global_batch=changes.global_batch or asked.global_batch,
        constraints=asked.constraints.with_(**new),
        memory_limits=None,
    )
