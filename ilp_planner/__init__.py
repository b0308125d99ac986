"""The fastest distributed-training plan for a model, a cluster and a profile, with a proof.

    import ilp_planner as ilp

    problem = ilp.problem("llama3-8b", "a100-4x8", global_batch=256, space="megatron")
    result = ilp.solve(problem, seconds=60)
    print(result)
    result.save("llama.json")
    ilp.load("llama.json").check()
    result.export("megatron", "run.sh")
    result.evaluation.frame("stages")

Names, paths and objects are taken alike. Memory and messages of a training job, GPU by GPU, without
planning it:

    job = ilp.TrainingJob(model=..., micro_batch=1, global_batch=64, tp=2, pp=2, dp=4)
    ilp.analyze(job).frame("memory")

Names are imported when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ilp_planner.base.errors import PlanError as PlanError
    from ilp_planner.base.errors import PlannerError as PlannerError
    from ilp_planner.base.errors import ProfileError as ProfileError
    from ilp_planner.base.errors import SpecError as SpecError
    from ilp_planner.base.errors import UsageError as UsageError
    from ilp_planner.faces.api.explain import compare as compare
    from ilp_planner.faces.api.explain import why as why
    from ilp_planner.faces.api.models import size as size
    from ilp_planner.faces.api.models import supports as supports
    from ilp_planner.faces.api.problem import problem as problem
    from ilp_planner.faces.api.result import Check as Check
    from ilp_planner.faces.api.result import Result as Result
    from ilp_planner.faces.api.result import Saved as Saved
    from ilp_planner.faces.api.result import load as load
    from ilp_planner.faces.api.sweep import sweep as sweep
    from ilp_planner.faces.api.verbs import analyze as analyze
    from ilp_planner.faces.api.verbs import check as check
    from ilp_planner.faces.api.verbs import evaluate as evaluate
    from ilp_planner.faces.api.verbs import replan as replan
    from ilp_planner.faces.api.verbs import solve as solve
    from ilp_planner.inputs.problem import Problem as Problem
    from ilp_planner.optimize.result import Status as Status
    from ilp_planner.optimize.solvers.base import Limits as Limits
    from ilp_planner.plan import Plan as Plan
    from ilp_planner.specs.cluster import ClusterSpec as ClusterSpec
    from ilp_planner.specs.cluster_reader import read_cluster as read_cluster
    from ilp_planner.specs.model import ModelSpec as ModelSpec
    from ilp_planner.specs.model_reader import read_model as read_model
    from ilp_planner.specs.training import TrainingJob as TrainingJob

    __version__: str

_HOMES = {
    "faces.api.explain": ("compare", "why"),
    "faces.api.models": ("size", "supports"),
    "faces.api.problem": ("problem",),
    "faces.api.result": ("Check", "Result", "Saved", "load"),
    "faces.api.sweep": ("sweep",),
    "faces.api.verbs": ("analyze", "check", "evaluate", "replan", "solve"),
    "base.errors": ("PlanError", "PlannerError", "ProfileError", "SpecError", "UsageError"),
    "plan": ("Plan",),
    "inputs.problem": ("Problem",),
    "optimize.result": ("Status",),
    "optimize.solvers.base": ("Limits",),
    "specs.cluster": ("ClusterSpec",),
    "specs.cluster_reader": ("read_cluster",),
    "specs.model": ("ModelSpec",),
    "specs.model_reader": ("read_model",),
    "specs.training": ("TrainingJob",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME_OF, "__version__"])


class _Package(ModuleType):
    """The package. A verb stays a function when the module of the same name is imported: after
    importing `ilp_planner.evaluate` Python would set the attribute `evaluate` to that module."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOME_OF or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("ilp-planner")
    elif name in _HOME_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
