"""The fastest distributed-training plan for a model, a cluster and a profile, with a proof.

    import ilp_planner

    model = ilp_planner.read_model(Path("models/gpt3-1.3b.toml"))
    cluster = ilp_planner.read_cluster(Path("clusters/v100-32gb-1x4.toml"))
    profile = ilp_planner.analytic_profile(model, cluster)
    problem = ilp_planner.build_problem(model, cluster, profile, global_batch=1024)
    result = ilp_planner.solve(problem, limits=ilp_planner.Limits(seconds=60))

Devices that differ are planned layer by layer:

    cluster = ilp_planner.read_cluster(Path("clusters/mixed-a100-t4.toml"))
    profile = ilp_planner.analytic_layers(model, cluster, samples=[1, 2, 4, 8, 16])
    problem = ilp_planner.build_group_problem(cluster, profile, model=model.name, global_batch=1024)
    result = ilp_planner.solve_groups(problem, limits=ilp_planner.Limits(seconds=60))

What a training job holds and sends, GPU by GPU, without planning it:

    job = ilp_planner.TrainingJob(
        model=ilp_planner.as_decoder(model.architecture),
        micro_batch=1, global_batch=64, tp=2, pp=2, dp=4,
    )
    ilp_planner.analyze(job).frame("memory")

Names are imported when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ilp_planner.analysis.analyze import Analysis as Analysis
    from ilp_planner.analysis.analyze import analyze as analyze
    from ilp_planner.certificate import CertificateCheck as CertificateCheck
    from ilp_planner.certificate import check_certificate as check_certificate
    from ilp_planner.errors import InfeasibleError as InfeasibleError
    from ilp_planner.errors import OutputError as OutputError
    from ilp_planner.errors import PlanError as PlanError
    from ilp_planner.errors import PlannerError as PlannerError
    from ilp_planner.errors import ProfileError as ProfileError
    from ilp_planner.errors import SolverError as SolverError
    from ilp_planner.errors import SpecError as SpecError
    from ilp_planner.errors import UsageError as UsageError
    from ilp_planner.evaluate import Evaluation as Evaluation
    from ilp_planner.evaluate import Violation as Violation
    from ilp_planner.evaluate import evaluate as evaluate
    from ilp_planner.formats.megatron.arguments import job_of_arguments as job_of_arguments
    from ilp_planner.formats.megatron.arguments import read_arguments as read_arguments
    from ilp_planner.formats.megatron.script import read_script as read_script
    from ilp_planner.mixed.build import ModelSizes as ModelSizes
    from ilp_planner.mixed.build import build_group_problem as build_group_problem
    from ilp_planner.mixed.evaluate import GroupEvaluation as GroupEvaluation
    from ilp_planner.mixed.evaluate import evaluate_groups as evaluate_groups
    from ilp_planner.mixed.problem import GroupProblem as GroupProblem
    from ilp_planner.mixed.solve import solve_groups as solve_groups
    from ilp_planner.plan import GroupPlan as GroupPlan
    from ilp_planner.plan import GroupStage as GroupStage
    from ilp_planner.plan import Plan as Plan
    from ilp_planner.plan import Replica as Replica
    from ilp_planner.plan import Stage as Stage
    from ilp_planner.plan import Strategy as Strategy
    from ilp_planner.problem import Problem as Problem
    from ilp_planner.problem import build_problem as build_problem
    from ilp_planner.profiles.aceso import read_aceso_profile as read_aceso_profile
    from ilp_planner.profiles.alpa import read_alpa as read_alpa
    from ilp_planner.profiles.amp import read_amp as read_amp
    from ilp_planner.profiles.analytic import analytic_profile as analytic_profile
    from ilp_planner.profiles.analytic_layers import analytic_layers as analytic_layers
    from ilp_planner.profiles.layer_table import layer_profile as layer_profile
    from ilp_planner.profiles.layers import LayerProfile as LayerProfile
    from ilp_planner.profiles.measurements import Measurements as Measurements
    from ilp_planner.profiles.measurements import read_measurements as read_measurements
    from ilp_planner.profiles.measurements import write_measurements as write_measurements
    from ilp_planner.profiles.metis_files import read_metis_profile as read_metis_profile
    from ilp_planner.profiles.operator_table import operator_profile as operator_profile
    from ilp_planner.profiles.predict.collectives import CollectivePredictor as CollectivePredictor
    from ilp_planner.profiles.predict.layers import LayerPredictor as LayerPredictor
    from ilp_planner.profiles.table import Profile as Profile
    from ilp_planner.result import GroupResult as GroupResult
    from ilp_planner.result import Result as Result
    from ilp_planner.result import Status as Status
    from ilp_planner.result import Stop as Stop
    from ilp_planner.solve import solve as solve
    from ilp_planner.solvers.base import Limits as Limits
    from ilp_planner.specs.cluster import ClusterSpec as ClusterSpec
    from ilp_planner.specs.cluster_reader import read_cluster as read_cluster
    from ilp_planner.specs.decoder import Decoder as Decoder
    from ilp_planner.specs.decoder import as_decoder as as_decoder
    from ilp_planner.specs.metis_cluster import metis_cluster_spec as metis_cluster_spec
    from ilp_planner.specs.metis_cluster import read_metis_cluster as read_metis_cluster
    from ilp_planner.specs.model import ModelSpec as ModelSpec
    from ilp_planner.specs.model_reader import read_model as read_model
    from ilp_planner.specs.pipeline_layout import PipelineLayout as PipelineLayout
    from ilp_planner.specs.pipeline_layout import read_layout as read_layout
    from ilp_planner.specs.training import Kernels as Kernels
    from ilp_planner.specs.training import OptimizerSettings as OptimizerSettings
    from ilp_planner.specs.training import Recompute as Recompute
    from ilp_planner.specs.training import Settings as Settings
    from ilp_planner.specs.training import TrainingJob as TrainingJob

    __version__: str

_HOMES = {
    "analysis.analyze": ("Analysis", "analyze"),
    "certificate": ("CertificateCheck", "check_certificate"),
    "errors": (
        "InfeasibleError",
        "OutputError",
        "PlanError",
        "PlannerError",
        "ProfileError",
        "SolverError",
        "SpecError",
        "UsageError",
    ),
    "evaluate": ("Evaluation", "Violation", "evaluate"),
    "formats.megatron.arguments": ("job_of_arguments", "read_arguments"),
    "formats.megatron.script": ("read_script",),
    "mixed.build": ("ModelSizes", "build_group_problem"),
    "mixed.evaluate": ("GroupEvaluation", "evaluate_groups"),
    "mixed.problem": ("GroupProblem",),
    "mixed.solve": ("solve_groups",),
    "plan": ("GroupPlan", "GroupStage", "Plan", "Replica", "Stage", "Strategy"),
    "problem": ("Problem", "build_problem"),
    "profiles.aceso": ("read_aceso_profile",),
    "profiles.amp": ("read_amp",),
    "profiles.alpa": ("read_alpa",),
    "profiles.analytic": ("analytic_profile",),
    "profiles.analytic_layers": ("analytic_layers",),
    "profiles.layer_table": ("layer_profile",),
    "profiles.layers": ("LayerProfile",),
    "profiles.measurements": ("Measurements", "read_measurements", "write_measurements"),
    "profiles.metis_files": ("read_metis_profile",),
    "profiles.operator_table": ("operator_profile",),
    "profiles.predict.collectives": ("CollectivePredictor",),
    "profiles.predict.layers": ("LayerPredictor",),
    "profiles.table": ("Profile",),
    "result": ("GroupResult", "Result", "Status", "Stop"),
    "solve": ("solve",),
    "solvers.base": ("Limits",),
    "specs.cluster": ("ClusterSpec",),
    "specs.cluster_reader": ("read_cluster",),
    "specs.decoder": ("Decoder", "as_decoder"),
    "specs.metis_cluster": ("metis_cluster_spec", "read_metis_cluster"),
    "specs.model": ("ModelSpec",),
    "specs.model_reader": ("read_model",),
    "specs.pipeline_layout": ("PipelineLayout", "read_layout"),
    "specs.training": ("Kernels", "OptimizerSettings", "Recompute", "Settings", "TrainingJob"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


class _Package(ModuleType):
    """The package, in which a verb stays a function when the module of the same name is imported.

    After importing `ilp_planner.solve` Python sets the attribute `solve` of the package to that
    module; here it is set to the function in it.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and _HOME_OF.get(name) == name:
            value = getattr(value, name)
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
    return sorted({*globals(), *_HOME_OF, "__version__"})
