"""NVIDIA's own recipes for H100, as training jobs.

Degrees, virtual stages, batches, recomputed modules and layouts are those of NVIDIA's files (both
Apache-2.0): `model_configs_h100.csv` of NVIDIA/NeMo (scripts/performance) and the
`*_workload_base_configs.py` of NVIDIA-NeMo/Megatron-Bridge (scripts/performance/configs), whose
`*_llm_pretrain.py` say dispatchers and overlap. All of them reduce gradients in 16 bits, fuse the
loss, and hide messages of data parallelism. Where embedding and output count as layers (`account_
for_*_in_pipeline_split`), the first and the last virtual stage have one layer less.
"""

from dataclasses import dataclass, replace
from typing import Any

from ilp_planner.faces.api.problem import problem
from ilp_planner.inputs.problem import Problem
from ilp_planner.specs.pipeline_layout import balanced_layout, read_layout
from ilp_planner.specs.training import ORDERS, Recompute, Settings, TrainingJob

GPU = "H100-80GB"
HEADROOM = "8 GiB"
WHOLE = {"sharding": "optimizer"}  # of plans whose ranks hold their parameters: without FSDP
NOTHING = Recompute()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One recipe. model: of the catalogue. batch: samples, one in a micro-batch. precision: as
    `solve` takes it. layout: in Megatron's words; empty: equally many layers in all virtual stages.
    recompute: of which layers' activations. dispatcher: of experts, in Megatron's words.
    overlap_tensor, overlap_experts, overlap_gradients: messages that the recipe hides. published:
    id of the row of `published.rows` that was measured with it; empty for none. source: the file.
    """

    name: str
    model: str
    gpus: int
    batch: int
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    virtual: int = 1
    precision: str = "bf16"
    layout: str = ""
    recompute: Recompute = NOTHING
    dispatcher: str = "alltoall"
    overlap_tensor: bool = False
    overlap_experts: bool = False
    overlap_gradients: bool = True
    published: str = ""
    source: str = "Megatron-Bridge"

    @property
    def dp(self) -> int:
        """Replicas."""
        return self.gpus // (self.tp * self.pp * self.cp)

    @property
    def asked_degrees(self) -> dict[str, str]:
        """Return the constraints of plans that divide the model as the recipe does."""
        return {name: str(getattr(self, name)) for name in ("tp", "pp", "cp", "ep")}

    @property
    def degrees(self) -> str:
        """Return `tp 4, pp 4, cp 2, virtual 5`, and what is computed again."""
        names = ("tp", "pp", "cp", "ep", "virtual")
        parts = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name) > 1]
        again = self.recompute
        parts += [f"recompute {', '.join(again.modules)}"] * bool(again.modules)
        parts += [f"recompute {again.kind} {again.layers}"] * (again.granularity == "full")
        return ", ".join(parts) or "dp only"


def modules(*names: str) -> Recompute:
    """Return the recomputation of some modules."""
    return Recompute(granularity="selective", modules=names)


RECIPES = (
    Recipe(
        name="Llama-3 8B, bf16", model="llama3-8b", gpus=8, batch=128, cp=2,
        published="dgxc-benchmarking-0220",
    ),
    Recipe(
        name="Llama-3 8B, fp8", model="llama3-8b", gpus=8, batch=128, cp=2,
        precision="fp8-delayed", published="dgxc-benchmarking-0225", source="NeMo",
    ),
    Recipe(
        name="Llama-3 8B, fp8, cp 1", model="llama3-8b", gpus=8, batch=128,
        precision="fp8-current",
        recompute=Recompute(granularity="full", method="block", layers=5),
    ),
    Recipe(
        name="Llama-3 70B, bf16", model="llama3-70b", gpus=64, batch=128, tp=4, pp=4, cp=2,
        virtual=5, overlap_tensor=True, published="dgxc-benchmarking-0230",
    ),
    Recipe(
        name="Llama-3 70B, fp8", model="llama3-70b", gpus=64, batch=128, tp=4, pp=4, cp=2,
        virtual=5, precision="fp8-delayed", overlap_tensor=True,
        published="dgxc-benchmarking-0149", source="dgxc-benchmarking",
    ),
    Recipe(
        name="Llama-3 70B, fp8, pp 8", model="llama3-70b", gpus=64, batch=128, tp=4, pp=8,
        virtual=5, precision="fp8-current", overlap_tensor=True,
    ),
    Recipe(
        name="Llama-3 405B, bf16", model="llama3-405b", gpus=1024, batch=512, tp=8, pp=8, cp=2,
        virtual=8, layout="Et|(tt|)*62tL", overlap_tensor=True,
    ),
    Recipe(
        name="Llama-3 405B, fp8", model="llama3-405b", gpus=1024, batch=1536, tp=8, pp=8, cp=2,
        virtual=8, layout="Et|(tt|)*62tL", precision="fp8-current", overlap_tensor=True,
    ),
    Recipe(
        name="Mixtral 8x7B, bf16", model="mixtral-8x7b", gpus=64, batch=256, pp=4, ep=8,
        virtual=8, source="NeMo",
    ),
    Recipe(
        name="Mixtral 8x7B, fp8", model="mixtral-8x7b", gpus=64, batch=256, pp=4, ep=8,
        virtual=8, precision="fp8-delayed", source="NeMo",
    ),
    Recipe(
        name="Qwen3 30B-A3B, fp8", model="qwen3-30b-a3b", gpus=16, batch=1024, ep=16,
        precision="fp8-current", dispatcher="flex", published="Megatron-Bridge-0393",
    ),
    Recipe(
        name="Qwen3 30B-A3B, fp8, pp 2", model="qwen3-30b-a3b", gpus=16, batch=1024, pp=2, ep=8,
        virtual=12, precision="fp8-current", dispatcher="flex", published="Megatron-Bridge-0534",
    ),
    Recipe(
        name="Qwen3 235B-A22B, bf16", model="qwen3-235b-a22b", gpus=256, batch=2048, tp=2, pp=8,
        ep=32, virtual=4, layout="Et*2|(t*3|)*30t*2L", overlap_experts=True,
    ),
    Recipe(
        name="DeepSeek-V3, bf16", model="deepseek-v3-mtp", gpus=1024, batch=8192, pp=8, ep=64,
        virtual=2, layout="Et*4|(t*4|)*14tmL", dispatcher="flex",
        recompute=modules("mla_up_proj", "mlp", "moe"), published="dgxc-benchmarking-0338",
        source="dgxc-benchmarking",
    ),
    Recipe(
        name="DeepSeek-V3, fp8", model="deepseek-v3-mtp", gpus=1024, batch=8192, tp=2, pp=8,
        ep=64, virtual=4, layout="Et|(tt|)*30mL", precision="fp8-current", dispatcher="flex",
        recompute=modules("mla_up_proj", "mlp"), overlap_experts=True, overlap_gradients=False,
        published="Megatron-Bridge-0633",
    ),
    Recipe(
        name="GPT-OSS 120B, bf16", model="gpt-oss-120b", gpus=64, batch=1280, pp=4, ep=8,
        recompute=modules("layernorm", "moe_act"),
    ),
)  # fmt: skip


def usual_problem(recipe: Recipe, **constraints: Any) -> Problem[Any]:
    """Return what `solve` makes of a recipe's model, GPUs, batch and precision."""
    return problem(
        recipe.model,
        gpus=f"{recipe.gpus}x{GPU}",
        global_batch=recipe.batch,
        precision=recipe.precision,
        space="megatron",
        **constraints,
    )


def same_problem(recipe: Recipe, **constraints: Any) -> Problem[Any]:
    """Return the same where every plan has the widths, kernels and overlap of the recipe, wherever
    these decide something."""
    asked = {
        "gradients": "bf16",
        "overlap": "data" if recipe.overlap_gradients else "none",
        "tensor_overlap": _switch(recipe.overlap_tensor),
    }
    if recipe.ep > 1:
        asked |= {
            "expert_overlap": _switch(recipe.overlap_experts),
            "dispatcher": recipe.dispatcher,
            "fused_permute": "on",
        }
    return usual_problem(recipe, **asked, **constraints)


def _switch(on: bool) -> str:
    return "on" if on else "off"


def settings_of(recipe: Recipe, usual: Settings, loss: str) -> Settings:
    """Return the planner's usual settings with what a recipe says otherwise.

    loss: whose kernel; recipes take Transformer Engine's, `te`, a search Megatron's own, `native`.
    """
    experts = recipe.ep > 1
    kernels = replace(usual.kernels, fused_loss=True, loss_kernel=loss, fused_permute=experts)
    if experts:
        kernels = replace(kernels, dispatcher=recipe.dispatcher)
    optimizer = replace(
        usual.optimizer,
        gradient=2,
        overlap_gradients=recipe.overlap_gradients,
        overlap_parameters=True,
    )
    return replace(
        usual,
        kernels=kernels,
        optimizer=optimizer,
        overlap_tensor=recipe.overlap_tensor,
        overlap_experts=recipe.overlap_experts,
    )


def job_of(recipe: Recipe, among: Problem[Any], loss: str = "te") -> TrainingJob:
    """Return the recipe's job. among: `same_problem`. loss: as in `settings_of`."""
    model = among.costs.model
    experts = model.experts is not None
    stages = recipe.pp * recipe.virtual
    if recipe.layout:
        layout = read_layout(recipe.layout)
    else:
        layout = balanced_layout(model.layers, stages, prediction_layers=model.prediction_layers)
    return TrainingJob(
        model=model,
        micro_batch=1,
        global_batch=recipe.batch,
        tp=recipe.tp,
        pp=recipe.pp,
        dp=recipe.dp,
        layout=layout,
        settings=replace(
            settings_of(recipe, among.costs.settings, loss),
            cp=recipe.cp,
            ep=recipe.ep,
            etp=1 if experts else 0,
            sequence_parallel=recipe.tp > 1,
            recompute=recipe.recompute,
            order=ORDERS[0],
        ),
    )
