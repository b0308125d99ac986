"""Arguments of earlier releases, of Megatron-DeepSpeed and of forks, in the words of today.

Arguments with an equivalent are read as that; others are kept word for word, with a remark that
names the uncounted ones.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import as_whole
from ilp_planner.formats.megatron.flag_table import REMOVED
from ilp_planner.formats.megatron.flags import Flag, find_flag, flag_of, flags
from ilp_planner.formats.megatron.values import take_values
from ilp_planner.settings.table import CP_COMM

# Of these topics no value counts, but for those named below.
FREE_TOPICS = ("data", "checkpoints", "logging", "inference", "training", "retrieval")
COUNTED = {
    "tokenizer-type", "vocab-size", "padded-vocab-size", "vocab-extra-ids", "no-pad-vocab-size",
    "disable-pad-vocab-size", "sft", "use-varlen-dataset", "vision-pretraining",
    "micro-batch-size", "global-batch-size", "batch-size", "rampup-batch-size",
    "step-batch-size-schedule", "decrease-batch-size-if-needed", "optimizer", "freeze-all-layers",
    "use-checkpoint-args", "use-mp-args-from-checkpoint-args", "ckpt-format",
    "no-create-attention-mask-in-dataloader", "perform-rl-step", "muon-tp-mode",
    "calculate-per-token-loss", "no-check-for-nan-in-loss-and-grad", "data-parallel-random-init",
    "hidden-dropout", "attention-dropout", "moe-expert-capacity-factor",
    "moe-expert-rank-capacity-factor", "moe-paged-stash-buffer-size-factor-cuda",
    "moe-paged-stash-buffer-size-factor-cpu", "optimizer-offload-fraction",
    "activation-offload-fraction",
}  # fmt: skip
FREE = {
    "rotary-base", "yarn-original-max-position-embeddings", "original-max-position-embeddings",
    "distributed-timeout-minutes", "distributed-timeout-seconds-after-init", "local-rank",
    "hysteresis", "fp8-interval", "fp8-amax-history-len", "nccl-communicator-config-path",
    "config-logger-dir", "flight-recorder-dump-path", "flight-recorder-trace-buffer-size",
    "tp-comm-overlap-cfg", "distributed-backend",
}  # fmt: skip


def is_free(flag: Flag) -> bool:
    """Whether memory and time are the same for any value of an argument: paths, names, learning
    rates, seeds, and numbers that only scale values."""
    if flag.name in COUNTED:
        return False
    return flag.name in FREE or flag.topic in FREE_TOPICS or flag.kind == "float"


# Who has one of these is a script of Megatron-DeepSpeed.
OF_DEEPSPEED = (
    "deepspeed", "deepspeed_config", "deepspeed-config", "zero-stage", "deepspeed-activation-"
    "checkpointing", "deepspeed_mpi", "gas", "moe-expert-parallel-size", "mlp-type",
    "ds-sequence-parallel-size", "no-pipeline-parallel",
)  # fmt: skip
# Who has one of these is from before kernels of Transformer Engine.
OF_2021 = (
    "checkpoint-activations", "checkpoint-num-layers", "activations-checkpoint-method",
    "activations-checkpoint-num-layers", "DDP-impl", "data-impl", "scaled-upper-triang-masked-"
    "softmax-fusion", "batch-size", "model-parallel-size", "pipe-parallel-size",
)  # fmt: skip
RENAMED = {
    "o-groups": "output-projection-groups",
    "o-lora-rank": "output-projection-lora-rank",
    "batch-size": "micro-batch-size",
    "model-parallel-size": "tensor-model-parallel-size",
    "pipe-parallel-size": "pipeline-model-parallel-size",
    "warmup": "lr-warmup-fraction",
    "checkpoint-num-layers": "recompute-num-layers",
    "activations-checkpoint-num-layers": "recompute-num-layers",
    "distribute-checkpointed-activations": "distribute-saved-activations",
    "tokenizer-name-or-path": "tokenizer-model",
    "pad-vocab-size-to": "padded-vocab-size",
    "lr-decay-ratio": "lr-decay-iters",
    "fp32-allreduce": "accumulate-allreduce-grads-in-fp32",
    "use-custom-fsdp": "use-megatron-fsdp",
    "moe-use-legacy-grouped-gemm": "moe-grouped-gemm",
    "moe-expert-parallel-size": "expert-model-parallel-size",
    "moe-train-capacity-factor": "moe-expert-capacity-factor",
    "topk": "moe-router-topk",
    **dict.fromkeys(
        ("use-flash-attn-v1", "use-flash-attn-v2", "use-flash-attn-triton"), "use-flash-attn"
    ),
    "distributed-timeout": "distributed-timeout-minutes",
}
# Values by argument: what they are called today.
VALUES = {
    "tokenizer-type": {"PretrainedFromHF": "HuggingFaceTokenizer"},
    "position-embedding-type": {"rotary": "rope", "absolute": "learned_absolute"},
}
FIXED = {
    "fp8-hybrid": ("--fp8-format", "hybrid"),
    "fp8-e4m3": ("--fp8-format", "e4m3"),
}
# What is not counted of arguments that have no likeness today.
LOST = {
    "embed-layernorm": "the norm behind the embedding, 2 x hidden-size parameters",
    "use-bnb-optimizer": "8-bit optimizer states; counted as 4-byte ones",
    "partition-activations": "saved activations divided over tensor-parallel ranks; counted whole",
    "checkpoint-in-cpu": "saved activations in the host's memory; counted on the device",
    "curriculum-learning": "shorter samples at the beginning; counted as full ones",
    "mup": "other learning rates; memory and time are the same",
    "enable-zero-bubble": "the zero-bubble schedule; counted as 1F1B",
    "zero-bubble-v-schedule": "the V schedule; counted as 1F1B",
    "cpu-offload": "optimizer states or activations in the host's memory; counted on the device",
    "allow-padding-num-layers": "empty layers that fill up stages",
    "recompute-lgd": "recomputation of norms, gates and dropouts; counted as kept",
    "offload-continuous-buffers": "buffers in the host's memory",
    **dict.fromkeys(
        ("disable-vision-class-token", "vision-tower", "patch-size"),
        "an encoder of images, whose decoder alone is judged",
    ),
    "ds-sequence-parallel-fpdt": "attention in pieces of the sequence; counted whole",
    "remote-device": "parameters elsewhere; counted on the device",
    "compression-training": "pruned or narrower parameters; counted whole",
    "kd": "the teacher of a distillation",
}
UNFUSED = "attention and other modules of before 2022; read as --transformer-impl local"


@dataclass(frozen=True, slots=True)
class Today:
    """A launch line in today's words.

    remarks: on arguments that were read as something else, or not at all. unread: arguments that
    there are none for, word for word. micro_batches: per replica, if the line says them instead of
    samples; 0: it does not.
    """

    words: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    micro_batches: int = 0


@dataclass(slots=True)
class _Line:
    """A launch line while it is read."""

    words: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    quiet: list[str] = field(default_factory=list)
    micro_batches: int = 0

    def read_as(self, flag: str, given: Sequence[str], *words: str, but: str = "") -> None:
        """Read an argument as others."""
        self.words += words
        what = f"read as {' '.join(words)}" if words else "left out"
        self.remarks.append(f"{' '.join((flag, *given))}: {what}{f': {but}' if but else ''}")


# Earlier arguments that functions of their own read, and an argument of today with such a value.
ALIKE = {"ds-sequence-parallel-size": "context-parallel-size", "zero-stage": "num-layers"}


def likeness(name: str) -> Flag | None:
    """Return the argument of today that takes the same kind of value as one of this name; None:
    there is none."""
    return flags().get(name) or flags().get(RENAMED.get(name) or ALIKE.get(name, ""))


def in_todays_words(words: Sequence[str]) -> Today:
    """Return a line as today's Megatron-LM would be told it."""
    rest, line = list(words), _Line()
    names = [word[2:].partition("=")[0] for word in words if word.startswith("--")]
    special_ones = SPECIAL | (FORKED if {*OF_DEEPSPEED} & {*names} else {})
    while rest:
        word = rest.pop(0)
        name, equals, inside = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            line.words.append(word)
            continue
        given = [inside] if equals else []
        special = special_ones.get(name)
        flag = flags().get(name)
        if special is None and flag is not None and name not in RENAMED:
            given = given or take_values(rest, flag.most)
            wanted = [VALUES.get(name, {}).get(value, value) for value in given]
            if wanted != given:
                line.read_as(f"--{name}", given, f"--{name}", *wanted)
            else:
                line.words += [word] if equals else [word, *given]
            continue
        given = given or take_values(rest, None)
        if special is not None:
            special(line, f"--{name}", given)
        else:
            _other(line, name, given)
    _dialect(line, names)
    names_of = ", ".join(line.quiet)
    quiet = [f"{names_of}: not read: Megatron-LM has no such argument"] if line.quiet else []
    return Today(tuple(line.words), (*line.remarks, *quiet), tuple(line.unread), line.micro_batches)


def is_early(words: Sequence[str]) -> bool:
    """Whether unknown arguments are those of an earlier Megatron."""
    names = {word[2:].partition("=")[0] for word in words if word.startswith("--")}
    return bool(names & {*OF_DEEPSPEED, *OF_2021, *REMOVED, *SPECIAL})


def _dialect(line: _Line, names: Sequence[str]) -> None:
    """Say the Megatron of a line, and add its implicit arguments."""
    deepspeed = next((name for name in names if name in OF_DEEPSPEED), "")
    if deepspeed:
        line.remarks.insert(
            0,
            f"a line of Megatron-DeepSpeed (--{deepspeed}): read as far as it means the same in "
            "Megatron-LM",
        )
        if "bf16" in names and "--use-distributed-optimizer" not in line.words:
            line.words.append("--use-distributed-optimizer")
            line.remarks.append(
                "--bf16 under DeepSpeed: read as --use-distributed-optimizer: its BF16 optimizer "
                "divides states over replicas at --zero-stage 0 too"
            )
    early = next((name for name in names if name in OF_2021), "")
    own = {"transformer-impl", "use-flash-attn", "use-mcore-models", "attention-backend"}
    if (early or deepspeed) and not own & set(names):
        line.words += ["--transformer-impl", "local"]
        line.remarks.append(f"--{early or deepspeed}: of {UNFUSED}")
    if deepspeed and "--num-experts" in line.words:
        _experts_needed(line)
    if early or deepspeed:
        _positions_needed(line)
        _ramp_left_out(line)
    if "--recompute-num-layers" in line.words and "--recompute-granularity" not in line.words:
        at = line.words.index("--recompute-num-layers")
        del line.words[at : at + 2]


def _experts_needed(line: _Line) -> None:
    """Add the defaults of Megatron-DeepSpeed: experts in every second layer, one of them for each
    token, and a capacity factor of 1."""
    usual = {
        "--moe-router-topk": ("1", "--moe-router-pre-softmax"),
        "--moe-layer-freq": ("2",),
        "--moe-expert-capacity-factor": ("1.0",),
    }
    added = [(flag, *values) for flag, values in usual.items() if flag not in line.words]
    line.words += [word for words in added for word in words]
    if added:
        shown = " ".join(word for words in added for word in words)
        line.remarks.append(f"--num-experts under DeepSpeed: read with its defaults: {shown}")
    at = line.words.index("--moe-router-topk")
    if line.words[at + 1 : at + 2] == ["1"] and "--moe-router-pre-softmax" not in line.words:
        line.words.append("--moe-router-pre-softmax")


def _positions_needed(line: _Line) -> None:
    """Add the positions that earlier releases did not ask for without learned ones."""
    words = line.words
    if "--max-position-embeddings" in words or "--seq-length" not in words[:-1]:
        return
    length = words[words.index("--seq-length") + 1]
    line.words += ["--max-position-embeddings", length]
    line.remarks.append(f"--max-position-embeddings: found none, read as {length}, --seq-length")


def _ramp_left_out(line: _Line) -> None:
    """Leave out a growing batch; earlier releases did not check its steps."""
    if "--rampup-batch-size" in line.words:
        at = line.words.index("--rampup-batch-size")
        line.unread += line.words[at : at + 4]
        del line.words[at : at + 4]
        line.remarks.append(
            "--rampup-batch-size: not counted: smaller batches at the beginning; counted as "
            "--global-batch-size"
        )


def _other(line: _Line, name: str, given: list[str]) -> None:
    """Read an argument that there is none for under this name."""
    flag = f"--{name}"
    if name in FIXED:
        line.read_as(flag, given, *FIXED[name])
    elif RENAMED.get(name):
        line.read_as(flag, given, f"--{RENAMED[name]}", *given)
    elif name in REMOVED:
        line.unread += [flag, *given]
        line.remarks.append(f"{flag}: not read: Megatron-LM has no such argument any more")
    else:
        line.unread += [flag, *given]
        lost = LOST.get(name)
        if lost:
            line.remarks.append(f"{flag}: not counted: {lost}")
            return
        try:
            find_flag(flag)
        except SpecError as error:
            near = re.search(r"did you mean (--[\w-]+)\?", str(error))
            known = flags()[near[1][2:]] if near and near[1][2:] in flags() else None
            if known is not None and not is_free(known):
                line.remarks.append(
                    f"{flag}: not read: Megatron-LM has no such argument, did you mean {near[1]}?"
                    if near
                    else flag
                )
            else:
                line.quiet.append(flag)


def _checkpoint(line: _Line, flag: str, given: list[str]) -> None:
    words = ("--recompute-granularity", "full", "--recompute-method", "uniform")
    line.read_as(flag, given, *words)
    if not any("recompute-num-layers" in word for word in line.words):
        line.words += ["--recompute-num-layers", "1"]


def _checkpoint_method(line: _Line, flag: str, given: list[str]) -> None:
    line.read_as(flag, given, "--recompute-granularity", "full", "--recompute-method", *given[:1])
    if not any("recompute-num-layers" in word for word in line.words):
        line.words += ["--recompute-num-layers", "1"]


def _zero(line: _Line, flag: str, given: list[str]) -> None:
    stage = given[0] if given else ""
    if stage == "0":
        line.quiet.append(flag)
        line.unread += [flag, *given]
    elif stage == "1":
        line.read_as(flag, given, "--use-distributed-optimizer")
    elif stage in SHARDED:
        line.read_as(
            flag,
            given,
            *("--use-distributed-optimizer", "--use-megatron-fsdp"),
            *("--data-parallel-sharding-strategy", SHARDED[stage]),
            *("--ckpt-format", "fsdp_dtensor", "--no-gradient-accumulation-fusion"),
        )
    else:
        line.unread += [flag, *given]
        line.remarks.append(f"{flag}: not read: found {stage!r}, expected 0, 1, 2 or 3")


# Stage of ZeRO -> what replicas share besides the optimizer's states.
SHARDED = {"2": "optim_grads", "3": "optim_grads_params"}


def _on_the_host(line: _Line, flag: str, given: list[str]) -> None:
    words = ("--optimizer-cpu-offload", "--use-precision-aware-optimizer")
    line.read_as(flag, given, *words, "--use-distributed-optimizer")


def _ulysses(line: _Line, flag: str, given: list[str]) -> None:
    line.read_as(flag, given, "--context-parallel-size", *given[:1], flag_of(CP_COMM), "a2a")


def _experts(line: _Line, flag: str, given: list[str]) -> None:
    if len({*given}) > 1:
        raise SpecError(
            f"{flag}: found {' '.join(given)}, expected one number: layers with different numbers "
            "of experts are not modelled"
        )
    if given[:1] == ["1"]:
        line.quiet.append(flag)
    else:
        line.words += [flag, *given[:1]]


def _interval(line: _Line, flag: str, given: list[str]) -> None:
    line.read_as(flag, given, "--moe-layer-freq", *given[:1])


def _kind_of_mlp(line: _Line, flag: str, given: list[str]) -> None:
    if given != ["standard"]:
        raise SpecError(
            f"{flag}: found {' '.join(given)}, expected standard: an MLP beside the experts of "
            "every layer is not modelled"
        )
    line.quiet.append(flag)


def _norm(line: _Line, flag: str, given: list[str]) -> None:
    today = [{"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}.get(one, one) for one in given]
    line.words += [flag, *today]


def _gas(line: _Line, flag: str, given: list[str]) -> None:
    if given and given[0].isdecimal() and as_whole(given[0]):
        line.micro_batches = as_whole(given[0])
        line.remarks.append(f"{flag} {given[0]}: read as so many micro-batches per replica")
    else:
        line.unread += [flag, *given]


def _gated(line: _Line, flag: str, given: list[str]) -> None:
    kind = given[0] if given else ""
    line.read_as(flag, given, "--swiglu", but="" if kind == "swiglu" else "as large, as fast")


def _positions(line: _Line, flag: str, given: list[str]) -> None:
    if given == ["alibi"]:
        line.read_as(
            flag, given, flag, "none", but="ALiBi has no parameters; its slopes are not counted"
        )
        return
    today = [VALUES["position-embedding-type"].get(value, value) for value in given]
    if today != given:
        line.read_as(flag, given, flag, *today)
    else:
        line.words += [flag, *given]


def _partition(line: _Line, flag: str, given: list[str]) -> None:
    if given == ["type:transformer|embedding"]:
        line.read_as(
            flag,
            given,
            "--account-for-embedding-in-pipeline-split",
            "--account-for-loss-in-pipeline-split",
        )
    elif given == ["type:transformer"]:
        line.quiet.append(flag)
        line.unread += [flag, *given]
    else:
        line.unread += [flag, *given]
        line.remarks.append(f"{flag} {' '.join(given)}: not counted: counted as equal stages")


SPECIAL: dict[str, Callable[[_Line, str, list[str]], None]] = {
    "checkpoint-activations": _checkpoint,
    "activations-checkpoint-method": _checkpoint_method,
    "zero-stage": _zero,
    "gas": _gas,
    "glu-activation": _gated,
    "position-embedding-type": _positions,
    "pp-partition-method": _partition,
    "ds-sequence-parallel-size": _ulysses,
    "cpu-optimizer": _on_the_host,
}
# Arguments of Megatron-DeepSpeed that take other values than in Megatron-LM.
FORKED: dict[str, Callable[[_Line, str, list[str]], None]] = {
    "num-experts": _experts,
    "expert-interval": _interval,
    "mlp-type": _kind_of_mlp,
    "normalization": _norm,
}
