"""The training jobs that PEFT and Hugging Face's Trainer run: replicas alone, by DDP, FSDP or ZeRO.

The limits come from `transformers/trainer.py` 5, `accelerate/utils/dataclasses.py` 1 and
`peft/tuners/lora` 0.21. A base in 4 bits is bitsandbytes', and so are moments in 8 bits or in
pages; where FSDP shares states, those of 8 bits are torchao's (`optim/adam.py` 0.17).
"""

from ilp_planner.settings.rules import peft_rules
from ilp_planner.settings.table import FORMAT_FIELD, LOSS_FIELD
from ilp_planner.settings.values import BY_TRAINER, MOMENTS
from ilp_planner.spaces.runtimes.limits import (
    Unfit,
    check_batch,
    check_loss,
    check_moments,
    check_plain_kernels,
)
from ilp_planner.specs.training import LIGER, Recompute, TrainingJob
from ilp_planner.specs.tuning import PEFT_NAMES

TOOL = "PEFT with the Trainer"
PLAIN = 'moment_format = ""'


def check_peft(job: TrainingJob) -> None:
    """Refuse a job that PEFT and the Trainer cannot run.

    Raises
    ------
    PlanError: the job's field, the limit and the nearest that can be run.
    """
    check_batch(job)
    check_plain_kernels(job, TOOL)
    check_loss(job, TOOL)
    _check_liger(job)
    s, tuning = job.settings, job.settings.tuning
    for field, degree in (
        ("tp", job.tp), ("pp", job.pp), ("settings.cp", s.cp), ("settings.ep", s.ep),
    ):  # fmt: skip
        if degree > 1:
            own = "settings.tuning" if tuning else FORMAT_FIELD
            if not tuning and s.kernels.chunked_loss:
                own = LOSS_FIELD
            raise Unfit(field, degree).but(
                f"{own} is of {TOOL}, which has replicas alone", f"{field} = 1"
            )
    if s.quantised:
        raise Unfit("settings.kernels.quantised", s.kernels.quantised).but(
            f"{TOOL} has no products in 8 or 4 bits; a base in 4 bits is multiplied in "
            f"{s.precision}",
            'quantised = ""',
        )
    if s.precision != "bf16":
        raise Unfit("settings.precision", s.precision).but(
            f"the script for {TOOL} trains in bf16", "precision = bf16"
        )
    for target in tuning.targets:
        if target not in PEFT_NAMES:
            raise Unfit("settings.tuning.targets", target).but(
                f"{TOOL} has the names of Hugging Face", f"some of {', '.join(PEFT_NAMES)}"
            )
    for name, broken in peft_rules(job.model, tuning):
        raise Unfit(f"settings.{name}", broken.have).but(f"{TOOL} has others", broken.limit)
    if s.optimizer.instances > 1:
        raise Unfit("settings.optimizer.instances", s.optimizer.instances).but(
            f"the script for {TOOL} shards over all replicas", "instances = 1"
        )
    _check_moments(job)
    check_checkpoints(s.recompute)


def _check_liger(job: TrainingJob) -> None:
    """Refuse Liger's loss for models of kinds that it has none of (`transformers/monkey_patch.py:
    MODEL_TYPE_TO_APPLY_LIGER_FN`, 2026): the Trainer runs them without it."""
    model = job.model
    lacks = {
        "latent attention": model.latent,
        "Mamba-2": model.mamba,
        "attention beside the MLP": model.parallel_norms,
        "learnt positions": model.positions == "learned",
    }
    kind = next((what for what, has in lacks.items() if has), "")
    if kind and job.settings.kernels.chunked_loss:
        raise Unfit(LOSS_FIELD, LIGER).but(
            f"Liger has it for no model with {kind}", "fused_loss = false"
        )


def optimizer_name(job: TrainingJob) -> str:
    """Return the name that the Trainer has for a job's optimizer (`training_args.py:
    OptimizerNames`): torchao's where FSDP shares states, else bitsandbytes'."""
    o = job.settings.optimizer
    if not (o.blockwise or o.paged):
        return "adamw_torch_fused"
    if o.paged:
        return "paged_adamw_8bit" if o.blockwise else "paged_adamw_32bit"
    return "adamw_torch_8bit" if o.by_fsdp else "adamw_8bit"


def _check_moments(job: TrainingJob) -> None:
    """Refuse moments that neither bitsandbytes nor torchao has for a job."""
    o, kind = job.settings.optimizer, MOMENTS.read(job.settings)
    check_moments(job, TOOL)
    if kind not in BY_TRAINER:
        return
    if not o.name.startswith("adam"):
        raise Unfit(FORMAT_FIELD, kind).but(f"it is of Adam, not of {o.name}", PLAIN)
    if o.offload:
        raise Unfit(FORMAT_FIELD, kind).but("states stepped on the host are of fp32", PLAIN)
    if o.paged and o.by_fsdp:
        raise Unfit(FORMAT_FIELD, kind).but(
            "bitsandbytes steps no shards of FSDP, and torchao, which does, has no pages",
            "moment_format = 8bit, or sharding = none",
        )


def check_checkpoints(r: Recompute) -> None:
    """Refuse a recomputation that PEFT and the Trainer cannot run.

    Raises
    ------
    PlanError: the field, the limit and the nearest that can be run.
    """
    if r.granularity == "selective" or (r.granularity == "full" and r.method != "uniform"):
        raise Unfit("settings.recompute", str(r)).but(
            f"{TOOL} recomputes every layer or none", "granularity = full"
        )
    if r.layers > 1:
        raise Unfit("settings.recompute.layers", r.layers).but(
            f"{TOOL} keeps the input of every layer", "layers = 1"
        )
