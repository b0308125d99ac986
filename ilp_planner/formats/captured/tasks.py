"""Variables that a launcher sets for the first of its tasks."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.captured.programs import name_of
from ilp_planner.formats.megatron.arguments import no_hosts, open_text
from ilp_planner.formats.megatron.launchers import BY_NAME, numbers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SLURM = ("srun", "sbatch")
# Of Slurm and of MPI: variables of the first task, and of numbers.
RANKS = {
    True: ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"),
    False: ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK"),
}
NUMBERS = {
    True: {
        "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
        "each": ("SLURM_NTASKS_PER_NODE",),
        "all": ("SLURM_NTASKS", "SLURM_NPROCS"),
        "devices": ("SLURM_GPUS_ON_NODE",),
    },
    False: {"all": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"), "each": ("OMPI_COMM_WORLD_LOCAL_SIZE",)},
}


def variables_of_task(words: Sequence[str], file: Path | None) -> Mapping[str, str]:
    """Return the variables of the first task that a launcher starts.

    words: of the launcher alone. file: that it starts, if it is one. Numbers that nothing says stay
    as they are around it.
    """
    name = name_of(words[0])
    if name not in BY_NAME and name not in SLURM:
        return {}
    slurm = name in SLURM
    found: dict[str, str] = {}
    if name == "sbatch":
        from ilp_planner.formats.megatron.script import sbatch_variables

        text = file.read_text(errors="replace") if file else ""
        # What the line says counts before what the script says.
        found = {**sbatch_variables(text), **sbatch_variables(f"#SBATCH {' '.join(words[1:])}")}
        found["SLURM_JOB_ID"] = "1"
    else:
        found = dict.fromkeys(RANKS[slurm], "0")
        try:
            (said, *_) = numbers_of(words, {}, open_text, no_hosts)
        except SpecError:
            return found
        for number, variables in NUMBERS[slurm].items():
            value = getattr(said, number)
            if isinstance(value, int):
                found |= dict.fromkeys(variables, str(value))
    return {name: shlex.quote(v) for name, v in found.items() if re.fullmatch(r"\w+", name)}
