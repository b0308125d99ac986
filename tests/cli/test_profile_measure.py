"""`ilp-plan profile measure`, on the CPU."""

import importlib.util

import pytest

from ilp_planner.profiles.measurements import read_measurements

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
        *("--space", "planner", "--global-batch-size", 64),
    )
    assert done.code == 0, done.err


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
        (("--model", "t5-770m"), 2, "found family 't5', expected gpt or decoder"),
        (("--model", "deepseek-v2"), 2, "latent attention"),
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
