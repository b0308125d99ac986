"""Kernels and training steps on one GPU, measured with the libraries that people train with.

python tests/benchmarks/gpu_runs.py OUT.json [--seconds 280] [--only PATTERN] [--device cpu]

Needs PyTorch and NumPy; steps of Hugging Face models need transformers, adapters need peft, 4-bit
bases bitsandbytes, torchtitan's steps torchtitan. What is not installed is left out by name. Rows
are written as they come. Nothing of the planner is imported: `gpu_judge` compares the rows with it.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import re
import statistics
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

Row = dict[str, Any]

WARM, REPEATS, LASTING = 3, 12, 0.06  # passes; passes at most; seconds of one measurement
WARM_STEPS, STEPS, MICRO_BATCHES = 2, 4, 2
TOP = 24  # kernels of a profile that are kept
RANK = 16

# Public dimensions: layers, hidden, heads, key-value heads, feed-forward, vocabulary, tied, head.
MODELS = {
    "qwen2.5-0.5b": (24, 896, 14, 2, 4864, 151936, True, 64),
    "llama3.2-1b": (16, 2048, 32, 8, 8192, 128256, True, 64),
    "llama3.2-3b": (28, 3072, 24, 8, 8192, 128256, True, 128),
    "llama2-7b": (32, 4096, 32, 32, 11008, 32000, False, 128),
    "llama3.1-8b": (32, 4096, 32, 8, 14336, 128256, False, 128),
    "llama2-13b": (40, 5120, 40, 40, 13824, 32000, False, 128),
    "small": (2, 256, 4, 2, 512, 1024, False, 64),
}
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
QV = ("q_proj", "v_proj")

# (model, method, micro-batch, tokens, what differs from the usual)
HUGGING_FACE: tuple[tuple[str, str, int, int, Row], ...] = (
    ("llama3.1-8b", "lora", 1, 2048, {"profile": True}),
    ("llama3.1-8b", "lora", 1, 2048, {"checkpointing": True}),
    ("llama3.1-8b", "qlora", 1, 2048, {"checkpointing": True, "profile": True}),
    ("llama3.2-1b", "full", 4, 2048, {"profile": True}),
    ("llama3.2-1b", "full", 4, 2048, {"autocast": True}),
    ("llama3.1-8b", "freeze", 1, 2048, {"trained_layers": 4}),
    ("llama3.1-8b", "lora", 4, 2048, {"checkpointing": True}),
    ("llama3.1-8b", "lora", 2, 2048, {"targets": QV}),
    ("llama2-7b", "qlora", 1, 1024, {"checkpointing": True}),
    ("llama3.2-3b", "full", 2, 2048, {}),
    ("llama3.2-3b", "full", 2, 2048, {"checkpointing": True}),
    ("llama2-13b", "lora", 1, 2048, {"checkpointing": True}),
    ("llama2-13b", "qlora", 1, 2048, {"checkpointing": True, "optimizer": "paged_adamw_8bit"}),
    ("llama3.1-8b", "qlora", 4, 2048, {"checkpointing": True}),
    ("llama3.1-8b", "lora", 1, 8192, {"checkpointing": True}),
    ("llama3.2-1b", "lora", 1, 32768, {"checkpointing": True}),
    ("qwen2.5-0.5b", "full", 8, 1024, {"autocast": True}),
    ("qwen2.5-0.5b", "lora", 8, 1024, {}),
    ("llama2-7b", "lora", 1, 4096, {"checkpointing": True}),
    ("llama2-7b", "freeze", 1, 2048, {"trained_layers": 2}),
    ("llama3.1-8b", "full", 1, 2048, {"checkpointing": True, "optimizer": "adamw_8bit"}),
)
SMALL_HUGGING_FACE = tuple(
    ("small", method, 1, 64, extra)
    for method, extra in (
        ("lora", {"profile": True}),
        ("qlora", {"checkpointing": True}),
        ("lora", {"checkpointing": True, "targets": QV}),
        ("full", {"autocast": True}),
        ("freeze", {"trained_layers": 1}),
    )
)
# dim, layers, heads, key-value heads, multiplier and multiple of the feed-forward part
TITAN_MODELS = {
    "llama3-8b of 6 layers": (4096, 6, 32, 8, 1.3, 1024, 128256),
    "llama3.2-1b untied": (2048, 16, 32, 8, 1.5, 256, 128256),
    "small": (256, 2, 4, 2, 1.3, 64, 1024),
}
EXPERTS = "qwen3-30b-a3b of 4 layers"
# (model, micro-batch, tokens, recomputation, compiled, 8-bit recipe)
TITAN: tuple[tuple[str, int, int, str, bool, str], ...] = (
    ("llama3-8b of 6 layers", 1, 8192, "none", False, ""),
    ("llama3-8b of 6 layers", 1, 8192, "full", False, ""),
    ("llama3-8b of 6 layers", 1, 8192, "op", False, ""),
    (EXPERTS, 2, 4096, "none", False, ""),
    ("llama3-8b of 6 layers", 1, 8192, "none", True, ""),
    ("llama3-8b of 6 layers", 1, 8192, "op", True, ""),
    ("llama3.2-1b untied", 2, 4096, "none", False, ""),
    ("llama3.2-1b untied", 2, 4096, "none", True, ""),
    ("llama3-8b of 6 layers", 1, 8192, "none", True, "tensorwise"),
    (EXPERTS, 2, 4096, "none", True, ""),
    (EXPERTS, 2, 4096, "full", False, ""),
)
SMALL_TITAN = (
    ("small", 1, 64, "none", False, ""),
    ("small", 1, 64, "op", False, ""),
    ("small", 1, 64, "none", False, "tensorwise"),
    ("small of experts", 1, 64, "full", False, ""),
)


class Gpu:
    """The measured device, its clock and its memory. On a CPU, to try the script, times mean
    nothing and memory is 0."""

    def __init__(self, kind: str) -> None:
        self.kind, self.device = kind, torch.device(kind)

    def wait(self) -> None:
        if self.kind == "cuda":
            torch.cuda.synchronize()

    def seconds(self, run: Callable[[], object]) -> float:
        """Return the mean seconds of passes that follow each other without a pause."""
        for _ in range(WARM):
            run()
        once = self._lasts(run, 1)
        return self._lasts(run, max(2, min(REPEATS * 4, int(LASTING / max(once, 1e-6)))))

    def _lasts(self, run: Callable[[], object], count: int) -> float:
        self.wait()
        if self.kind == "cpu":
            begun = time.perf_counter()
            for _ in range(count):
                run()
            return (time.perf_counter() - begun) / count
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        marks[0].record()
        for _ in range(count):
            run()
        marks[1].record()
        torch.cuda.synchronize()
        return float(marks[0].elapsed_time(marks[1])) * 1e-3 / count

    def held(self) -> int:
        return torch.cuda.memory_allocated() if self.kind == "cuda" else 0

    def describe(self) -> Row:
        """Return the versions that numbers depend on."""
        found: Row = {"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": "cpu"}
        if self.kind == "cuda":
            found["gpu"] = torch.cuda.get_device_name()
            found["memory"] = torch.cuda.get_device_properties(0).total_memory
            found["cudnn"] = torch.backends.cudnn.version()
        for name in ("transformers", "peft", "bitsandbytes", "torchtitan"):
            if importlib.util.find_spec(name) is not None:
                from importlib.metadata import PackageNotFoundError, version

                try:
                    found[name] = version(name)
                except PackageNotFoundError:
                    found[name] = "there"
        return found


def random(gpu: Gpu, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, device=gpu.device, dtype=torch.float32).to(dtype)


# ---- kernels -------------------------------------------------------------------------------------


def product_rows(gpu: Gpu) -> Iterator[Row]:
    """Products of layers: forward (rows of tokens by rows of weights), to inputs, to weights."""
    layers = (
        (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336),  # llama3-8b
        (1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584),  # llama3-70b in eight shards
        (3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192),  # llama3.2-1b
        (1536, 2048), (2048, 768), (9728, 896), (896, 4864),  # an expert of Qwen3, qwen2.5-0.5b
    )  # fmt: skip
    for tokens in (2048, 8192):
        for n, k in layers:
            x, w = random(gpu, tokens, k), random(gpu, n, k)
            y = random(gpu, tokens, n)
            runs = {
                "forward": partial(torch.mm, x, w.t()),
                "inputs": partial(torch.mm, y, w),
                "weights": partial(torch.mm, y.t(), x),
            }
            for way, run in runs.items():
                row = {"kernel": "product", "precision": "bf16", "way": way}
                yield row | {"m": tokens, "n": n, "k": k, "seconds": gpu.seconds(run)}
    for tokens, n, k in ((8192, 28672, 4096), (8192, 4096, 14336), (2048, 6144, 4096)):
        x = random(gpu, tokens, k).to(torch.float8_e4m3fn)
        w = random(gpu, n, k).to(torch.float8_e4m3fn).t()
        scale = torch.ones((), device=gpu.device)
        run = partial(torch._scaled_mm, x, w, scale, scale, out_dtype=torch.bfloat16)
        row = {"kernel": "product", "precision": "fp8", "way": "forward"}
        yield row | {"m": tokens, "n": n, "k": k, "seconds": gpu.seconds(run)}
    x, w = random(gpu, 4096, 4096), random(gpu, 128256, 4096)
    row = {"kernel": "product", "precision": "bf16", "way": "forward"}
    seconds = gpu.seconds(partial(torch.mm, x, w.t()))
    yield row | {"m": 4096, "n": 128256, "k": 4096, "seconds": seconds}


def attention_rows(gpu: Gpu) -> Iterator[Row]:
    """Causal attention by library, forward and backward."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    libraries = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    shapes = (
        (4, 2048, 32, 8, 128), (2, 4096, 32, 8, 128), (1, 8192, 32, 8, 128), (1, 2048, 32, 8, 128),
        (1, 32768, 8, 2, 128), (1, 16384, 32, 8, 128), (2, 4096, 32, 8, 64), (4, 2048, 16, 16, 64),
        (2, 4096, 40, 40, 128), (1, 8192, 8, 1, 128),
    )  # fmt: skip
    for name, library in libraries.items():
        for batch, tokens, heads, kv, width in shapes:
            q = random(gpu, batch, heads, tokens, width).requires_grad_()
            k, v = (random(gpu, batch, kv, tokens, width).requires_grad_() for _ in range(2))
            with sdpa_kernel(library):
                run = partial(
                    functional.scaled_dot_product_attention,
                    q,
                    k,
                    v,
                    is_causal=True,
                    enable_gqa=heads != kv,
                )
                found = both_ways(gpu, run, (q, k, v))
            row = {"kernel": "attention", "library": name, "batch": batch, "tokens": tokens}
            row |= {"heads": heads, "kv_heads": kv, "head_dim": width}
            yield row | found


def flexible_rows(gpu: Gpu) -> Iterator[Row]:
    """Causal FlexAttention, compiled."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    flexible = torch.compile(flex_attention)
    for batch, tokens, heads, kv, width in ((4, 2048, 32, 8, 128), (1, 8192, 32, 8, 128)):
        q = random(gpu, batch, heads, tokens, width).requires_grad_()
        k, v = (random(gpu, batch, kv, tokens, width).requires_grad_() for _ in range(2))
        mask = create_block_mask(
            lambda b, h, i, j: i >= j, None, None, tokens, tokens, device=gpu.device
        )
        run = partial(flexible, q, k, v, block_mask=mask, enable_gqa=True)
        row = {"kernel": "attention", "library": "flex", "batch": batch, "tokens": tokens}
        row |= {"heads": heads, "kv_heads": kv, "head_dim": width}
        yield row | both_ways(gpu, run, (q, k, v))


def scan_rows(gpu: Gpu) -> Iterator[Row]:
    """State-space scans in chunks."""
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    for batch, tokens, heads, groups in ((1, 8192, 128, 8), (1, 8192, 64, 8), (2, 4096, 16, 1)):
        x = random(gpu, batch, tokens, heads, 64).requires_grad_()
        dt = random(gpu, batch, tokens, heads).requires_grad_()
        decay = (-torch.rand(heads, device=gpu.device) - 0.5).requires_grad_()
        b, c = (random(gpu, batch, tokens, groups, 128).requires_grad_() for _ in range(2))
        skip, bias = (torch.rand(heads, device=gpu.device).requires_grad_() for _ in range(2))
        run = partial(
            mamba_chunk_scan_combined, x, dt, decay, b, c, chunk_size=128, D=skip, dt_bias=bias,
            dt_softplus=True,
        )  # fmt: skip
        row = {"kernel": "scan", "batch": batch, "tokens": tokens, "heads": heads, "width": 64}
        row |= {"groups": groups, "state": 128, "chunk": 128}
        yield row | both_ways(gpu, run, (x, dt, decay, b, c, skip, bias))


def delta_rows(gpu: Gpu) -> Iterator[Row]:
    """Gated delta rules."""
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    for batch, tokens, heads in ((1, 8192, 32), (2, 4096, 32), (1, 8192, 8)):
        q, k, v = (random(gpu, batch, tokens, heads, 128).requires_grad_() for _ in range(3))
        g = (
            functional.logsigmoid(random(gpu, batch, tokens, heads).float())
            .detach()
            .requires_grad_()
        )
        beta = random(gpu, batch, tokens, heads).sigmoid().detach().requires_grad_()
        run = partial(chunk_gated_delta_rule, q, k, v, g, beta, use_qk_l2norm_in_kernel=True)
        row = {"kernel": "gated delta", "batch": batch, "tokens": tokens, "heads": heads}
        row |= {"key": 128, "value": 128}
        yield row | both_ways(gpu, lambda run=run: run()[0], (q, k, v, g, beta))


def convolution_rows(gpu: Gpu) -> Iterator[Row]:
    """Causal convolutions with their activation."""
    from fla.modules.causal_conv1d import causal_conv1d

    for channels in (10240, 8192, 2048):
        x = random(gpu, 1, 8192, channels).requires_grad_()
        weight = random(gpu, channels, 4).requires_grad_()
        run = partial(causal_conv1d, x, weight, activation="silu")
        row = {"kernel": "convolution", "tokens": 8192, "channels": channels, "width": 4}
        yield row | both_ways(gpu, lambda run=run: first(run()), (x, weight))


def first(found: Any) -> torch.Tensor:
    return found[0] if isinstance(found, tuple) else found


def both_ways(gpu: Gpu, run: Callable[[], torch.Tensor], inputs: tuple[torch.Tensor, ...]) -> Row:
    """Return seconds of a kernel's forward and backward pass."""
    forward = gpu.seconds(run)
    out = run()
    back = partial(torch.autograd.grad, out, inputs, torch.randn_like(out), retain_graph=True)
    return {"forward": forward, "backward": gpu.seconds(back)}


def grouped_rows(gpu: Gpu) -> Iterator[Row]:
    """Products of experts in one call, tokens dealt evenly and at random."""
    shapes = (
        (128, 1536, 2048),
        (128, 2048, 768),
        (8, 14336, 4096),
        (64, 4096, 7168),
        (16, 2048, 2048),
    )
    for count, n, k in shapes:
        for rows in (16384, 65536):
            if rows * max(n, k) > 2**30:
                continue
            x, w = random(gpu, rows, k), random(gpu, count, n, k)
            even = torch.full((count,), rows // count)
            drawn = torch.bincount(torch.randint(0, count, (rows,)), minlength=count)
            for name, counts in (("even", even), ("random", drawn)):
                ends = counts.cumsum(0).to(device=gpu.device, dtype=torch.int32)
                run = partial(torch._grouped_mm, x, w.transpose(-2, -1), offs=ends)
                row = {"kernel": "grouped", "experts": count, "rows": rows, "n": n, "k": k}
                yield row | {"dealt": name, "seconds": gpu.seconds(run)}


def stream_rows(gpu: Gpu) -> Iterator[Row]:
    """Passes that memory limits. bytes: read and written."""
    tokens, hidden, vocab = 8192, 4096, 128256
    x, y = random(gpu, tokens, hidden), random(gpu, tokens, hidden)
    g, u = random(gpu, tokens, 14336), random(gpu, tokens, 14336)
    weight = random(gpu, hidden)
    single = random(gpu, 2**28, dtype=torch.float32)
    size, wide = x.numel() * 2, g.numel() * 2
    logits = random(gpu, 4096, vocab)
    labels = torch.randint(0, vocab, (4096,), device=gpu.device)
    passes: dict[str, tuple[float, Callable[[], object]]] = {
        "copy": (8 * single.numel(), single.clone),
        "add": (3 * size, partial(torch.add, x, y)),
        "rms_norm": (2 * size, partial(functional.rms_norm, x, (hidden,), weight)),
        "silu": (2 * wide, partial(functional.silu, g)),
        "multiply": (3 * wide, partial(torch.mul, g, u)),
        "cast to 32 bits": (3 * size, x.float),
        "cross entropy": (
            2.0 * logits.numel() * (2 + 4 + 4 * 2),  # cast, logarithms of softmax
            lambda: functional.cross_entropy(logits.float(), labels),
        ),
        "accumulate gradients": (6 * single.numel(), lambda: single.add_(single)),
    }
    for name, (bytes_, run) in passes.items():
        yield {"kernel": "stream", "pass": name, "bytes": bytes_, "seconds": gpu.seconds(run)}

    weights = [torch.nn.Parameter(random(gpu, 4096, 4096, dtype=torch.float32)) for _ in range(32)]
    for one in weights:
        one.grad = torch.randn_like(one)
    adam = torch.optim.AdamW(weights, fused=gpu.kind == "cuda")
    count = sum(one.numel() for one in weights)
    row = {"kernel": "stream", "pass": "AdamW, fused, 32 bits", "bytes": 28 * count}
    yield row | {"seconds": gpu.seconds(adam.step)}
    one = torch.ones(1, device=gpu.device)
    begun, launches = time.perf_counter(), 2000
    for _ in range(launches):
        one.add_(1)
    gpu.wait()
    spent = (time.perf_counter() - begun) / launches
    yield {"kernel": "launch", "pass": "one element, eager", "seconds": spent}
    if gpu.kind == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(200):
                one.add_(1)
        yield {
            "kernel": "launch",
            "pass": "one element, graph",
            "seconds": gpu.seconds(graph.replay) / 200,
        }


# ---- steps ---------------------------------------------------------------------------------------


def measured_step(gpu: Gpu, step: Callable[[], object], before: int, profiled: bool) -> Row:
    """Return seconds and memory of a step. before: bytes that were held before the model."""
    begun = time.perf_counter()
    for _ in range(WARM_STEPS):
        step()
    gpu.wait()
    found: Row = {"warm_up": time.perf_counter() - begun, "states": gpu.held() - before}
    if gpu.kind == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(STEPS):
        begun = time.perf_counter()
        step()
        gpu.wait()
        seconds.append(time.perf_counter() - begun)
    found |= {"seconds": statistics.median(seconds), "each": [round(s, 6) for s in seconds]}
    if gpu.kind == "cuda":
        found["peak"] = torch.cuda.max_memory_allocated() - before
        found["reserved"] = torch.cuda.max_memory_reserved()
    if profiled:
        found |= kernels_of(step, gpu)
    return found


def kernels_of(step: Callable[[], object], gpu: Gpu) -> Row:
    """Return the kernels of a step: seconds and launches together, and the longest by name."""
    from torch.profiler import ProfilerActivity, profile

    activity = ProfilerActivity.CUDA if gpu.kind == "cuda" else ProfilerActivity.CPU
    with profile(activities=[activity]) as trace:
        step()
        gpu.wait()
    key = "self_device_time_total" if gpu.kind == "cuda" else "self_cpu_time_total"
    events = [event for event in trace.key_averages() if getattr(event, key) > 0]
    events.sort(key=lambda event: -getattr(event, key))
    return {
        "kernel_seconds": sum(getattr(event, key) for event in events) * 1e-6,
        "launches": sum(event.count for event in events),
        "kernels": [
            [event.key[:120], event.count, round(getattr(event, key) * 1e-6, 6)]
            for event in events[:TOP]
        ],
    }


def hugging_face_row(gpu: Gpu, case: tuple[str, str, int, int, Row]) -> Row:
    """Measure a model of transformers: all of it trained, adapters, or its last layers."""
    name, method, size, tokens, extra = case
    row: Row = {"step": "transformers", "model": name, "method": method, "micro_batch": size}
    row |= {"tokens": tokens, "micro_batches": MICRO_BATCHES, **extra}
    before = gpu.held()
    model = hugging_face_model(gpu, name, 4 if method == "qlora" else 16)
    if method == "qlora":
        from peft import prepare_model_for_kbit_training

        model.is_loaded_in_4bit = True
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if method in ("lora", "qlora"):
        from peft import LoraConfig, get_peft_model

        targets = list(extra.get("targets", LINEAR))
        model = get_peft_model(
            model, LoraConfig(r=RANK, lora_alpha=16, target_modules=targets, task_type="CAUSAL_LM")
        )
        row |= {"rank": RANK, "targets": targets}
    if method == "freeze":
        model.requires_grad_(False)
        for layer in model.model.layers[-extra["trained_layers"] :]:
            layer.requires_grad_(True)
        model.lm_head.requires_grad_(True)
        model.model.norm.requires_grad_(True)
    if extra.get("autocast") and method == "full":
        model.float()
    if extra.get("checkpointing"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
        if method in ("lora", "qlora"):
            model.enable_input_require_grads()
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    row["trained"] = sum(p.numel() for p in trained)
    row["held"] = gpu.held() - before
    optimizer = optimizer_of(extra.get("optimizer", "adamw_torch_fused"), trained, gpu)
    ids = torch.randint(0, MODELS[name][5], (size, tokens), device=gpu.device)
    cast = bool(extra.get("autocast")) or method in ("lora", "qlora")

    def step() -> None:
        for _ in range(MICRO_BATCHES):
            with torch.autocast(gpu.kind, torch.bfloat16, enabled=cast):
                loss = model(input_ids=ids, labels=ids, use_cache=False).loss / MICRO_BATCHES
            loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    row |= measured_step(gpu, step, before, bool(extra.get("profile")))
    return row


def hugging_face_model(gpu: Gpu, name: str, bits: int) -> Any:
    """Return a model of random weights on the GPU; its linear layers in 4 bits if asked."""
    import transformers

    layers, hidden, heads, kv, inner, vocab, tied, width = MODELS[name]
    config = transformers.LlamaConfig(
        num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads,
        num_key_value_heads=kv, intermediate_size=inner, vocab_size=vocab, head_dim=width,
        tie_word_embeddings=tied, max_position_embeddings=131072, attention_bias=False,
        attn_implementation="sdpa",
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    if bits == 4:
        return in_four_bits(gpu, model, config)
    model.to_empty(device=gpu.device)
    fill(gpu, model)
    if tied:
        model.tie_weights()
    return model


def fill(gpu: Gpu, model: Any) -> None:
    """Draw weights; compute again what buffers hold."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.02)
    rotary = getattr(getattr(model, "model", None), "rotary_emb", None)
    if rotary is not None:
        fresh = type(rotary)(model.config).to(gpu.device)
        model.model.rotary_emb = fresh


def in_four_bits(gpu: Gpu, model: Any, config: Any) -> Any:
    """Return a model whose linear layers, but for the head, are NF4 with double quantisation."""
    import bitsandbytes as bnb

    for block in model.model.layers:
        for part in (block.self_attn, block.mlp):
            for name, linear in list(part.named_children()):
                if not isinstance(linear, torch.nn.Linear):
                    continue
                four = bnb.nn.Linear4bit(
                    linear.in_features, linear.out_features, bias=False,
                    compute_dtype=torch.bfloat16, quant_type="nf4", compress_statistics=True,
                    device="meta",
                )  # fmt: skip
                drawn = random(gpu, linear.out_features, linear.in_features) * 0.02
                four.weight = bnb.nn.Params4bit(
                    drawn.cpu(), requires_grad=False, quant_type="nf4", compress_statistics=True
                ).to(gpu.device)
                setattr(part, name, four)
    # Everything else is still without storage.
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if weight.is_meta:
                drawn = random(gpu, *weight.shape) * 0.02
                setattr(module, name, torch.nn.Parameter(drawn))
    rotary = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(config).to(gpu.device)
    return model


def optimizer_of(name: str, trained: list[torch.nn.Parameter], gpu: Gpu) -> Any:
    if name == "adamw_torch_fused":
        return torch.optim.AdamW(trained, lr=1e-5, fused=gpu.kind == "cuda")
    import bitsandbytes as bnb

    kinds = {"paged_adamw_8bit": bnb.optim.PagedAdamW8bit, "adamw_8bit": bnb.optim.AdamW8bit}
    return kinds[name](trained, lr=1e-5)


def experts_row(gpu: Gpu, layers: int = 4, tokens: int = 4096) -> Row:
    """Measure layers of Qwen3-30B-A3B's experts as transformers runs them."""
    import transformers

    config = transformers.Qwen3MoeConfig(
        num_hidden_layers=layers, hidden_size=2048, num_attention_heads=32, num_key_value_heads=4,
        head_dim=128, intermediate_size=6144, moe_intermediate_size=768, num_experts=128,
        num_experts_per_tok=8, vocab_size=151936, norm_topk_prob=True, decoder_sparse_step=1,
        attn_implementation="sdpa", experts_implementation="grouped_mm",
    )  # fmt: skip
    before = gpu.held()
    with torch.device("meta"):
        model = transformers.Qwen3MoeForCausalLM(config).to(torch.bfloat16)
    model.to_empty(device=gpu.device)
    fill(gpu, model)
    model.train()
    trained = list(model.parameters())
    optimizer = optimizer_of("adamw_torch_fused", trained, gpu)
    ids = torch.randint(0, 151936, (2, tokens), device=gpu.device)

    def step() -> None:
        for _ in range(MICRO_BATCHES):
            (model(input_ids=ids, labels=ids, use_cache=False).loss / MICRO_BATCHES).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    row: Row = {"step": "transformers", "model": f"qwen3-30b-a3b of {layers} layers"}
    row |= {"method": "full", "micro_batch": 2, "tokens": tokens, "micro_batches": MICRO_BATCHES}
    return row | measured_step(gpu, step, before, profiled=True)


def titan_row(gpu: Gpu, case: tuple[str, int, int, str, bool, str]) -> Row:
    """Measure torchtitan's Llama with its own recomputation, compilation and FSDP, on one GPU."""
    name, size, tokens, recompute, compiled, narrow = case
    row: Row = {"step": "torchtitan", "model": name, "micro_batch": size, "tokens": tokens}
    row |= {"micro_batches": MICRO_BATCHES, "recompute": recompute, "compile": compiled}
    row["quantised"] = narrow
    checkpoints, config = titan_modules()
    before = gpu.held()
    torch._dynamo.reset()
    model, infra, vocab = titan_model(name, tokens)
    if narrow:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        convert_to_float8_training(
            model,
            config=Float8LinearConfig.from_recipe_name(narrow),
            module_filter_fn=lambda module, path: "layers" in path,
        )
    if recompute != "none":
        wanted = config.ActivationCheckpoint(
            mode="full" if recompute == "full" else "selective", selective_ac_option="op"
        )
        checkpoints.apply_ac(
            model, wanted, model_compile_enabled=compiled, op_sac_save_list=infra._op_sac_save_list
        )
    if compiled:
        more = {"ep_enabled": False} if infra.__name__.split(".")[2] == "llama4" else {}
        infra.apply_compile(
            model, config.Compile(enable=True, components=["model", "loss"]), **more
        )
    infra.apply_fsdp(
        model,
        mesh_of(gpu),
        param_dtype=torch.bfloat16,
        reduce_dtype=torch.float32,
        pp_enabled=False,
    )
    model.to_empty(device=gpu.device)
    with torch.no_grad():
        model.init_weights(buffer_device=gpu.device)
    model.train()
    trained = list(model.parameters())
    row["trained"] = sum(p.numel() for p in trained)
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=gpu.kind == "cuda")
    ids = torch.randint(0, vocab, (size, tokens), device=gpu.device)
    loss_of = sys.modules["torchtitan.components.loss"].cross_entropy_loss
    if compiled:
        loss_of = torch.compile(loss_of)

    def step() -> None:
        for _ in range(MICRO_BATCHES):
            made = model(ids)
            loss = loss_of(made, ids) / ids.numel()
            del made
            loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return row | measured_step(gpu, step, before, profiled=recompute == "none")


def titan_model(name: str, tokens: int) -> tuple[Any, Any, int]:
    """Return a model of torchtitan without storage, what makes it parallel, and its vocabulary."""
    import torchtitan.models.llama3 as llama
    import torchtitan.models.llama3.infra.parallelize as dense

    with torch.device("meta"):
        if name in TITAN_MODELS:
            dim, layers, heads, kv, wider, multiple, vocab = TITAN_MODELS[name]
            args = llama.TransformerModelArgs(
                dim=dim, n_layers=layers, n_heads=heads, n_kv_heads=kv, ffn_dim_multiplier=wider,
                multiple_of=multiple, rope_theta=500000, vocab_size=vocab, max_seq_len=tokens,
            )  # fmt: skip
            return llama.Transformer(args), dense, vocab
        import torchtitan.models.llama4.infra.parallelize as sparse
        import torchtitan.models.qwen3 as qwen

        args = replace(qwen.qwen3_args["30B-A3B"], n_layers=4, max_seq_len=tokens)
        if name != EXPERTS:  # a small one
            args = replace(args, dim=256, n_layers=2, n_heads=4, n_kv_heads=2, vocab_size=1024)
        args.moe_args = replace(args.moe_args, _debug_force_load_balance=True)
        return qwen.Qwen3Model(args), sparse, args.vocab_size


def titan_modules() -> tuple[Any, Any]:
    """Import torchtitan's models; what reads data and command lines is not needed."""
    for name in ("torchdata", "datasets", "tokenizers"):
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            for part in ("", ".stateful_dataloader", ".nodes", ".distributed"):
                sys.modules.setdefault(name + part, _stand_in(name + part))
    users = {"triton": "torchtitan.models.moe.kernels", "tensorboard": "torch.utils.tensorboard"}
    for name, user in users.items():
        if importlib.util.find_spec(name) is None:
            sys.modules[user] = _stand_in(user)
    import torchtitan.config.job_config as config
    import torchtitan.distributed.activation_checkpoint as checkpoints

    return checkpoints, config


def _stand_in(name: str) -> Any:
    fake: Any = types.ModuleType(name)
    fake.__dict__.update(__getattr__=_anything, __path__=[])
    return fake


def _anything(word: str) -> Any:
    if word.startswith("__"):
        raise AttributeError(word)
    return type(word, (), {"__class_getitem__": classmethod(lambda cls, _: cls)})


def mesh_of(gpu: Gpu) -> Any:
    """Return a mesh of this one device."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    if not dist.is_initialized():
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
        dist.init_process_group("nccl" if gpu.kind == "cuda" else "gloo", rank=0, world_size=1)
    return init_device_mesh(gpu.kind, (1,), mesh_dim_names=("fsdp",))


# ---- all of them ---------------------------------------------------------------------------------


def cases(gpu: Gpu) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    """Yield the name of a case and what measures it, the most wanted first."""

    def alone(run: Callable[[], Row]) -> Callable[[], Iterator[Row]]:
        return lambda: iter((run(),))

    small = gpu.kind == "cpu"
    hugging_face = SMALL_HUGGING_FACE if small else HUGGING_FACE
    titan = SMALL_TITAN if small else TITAN
    if not small:
        for kind in (stream_rows, attention_rows, product_rows, grouped_rows):
            yield f"kernels {kind.__name__}", partial(kind, gpu)
        yield "flexible attention", partial(flexible_rows, gpu)
    for titan_case in titan:
        yield f"torchtitan {titan_case}", alone(partial(titan_row, gpu, titan_case))
    if not small:
        yield "transformers experts", alone(partial(experts_row, gpu))
        for kind in (scan_rows, convolution_rows, delta_rows):
            yield f"kernels {kind.__name__}", partial(kind, gpu)
    for case in hugging_face:
        yield f"transformers {case}", alone(partial(hugging_face_row, gpu, case))


def main() -> None:
    """Measure all cases that the time allows; a case that fails says why in its row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, default=280.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    begun, gpu = time.monotonic(), Gpu(options.device)
    if gpu.kind == "cuda":
        random(gpu, 512, 512) @ random(gpu, 512, 512)  # makes the libraries' workspaces
    found: Row = {"on": gpu.describe(), "rows": []}
    for name, run in cases(gpu):
        if not re.search(options.only, name):
            continue
        if time.monotonic() - begun > options.seconds:
            print(f"left out, time is up: {name}", flush=True)
            continue
        at = time.monotonic()
        try:
            for row in run():
                found["rows"].append(row)
        except Exception as error:  # a case must not take the others with it
            found["rows"].append({"case": name, "failed": f"{type(error).__name__}: {error}"[:600]})
            print(f"FAILED {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        del run
        gc.collect()
        if gpu.kind == "cuda":
            torch.cuda.empty_cache()
        spent, last = time.monotonic() - at, found["rows"][-1] if found["rows"] else {}
        brief = {k: last[k] for k in ("seconds", "peak", "states") if k in last}
        print(f"{spent:6.1f} s  {name}  {brief}", flush=True)
        options.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
