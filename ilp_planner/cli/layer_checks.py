"""Which options of whole layers go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.errors import UsageError

if TYPE_CHECKING:
    from ilp_planner.cli.layer_files import LayerFiles

NEED_SIZES = ("metis", "table")  # profiles that may not say the sizes of their model
# Options that say something of layers only, by the field of the inputs.
LAYER_OPTIONS = {
    "memory_rule": "--memory-rule",
    "placement": "--placement",
    "experiment": "--experiment",
    "max_tp": "--max-tp",
    "max_cp": "--max-cp",
    "hidden": "--hidden-size",
    "sequence": "--sequence-length",
    "vocabulary": "--vocab-size",
}


def check_options(files: LayerFiles) -> None:
    """Refuse options that do not go together.

    Raises
    ------
    UsageError: names one.
    """
    asked, named = files.asked, files.asked.files
    if "cluster" in named and ("hostfile" in named or "clusterfile" in named):
        other = "--hostfile" if "hostfile" in named else "--clusterfile"
        raise UsageError(f"{other}: found --cluster too, expected one description of a cluster")
    if files.kind == "amp" and "clusterfile" in named:
        raise UsageError(
            "--clusterfile: found an amp:FILE, which says what its nodes are, expected only "
            "--hostfile"
        )
    if files.kind != "amp" and ("hostfile" in named) != ("clusterfile" in named):
        given, missing = "--hostfile", "--clusterfile"
        if "clusterfile" in named:
            given, missing = missing, given
        raise UsageError(f"{given}: expected {missing} beside it, found none")
    if asked.max_cp is not None and asked.space != "megatron":
        raise UsageError(f"--max-cp: expected --runtime megatron, found {asked.max_cp}")
    if asked.experiment and files.kind != "amp":
        raise UsageError(f"--experiment: expected --profile amp:FILE, found {files.named}")
    if files.kind == "aceso":
        raise UsageError(
            f"--profile: found {files.named}, expected FILE.csv, metis:FOLDER, amp:FILE or "
            "analytic to plan whole layers"
        )
    if asked.cost_model == "aceso":
        raise UsageError(
            f"--cost-model aceso: found whole layers to plan ({files.named}), expected "
            "--cost-model native; or operators: --profile aceso:FOLDER or analytic, equal devices, "
            "no --space, a model of family gpt, t5 or resnet"
        )
    for name in ("hidden", "sequence", "vocabulary"):
        if getattr(asked, name) is not None and files.kind not in NEED_SIZES:
            raise UsageError(
                f"{LAYER_OPTIONS[name]}: expected --profile metis:FOLDER or FILE.csv, which "
                f"may not say it, found {files.named}"
            )


def refuse_model(files: LayerFiles) -> None:
    """Refuse a model beside one of AMP's.

    Raises
    ------
    UsageError: there is one.
    """
    if "model" in files.asked.files:
        raise UsageError(
            f"--model: found {files.asked.name('model')}, expected none: the experiment of an "
            "amp:FILE says its model"
        )


def check_megatron_options(files: LayerFiles) -> None:
    """Refuse options that mean nothing where Megatron-LM is planned for.

    Raises
    ------
    UsageError: names one.
    """
    asked = files.asked
    others = {
        "--profile": files.kind if files.kind not in ("analytic", "metis", "table") else "",
        "--cost-model": asked.cost_model if asked.cost_model != "native" else "",
        "--hostfile": asked.name("hostfile") or "",
        "--memory-rule": asked.memory_rule if asked.memory_rule != "device" else "",
        "--placement": asked.placement if asked.placement != "default" else "",
    }
    for option, found in others.items():
        if found:
            raise UsageError(
                f"{option}: found {found} with --runtime megatron, whose times and memory are "
                "its own, expected none"
            )
