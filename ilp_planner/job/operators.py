"""Selective recomputation by operators: a layer keeps outputs, and recomputes everything else.

torchtitan's policy keeps the outputs of attention, of exchanges and reduce-scatters, and of every
other matrix product, the first of a layer among them; the rest of the layer is recomputed at once
when its backward pass begins (`distributed/activation_checkpoint.py` of 0.2.2 and 0.3.0, with the
list of operators in `parallelize.py` of each model). Products of routed experts are none of these,
and the router's is recomputed. Release 0.2.2 makes queries, keys and values by products of their
own, 0.3.0 by one: outputs that either keeps count as kept, and outputs that either recomputes as
recomputed.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from ilp_planner.job.modules import Kept
from ilp_planner.job.recompute import checkpoint, recomputed_parts
from ilp_planner.job.shard import part, sequence_parallel, shard_of
from ilp_planner.specs.layer_kinds import ATTENTION, EXPERTS, LAYER_KINDS, MLP, LayerKind
from ilp_planner.specs.training import OPERATORS, TrainingJob

STATISTIC = 4  # bytes of a log of a sum of exponentials


class Output(NamedTuple):
    """The output of a product, or a part of it. module: in the names of `job.work`. share: of that
    module's arithmetic. columns: per token on this rank."""

    name: str
    module: str
    share: float
    columns: int


Product = tuple[Output, ...]
Share = Callable[[str], float]  # of a module or a message, by its name


def outputs_kept(job: TrainingJob, kind: int) -> tuple[Kept, ...]:
    """Return the kept activations of a layer: its input, and outputs.

    A compiled layer does not keep what its backward pass never reads: the MLP's output, which is
    only added.
    """
    sizes = shard_of(job)
    rows = (sizes.tokens, sizes.batch)
    width, inner = sizes.width, part(job.model.value_width, job.tp)
    steps = job.settings.cp  # around a ring each is an operator
    found = [
        checkpoint(job),
        *(
            Kept(name=one.name, shape=(*rows, one.columns), width=width, why="of a product")
            for one in _in_either(job, kind)
            if not (job.settings.kernels.compiled and one.module.endswith("_fc2"))
        ),
        Kept(name="attention", shape=(steps, *rows, inner), width=width, why="of attention"),
        Kept(
            name="log-sum-exp",
            shape=(steps, *rows, sizes.heads),
            width=STATISTIC,
            why="of attention's scores",
        ),
    ]
    if sequence_parallel(job):
        found += _pair(("attention, scattered", "MLP, scattered"), sizes.narrow, width)
    if LAYER_KINDS[kind].inner == EXPERTS and job.settings.ep > 1:
        assert job.model.experts is not None
        shape = (sizes.region * job.model.experts.top_k, sizes.batch, sizes.hidden)
        found += _pair(("tokens received", "tokens returned"), shape, width)
    return tuple(found)


def _pair(names: tuple[str, ...], shape: tuple[int, ...], width: int) -> list[Kept]:
    return [Kept(name=name, shape=shape, width=width, why="of a message") for name in names]


def outputs_needed(job: TrainingJob, kind: int) -> float:
    """Return the bytes of kept outputs that the layer's backward pass reads, as it would without
    any recomputation."""
    sizes = shard_of(job)
    columns = part(job.model.value_width, job.tp)
    columns += sum(one.columns for one in _in_both(job, kind) if one.module.endswith("_fc1"))
    each = columns * sizes.width + sizes.heads * STATISTIC
    return float(sizes.tokens * sizes.batch * each)


def shares_kept(job: TrainingJob, kind: int) -> dict[str, float]:
    """Return the share of a layer's modules (`job.work`) and messages with kept outputs; others are
    recomputed as a whole."""
    kept = {"core_attention": 1.0}
    for one in _in_both(job, kind):
        kept[one.module] = kept.get(one.module, 0.0) + one.share
    if sequence_parallel(job):
        names = ("self_attention.linear_proj", "mlp.linear_fc2", "mlp.shared_experts.linear_fc2")
        kept |= dict.fromkeys(names, 1.0)
    if job.settings.ep > 1 and job.expert_tp == 1:
        kept |= dict.fromkeys(("mlp.dispatch", "mlp.combine"), 1.0)
    return kept


def shares_again(job: TrainingJob, kind: int) -> Mapping[str, Share]:
    """Return the recomputed share of a layer's module or message, for the names of selective
    recomputation."""
    found: dict[str, Share] = {
        name: partial(_begins, starts) for name, starts in recomputed_parts(kind=kind).items()
    }
    return found | {OPERATORS: partial(_left, shares_kept(job, kind))}


def _begins(starts: tuple[str, ...], name: str) -> float:
    return float(name.startswith(starts))


def _left(kept: Mapping[str, float], name: str) -> float:
    return 1 - kept.get(name, 0.0)


def _in_either(job: TrainingJob, kind: int) -> list[Output]:
    """Return the outputs that some release keeps."""
    first, *others = _releases(job, kind)
    return first + [one for other in others for one in other if one not in first]


def _in_both(job: TrainingJob, kind: int) -> list[Output]:
    """Return the outputs that every release keeps."""
    first, *others = _releases(job, kind)
    return [one for one in first if all(one in other for other in others)]


def _releases(job: TrainingJob, kind: int) -> list[list[Output]]:
    """Return the outputs of products that each release keeps: of every other product, and of
    products with a bias, in the later one only, which are not counted."""
    own = LAYER_KINDS[kind]
    if own.mixer != ATTENTION:  # of a scan nothing is kept
        return [_every_other(_mlp(job, own))]
    inputs, rest = _attention_inputs(job), [_projection(job), *_mlp(job, own)]
    if job.model.latent is not None:
        return [_every_other([*inputs, *rest])]
    fused = tuple(one for product in inputs for one in product)
    if job.model.qkv_bias:
        return [[*fused, *_every_other(rest)]]
    return [_every_other([*inputs, *rest]), _every_other([fused, *rest])]


def _every_other(products: list[Product]) -> list[Output]:
    return [one for product in products[::2] for one in product]


def _attention_inputs(job: TrainingJob) -> list[Product]:
    """Return the products before attention, in their order (`model/model.py: Attention`)."""
    model, sizes = job.model, shard_of(job)
    if model.latent is None:
        query, key = sizes.heads * model.head, sizes.kv_heads * model.head
        whole = query + 2 * key
        columns = (("queries", query), ("keys", key), ("values", key))
        return [(Output(name, "linear_qkv", n / whole, n),) for name, n in columns]
    a = model.latent
    keys = part(model.heads * (a.key + a.rotary), job.tp)
    found = [("queries", "linear_q_proj", keys)]
    if a.query_rank:
        found = [("narrow queries", "linear_q_down_proj", a.query_rank)]
        found.append(("queries", "linear_q_up_proj", keys))
    found.append(("narrow keys and values", "linear_kv_down_proj", a.key_value_rank + a.rotary))
    wide = part(model.heads * (a.key + a.value), job.tp)
    found.append(("keys and values", "linear_kv_up_proj", wide))
    return [(Output(name, module, 1.0, n),) for name, module, n in found]


def _projection(job: TrainingJob) -> Product:
    """Return the product after attention."""
    return (Output("projection", "linear_proj", 1.0, job.model.hidden),)


def _mlp(job: TrainingJob, kind: LayerKind) -> list[Product]:
    """Return the products of the MLP or of the shared expert, if there is one: `w2(w1 * w3)`."""
    width, name = job.model.ffn * (kind.inner == MLP), "mlp"
    if kind.inner == EXPERTS:
        assert job.model.experts is not None
        width, name = job.model.experts.shared_ffn, "shared_experts"
    if not width:
        return []
    columns, gates = part(width, job.tp), ("gate", "up") if job.model.gated else ("up",)
    first = [(Output(gate, f"{name}_fc1", 1 / len(gates), columns),) for gate in gates]
    return [*first, (Output("down", f"{name}_fc2", 1.0, job.model.hidden),)]
