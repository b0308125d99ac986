"""Modules of a shard: as many parameters as the anatomy says, and the right numbers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.job.decoder import (
    embedding_module,
    final_norm_module,
    layer_module,
    output_module,
    prediction_module,
)
from ilp_planner.profiler.measure.decoder_job import job_of
from ilp_planner.profiler.measure.target import Target
from ilp_planner.specs.decoder import LatentAttention
from tests.profiler.measure.small_decoders import DECODERS, LATENT, LLAMA, PLAIN

torch = pytest.importorskip("torch", reason="needs the extra [torch]")
from ilp_planner.profiler.measure import attention, modules  # noqa: E402
from ilp_planner.profiler.measure.layers import LayerBench  # noqa: E402
from tests.examples import examples  # noqa: E402

CPU = {"device": "cpu", "dtype": torch.float32}


def held(job):
    """Return the anatomy's modules of every row."""
    # A pipeline's last stage has a copy of a tied embedding, and so has the row of the head.
    apart = replace(job, model=replace(job.model, tied=False))
    found = {"embedding": [embedding_module(job)], "head": [output_module(apart)]}
    for kind in job.kinds[1:-1]:
        found[kind] = [layer_module(job, kind == "layer with experts")]
    if job.model.prediction_layers:
        found["head"] += [final_norm_module(job)]  # its row is the output's, wherever it is built
        found["head"] += job.model.prediction_layers * [prediction_module(job)]
        found["head"].append(embedding_module(job).children[0])
    return found


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", DECODERS)
def test_a_rank_has_the_parameters_of_the_anatomy(name, tp):
    job = job_of(DECODERS[name], tp=tp, micro_batch=1, dtype="fp32")
    for kind, parts in held(job).items():
        made = modules.build(kind, job, **CPU)
        assert modules.parameter_count(made) == sum(part.parameters for part in parts), kind


@pytest.mark.parametrize(
    ("tp", "ep", "etp"), [(1, 2, 0), (1, 4, 0), (2, 2, 0), (2, 4, 1), (2, 1, 1)]
)
@pytest.mark.parametrize("name", ["mixed", "shared", "deepseek"])
def test_a_rank_has_its_experts(name, tp, ep, etp):
    """Parameters and rows are the anatomy's, and of parts only those with experts are measured."""
    if name == "shared" and etp == 0 and tp > 1:
        return  # experts with biases are not divided
    job = job_of(DECODERS[name], tp=tp, ep=ep, etp=etp, micro_batch=2, dtype="fp32")
    assert set(job.kinds) == {"layer with experts"} | ({"head"} if name == "deepseek" else set())
    made = modules.build("layer with experts", job, **CPU)
    assert modules.parameter_count(made) == layer_module(job, True).parameters
    seen = []
    for expert in made.mlp.experts:
        expert.register_forward_hook(lambda part, given, out: seen.append(len(given[0])))
    hidden = torch.randn(2, 16, 32)
    assert made(hidden).shape == hidden.shape
    top_k = job.model.experts.top_k
    assert sum(seen) == 2 * 16 * top_k * job.expert_tp // tp
    assert max(seen) - min(seen) <= 1


@pytest.mark.parametrize("name", ["llama", "plain", "deepseek"])
@pytest.mark.parametrize("cp", [2, 4])
def test_a_part_of_a_sample_goes_through_every_part(name, cp):
    job = job_of(DECODERS[name], tp=2, cp=cp, micro_batch=2, dtype="fp32")
    assert job.shapes("layer") == ((2, 16 // cp, 32),)
    bench = LayerBench(job.kinds, job, Target(kind="cpu", name="CPU", dtype="fp32"), copies=2)
    bench.sample(1)
    assert all(times.forward for times in bench.times.values())


@examples(12)
@given(
    ranks=st.sampled_from((2, 3, 4)),
    half=st.integers(1, 4),
    groups=st.sampled_from((1, 2)),
    width=st.sampled_from((4, 6)),
    value=st.sampled_from((4, 6, 8)),
)
def test_a_rank_of_several_sees_what_the_first_and_last_tokens_of_a_sample_see(
    ranks, half, groups, width, value
):
    """As attention of the whole sample, of which every rank has copies of the same."""
    sizes = ((2, width), (2 // groups, width), (2 // groups, value))
    parts = [torch.randn(3, heads, 2 * half, wide) for heads, wide in sizes]
    for part in parts:
        part.requires_grad_()
    found = attention.attended_of_ranks(*parts, dropout=0.0, ranks=ranks)
    query, key, other = parts
    keys, values = (t.repeat(1, groups, ranks, 1) if groups > 1 else t.repeat(1, 1, ranks, 1)
                    for t in (key, other))  # fmt: skip
    first, last = torch.arange(half), torch.arange(2 * half * ranks - half, 2 * half * ranks)
    scores = query @ keys.transpose(2, 3) / width**0.5
    place = torch.cat((first, last))
    seen = torch.arange(2 * half * ranks)[None, :] <= place[:, None]
    expected = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1) @ values
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert all(part.grad is not None for part in parts)


@examples(12)
@given(
    tp=st.sampled_from((1, 2, 4)),
    batch=st.integers(1, 3),
    norms=st.booleans(),
    widths=st.tuples(*[st.integers(1, 9)] * 2, st.sampled_from((2, 6)), st.integers(1, 12)),
    query_rank=st.integers(0, 7),
    ahead=st.integers(0, 2),
    bias=st.booleans(),
)
def test_a_rank_keeps_the_activations_of_the_anatomy(
    tp, batch, norms, widths, query_rank, ahead, bias
):
    """Latent attention of any widths, and multi-token prediction."""
    rank, key, rotary, value = widths
    latent = LatentAttention(
        key_value_rank=rank, key=key, rotary=rotary, value=value, query_rank=query_rank
    )
    model = replace(PLAIN, latent=latent, qk_norm=norms, prediction_layers=ahead, bias=bias)
    job = job_of(model, tp=tp, micro_batch=batch, dtype="fp32")
    bench = LayerBench(job.kinds, job, Target(kind="cpu", name="CPU", dtype="fp32"), copies=2)
    found = bench.memory()
    small = 32 * batch * model.sequence * (1 + ahead)  # bytes of tokens, labels and masks
    for kind, parts in held(job).items():
        kept = sum(part.activations for part in parts)
        slack = 0 if kind == "layer" else small
        assert found[kind].activation == pytest.approx(kept, rel=0, abs=slack), kind
        assert bench.parameters(kind) == sum(part.parameters for part in parts), kind


@pytest.mark.parametrize("name", DECODERS)
def test_shards_add_up_to_the_model(name):
    """What is divided is divided evenly, what is whole is on every rank."""
    model = DECODERS[name]
    operators = {"layer": "mlp", "layer with experts": "experts"}
    for tp in (1, 2):
        job = job_of(model, tp=tp, micro_batch=1, dtype="fp32")
        for kind in job.kinds[1:-1]:
            ends = ("-1st-layernorm", "-layer")
            held = [model.parameters[f"{operators[kind]}{end}"] for end in ends]
            split, whole = sum(h.split for h in held), sum(h.whole for h in held)
            count = modules.parameter_count(modules.build(kind, job, **CPU))
            assert tp * count == split + tp * whole


def test_the_loss_of_a_whole_vocabulary_is_the_cross_entropy():
    logits = torch.randn(3, 5, 11)
    labels = torch.randint(11, (3, 5))
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    found = modules.WordLoss.apply(ours * 1.0, labels).mean()
    expected = torch.nn.functional.cross_entropy(theirs.reshape(-1, 11), labels.reshape(-1))
    found.backward()
    expected.backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_labels_of_other_ranks_do_not_count():
    logits = torch.randn(2, 4, requires_grad=True)
    modules.WordLoss.apply(logits * 1.0, torch.tensor([9, 9])).sum().backward()
    torch.testing.assert_close(logits.grad, torch.softmax(logits.detach(), -1))


def test_an_embedding_shard_gives_zeros_for_words_of_other_ranks():
    job = job_of(LLAMA, tp=2, micro_batch=1, dtype="fp32")
    part = modules.build("embedding", job, **CPU)
    hidden = part(torch.tensor([[0, 1, len(part.words), len(part.words) + 5]]))
    torch.testing.assert_close(hidden[0, :2], part.words[:2])
    assert not hidden[0, 2:].any()


def test_attention_sees_no_later_token():
    job = job_of(LLAMA, tp=1, micro_batch=1, dtype="fp32")
    layer = modules.build("layer", job, **CPU)
    hidden = torch.randn(1, LLAMA.sequence, LLAMA.hidden)
    changed = hidden.clone()
    changed[0, 10:] += 1.0
    before, after = layer(hidden), layer(changed)
    torch.testing.assert_close(before[0, :10], after[0, :10])
    assert not torch.allclose(before[0, 10:], after[0, 10:])


def test_rotary_embedding_keeps_lengths_and_depends_on_distance():
    states = torch.randn(1, 1, 1, 8).expand(1, 1, 6, 8)
    turned = attention.turned(states)
    torch.testing.assert_close(turned.norm(dim=-1), states.norm(dim=-1))
    products = (turned[0, 0, 1:] * turned[0, 0, :-1]).sum(-1)
    torch.testing.assert_close(products, products[:1].expand(5))


@pytest.mark.parametrize(("width", "value"), [(6, 4), (4, 6), (5, 5)])
def test_attention_of_unequal_widths_is_that_of_all_scores(width, value):
    shapes = [(2, 3, 7, width), (2, 3, 7, width), (2, 3, 7, value)]
    operands = [torch.randn(shape, requires_grad=True) for shape in shapes]
    hidden = torch.ones(7, 7).triu(1).bool()
    query, key, values = operands
    scores = (query @ key.transpose(-1, -2) / width**0.5).masked_fill(hidden, -torch.inf)
    expected = scores.softmax(-1) @ values
    found = attention.attended(*operands, dropout=0.0)
    torch.testing.assert_close(found, expected)
    along = torch.randn_like(found)
    for mine, theirs in zip(
        *(torch.autograd.grad(out, operands, along) for out in (found, expected)), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


def test_latent_attention_sees_no_later_token_and_adds_up_over_ranks():
    """Each rank widens what all of them compress to its own heads."""
    whole, *halves = (
        modules.build("layer", job_of(LATENT, tp=tp, micro_batch=1, dtype="fp32"), **CPU).attention
        for tp in (1, 2, 2)
    )
    for number, half in enumerate(halves):
        for name, parameter in half.named_parameters():
            given = dict(whole.named_parameters())[name].detach()
            dim = 1 if name.startswith("dense") else 0
            divided = given.shape != parameter.shape
            parameter.data = given.chunk(2, dim)[number] if divided else given
    hidden = torch.randn(1, LATENT.sequence, LATENT.hidden)
    found = whole(hidden)
    torch.testing.assert_close(sum(half(hidden) for half in halves), found)
    changed = hidden.clone()
    changed[0, 10:] += 1.0
    torch.testing.assert_close(whole(changed)[0, :10], found[0, :10])
    assert not torch.allclose(whole(changed)[0, 10:], found[0, 10:])


def test_a_prediction_layer_sees_the_word_to_come():
    job = job_of(replace(LLAMA, prediction_layers=1), tp=1, micro_batch=1, dtype="fp32")
    head = modules.build("head", job, **CPU)
    hidden = torch.randn(1, LLAMA.sequence, LLAMA.hidden)
    labels = torch.arange(LLAMA.sequence)[None]
    seen = {}
    (layer,) = head.predictions
    layer.register_forward_pre_hook(lambda part, given: seen.update(words=given[0]))
    head(hidden, labels).backward()
    torch.testing.assert_close(seen["words"], head.copied[labels])
    assert head.copied.grad[labels].any()
    assert layer.join.weight.grad.any()


def test_experts_see_the_same_number_of_tokens():
    job = job_of(DECODERS["mixed"], tp=1, micro_batch=2, dtype="fp32")
    layer = modules.build("layer with experts", job, **CPU)
    seen = []
    for expert in layer.mlp.experts:
        expert.register_forward_hook(lambda part, given, out: seen.append(len(given[0])))
    layer(torch.randn(2, 16, 32))
    assert seen == [2 * 16 * 2 // 4] * 4


def test_the_kernel_of_attention_has_a_name():
    job = job_of(PLAIN, tp=1, micro_batch=1, dtype="fp32")
    assert "scaled_dot_product" in attention.attention_kernel(job, **CPU)
