"""Launch scripts of public repositories: each is read, or asks for what is missing."""

import json
from pathlib import Path

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.script import read_script
from ilp_planner.specs.training import TrainingJob
from tests.examples import for_each

FOLDER = Path("../shared/data/megatron/scripts")
MODEL = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
    "--max-position-embeddings 1024 --micro-batch-size 4"
)
# By a part of the name: ranks, and what only running would tell, or what the script leaves wrong.
SUPPLIED: dict[str, tuple[int | None, dict[str, str]]] = {
    "SimuMax": (8, {"NUM_LAYERS": "32", "GLOBAL_BATCH_SIZE": "64"}),
    "sc21__SRUN": (8, {"MEGATRON_PARAMS": MODEL}),
    "gptoss": (None, {"pipeline-model-parallel-layout": "Et*2|(t*2|)*3(t|)*3tL"}),
    "mfsdp": (64, {"vocab-size": "129280"}),
    "mixtral": (None, {"vocab-size": "32000", "SLURM_NNODES": "4"}),
    "gpt2_perf_n4": (32, {}),  # 16 GPUs for tp 4 x pp 8
    "tr3-1B3-modeling-baseline": (None, {"vocab-size": "32100"}),
    "tr3c-350M": (None, {"vocab-size": "32100"}),
    "tr3e-1B3": (None, {"vocab-size": "32100"}),
    "mc4__tr5": (None, {"vocab-size": "250112"}),
    "tr5a-bnb": (None, {"vocab-size": "250112"}),
    "tr5c-1B3": (None, {"vocab-size": "250112"}),
    "pretrain_offload": (
        None,
        {
            "GPUS_PER_NODE": "8",
            "vocab-size": "32000",
            "pipeline-model-parallel-layout": "Et*2|(t*3|)*6t*2L",
        },
    ),
    "pretrain_gpt3_distributed": (None, {"NUM_NODES": "1", "TP_SIZE": "2", "PP_SIZE": "1"}),
}


def scripts() -> list[str]:
    index = FOLDER / "index.json"
    return [row["file"] for row in json.loads(index.read_text())] if index.exists() else []


def supplied_of(name: str) -> tuple[int | None, dict[str, str]]:
    return next((given for part, given in SUPPLIED.items() if part in name), (None, {}))


def job_of(name: str, world: int | None, supplied: dict[str, str]) -> TrainingJob:
    path = FOLDER / name
    if not path.exists():
        pytest.skip("no launch scripts beside the repository")
    args = read_script(path, world, environment={}, supplied=supplied, strict=False)
    return job_of_arguments(args)


def test_there_are_scripts() -> None:
    if not FOLDER.exists():
        pytest.skip("no launch scripts beside the repository")
    assert len(scripts()) == 53


@for_each("name", scripts())
def test_every_script_is_read(name: str) -> None:
    assert job_of(name, *supplied_of(name)).world > 0


@for_each("name", [n for n in scripts() if supplied_of(n)[1]])
def test_what_is_missing_is_asked_for_by_name(name: str) -> None:
    """Without what is supplied there is one line, which names the script and what would do."""
    with pytest.raises(SpecError) as caught:
        job_of(name, None, {})
    message = str(caught.value)
    assert message.startswith(str(FOLDER / name))
    assert "\n" not in message
    assert any(fix in message for fix in ("--set ", "would do", "--world-size N"))


@for_each(
    ("name", "job"),
    [
        # BLOOM: 176,247,271,424 parameters without the norm behind its embedding, 28,672.
        ("tr11-176B-ml.slurm", (192, 4, 12, 4, 70, 14336, 2048, 2, "bf16", "full")),
        ("tr8-104B.slurm", (512, 4, 32, 4, 64, 11600, 2048, 1, "fp16", "full")),
        ("meg_ds_3d_gpt2_perf_n16", (64, 4, 16, 1, 64, 8192, 1024, 4, "fp16", "full")),
        ("pretrain_gpt_distributed.sh", (8, 1, 1, 8, 24, 1024, 64, 8, "fp16", "full")),
    ],
)
def test_what_early_scripts_train(name: str, job: tuple[object, ...]) -> None:
    (file,) = [n for n in scripts() if name in n] or [name]
    found = job_of(file, None, {})
    assert job == (
        found.world, found.tp, found.pp, found.dp, found.model.layers, found.model.hidden,
        found.global_batch, found.micro_batch, found.settings.precision,
        found.settings.recompute.granularity,
    )  # fmt: skip
    assert found.settings.kernels.attention == "unfused"
