"""Plans of models with an encoder of images: no legal one takes less than its bound, and the
encoder's work and memory are the first stage's."""

from dataclasses import replace
from itertools import product

import pytest

from ilp_planner.base.errors import PlannerError
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.optimize.solve import solve
from ilp_planner.specs.encoder import Encoder
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.lengths import FULL, LONGEST, PACKED, Lengths
from ilp_planner.specs.sounds import SoundEncoder
from ilp_planner.specs.tuning import Tuning
from tests.examples import thinned
from tests.megatron_cases import GIB, small_cluster
from tests.runtime_cases import runtime_problem
from tests.spaces.training.test_random_plans import assert_none_is_faster

SMALL = {"layers": 4, "hidden": 256, "heads": 8, "ffn": 512, "patch": 14, "merge": 2}
ENCODERS = {
    "plain": Encoder(**SMALL, image_size=224, images=3),
    "windows": Encoder(**SMALL, image_size=448, gated=True, norm="rmsnorm", window=112,
                       full_layers=1, projector_norm="patch"),
    "whole": Encoder(**SMALL, image_size=224, images=2, whole=True, recomputed=True, deepstack=2,
                     positions=100),
    "tied": Encoder(**SMALL, image_size=224, images=4, as_decoder=True, deepstack=1),
    "divided": Encoder(**SMALL, image_size=224, images=5, cp_divided=True, deepstack=1),
}  # fmt: skip


HEARING = {"layers": 3, "hidden": 128, "heads": 4, "ffn": 256}
SOUNDS = {
    "gated": SoundEncoder(**HEARING, chunk=3, positions=150, seconds=7, merge=8, joined=True,
                          projector_ffn=128, projector_bias=False, projector_gated=True,
                          projector_rms="inner"),
    "pieces": SoundEncoder(**HEARING, chunk=3, positions=150, seconds=7),
    "windows": SoundEncoder(**HEARING, rate=13, channels=16, merge=1, window=2, projector_ffn=64,
                            seconds=9, key_bias=True, marks=2),
    "joined": SoundEncoder(**HEARING, chunk=2, padded=True, joined=True, merge=4, whole=False,
                           projector_ffn=96, projector_bias=False, recomputed=True, seconds=5),
}  # fmt: skip


def problem_of(
    encoder,
    memory=9.0,
    asked=None,
    space="megatron",
    base="grouped",
    sequence=512,
    lengths=None,
    sounds=None,
    **more,
):
    return runtime_problem(
        space,
        base,
        cluster=more.pop("cluster", None) or small_cluster(2, 2),
        global_batch=8,
        memory_limit=int(memory * GIB),
        constraints=constraints_of(asked or {}),
        changes={
            "encoder": encoder, "layers": 6, "vocab": 2000, "sequence": sequence,
            "lengths": lengths, "sounds": sounds,
        },
        **more,
    )  # fmt: skip


ASKED = [
    (1.6, "grouped", {}),
    (9.0, "experts", {}),
    (9.0, "grouped", {"freeze": "encoder"}),
    (9.0, "grouped", {"freeze": "projector"}),
    (9.0, "grouped", {"freeze": "encoder,embedding,layers:0-5,norms,output"}),
    (9.0, "grouped", {"freeze": "embedding,layers:0-1"}),
    (9.0, "grouped", {"lora": "8"}),
]
KINDS = sorted(ENCODERS)


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "case"), [*thinned(product(KINDS, ASKED), 4)])
def test_no_plan_is_faster_than_the_bound(kind, case):
    memory, base, asked = case
    problem = problem_of(ENCODERS[kind], memory, asked, base=base)
    assert assert_none_is_faster(problem, seed=7, count=40) >= 10


DOCUMENTS = {
    "lengths": (20, 300, 300, 512), "counts": (30, 8, 2, 3), "images": (0, 1, 4, 2),
    "image_sizes": (0, 448, 224, 448),
}  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "batching", "memory"),
    [*thinned(product(KINDS, (PACKED, LONGEST, FULL), (1.6, 9.0)), 5)],
)
def test_no_plan_with_images_of_documents_is_faster_than_the_bound(kind, batching, memory):
    lengths = Lengths(**DOCUMENTS, batching=batching)
    problem = problem_of(ENCODERS[kind], memory, lengths=lengths)
    assert assert_none_is_faster(problem, seed=11, count=40) >= 10


HEARD_WITH = [
    (1.6, {}),
    (9.0, {"freeze": "encoder"}),
    (9.0, {"freeze": "projector"}),
    (9.0, {"freeze": "encoder,embedding,layers:0-5,norms,output"}),
    (9.0, {"lora": "8"}),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("case", "images", "kind"), [*thinned(product(HEARD_WITH, (None, "plain"), sorted(SOUNDS)), 3)]
)
def test_no_plan_with_sounds_is_faster_than_the_bound(case, images, kind):
    memory, asked = case
    problem = problem_of(ENCODERS.get(images), memory, asked, sounds=SOUNDS[kind])
    assert assert_none_is_faster(problem, seed=5, count=30) >= 8


HEARD = {"lengths": (20, 300, 300, 512), "counts": (30, 8, 2, 3), "seconds": (0, 2, 8, 5)}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("batching", "kind"), [*thinned(product((PACKED, FULL), sorted(SOUNDS)), 3)]
)
def test_no_plan_with_sounds_of_documents_is_faster_than_the_bound(batching, kind):
    lengths = Lengths(**HEARD, batching=batching)
    problem = problem_of(None, 1.6, lengths=lengths, sounds=SOUNDS[kind])
    assert assert_none_is_faster(problem, seed=13, count=30) >= 8


@pytest.mark.parametrize("kind", sorted(SOUNDS))
def test_twice_the_sound_takes_longer_and_needs_more(kind):
    """On the first stage alone; a model that sees and hears has both encoders there."""
    asked = {"pp": "2", "tp": "1", "recompute": "none", "virtual_stages": "1"}
    own, seen = SOUNDS[kind], ENCODERS["plain"]
    once = problem_of(None, asked=asked, sequence=2048, sounds=own)
    plan = solve(once).plan
    cases = {
        "once": once,
        "twice": problem_of(
            None, asked=asked, sequence=2048, sounds=replace(own, seconds=3 * own.seconds)
        ),
        "both": problem_of(seen, asked=asked, sequence=2048, sounds=own),
        "images": problem_of(seen, asked=asked, sequence=2048),
        "neither": problem_of(None, asked=asked, sequence=2048),
    }
    cost = {name: one.costs.plan_cost(plan, one.cluster).stages for name, one in cases.items()}
    for more, less in (
        ("twice", "once"),
        ("both", "once"),
        ("both", "images"),
        ("once", "neither"),
    ):
        assert cost[more][0].time > cost[less][0].time
        assert max(cost[more][0].memory) > max(cost[less][0].memory)
        assert cost[more][1].time == cost[less][1].time
    alone = cost["once"][0].time + cost["images"][0].time - cost["neither"][0].time
    assert cost["both"][0].time == pytest.approx(alone)


@pytest.mark.parametrize("kind", sorted(ENCODERS))
def test_the_encoder_is_the_first_stages(kind):
    encoder = ENCODERS[kind]
    asked = {"pp": "2", "tp": "1", "recompute": "none", "virtual_stages": "1"}
    problem = problem_of(encoder, asked=asked)
    plan = solve(problem).plan
    more = problem_of(replace(encoder, images=2 * encoder.images), asked=asked, sequence=1024)
    same = problem_of(encoder, asked=asked, sequence=1024)
    frozen = replace(plan.settings, tuning=Tuning(frozen=("encoder",)))
    cost, twice, still = (
        one.costs.plan_cost(own, one.cluster).stages
        for one, own in ((same, plan), (more, plan), (same, replace(plan, settings=frozen)))
    )
    assert twice[0].time > cost[0].time > still[0].time
    assert max(twice[0].memory) > max(cost[0].memory) > max(still[0].memory)
    for own, other in zip(cost[1:], twice[1:], strict=True):
        assert own.time == other.time
        assert own.memory == other.memory


@pytest.mark.parametrize("space", ["torchtitan", "deepspeed"])
def test_systems_without_an_encoder_refuse_it(space):
    with pytest.raises(PlannerError, match="found images or sounds before the decoder, expected"):
        problem_of(ENCODERS["plain"], space=space)


def test_ranks_divide_heads_and_widths_of_the_encoder():
    odd = replace(ENCODERS["plain"], ffn=511)
    with pytest.raises(PlannerError, match="`tp=2`: no plan of small on 4 devices"):
        solve(problem_of(odd, asked={"tp": "2"}))
    whole = problem_of(replace(odd, whole=True), asked={"tp": "2"})
    assert not evaluate(whole, solve(whole).plan).violations


@pytest.mark.parametrize("kind", sorted(ENCODERS))
def test_an_encoder_in_16_bits_beside_8_is_said_where_a_system_has_fewer(kind):
    """Of divided ones whose configuration is not known to leave 8 bits out."""
    encoder, cluster = ENCODERS[kind], gpu_cluster(parse_gpus("2xH100"))
    said = {
        precision: any(
            "its products are counted in 16 bits" in note
            for note in problem_of(encoder, cluster=cluster, precision=precision).notes
        )
        for precision in ("bf16", "fp8-current")
    }
    assert said == {"bf16": False, "fp8-current": not (encoder.whole or encoder.as_decoder)}


def test_context_parallel_ranks_divide_images_where_the_encoder_says_so():
    whole = ENCODERS["plain"]
    divided = replace(whole, cp_divided=True)
    for asked, less in (({"cp": "2"}, True), ({"cp": "1"}, False)):
        problem, other = problem_of(whole, asked=asked), problem_of(divided, asked=asked)
        plan = solve(problem).plan
        one, two = (p.costs.plan_cost(plan, p.cluster).stages[0] for p in (problem, other))
        assert (two.time < one.time) == (max(two.memory) < max(one.memory)) == less
        if not less:
            assert two.time == one.time


@pytest.mark.slow
def test_an_encoder_is_recomputed_as_the_decoder_is_where_it_follows():
    """With all layers it costs what one that is always recomputed does, with none what a plain one
    does; blocks of layers and other values of the encoder alone are in no plan."""
    tied = ENCODERS["tied"]
    plain, always = (
        replace(tied, as_decoder=False),
        replace(tied, as_decoder=False, recomputed=True),
    )
    alike = {"none": ("none", plain), "full": ("full", always), "core_attn": ("core", plain)}
    for asked, (value, other) in alike.items():
        said = {"recompute": asked, "virtual_stages": "1"}
        problem, found = problem_of(tied, asked=said), solve(problem_of(tied, asked=said))
        assert found.plan.settings.encoder_recompute == value
        assert not evaluate(problem, found.plan).violations
        own = {"encoder_recompute": value if value == "core" else "none"}
        same = problem_of(other, asked=said | own)
        assert solve(same).objective == pytest.approx(found.objective, rel=1e-12)
        for wrong in {"none", "core", "full"} - {value}:
            settings = replace(found.plan.settings, encoder_recompute=wrong)
            broken = evaluate(problem, replace(found.plan, settings=settings)).violations
            assert any("encoder recompute" in str(one) for one in broken)
    with pytest.raises(PlannerError, match="recompute"):
        solve(problem_of(tied, asked={"recompute": "block"}))
    frozen = {"recompute": "full", "freeze": "encoder"}
    assert solve(problem_of(tied, asked=frozen)).plan.settings.encoder_recompute == "none"


@pytest.mark.parametrize("value", ["core", "full"])
def test_recomputing_an_encoder_costs_time_and_saves_memory(value):
    """Alone, where the decoder computes nothing again, and on the first stage."""
    said = {"recompute": "none", "virtual_stages": "1", "pp": "2", "tp": "2"}
    encoder = ENCODERS["plain"]
    less, more = (
        problem_of(encoder, asked=said | {"encoder_recompute": v}) for v in ("none", value)
    )
    plan = solve(less).plan
    again = replace(plan, settings=replace(plan.settings, encoder_recompute=value))
    one, two = (p.costs.plan_cost(x, p.cluster).stages for p, x in ((less, plan), (more, again)))
    assert two[0].time > one[0].time
    assert max(two[0].memory) < max(one[0].memory)
    assert two[1].time == one[1].time
    refused = replace(encoder, recomputed=True)
    with pytest.raises(PlannerError, match="encoder recompute: found"):
        solve(problem_of(refused, asked={"encoder_recompute": value}))


AGAIN = {"none": "none", "core_attn": "core", "full": "full"}


@pytest.mark.few(4)
@pytest.mark.parametrize(("decoder", "encoder"), [*product(AGAIN, ("none", "core", "full"))])
def test_an_encoder_unlike_the_decoder_is_refused_with_the_rule(decoder, encoder):
    asked = {"recompute": decoder, "encoder_recompute": encoder}
    if AGAIN[decoder] == encoder:
        assert solve(problem_of(ENCODERS["tied"], 80.0, asked)).plan
        return
    rule = f"found {encoder}, expected {AGAIN[decoder]}, as the decoder's layers"
    with pytest.raises(PlannerError, match=f"has both: encoder recompute: {rule}; "):
        problem_of(ENCODERS["tied"], 80.0, asked)
