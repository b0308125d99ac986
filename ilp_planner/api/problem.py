"""From names, paths or objects to a problem."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.api.words import described, python_words
from ilp_planner.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.formats.saved_groups import GroupInputs
    from ilp_planner.formats.saved_plan import Inputs
    from ilp_planner.problem import Problem
    from ilp_planner.problem import Problem as OperatorProblem
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec

SPACES = ("operators", "planner", "metis", "amp", "megatron")


@dataclass(frozen=True, kw_only=True, repr=False)
class Problem:
    """What is to be planned.

    instance: the frozen problem that solver and judge work on. model: None where a profile alone
    says what is planned. inputs: the names of what it was built from; None when an object has no
    file, and then `objects` says which.
    """

    instance: OperatorProblem | Problem[Any]
    model: ModelSpec | None = None
    inputs: Inputs | GroupInputs | None = None
    objects: tuple[str, ...] = ()

    @property
    def cluster(self) -> ClusterSpec:
        """The devices."""
        return self.instance.cluster

    @property
    def global_batch(self) -> int:
        """Samples per iteration."""
        return self.instance.global_batch

    @property
    def space(self) -> str:
        """Which plans are searched, one of `SPACES`."""
        return getattr(self.instance, "space", "operators")

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, one line each."""
        return self.instance.notes

    def __repr__(self) -> str:
        name = getattr(self.instance.model, "name", self.instance.model)
        return (
            f"<Problem {name} on {self.cluster.name}, {self.global_batch} samples, "
            f"space {self.space}>"
        )


def problem(
    model: str | os.PathLike[str] | ModelSpec | None = None,
    cluster: str | os.PathLike[str] | ClusterSpec | None = None,
    *,
    profile: str | os.PathLike[str] | object = "analytic",
    global_batch: int | None = None,
    space: str | None = None,
    cost_model: str = "native",
    micro_batch_sizes: Sequence[int] = (),
    memory_limit: str | float | None = None,
    max_stages: int | None = None,
    max_tp: int | None = None,
    max_cp: int | None = None,
    memory_rule: str | None = None,
    placement: str | None = None,
    hostfile: str | os.PathLike[str] | None = None,
    clusterfile: str | os.PathLike[str] | None = None,
    experiment: str | None = None,
    hidden_size: int | None = None,
    sequence_length: int | None = None,
    vocab_size: int | None = None,
) -> Problem:
    """Build a problem, by the rules of `ilp-plan solve`, whose options the keywords are.

    Parameters
    ----------
    model, cluster: a name (`llama3-8b`), a path, or a ModelSpec and a ClusterSpec.
    profile: `analytic`, `FILE.csv`, `aceso:FOLDER`, `metis:FOLDER`, `amp:FILE`, or a profile that
        was read before.
    space: `operators`, `planner`, `metis`, `amp` or `megatron`; None: operators where all devices
        are equal and the profile and the cost model are of operators, whole layers elsewhere.
    memory_limit: bytes, or a size with its unit (`28 GB`), of every device.

    Raises
    ------
    SpecError, ProfileError, UsageError: what cannot be planned, and why.
    """
    from ilp_planner.cli.values import micro_batch_sizes as sizes
    from ilp_planner.cli.values import option_size
    from ilp_planner.formats.saved_groups import GroupInputs
    from ilp_planner.formats.saved_plan import Reference

    if space not in (None, *SPACES):
        raise UsageError(f"space: found {space!r}, expected one of {', '.join(SPACES)}")
    given = {
        "model": model,
        "cluster": cluster,
        "hostfile": hostfile,
        "clusterfile": clusterfile,
        "profile": profile,
    }
    with python_words():
        limit = memory_limit
        if isinstance(limit, str):
            limit = option_size("--memory-limit", limit)
        asked = GroupInputs(
            files={
                kind: Reference(name=_named(kind, value))
                for kind, value in given.items()
                if value is not None
            },
            cost_model=cost_model,
            space="" if space in (None, "operators") else space,
            memory_rule=memory_rule or "",
            placement=placement or "",
            experiment=experiment or "",
            global_batch=_positive("global_batch", global_batch) or 0,
            micro_batch_sizes=sizes([str(size) for size in micro_batch_sizes]),
            memory_limit=None if limit is None else float(limit),
            max_stages=_positive("max_stages", max_stages),
            max_tp=_positive("max_tp", max_tp),
            max_cp=_positive("max_cp", max_cp),
            hidden=_positive("hidden_size", hidden_size),
            sequence=_positive("sequence_length", sequence_length),
            vocabulary=_positive("vocab_size", vocab_size),
        )
        objects = {k: v for k, v in given.items() if v is not None and not _is_name(v)}
        if objects:
            from ilp_planner.api.objects import problem_of_objects

            return problem_of_objects(asked, objects, operators=space == "operators")
        return _problem_of_files(asked, operators=space == "operators")


def rebuilt(
    inputs: Inputs | GroupInputs,
    instance: OperatorProblem | Problem[Any],
    folders: tuple[Path, ...] = (),
) -> Problem:
    """Return a problem with the inputs that it was built from.

    Parameters
    ----------
    folders: where relative paths may begin, besides the current folder.
    """
    from ilp_planner.formats.saved_groups import GroupInputs

    model = getattr(instance, "model", None)
    if isinstance(inputs, GroupInputs):
        from ilp_planner.cli.inputs import find_model

        named = inputs.name("model")
        model = None if named is None else find_model(named, inputs.files["model"], folders)[0]
    return Problem(instance=instance, model=model, inputs=inputs)


def _problem_of_files(asked: GroupInputs, *, operators: bool) -> Problem:
    from ilp_planner.cli.inputs import build_case
    from ilp_planner.cli.layer_inputs import build_layer_case, plans_layers
    from ilp_planner.cli.solve import operator_request

    if not operators and plans_layers(asked):
        layers = build_layer_case(asked)
        return rebuilt(layers.inputs, layers.problem)
    case = build_case(operator_request(asked))
    return rebuilt(case.inputs, case.problem)


def _is_name(value: object) -> bool:
    return isinstance(value, str | os.PathLike)


def _named(kind: str, value: Any) -> str:
    """Return the name or path of an input; what stands for an object that has neither.

    Raises
    ------
    UsageError: it is none of those.
    """
    from ilp_planner.api.objects import KINDS

    if _is_name(value):
        return value if isinstance(value, str) else str(Path(value))
    kinds = KINDS.get(kind, ())
    if type(value).__name__ in kinds:
        return "analytic" if kind == "profile" else str(value.name)
    names = ", ".join(["a name", "a path", *(f"a {name}" for name in kinds)])
    raise UsageError(f"{kind}: found {described(value)}, expected one of {names}")


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(f"{name}: found {value!r}, expected a whole number of at least 1")
    return value
