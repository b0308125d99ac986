"""The suites `step` and `gpu`: their logic, on models that take milliseconds."""

import itertools
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="needs the extra [torch]")

from tests.benchmarks import step  # noqa: E402

MODEL = """name = "small"
family = "gpt"
precision = "bf16"

[architecture]
layers = 3
hidden = 32
heads = 4
sequence = 16
vocab = 512
"""


def test_rows_and_steps_in_turn(monkeypatch):
    monkeypatch.setattr(step, "ROUNDS", 1)
    monkeypatch.setattr(step, "OPTIMIZER_REPEATS", 1)
    small = step.replace(step.LLAMA, layers=2, hidden=32, sequence=16, vocab=256, ffn=64)
    monkeypatch.setattr(step, "ON_CPU", {"small": (small, (1,))})
    threads = torch.get_num_threads()
    rows = list(step.cpu_rows(""))
    torch.set_num_threads(threads)
    assert [(row["case"], row["recompute"]) for row in rows] == [
        ("small, micro-batch 1", False),
        ("small, micro-batch 1", True),
    ]
    for row in rows:
        assert row["predicted_s"] > 0
        assert row["measured_s"] > 0
        assert row["predicted_bytes"] == pytest.approx(row["measured_bytes"], rel=0.05)
    assert list(step.cpu_rows("nothing of this name")) == []


@pytest.mark.slow
def test_the_command_for_a_gpu(monkeypatch, tmp_path):
    """With CUDA calls that are counted, and the work on the CPU."""
    events = itertools.count(1)

    class Event:
        def __init__(self, enable_timing):
            self.at = None

        def record(self):
            self.at = next(events)

        def elapsed_time(self, other):
            return other.at - self.at

    nothing = dict.fromkeys(("synchronize", "reset_peak_memory_stats", "empty_cache"), lambda *a: 0)
    fakes = {
        **nothing,
        "Event": Event,
        "is_available": lambda: True,
        "memory_allocated": lambda *a: 1000,
        "max_memory_allocated": lambda *a: 2000,
        "get_device_name": lambda *a: "NVIDIA H100 80GB HBM3",
        "get_device_properties": lambda *a: SimpleNamespace(total_memory=80 * 2**30),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(
        "ilp_planner.profiler.measure.target.Target.device",
        property(lambda self: torch.device("cpu")),
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.toml").write_text(MODEL)
    monkeypatch.setattr(step, "ROOT", tmp_path)
    monkeypatch.setattr(step, "PROFILES", tmp_path / "clusters" / "profiles")
    monkeypatch.setattr(step, "DEGREES", (1, 2))
    monkeypatch.setattr(step, "SAMPLES", (1,))
    monkeypatch.setattr("ilp_planner.profiler.measure.sweep.MOST", 3)
    checks = ((1, 1, 8), (2, 1, 16), (1, 64, 16))
    monkeypatch.setattr(step, "GPU_MODELS", (step.OnGpu("small", (8, 16), 2, checks),))
    rows = list(step.gpu_rows(""))
    assert [row["case"] for row in rows] == [
        "small, 2 layers, 8 tokens, tp 1 shard, micro-batch 1",
        "small, 2 layers, 8 tokens, tp 1 shard, micro-batch 1",
        "small, 2 layers, 16 tokens, tp 2 shard, micro-batch 1",
        "small, 2 layers, 16 tokens, tp 2 shard, micro-batch 1",
    ], "64 samples were not measured"
    (file,) = step.PROFILES.iterdir()
    assert file.name == "h100-80gb-hbm3-small.csv"


def test_the_table_says_both_errors():
    row = {
        "case": "a model",
        "device": "a device",
        "recompute": True,
        "predicted_s": 0.99,
        "measured_s": 1.0,
        "spread": 0.012,
        "predicted_bytes": 102 * step.MIB,
        "measured_bytes": 100 * step.MIB,
    }
    last = step.step_table([row]).splitlines()[-1]
    assert last == (
        "| a device | a model | full | 990.0 | 1000.0 | -1.00 % | 1.2 % | 102.0 | 100.0 | +2.00 % |"
    )
