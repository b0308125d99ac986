"""The options for a problem, made of the tables of inputs and of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.constraint_options import OPTIONS, demanded
from ilp_planner.faces.cli.options import options
from ilp_planner.inputs.files import cluster_or_gpus
from ilp_planner.inputs.request import ANALYTIC, FILES, Reference, Request, request_of
from ilp_planner.inputs.table import BY_KEYWORD, Flag, Input, Whole, Wholes
from ilp_planner.spaces.registry import ALIASES, RUNTIMES, SPACES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

# Texts of inputs that other tables list.
VALUES = {
    "space": (*SPACES, *ALIASES),
    "cost_model": tuple(dict.fromkeys(m for one in SPACES.values() for m in one.cost_models)),
}
INPUT_FILES: Mapping[str, tuple[Any, object]] = {
    "model_name": (o.ModelName, None),
    "cluster_name": (o.ClusterName, None),
    "model": (o.MaybeModel, None),
    "cluster": (o.MaybeCluster, None),
    "gpus": (o.Gpus, None),
    "hostfile": (o.Hostfile, None),
    "clusterfile": (o.Clusterfile, None),
    "lengths": (o.LengthsFile, None),
    "profile": (o.AnyProfile, ANALYTIC),
}


def option_of(row: Input) -> Any:
    """Return the option of an input, of Typer."""
    if isinstance(row.kind, Whole):
        return o.number(row.section, row.typed, row.help, row.usual, least=row.kind.least)
    values = VALUES.get(row.name, ())
    metavar = row.metavar or (_newest(values) if row.alias and values else None)
    return o.option(row.section, row.typed, row.help, metavar, default=row.usual)


def _keyword(row: Input) -> tuple[Any, object]:
    """Return the annotation and the default of the keyword of an input."""
    kinds: dict[type, Any] = {Whole: int | None, Wholes: list[str] | None, Flag: bool}
    kind, values = kinds.get(type(row.kind), str | None), VALUES.get(row.name, row.values)
    if values:
        kind = Literal[values] | None
    default = Request.__dataclass_fields__[row.name].default
    return Annotated[kind, option_of(row)], default if isinstance(
        default, bool
    ) else default or None


def _newest(names: tuple[str, ...]) -> str:
    """Return the choice of some names as help shows it: of systems without their releases."""
    return f"<{'|'.join(name for name in names if '@' not in name)}>"


RUNTIME = o.runtime(
    "--runtime",
    "Only plans that this system can run, in its newest release or another one, as "
    "torchtitan@0.2.2; the same as --space of its name.",
    metavar=_newest(RUNTIMES),
)
SOLVE: Mapping[str, tuple[Any, object]] = {
    **INPUT_FILES,
    "space": _keyword(BY_KEYWORD["space"]),
    "runtime": (Annotated[Literal[RUNTIMES] | None, RUNTIME], None),
    **{name: _keyword(row) for name, row in BY_KEYWORD.items()},
    **{name: (kind, None) for name, kind in OPTIONS.items()},
}
SWEEP = (
    "model_name", "cluster_name", "model", "text_only", "cluster", "profile", "cost_model", "space",
    "runtime", "global_batch", "memory_limit", "constraints",
)  # fmt: skip


def request_options(*names: str) -> Callable[..., Request]:
    """Return the maker of the request that options say.

    names: of `SOLVE`; none: all.
    """
    return options({name: SOLVE[name] for name in names or SOLVE}, requested)


def requested(
    *,
    model_name: str | None = None,
    cluster_name: str | None = None,
    model: str | None = None,
    cluster: str | None = None,
    gpus: str | None = None,
    runtime: str | None = None,
    space: str | None = None,
    constraints: Path | None = None,
    **said: Any,
) -> Request:
    """Return the request of options, which may not contradict each other.

    Raises
    ------
    PlannerError: one line with the option, the value found and the values expected.
    """
    named = {
        "model": _once("--model", model, model_name),
        "cluster": cluster_or_gpus(_once("--cluster", cluster, cluster_name), gpus),
        **{kind: said.pop(kind, None) for kind in FILES if kind not in ("model", "cluster")},
    }
    if runtime and space not in (None, runtime):
        raise UsageError(
            f"--space: found {space} with --runtime {runtime}, expected none or {runtime}"
        )
    inputs = {name: said.pop(name) for name in BY_KEYWORD if name in said}
    return request_of(
        {kind: Reference(name=name) for kind, name in named.items() if name is not None},
        {**inputs, "space": runtime or space},
        demanded(constraints, said),
        typed=True,
    )


def _once(option: str, said: str | None, position: str | None) -> str | None:
    """Return the name given by an option or an argument; both may not name two things."""
    if said is not None and position not in (None, said):
        raise UsageError(f"{option}: found {said} and, without an option, {position}: expected one")
    return said or position
