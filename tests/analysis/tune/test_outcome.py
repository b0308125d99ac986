"""How runs end, by what they print and their status."""

from pathlib import Path

import pytest

from ilp_planner.analysis.tune.outcome import LEAST_NOISE, Status, measured, outcome_of
from ilp_planner.formats.logs.base import LogError
from tests.faces.cli.test_doctor import even, log
from tests.training_jobs import job

JOB = job(tp=2, dp=2, micro_batch=1, global_batch=64)
TWENTY = log([9.0, *even(2.0, 19)])
NO_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
# Text, status (None: ended at the budget), and how the run ended.
ENDS = (
    (TWENTY, 0, Status.MEASURED),
    (TWENTY, 1, Status.MEASURED),  # all its steps were done
    (TWENTY, None, Status.MEASURED),
    (log([2.0] * 7), 0, Status.MEASURED),  # it says itself that this is its end
    (log([2.0] * 7), 1, Status.FAILED),
    (log([2.0] * 7), -11, Status.FAILED),
    (log([2.0] * 7), None, Status.MEASURED),
    (log([2.0] * 3), None, Status.CUT),
    ("", None, Status.CUT),
    ("", 0, Status.FAILED),
    ("usage: pretrain_gpt.py\n", 2, Status.FAILED),
    (NO_MEMORY, 1, Status.MEMORY),
    (log([2.0] * 3) + NO_MEMORY, 1, Status.MEMORY),
    (log([2.0] * 20) + NO_MEMORY, 1, Status.MEMORY),
    (NO_MEMORY, 0, Status.MEMORY),
    (log([2.0] * 20, batch=32), 0, Status.FAILED),  # another job
)


@pytest.mark.parametrize(("text", "status", "ending"), ENDS)
def test_ends(tmp_path: Path, text: str, status: int | None, ending: Status) -> None:
    path = tmp_path / "a.log"
    path.write_text(text)
    found = outcome_of(path, JOB, 20, status)
    assert found.status is ending
    assert bool(found.why) == (ending is not Status.MEASURED)
    if ending is Status.MEASURED:
        assert found.seconds == pytest.approx(2.0, rel=0.02)
        assert found.noise >= LEAST_NOISE
    else:
        assert found.seconds != found.seconds


def test_a_log_that_is_none_of_the_job(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(log([2.0] * 20, batch=32))
    with pytest.raises(LogError, match=r"a\.log: found the log of another job: 32 samples a step"):
        measured(path, JOB)
    said = "\n".join(
        f"  {name} {'.' * 20} {value}"
        for name, value in (
            *(("num_layers", 32), ("hidden_size", 4096), ("num_attention_heads", 32)),
            *(("micro_batch_size", 1), ("world_size", 4), ("seq_length", 8192)),
        )
    )
    path.write_text(f"{said}\n{log([2.0] * 20)}")
    with pytest.raises(LogError, match="found the log of another job: "):
        measured(path, JOB)
