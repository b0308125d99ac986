"""ChatLearn's overrides of an RL job: the policy's trainer, which Megatron-Core trains."""

from __future__ import annotations

from ilp_planner.formats.imported.rows import RECENT, Says, only, override
from ilp_planner.formats.imported.table import MODEL, TOKENS, WORLD, Reading, System
from ilp_planner.settings.table import SEQUENCE

TRAINER = "models.policy_trainer"


def _finish(reading: Reading) -> None:
    """Say what packs of tokens are."""
    if reading.given.get(f"{TRAINER}.packing") is True and TOKENS in reading.said:
        reading.said.pop("micro_batch_size", None)
    else:
        reading.said.pop(TOKENS, None)


ROWS: dict[str, Says] = {
    "models.policy.load": MODEL,
    f"{TRAINER}.num_gpu": WORLD,
    "runtime_args.train_backend": only("megatron", otherwise="megatron, whose trainer is read"),
    "runtime_args.train_global_batch_size": "global_batch_size",
    "runtime_args.train_micro_batch_size": "micro_batch_size",
    f"{TRAINER}.packing": only(True, False),
    f"{TRAINER}.max_token_in_packing": TOKENS,
}

SYSTEM = System(
    name="ChatLearn",
    rows=ROWS,
    same=(f"{TRAINER}.",),
    aside=(
        "--*", "runtime_args.*", "models.policy.*", "models.reward.*", "models.ref_policy.*",
        f"{TRAINER}.generation_batch_size", f"{TRAINER}.load", f"{TRAINER}.optimizer.*",
        f"{TRAINER}.*clip_ratio", f"{TRAINER}.use_group_sequence_policy", "runtime_env*",
    ),
    usual={
        **RECENT,
        SEQUENCE: True,
        "bf16": True,
        "use_distributed_optimizer": True,
    },
    notes=(
        "of an RL job the trainer alone is judged: rollout engine, reference model and "
        "log-probabilities are not counted",
    ),
    finish=_finish,
    form=override,
    launched=True,
)  # fmt: skip
