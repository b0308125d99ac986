"""What Megatron-Core itself builds for a rank of a job: its layers and parameters.

The model is built on the meta device by one process that takes itself for that rank, so that no
device and no memory is needed.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from ilp_planner.formats.megatron.flags import flags_by_key
from ilp_planner.formats.megatron.values import MegatronArguments
from ilp_planner.specs.training import TrainingJob

torch = pytest.importorskip("torch", reason="needs the extra 'runtimes': torch")
pytest.importorskip("megatron.core", reason="needs the extra 'runtimes': megatron-core")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says that Apex and Transformer Engine are missing
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_decoder_block_spec,
        get_gpt_decoder_layer_specs,
        get_gpt_mtp_block_spec,
    )
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
    from torch.testing._internal.distributed.fake_pg import FakeStore

# of `GPTModelProvider`, beyond the transformer's configuration
OF_THE_MODEL = {
    "seq_length", "vocab_size", "should_pad_vocab", "make_vocab_size_divisible_by",
    "share_embeddings_and_output_weights", "position_embedding_type", "rotary_base",
    "rotary_percent",
}  # fmt: skip
# what needs a GPU or a package that is not there, and changes no parameter
WITHOUT_GPU = {
    "sequence_parallel": False,
    "gradient_accumulation_fusion": False,
    "bias_dropout_fusion": False,
    "bias_activation_fusion": False,
    "cross_entropy_loss_fusion": False,
    "moe_permute_fusion": False,
    "distribute_saved_activations": False,
    "use_cpu_initialization": True,
    "perform_initialization": False,
}


class NoCoreAttention(torch.nn.Module):
    """In place of the product with the scores, which has no parameters.

    Megatron's own takes neither latent attention nor context parallelism, Transformer Engine's
    needs a GPU.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


class Duplicated(torch.nn.Module):
    """In place of Transformer Engine's `Linear`, of which every rank has all rows."""

    def __init__(self, inner: int, outer: int, *, parallel_mode: str, **_: Any) -> None:
        super().__init__()
        assert parallel_mode == "duplicated"
        self.weight = torch.nn.Parameter(torch.empty(outer, inner))


def config_class(job: TrainingJob) -> type[Any]:
    """Return the configuration that the job's attention takes."""
    return MLATransformerConfig if job.model.latent else TransformerConfig


def transformer_config(job: TrainingJob, section: dict[str, Any], **changes: Any) -> Any:
    """Return Megatron's configuration of the exported values, checked by Megatron."""
    known = {field.name for field in dataclasses.fields(config_class(job))}
    unknown = set(section) - known - OF_THE_MODEL
    assert not unknown, f"no fields of {config_class(job).__name__}: {sorted(unknown)}"
    values = {key: value for key, value in section.items() if key in known}
    silu, gelu = torch.nn.functional.silu, torch.nn.functional.gelu
    values["activation_func"] = silu if job.model.gated else gelu
    values |= {"bf16": True, "params_dtype": torch.bfloat16, "pipeline_dtype": torch.bfloat16}
    return config_class(job)(**{**values, **changes})


def section_of_arguments(job: TrainingJob, args: MegatronArguments) -> dict[str, Any]:
    """Return the configuration that Megatron-LM makes of its arguments.

    A field has the value of the argument of its name (`core_transformer_config_from_args` in
    `megatron/training/arguments.py`), but for those below.
    """
    keys = flags_by_key()
    names = {field.name for field in dataclasses.fields(config_class(job))}
    section = {key: args[key] for key in names & set(keys) if args[key] is not None}
    section = {k: list(v) if isinstance(v, tuple) else v for k, v in section.items()}
    del section["attention_backend"]  # an enumeration there, and no matter here
    gated = args.on("swiglu")
    fused = args.on("bias_swiglu_fusion")
    if not gated:  # `validate_args` turns it off without biases
        fused = args.on("bias_gelu_fusion") and args.on("add_bias_linear")
    section |= {
        "gated_linear_unit": gated,
        "sequence_parallel": args.on("sequence_parallel")
        and args.whole("tensor_model_parallel_size") > 1,
        "num_layers_in_first_pipeline_stage": args["decoder_first_pipeline_num_layers"],
        "num_layers_in_last_pipeline_stage": args["decoder_last_pipeline_num_layers"],
        "cpu_offloading": args.whole("cpu_offloading_num_layers") > 0,
        "apply_rope_fusion": False,  # needs Transformer Engine
        "bias_activation_fusion": fused,
        "num_moe_experts": args["num_experts"],
        "num_query_groups": args["num_query_groups"] if args.on("group_query_attention") else None,
        "virtual_pipeline_model_parallel_size": args["num_virtual_stages_per_pipeline_rank"],
        "share_embeddings_and_output_weights": not args.on("untie_embeddings_and_output_weights"),
        "position_embedding_type": args["position_embedding_type"],
    }
    if job.model.latent:
        section["q_lora_rank"] = args["q_lora_rank"]  # none: the queries are not compressed
    if each := args.whole("num_layers_per_virtual_pipeline_stage"):
        section["virtual_pipeline_model_parallel_size"] = job.model.layers // job.pp // each
    return section


@contextlib.contextmanager
def as_rank(job: TrainingJob, rank: int) -> Iterator[None]:
    """Let this process be a rank of the job."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=job.world)
    try:
        parallel_state.initialize_model_parallel(
            job.tp,
            job.pp,
            virtual_pipeline_model_parallel_size=job.virtual if job.virtual > 1 else None,
            context_parallel_size=job.settings.cp,
            expert_model_parallel_size=job.settings.ep,
            expert_tensor_parallel_size=job.expert_tp,
            create_gloo_process_groups=False,
            order=job.settings.order,
        )
        yield
    finally:
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()


def build_stages(
    job: TrainingJob, section: dict[str, Any], monkeypatch: Any, *, duplicated: bool = False
) -> list[Any]:
    """Return the (virtual) stages that Megatron builds for the rank that this process is.

    Parameters
    ----------
    duplicated: latent attention has the first products of Transformer Engine, not of Megatron.
    """
    # a tied embedding and rotary tables go to the GPU, experts have a stream
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, *_, **__: tensor)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    monkeypatch.setattr(torch.cuda, "Stream", lambda *_, **__: None)
    monkeypatch.setattr(multi_latent_attention, "TELinear", Duplicated)
    rotary = {"rope_type": "rope"} if job.model.latent else {}  # Yarn's table is made on the GPU
    config = transformer_config(job, section, **WITHOUT_GPU, **rotary)
    stages = []
    for virtual in range(job.virtual):
        number = virtual if job.virtual > 1 else None
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, vp_stage=number)
        for layer in spec.layer_specs:
            attention = layer.submodules.self_attention.submodules
            attention.core_attention = NoCoreAttention
            if duplicated:
                attention.linear_q_down_proj = attention.linear_kv_down_proj = Duplicated
        prediction = None
        if config.mtp_num_layers:
            # Megatron-LM's gpt_builders.py: where a stage has no layers, like the model's last one
            like = spec
            if not spec.layer_specs:
                like = get_gpt_decoder_layer_specs(config, use_transformer_engine=False)[-1]
                like.submodules.self_attention.submodules.core_attention = NoCoreAttention
            prediction = get_gpt_mtp_block_spec(
                config, like, use_transformer_engine=False, vp_stage=number
            )
        first = parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=number)
        last = parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=number)
        with torch.device("meta"):
            stages.append(
                GPTModel(
                    config,
                    spec,
                    vocab_size=job.padded_vocab,
                    max_sequence_length=job.model.max_position_embeddings,
                    pre_process=first,
                    post_process=last,
                    share_embeddings_and_output_weights=section[
                        "share_embeddings_and_output_weights"
                    ],
                    position_embedding_type=section["position_embedding_type"],
                    mtp_block_spec=prediction,
                    vp_stage=number,
                )
            )
    return stages


def layer_numbers(layout: Any, pp_rank: int, virtual: int) -> list[int]:
    """Return the layers that Megatron's layout gives to a (virtual) stage of a rank."""
    # the layout asks the state of the process whether there are virtual stages
    parallel_state.set_virtual_pipeline_model_parallel_world_size(
        layout.virtual_pipeline_model_parallel_size
    )
    try:
        return layout.get_layer_id_list(pp_rank=pp_rank, vp_stage=virtual)
    finally:
        parallel_state.set_virtual_pipeline_model_parallel_world_size(None)


def megatron_groups() -> dict[str, list[int]]:
    """Return the ranks of every group that this process is in, by the planner's names."""
    ps = parallel_state
    groups = {
        "tp": ps.get_tensor_model_parallel_group(),
        "cp": ps.get_context_parallel_group(),
        "dp": ps.get_data_parallel_group(),
        "dp-cp": ps.get_data_parallel_group(with_context_parallel=True),
        "pp": ps.get_pipeline_model_parallel_group(),
        "ep": ps.get_expert_model_parallel_group(),
        "etp": ps.get_expert_tensor_parallel_group(),
        "edp": ps.get_expert_data_parallel_group(),
        "etp-ep": ps.get_expert_tensor_and_model_parallel_group(),
        "tp-cp": ps.get_tensor_and_context_parallel_group(),
    }
    return {
        name: sorted(torch.distributed.get_process_group_ranks(group))
        for name, group in groups.items()
    }


def shapes(stage: Any) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter by its name."""
    return {name: tuple(tensor.shape) for name, tensor in stage.named_parameters()}
