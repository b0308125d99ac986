"""Parameters of public models to the unit, and what their architectures are."""

import json
from dataclasses import replace

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.formats.megatron.arguments import (
    arguments_of_job,
    job_of_arguments,
    read_arguments,
)
from ilp_planner.formats.megatron.model_features import unsaid
from ilp_planner.job.decoder import rank_modules
from ilp_planner.job.work import layer_work
from ilp_planner.spaces.training.enumerate.unfit import misfits
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.hugging_face.reader import FAMILIES, HYBRIDS, read_config
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.parameter_count import parameter_count
from ilp_planner.specs.training import Settings, TrainingJob
from tests.examples import for_each
from tests.specs.hugging_face.published import PUBLISHED, document


@for_each("name", PUBLISHED)
def test_parameters(name):
    assert parameter_count(read_config(document(name))) == PUBLISHED[name][1]


def test_every_family_is_among_them():
    seen = {values["model_type"] for values, _ in PUBLISHED.values()}
    # Those that are counted as their parents; hybrids have a file of their own.
    assert set(FAMILIES) - seen - {*HYBRIDS} == {"ministral", "ministral3", "olmo3"}


@for_each("name", PUBLISHED)
def test_modules_hold_what_the_model_has(name):
    """One rank holds everything; layers of multi-token prediction come on top."""
    spec = read_config(document(name))
    assert isinstance(spec.architecture, Decoder)
    model = replace(spec.architecture, prediction_layers=0)
    job = TrainingJob(
        model=model,
        micro_batch=1,
        global_batch=1,
        tp=1,
        pp=1,
        dp=1,
        settings=Settings(vocab_multiple=1),
    )
    assert sum(module.parameters for module in rank_modules(job, 0)) == PUBLISHED[name][1]
    assert sum(module.activations for module in rank_modules(job, 0)) > 0
    for experts in set(model.expert_layers):
        work = [kernel for module in layer_work(job, kind=experts) for kernel in module.forward]
        assert all(kernel.flops >= 0 and kernel.traffic >= 0 for kernel in work)


@for_each("name", PUBLISHED)
def test_megatron_s_arguments_say_the_model_or_it_is_refused(name):
    model = read_config(document(name)).architecture
    job = TrainingJob(model=model, micro_batch=1, global_batch=1, tp=1, pp=1, dp=1)
    if list(misfits(model)):
        with pytest.raises(SpecError, match="Megatron-LM has no other"):
            arguments_of_job(job)
        return
    args = arguments_of_job(job)
    again = job_of_arguments(read_arguments(args.argv, 1))
    if unsaid(model):
        assert again.model != model
        return
    assert again.model == model


@for_each("name", {"deepseek-v3.2": "deepseek-ai/DeepSeek-V3.2", "glm5": "zai-org/GLM-5"})
def test_models_with_an_indexer_are_their_configurations(name):
    hub = {"deepseek-v3.2": "deepseek-ai/DeepSeek-V3.2", "glm5": "zai-org/GLM-5"}[name]
    model = read_model(f"models/{name}.toml")
    assert model.architecture == read_config(document(hub)).architecture


def test_layers_of_glm_5_2_share_keys():
    """As many parameters as NVIDIA's card of it says, with an indexer in 21 of 78 layers."""
    shares = {"index_topk_freq": 4, "index_skip_topk_offset": 3, "rope_theta": 8000000}
    shared = [*"FFF", *"SSSF" * 18, *"SSS"]
    types = [{"F": "full", "S": "shared"}[one] for one in shared]
    values = PUBLISHED["zai-org/GLM-5"][0] | shares | {"indexer_types": types}
    found = read_config(Document("config.json", json.dumps(values)))
    assert found.architecture == read_model("models/glm5.2.toml").architecture
    assert parameter_count(found) == 743_377_000_704
    assert sum(not one for one in found.architecture.sparse.follows(78)) == 21
