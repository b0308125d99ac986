"""Training jobs for tests: small ones by hand, and any that a planner could think of."""

from dataclasses import replace
from importlib import import_module
from typing import Any

from hypothesis import strategies as st

from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.inputs.files import find_model
from ilp_planner.specs.decoder import Decoder, Experts, LatentAttention, as_decoder
from ilp_planner.specs.pipeline_layout import LayoutStage, PipelineLayout, split_layout
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from ilp_planner.specs.tuning import BRIDGE_TARGETS, OF_EXPERTS, PEFT_TARGETS, Tuning

LLAMA_LIKE = {
    "gated": True,
    "bias": False,
    "norm": "rmsnorm",
    "positions": "rope",
    "tied": False,
    "dropout": 0.0,
}

ADAPTED = Tuning(rank=8, targets=BRIDGE_TARGETS)
BY_PEFT = Tuning(rank=8, targets=PEFT_TARGETS, adapters="fp32")
# Training of all, of parts, and of adapters beside a base.
TUNINGS = {
    "full": Tuning(),
    "ends frozen": Tuning(frozen=("embedding", "output")),
    "parts frozen": Tuning(frozen=("attention", "norms")),
    "layers frozen": Tuning(frozen=("layers:0-3",)),
    "all but layers": Tuning(frozen=("embedding", "mlp", "output")),
    "adapters": ADAPTED,
    "adapters and a base in 4 bits": replace(ADAPTED, base="nf4"),
    "PEFT": BY_PEFT,
    "PEFT with experts": replace(BY_PEFT, targets=(*PEFT_TARGETS, *OF_EXPERTS)),
    "QLoRA": replace(BY_PEFT, base="nf4"),
}


def decoder_named(name: str) -> Decoder:
    """Return the decoder of a model that ships."""
    model = as_decoder(find_model(name).architecture)
    assert model is not None
    return model


def transformers_config(name: str, model: Decoder) -> Any:
    """Return the configuration of a dense model for transformers. name: ours."""
    kinds = {"qwen2.5": "Qwen2", "qwen3": "Qwen3", "mistral": "Mistral"}
    family = next((own for start, own in kinds.items() if name.startswith(start)), "Llama")
    return getattr(import_module("transformers"), f"{family}Config")(
        vocab_size=model.vocab,
        hidden_size=model.hidden,
        intermediate_size=model.ffn,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        tie_word_embeddings=model.tied,
        **({} if family == "Qwen2" else {"head_dim": model.head}),
    )


def llama(**changes: object) -> Decoder:
    """Return a small Llama."""
    sizes = {
        "layers": 8,
        "hidden": 256,
        "heads": 16,
        "kv_heads": 8,
        "sequence": 512,
        "vocab": 1000,
        "ffn": 704,
    }
    return Decoder(**{**sizes, **LLAMA_LIKE, **changes})


def gpt(**changes: object) -> Decoder:
    """Return a small GPT: learned positions, biases, tied embeddings."""
    sizes = {"layers": 8, "hidden": 256, "heads": 16, "sequence": 512, "vocab": 1000}
    return Decoder(**{**sizes, **changes})


def deepseek(**changes: object) -> Decoder:
    """Return a small model with latent attention and experts after a dense layer."""
    latent = LatentAttention(query_rank=48, key_value_rank=32, key=16, rotary=8, value=16)
    experts = Experts(count=8, top_k=2, ffn=96, shared_ffn=192, dense_first=1)
    return llama(
        **{"latent": latent, "experts": experts, "qk_norm": True, "kv_heads": 16, **changes}
    )


def job(model: Decoder | None = None, **changes: object) -> TrainingJob:
    """Return a job of four stages that all the tools can run."""
    values = {
        "model": model or llama(),
        "micro_batch": 2,
        "global_batch": 64,
        "tp": 2,
        "pp": 4,
        "dp": 2,
        "layout": split_layout([1, 2, 3, 2]) if changes.get("pp", 4) == 4 else None,
        "settings": settings(),
    }
    return TrainingJob(**{**values, **changes})


def settings(**changes: object) -> Settings:
    """Return the usual settings: sequence parallel, distributed optimizer."""
    usual = {"sequence_parallel": True, "optimizer": OptimizerSettings(sharding="optimizer")}
    return Settings(**{**usual, **changes})


@st.composite
def layouts(draw: st.DrawFn, layers: int, pp: int, virtual: int) -> PipelineLayout:
    """Draw which layers each (virtual) stage has; some may have none."""
    stages = pp * virtual
    cuts = sorted(draw(st.lists(st.integers(0, layers), min_size=stages - 1, max_size=stages - 1)))
    ends = [*cuts, layers]
    counts = [end - start for start, end in zip([0, *cuts], ends, strict=True)]
    return PipelineLayout(
        tuple(
            LayoutStage(layers=count, embedding=k == 0, loss=k == stages - 1)
            for k, count in enumerate(counts)
        )
    )


@st.composite
def decoders(draw: st.DrawFn) -> Decoder:
    """Draw an architecture: dense or with experts, grouped, latent or plain attention."""
    heads = draw(st.sampled_from([4, 8]))
    rope = draw(st.booleans())
    latent = None
    if rope and draw(st.integers(0, 3)) == 0:
        latent = LatentAttention(
            query_rank=draw(st.sampled_from([0, 24])),
            key_value_rank=32,
            key=16,
            rotary=8,
            value=draw(st.sampled_from([8, 16])),
        )
    experts = None
    if draw(st.integers(0, 2)) == 0:
        experts = Experts(
            count=draw(st.sampled_from([4, 8])),
            top_k=2,
            ffn=64,
            shared_ffn=draw(st.sampled_from([0, 64, 128])),
            dense_first=draw(st.integers(0, 2)),
            every=draw(st.integers(1, 2)),
        )
    return Decoder(
        layers=draw(st.integers(1, 10)),
        hidden=heads * 16,
        heads=heads,
        kv_heads=heads if latent else draw(st.sampled_from([2, 4, heads])),
        head=0 if latent else draw(st.sampled_from([0, 8, 32])),
        sequence=draw(st.sampled_from([64, 128])),
        vocab=draw(st.integers(100, 2000)),
        ffn=draw(st.sampled_from([128, 160])),
        gated=draw(st.booleans()),
        bias=False if latent or experts else draw(st.booleans()),
        qkv_bias=False if latent else draw(st.booleans()),
        norm=draw(st.sampled_from(["layernorm", "rmsnorm"])),
        positions="rope" if rope else "learned",
        tied=draw(st.booleans()),
        dropout=draw(st.sampled_from([0.0, 0.1])),
        qk_norm=True if latent else draw(st.booleans()),
        latent=latent,
        experts=experts,
    )


@st.composite
def recomputes(draw: st.DrawFn) -> Recompute:
    """Draw what is recomputed."""
    granularity = draw(st.sampled_from(["none", "selective", "full"]))
    if granularity != "full":
        return Recompute(granularity=granularity)
    method = draw(st.sampled_from(["uniform", "block"]))
    return Recompute(granularity="full", method=method, layers=draw(st.integers(1, 3)))


def jobs() -> st.SearchStrategy[TrainingJob]:
    """Draw a job that Megatron can run."""
    return _jobs().filter(lambda case: not check_arguments(arguments_of_job(case)))


@st.composite
def _jobs(draw: st.DrawFn) -> TrainingJob:
    model = draw(decoders())
    tp = draw(st.sampled_from([1, 2]))
    pp = draw(st.integers(1, 4))
    virtual = draw(st.integers(1, 2)) if pp > 1 else 1
    cp = draw(st.sampled_from([1, 2]))
    dp = draw(st.sampled_from([1, 2, 4]))
    ep = 1
    if model.experts:
        ep = draw(st.sampled_from([e for e in (1, 2, 4) if tp * cp * dp % (e * tp) == 0]))
    micro = draw(st.integers(1, 3))
    return TrainingJob(
        model=model,
        micro_batch=micro,
        global_batch=micro * dp * pp * draw(st.integers(1, 3)),
        tp=tp,
        pp=pp,
        dp=dp,
        layout=draw(layouts(model.layers, pp, virtual)),
        settings=Settings(
            cp=cp,
            ep=ep,
            turn=draw(st.sampled_from([0, pp + 1, 2 * pp])) if virtual > 1 else 0,
            overlap_sends=draw(st.booleans()) if virtual > 1 else True,
            sequence_parallel=tp > 1,
            vocab_multiple=draw(st.sampled_from([1, 64, 128])),
            recompute=draw(recomputes()),
            optimizer=OptimizerSettings(sharding=draw(st.sampled_from(["none", "optimizer"]))),
            kernels=Kernels(
                implementation="local",
                attention="unfused",
                dispatcher="alltoall",
                grouped_experts=False,
                accumulation_fusion=False,
            ),
        ),
    )


def without_flag(line: str, flag: str, count: int = 1) -> str:
    """Return a launch line without an argument and so many values behind it."""
    words = line.split()
    at = words.index(flag)
    return " ".join(words[:at] + words[at + 1 + count :])
