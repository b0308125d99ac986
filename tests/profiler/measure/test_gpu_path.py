"""What is done differently on a GPU, with one that is not there: PyTorch's CUDA calls are counted
and the work runs on the CPU."""

import itertools
from types import SimpleNamespace

import pytest

from ilp_planner.base.errors import MeasureError
from ilp_planner.costs.profiles.measurements import Record, read_measurements, rows_of
from ilp_planner.profiler.measure import layers as module
from ilp_planner.profiler.measure.run import measure_model
from ilp_planner.profiler.measure.target import Target
from tests.profiler.measure.small_chains import CHAINS
from tests.profiler.measure.small_decoders import GPT, LLAMA, spec

torch = pytest.importorskip("torch", reason="needs the extra [torch]")

STEP_MS = 2.0  # from an event to the next


@pytest.fixture
def gpu(monkeypatch):
    """Pretend: every event is 2 ms after the one before, every reading 512 bytes above."""
    calls = SimpleNamespace(waits=0, events=itertools.count(1), held=itertools.count(0, 512))

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing
            self.at = None

        def record(self):
            self.at = STEP_MS * next(calls.events)

        def elapsed_time(self, other):
            return other.at - self.at

    def wait():
        calls.waits += 1

    fakes = {
        "Event": Event,
        "is_available": lambda: True,
        "synchronize": wait,
        "memory_allocated": lambda *a: next(calls.held),
        "max_memory_allocated": lambda *a: 10**6,
        "reset_peak_memory_stats": lambda *a: None,
        "empty_cache": lambda: None,
        "get_device_name": lambda *a: "NVIDIA H100 80GB HBM3",
        "get_device_properties": lambda *a: SimpleNamespace(total_memory=80 * 2**30),
        "get_device_capability": lambda *a: (9, 0),
        "device_count": lambda: 1,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(Target, "device", property(lambda self: torch.device("cpu")))
    return calls


def test_a_profile_is_measured_with_events(gpu, tmp_path):
    path = tmp_path / "h100.csv"
    summary = measure_model(
        spec(LLAMA, "bf16"), output=path, degrees=(1, 2), device_name="H100", repeats=4
    )
    assert (summary.measured, summary.failed, summary.exhausted) == (8, [], [])
    table = read_measurements(path)
    assert table.machine["device"] == "H100"
    assert table.machine["dtype"] == "bf16"
    assert "threads" not in table.machine
    for row in rows_of(table.of(Record.LAYER)):
        assert row["forward_s"] == row["backward_s"] == pytest.approx(STEP_MS / 1e3)
        assert row["spread"] == pytest.approx(0.0, abs=1e-9)
        assert row["state_bytes"] == 9 * row["weight_bytes"]
    assert {row["dtype"] for row in rows_of(table.frame)} == {"bf16"}


def test_nothing_waits_inside_a_chain_of_passes(gpu):
    from ilp_planner.profiler.measure.decoder_job import job_of

    job = job_of(LLAMA, tp=1, micro_batch=1, dtype="bf16")
    target = Target(kind="cuda", name="H100", dtype="bf16")
    bench = module.LayerBench(("embedding", "layer", "head"), job, target, copies=2)
    before = gpu.waits
    bench.sample(2 * module.CHAIN)
    assert gpu.waits - before == 2
    assert len(bench.times["layer"].forward) == 2 * module.CHAIN * 2
    assert len(bench.times["head"].forward) == 2 * module.CHAIN


def test_operators_are_measured_with_events(gpu, tmp_path):
    path = tmp_path / "h100.csv"
    summary = measure_model(spec(GPT, "fp16"), output=path, records=(Record.OPERATOR,), repeats=2)
    assert (summary.measured, summary.failed) == (32, [])
    for row in rows_of(read_measurements(path).frame):
        assert row["forward_s"] == pytest.approx(STEP_MS / 1e3)


@pytest.mark.parametrize("name", ["resnet", pytest.param("t5", marks=pytest.mark.slow)])
def test_other_models_are_measured_with_events(gpu, tmp_path, name):
    path = tmp_path / "h100.csv"
    records = (Record.LAYER,)
    summary = measure_model(spec(CHAINS[name], "bf16"), output=path, records=records, repeats=1)
    assert (summary.measured, summary.failed, summary.exhausted) == (6, [], [])
    table = read_measurements(path)
    for row in rows_of(table.of(Record.LAYER)):
        assert row["forward_s"] == pytest.approx(STEP_MS / 1e3)


def test_memory_that_does_not_suffice_while_gradients_are_made(gpu, tmp_path, monkeypatch):
    """The error comes out of the backward pass, and the next shard is measured all the same."""
    path = tmp_path / "h100.csv"
    real = module.LayerBench.memory

    def memory(self):
        if self.job.micro_batch == 1 and len(self.chain) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self)

    monkeypatch.setattr(module.LayerBench, "memory", memory)
    summary = measure_model(spec(LLAMA, "bf16"), output=path, micro_batch_sizes=(1, 2), repeats=1)
    assert (summary.measured, summary.exhausted) == (8, [])


def test_a_gpu_that_is_lost_while_memory_is_given_back(gpu, tmp_path, monkeypatch):
    def lost():
        raise RuntimeError("CUDA error: device lost")

    def full(self):
        monkeypatch.setattr(torch.cuda, "empty_cache", lost)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(module.LayerBench, "memory", full)
    with pytest.raises(MeasureError, match=r"does not answer any more .*nothing was measured"):
        measure_model(spec(LLAMA, "bf16"), output=tmp_path / "h100.csv", repeats=1)


def test_a_gpu_that_cannot_be_used_at_all(gpu, tmp_path, monkeypatch):
    def refuse(*args, **options):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

    monkeypatch.setattr("ilp_planner.profiler.measure.attention.Attention.forward", refuse)
    with pytest.raises(MeasureError, match="NVIDIA H100 80GB HBM3 cannot be used in bf16: CUDA"):
        measure_model(spec(LLAMA, "bf16"), output=tmp_path / "h100.csv")
