"""The Python module that makes a model known to torchtitan (release 0.2.2)."""

from ilp_planner.spaces.runtimes.torchtitan_models import TOOL, Arguments, TitanModel

CLASSES = {
    "llama3": "TransformerModelArgs",
    "qwen3": "Qwen3ModelArgs",
    "deepseek_v3": "DeepSeekV3ModelArgs",
}


def model_module(model: TitanModel, identifier: str) -> str:
    """Return the Python module that registers a model with torchtitan."""
    names = CLASSES[model.name]
    values = dict(model.arguments)
    experts = values.pop("moe_args", None)
    if (ffn := values.pop("ffn", None)) is not None:
        values |= _llama_width(int(str(values["dim"])), int(str(ffn)))
    lines = [f"    {key}={value!r},\n" for key, value in values.items()]
    imports = [
        f"from torchtitan.models.{model.name} import {names}, get_train_spec\n",
        "from torchtitan.protocols.train_spec import register_train_spec\n",
    ]
    if isinstance(experts, dict):
        imports.insert(1, "from torchtitan.models.moe import MoEArgs\n")
        inner = {**experts, "score_func": "softmax", "route_norm": True}
        inner["score_before_experts"] = False
        lines.append(
            f"    moe_args=MoEArgs({', '.join(f'{k}={v!r}' for k, v in inner.items())}),\n"
        )
    return (
        f'"""The model of a plan, for {TOOL}; imported through experimental.custom_import."""\n\n'
        "from dataclasses import replace\n\n"
        f"{''.join(imports)}\n"
        f"PLANNED = {names}(\n{''.join(lines)})\n\n"
        f"register_train_spec({identifier!r}, "
        'replace(get_train_spec(), model_args={"planned": PLANNED}))\n'
    )


def _llama_width(dim: int, ffn: int) -> Arguments:
    """Return the values that make llama3's `FeedForward` exactly so wide.

    It takes 2/3 of 4 dim times the multiplier, rounded down and then up to a multiple.
    """
    return {"ffn_dim_multiplier": ffn / int(8 * dim / 3), "multiple_of": ffn}
