"""Published training steps of three tables of their own, as jobs.

MooreThreads/SimuMax on B200; Narayanan et al. 2021 (arXiv 2104.04473, table 1) and Korthikanti et
al. 2022 (arXiv 2205.05198, table 5) on A100, by the Megatron of their years: scores of every pair
of tokens, softmax and dropout as kernels of their own.
"""

import json
from functools import cache
from typing import Any

from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.gpu_architectures import AMPERE
from ilp_planner.specs.pipeline_layout import balanced_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from tests.benchmarks.memory import b200_job
from tests.benchmarks.published import DATA, Run

FIRST = 2021
SELENE = "A100-80GB"
FULL = Recompute(granularity="full", method="uniform", layers=1)


@cache
def b200_runs() -> tuple[Run, ...]:
    """Return the B200 runs of MooreThreads/SimuMax."""
    return tuple(
        Run(
            name=row["case"],
            group=row["case"],
            family="SimuMax",
            gpu="B200",
            model=row["model"],
            precision="bf16",
            job=b200_job(row),
            gpus=row["gpus"],
            network=400e9,
            seconds=row["real_ms"] / 1e3,
        )
        for row in json.loads((DATA / "b200_time_memory.json").read_text())["rows"]
    )


@cache
def sc21_runs() -> tuple[Run, ...]:
    """Return the runs of Narayanan et al. 2021."""
    data = json.loads((DATA / "sc21_table1.json").read_text())
    found = []
    for row in data["table"]:
        layers, each = row["num_layers"], row["layers_per_virtual_stage"]
        shape = {name: row[name] for name in ("hidden", "heads", "micro_batch", "global_batch")}
        shape |= {"sequence": data["seq"], "vocab": data["vocab"], "layers": layers}
        degrees = {name: row[name] for name in ("tp", "pp", "dp")}
        virtual = layers // row["pp"] // each if each else 1
        job = _selene_job(shape, degrees, virtual, FULL, sequence_parallel=False, year=2021)
        found.append(_selene(f"{row['params_B']}B", "SC21", job, row["derived_iteration_time_s"]))
    return tuple(found)


@cache
def korthikanti_runs() -> tuple[Run, ...]:
    """Return the runs of Korthikanti et al. 2022."""
    data = json.loads((DATA / "korthikanti2022.json").read_text())
    found = []
    for name, row in data["configs"].items():
        shape = {key: row[key] for key in ("hidden", "heads", "layers")}
        shape |= {"micro_batch": row["mbs"], "global_batch": row["gbs"]}
        shape |= {"sequence": data["seq"], "vocab": data["vocab"]}
        degrees = {"tp": row["tp"], "pp": row["pp"], "dp": 1}
        for kind, seconds in data["iteration_time_s"][name].items():
            full = kind == "full"
            again = FULL if full else Recompute(granularity="selective")
            job = _selene_job(
                shape, degrees, row["vpp_stages"], again, sequence_parallel=not full, year=2022
            )
            found.append(_selene(f"{name} {kind}", "Korthikanti", job, seconds))
    return tuple(found)


def _selene_job(
    shape: dict[str, Any],
    degrees: dict[str, int],
    virtual: int,
    again: Recompute,
    *,
    sequence_parallel: bool,
    year: int,
) -> TrainingJob:
    """Return a job of 2021-22 of a model of such a shape.

    Since 2022 gradients of weights are added up as they are made, and those of inputs summed over
    tensor-parallel ranks meanwhile (`LinearWithGradAccumulationAndAsyncCommunication`).
    """
    late = year > FIRST
    names = ("layers", "hidden", "heads", "sequence", "vocab")
    return TrainingJob(
        model=Decoder(**{name: shape[name] for name in names}, dropout=0.1),
        micro_batch=shape["micro_batch"],
        global_batch=shape["global_batch"],
        layout=balanced_layout(shape["layers"], degrees["pp"] * virtual),
        settings=Settings(
            precision="fp16",
            kernels=Kernels(implementation="local", attention="unfused", accumulation_fusion=late),
            optimizer=OptimizerSettings(gradient=2),
            sequence_parallel=sequence_parallel,
            scatter_sends=True,
            async_tensor=late,
            recompute=again,
            order="tp-cp-ep-dp-pp",
        ),
        gpu_architecture=AMPERE,
        **degrees,
    )


def _selene(model: str, family: str, job: TrainingJob, seconds: float) -> Run:
    return Run(
        name=f"{family} {model}",
        group=f"{family} {model}",
        family=family,
        gpu=SELENE,
        model=model,
        precision="fp16",
        job=job,
        gpus=job.world,
        network=200e9,
        seconds=seconds,
    )
