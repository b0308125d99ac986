"""`ilp-plan profile measure`, on the CPU."""

import importlib.util
import json
import re

import pytest

from ilp_planner.costs.profiles.measurements import read_measurements, write_measurements

NEEDS_TORCH = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs the extra [torch]"
)
MODEL = """name = "small"
family = "gpt"
precision = "bf16"

[architecture]
layers = 2
hidden = 32
heads = 4
sequence = 16
vocab = 512
"""


@pytest.fixture
def small(folder):
    (folder / "small.toml").write_text(MODEL)
    return ("profile", "measure", "--model", "small.toml", "--output", "p.csv")


@NEEDS_TORCH
@pytest.mark.slow
def test_several_degrees_and_sizes(ilp_plan, folder, small):
    sizes = ("--tp", 1, 2, "--micro-batch-size", 1, 2, "--sequence-length", 8, 16)
    done = ilp_plan(*small, *sizes, "--repeats", 1, "--device", "cpu", "--only", "layers")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == ["measured  32 rows", "table     p.csv"]
    frame = read_measurements(folder / "p.csv").frame
    layers = frame[frame["record"] == "layer"]
    assert len(layers[["tp", "micro_batch", "sequence"]].drop_duplicates()) == 8
    again = ilp_plan(*small, *sizes, "--device", "cpu", "--only", "layers", "--resume")
    assert again.out.splitlines()[0] == "measured  0 rows, 32 were there before"


@NEEDS_TORCH
def test_no_input_is_written_over(ilp_plan, folder, small):
    links = folder / "links.csv"
    links.write_text(
        "record,name,group_size,hosts,bytes,time_s,status,provenance\n"
        "collective,all_reduce,2,1,1024,0.1,ok,measured\n"
    )
    for name in ("small.toml", "links.csv"):
        before = (folder / name).read_text()
        done = ilp_plan(*small, "--links", "links.csv", "--output", name, "--device", "cpu")
        assert done.code == 1
        assert (
            done.err
            == f"ilp-plan: {name}: would be written over the input, expected another file\n"
        )
        assert (folder / name).read_text() == before


@NEEDS_TORCH
def test_what_is_measured_can_be_checked_and_planned_with(ilp_plan, small):
    options = ("--micro-batch-size", 1, 2, "--repeats", 2, "--only", "layers", "--device", "cpu")
    assert ilp_plan(*small, *options, "--device-name", "H100").code == 0
    assert "Traceback" not in ilp_plan("profile", "check", "p.csv").err
    done = ilp_plan(
        *("solve", "--model", "small.toml", "--cluster", "h100-8x8", "--profile", "p.csv"),
        *("--space", "groups", "--global-batch-size", 64),
    )
    assert done.code == 0, done.err


DECODER = """name = "decoder"
family = "decoder"
precision = "fp16"

[architecture]
layers = 2
hidden = 32
heads = 4
sequence = 16
vocab = 512
bias = false
positions = "rope"
tied = false
dropout = 0.0
prediction_layers = 1

[architecture.latent]
key_value_rank = 12
query_rank = 8
key = 8
rotary = 4
value = 6
"""


@NEEDS_TORCH
def test_a_decoder_like_deepseek_is_measured_and_planned_for_megatron(ilp_plan, folder):
    """Latent attention, multi-token prediction; the optimiser's steps are those of the table."""
    (folder / "decoder.toml").write_text(DECODER)
    options = ("--tp", 1, 2, "--repeats", 1, "--device", "cpu", "--device-name", "v100-sxm2-32gb")
    done = ilp_plan("profile", "measure", "--model", "decoder.toml", "--output", "p.csv", *options)
    assert (done.code, done.err) == (0, "")
    table = read_measurements(folder / "p.csv")
    rows = table.frame["record"] == "layer"
    assert set(table.frame[rows]["layers"]) == {"0", "1-2", "3"}
    arguments = ("solve", "--runtime", "megatron", "--model", "decoder.toml", "--prefer-plain", 0)
    arguments += ("--cluster", "v100-32gb-1x4", "--global-batch-size", 4, "--profile")
    found = ilp_plan(*arguments, "p.csv", "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["status"] == "optimal"
    table.frame.loc[rows, "optimizer_s"] = 1000.0
    write_measurements(folder / "slow.csv", table)
    slow = json.loads(ilp_plan(*arguments, "slow.csv", "--json").out)
    assert slow["objective_s"] > 4 * 1000 / 4
    # At other degrees, memory traffic is scaled like the measured steps.
    assert sum(slow["provenance"].get(name, 0) for name in ("measured", "scaled")) > 0.99


MIXTURE = """name = "mixture"
family = "decoder"
precision = "bf16"

[architecture]
layers = 2
hidden = 32
heads = 4
sequence = 16
vocab = 512
bias = false
positions = "rope"
tied = false
dropout = 0.0

[architecture.experts]
count = 4
top_k = 2
ffn = 64
dense_first = 1
"""


@pytest.mark.slow
@NEEDS_TORCH
def test_experts_and_parts_of_samples_are_measured_and_planned_with(ilp_plan, folder):
    """Rows that are there count, kernels of the rest are scaled, and both are told."""
    (folder / "mixture.toml").write_text(MIXTURE)
    options = ("--tp", 1, 2, "--cp", 1, 2, "--ep", 4, "--etp", 1, "--repeats", 1)
    options += ("--device", "cpu", "--device-name", "H100", "--micro-batch-size", 1)
    done = ilp_plan("profile", "measure", "--model", "mixture.toml", "--output", "p.csv", *options)
    assert (done.code, done.err) == (0, "")
    assert "Traceback" not in ilp_plan("profile", "check", "p.csv").err
    arguments = ("solve", "--runtime", "megatron", "--model", "mixture.toml", "--max-cp", 2)
    arguments += ("--prefer-plain", 0)
    arguments += ("--cluster", "h100-8x8", "--global-batch-size", 16, "--profile")
    found = ilp_plan(*arguments, "p.csv", "--json")
    assert found.code == 0, found.err
    known = json.loads(found.out)
    assert known["status"] == "optimal"
    assert known["provenance"]["measured"] + known["provenance"].get("scaled", 0) > 0.1
    (note,) = [text for text in known["notes"] if "what has no row" in text]
    assert "layers with experts" in note
    assert "(10 rows)" in note
    table = read_measurements(folder / "p.csv")
    table.frame["ep"] = table.frame["ep"].replace(4, 3)
    write_measurements(folder / "wrong.csv", table)
    refused = ilp_plan(*arguments, "wrong.csv")
    assert refused.code == 1
    place = r"ilp-plan: wrong.csv: line [0-9]+: "
    assert re.fullmatch(place + "'ep': found 3, expected a divisor of 4 experts\n", refused.err)


SIDES = """name = "sides"
family = "t5"
precision = "fp32"

[architecture]
layers = 2
hidden = 32
heads = 4
kv_channels = 8
encoder_sequence = 16
decoder_sequence = 8
vocab = 128
"""
PAIR = """name = "pair"

[[nodes]]
count = 2
device = "cpu"
devices = 1

[devices.cpu]
memory = "64 MiB"
peak.fp32 = "50 GFLOP/s"
memory_bandwidth = "10 GB/s"

[links.intra_node]
bandwidth = "10 GB/s"
latency = "10 us"

[links.inter_node]
bandwidth = "1 GB/s"
latency = "50 us"
"""
IMAGES = """name = "images"
family = "resnet"
precision = "fp32"

[architecture]
blocks = [1, 1]
in_channels = 4
width_factor = 2
image = 32
classes = 8
"""


@pytest.mark.slow
@NEEDS_TORCH
@pytest.mark.parametrize("text", [SIDES, IMAGES])
def test_a_model_that_is_no_decoder_is_measured_and_planned(ilp_plan, folder, text):
    """As whole layers and operator by operator, from one table."""
    (folder / "model.toml").write_text(text)
    (folder / "pair.toml").write_text(PAIR)
    options = ("--micro-batch-size", 1, "--repeats", 1, "--device", "cpu", "--output", "p.csv")
    options += ("--device-name", "cpu")
    done = ilp_plan("profile", "measure", "--model", "model.toml", *options)
    assert (done.code, done.err) == (0, "")
    arguments = ("solve", "--model", "model.toml", "--cluster", "pair.toml")
    arguments += ("--profile", "p.csv", "--global-batch-size", 1, "--json")
    operators = ilp_plan(*arguments)
    assert operators.code == 0, operators.err
    assert json.loads(operators.out)["status"] == "optimal"
    found = ilp_plan(*arguments, "--space", "groups")
    assert found.code == 0, found.err
    plan = json.loads(found.out)
    assert plan["status"] == "optimal"
    assert plan["provenance"]["measured"] > 0.5


def test_no_torch_says_what_installs_it(ilp_plan, small, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "torch" else real(name, *a)
    )
    done = ilp_plan(*small)
    assert done.code == 1
    assert done.err == (
        "ilp-plan: profile measure needs PyTorch: pip install 'ilp-planner[torch]'\n"
    )


@NEEDS_TORCH
@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--tp", "0"), 2, "--tp: found '0', expected a whole number of at least 1"),
        (("--tp", "3"), 2, "--tp: found 3, expected a divisor of 4: 1, 2, 4"),
        (("--micro-batch-size", "x"), 2, "--micro-batch-size: found 'x'"),
        (("--model", "t5-770m", "--tp", "3"), 2, "--tp: found 3, expected a divisor of 16"),
        (
            ("--model", "wide-resnet-1b", "--sequence-length", "8"),
            2,
            "--sequence-length: found 8, expected none: model 'wide-resnet-1b' has no tokens",
        ),
        (("--model", "llama3-8b", "--only", "operators"), 2, "expected gpt, t5 or resnet"),
        (("--links", "none.csv"), 1, "none.csv: no such file"),
        (("--output", "none/p.csv"), 1, "none"),
        (("--model", "gpt3-1.3"), 1, "did you mean 'gpt3-1.3b'?"),
    ],
)
def test_bad_input(ilp_plan, folder, small, options, code, text):
    done = ilp_plan(*small, "--device", "cpu", *options)
    assert done.code == code
    assert text in done.err
    assert len(done.err.splitlines()) == 1
    assert not (folder / "p.csv").exists()


@NEEDS_TORCH
def test_no_gpu_says_what_would_do(ilp_plan, small, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = ilp_plan(*small, "--device", "cuda")
    assert done.code == 1
    assert "--device cuda" in done.err
    assert "--device cpu" in done.err
