"""Moments in blocks of 8 bits and in pages: bitsandbytes' bytes, and bytes and seconds by hand."""

import warnings
from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.costs.profiles.work import rates_of
from ilp_planner.costs.training.iteration import SYNC, iteration_terms
from ilp_planner.job.decoder import embedding_module, layer_module, output_module
from ilp_planner.job.memory import memory_parts
from ilp_planner.job.states import BLOCK, moments_of, state_widths
from ilp_planner.settings.values import BY_TRAINER, MOMENTS
from ilp_planner.specs.decoder import Decoder, Experts
from ilp_planner.specs.training import MOMENT_FORMATS, OptimizerSettings, Settings, TrainingJob
from ilp_planner.specs.tuning import Tuning
from tests.examples import for_each
from tests.runtime_cases import runtime_problem
from tests.training_jobs import LLAMA_LIKE, decoder_named, transformers_config

EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
Bytes = tuple[int, int]
# Bytes that bitsandbytes 0.50.2 has of both moments as the Trainer asks for them, without pages and
# in them: model, rank of adapters, products with them, in blocks of 8 bits and in fp32.
BITSANDBYTES: list[tuple[str, int, tuple[str, ...], Bytes, Bytes]] = [
    ("llama3.2-1b", 0, (), (30949376, 4047503360), (540672, 9885974528)),
    ("qwen2.5-0.5b", 0, (), (11754496, 1804730368), (572416, 3951689728)),
    ("qwen3-8b", 0, (), (237184128, 20114833408), (2465792, 65523417088)),
    ("llama2-13b", 16, EVERY, (74045440, 53084160), (288358400, 212336640)),
    ("qwen2.5-7b", 8, ("q_proj", "v_proj"), (5125120, 0), (20185088, 0)),
    ("mistral-7b", 64, EVERY, (13631488, 327155712), (33554432, 1308622848)),
]
SMALL: dict[str, Any] = {
    **{"layers": 2, "hidden": 512, "sequence": 1024, "heads": 4, "ffn": 1536, "vocab": 16000},
    **LLAMA_LIKE,
}
NORMS = 5 * 512  # numbers, of tensors of 512


def job_of(
    value: str, model: Decoder | None = None, tuning: Tuning | None = None, **job: Any
) -> TrainingJob:
    shared = job.pop("sharding", "none")
    optimizer = OptimizerSettings(sharding=shared)
    settings = Settings(vocab_multiple=1, tuning=tuning or Tuning(), optimizer=optimizer)
    found = MOMENTS.write(settings, value)
    assert found is not None
    own = {"micro_batch": 1, "global_batch": 4, "model": model or Decoder(**SMALL), **job}
    return TrainingJob(settings=found, **own)


def kept(job: TrainingJob) -> Bytes:
    """Return bytes of all moments of a job, that stay on the device and in pages."""
    alone, several = embedding_module(job), layer_module(job, *job.kind(0))
    modules = ((alone, 1), (several, job.model.layers), (output_module(job), 1))
    found = [(moments_of(job, one, expert=False), count) for one, count in modules]
    stays, paged = (sum(n * getattr(m, name) for m, n in found) for name in ("stays", "paged"))
    return int(stays), int(paged)


def states(job: TrainingJob) -> float:
    """Return bytes of the optimizer's states on a rank."""
    parts = memory_parts(job).parts
    counts = {"layer": job.model.layers, "embedding": 1, "output": 1}
    return sum(count * parts[kind].optimizer for kind, count in counts.items())


# ---- bitsandbytes --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rank", "targets", "blocks", "single"), BITSANDBYTES)
def test_moments_are_those_of_bitsandbytes(
    name: str, rank: int, targets: tuple[str, ...], blocks: Bytes, single: Bytes
) -> None:
    tuning = Tuning(rank=rank, targets=targets, adapters="fp32" * bool(rank))
    model = decoder_named(name)
    assert kept(job_of("paged-8bit", model, tuning)) == blocks
    assert kept(job_of("paged", model, tuning)) == single
    assert kept(job_of("8bit", model, tuning)) == (sum(blocks), 0)


def test_bitsandbytes_itself_has_them() -> None:
    """On the meta device, where it is installed."""
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    transformers, bnb = pytest.importorskip("transformers"), pytest.importorskip("bitsandbytes")
    warnings.simplefilter("ignore")
    for name, rank, targets, *expected in BITSANDBYTES:
        model = decoder_named(name)
        config = transformers_config(name, model)
        with torch.device("meta"):
            made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
            if rank:
                made = peft.get_peft_model(made, peft.LoraConfig(r=rank, target_modules=[*targets]))
        trained = [one for one in made.parameters() if one.requires_grad]
        tables = [m.weight for m in made.modules() if isinstance(m, torch.nn.Embedding)]
        for bits, found in zip((8, 32), expected, strict=True):
            optimizer = bnb.optim.AdamW(trained, optim_bits=bits)
            sizes = [0, 0]
            for number, one in enumerate(trained):
                if any(one is table for table in tables):  # `create_optimizer` of the Trainer
                    optimizer.mng.index2config[0, number] = {"optim_bits": 32}
                optimizer.init_state(optimizer.param_groups[0], one, 0, number)
                for key, value in optimizer.state[one].items():
                    if key.startswith(("state", "absmax")):
                        paged = key.startswith("state") and one.numel() >= 1e5
                        sizes[paged] += value.numel() * value.element_size()
            optimizer.mng.index2config.clear()
            assert tuple(sizes) == found


def test_states_that_were_measured() -> None:
    """On one H200 (`tests/benchmarks/results/gpu_runs.json`): what PyTorch's allocator held more
    after the first step, which rounds each tensor up."""
    tuning = Tuning(rank=16, targets=EVERY, adapters="fp32")
    stays, _ = kept(job_of("paged-8bit", decoder_named("llama2-13b"), tuning))
    assert stays == pytest.approx(8202427392 - 8128107520, rel=0.01)


# ---- by hand -------------------------------------------------------------------------------------


def test_short_tensors_and_tables_of_words_have_no_blocks() -> None:
    """Shares of all states have: ZeRO joins tensors, and torchao asks shards."""
    job = job_of("8bit")
    words, each = 16000 * 512, 4 * 512 * 512 + 3 * 512 * 1536
    blocks = 2 * each + words  # with the output layer
    alone = (2 + 8 / BLOCK) * blocks + 8 * (words + NORMS)
    assert sum(kept(job)) == alone
    every = 2 * words + 2 * each + NORMS
    assert states(job) == 4 * every + alone
    shared = job_of("8bit", dp=4, sharding="optimizer")
    assert states(shared) == (4 + 2 + 8 / BLOCK) * every / 4


@pytest.mark.parametrize("value", BY_TRAINER)
@pytest.mark.parametrize("sharding", ["none", "optimizer", "gradients", "parameters"])
def test_states_are_never_less_than_plain_numbers_on_the_device(value: str, sharding: str) -> None:
    """What a search takes to be the least of a rank's states, it is."""
    routed = Decoder(**SMALL, experts=Experts(count=4, top_k=2, ffn=256))
    for model in (Decoder(**SMALL), routed):
        job = job_of(value, model, dp=2, sharding=sharding)
        parts = memory_parts(job).parts
        for kind in ("embedding", "layer", "expert layer", "output"):
            part = parts[kind]
            dense, expert = (state_widths(job, expert=flag).optimizer for flag in (False, True))
            least = (part.trained - part.expert_parameters) * dense
            assert part.optimizer >= least + part.expert_parameters * expert


def test_experts_have_replicas_of_their_own() -> None:
    model = Decoder(**SMALL, experts=Experts(count=4, top_k=2, ffn=256))
    one, two = (job_of(value, model, dp=4, sharding="optimizer") for value in ("fp32", "8bit"))
    spread = [replace(job, settings=replace(job.settings, ep=4, etp=1)) for job in (one, two)]
    whole, divided = ([memory_parts(j).parts["expert layer"] for j in pair] for pair in
                      ((one, two), spread))  # fmt: skip
    assert whole[0].optimizer - whole[1].optimizer == pytest.approx(
        (8 - 2 - 8 / BLOCK) * whole[0].trained / 4
    )
    others = divided[0].trained - divided[0].expert_parameters
    assert divided[0].optimizer - divided[1].optimizer == pytest.approx(
        (8 - 2 - 8 / BLOCK) * (others / 4 + divided[0].expert_parameters)
    )


# ---- seconds -------------------------------------------------------------------------------------


def step_of(value: str) -> float:
    """Return the seconds of the optimizer's step on one GPU."""
    problem = runtime_problem("torchtitan", "dense", global_batch=4)
    job = job_of(value)
    network = problem.costs.ranks_of_job(job, problem.cluster)
    return iteration_terms(network, job)[SYNC]


def test_a_step_reads_and_writes_moments_and_brings_pages() -> None:
    """Both ways, as if the device had no room for them."""
    problem = runtime_problem("torchtitan", "dense", global_batch=4)
    device = next(iter(problem.cluster.device_types.values()))
    seconds = {value: step_of(value) for value in ("fp32", *BY_TRAINER)}
    stays, paged = kept(job_of("paged"))
    moved = 2 * paged / device.to_host
    assert seconds["paged"] == pytest.approx(seconds["fp32"] + moved)
    few = kept(job_of("paged-8bit"))[1]
    assert seconds["paged-8bit"] == pytest.approx(seconds["8bit"] + 2 * few / device.to_host)
    rate = rates_of(device).streaming * device.machine.stepping
    less = 2 * (stays + paged - sum(kept(job_of("8bit"))))
    assert seconds["fp32"] - seconds["8bit"] == pytest.approx(less / rate)


# ---- settings ------------------------------------------------------------------------------------


@for_each("value", ("fp32", *BY_TRAINER))
def test_values_are_read_as_they_are_written(value: str) -> None:
    job = job_of(value)
    assert MOMENTS.read(job.settings) == value
    assert job.settings.by_trainer == (value != "fp32")


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="moment_format must be one of"):
        OptimizerSettings(moment_format="4bit")
    assert ("", *BY_TRAINER) == MOMENT_FORMATS
