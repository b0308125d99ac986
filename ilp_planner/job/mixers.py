"""Mixers that are no attention, as one rank holds them: Mamba-2 and gated delta nets.

Names are those of `megatron.core` 0.16.1 (`ssm/mamba_mixer.py`, `ssm/gated_delta_net.py`). Kept
activations are those of the kernels that they call. `mamba_split_conv1d_scan_combined` of mamba_ssm
(`ops/triton/ssd_combined.py`) keeps the projected input and the scan's output before its gate; it
computes the convolution and the states again. `chunk_gated_delta_rule` of flash-linear-attention
keeps its operands and the inverse of every chunk's matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.job.attention import normed_product, product, product_input, with_kept
from ilp_planner.job.modules import Kept, Module, Weight
from ilp_planner.job.shard import part, shard_of
from ilp_planner.specs.layer_kinds import MAMBA

if TYPE_CHECKING:
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.decoder_parts import DeltaNet, Mamba
    from ilp_planner.specs.training import TrainingJob

SINGLE = 4  # bytes of a number in fp32
# Bytes of a number of the states between chunks when the backward pass has them and their gradients
# in fp32, and both in the training precision beside these (`_state_passing_bwd`).
STATES_BACK = 2 * SINGLE + 2 * 2


class Scan(NamedTuple):
    """Numbers per token of a mixer on one rank.

    inner: channels of the output. convolved: that the convolution sees. projected: of the first
    product. state: of the states between chunks, averaged over the tokens of one. scores: of the
    products inside a chunk.
    """

    inner: float
    convolved: float
    projected: float
    state: float
    scores: float


def mixer_of(model: Decoder, name: str) -> Mamba | DeltaNet:
    """Return the sizes of a model's mixer, by its name in `LayerKind.mixer`."""
    found = model.mamba if name == MAMBA else model.delta
    assert found is not None
    return found


def scan_of(job: TrainingJob, name: str) -> Scan:
    """Return the numbers per token that a rank scans: with context parallelism all tokens of a
    sample, and so many times fewer heads; groups are repeated for ranks that have a part of one
    (`mamba_context_parallel.py`)."""
    ways = job.tp * job.settings.cp
    if name == MAMBA:
        m = job.model.mamba
        assert m is not None
        inner, groups = m.inner / ways, max(1.0, m.groups / ways)
        convolved = inner + 2 * groups * m.state
        return Scan(
            inner=inner,
            convolved=convolved,
            projected=inner + convolved + m.heads / ways,
            state=inner * m.state / m.chunk,
            scores=groups * m.chunk,
        )
    d = job.model.delta
    assert d is not None
    return Scan(
        inner=d.inner / ways,
        convolved=d.convolved / ways,
        projected=d.projected / ways,
        state=d.inner * d.key / d.chunk / ways,
        scores=d.value_heads * d.chunk / ways,
    )


def mixer_modules(job: TrainingJob, name: str) -> tuple[Module, ...]:
    """Return a layer's input norm, unless the product has it in it, and the mixer."""
    sizes, mixer = shard_of(job), mixer_of(job.model, name)
    first = product("in_proj", rows=part(mixer.projected, job.tp), columns=sizes.hidden, bias=False)
    why = "the layer's input; the residual as well"
    *before, first = normed_product(job, first, sizes.narrow, norm="input_layernorm", why=why)
    inner = part(mixer.inner, job.tp)
    last = with_kept(
        product("out_proj", rows=sizes.hidden, columns=inner, bias=False),
        product_input(job, (sizes.tokens, sizes.batch, inner), "the norm's output"),
    )
    children = _mamba(job) if name == MAMBA else _delta(job)
    return (*before, Module(name="mixer", children=(first, *children, last)))


def _kept(job: TrainingJob, name: str, columns: float, why: str, width: int = 0) -> Kept:
    """Return a tensor of so many numbers per token of a scan: of all tokens of a sample."""
    tokens = job.model.sequence
    shape = (job.micro_batch, tokens, round(columns))
    return Kept(name=name, shape=shape, width=width or job.settings.width, why=why)


def _mamba(job: TrainingJob) -> tuple[Module, ...]:
    """Return convolution, scan and gated norm of a Mamba-2 mixer."""
    m, scan, sizes = mixer_of(job.model, MAMBA), scan_of(job, MAMBA), shard_of(job)
    channels, heads = part(m.convolved, job.tp), part(m.heads, job.tp)  # type: ignore[union-attr]
    weights = [Weight(name="weight", shape=(channels, 1, m.kernel))]
    if m.conv_bias:  # type: ignore[union-attr]
        weights.append(Weight(name="bias", shape=(channels,)))
    names = ("dt_bias", "A_log", "D")
    inner = part(m.inner, job.tp)
    groups = part(m.groups, job.tp)  # type: ignore[union-attr]
    return (
        Module(name="conv1d", weights=tuple(weights)),
        Module(
            name="scan",
            weights=tuple(Weight(name=name, shape=(heads,)) for name in names),
            kept=(
                _kept(job, "zxbcdt", scan.projected, "convolved and scanned again from it"),
                _kept(job, "output", scan.inner, "of the scan, before its gate"),
            ),
        ),
        Module(
            name="norm",
            weights=(Weight(name="weight", shape=(inner,)),),
            kept=(
                Kept(
                    name="input",
                    shape=(sizes.tokens, sizes.batch, inner),
                    width=sizes.width,
                    why="gated",
                ),
                Kept(
                    name="statistics",
                    shape=(sizes.tokens, sizes.batch, groups),
                    width=SINGLE,
                    why="of each group, fp32",
                ),
            ),
        ),
    )


def _delta(job: TrainingJob) -> tuple[Module, ...]:
    """Return convolution, delta rule and gated norm of a gated delta net."""
    d, scan = job.model.delta, scan_of(job, "delta")
    assert d is not None
    ways = job.tp * job.settings.cp
    channels, heads = part(d.convolved, job.tp), part(d.value_heads, job.tp)
    keys, repeated = d.key_heads * d.key / ways, d.value_heads * d.key / ways
    return (
        Module(
            name="conv1d",
            weights=(Weight(name="weight", shape=(channels, 1, d.kernel)),),
            kept=(_kept(job, "input", scan.convolved, "of the convolution, channels first"),),
        ),
        Module(
            name="scan",
            weights=tuple(Weight(name=name, shape=(heads,)) for name in ("dt_bias", "A_log")),
            kept=(
                _kept(job, "convolved", 2 * keys, "queries and keys, before their norms"),
                _kept(job, "queries, keys", 2 * repeated, "one for every head of values"),
                _kept(job, "values", scan.inner, "copied"),
                _kept(job, "decay", d.value_heads / ways, "fp32", SINGLE),
                _kept(job, "strength", d.value_heads / ways, "of each update"),
                _kept(job, "inverses", scan.scores, "of the matrix of every chunk"),
            ),
        ),
        Module(
            name="out_norm",
            weights=(Weight(name="weight", shape=(d.value,)),),
            kept=(
                _kept(job, "input", scan.inner, "the delta rule's output"),
                _kept(job, "gate", scan.inner, "copied"),
            ),
        ),
    )


def mixer_backward(job: TrainingJob, name: str) -> float:
    """Return the peak of the backward pass of a mixer, above kept activations.

    It holds gradients of the layer's output, of the scan's output and of its projected input. The
    output of the convolution is computed again, and has a gradient as well. So have the states of
    all chunks, and the products inside chunks, which are in fp32.
    """
    sizes, scan = shard_of(job), scan_of(job, name)
    width, tokens = sizes.width, sizes.batch * job.model.sequence
    narrow = float(sizes.region * sizes.batch * sizes.hidden * width)
    each = (2 * scan.inner + scan.projected + 2 * scan.convolved) * width
    each += scan.state * STATES_BACK + 2 * scan.scores * SINGLE
    return narrow + tokens * each
