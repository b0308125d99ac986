"""Export of a plan's mesh to AutoParallel, an experiment of torchtitan 0.2.2.

AutoParallel chooses the sharding of every tensor by an integer program. It does not choose the
mesh, which is that of the plan. `torchtitan/experiments/autoparallel` has the facts (README,
`job_config.py`, `llama3/parallelize_llama.py`), and needs `meta-pytorch/autoparallel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.exported import Expected, Exported
from ilp_planner.formats.torchtitan import Tables, registered, tables_of, toml_text
from ilp_planner.spaces.runtimes.limits import Unfit

if TYPE_CHECKING:
    from ilp_planner.specs.training import TrainingJob

FOLDER = "torchtitan.experiments.autoparallel"
MODEL = "llama3"  # of the models that it shards, the one whose mesh is not of experts alone
TOOL = "AutoParallel"


def export_autoparallel(job: TrainingJob, name: str, _: Expected | None = None) -> Exported:
    """Return the configuration of a run that AutoParallel shards.

    Parameters
    ----------
    name: of the run, and of its files without their ends.

    Raises
    ------
    PlanError: a setting that AutoParallel or torchtitan cannot run, with the limit and the nearest
        possible value.
    """
    check_autoparallel(job)
    tables, model, notes = tables_of(job, name)
    if model.name != MODEL:
        raise PlanError(
            f"model: found one of torchtitan's {model.name}, but {TOOL} takes a mesh of {MODEL}"
        )
    check_tables(tables)
    tables["job"]["custom_config_module"] = f"{FOLDER}.job_config"
    tables["compile"] = {"enable": True}
    tables["activation_checkpoint"] = {"mode": "none"}
    tables["model"]["name"] = f"autoparallel.{MODEL}"
    files = registered(tables, model, name, notes, trained_by=f"{FOLDER}.{MODEL}")
    notes += [
        *model.notes,
        f"{TOOL} chooses the sharding of every tensor on the plan's mesh, data parallel "
        f"{job.dp} x tensor parallel {job.tp}: times and memory are the plan's, not its choice's",
        "needs the package autoparallel of meta-pytorch",
    ]
    return Exported({".toml": toml_text(tables, job, name, notes), **files}, tuple(notes))


def check_autoparallel(job: TrainingJob) -> None:
    """Refuse a job whose mesh or steps AutoParallel does not take.

    Raises
    ------
    PlanError: the job's field, the limit and the nearest that can be run.
    """
    s = job.settings
    limits = (
        ("pp", job.pp, job.pp > 1, "has no pipelines", "pp = 1"),
        ("settings.cp", s.cp, s.cp > 1, "has no context parallelism", "cp = 1"),
        ("settings.ep", s.ep, s.ep > 1, f"takes a mesh of {MODEL}, without experts", "ep = 1"),
        (
            "micro_batches", job.micro_batches, job.micro_batches > 1,
            "traces a step of the whole batch at once",
            f"micro_batch = {job.global_batch // job.dp}",
        ),
        (
            "settings.recompute", str(s.recompute.granularity),
            s.recompute.granularity != "none", "recomputes what its own compiler chooses",
            "recompute = none",
        ),
    )  # fmt: skip
    for field, found, broken, limit, nearest in limits:
        if broken:
            raise Unfit(field, found).but(f"{TOOL} {limit}", nearest)


def check_tables(tables: Tables) -> None:
    """Refuse a configuration with replicas beside shards, or with converted products.

    Raises
    ------
    PlanError: the job's field, the limit and the nearest that can be run.
    """
    copies = tables["parallelism"]["data_parallel_replicate_degree"]
    if copies != 1:
        raise Unfit("settings.optimizer", f"{copies} replicas").but(
            f"{TOOL} shards over all data-parallel ranks", "states shared by all of them"
        )
    if converters := tables["model"].get("converters"):
        raise Unfit("settings.kernels", f"converters {converters}").but(
            f"{TOOL} is given no products in 8 or 4 bits", "products in 16 bits"
        )
