"""The ranks that measure links on one machine: their start through torchrun's launcher, and the
program of each of them, `python -m` this module SETTINGS."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import sys
import tempfile
import threading
import time
import uuid
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import MeasureError, PlannerError
from ilp_planner.profiler.measure.links_plan import settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.profiler.measure.links_plan import LinkSettings


# ---- launch --------------------------------------------------------------------------------------


RANK_MODULE = "ilp_planner.profiler.measure.links_rank"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
SHUTDOWN_SECONDS = 5
AT_ONCE = 2  # seconds, in which the others notice that a rank has died
# More threads than cores, one set per rank, would be measured too; and what a lost connection looks
# like to the C++ side is of no help to a user.
FOR_RANKS = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
LAUNCHER = "torch.distributed.elastic"  # each of its modules has a logger with a level of its own


def under_torchrun() -> bool:
    """Return whether this process is one of several that were started together."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def launch_links(settings: LinkSettings, processes: int) -> None:
    """Measure with so many processes of this machine; none is left when this returns or raises.

    Raises
    ------
    MeasureError: the message of the first failed rank, or how it died.
    KeyboardInterrupt: Ctrl-C; the ranks are gone by then.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    with _quiet(), tempfile.TemporaryDirectory() as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=str(uuid.uuid4()),
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            monitor_interval=0.1,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
            shutdown_timeout=SHUTDOWN_SECONDS,
        )
        try:
            elastic_launch(config, entrypoint=sys.executable)("-m", RANK_MODULE, settings.to_json())
        except ChildFailedError as error:
            raise MeasureError(cause_of(error.failures)) from None
        except SignalException as error:
            if error.sigval == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise MeasureError(f"ended by {error.sigval.name}") from None


def cause_of(failures: Mapping[int, Any]) -> str:
    """Return in a line why the ranks failed.

    One that died is the reason why the others lost it, unless it died long after them: then it is
    the launcher that ended it, because it did not answer.

    failures: torch's, by rank.
    """
    told = {r: f for r, f in failures.items() if Path(f.error_file).exists()}
    first = min((f.timestamp for f in told.values()), default=math.inf)
    for rank, failure in failures.items():
        died = failure.exitcode < 0 and -failure.exitcode not in (signal.SIGTERM, signal.SIGINT)
        if died and rank not in told and failure.timestamp <= first + AT_ONCE:
            name = signal.Signals(-failure.exitcode).name
            guess = " (out of memory?)" if name == "SIGKILL" else ""
            return f"rank {rank} died of {name}{guess}"
    if told:
        return str(min(told.items(), key=lambda item: (item[1].timestamp, item[0]))[1].message)
    rank, failure = min(failures.items(), key=lambda item: (item[1].exitcode < 0, item[0]))
    return f"rank {rank} ended with exit code {failure.exitcode}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the launcher's own words and signal handlers from staying with us."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith(LAUNCHER)]
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    unsaid = {name: value for name, value in FOR_RANKS.items() if not os.environ.get(name)}
    os.environ.update(unsaid)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for name in unsaid:
            del os.environ[name]


# ---- a rank --------------------------------------------------------------------------------------
# Errors are left for the launcher, so that a user reads them once and not from every rank.


ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # torch.distributed.elastic gives every rank one


def main() -> None:
    """Measure, and leave with a code."""
    from ilp_planner.profiler.measure.links import measure_links

    # At once, also from within a collective, where Python is not asked.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    warnings.filterwarnings("ignore")
    try:
        measure_links(settings_of(sys.argv[1]))
    except PlannerError as error:
        _report(str(error))
    except Exception as error:
        _report(f"this is a bug in ilp-plan: {type(error).__name__}: {error}")


def _report(message: str) -> None:
    path = os.environ.get(ERROR_FILE)
    if path:
        Path(path).write_text(json.dumps({"message": message, "timestamp": int(time.time())}))
    # What PyTorch would tidy up may wait for a rank that is gone.
    os._exit(1)


def _leave_with(parent: int) -> None:
    """End this process when the one that started it has ended, however that was."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main()
