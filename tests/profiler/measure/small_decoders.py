"""Models that are measured in milliseconds, one for each thing that a shard can have."""

from dataclasses import replace

from ilp_planner.specs.decoder import Decoder, Experts, LatentAttention
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.model import ModelSpec
from tests.training_jobs import LLAMA_LIKE

GPT = Gpt(layers=3, hidden=32, heads=4, sequence=16, vocab=512)
PLAIN = Decoder(layers=3, hidden=32, heads=4, sequence=16, vocab=500, dropout=0.0)
LLAMA = Decoder(
    layers=3, hidden=32, heads=4, kv_heads=2, ffn=64, sequence=16, vocab=500, **LLAMA_LIKE
)
QWEN = replace(LLAMA, qk_norm=True, qkv_bias=True)
MIXED = replace(LLAMA, layers=4, experts=Experts(count=4, top_k=2, ffn=16, dense_first=1))
SHARED = replace(PLAIN, norm="rmsnorm", experts=Experts(count=4, top_k=2, ffn=16, shared_ffn=32))
LATENT = replace(
    LLAMA,
    kv_heads=0,
    qk_norm=True,
    latent=LatentAttention(key_value_rank=12, key=8, rotary=4, value=8, query_rank=10),
)
AHEAD = replace(LLAMA, prediction_layers=2)
DEEPSEEK = replace(
    LATENT, layers=4, prediction_layers=1, experts=replace(MIXED.experts, shared_ffn=16)
)
DECODERS = {"plain": PLAIN, "llama": LLAMA, "qwen": QWEN, "mixed": MIXED, "shared": SHARED}
DECODERS |= {"latent": LATENT, "ahead": AHEAD, "deepseek": DEEPSEEK}


def spec(architecture=GPT, precision="fp32"):
    return ModelSpec(name="small", precision=precision, architecture=architecture)
