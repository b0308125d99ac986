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


def variables_of_task(
    words: Sequence[str], file: Path | None, environment: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the variables of the first task that a launcher starts.

    words: of the launcher alone. file: that it starts, if it is one. environment: around it, which
    holds for numbers that nothing else says.
    """
    name = name_of(words[0])
    if name not in BY_NAME and name not in SLURM:
        return {}
    slurm = name in SLURM
    found: dict[str, str] = {}
    if name == "sbatch":
        from ilp_planner.formats.megatron.script import sbatch_variables

        text = file.read_text(errors="replace") if file else ""
        # What the line says comes first, and counts.
        found = sbatch_variables(f"#SBATCH {' '.join(words[1:])}\n{text}")
        found["SLURM_JOB_ID"] = "1"
    else:
        found = dict.fromkeys(RANKS[slurm], "0")
        try:
            (said, *_) = numbers_of(words, environment, open_text, no_hosts)
        except SpecError:
            return found
        numbers = {number: getattr(said, number) for number in NUMBERS[slurm]}
        nodes, each = said.nodes, said.each
        if numbers["all"] is None and isinstance(nodes, int) and isinstance(each, int):
            numbers["all"] = nodes * each
        for number, value in numbers.items():
            if isinstance(value, int):
                found |= dict.fromkeys(NUMBERS[slurm][number], str(value))
    return {name: shlex.quote(v) for name, v in found.items() if re.fullmatch(r"\w+", name)}
