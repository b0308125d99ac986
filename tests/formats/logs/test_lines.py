"""Lines of every training system say their steps, in any mixture and up to any end."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.formats.logs import metrics as m
from ilp_planner.formats.logs.base import LogError, RunLog
from ilp_planner.formats.logs.lines import read_lines
from ilp_planner.formats.logs.read import read_log
from ilp_planner.formats.logs.runs import NEEDED, log_of

SECONDS = (0.5, 0.25, 0.75)

MEGATRON = (
    " [2026-03-01 12:00:0{step}] iteration {step:8d}/     500 | consumed samples: {samples} | "
    "elapsed time per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 410.2 | "
    "global batch size:   64 | lm loss: 4.2E+00 | loss scale: 1.0 |"
)
NEMO = (
    "Training epoch 0, iteration {step}/99 | lr: 1.5e-07 | global_batch_size: 64 | global_step: "
    "{step} | reduced_train_loss: 11.0 | train_step_timing in s: {s:.3f} | consumed_samples: "
    "{samples}"
)
BAR = (
    "Epoch 0: :   3%|3 | {step}/99 [00:09<03:00, reduced_train_loss=11.0, global_step={step}.0, "
    "consumed_samples={samples}.0, train_step_timing in s={s:.3f}]"
)
PIPE = (
    "[2026-03-01 12:00:00,000] [INFO] [engine.py:3:train_batch] steps: {step} loss: 2.31 iter time "
    "(s): {s:.3f} samples/sec: {rate:.3f}"
)
NANOTRON = (
    "0{step}/01/2026 12:00:00 [INFO|DP=0|PP=0|TP=0|ip-1]: iteration: {step} / 500 | "
    "consumed_tokens: {samples}K | elapsed_time_per_iteration_ms: {ms:.1f} | tokens_per_sec: 410K "
    "| lm_loss: 11.1 | model_tflops_per_gpu: 40.1"
)
NANOGPT = "iter {step}: loss 3.2101, time {ms:.2f}ms, mfu 40.10%"
FORMATS = {
    "Megatron-LM": MEGATRON, "NeMo": NEMO, "NeMo's progress bar": BAR, "DeepSpeed": PIPE,
    "nanotron": NANOTRON, "nanoGPT": NANOGPT,
}  # fmt: skip


def lines_of(form: str) -> list[str]:
    return [
        form.format(step=step, s=each, ms=1e3 * each, samples=64 * step, rate=64 / each)
        for step, each in enumerate(SECONDS, 1)
    ]


def log(text: str) -> RunLog:
    return log_of(read_lines(text.encode().split(b"\n")), Path("x.log"), None)


@pytest.mark.parametrize("title", FORMATS)
def test_a_system_says_its_seconds(title: str) -> None:
    found = log("\n".join(lines_of(FORMATS[title])))
    assert found.title == title
    assert found.steps.tolist() == [1, 2, 3]
    assert found.seconds == pytest.approx(SECONDS)
    assert found.count == 3


def test_values_are_in_si_units() -> None:
    found = log("\n".join(lines_of(MEGATRON)))
    assert found.last(m.FLOPS) == pytest.approx(410.2e12)
    assert found.last(m.BATCH) == 64
    assert found.series[m.SAMPLES].tolist() == [64, 128, 192]


def test_lines_of_torchtitan_have_moments() -> None:
    lines = [
        f"[rank{rank}]:[titan] 2026-03-01 12:00:0{step},500 - root - INFO - \x1b[31mstep: "
        f"{step:2}  \x1b[32mloss:  8.1  \x1b[36mmemory: 60.10GiB(75.9%)  \x1b[34mtps: 7,{step}00  "
        for step in (1, 3, 5)
        for rank in (0, 1)
    ]
    found = log("\n".join(lines))
    assert found.title == "torchtitan"
    assert found.steps.tolist() == [1, 3, 5]
    assert found.seconds[1:] == pytest.approx([1.0, 1.0])
    assert found.series[m.DEVICE_TOKENS].tolist() == [7100, 7300, 7500]
    assert found.last(m.MEMORY) == pytest.approx(60.1 * 2**30)


def test_deepspeed_has_samples_per_second() -> None:
    line = "epoch=0/micro_step={0}/global_step={0}, RunningAvgSamplesPerSec=9, CurrSamplesPerSec=8.5, MemAllocated=2.2GB, MaxMemAllocated=9.5GB"  # noqa: E501
    found = log("\n".join(line.format(step) for step in (10, 20)))
    assert found.last(m.SAMPLES_RATE) == 8.5
    assert found.last(m.ALLOCATED) == pytest.approx(9.5e9)


def test_a_progress_bar_has_seconds_since_its_start() -> None:
    bar = [f"\r {n}/100 [00:{n // 2:02d}<01:00,  2.00it/s]" for n in (10, 20, 30)]
    assert log("".join(bar)).seconds[1:] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("how", ["(min, max) time", "max time", "times"])
def test_timers_belong_to_the_line_before(how: str) -> None:
    rows = {
        "(min, max) time": ["    forward-compute ......: (100.00, 120.00)"],
        "max time": ["    forward-compute ......: 120.00"],
        "times": ["  forward-compute:", "     rank  0: 100.00", "     rank 16: 120.00"],
    }[how]
    lines = []
    for line in lines_of(MEGATRON):
        lines += [line, f"{how} across ranks (ms):", *rows]
    found = log("\n".join(lines))
    assert found.timers["forward-compute"].most == pytest.approx([0.12] * 3)
    if how != "max time":
        assert found.timers["forward-compute"].least == pytest.approx([0.1] * 3)
    if how == "times":
        assert found.slowest["forward-compute"] == (16, 16, 16)


def test_arguments_saved_checkpoints_and_the_network_are_kept() -> None:
    first, second, third = lines_of(MEGATRON)
    found = log(
        "  tensor_model_parallel_size ............... 8\n  recompute_granularity .... None\n"
        f"node1:77:91 [0] NCCL INFO Using network Socket\n{first}\n{second}\n"
        f"  successfully saved checkpoint at iteration       2 to /ckpt\n{third}\n"
    )
    assert found.said["tensor_model_parallel_size"] == "8"
    assert found.said["NCCL network"] == "Socket"
    assert found.saved == (2,)


def test_lines_of_one_line_break_are_told_apart() -> None:
    """Ranks write over each other."""
    assert log("".join(lines_of(MEGATRON))).seconds == pytest.approx(SECONDS)


def test_the_rank_that_wrote_most_counts() -> None:
    lines = [f"{rank}: {line}" for line in lines_of(MEGATRON) for rank in (3, 7)]
    found = log("\n".join([*lines[:-1], lines[-1][:30]]))
    assert found.seconds == pytest.approx(SECONDS)
    assert "2 ranks wrote steps" in found.notes[0]


def test_late_lines_of_other_ranks_are_left_out() -> None:
    first, second, third = lines_of(MEGATRON)
    found = log("\n".join([first, second, first, second, third, third]))
    assert found.seconds == pytest.approx(SECONDS)


def mllog(key: str, moment: float, value: object = None, **about: object) -> str:
    import json

    said = {"time_ms": int(1e3 * moment), "key": key, "value": value, "metadata": about}
    return f"0: :::MLLOG {json.dumps(said)}"


def test_mlperf_counts_no_evaluations() -> None:
    lines = [mllog("global_batch_size", 0, 8), mllog("block_start", 0, samples_count=0)]
    lines += [mllog("train_loss", 2 * n, 1.0, samples_count=8 * n) for n in range(1, 4)]
    lines += [mllog("eval_start", 6, samples_count=24), mllog("eval_stop", 99, samples_count=24)]
    lines += [mllog("train_loss", 99 + 2 * n, 1.0, samples_count=24 + 8 * n) for n in range(1, 4)]
    found = log("\n".join(lines))
    assert found.seconds == pytest.approx([2.0] * 4)


@pytest.mark.parametrize(
    ("about", "samples"),
    [
        (lambda n: {"epoch_num": n * 0.5}, 160),
        (lambda n: {"epoch_num": n * 80 * 2048}, 10**6),  # tokens
        (lambda n: {"step_num": n * 10}, 160),
        (lambda n: {"samples_count": n * 80}, 160),
    ],
)
def test_progress_of_mlperf_has_four_units(about: object, samples: int) -> None:
    assert callable(about)
    lines = [mllog("global_batch_size", 0, 8), mllog("train_samples", 0, samples),
             mllog("max_sequence_length", 0, 2048)]  # fmt: skip
    for n in range(1, 4):
        lines += [mllog("block_start", 30 * n, None, **about(n - 1)),
                  mllog("block_stop", 30 * n + 20, None, **about(n))]  # fmt: skip
    assert log("\n".join(lines)).seconds == pytest.approx([2.0] * 3)


@given(st.integers(0, 2000), st.sampled_from(sorted(FORMATS)))
def test_a_log_that_is_cut_off_is_read_up_to_there(end: int, title: str) -> None:
    text = "\n".join(lines_of(FORMATS[title]))[:end]
    try:
        found = log(text)
    except LogError:
        return
    there = np.isfinite(found.seconds)
    assert set(found.steps.tolist()) <= {1, 2, 3}
    whole = len(found.steps) - 1
    assert there.sum() >= whole or whole < NEEDED


def test_a_log_without_steps_says_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("hello\nworld\n")
    with pytest.raises(LogError, match="found no step of a run, expected iteration lines"):
        read_log(path)
