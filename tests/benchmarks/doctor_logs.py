"""Logs of runs with one injected cause each, and of healthy runs: by the event engine.

A run is simulated step by step with the stage times that are predicted of a job, on a machine that
differs from the predicted one by a draw within the usual errors, with noise of kernels and steps.
A fault changes what happens on that machine, never what the log says in words. Which way a system
writes its log is another matter (`WRITERS`).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ilp_planner.analysis.doctor.prediction import DATA, Prediction, with_values
from ilp_planner.analysis.fit.judge import Judge, space_of
from ilp_planner.analysis.fit.needs import Site
from ilp_planner.costs.training.iteration import stage_times, stages_of
from ilp_planner.formats.megatron.arguments import job_of_arguments, read_arguments
from ilp_planner.formats.megatron.flags import flags_by_key
from ilp_planner.formats.megatron.ranks import gpus_of
from ilp_planner.inputs.files import find_cluster
from ilp_planner.schedule.engine import StageTimes, simulate
from ilp_planner.schedule.schedules import schedule_orders
from ilp_planner.specs.data_sheets import gpu_architecture
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.training import Recompute

CLUSTER = "h100-8x8"
COMMON = (
    "--seq-length 4096 --max-position-embeddings 4096 --swiglu --normalization RMSNorm "
    "--disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope "
    "--bf16 --use-distributed-optimizer --use-flash-attn --transformer-impl transformer_engine "
    "--hidden-dropout 0 --attention-dropout 0 --tokenizer-type NullTokenizer --lr 1e-4 "
    "--train-iters 500 --mock-data --micro-batch-size 1 --sequence-parallel "
)
LINES = {
    "dense": COMMON
    + "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --vocab-size 128256 "
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --global-batch-size 128 "
    "--overlap-grad-reduce --overlap-param-gather",
    "wide": COMMON
    + "--num-layers 40 --hidden-size 5120 --ffn-hidden-size 13824 --num-attention-heads 40 "
    "--vocab-size 32000 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 1 "
    "--global-batch-size 64 --overlap-grad-reduce --overlap-param-gather",
    "experts": COMMON
    + "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --vocab-size 32000 --num-experts 8 "
    "--moe-router-topk 2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall "
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 "
    "--expert-model-parallel-size 8 --global-batch-size 128 --overlap-grad-reduce "
    "--overlap-param-gather",
}
# One micro-batch, whose passes are long enough to hide most of what replicas send.
LINES["hidden"] = (
    LINES["wide"] + " --seq-length 8192 --max-position-embeddings 8192 --global-batch-size 16"
)
FULL = {"settings.recompute": Recompute(granularity="full", method="uniform", layers=1)}
NO_OVERLAP = {
    "settings.optimizer.overlap_gradients": False,
    "settings.optimizer.overlap_parameters": False,
}


@cache
def judge_of(name: str) -> Judge:
    """Return the judge of a job of `LINES`."""
    spec = find_cluster(CLUSTER)
    arguments = read_arguments(LINES[name], 64, gpus=gpus_of(spec))
    job = replace(
        job_of_arguments(arguments), devices_per_node=8, gpu_architecture=gpu_architecture(spec)
    )
    model = ModelSpec(name=name, precision="bf16", architecture=job.model)
    return Judge(Site(cluster=spec), model, job, space_of(None))


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong on a machine; the defaults go right.

    settings: what really runs, fields of the job. kernels: factor of all kernels. rank: factor of
    one pipeline rank's kernels, `moving`: of another one in each step. links: factor of messages
    between nodes. gaps: seconds between kernels. warm: factors of the first steps. every, stall:
    steps and seconds of a rhythm. loading: seconds that a step waits for data. chance, late: share
    of steps that are late at random, and by which share of a step. fall: step from which kernels
    are slower by `fallen`. retries: share of steps that free memory, by `retried` of a step. fill:
    share of tokens that are real. fullest: tokens of the fullest expert over the mean.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    kernels: float = 1.0
    rank: float = 1.0
    moving: bool = False
    links: float = 1.0
    gaps: float = 0.0
    warm: tuple[float, ...] = (1.6,)
    every: int = 0
    stall: float = 0.0
    loading: float = 0.0
    chance: float = 0.0
    late: float = 0.0
    fall: int = 0
    fallen: float = 1.0
    retries: float = 0.0
    retried: float = 0.0
    fill: float = 1.0
    fullest: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that was simulated: of every step its seconds, and seconds of passes rank by rank."""

    job: str
    real: Prediction
    fault: Fault
    seconds: np.ndarray
    forward: np.ndarray  # [steps, ranks]
    backward: np.ndarray
    sync: np.ndarray
    optimizer: np.ndarray
    loading: np.ndarray
    retries: np.ndarray
    tokens: np.ndarray
    clock: np.ndarray


def run_of(job: str, fault: Fault, steps: int, seed: int) -> Run:
    """Simulate a run."""
    draw = np.random.default_rng(seed)
    judge = judge_of(job)
    real = Prediction(judge, judge.job)
    if fault.settings:
        changed = real.changed(fault.settings)
        assert changed is not None
        real = changed
    if fault.fullest > 1:
        changed = real.changed({"settings.kernels.imbalance": fault.fullest})
        assert changed is not None
        real = changed
    problem = real.judge.problem(real.job.world)
    ranks = problem.costs.ranks_of_job(real.job, problem.cluster)
    times = stage_times(ranks, real.job, stages_of(ranks, real.job))
    orders = schedule_orders(
        real.job.schedule.name, real.job.pp, real.job.micro_batches, real.job.virtual
    )
    error = real.judged.known.error
    assert error is not None
    # Of this machine's kernels: as far off as published runs are.
    bias = float(np.exp(draw.normal(0, np.log(error.high) / 1.2816)))
    parts = real.parts
    hidden = _sync_alone(real) - parts.get(DATA, 0.0)
    rows: dict[str, list[Any]] = {name: [] for name in ("seconds", "forward", "backward", "sync",
        "optimizer", "loading", "retries", "tokens", "clock")}  # fmt: skip
    retried = 0
    for step in range(1, steps + 1):
        slower = fault.fallen if fault.fall and step >= fault.fall else 1.0
        speed = np.exp(draw.normal(0, 0.006, real.job.pp)) * bias * fault.kernels * slower
        if fault.rank > 1:
            speed[int(draw.integers(real.job.pp)) if fault.moving else real.job.pp - 1] *= (
                fault.rank
            )
        each = np.array([speed[real.job.rank_of(s)] for s in range(len(real.job.stages))])
        kernels = StageTimes(
            times.forward * each, times.backward * each, times.input * each, times.weight * each,
            times.send_forward * fault.links, times.send_backward * fault.links,
        )  # fmt: skip
        pipeline = simulate(orders, kernels, blocking=real.job.virtual == 1).seconds
        exposed = parts.get(DATA, 0.0) * np.exp(draw.normal(0, 0.05))
        # What slow links add to messages is hidden by no more than the passes that hid the rest.
        exposed += (fault.links - 1) * _sync_alone(real) * 0.9
        optimizer = parts.get("optimiser step", 0.0) * bias
        wait = fault.loading * np.exp(draw.normal(0, 0.2)) if fault.loading else 0.0005
        seconds = pipeline + exposed + optimizer + wait + parts.get("what no rank does", 0.0)
        seconds *= np.exp(draw.normal(0, 0.006))
        if draw.random() < 0.01:  # now and then a step of any healthy run is late
            seconds *= 1 + abs(draw.normal(0, 0.04))
        if step <= len(fault.warm):
            seconds *= fault.warm[step - 1]
        if fault.every and step % fault.every == 0:
            seconds += fault.stall * np.exp(draw.normal(0, 0.1))
        if draw.random() < fault.chance:
            seconds *= 1 + fault.late * draw.exponential()
        if draw.random() < fault.retries:
            retried += int(draw.integers(1, 4))
            seconds *= 1 + fault.retried * np.exp(draw.normal(0, 0.2))
        own = [list(real.job.stages_of(rank)) for rank in range(real.job.pp)]
        count = real.job.micro_batches
        rows["forward"].append([count * float(kernels.forward[s].sum()) for s in own])
        rows["backward"].append([count * float(kernels.backward[s].sum()) for s in own])
        rows["seconds"].append(seconds)
        rows["sync"].append(exposed)
        rows["optimizer"].append(optimizer)
        rows["loading"].append(wait)
        rows["retries"].append(retried)
        whole = real.job.global_batch * real.job.model.sequence
        rows["tokens"].append(
            whole * fault.fill * (np.exp(draw.normal(0, 0.03)) if fault.fill < 1 else 1)
        )
        rows["clock"].append(1980 / slower / fault.kernels * np.exp(draw.normal(0, 0.004)))
    assert hidden >= -1e-9
    arrays = {name: np.array(values) for name, values in rows.items()}
    return Run(job=job, real=real, fault=fault, **arrays)


def _sync_alone(real: Prediction) -> float:
    """Return the seconds of gradients and parameters if nothing hides them."""
    job = with_values(real.job, NO_OVERLAP)
    return max(Prediction(real.judge, job).parts.get(DATA, 0.0), real.parts.get(DATA, 0.0))


# ---- logs ----------------------------------------------------------------------------------------


def megatron(run: Run, *, timers: str = "", arguments: bool = False, every: int = 1) -> bytes:
    """Write Megatron-LM's lines.

    Parameters
    ----------
    timers: `minmax` or `all`; empty: none. arguments: print them before. every: steps of a line.
    """
    job, lines = run.real.job, []
    if arguments:
        lines += _arguments(run)
    flops = run.real.judged.done.flops * run.real.seconds
    for first in range(0, len(run.seconds), every):
        rows = slice(first, first + every)
        last = min(first + every, len(run.seconds))
        mean = float(run.seconds[rows].mean())
        lines.append(
            f" [2026-03-01 12:{last // 60 % 60:02d}:{last % 60:02d}] iteration {last:8d}/     500 |"
            f" consumed samples: {last * job.global_batch:12d} |"
            f" elapsed time per iteration (ms): {1e3 * mean:.1f} |"
            f" throughput per GPU (TFLOP/s/GPU): {flops / mean / 1e12:.1f} |"
            f" learning rate: 1.000000E-04 | global batch size: {job.global_batch:5d} |"
            " lm loss: 4.2E+00 | loss scale: 1.0 | grad norm: 1.234 |"
        )
        if timers:
            lines += _timers(run, rows, timers)
    return "\n".join(lines).encode() + b"\n"


def _timers(run: Run, rows: slice, how: str) -> list[str]:
    named = {
        "forward-compute": run.forward[rows].mean(axis=0),
        "backward-compute": run.backward[rows].mean(axis=0),
        "batch-generator": np.full(run.real.job.pp, run.loading[rows].mean()),
        "all-grads-sync": np.full(run.real.job.pp, run.sync[rows].mean()),
        "optimizer": np.full(run.real.job.pp, run.optimizer[rows].mean()),
    }
    if how == "minmax":
        return ["(min, max) time across ranks (ms):"] + [
            f"    {name + ' ':.<48}: ({1e3 * each.min():.2f}, {1e3 * each.max():.2f})"
            for name, each in named.items()
        ]
    lines = ["times across ranks (ms):"]
    for name, each in named.items():
        lines.append(f"  {name}:")
        width = run.real.job.world // len(each)
        lines += [
            f"     rank {rank * width:2d}: {1e3 * value:.2f}" for rank, value in enumerate(each)
        ]
    return lines


def _arguments(run: Run) -> list[str]:
    """Return the arguments of the job that really ran, as Megatron-LM prints them all."""
    from ilp_planner.formats.megatron.arguments import arguments_of_job

    arguments = arguments_of_job(run.real.job)
    values = {key: arguments[key] for key in flags_by_key()}
    values |= {"world_size": run.real.job.world, "data_parallel_size": run.real.job.dp,
               "params_dtype": "torch.bfloat16"}  # fmt: skip
    return [
        "------------------------ arguments ------------------------",
        *(
            f"  {key} {'.' * max(2, 48 - len(key))} {value}"
            for key, value in sorted(values.items())
        ),
        "-------------------- end of arguments ---------------------",
    ]


def nemo(run: Run) -> bytes:
    """Write NeMo's lines."""
    batch = run.real.job.global_batch
    lines = [
        f"Training epoch 0, iteration {step}/499 | lr: 1.5e-07 | global_batch_size: {batch} | "
        f"global_step: {step} | reduced_train_loss: 11.03 | train_step_timing in s: {each:.4f} | "
        f"consumed_samples: {(step + 1) * batch}"
        for step, each in enumerate(run.seconds)
    ]
    return "\n".join(lines).encode() + b"\n"


def deepspeed(run: Run) -> bytes:
    """Write DeepSpeed's lines of its pipeline engine."""
    batch = run.real.job.global_batch
    lines = [
        f"[2026-03-01 12:00:00,000] [INFO] [engine.py:300:train_batch] steps: {step} loss: 2.3000 "
        f"iter time (s): {each:.3f} samples/sec: {batch / each:.3f}"
        for step, each in enumerate(run.seconds, 1)
    ]
    return "\n".join(lines).encode() + b"\n"


def torchtitan(run: Run) -> bytes:
    """Write torchtitan's lines, by several ranks into one file."""
    lines, moment = [], 1.77e9
    from datetime import UTC, datetime

    job = run.real.job
    for step, each in enumerate(run.seconds, 1):
        moment += each
        at = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
        rate = run.tokens[step - 1] / each / job.world
        lines += [
            f"[rank{rank}]:[titan] {at} - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss:  "
            f"5.12345  \x1b[38;2;180;60;0mgrad_norm:  1.2345  \x1b[36mmemory: 60.12GiB(75.90%)  "
            f"\x1b[34mtps: {round(rate):,}  \x1b[36mtflops: 400.00  \x1b[35mmfu: 40.00%\x1b[39m"
            for rank in (0, 7)
        ]
    return "\n".join(lines).encode() + b"\n"


def _rows(run: Run) -> list[dict[str, float]]:
    """Return rows of numbers, as loggers have them."""
    moment = np.cumsum(run.seconds)
    return [
        {
            "_step": step,
            "_timestamp": 1.77e9 + float(moment[step]),
            "train/loss": 4.2,
            "time_metrics/end_to_end(s)": float(run.seconds[step]),
            "time_metrics/data_loading(s)": float(run.loading[step]),
            "memory/num_alloc_retries": int(run.retries[step]),
            "system.gpu.0.smClock": float(run.clock[step]),
            "train/num_tokens": float(run.tokens[: step + 1].sum()),
            "moe/max_over_mean": run.fault.fullest,
        }
        for step in range(len(run.seconds))
    ]


def json_lines(run: Run) -> bytes:
    """Write lines of JSON, as W&B's history."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in _rows(run))


def table(run: Run) -> bytes:
    """Write W&B's table of a chart: a column per run and number, with its extremes."""
    names = ("time_metrics/end_to_end(s)", "time_metrics/data_loading(s)")
    text = io.StringIO()
    writer = csv.writer(text)
    heads = [f"run-7 - {name}{end}" for name in names for end in ("", "__MIN", "__MAX")]
    writer.writerow(["Step", *heads])
    for row in _rows(run):
        writer.writerow([row["_step"], *(row[name] for name in names for _ in range(3))])
    return text.getvalue().encode()


# ---- traces --------------------------------------------------------------------------------------


def trace(run: Run, *, exposed: bool = False, steps: int = 3) -> bytes:
    """Write a trace of the first pipeline rank, as torch.profiler does.

    Parameters
    ----------
    exposed: messages of gradients run when nothing else does, as they did not in the run.
    """
    return json.dumps(
        {"schemaVersion": 1, "traceEvents": list(_events(run, exposed, steps))}
    ).encode()


LAYERS = 8  # of kernels that a pass is divided into: enough for statistics, and a small file


def _events(run: Run, exposed: bool, steps: int) -> Any:
    real, fault = run.real, run.fault
    job, clock, launch, number = real.job, 0.0, 0.0, 0
    problem = real.judge.problem(job.world)
    ranks = problem.costs.ranks_of_job(job, problem.cluster)
    stage = stages_of(ranks, job)[0]
    terms, forward = stage.terms, stage.own[0]
    share = forward / stage.own[1]
    again = stage.again
    # Of all messages of a kind in the layers that one group of kernels stands for.
    items = 2 * job.model.layers // job.pp // LAYERS * job.model.sequence * job.model.hidden
    for step in range(steps):
        begun = clock
        speed = float(run.forward[20 + step, 0] / (job.micro_batches * forward))

        def kernel(name: str, seconds: float, **about: Any) -> Any:
            nonlocal clock, number, launch
            number += 1
            late = fault.gaps if not name.startswith("nccl") else 0.0
            # A host that is ahead launches long before; one that is behind just in time.
            launch = clock + late - 5e-6 if late else max(launch + 4e-6, clock - 2e-3)
            clock = max(clock + late, launch + 4e-6) + 1e-6
            yield {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
                   "ts": 1e6 * launch, "dur": 3, "args": {"correlation": number}}  # fmt: skip
            yield {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1e6 * clock,
                   "dur": 1e6 * seconds, "args": {"correlation": number, **about}}  # fmt: skip
            clock += seconds

        def sent(name: str, seconds: float) -> Any:
            yield from kernel(
                f"ncclDevKernel_{name}_RING_LL", seconds, dtype="BFloat16",
                **{"Collective name": f"_{name}_base", "In msg nelems": items // job.tp,
                   "Out msg nelems": items, "Group size": job.tp},
            )  # fmt: skip

        def one_pass(part: float, extra: float, back: bool, speed: float = speed) -> Any:
            work = terms["compute"] * part * speed / LAYERS
            message = terms["messages within layers"] * part / LAYERS / 2
            flash = "flash_bwd_dq_dk_dv_loop" if back else "flash_fwd_kernel"
            for _ in range(LAYERS):
                if extra:  # forward again
                    yield from kernel("flash_fwd_kernel", 0.2 * extra * speed / LAYERS)
                    yield from kernel("sm90_xmma_gemm_bf16", 0.8 * extra * speed / LAYERS)
                yield from kernel("sm90_xmma_gemm_bf16", 0.4 * work)
                yield from sent("AllGather", message)
                yield from kernel(flash, 0.2 * work)
                yield from kernel("sm90_xmma_gemm_bf16", 0.4 * work)
                yield from sent("ReduceScatter", message)

        yield from kernel("gpu_memcpy_input", 1e-5)
        clock += float(run.loading[20 + step])
        for _ in range(job.micro_batches):
            yield from one_pass(share, 0.0, False)
            yield from one_pass(1 - share, again, True)
        fill = real.parts.get("pipeline fill and waiting", 0.0)
        if fill:
            yield from kernel("ncclDevKernel_SendRecv", fill)
        held = float(ranks.counts[:, 0].sum() / job.pp / job.tp)
        group = job.dp * job.settings.cp
        for name, kind, width in (
            ("ReduceScatter", "reduce_scatter", 4), ("AllGather", "all_gather", 2),
        ):  # fmt: skip
            seconds = real.message(kind, group, width * held) * fault.links
            part = width / 6
            about = {"dtype": {4: "Float", 2: "BFloat16"}[width], "Group size": group,
                     "Collective name": f"_{name}_base", "In msg nelems": int(held),
                     "Out msg nelems": int(held) // group}  # fmt: skip
            if exposed or fault.links > 1:
                yield from kernel(f"ncclDevKernel_{name}_Sum_bf16_RING_LL", seconds, **about)
            else:  # beside kernels, but for a rest
                rest = real.parts.get(DATA, 0.0) * part
                yield {"ph": "X", "cat": "kernel", "name": f"ncclDevKernel_{name}_Sum_bf16_RING_LL",
                       "pid": 0, "tid": 9, "ts": 1e6 * max(begun, clock - seconds + rest),
                       "dur": 1e6 * seconds, "args": about}  # fmt: skip
                clock += rest
        yield from kernel("multi_tensor_adam", max(1e-5, real.parts.get("optimiser step", 0.0)))
        clock += real.parts.get("what no rank does", 0.0)
        yield {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step + 5}", "pid": 1,
               "tid": 1, "ts": 1e6 * begun, "dur": 1e6 * (clock - begun)}  # fmt: skip


# ---- cases ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Made:
    """A log to make. cause: of the diagnosis that is right, `HEALTHY` if none is. write: the log,
    and its ending."""

    name: str
    cause: str
    job: str
    fault: Fault
    write: Callable[[Run], bytes]
    ending: str = ".log"
    steps: int = 200

    def into(self, folder: Path, seed: int) -> Path:
        """Write the log of a run."""
        path = folder / f"{self.name.replace(' ', '-')}-{seed}{self.ending}"
        path.write_bytes(self.write(run_of(self.job, self.fault, self.steps, seed)))
        return path


HEALTHY = "none"
BATCH = {"global_batch": 192}
COMPILING = (9.0, 6.0, 2.5)


def with_timers(run: Run) -> bytes:
    return megatron(run, timers="minmax")


def with_all_timers(run: Run) -> bytes:
    return megatron(run, timers="all")


def with_arguments(run: Run) -> bytes:
    return megatron(run, arguments=True)


def every_tenth(run: Run) -> bytes:
    return megatron(run, every=10, timers="minmax")


def trace_exposed(run: Run) -> bytes:
    return trace(run, exposed=True)


MADE = (
    Made("batch of Megatron-LM", "batch", "dense", Fault(settings=BATCH), megatron),
    Made("batch of NeMo", "batch", "wide", Fault(settings={"global_batch": 80}), nemo),
    Made("warm-up of DeepSpeed", "warm-up", "wide", Fault(warm=COMPILING), deepspeed, steps=40),
    Made("straggler", "straggler", "dense", Fault(rank=1.2), with_timers),
    Made("jitter", "straggler", "wide", Fault(chance=0.12, late=0.4), nemo),
    Made("data in a rhythm", "data", "wide", Fault(every=8, stall=0.6), json_lines, ".jsonl"),
    Made("data in every step", "data", "wide", Fault(loading=0.08), table, ".csv"),
    Made("data by timers", "data", "dense", Fault(loading=0.09), with_timers),
    Made("checkpoints", "checkpoint", "dense", Fault(every=50, stall=3.0), deepspeed, steps=400),
    Made("checkpoints in means", "checkpoint", "dense", Fault(every=100, stall=8.0), every_tenth,
         steps=1000),
    Made("slow link by timers", "link", "wide", Fault(links=4.0), with_timers),
    Made("slow link by trace", "link", "wide", Fault(links=4.0), trace, ".json", 40),
    Made("recomputation by timers", "recomputation", "dense", Fault(settings=FULL), with_timers),
    Made("recomputation by trace", "recomputation", "wide", Fault(settings=FULL), trace, ".json",
         40),
    Made("no overlap by timers", "overlap", "wide", Fault(settings=NO_OVERLAP), with_timers),
    Made("no overlap by trace", "overlap", "hidden", Fault(), trace_exposed, ".json", 40),
    Made("host", "host", "wide", Fault(gaps=6e-4), trace, ".json", 40),
    Made("experts by ranks", "experts", "experts", Fault(rank=1.25, moving=True), with_all_timers),
    Made("experts by tokens", "experts", "experts", Fault(fullest=1.6), json_lines, ".jsonl"),
    Made("clocks by timers", "clocks", "dense", Fault(kernels=1.25), with_timers),
    Made("clocks that fall", "clocks", "dense", Fault(fall=90, fallen=1.15), torchtitan),
    Made("memory", "memory", "dense", Fault(retries=0.15, retried=0.5), json_lines, ".jsonl"),
    Made("a flag", "flag", "dense", Fault(settings=FULL), with_arguments),
    Made("padding", "padding", "dense", Fault(fill=0.7), json_lines, ".jsonl"),
)  # fmt: skip
WELL = (
    Made("healthy with timers", HEALTHY, "dense", Fault(), with_timers),
    Made("healthy of torchtitan", HEALTHY, "dense", Fault(), torchtitan),
    Made("healthy trace", HEALTHY, "wide", Fault(), trace, ".json", 40),
    Made("healthy lines of JSON", HEALTHY, "experts", Fault(), json_lines, ".jsonl"),
    Made("healthy with arguments", HEALTHY, "wide", Fault(), with_arguments),
    Made("healthy of NeMo", HEALTHY, "wide", Fault(), nemo),
)
