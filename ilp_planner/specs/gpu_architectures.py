"""Architectures of GPUs: the features that training systems ask for, each with its source."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuArchitecture:
    """An architecture, by its name.

    vendor: NVIDIA or AMD. bf16: it multiplies in bf16. flash_attention: FlashAttention 2 and the
    fused attention of Transformer Engine run (their installation guides). own_attention:
    Transformer Engine prefers cuDNN's attention to the flash-attention package.
    own_attention_repeats: the backward pass of cuDNN's attention is deterministic
    (`dot_product_attention/utils.py: get_attention_backend`). flash: by version of the
    flash-attention package, FLOP/s of one multiprocessor in the forward pass of long sequences:
    346e12 and 640e12 on the 132 of an H100 (Shah et al. 2024, arXiv 2407.08608, figure 5), 375e12
    on the 148 of a B200 (github.com/meta-pytorch/tritonbench/pull/171), 191e12 on the 170 of an RTX
    5090 (Thien Tran, 'Writing Speed-of-Light Flash Attention for 5090 in CUDA C++', 2025); empty:
    version 2 is the library that was measured. fp8_attention: (rate, tokens) of fused attention in
    8 bits, of that in 16: of long sequences, and so many tokens more for half of it; (0, 0): there
    is none. Fitted to what TensorRT-LLM 1.3.0rc20 takes for both, forward, on H100, H200, B200 and
    GB200 (ai-dynamo/aiconfigurator; `tests/benchmarks/attention_fp8.csv`). fp8_attention_recipes:
    recipes that it goes with (Transformer Engine, `dot_product_attention/utils.py:
    get_attention_backend`). fp8_attention_heads: channels of the heads that it takes; empty: 16 to
    128 (`fused_attn.cpp: nvte_get_fused_attn_backend`). sparse_attention: kernels of latent
    attention to chosen keys have been run (TileLang's example `deepseek_v32`, for Hopper, and
    Megatron-Bridge's recipes of GLM-5 for H100 and GB200). dsa: of FlashMLA's and cuDNN's kernels
    of attention to chosen keys, of all heads on a rank: share of the peak with endlessly many keys,
    rate of the backward pass, of the forward pass's, and keys for half of either. Backward on B200
    within 3 % of 0.560, 1.233, 2.155 and 4.019 ms of 4,096 tokens, 64 heads of 512 channels and 128
    to 2,048 keys (NVIDIA/cudnn-frontend, pull request 318); on Hopper as TileLang's, as nothing
    said it. Forward 1,450 TFLOP/s on B200 and 640 on H800 with 2,048 keys (FlashMLA's README),
    started as the backward pass. deep_ep: DeepEP has kernels (its
    README). recipes: quantised products of Transformer Engine, where the GPU has a peak in their
    format (`quantization.py: check_fp8_support` and its like). either_way: products in 8 bits with
    one scale per tensor read operands by rows or by columns. blas_workspace: bytes of one BLAS
    handle of PyTorch (`CublasHandlePool.cpp: parseChosenWorkspaceSize`). engine_workspace: bytes of
    Transformer Engine (`cpp_extensions/gemm.py: get_cublas_workspace_size_bytes`). machine: GPU
    whose machine constants are the default (`specs.machine`). taken_for: the architecture whose
    features this one has where no source says its own; empty: none.
    """

    name: str
    vendor: str
    bf16: bool = False
    flash_attention: bool = False
    own_attention: bool = False
    own_attention_repeats: bool = False
    flash: Mapping[int, float] = field(default_factory=dict)
    sparse_attention: bool = False
    dsa: tuple[float, float, float] = (0.0, 0.0, 0.0)
    fp8_attention: tuple[float, float] = (0.0, 0.0)
    fp8_attention_recipes: tuple[str, ...] = ()
    fp8_attention_heads: tuple[int, ...] = ()
    deep_ep: bool = False
    recipes: tuple[str, ...] = ("fp8-delayed", "fp8-current")
    either_way: bool = False
    blas_workspace: float = 8.125 * MIB
    engine_workspace: float = 4.0 * MIB
    machine: str = "A100"
    taken_for: str = ""

    def __hash__(self) -> int:
        """Return the hash of the name: jobs, which are keys of caches, have an architecture."""
        return hash(self.name)

    @property
    def assumed(self) -> str:
        """The remark of results on features that no source says; empty if all are known."""
        if not self.taken_for:
            return ""
        return (
            f"{self.name} is taken for {self.taken_for} where no source says: in attention that "
            "Transformer Engine chooses, copies of quantised weights, and constants of the machine "
            "but for rates of products"
        )


# NVIDIA's: the comments name their compute capabilities (CUDA C++ Programming Guide). Handles have
# 4096 KiB twice and 16 KiB eight times, on Hopper 32 MiB.
KEPLER = GpuArchitecture(name="Kepler", vendor="NVIDIA")  # 3
PASCAL = replace(KEPLER, name="Pascal")  # 6
VOLTA = replace(KEPLER, name="Volta")  # 7.0
TURING = replace(KEPLER, name="Turing")  # 7.5
AMPERE = replace(KEPLER, name="Ampere", bf16=True, flash_attention=True, deep_ep=True)  # 8.0, 8.6
ADA = replace(AMPERE, name="Ada")  # 8.9
HOPPER = replace(  # 9.0
    ADA,
    name="Hopper",
    own_attention=True,
    flash={2: 346e12 / 132, 3: 640e12 / 132},
    fp8_attention=(1.41, 583.0),
    fp8_attention_recipes=("fp8-delayed",),
    fp8_attention_heads=(128,),
    own_attention_repeats=True,
    sparse_attention=True,
    dsa=(0.70, 0.165, 183.0),
    recipes=(*ADA.recipes, "fp8-blockwise"),
    blas_workspace=32.0 * MIB,
    engine_workspace=32.0 * MIB,
    machine="H100",
)
BLACKWELL = replace(  # 10
    HOPPER,
    name="Blackwell",
    own_attention_repeats=False,
    recipes=(*HOPPER.recipes, "mxfp8", "nvfp4"),
    flash={2: 375e12 / 148},
    dsa=(0.70, 0.47, 183.0),
    fp8_attention=(1.22, 106.0),
    fp8_attention_recipes=("fp8-delayed", "fp8-current", "mxfp8"),
    fp8_attention_heads=(),
    either_way=True,
    blas_workspace=AMPERE.blas_workspace,
    machine="B200",
)
RTX_BLACKWELL = replace(  # 12: the largest products of cards are as fast as smaller ones
    BLACKWELL,
    name="RTX Blackwell",
    sparse_attention=False,
    dsa=(0.0, 0.0, 0.0),
    flash={2: 191e12 / 170},
    fp8_attention=(0.0, 0.0),
    fp8_attention_recipes=(),
    recipes=(*HOPPER.recipes, "nvfp4"),
    either_way=False,
    machine="A100",
)
# AMD's: ROCm's ports of PyTorch, Transformer Engine and DeepEP. torch reports compute capability
# 9.4 and 9.5, so programs that ask for the major number alone take them for Hopper.
CDNA_3 = replace(  # gfx942
    HOPPER,
    name="CDNA 3",
    vendor="AMD",
    sparse_attention=False,
    dsa=(0.0, 0.0, 0.0),
    flash={},  # ROCm has no other library
    fp8_attention=(0.0, 0.0),
    fp8_attention_recipes=(),
    fp8_attention_heads=(),
    recipes=ADA.recipes,
    machine="MI300X",
    blas_workspace=128.0 * MIB,
    taken_for="Hopper",
)
CDNA_4 = replace(  # gfx950
    CDNA_3, name="CDNA 4", recipes=(*CDNA_3.recipes, "mxfp8"), engine_workspace=64.0 * MIB
)

# By name, in the order of their introduction.
ARCHITECTURES: Mapping[str, GpuArchitecture] = {
    one.name: one
    for one in (
        KEPLER,
        PASCAL,
        VOLTA,
        TURING,
        AMPERE,
        ADA,
        HOPPER,
        CDNA_3,
        BLACKWELL,
        RTX_BLACKWELL,
        CDNA_4,
    )
}


def oldest(architectures: Iterable[GpuArchitecture]) -> GpuArchitecture:
    """Return the one that was introduced first."""
    return min(architectures, key=list(ARCHITECTURES.values()).index)


def first_with(recipe: str, vendor: str) -> GpuArchitecture | None:
    """Return a vendor's first architecture with a recipe; None if it has none."""
    of_vendor = [one for one in ARCHITECTURES.values() if one.vendor == vendor]
    return next((one for one in of_vendor if recipe in one.recipes), None)
