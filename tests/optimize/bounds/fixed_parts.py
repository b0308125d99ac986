"""Parts of problems that are always the same, and small enough for kernels that are not compiled:
what properties say of random ones is tried on them in milliseconds."""

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from hypothesis.errors import HypothesisDeprecationWarning

from ilp_planner.inputs.problem import Problem
from tests.tiny import GB, fastest_memory, least_memory, make_problem, random_profile, with_limit

UNLIKE = ("conv1", "bn1", "layer0-0-conv1", "layer0-0-bn3", "layer0-1-conv1")
ALIKE = ("conv1", "layer0-0-conv1", "layer0-0-bn3", "layer0-0-conv1", "layer0-0-bn3")
BRANCHES = ("a-conv1", "b-conv1", "c-conv1", "a-conv1", "b-conv1", "d-conv1")
THRICE = ("a-conv1", "b-conv1", "a-conv1", "c-conv1", "a-conv1", "d-conv1")
AGAIN = ("a-conv1", "b-conv1", "a-conv1", "c-conv1")


class Shape(NamedTuple):
    """Nodes and devices of each, devices that a stage may have, and the operators. share: of the
    way from the leanest plan's memory to that of the fastest one. inter: GB/s between nodes, where
    0.5 are between devices of a node. Micro-batches of one sample and no splits leave one way to
    divide an operator."""

    seed: int
    nodes: int
    devices: int
    groups: tuple[int, ...]
    share: float
    operators: tuple[str, ...] = UNLIKE
    inter: float = 0.1
    cost_model: str = "native"
    micro_batch: int = 1
    splits: tuple[int, ...] = (0,)


FIXED = {
    "nodes": Shape(2, 2, 2, (1, 2, 4), 0.5),
    "near": Shape(1, 2, 2, (1, 2, 4), 1.0, inter=5.0),
    "alike": Shape(4, 2, 2, (1, 2, 4), 1.0, ALIKE),
    "lone": Shape(1, 2, 1, (1,), 1.0, inter=5.0),
    "single": Shape(1, 1, 1, (1,), 0.5),
    "one node": Shape(2, 1, 4, (1, 2), 0.5),
    "branches": Shape(9, 1, 2, (1, 2), 1.0, BRANCHES, cost_model="aceso"),
    "thrice": Shape(1, 2, 1, (1,), 1.0, THRICE, cost_model="aceso"),
    "ways": Shape(5, 1, 2, (1, 2), 0.5, AGAIN, cost_model="aceso", micro_batch=2, splits=(0, 1)),
}


def fixed_part(name: str) -> Problem:
    """Return the problem of this name, of four micro-batches."""
    shape = FIXED[name]
    profile = random_profile(
        shape.seed, shape.operators, micro_batches=tuple({1, shape.micro_batch}), degrees=(1, 2, 4),
        splits=shape.splits, ties=0.0,
    )  # fmt: skip
    profile = replace(profile, intra_node=(0.5 * GB,), inter_node=(shape.inter * GB,))
    problem = make_problem(
        shape.operators,
        "resnet",
        profile,
        cost_model=shape.cost_model,
        limit=math.inf,
        micro_batches=(shape.micro_batch,),
        global_batch=4 * shape.micro_batch,
        nodes=shape.nodes,
        devices=shape.devices,
        group_sizes=shape.groups,
    )
    least, most = least_memory(problem), fastest_memory(problem)
    return with_limit(problem, least + shape.share * (most - least))


def body(test: Callable[..., None]) -> Callable[..., None]:
    """Return what a property says of one example."""

    def one(*example: object) -> None:
        with warnings.catch_warnings():  # what a property assumes has to be so here
            warnings.simplefilter("ignore", HypothesisDeprecationWarning)
            test.hypothesis.inner_test(*example)  # type: ignore[attr-defined]

    return one
