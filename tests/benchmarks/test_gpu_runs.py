"""What was measured on one GPU, and the script that measures it, on small models."""

import json

import pytest

from tests.benchmarks import gpu_judge


@pytest.fixture
def gpu_runs():
    """Return the script, which imports PyTorch."""
    pytest.importorskip("torch", reason="needs the extra [torch]")
    pytest.importorskip("transformers", reason="needs transformers")
    from tests.benchmarks import gpu_runs

    return gpu_runs


def test_dense_steps_are_predicted_by_constants_that_saw_none_of_them():
    dense = [step for step in gpu_judge.steps() if step.name.startswith("llama")]
    assert len(dense) >= 4
    for step in dense:
        assert step.predicted == pytest.approx(step.measured, rel=0.06), step.name
        assert step.predicted_peak == pytest.approx(step.peak, rel=0.12), step.name


def test_every_kind_of_kernel_is_judged():
    kinds = {kind for kind, predicted, measured in gpu_judge.kernels(gpu_judge.rates())}
    assert {"products, bf16", "products, fp8", "attention, cuDNN, backward"} <= kinds
    assert all(
        predicted > 0 < measured for _, predicted, measured in gpu_judge.kernels(gpu_judge.rates())
    )


@pytest.mark.slow
@pytest.mark.parametrize(("method", "extra"), [("full", {"autocast": True}), ("freeze", {})])
def test_steps_of_hugging_face_models_run(gpu_runs, method, extra):
    case = ("small", method, 1, 64, {"trained_layers": 1, **extra})
    row = gpu_runs.hugging_face_row(gpu_runs.Gpu("cpu"), case)
    assert row["seconds"] > 0
    assert row["trained"] < 2e6
    assert json.loads(json.dumps(row)) == row


@pytest.mark.slow
def test_what_fails_leaves_the_others(gpu_runs, tmp_path, monkeypatch):
    def cases(gpu):
        yield "broken", lambda: (_ for _ in ()).throw(RuntimeError("no kernel"))
        yield "whole", lambda: iter([{"kernel": "product", "seconds": 1.0}])
        yield "left", lambda: pytest.fail("its name was not asked for")

    monkeypatch.setattr(gpu_runs, "cases", cases)
    output = tmp_path / "found.json"
    arguments = ["gpu_runs", str(output), "--device", "cpu", "--only", "broken|whole"]
    monkeypatch.setattr("sys.argv", arguments)
    gpu_runs.main()
    rows = json.loads(output.read_text())["rows"]
    assert rows[0] == {"case": "broken", "failed": "RuntimeError: no kernel"}
    assert rows[1] == {"kernel": "product", "seconds": 1.0}
