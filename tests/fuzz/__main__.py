"""`make fuzz COUNT=100000`: hostile inputs for all readers, over all cores.

Input n is made from n alone, so `python -m tests.fuzz --only n` makes it again. Fails with every
input that ended in something else than a value or a message, took more than 5 seconds of a core or
more than 500 MB.
"""

import argparse
import multiprocessing as mp
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.mutations import mutated
from tests.fuzz.readers import READERS, run, seeds

SECONDS, MEMORY = 5, 500 * 10**6
PATIENCE = 60  # seconds of the wall clock without any news: a call that no signal ends


def made(number: int) -> tuple[str, bytes]:
    """Return the reader and the input of a number."""
    draw = random.Random(number)
    name = list(READERS)[number % len(READERS)]
    known = seeds(name)
    return name, mutated(draw.choice(known), draw.choice(known), draw)


def outcome(number: int) -> tuple[str, str]:
    """Return the reader, and what became of the input of a number."""
    name, data = made(number)
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return name, run(name, data)
    except TimeoutError:
        return name, f"took more than {SECONDS} s"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError


def _work(first: int, stop: int, step: int, at: Any, pipe: Any) -> None:
    """Try every `step`th input, and say what is wrong and, at the end, how many were what."""
    import numpy as np  # what a reader needs is not its own
    import pandas as pd

    assert np, pd
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
    counts: Counter[tuple[str, str]] = Counter()
    for number in range(first, stop, step):
        at.value = number
        name, what = outcome(number)
        if what not in ("read", "refused"):
            pipe.send((number, name, what))
            what = "failed"
        counts[name, what] += 1
    pipe.send(counts)


def _watched(first: int, stop: int, step: int, found: Any) -> None:
    """Let a process work; where it dies or hangs, say at what and begin another behind it."""
    while first < stop:
        at = mp.Value("q", first)
        mine, theirs = mp.Pipe(duplex=False)
        worker = mp.Process(target=_work, args=(first, stop, step, at, theirs))
        worker.start()
        theirs.close()
        ended, last, since = False, first, time.monotonic()
        while worker.is_alive() or mine.poll():
            if mine.poll(0.5):
                try:
                    news = mine.recv()
                except EOFError:
                    break
                ended = ended or isinstance(news, Counter)
                found.put(news)
            if at.value != last:
                last, since = at.value, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                worker.kill()
        worker.join()
        if ended:
            return
        found.put((at.value, made(at.value)[0], f"ended its process ({worker.exitcode})"))
        first = at.value + step


def fuzz(count: int, workers: int, first: int = 0) -> list[tuple[int, str, str]]:
    """Try so many inputs; return those that failed, and print how many were read and refused."""
    found: Any = mp.Queue()
    begun = time.monotonic()
    watchers = [
        mp.Process(target=_watched, args=(first + k, first + count, workers, found))
        for k in range(workers)
    ]
    for watcher in watchers:
        watcher.start()
    failed, counts = [], Counter()
    while any(watcher.is_alive() for watcher in watchers) or not found.empty():
        try:
            news = found.get(timeout=0.5)
        except Exception:
            continue
        if isinstance(news, Counter):
            counts += news
        else:
            failed.append(news)
            print(*news, flush=True)
    wall = time.monotonic() - begun
    for name in READERS:
        row = [counts[name, what] for what in ("read", "refused", "failed")]
        print(f"{name:16} {row[0]:8} read {row[1]:8} refused {row[2]:4} failed")
    print(f"{count} inputs in {wall:.0f} s, {count / wall:.0f} a second on {workers} processes")
    return failed


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args()
    if asked.only is not None:
        name, data = made(asked.only)
        print(name, data[:2000], outcome(asked.only))
        return
    sys.exit(bool(fuzz(asked.count, asked.workers, asked.first)))


if __name__ == "__main__":
    main()
