"""The sizes that one rank of a training job sees: tokens, heads and columns of its shard."""

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.training import TrainingJob


class Shard(NamedTuple):
    """Dimensions of the tensors on one rank, for one micro-batch.

    tokens: of a sample after context parallelism. region: of them that this rank has between
    tensor-parallel products (all, or its share with sequence parallelism). heads, kv_heads: that
    attention computes here. width: bytes of an activation. kept: tokens of the input that a
    product with divided columns keeps.
    """

    tokens: int
    region: int
    batch: int
    hidden: int
    tp: int
    heads: int
    kv_heads: int
    width: int
    kept: int

    @property
    def wide(self) -> tuple[int, int, int]:
        """Shape of a tensor that every tensor-parallel rank has whole."""
        return (self.tokens, self.batch, self.hidden)

    @property
    def narrow(self) -> tuple[int, int, int]:
        """Shape of a tensor between tensor-parallel products."""
        return (self.region, self.batch, self.hidden)

    def column_input(self, width: int) -> tuple[int, int, int]:
        """Shape of a column-parallel product's kept input of this width."""
        return (self.kept, self.batch, width)

    def columns(self, width: int) -> tuple[int, int, int]:
        """Shape of the output of a column-parallel product of this total width."""
        return (self.tokens, self.batch, part(width, self.tp))


def of_layer(job: TrainingJob, kind: int) -> TrainingJob:
    """Return the job as a layer of a kind sees it: one that follows has no indexer.

    kind: its number in `LAYER_KINDS`.
    """
    if not LAYER_KINDS[kind].follows:
        return job
    return replace(job, model=job.model.following)


SINGLE = 4  # bytes of a number in fp32


def stream_width(job: TrainingJob) -> int:
    """Return the bytes of a number of the hidden states between layers.

    Beside a base in 4 bits PEFT keeps words and norms in fp32 (`prepare_model_for_kbit_training`),
    and hidden states are of their type then.
    """
    return SINGLE if widens(job) else job.settings.width


def widens(job: TrainingJob) -> bool:
    """Return whether all but the layers' products is of single precision."""
    tuning = job.settings.tuning
    return bool(tuning.base) and tuning.adapters == "fp32"


def eager(job: TrainingJob) -> bool:
    """Return whether PyTorch's operators run one by one, as in models of transformers."""
    return job.settings.kernels.implementation == "eager"


STREAMS = 4  # `get_num_compute_streams` of Transformer Engine


def product_streams(job: TrainingJob) -> int:
    """Return the streams that a rank's grouped products run on; 0: they are one kernel.

    Transformer Engine's GroupedLinear calls cuBLAS for each (`multi_stream_cublas_gemm`), all of
    release 2 unless `use_grouped_tensor` is asked for. PyTorch's `_grouped_mm` is one kernel.
    """
    return 0 if job.settings.keeps_gathered or eager(job) else STREAMS


def loss_chunk(job: TrainingJob) -> int:
    """Return the tokens whose logits Liger's loss has at once: so many that they take about the
    memory of all hidden states (`ops/fused_linear_cross_entropy.py` of Liger-Kernel)."""
    tokens = math.prod(shard_of(job).narrow[:2])
    times = -(-job.padded_outputs // job.model.hidden)
    return min(tokens, 1 << (-(-tokens // times) - 1).bit_length())


def part(whole: int, ways: int) -> int:
    """Return the larger share of a whole that may not divide evenly."""
    return -(-whole // ways)


@lru_cache(maxsize=64)  # asked by every module of a job
def shard_of(job: TrainingJob) -> Shard:
    """Return the sizes on each rank of a job.

    With fewer key-value heads than ranks, Megatron gives every rank one of them
    (`Attention.num_query_groups_per_partition`), while the product's weight stays split evenly.
    """
    model, settings = job.model, job.settings
    tokens = part(model.sequence, settings.cp)
    region = part(tokens, job.tp) if sequence_parallel(job) else tokens
    return Shard(
        tokens=tokens,
        region=region,
        kept=tokens if settings.keeps_gathered else region,
        batch=job.micro_batch,
        hidden=model.hidden,
        tp=job.tp,
        heads=part(model.heads, job.tp),
        kv_heads=max(1, part(model.kv_heads, job.tp)),
        width=settings.width,
    )


def sequence_parallel(job: TrainingJob) -> bool:
    """Return whether activations between products are split; Megatron needs tp above 1 for it."""
    return job.settings.sequence_parallel and job.tp > 1
