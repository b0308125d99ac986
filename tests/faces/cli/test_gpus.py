"""`ilp-plan gpus`, and plans on GPUs of the table."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ilp_planner.specs.gpus import table
from tests.faces.cli.conftest import Done
from tests.faces.cli.test_bad_input import refused

Command = Callable[..., Done]
SOLVE = ("solve", "--model", "tiny.toml", "--global-batch-size", "8")


def test_the_table_fits_a_terminal(ilp_plan: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = ilp_plan("gpus")
    rows, _, legend = done.out.partition("\n\n")
    lines = rows.splitlines()
    assert done.code == 0
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines] == ["GPU", *table()]
    h20 = next(line.split() for line in lines if line.startswith("H20 "))
    assert h20 == ["H20", "94.94*", "148", "148", "296", "4000", "NVLink4", "450", "8", "makers"]
    v100 = next(line.split() for line in lines if line.startswith("V100-32GB"))
    assert v100[1:5] == ["31.74", "125", "-", "-"]
    assert "* data sheet less 1.1 %" in legend


def test_one_row_in_full(ilp_plan: Command) -> None:
    out = ilp_plan("gpus", "NVIDIA A100-SXM4-80GB").out
    for words in (
        "A100-80GB", "79.10 GiB of 80.00 GiB: torch's figure, measured", "bf16 312", "tf32 156",
        "2039 GB/s", "NVLink 3, 300 GB/s", "108 multiprocessors", "8.0", "400 W", "data sheet",
        "200 Gbit/s per GPU", "DGX A100 System User Guide", "assumed",
        "PCIe 4, 31.5 GB/s one way; 51.2 GB/s per GPU of its memory", "EPYC 7742",
    ):  # fmt: skip
        assert words in out
    assert "279.00 GiB" in ilp_plan("gpus", "GB300").out


def test_json(ilp_plan: Command) -> None:
    rows = json.loads(ilp_plan("gpus", "--json").out)["gpus"]
    assert [row["name"] for row in rows] == list(table())
    (row,) = json.loads(ilp_plan("gpus", "h200", "--json").out)["gpus"]
    assert row["memory_bandwidth_bytes_per_s"] == 4.8e12
    assert row["peak_flops"]["fp8"] == 1979e12
    assert row["capability"] == [9, 0]


def test_a_gpu_that_is_not_in_the_table(ilp_plan: Command) -> None:
    refused(ilp_plan("gpus", "A100"), 2, "GPU: found 'A100'", "mean A100-40GB or A100-80GB?")


def test_solve_saves_a_plan_that_needs_no_flag(ilp_plan: Command) -> None:
    done = ilp_plan(*SOLVE, "--gpus", "2xT4", "--output", "plan.json", "--verbose")
    assert done.code == 0, done.err
    assert re.search("^assumed +3 figures of the cluster", done.out, re.MULTILINE)
    assert "2xT4, 1 node of 2 x T4 (14.58 GiB each)" in done.out
    assert re.search("^note +nodes of 2 T4 are assumed", done.out, re.MULTILINE)
    assert re.search("^note +link inside nodes of T4: 11.81 GB/s", done.out, re.MULTILINE)
    again = ilp_plan("evaluate", "plan.json", "--check-certificate")
    assert again.code == 0, again.err
    assert "nodes of 2 T4 are assumed" in again.out
    assert "differs today" not in again.out
    text = json.loads(Path("plan.json").read_text())["inputs"]["cluster"]["text"]
    assert 'memory = "14.58 GiB"' in text
    assert 'peak.fp16 = "65 TFLOP/s"' in text
    assert ilp_plan("evaluate", "plan.json", "--accept-changed").code == 0


def test_a_plan_is_judged_by_the_numbers_it_was_saved_with(ilp_plan: Command) -> None:
    """The table may change after a plan was saved."""
    from hashlib import sha256

    ilp_plan(*SOLVE, "--gpus", "2xT4", "--output", "plan.json")
    saved = json.loads(Path("plan.json").read_text())
    cluster = saved["inputs"]["cluster"]
    cluster["text"] = cluster["text"].replace('"320 GB/s"', '"200 GB/s"')
    cluster["sha256"] = sha256(cluster["text"].encode()).hexdigest()
    Path("older.json").write_text(json.dumps(saved))
    done = ilp_plan("evaluate", "older.json")
    assert "cluster 2xT4: differs today from what the plan was saved with" in done.out
    assert done.out != ilp_plan("evaluate", "older.json", "--accept-changed").out


def test_a_cluster_file_that_names_a_gpu(ilp_plan: Command) -> None:
    Path("mine.toml").write_text(
        'name = "mine"\n[[nodes]]\ndevice = "t4"\ndevices = 2\n[devices.t4]\ngpu = "T4"\n'
        'memory = "10 GiB"\n'
    )
    done = ilp_plan(*SOLVE, "--cluster", "mine.toml", "--output", "plan.json", "--verbose")
    assert "1 node of 2 x t4 (10.00 GiB each)" in done.out
    text = json.loads(Path("plan.json").read_text())["inputs"]["cluster"]["text"]
    assert 'gpu = "T4"' in text
    assert 'memory_bandwidth = "320 GB/s"' in text
    assert "differs today" not in ilp_plan("evaluate", "plan.json").out
    Path("mine.toml").write_text(Path("mine.toml").read_text().replace("10 GiB", "9 GiB"))
    assert "mine.toml: differs today" in ilp_plan("evaluate", "plan.json").out


UNKNOWN = """
name = "zones"

[[nodes]]
device = "v100z0"
devices = 4

[devices.v100z0]
memory = "32 GiB"
peak.fp16 = "125 TFLOP/s"
sustained = 0.5
memory_bandwidth = "900 GB/s"

[links]
intra_node = { bandwidth = "100 GB/s", latency = "10 us" }
"""
ANALYZE = ("analyze", "--model", "gpt3-1.3b", "--tp", "2", "--dp", "2", "--cluster", "zones.toml")
PLAN = ("--model", "gpt3-1.3b", "--cluster", "zones.toml", "--global-batch-size", "8")
ASSUMED = "device type v100z0: found no GPU of the table by this name"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "command", [ANALYZE, *(("solve", *PLAN, "--space", name) for name in ("megatron", "groups"))]
)
def test_a_gpu_that_nothing_names_is_said(ilp_plan: Command, command: tuple[str, ...]) -> None:
    """Without a name it is taken for one with fused attention; the repair that is offered works."""
    Path("zones.toml").write_text(UNKNOWN)
    assumed = ilp_plan(*command)
    assert assumed.code == 0
    said = " ".join(assumed.out.split())
    assert ASSUMED in said
    (offered,) = set(re.findall(r'as in gpu = (".*?")', said))
    Path("zones.toml").write_text(UNKNOWN.replace("memory =", f"gpu = {offered}\nmemory =", 1))
    named = ilp_plan(*command)
    assert named.code == 0
    assert ASSUMED not in " ".join(named.out.split())
    if command is ANALYZE:
        assert "--attention unfused" not in assumed.out
        assert "unfused is assumed, as flash does not run on v100z0 (Volta)" in named.out
        assert "unfused attention" in ilp_plan(*command, "--attention", "unfused").out


def test_analyze_and_import(ilp_plan: Command) -> None:
    out = ilp_plan("analyze", "--model", "gpt3-350m", "--gpus", "8xH20").out
    assert "of 94.94 GiB of H20" in out
    assert "memory of H20: 94.94 GiB is assumed, data sheet less 1.1 %" in out
    line = (
        "--num-layers 2 --hidden-size 256 --num-attention-heads 4 --seq-length 128 "
        "--max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 8 --bf16 "
        "--vocab-size 1000"
    )
    done = ilp_plan("import", "megatron", line, "--gpus", "2xA100-80GB", "--output", "plan.json")
    assert done.code == 0, done.err
    assert "2xA100-80GB" in done.out
    assert ilp_plan("evaluate", "plan.json").code == 0


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ("16", ["found '16'", "16xA100-80GB"]),
        ("xA100", ["found 'xA100'", "16xA100-80GB"]),
        ("0xA100-80GB", ["found '0xA100-80GB'", "1 to 65536"]),
        ("16xFoo", ["found 'Foo'", "memory_bandwidth"]),
        ("16xA100", ["found '16xA100'", "mean 16xA100-40GB or 16xA100-80GB?"]),
        ("12xA100-80GB", ["8xA100-80GB or 16xA100-80GB would do"]),
    ],
)
@pytest.mark.parametrize("command", ["solve", "analyze", "import"])
def test_bad_gpus(ilp_plan: Command, command: str, gpus: str, words: list[str]) -> None:
    rest = {
        "solve": ("--model", "tiny.toml"),
        "analyze": ("--model", "gpt3-350m"),
        "import": ("aceso", "plan.json", "--model", "tiny.toml", "--output", "other.json"),
    }[command]
    refused(ilp_plan(command, *rest, "--gpus", gpus), 2, "--gpus: found", *words)


def test_gpus_and_a_cluster(ilp_plan: Command) -> None:
    both = ("--gpus", "2xT4", "--cluster", "pair.toml")
    for command in (SOLVE, ("analyze", "--model", "gpt3-350m")):
        refused(ilp_plan(*command, *both), 2, "--gpus: found 2xT4 and --cluster pair.toml")


def test_a_precision_that_the_gpu_lacks(ilp_plan: Command) -> None:
    done = ilp_plan("solve", "--model", "llama3-8b", "--gpus", "8xV100-32GB")
    refused(done, 1, "the GPU V100-32GB has no bf16", "found fp16, fp32", "--precision fp16")


@pytest.mark.parametrize("runtime", [[], ["--runtime", "megatron"]])
def test_a_decoder_is_planned_on_gpus_of_the_table(ilp_plan: Command, runtime: list[str]) -> None:
    """Whole layers too, whose estimates go by the name of the device type."""
    words = ["--model", "llama3.2-1b", "--gpus", "4xH100", "--global-batch-size", "8"]
    done = ilp_plan("solve", *words, *runtime, "--prefer-plain", "0")
    assert "PROVED OPTIMAL" in done.out, done.err
