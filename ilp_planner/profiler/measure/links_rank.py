"""One of the processes that `links_launch` starts: `python -m` this module SETTINGS.

Errors are left for the launcher, so that a user reads them once and not from every rank.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

from ilp_planner.base.errors import PlannerError
from ilp_planner.profiler.measure.links import measure_links
from ilp_planner.profiler.measure.links_plan import settings_of

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # torch.distributed.elastic gives every rank one


def main() -> None:
    """Measure, and leave with a code."""
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
