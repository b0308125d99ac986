"""DeepSeek-V4 Flash as NVIDIA ran it with Megatron-Bridge, predicted; no constant saw its runs.

`python -m tests.benchmarks.compressed_runs` prints the table of docs/howto/models.md. Rows of the
performance page are those of `hybrid_rows.csv` (docs/performance-summary.md, release 26.08). Others
are of `examples/model_verification_cards/deepseek-v4-flash/card.yaml` of Megatron-Bridge (August
2026, Apache-2.0), settings of the recipes that they name (`perf_recipes/deepseek/*/deepseek_v4.py`,
`recipes/deepseek/gb200/deepseek_v4.py`). Runs of the card without `performance` in their name are
sanity checks by its own words: natural routing from random weights, and no CUDA graphs.
"""

from typing import NamedTuple

from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from tests.benchmarks.cases import ROOT
from tests.benchmarks.hybrids import CARDS, machine_of, rows
from tests.benchmarks.published import Run, gpu
from tests.benchmarks.step_times import seconds

NAME, DOMAIN = "deepseek-v4-flash", 64  # GPUs of a domain of NVLink, as the recipes take them
LAYERS = (6, 6, 6, 5, 5, 5, 5, 5)  # of the card's pipeline


class Row(NamedTuple):
    """A run. quantised: format of products; with it the step is one CUDA graph. measured: seconds
    of a step."""

    name: str
    gpu: str
    gpus: int
    batch: int
    pp: int
    ep: int
    quantised: str
    measured: float


def _of_page() -> tuple[Row, ...]:
    found = []
    for row in rows():
        if row["model"] == "deepseekv4 flash":
            gpus, batch = int(row["gpus"]), int(row["global_batch"])
            tokens = batch * int(row["sequence"])
            measured = tokens / (float(row["tokens_per_s_per_gpu"]) * gpus)
            found.append(
                Row("page", row["gpu"], gpus, batch, 1, int(row["ep"]), row["precision"], measured)
            )
    return tuple(found)


ROWS = (
    *_of_page(),
    Row("pretrain_performance", "GB200", 128, 2048, 1, 64, "mxfp8", 8.1346),
    Row("pretrain_performance", "GB300", 128, 2048, 1, 64, "mxfp8", 7.84032),
    Row("pretrain", "GB200", 64, 256, 8, 8, "", 10.41576),
    Row("checkpoint_resume", "GB200", 64, 256, 8, 8, "", 14.64811),
)


# Parts that the recipes compute again, of all their runs but the tuned ones.
SANITY = ("moe_act", "mla_up_proj", "mhc")


def run_of(row: Row) -> Run:
    """Return a row as a published run."""
    model = read_model(ROOT / "models" / f"{NAME}.toml").architecture
    tuned = bool(row.quantised)
    again = {("GB200", True): ("mla_up_proj",), ("GB300", True): ("mla_up_proj", "mhc")}
    settings = Settings(
        ep=row.ep,
        etp=1,
        recompute=Recompute(granularity="selective", modules=again.get((row.gpu, tuned), SANITY)),
        optimizer=OptimizerSettings(
            sharding="optimizer",
            gradient=2 if tuned else 4,
            overlap_gradients=tuned,
            overlap_parameters=tuned,
        ),
        kernels=Kernels(
            fused_loss=True,
            accumulation_fusion=True,
            grouped_experts=True,
            fused_permute=True,
            dispatcher="flex",
            quantised=row.quantised,
            quantised_parameters=tuned,
            graphs="full_iteration" if tuned else "",
        ),
    )
    job = TrainingJob(
        model=model,
        micro_batch=1,
        global_batch=row.batch,
        pp=row.pp,
        dp=row.gpus // row.pp,
        settings=settings,
        devices_per_node=DOMAIN,
        gpu_architecture=gpu(row.gpu).architecture,
        layout=split_layout(list(LAYERS), prediction_layers=1) if row.pp > 1 else None,
    )
    return Run(
        name=row.name,
        group="",
        family="Megatron-Bridge",
        gpu=row.gpu,
        model=NAME,
        precision=row.quantised or "bf16",
        job=job,
        gpus=row.gpus,
        network=CARDS[row.gpu] / 8 * 1e9 * DOMAIN,
        seconds=row.measured,
    )


def error_of(row: Row) -> float:
    """Return predicted over measured seconds, less one."""
    run = run_of(row)
    return seconds(run, machine_of(run, 1.0)) / row.measured - 1


def line_of(row: Row) -> str:
    """Return a row of the table."""
    error = error_of(row)
    return (
        f"| `{row.name}` | {row.gpus} {row.gpu} | {row.quantised or 'bf16'} | {row.batch:,} | "
        f"pp {row.pp}, ep {row.ep} | {row.measured:.2f} s | {row.measured * (1 + error):.2f} s | "
        f"{error:+.0%} |"
    )


if __name__ == "__main__":
    print("\n".join(map(line_of, ROWS)))
