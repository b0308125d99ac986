"""One rank's share of a decoder: embedding, layers, head."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ilp_planner.base.errors import UsageError
from ilp_planner.costs.profiles.analytic_decoder import DecoderRows, decoder_rows
from ilp_planner.costs.profiles.elements import routed_elements
from ilp_planner.job.messages import (
    embedding_messages,
    layer_messages,
    output_messages,
    prediction_messages,
)
from ilp_planner.job.overheads import handles, workspace
from ilp_planner.job.work import embedding_work, layer_work, output_work, prediction_work
from ilp_planner.profiler.measure.attention import attention_kernel
from ilp_planner.profiler.measure.modules import build
from ilp_planner.profiler.measure.operators import (
    SINGLE,
    Held,
    Job,
    Ways,
    gpt_operators,
    traffic_of,
)
from ilp_planner.profiler.measure.shard import (
    DENSE,
    EMBEDDING,
    EXPERTS,
    HEAD,
    check_degree,
    check_spread,
)
from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.specs.training import Kernels, OptimizerSettings, Settings, TrainingJob
from ilp_planner.specs.usual import unusual

if TYPE_CHECKING:
    from ilp_planner.profiler.measure.transformer_operators import Operator
    from ilp_planner.specs.model import ModelSpec

ALL_REDUCES = {"all_reduce": 1.0, "all_gather": 0.5}  # bytes moved, of an all-reduce's


class DecoderJob(TrainingJob, Job):
    """The training job; its first rank's share is measured."""

    splits: ClassVar[tuple[int, ...]] = (0, 1)

    @cached_property
    def chain(self) -> tuple[str, ...]:
        """Return the kind of every part."""
        layers = (EXPERTS if experts else DENSE for experts in self.model.expert_layers)
        return (EMBEDDING, *layers, HEAD)

    @property
    def spread(self) -> bool:
        """Tell whether routed experts are on other ranks."""
        return self.settings.ep > 1 or self.expert_tp != self.tp

    @property
    def plain(self) -> bool:
        """Tell whether a rank has whole samples and all experts."""
        return self.settings.cp == 1 and not self.spread

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of parts; layers with routed experts if only these differ."""
        routed = routed_elements(self.model)
        each = zip(self.chain, routed, strict=True)
        return tuple(dict.fromkeys(kind for kind, has in each if has or not self.spread))

    def degrees(self, kind: str) -> dict[str, int]:
        """Return the columns `cp`, `ep` and `etp` of a part."""
        found = {"cp": self.settings.cp} if self.settings.cp > 1 else {}
        return found | ({"ep": self.settings.ep, "etp": self.expert_tp} if self.spread else {})

    @property
    def tokens(self) -> int:
        """Tokens of a sample that a rank has."""
        return self.model.sequence // self.settings.cp

    @property
    def sizes(self) -> dict[str, int]:
        """Return the tokens of a sample, and the width of each."""
        return {"sequence": self.model.sequence, "hidden": self.model.hidden}

    def repeats(self, kind: str) -> bool:
        """Tell whether parts are layers."""
        return kind not in (EMBEDDING, HEAD)

    def build(self, kind: str, *, device: Any, dtype: Any) -> Any:
        """Return a part as a module."""
        return build(kind, self, device=device, dtype=dtype)

    def batch(self, dtype: Any) -> tuple[Any, ...]:
        """Return tokens, with one more for the labels."""
        return (torch.randint(self.model.vocab, (self.micro_batch, self.tokens + 1)),)

    def load(self, host: tuple[Any, ...], device: Any) -> tuple[Any, ...]:
        """Return the tokens and labels of a micro-batch."""
        there = host[0].to(device, non_blocking=True)
        return there[:, :-1].contiguous(), there[:, 1:].contiguous()

    def call(self, kind: str, part: Any, batch: tuple[Any, ...], *state: Any) -> Any:
        """Return the output of a part for the tensors before it."""
        tokens, labels = batch
        return part(*state, labels) if kind == HEAD else part(*(state or (tokens,)))

    def shapes(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the shape of hidden states; none before the embedding."""
        wide = (self.micro_batch, self.tokens, self.model.hidden)
        return () if kind == EMBEDDING else (wide,)

    def operators(self, split: int) -> dict[str, Operator]:
        """Return the operators of a GPT."""
        return gpt_operators(self, split)

    def describe(self, device: Any, dtype: Any) -> dict[str, str]:
        """Return the kernel of attention."""
        kernel = attention_kernel(self, device=device, dtype=dtype)
        drops = self.model.dropout and device.type == "cuda"
        return {
            "attention": f"layers: {kernel}{', dropout' if drops else ', no dropout of scores'}"
        }

    def known_values(self, kind: str) -> dict[str, Any]:
        """Return arithmetic, traffic, and the message over a cut."""
        work = {
            EMBEDDING: lambda: embedding_work(self),
            DENSE: lambda: layer_work(self, kind=False),
            EXPERTS: lambda: layer_work(self, kind=True),
            HEAD: lambda: output_work(self) + self.model.prediction_layers * prediction_work(self),
        }[kind]()
        wide = self.micro_batch * self.tokens * self.model.hidden * self.settings.width
        return traffic_of(kernel for module in work for kernel in module.forward) | {
            "input_bytes": 0 if kind == EMBEDDING else wide,
            "output_bytes": 0 if kind == HEAD else wide,
        }

    def sent(self, kind: str) -> Ways:
        """Return the bytes of every tensor-parallel all-reduce of either pass.

        An all-gather, as in multi-token prediction, moves half of an all-reduce's bytes for its
        tensor, and counts as one of half the bytes.
        """
        if kind == EMBEDDING:
            pairs = [embedding_messages(self)]
        elif kind == HEAD:
            pairs = list(output_messages(self).values())
            # experts divided like an MLP send what that sends, here and in layers
            more = prediction_messages(self, self.spread)
            pairs += self.model.prediction_layers * list(more.values())
        else:
            pairs = list(layer_messages(self, kind=self.spread and kind == EXPERTS).values())
        ways: tuple[list[float], list[float]] = ([], [])
        for pair in pairs:
            for way, messages in zip(ways, pair, strict=True):
                for message in messages:
                    if message.group == "tp" and message.collective in ALL_REDUCES:
                        way += [ALL_REDUCES[message.collective] * message.size] * message.times
        return ways

    @cached_property
    def rows(self) -> DecoderRows:
        """Return the work and memory of every layer."""
        precision = self.settings.precision
        return decoder_rows(
            self.model,
            self.micro_batch,
            self.tp,
            precision,
            flash=True,
            cp=self.settings.cp,
            ep=self.settings.ep,
            etp=self.settings.etp,
        )

    def held(self, kind: str) -> Held:
        """Return the approximate memory of a part."""
        rows, place = self.rows, self.chain.index(kind)
        # Libraries of a GPU have room of their own, which a CPU's do without.
        libraries = workspace(rows.job) + handles(rows.job) * (kind == HEAD)
        return Held(
            parameters=rows.gradients[place] / SINGLE,
            states=rows.state[place],
            kept=rows.activation[place],
            moment=rows.workspace[place] - libraries,
        )


def decoder_of(model: ModelSpec, sequence: int | None = None) -> Decoder:
    """Return the model as a decoder with samples of so many tokens.

    Raises
    ------
    UsageError: it is none, or cannot turn its queries.
    """
    decoder = as_decoder(model.architecture)
    if decoder is None:
        raise UsageError(
            f"model {model.name!r}: found family {model.family!r}, expected gpt or decoder"
        )
    for key, found, usual in unusual(decoder):
        raise UsageError(
            f"model {model.name!r}: {key}: found {found}, expected {usual}: what is measured has "
            "nothing else"
        )
    latent = decoder.latent
    name, turned = ("head", decoder.head) if latent is None else ("latent.rotary", latent.rotary)
    if turned % 2 and (latent is not None or decoder.positions == "rope"):
        raise UsageError(
            f"model {model.name!r}: {name}: found {turned} channels, expected an even number: "
            "rotary positions turn them in pairs"
        )
    if sequence is None or sequence == decoder.sequence:
        return decoder
    longest = max(sequence, decoder.max_position_embeddings)
    return replace(decoder, sequence=sequence, max_position_embeddings=longest)


def job_of(
    decoder: Decoder,
    *,
    tp: int,
    micro_batch: int,
    dtype: str,
    cp: int = 1,
    ep: int = 1,
    etp: int = 0,
) -> DecoderJob:
    """Return the training job; its first rank's share is measured. cp, ep, etp: as in `Settings`.

    Raises
    ------
    UsageError: tp does not divide heads and columns, cp the tokens, or ep the experts.
    """
    check_spread(decoder, tp=tp, cp=cp, ep=ep, etp=etp)
    parts = decoder.tensor_parts
    if decoder.prediction_layers:
        parts = math.gcd(parts, decoder.hidden)  # columns of the product that joins
    check_degree(tp, parts)
    return DecoderJob(
        model=decoder,
        micro_batch=micro_batch,
        global_batch=micro_batch * ep * (etp or tp),
        tp=tp,
        dp=ep * (etp or tp),
        settings=Settings(
            cp=cp,
            ep=ep,
            etp=etp,
            precision=dtype,
            optimizer=OptimizerSettings(master=0 if dtype == "fp32" else SINGLE),
            kernels=Kernels(
                attention="flash",
                fused_dropout=False,
                fused_activation=False,
                grouped_experts=decoder.experts is not None,
                accumulation_fusion=False,
            ),
        ),
    )
