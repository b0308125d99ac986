"""Scripts of ms-swift: what is written is read back as the same job, for every model that sees."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.base.library import hub_names, library_files
from ilp_planner.formats.captured.reader import read_any_launch
from ilp_planner.formats.exported import Expected
from ilp_planner.formats.exports import EXPORTS, Runtime, export_job
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.swift import export_swift
from ilp_planner.spaces.training.enumerate.unfit import misfits
from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.specs.lengths import FULL, GROUPED, JOINED, LONGEST, PACKED, Lengths
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from ilp_planner.specs.tuning import BRIDGE_TARGETS, Tuning

FULLY = Recompute(granularity="full", method="uniform", layers=1)


def seeing() -> dict[str, Decoder]:
    """Return the library's models with encoders, by their names."""
    found = {}
    for path in library_files("models"):
        model = as_decoder(read_model(path).architecture)
        if model is not None and model.encoders:
            found[path.stem] = model
    return found


MODELS = seeing()
AHEAD = {  # models that predict several words
    path.stem: model
    for path in library_files("models")
    if (model := as_decoder(read_model(path).architecture)) and model.prediction_layers
}
SPARSE = {
    path.stem: model
    for path in library_files("models")
    if (model := as_decoder(read_model(path).architecture)) and model.sparse
}
POOLED = {name for name, model in AHEAD.items() if model.compressed}
REFUSED = {"llava-1.5-7b", "qwen2-audio-7b", "voxtral-mini-3b"}  # ms-swift's Megatron has none


def of_transformers(model: Decoder, *, recomputed: bool = False) -> Decoder:
    """Return a model with encoders as ms-swift has them."""
    seen, heard = model.encoder, model.sounds
    own = {"whole": True, "recomputed": recomputed}
    return replace(
        model,
        encoder=seen and replace(seen, as_decoder=False, **own),
        sounds=heard and replace(heard, **own),
    )


def job_of(model: Decoder, **changes: Any) -> TrainingJob:
    """Return a job with settings as ms-swift has them where nothing is said."""
    settings = Settings(
        optimizer=OptimizerSettings(sharding="optimizer"),
        kernels=Kernels(
            fused_loss=True, loss_kernel="native", grouped_experts=bool(model.experts),
            dispatcher="alltoall",
        ),
    )  # fmt: skip
    shape = {"micro_batch": 1, "global_batch": 16, "tp": 1, "pp": 1, "dp": 8}
    own = {name: changes.pop(name) for name in (*shape,) if name in changes}
    settings = replace(settings, **changes)
    return TrainingJob(model=model, settings=settings, **(shape | own))


def read_back(job: TrainingJob, name: str, folder: Path) -> TrainingJob:
    hub = next(hub for hub, path in hub_names().items() if path.stem == name)
    text = export_swift(job, "run", Expected(model=hub)).files[".sh"]
    file = folder / "run.sh"
    file.write_text(text)
    return job_of_arguments(read_any_launch(file))


CASES: list[dict[str, Any]] = [
    {},
    {"tp": 2, "dp": 4, "sequence_parallel": True, "recompute": FULLY},
    {"pp": 2, "dp": 4, "tuning": Tuning(frozen=("encoder", "projector"))},
    {"tuning": Tuning(frozen=("encoder",)), "recompute": FULLY},
    {"tuning": Tuning(rank=8, targets=BRIDGE_TARGETS, dropout=0.05)},
    {"tuning": "language"},
]


@pytest.mark.few(20)
@pytest.mark.parametrize("name", sorted({*MODELS} - REFUSED))
@pytest.mark.parametrize("number", range(len(CASES)))
def test_what_is_written_is_read_back_as_the_same_job(
    name: str, number: int, tmp_path: Path
) -> None:
    changes = dict(CASES[number])
    model = MODELS[name]
    if changes.get("tuning") == "language":
        parts = ("embedding", f"layers:0-{model.layers - 1}", "norms", "output")
        changes["tuning"] = Tuning(frozen=parts)
    if changes.get("tuning", Tuning()).rank and model.experts:
        targets = (*BRIDGE_TARGETS, "experts.linear_fc1", "experts.linear_fc2")
        changes["tuning"] = replace(changes["tuning"], targets=targets)
    trains = not changes.get("tuning", Tuning()).rank
    trains = trains and "encoder" not in changes.get("tuning", Tuning()).frozen
    for recomputed in (False, True)[: 1 + trains]:
        job = job_of(of_transformers(model, recomputed=recomputed), **changes)
        found = read_back(job, name, tmp_path)
        assert found.model.encoder == job.model.encoder
        assert found.model.sounds == job.model.sounds
        assert found.model == job.model
        frozen = {*found.settings.tuning.frozen}
        assert frozen == {*job.settings.tuning.frozen}
        tuning = replace(found.settings.tuning, frozen=job.settings.tuning.frozen)
        assert found.expert_tp == job.expert_tp
        own = replace(job.settings, vocab_multiple=1, etp=found.settings.etp)  # as it has them
        assert replace(found.settings, tuning=tuning, carried=()) == own
        for field in ("micro_batch", "global_batch", "tp", "pp", "dp", "layout"):
            assert getattr(found, field) == getattr(job, field), field


@pytest.mark.parametrize("name", sorted({*AHEAD} - {*SPARSE} - {*POOLED}))
def test_layers_of_multi_token_prediction_are_said_and_no_others_counted(
    name: str, tmp_path: Path
) -> None:
    for layers in (AHEAD[name].prediction_layers, 0):
        model = replace(AHEAD[name], prediction_layers=layers)
        job = job_of(of_transformers(model) if model.encoders else model)
        if [*misfits(model)]:  # of Megatron-LM, whatever the arguments
            with pytest.raises(SpecError):
                export_swift(job, "run", Expected(model=name))
            continue
        text = export_swift(job, "run", Expected(model=name)).files[".sh"]
        assert (f"--mtp_num_layers {layers}" in text) == bool(layers)
        assert ("--mtp_num_layers" in text) == bool(layers)
        (tmp_path / "run.sh").write_text(text)
        found = job_of_arguments(read_any_launch(tmp_path / "run.sh"))
        assert found.model.prediction_layers == layers
        assert found.layout == job.layout


@pytest.mark.parametrize("name", sorted(SPARSE))
def test_attention_to_chosen_keys_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"^model.sparse: found \d+ keys that an indexer chooses"):
        export_swift(job_of(SPARSE[name]), "run", Expected(model=name))
    words = f"NPROC_PER_NODE=8 megatron sft --model {name} --max_length 1024"
    for more, loss in (
        ("", None),
        ("--apply_dsa_kernel_fusion false", None),
        ("--apply_dsa_kernel_fusion true", "none"),
        (
            "--apply_dsa_kernel_fusion true --dsa_indexer_loss_coeff 0.01 "
            "--dsa_indexer_use_sparse_loss true",
            "sparse",
        ),
    ):
        (tmp_path / "run.sh").write_text(f"{words} {more}\n")
        if loss is None:
            with pytest.raises(SpecError, match=r"apply_dsa_kernel_fusion: found .*expected true"):
                read_any_launch(tmp_path / "run.sh")
            continue
        args = read_any_launch(tmp_path / "run.sh")
        sparse = job_of_arguments(args).model.sparse
        assert sparse == replace(SPARSE[name].sparse, loss=loss)
        assert "counted as TileLang's" in " ".join(args.remarks)


def test_every_model_that_sees_is_written_or_refused_by_name() -> None:
    assert {*MODELS} > REFUSED
    for name in REFUSED:
        with pytest.raises(PlanError, match=r"^model: found one that hears alone, or LLaVA"):
            export_swift(job_of(of_transformers(MODELS[name])), "run")


@pytest.mark.parametrize(
    ("batching", "words"),
    [
        (PACKED, "--packing true"),
        (LONGEST, "--padding_free false"),
        (GROUPED, "--group_by_length true"),
        (JOINED, None),
        (FULL, None),
    ],
)
def test_samples_are_made_as_planned_or_refused(batching: str, words: str | None) -> None:
    model = replace(MODELS["qwen2-vl-2b"], encoder=None)
    lengths = Lengths(lengths=(64, 256), counts=(2, 1), batching=batching)
    job = job_of(replace(model, lengths=lengths))
    if words is None:
        with pytest.raises(PlanError, match=f"batching: found {batching}, but swift@4 is written"):
            export_job(Runtime("swift", "4"), job, "run", Expected())
        return
    assert words in export_job(Runtime("swift", "4"), job, "run", Expected()).files[".sh"]


@pytest.mark.parametrize(
    ("changes", "own", "what"),
    [
        ({"tp": 2, "dp": 4}, {"whole": False}, r"model.encoder.whole: found False"),
        ({"cp": 2, "dp": 4}, {"cp_divided": True}, r"model.encoder.cp_divided: found True"),
        ({"encoder_recompute": "core"}, {}, r"settings.encoder_recompute: found core"),
        ({"tuning": Tuning(frozen=("embedding",))}, {}, r"settings.tuning.frozen: found embedding"),
        (
            {"tuning": Tuning(rank=8, targets=("experts.linear_fc1",))},
            {},
            r"settings.tuning.targets: found experts.linear_fc1",
        ),
        ({"tuning": Tuning(rank=8, base="nf4")}, {}, r"settings.tuning: found nf4"),
    ],
)
def test_what_it_does_not_run_is_refused_by_name(
    changes: dict[str, Any], own: dict[str, Any], what: str
) -> None:
    model = of_transformers(MODELS["qwen2.5-vl-7b"])
    model = replace(model, encoder=replace(model.encoder, **own))
    with pytest.raises(PlanError, match=what):
        export_swift(job_of(model, **changes), "run")


@pytest.mark.parametrize(
    "system", [name for name, rows in EXPORTS.items() if not any(r.sees for r in rows.values())]
)
def test_other_systems_are_written_for_text_alone(system: str) -> None:
    runtime = Runtime(system, next(iter(EXPORTS[system])))
    with pytest.raises(PlanError, match=r"model.encoder: found images .*; .*`swift`.* writes it"):
        export_job(runtime, job_of(of_transformers(MODELS["qwen3-vl-4b"])), "run", Expected())
