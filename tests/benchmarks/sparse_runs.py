"""GLM-5.2 as NVIDIA ran it to verify Megatron-Bridge, predicted; nothing is fitted to these runs.

`python -m tests.benchmarks.sparse_runs` prints the table of docs/howto/models.md. Rows are of
`examples/model_verification_cards/glm5-2/card.yaml` of NVIDIA-NeMo/Megatron-Bridge (August 2026),
settings of the recipes that it names (`recipes/glm/*/glm5.py`): full recomputation, gradients in
bf16, cuDNN's kernels, and natural routing. The card says that they are not tuned for performance.
Packed rows of one sample each are counted as such.
"""

from dataclasses import replace
from typing import NamedTuple

from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from tests.benchmarks.cases import ROOT
from tests.benchmarks.hybrids import CARDS, machine_of
from tests.benchmarks.published import Run, gpu
from tests.benchmarks.step_times import seconds


class Row(NamedTuple):
    """A run. each: GPUs of a node. batch: samples. layers: of the pipeline's stages. measured:
    seconds of a step, the mean of the last ten."""

    name: str
    gpu: str
    gpus: int
    each: int
    sequence: int
    batch: int
    cp: int
    layers: tuple[int, ...]
    dispatcher: str
    measured: float


DETERMINISTIC = ("pretrain", "checkpoint_resume")  # `--deterministic` of the card
ROWS = (
    Row("pretrain", "H100", 352, 8, 2048, 1024, 1, (6, *[8] * 8, 4, 4), "flex", 31.205),
    Row("checkpoint_resume", "H100", 352, 8, 2048, 1024, 1, (6, *[8] * 8, 4, 4), "flex", 32.002),
    Row("pretrain", "GB200", 192, 4, 4096, 1024, 1, (14, *[12] * 4, 16), "alltoall", 64.787),
    Row(
        "checkpoint_resume", "GB200", 192, 4, 4096, 1024, 1, (14, *[12] * 4, 16), "alltoall", 60.079
    ),
    Row("sft", "H100", 416, 8, 2048, 32, 2, (6, 4, *[8] * 6, *[4] * 5), "flex", 4.436),
    Row("sft", "GB200", 192, 4, 8192, 8, 4, (14, *[12] * 4, 16), "flex", 8.594),
    Row("sft_long_context", "H100", 608, 8, 200_000, 13, 32, (6, *[4] * 18), "flex", 36.603),
    Row("sft_long_context", "GB200", 192, 4, 131_072, 56, 32, (14, 16, *[12] * 4), "flex", 143.249),
)


def run_of(row: Row) -> Run:
    """Return a row as a published run."""
    model = read_model(ROOT / "models" / "glm5.2.toml").architecture
    pp = len(row.layers)
    settings = Settings(
        ep=32,
        etp=1,
        cp=row.cp,
        cp_comm="all_gather" if row.cp > 1 else "p2p",
        recompute=Recompute(granularity="full", method="uniform", layers=1),
        optimizer=OptimizerSettings(sharding="optimizer", gradient=2),
        kernels=Kernels(
            grouped_experts=True,
            fused_permute=True,
            dispatcher=row.dispatcher,
            deterministic=row.name in DETERMINISTIC,
        ),
    )
    job = TrainingJob(
        model=replace(model, sequence=row.sequence // (2 * row.cp) * 2 * row.cp),
        micro_batch=1,
        global_batch=row.batch,
        pp=pp,
        dp=row.gpus // pp // row.cp,
        settings=settings,
        devices_per_node=row.each,
        gpu_architecture=gpu(row.gpu).architecture,
        layout=split_layout(list(row.layers), prediction_layers=1),
    )
    return Run(
        name=row.name,
        group="",
        family="",
        gpu=row.gpu,
        model="glm5.2",
        precision="bf16",
        job=job,
        gpus=row.gpus,
        network=CARDS[row.gpu] / 8 * 1e9 * row.each,
        seconds=row.measured,
    )


def line_of(row: Row) -> str:
    """Return a row of the table."""
    run = run_of(row)
    found = seconds(run, machine_of(run, 1.0))
    degrees = f"pp {len(row.layers)}, cp {row.cp}, ep 32"
    return (
        f"| `{row.name}` | {row.gpus} {row.gpu} | {row.sequence:,} | {row.batch} | {degrees} | "
        f"{row.measured:.1f} s | {found:.1f} s | {found / row.measured - 1:+.0%} |"
    )


if __name__ == "__main__":
    print("\n".join(map(line_of, ROWS)))
