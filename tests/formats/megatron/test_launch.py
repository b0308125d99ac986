"""What starts Megatron-LM: the script and the JSON say the same job."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.exported import ROCM
from ilp_planner.formats.megatron.arguments import arguments_of_job, job_of_arguments
from ilp_planner.formats.megatron.launch import Expected, export_megatron
from ilp_planner.formats.megatron.rules import check_arguments, check_environment
from ilp_planner.formats.megatron.script import read_launch
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.gpu_architectures import BLACKWELL, CDNA_4, GpuArchitecture
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.model_writer import model_text
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import (
    ORDERS,
    Kernels,
    Offload,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
)
from tests.examples import examples, for_each
from tests.training_jobs import decoders, deepseek, gpt, job, jobs
from tests.training_jobs import settings as usual

JOBS = {
    "uneven": job(),
    "gpt": job(gpt(), pp=2, dp=4, layout=None),
    "experts": job(
        deepseek(), tp=2, pp=2, dp=4, layout=None, settings=usual(ep=4, kernels=Kernels())
    ),
    "virtual": job(pp=2, dp=4, layout=split_layout([2, 2, 2, 2])),
    "recomputed": job(settings=usual(recompute=Recompute(granularity="selective"))),
    "other order": job(settings=usual(order=ORDERS[1])),
    "context": job(tp=1, settings=usual(cp=2, sequence_parallel=False)),
    "fsdp": job(
        tp=1,
        settings=usual(sequence_parallel=False, optimizer=OptimizerSettings(sharding="parameters")),
    ),
    "one node": job(tp=1, pp=2, dp=2, layout=None, settings=usual(sequence_parallel=False)),
}


def written(folder: Path, made: TrainingJob, expected: Expected | None = None) -> tuple[str, str]:
    exported = export_megatron(made, "a name", expected)
    for suffix, text in exported.files.items():
        (folder / f"run{suffix}").write_text(text)
    return exported.files[".sh"], exported.files[".args.json"]


@pytest.mark.parametrize("name", JOBS)
def test_both_files_mean_the_job(tmp_path: Path, name: str) -> None:
    made = JOBS[name]
    written(tmp_path, made)
    for file in ("run.sh", "run.args.json"):
        args = read_launch(str(tmp_path / file), environment={})
        assert args.world == made.world
        back = replace(job_of_arguments(args), devices_per_node=made.devices_per_node)
        assert back == made
        assert not check_environment(args)


@pytest.mark.parametrize("name", JOBS)
def test_bash_takes_the_script(tmp_path: Path, name: str) -> None:
    """And passes torchrun exactly the arguments of the JSON file, quotes and all."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not here")
    script, launch = written(tmp_path, JOBS[name])
    fake = 'torchrun() { printf "%s\\n" "$@"; }\n' + script
    environment = {"NODE_RANK": "3", "MASTER_ADDR": "a b"}
    done = subprocess.run(
        [bash, "-c", fake], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[words.index("--master-addr") + 1] == "a b"
    argv = json.loads(launch)["argv"]
    start = next(i for i, word in enumerate(words) if word.endswith("pretrain_gpt.py")) + 1
    ours = words[start : words.index("--train-iters")]
    place = argv.index("--vocab-size")  # which the script says once, beside the tokenizer
    assert words.count("--vocab-size") == 1
    assert sorted(ours) == sorted(argv[:place] + argv[place + 2 :])


@given(jobs())
@examples(30)
def test_what_is_exported_breaks_no_rule_and_what_breaks_one_is_refused(made: TrainingJob) -> None:
    made = replace(made, devices_per_node=1)
    broken = check_arguments(arguments_of_job(made))
    if broken:
        with pytest.raises(PlanError, match="Megatron cannot run it"):
            export_megatron(made, "x")
        return
    exported = export_megatron(made, "x")
    assert json.loads(exported.files[".args.json"])["world_size"] == made.world


def test_what_the_files_tell(tmp_path: Path) -> None:
    expected = Expected(iteration=1.5, memory=(2**30, 2**31, 2**30, 2**29), hosts=("a", "b"))
    script, launch = written(tmp_path, JOBS["uneven"], expected)
    for text in (
        "# expected iteration: 1.5 s",
        "1.00 GiB, 2.00 GiB, 1.00 GiB, 512.00 MiB",
        "# NODE_RANK 1: b",
        "export CUDA_DEVICE_MAX_CONNECTIONS=1",
        "--pipeline-model-parallel-layout 'Et|t*2|t*3|t*2L'",
        "--nnodes 2",
        "--use-distributed-optimizer",
        "--sequence-parallel",
    ):
        assert text in script
    found = json.loads(launch)
    assert found["arguments"]["pipeline-model-parallel-layout"] == "Et|t*2|t*3|t*2L"
    assert found["arguments"]["sequence-parallel"] is True
    assert found["environment"] == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    assert [stage["layers"] for stage in found["stages"]] == [
        [[1]],
        [[2, 3]],
        [[4, 5, 6]],
        [[7, 8]],
    ]
    assert (found["rank_order"], found["hosts"], found["nodes"]) == (ORDERS[0], ["a", "b"], 2)
    assert found["expected_iteration_seconds"] == 1.5


def test_virtual_stages_and_orders() -> None:
    virtual = json.loads(export_megatron(JOBS["virtual"], "x").files[".args.json"])
    assert virtual["arguments"]["num-virtual-stages-per-pipeline-rank"] == 2
    assert [s["layers"] for s in virtual["stages"]] == [[[1, 2], [5, 6]], [[3, 4], [7, 8]]]
    assert "--use-tp-pp-dp-mapping" in export_megatron(JOBS["other order"], "x").files[".sh"]
    sharded = export_megatron(JOBS["fsdp"], "x")
    assert "unset CUDA_DEVICE_MAX_CONNECTIONS" in sharded.files[".sh"]
    assert "Megatron-FSDP" in sharded.notes[0]


@for_each(
    ("changes", "message"),
    [
        ({"global_batch": 63}, "^global_batch: Megatron cannot run it: --global-batch-size.*64"),
        ({"tp": 3, "settings": Settings()}, "^tp: Megatron cannot run it: --num-attention-heads"),
        ({"settings": usual(recompute=Recompute(granularity="full", method="block", layers=9))},
         "^settings.recompute: Megatron cannot run it: --recompute-num-layers.*without a word"),
        ({"pp": 2, "global_batch": 12, "layout": split_layout([2, 2, 2, 2])},
         "interleaved schedule.*fails in the first iteration"),
        ({"settings": usual(kernels=Kernels(implementation="local"))},
         "^Megatron has no arguments for kernels.attention"),
        ({"dp": 3, "global_batch": 48, "pp": 2, "layout": None}, "^devices: found 12 ranks on"),
    ],
)  # fmt: skip
def test_what_megatron_cannot_run(changes: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        export_megatron(job(**changes), "x")
    assert "\n" not in str(caught.value)


def test_names_cannot_break_the_script(tmp_path: Path) -> None:
    text = export_megatron(JOBS["uneven"], "a\nrm -rf $HOME").files[".sh"]
    assert "\nrm" not in text


@given(decoders(), st.sampled_from(["bf16", "fp32"]))
@examples(30)
def test_models_as_files(
    tmp_path_factory: pytest.TempPathFactory, model: Decoder, kind: str
) -> None:
    assume(model.vocab)
    path = tmp_path_factory.mktemp("m") / "m.toml"
    spec = ModelSpec(name="a model", precision=kind, architecture=model)
    path.write_text(model_text(spec, source="here\nand there"))
    assert read_model(path) == spec


@for_each(
    ("gpu", "recipe", "said"),
    [(CDNA_4, "mxfp8", True), (CDNA_4, "fp8-current", False), (BLACKWELL, "mxfp8", False)],
)
def test_rocm_is_asked_for_blocks_with_scales(
    gpu: GpuArchitecture, recipe: str, said: bool
) -> None:
    made = job(settings=usual(kernels=Kernels(quantised=recipe)), gpu_architecture=gpu)
    script = export_megatron(made, "run").files[".sh"]
    assert ("export NVTE_ROCM_ENABLE_MXFP8=1" in script) is said


def test_variables_of_rocm_are_those_of_primus() -> None:
    """And no library of AMD reads a workspace of cuBLAS; Megatron reads its own variable there."""
    repeated = usual(kernels=Kernels(deterministic=True))
    for gpu, amd in ((CDNA_4, True), (BLACKWELL, False)):
        made = job(settings=repeated, gpu_architecture=gpu)
        script = export_megatron(made, "run").files[".sh"]
        for name in (*ROCM, "ROCBLAS_DEFAULT_ATOMICS_MODE"):
            assert (f"export {name}=" in script) is amd
        assert ("CUBLAS_WORKSPACE_CONFIG" in script) is not amd
        assert "export CUDA_DEVICE_MAX_CONNECTIONS=1" in script
        assert "export NCCL_ALGO=Ring" in script


def test_what_lies_on_the_host_is_said_and_read_again(tmp_path: Path) -> None:
    """Transformer Engine moves weights as well, unless its first way of offloading is asked for."""
    moved = Offload(modules=("qkv_linear", "core_attn"), smallest=500)
    made = job(settings=usual(offload=moved))
    script = export_megatron(made, "run").files[".sh"]
    assert "export NVTE_CPU_OFFLOAD_V1=1" in script
    assert "--offload-modules qkv_linear core_attn" in script
    (tmp_path / "run.sh").write_text(script)
    assert job_of_arguments(read_launch(str(tmp_path / "run.sh"))).settings.offload == moved
    first = job(settings=usual(offload=Offload(layers=2)), pp=1, layout=None)
    script = export_megatron(first, "run").files[".sh"]
    assert "--cpu-offloading-num-layers 2" in script
    assert "NVTE_CPU_OFFLOAD" not in script
    with pytest.raises(PlanError, match=r"settings\.offload\.layers: .*no pipeline"):
        export_megatron(job(settings=usual(offload=Offload(layers=2))), "run")
