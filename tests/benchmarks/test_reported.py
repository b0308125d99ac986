"""Verdicts of `fit` on runs of LoRA and QLoRA that people report."""

from ilp_planner.specs.gpus import gpu
from tests.benchmarks import reported


def test_verdicts_go_with_what_people_report() -> None:
    """One run of larger micro-batches fits with hidden states of 16 bits alone, as it had them."""
    reports = reported.reports()
    assert len(reports) == 17
    wrong = [one for one in reports if one.ran == (one.verdict == "does not fit")]
    assert [one.name for one in wrong] == ["llama2-70b, QLoRA, 4 x A100 40 GB, 4 samples, shared"]
    assert all(one.halved * reported.GIB < gpu("A100-40GB").memory for one in wrong)
    near = [one for one in reports if one.peak and one.ran and "QLoRA" in one.name]
    assert len(near) == 4
    assert all(abs(one.allocated / one.peak - 1) < 0.12 for one in near)
