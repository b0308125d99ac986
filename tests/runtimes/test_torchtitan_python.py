"""Exported modules in the hands of torchtitan 0.3.0: its reader, meshes, models and schedules."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given

from ilp_planner.base.errors import PlanError
from ilp_planner.base.library import find_spec
from ilp_planner.formats.torchtitan_python import export_torchtitan_python
from ilp_planner.inputs.problem import Problem
from ilp_planner.job.decoder import rank_modules
from ilp_planner.spaces.training.enumerate.recomputations import BY_OPERATORS
from ilp_planner.specs.decoder import Decoder, Experts, Rotary
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import read_layout, split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, TrainingJob
from tests.divided_layouts import DIVIDED
from tests.examples import MORE, examples
from tests.runtime_cases import ENDS_ALONE, ends_alone, problems, solved_job
from tests.runtimes.titan import whole_parameters
from tests.runtimes.titan_python import FOLDER, VERSION, look_at
from tests.training_jobs import deepseek, job, jobs, llama
from tests.training_jobs import settings as usual

pytest.importorskip("torch", reason="needs the extra 'runtimes': torch")
pytest.importorskip("tyro", reason="needs the extra 'runtimes': tyro")
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"needs torchtitan {VERSION} in a folder of its own: {FOLDER}"
)

FULL = Recompute(granularity="full", method="uniform", layers=1)
MIXTURE = Experts(count=8, top_k=2, ffn=96)
ALONE = {"pp": 1, "layout": None}
LLAMA3 = Rotary(base=500000.0, scaling="llama3", factor=8.0, original=8192)
YARN = Rotary(scaling="yarn", factor=40.0, original=256, magnitude_all=1.0)
GROUPED = Experts(
    **{"count": 8, "top_k": 2, "ffn": 96, "shared_ffn": 192, "dense_first": 1, "groups": 4},
    **{"top_groups": 2, "score": "sigmoid", "normed": True, "correction": True, "scale": 2.5},
)

SCHEDULES = {
    "1f1b": "Schedule1F1B",
    "interleaved": "ScheduleInterleaved1F1B",
    "interleaved-zb": "ScheduleInterleavedZeroBubble",
    "zb-v": "ScheduleZBVZeroBubble",
    "dualpipe-v": "ScheduleDualPipeV",
}
EXAMPLES = {
    "uneven pipeline": job(),
    "virtual stages": job(pp=2, layout=split_layout([2, 1, 3, 2])),
    **{
        name: job(pp=2, layout=split_layout([2, 1, 2, 3]), settings=usual(schedule=name))
        for name in DIVIDED
    },
    "a stage without layers": job(layout=read_layout("E|t|tttt|tttL")),
    "ends alone": job(pp=2, layout=read_layout("E|t*4|t*4|L")),
    "the output alone": job(layout=read_layout("Ettt|t|tttt|L")),
    "recomputed": job(settings=usual(recompute=FULL)),
    "recomputed by operators": job(settings=usual(recompute=BY_OPERATORS)),
    "context parallel": job(settings=usual(cp=2)),
    "whole sequences": job(settings=usual(sequence_parallel=False)),
    "hybrid sharding": job(
        dp=4, settings=usual(optimizer=OptimizerSettings(sharding="parameters", instances=2))
    ),
    "replicas of stages": job(settings=usual(optimizer=OptimizerSettings())),
    "one replica": job(dp=1),
    "fp32 on the host": job(
        settings=usual(
            precision="fp32", optimizer=OptimizerSettings(sharding="gradients", offload=1.0)
        )
    ),
    "async products": job(settings=usual(overlap_tensor=True)),
    "compiled": job(settings=usual(kernels=Kernels(compiled=True))),
    "graphs": job(**ALONE, settings=usual(kernels=Kernels(graphs="full_iteration"))),
    "longer samples": job(llama(rotary=LLAMA3, epsilon=1e-6, max_position_embeddings=8192)),
    "biases": job(llama(qkv_bias=True)),
    "tied": job(llama(tied=True), **ALONE),
    "normed heads": job(llama(head=32, qk_norm=True)),
    "wide heads": job(llama(head=32, tied=True, qkv_bias=True), **ALONE),
    "mixture": job(llama(experts=MIXTURE), settings=usual(ep=2, etp=1)),
    "some layers with experts": job(
        llama(experts=Experts(count=4, top_k=1, ffn=64, shared_ffn=96, every=2, normed=False))
    ),
    "latent, experts": job(deepseek(), settings=usual(ep=4, etp=1)),
    "latent, grouped experts": job(deepseek(experts=GROUPED, rotary=YARN)),
    "latent, dense": job(deepseek(experts=None)),
    "latent, every other": job(deepseek(experts=Experts(count=4, top_k=2, ffn=64, every=2))),
    "8 bits by blocks": job(settings=usual(kernels=Kernels(quantised="mxfp8", exact_last=2))),
    "4 bits": job(llama(ffn=768), settings=usual(kernels=Kernels(quantised="nvfp4"))),
}


def drawn(count: int, more: int = MORE) -> list[TrainingJob]:
    """Return random jobs that are exported: one process looks at them all."""
    found: list[TrainingJob] = []
    plain = {"norm": "rmsnorm", "positions": "rope", "gated": True, "activation": "silu"}
    plain |= {"bias": False, "dropout": 0.0, "sequence": 512, "max_position_embeddings": 512}

    @examples(count, more, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(jobs())
    def draw(case: TrainingJob) -> None:
        tied = case.model.tied and case.pp == 1
        model = dataclasses.replace(case.model, **plain, tied=tied)
        etp = 1 if case.settings.ep > 1 else 0
        changed = dataclasses.replace(case.settings, turn=0, overlap_sends=True, etp=etp)
        case = dataclasses.replace(case, model=model, settings=changed)
        try:
            export_torchtitan_python(case, "run")
        except PlanError:
            return
        found.append(case)

    draw()
    return found


def solved(count: int) -> list[TrainingJob]:
    """Return the jobs of the best plans of so many random problems, of those that have any."""
    found: list[TrainingJob] = []

    @examples(count, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(problems("torchtitan"))
    def draw(problem: Problem) -> None:
        case = solved_job(problem)
        if case is not None:
            found.append(case)

    draw()
    return found


def public(name: str) -> TrainingJob:
    """Return a job of a model that comes with the planner."""
    model = read_model(find_spec(name, "models")).architecture
    assert isinstance(model, Decoder)
    return TrainingJob(model=model, micro_batch=1, global_batch=64, dp=8)


PUBLIC = {
    name: public(name)
    for name in ("llama3-8b", "llama3.1-70b", "llama3.2-1b", "qwen3-32b", "deepseek-v3")
}
DRAWN = 24  # random jobs, of which some are exported
SOLVED = 6  # random problems whose best plan is exported, where there is one
Looked = dict[str, tuple[TrainingJob, dict[str, Any]]]


def looked_at(cases: dict[str, TrainingJob], folder: Path) -> Looked:
    """Return what torchtitan makes of every case."""
    asked = []
    for number, case in enumerate(cases.values()):
        name = f"case_{number}"
        (folder / f"{name}.py").write_text(export_torchtitan_python(case, name).files[".py"])
        asked.append({"folder": str(folder), "module": name, "world": case.world})
    answers = look_at(asked)
    return {name: (case, found) for (name, case), found in zip(cases.items(), answers, strict=True)}


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Looked:
    """What torchtitan makes of all cases, in one process."""
    random = {f"drawn {number}": case for number, case in enumerate(drawn(DRAWN, more=8))}
    random |= {f"solved {number}": case for number, case in enumerate(solved(SOLVED))}
    random |= {f"ends alone, pp {pp}": ends_alone("torchtitan", pp) for pp in ENDS_ALONE}
    return looked_at({**EXAMPLES, **PUBLIC, **random}, tmp_path_factory.mktemp("modules"))


def check_degrees(case: TrainingJob, facts: dict[str, Any]) -> None:
    """torchtitan's own check of the degrees passes, and its groups are the plan's ranks."""
    p, s = facts["parallelism"], case.settings
    assert p["tensor_parallel_degree"] == case.tp
    assert p["context_parallel_degree"] == s.cp
    assert p["pipeline_parallel_degree"] == case.pp
    assert p["expert_parallel_degree"] == s.ep
    assert p["data_parallel_replicate_degree"] * p["data_parallel_shard_degree"] == case.dp
    assert p["enable_sequence_parallel"] == s.sequence_parallel
    width = case.tp * s.cp
    strides = {
        "tp": (case.tp, 1),
        "cp": (s.cp, case.tp),
        "batch": (case.dp, width),
        "pp": (case.pp, width * case.dp),
        "ep": (s.ep, 1),
    }
    for axis, (size, stride) in strides.items():
        ranks = [stride * number for number in range(size)]
        assert facts["groups"].get(axis, [0]) == ranks, axis
    sharded = p["data_parallel_shard_degree"] > 1 or s.cp > 1
    assert sharded == (s.optimizer.sharding != "none" and case.dp * s.cp > s.optimizer.instances)


def check_batches(case: TrainingJob, facts: dict[str, Any]) -> None:
    """As `torchtitan/trainer.py` and its pipeline count them."""
    training, p = facts["training"], facts["parallelism"]
    steps, rest = divmod(training["global_batch_size"], training["local_batch_size"] * case.dp)
    assert rest == 0
    parts = 1
    if case.pp > 1:
        assert p["pipeline_parallel_microbatch_size"] == case.micro_batch
        parts = training["local_batch_size"] // p["pipeline_parallel_microbatch_size"]
    else:
        assert training["local_batch_size"] == case.micro_batch
    assert steps * parts == case.micro_batches
    assert training["seq_len"] == case.model.sequence


def check_parameters(case: TrainingJob, facts: dict[str, Any]) -> None:
    """The whole model has the plan's parameters."""
    assert facts["parameters"] == whole_parameters(case)


def check_stages(case: TrainingJob, facts: dict[str, Any]) -> None:
    """Every pipeline rank has the plan's modules, and the plan's schedule runs them."""
    assert len(facts["stages"]) == (case.pp if case.pp > 1 else 0)
    for pp_rank, built in enumerate(facts["stages"]):
        assert built["micro_batches"] == case.micro_batches
        assert built["schedule"] == SCHEDULES[case.schedule.name]
        for number, part in zip(case.stages_of(pp_rank), built["parts"], strict=True):
            stage, start = case.stages[number], case.pipeline.starts[number]
            assert part == {
                "number": number,
                "layers": list(range(start, start + stage.layers)),
                "embedding": stage.embedding,
                "loss": stage.loss,
            }


def check_training(case: TrainingJob, facts: dict[str, Any]) -> None:
    """Precision, states, recomputation and kernels are the plan's."""
    s, training = case.settings, facts["training"]
    assert training["mixed_precision_param"] == ("float32" if s.precision == "fp32" else "bfloat16")
    assert training["enable_cpu_offload"] == (s.optimizer.offload == 1)
    assert training["disable_cuda_graphs"] == (s.kernels.graphs == "")
    policy = "FullAC.Config" if s.recompute.granularity == "full" else None
    assert facts["checkpoint"] == ("SelectiveAC.Config" if s.recompute == BY_OPERATORS else policy)
    assert facts["compile"]["enable_async_tensor_parallel"] == s.overlap_tensor
    assert facts["compile"]["enable"] == (s.kernels.compiled or s.overlap_tensor)
    kept = facts["parallelism"]["fsdp_reshard_after_forward"]
    assert kept == ("always" if s.optimizer.sharding == "parameters" else "never")


def check_model(case: TrainingJob, facts: dict[str, Any]) -> None:
    """Angles, epsilons and routing are the model's."""
    m, rope = case.model, facts["rope"]
    assert m.rotary is not None
    assert rope["dim"] == (m.latent.rotary if m.latent else m.head)
    assert rope["theta"] == m.rotary.base
    assert facts["epsilons"] == [m.epsilon]
    assert rope["scaling"] == {"": "none", "llama3": "llama", "yarn": "yarn"}[m.rotary.scaling]
    if rope["scaling"] == "llama":
        assert rope["scaling_factor"] == m.rotary.factor
        assert rope["original_max_position_embeddings"] == m.rotary.original
        assert (rope["low_freq_factor"], rope["high_freq_factor"]) == (m.rotary.slow, m.rotary.fast)
    if rope["scaling"] == "yarn":
        assert (rope["rope_factor"], rope["original_seq_len"]) == (
            m.rotary.factor,
            m.rotary.original,
        )
        assert (rope["beta_slow"], rope["beta_fast"]) == (m.rotary.slow, m.rotary.fast)
    routing = m.experts and {
        "score_func": m.experts.score,
        "route_norm": m.experts.normed,
        "route_scale": m.experts.scale,
        "num_expert_groups": m.experts.groups if m.experts.top_groups else None,
        "num_limited_groups": m.experts.top_groups or None,
        "correction": m.experts.correction,
    }
    assert facts["routers"] == [routing if has else None for has in m.expert_layers]


CHECKS = (check_degrees, check_batches, check_parameters, check_stages, check_training, check_model)


def check(case: TrainingJob, facts: dict[str, Any]) -> None:
    """All that torchtitan makes of a module is what the plan says."""
    assert "error" not in facts, facts
    for one in CHECKS:
        one(case, facts)


@pytest.mark.parametrize("name", [*EXAMPLES, *PUBLIC])
def test_torchtitan_reads_the_plan(name: str, looked: Looked) -> None:
    check(*looked[name])


def test_any_job_is_read_or_refused(looked: Looked) -> None:
    random = [name for name in looked if name.startswith("drawn")]
    assert len(random) > DRAWN / 10
    for name in random:
        check(*looked[name])


def test_every_solved_plan_is_read(looked: Looked) -> None:
    names = [name for name in looked if name.startswith("solved")]
    assert len(names) > SOLVED / 2
    for name in names:
        check(*looked[name])


@pytest.mark.parametrize("pp", ENDS_ALONE)
def test_solved_ends_are_alone(pp: int, looked: Looked) -> None:
    check(*looked[f"ends alone, pp {pp}"])


@pytest.mark.slow
def test_many_solved_plans_are_read(tmp_path: Path) -> None:
    cases = {str(number): case for number, case in enumerate(solved(20))}
    assert len(cases) >= 12
    for case, facts in looked_at(cases, tmp_path).values():
        check(case, facts)


@pytest.mark.slow
def test_many_jobs_are_read_or_refused(tmp_path: Path) -> None:
    cases = {str(number): case for number, case in enumerate(drawn(100))}
    assert len(cases) > 25
    for case, facts in looked_at(cases, tmp_path).values():
        check(case, facts)


def test_products_are_quantised_where_the_plan_says(looked: Looked) -> None:
    every = [f"layers.{layer}." for layer in range(8)]
    said = {"converter": "MXFP8LinearConverter", "fqns": every[:6]}
    assert looked["8 bits by blocks"][1]["quantised"] == [said]
    said = {"converter": "NVFP4LinearConverter", "fqns": every}
    assert looked["4 bits"][1]["quantised"] == [said]
    assert looked["uneven pipeline"][1]["quantised"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("uneven pipeline", "virtual stages", "whole sequences", "context parallel"),
        *("hybrid sharding", "replicas of stages", "biases", "normed heads", "latent, dense"),
        "some layers with experts",
    ],
)
def test_a_rank_holds_its_share(name: str, tmp_path: Path) -> None:
    """What torchtitan's tensor parallelism and FSDP leave on the first rank is the plan's part."""
    case = EXAMPLES[name]
    case = dataclasses.replace(case, settings=dataclasses.replace(case.settings, vocab_multiple=1))
    (tmp_path / "run.py").write_text(export_torchtitan_python(case, "run").files[".py"])
    asked = {"folder": str(tmp_path), "module": "run", "world": case.world}
    found = look_at([asked], "parallelized")[0]
    planned = sum(module.parameters for module in rank_modules(case, 0))
    replicated = case.settings.optimizer.sharding == "none"
    shards = 1 if replicated else case.dp * case.settings.cp // case.settings.optimizer.instances
    assert found == {"held": planned // shards}


@pytest.mark.slow
def test_a_key_that_torchtitan_does_not_have_is_seen(tmp_path: Path) -> None:
    """Guard the guard: torchtitan's classes refuse unknown keys."""
    text = export_torchtitan_python(job(), "run").files[".py"]
    (tmp_path / "run.py").write_text(text.replace("tensor_parallel_degree", "tensor_degree"))
    facts = look_at([{"folder": str(tmp_path), "module": "run", "world": 16}])[0]
    assert "tensor_degree" in facts["error"]
