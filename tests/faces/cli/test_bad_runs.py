"""What a user gets wrong about models, GPUs, constraints, releases, scripts and exports: the exact
line, and the exit code."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faces.cli.conftest import Done

Command = Callable[..., Done]

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}
SOLVE = ("solve", "config.json", "--global-batch-size", "8")
TWO, FOUR, EIGHT = (("--gpus", f"{count}xH100") for count in (2, 4, 8))
ASYNC = ("--tensor-overlap", "on")
READ = (
    "expected one by torchrun, srun, mpirun or python that can be read without running the script; "
    "`--megatron-args` takes the arguments of one that is started elsewhere"
)


@pytest.fixture(autouse=True)
def config(ilp_plan: Command) -> None:
    """A small model of Hugging Face in the current folder."""
    Path("config.json").write_text(json.dumps(CONFIG))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (json.dumps({k: v for k, v in CONFIG.items() if k != "num_hidden_layers"}),
         "num_hidden_layers: found nothing, expected a whole number from 1 to 20000"),
        (json.dumps({**CONFIG, "hidden_size": "wide"}),
         "hidden_size: found 'wide', expected a whole number from 1 to 2147483647"),
        (json.dumps({**CONFIG, "hidden_size": -1}),
         "hidden_size: found -1, expected a whole number from 1 to 2147483647"),
        ("[]", "file: found a list of 0, expected an object"),
        ("{", "line 1, column 2: not valid JSON: Expecting property name enclosed in"),
    ],
    ids=["missing key", "no number", "negative", "list", "cut off"],
)  # fmt: skip
def test_a_configuration_that_is_none(ilp_plan: Command, text: str, line: str) -> None:
    Path("config.json").write_text(text)
    done = ilp_plan(*SOLVE, *EIGHT)
    assert done.code == 1
    assert done.err.startswith(f"ilp-plan: config.json: {line}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("kind", "found"), [({"model_type": "mymodel"}, "'mymodel'"), ({"model_type": None}, "nothing")]
)
def test_an_architecture_that_is_not_known(
    ilp_plan: Command, kind: dict[str, str | None], found: str
) -> None:
    values = {name: value for name, value in {**CONFIG, **kind}.items() if value is not None}
    Path("config.json").write_text(json.dumps(values))
    done = ilp_plan(*SOLVE, *EIGHT)
    assert done.code == 1
    said, _, expected = done.err.partition(", expected one of ")
    assert said == f"ilp-plan: config.json: model_type: found {found}"
    assert {"llama", "qwen3", "deepseek_v3"} <= {*expected.strip().split(", ")}


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("--gpus", "64xH1000"), 2,
         "--gpus: found 'H1000', expected one of the table of GPUs, nearest: H100-80GB, "
         "H100-NVL, P100 (`ilp-plan gpus` shows it); of any other GPU a cluster file says "
         "memory, peak, sustained and memory_bandwidth"),
        ((*TWO, "--tp", "2", "--pp", "2"), 3,
         "--tp 2, --pp 2: no plan of model on 2 devices has both; --tp 1 would do"),
        ((*EIGHT, "--tp", "3"), 3, "--tp 3: no plan of model on 8 devices has it; --tp 4 would do"),
        ((*FOUR, "--runtime", "torchtitan", "--tp", "2", *ASYNC, "--compile", "off"), 3,
         "--tp 2, --tensor-overlap on, --compile off: no plan of model on 4 devices has all of "
         "them; --tp 1 would do"),
        ((*EIGHT, "--without", "node0"), 2,
         "--without: found node0, all 1 nodes of 8xH100-80GB, expected one or more to be left"),
        ((*EIGHT, "--headroom", "80 GiB"), 2,
         "--headroom: found 80 GiB, expected less than the 79.10 GiB that plans may use of each "
         "H100-80GB"),
        ((*EIGHT, "--compile", "on"), 2,
         "--compile on: found it for Megatron-LM, expected --compile off or --runtime "
         "torchtitan; Megatron-LM: it has no setting for it: fused kernels are its own"),
        ((*EIGHT, "--compile", "on", "--space", "groups"), 2,
         "--compile on: expected --runtime torchtitan, found groups"),
        ((*FOUR, "--runtime", "torchtitan", "--cp-comm", "p2p"), 2,
         "--cp-comm p2p: found it for torchtitan 0.3.0, expected --cp-comm all_gather or "
         "--runtime megatron; torchtitan 0.3.0: keys and values gathered for flex attention"),
        ((*TWO, "--runtime", "torchtitan", "--precision", "fp8-current"), 1,
         "model 'model': settings.kernels.quantised: found fp8-current, but torchtitan 0.3.0 "
         "has mxfp8 and nvfp4, and FP8 only with a scale for every row; nearest it can run: "
         "quantised = mxfp8"),
        ((*FOUR, "--runtime", "torchtitan@0.1"), 2,
         "Invalid value for '--runtime': 'torchtitan@0.1' is not one of 'megatron', "
         "'torchtitan', 'torchtitan@0.2.2', 'deepspeed'."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_what_no_plan_has(ilp_plan: Command, words: tuple[str, ...], code: int, line: str) -> None:
    done = ilp_plan(*SOLVE, *words)
    assert (done.code, done.err) == (code, f"ilp-plan: {line}\n")


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (
            "python preprocess_data.py --input a.json",
            "found no launch of pretrain_gpt.py but `python preprocess_data.py --input a.json` in "
            f"line 2, {READ}",
        ),
        ("echo hello", f"found no launch of pretrain_gpt.py and no other program, {READ}"),
        (
            "torchrun pretrain_bert.py --num-layers 4",
            "line 2: pretrain_bert.py: found a program that trains BERT, expected one that trains "
            "decoder-only transformers (pretrain_gpt.py)",
        ),
    ],
    ids=["other program", "nothing", "another model"],
)
@pytest.mark.parametrize("command", ["analyze", "import"])
def test_a_script_that_trains_no_decoder(
    ilp_plan: Command, command: str, program: str, line: str
) -> None:
    Path("run.sh").write_text(f"#!/bin/bash\n{program}\n")
    words = {
        "analyze": ("analyze", "--megatron-script", "run.sh"),
        "import": ("import", "megatron", "run.sh", "--output", "plan.json"),
    }[command]
    done = ilp_plan(*words)
    assert (done.code, done.err) == (1, f"ilp-plan: run.sh: {line}\n")


@pytest.mark.parametrize(
    ("words", "system", "line"),
    [
        (("--runtime", "torchtitan@0.2.2", "--precision", "fp8-current"), "torchtitan@0.3.0",
         "settings.kernels.quantised: found fp8-current, but torchtitan 0.3.0 has mxfp8 and "
         "nvfp4, and FP8 only with a scale for every row; nearest it can run: quantised = "
         "mxfp8; `torchtitan@0.2.2` runs it as it is"),
        (("--runtime", "torchtitan@0.2.2", "--cp", "2", "--cp-comm", "p2p"), "deepspeed",
         "settings.cp: found 2, but DeepSpeed 0.19.8 has no context parallelism around a ring, "
         "only Ulysses, which divides heads; nearest it can run: cp = 1; nearest plan that it "
         "runs: micro_batch 4 instead of 8, dp 2 instead of 1, settings.cp 1 instead of 2; "),
        (("--runtime", "torchtitan", "--compile", "on"), "megatron",
         "settings.kernels.compiled: found true, but Megatron-LM has no setting for layers that "
         "torch.compile compiles; nearest it can run: compiled = false; nearest plan that it "
         "runs: settings.optimizer.sharding optimizer instead of none, "
         "settings.optimizer.from_master false instead of true, settings.kernels.compiled false "
         "instead of true; "),
        (("--tp", "2"), "aceso",
         "plan: found whole layers on groups of devices, expected operators on equal devices, "
         "which aceso can say"),
    ],
    ids=["release", "system", "compiled", "published"],
)  # fmt: skip
def test_a_plan_that_another_system_does_not_run(
    ilp_plan: Command, words: tuple[str, ...], system: str, line: str
) -> None:
    """With what differs, and the seconds of the nearest plan where there is one."""
    assert ilp_plan(*SOLVE, *TWO, *words, "--output", "plan.json").code == 0
    done = ilp_plan("export", "plan.json", "--to", system, "--output", "run")
    assert done.code == 1
    assert done.err.startswith(f"ilp-plan: plan.json: {line}")
    assert done.err.count("\n") == 1
    if line.endswith("; "):
        assert done.err.endswith("; --nearest writes it\n")
        assert " per iteration" in done.err
