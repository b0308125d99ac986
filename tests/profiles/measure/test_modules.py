"""Modules of a shard: as many parameters as the anatomy says, and the right numbers."""

from dataclasses import replace

import pytest

from ilp_planner.anatomy.decoder import embedding_module, layer_module, output_module
from ilp_planner.profiles.measure.shard import job_of, layer_kinds
from tests.profiles.measure.small_decoders import DECODERS, LLAMA, PLAIN

torch = pytest.importorskip("torch", reason="needs the extra [torch]")
from ilp_planner.profiles.measure import modules  # noqa: E402

CPU = {"device": "cpu", "dtype": torch.float32}


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", DECODERS)
def test_a_rank_has_the_parameters_of_the_anatomy(name, tp):
    # A pipeline's last stage has a copy of a tied embedding, and so has the row of the head.
    job = job_of(replace(DECODERS[name], tied=False), tp=tp, micro_batch=1, dtype="fp32")
    expected = {"embedding": embedding_module(job), "head": output_module(job)}
    for kind in layer_kinds(job.model):
        expected[kind] = layer_module(job, kind == "layer with experts")
    for kind, module in expected.items():
        made = modules.build(kind, job, **CPU)
        assert modules.parameter_count(made) == module.parameters, kind


@pytest.mark.parametrize("name", DECODERS)
def test_shards_add_up_to_the_model(name):
    """What is divided is divided evenly, what is whole is on every rank."""
    model = DECODERS[name]
    operators = {"layer": "mlp", "layer with experts": "experts"}
    for kind in layer_kinds(model):
        held = [model.parameters[f"{operators[kind]}{end}"] for end in ("-1st-layernorm", "-layer")]
        split, whole = sum(h.split for h in held), sum(h.whole for h in held)
        for tp in (1, 2):
            job = job_of(model, tp=tp, micro_batch=1, dtype="fp32")
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
    turned = modules.turned(states)
    torch.testing.assert_close(turned.norm(dim=-1), states.norm(dim=-1))
    products = (turned[0, 0, 1:] * turned[0, 0, :-1]).sum(-1)
    torch.testing.assert_close(products, products[:1].expand(5))


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
    assert "scaled_dot_product" in modules.attention_kernel(job, **CPU)
