"""The planner's verdict on arguments against that of Megatron-Core's configuration."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.repairs import CONFIG
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.formats.megatron.values import MegatronArguments
from ilp_planner.specs.training import TrainingJob
from tests.examples import examples
from tests.runtimes.megatron_core import section_of_arguments, transformer_config
from tests.training_jobs import deepseek, gpt, job, llama
from tests.training_jobs import settings as usual

pytestmark = pytest.mark.filterwarnings("ignore")
BASES = {
    "llama": job(),
    "gpt": job(gpt(), layout=None),
    "experts": job(deepseek(), pp=2, layout=None, settings=usual(ep=2)),
    "interleaved": job(llama(layers=16), pp=2, layout=None),
    "one rank": job(tp=1, pp=1, dp=1, settings=usual(sequence_parallel=False), layout=None),
}
# argument -> values that Megatron's configuration may or may not take
CHANGES: dict[str, list[Any]] = {
    "num_attention_heads": [1, 2, 3, 6, 7, 15, 16],
    "num_query_groups": [1, 2, 3, 5, 8, 16],
    "group_query_attention": [True, False],
    "kv_channels": [8, 16, 33],
    "recompute_granularity": ["full", "selective"],
    "recompute_method": ["uniform", "block"],
    "recompute_num_layers": [1, 2, 3],
    "recompute_modules": [("core_attn",), ("mlp", "layernorm"), ("mla_up_proj",), ("moe_act",)],
    "distribute_saved_activations": [True],
    "decoder_first_pipeline_num_layers": [0, 1, 2, 4],
    "decoder_last_pipeline_num_layers": [1, 2, 3],
    "account_for_embedding_in_pipeline_split": [True],
    "account_for_loss_in_pipeline_split": [True],
    "pipeline_model_parallel_layout": ["Ett|tt|tt|ttL", "Etttt|ttttL", "Etttt|tttL",
     "E|tttt|tttt|L", "Ettt|tt|tttL", "tttt|EttttL"],
    "moe_grouped_gemm": [True],
    "moe_layer_freq": [2, (0, 1), (1, 0, 1, 0, 1, 0, 1, 0)],
    "moe_expert_capacity_factor": [1.0],
    "moe_pad_expert_input_to_capacity": [True],
    "moe_token_dispatcher_type": ["allgather", "alltoall"],
    "sequence_parallel": [True, False],
    "fp16": [True],
    "cpu_offloading_num_layers": [1],
    "tensor_model_parallel_size": [1, 2],
}  # fmt: skip


@st.composite
def changed(draw: st.DrawFn) -> tuple[TrainingJob, MegatronArguments]:
    """Draw the arguments of a good job with a few of them changed."""
    case = BASES[draw(st.sampled_from(sorted(BASES)))]
    args = arguments_of_job(case)
    values = dict(args.values)
    for key in draw(st.lists(st.sampled_from(sorted(CHANGES)), max_size=3, unique=True)):
        values[key] = draw(st.sampled_from(CHANGES[key]))
    return case, dataclasses.replace(args, values=values)


def megatrons_reason(case: TrainingJob, args: MegatronArguments) -> str:
    """Return why Megatron's configuration refuses the arguments; empty: it takes them."""
    section = section_of_arguments(case, args)
    if args.on("fp16"):
        section["bf16"] = args.on("bf16")
    try:
        transformer_config(case, section, bf16=args.on("bf16"), fp16=args.on("fp16"))
    except (ValueError, AssertionError) as error:
        return str(error) or type(error).__name__
    return ""


@examples(150)
@given(changed())
def test_what_megatron_refuses_the_planner_refuses(
    pair: tuple[TrainingJob, MegatronArguments],
) -> None:
    case, args = pair
    reason = megatrons_reason(case, args)
    findings = check_arguments(args)
    refused = [finding for finding in findings if finding.rejected]
    if reason:
        assert refused, f"Megatron: {reason}"
    assert reason or not [f for f in refused if f.stage == CONFIG]
