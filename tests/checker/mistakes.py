"""Seeded mistakes of the planner, and what the checker says of the claims that they make false.

python -m tests.checker mistakes SPACE FIRST COUNT

A mistake is a mutant of a function in `costs/`, `optimize/` or `spaces/` that a search of the space
enters (`tests.mutants.mutations`). A fresh process has it in place of the function, plans small
instances, and writes files; another process, without it, judges these by enumeration and asks the
checker. Kernels run as plain Python, so that they have mutants as well.
"""

import multiprocessing as mp
import os
import random
import signal
import sys
from collections import Counter
from importlib import import_module
from typing import Any

from tests.mutants.modules import ROOT, Module
from tests.mutants.mutations import Mutation, mutated, mutations
from tests.mutants.patching import patched
from tests.mutants.running import bounded, end, quiet, uncompiled

Record = dict[str, Any]
SEED = 37
FOLDERS = ("costs", "optimize", "spaces")
BOUNDS = "/bounds/"  # in `optimize` and `spaces`: a folder of its own
POOL, TRIED = 24, 6  # instances, and those of them that a mutant plans, at most
PATIENCE = 40  # CPU seconds of them together
LOOKED = 5  # instances whose search tells what is entered
FORK = mp.get_context("fork")
NOT_NOTICED = ("another set said", "believed", "missed")


def mistakes(space: str, first: int, count: int) -> Record:
    """Return how the files of so many mutants end: by outcome their number, and those that the
    checker does not refuse by name.

    This process imports the planner, and plans nothing, so that no fork finds what another kept.
    """
    uncompiled()
    import_module("tests.checker.claims")
    judge = _Process(_judge)
    every = judge.ask("entered", space)
    found: Counter[str] = Counter()
    named = []
    for n in range(first, first + count):
        path, number, mutation, seeds = drawn(every, space, n)
        said = _outcome(judge, space, Module(path, whole=True), number, seeds)
        found[said] += 1
        if said in NOT_NOTICED:
            named.append([n, said, f"{path}:{number}", mutation.function, mutation.text])
    judge.end()
    return {**found, "named": named}


def drawn(every: list[Any], space: str, n: int) -> tuple[str, int, Mutation, list[int]]:
    """Return the n-th mutant of a space, of each folder as many, and the seeds of its instances."""
    chosen = random.Random(f"{SEED} {space} {n}")
    folders: dict[str, list[Any]] = {}
    for one in every:
        folders.setdefault(BOUNDS if BOUNDS in one[0] else one[0].partition("/")[0], []).append(one)
    path, number, mutation = chosen.choice(folders[chosen.choice(sorted(folders))])
    return path, number, mutation, chosen.sample(range(POOL), TRIED)


def _outcome(judge: "_Process", space: str, module: Module, number: int, seeds: list[int]) -> str:
    """Return what becomes of a mutant: of its first false file, or that it has none."""
    asked = [(seed, judge.ask("limits_of", space, seed)) for seed in seeds]
    process = _Process(_plan, module, number, space, asked)
    said = "true"
    for seed in seeds:
        record = process.next()
        if not isinstance(record, dict):
            said = "no file"  # it fails, hangs or dies
            break
        said = judge.ask("outcome", space, seed, record)
        if said != "true":
            break
    process.end()
    return str(said)


class _Process:
    """A fork that sends answers, None once it has died."""

    def __init__(self, work: Any, *words: Any) -> None:
        self.mine, theirs = FORK.Pipe()
        self.process = FORK.Process(target=work, args=(theirs, *words))
        self.process.start()
        theirs.close()

    def ask(self, *words: Any) -> Any:
        """Send words; return the answer.

        Raises
        ------
        RuntimeError: the process has died.
        """
        self.mine.send(words)
        answer = self.next()
        if answer is None:
            raise RuntimeError(f"no answer to {str(words)[:2000]}")
        return answer

    def next(self) -> Any:
        """Return the next answer."""
        try:
            return self.mine.recv()
        except EOFError:
            return None

    def end(self) -> None:
        """End it."""
        self.mine.close()
        end(self.process)


def _plan(pipe: Any, module: Module, number: int, space: str, asked: list[Any]) -> None:
    """Send the file of every instance, as a mutant writes it."""
    from tests.checker.claims import claim_of

    quiet()
    bounded()
    signal.signal(signal.SIGPROF, lambda *_: os._exit(1))
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.alarm(10 * PATIENCE)
    source = module.file.read_text()
    mutation = mutations(source)[number]
    import_module(module.name)
    if patched(sys.modules[module.name], mutated(source, number), mutation.function):
        for seed, limits in asked:
            pipe.send(claim_of(space, seed, limits))
    os._exit(0)


def _judge(pipe: Any) -> None:
    """Answer questions, without a mistake."""
    from tests.checker import claims

    os.setsid()

    while True:
        try:
            what, *words = pipe.recv()
        except EOFError:
            return
        pipe.send(_entered(*words) if what == "entered" else getattr(claims, what)(*words))


def _entered(space: str) -> list[tuple[str, int, Mutation]]:
    """Return the mutants of all functions that searches of a space enter: the module's path, the
    number, and what is changed."""
    from ilp_planner.optimize.solve import solve
    from tests.checker.instances import Instance

    codes = set()
    package = f"{ROOT / 'ilp_planner'}/"
    sys.setprofile(lambda frame, event, _: codes.add(frame.f_code) if event == "call" else None)
    for seed in range(LOOKED):
        instance = Instance(space, seed)
        result = solve(instance.problem)
        if result.plan is not None:
            instance.proof(result.bound)
    sys.setprofile(None)
    found: dict[str, set[str]] = {}
    for code in codes:
        path = code.co_filename.removeprefix(package)
        if path.startswith(tuple(f"{folder}/" for folder in FOLDERS)):
            name = code.co_qualname.replace(".<locals>", "")
            found.setdefault(path, set()).add(name)
    return [
        (path, number, mutation)
        for path in sorted(found)
        for number, mutation in enumerate(mutations(Module(path, whole=True).file.read_text()))
        if mutation.function in found[path]
    ]
