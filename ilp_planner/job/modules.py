"""One rank's share of a model: a tree of modules with parameters, kept activations and
tensor-parallel messages."""

import math
from dataclasses import dataclass, replace
from functools import cached_property


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One parameter tensor as this rank holds it.

    shape: of the rank's shard. expert: its replicas are those of routed experts (`expert_dp`);
    their gradients are reduced over another group. trained: it has a gradient.
    """

    name: str
    shape: tuple[int, ...]
    expert: bool = False
    trained: bool = True

    @property
    def count(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One tensor that a micro-batch keeps on this rank until its backward pass.

    shape: of the rank's shard. width: bytes per element. why: the reason, for people.
    """

    name: str
    shape: tuple[int, ...]
    width: float
    why: str = ""

    @property
    def size(self) -> float:
        """Bytes."""
        return math.prod(self.shape) * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One communication of a module per micro-batch.

    group: `tp`, `cp`, `ep`, ... collective: `all_reduce`, `all_gather`, `reduce_scatter`,
    `all_to_all`, `send_recv`. shape, width: of the whole tensor that the group gathers, reduces or
    exchanges, as the tool of the seed shows it. once: the remaining share of an exchange between
    nodes if every node gets a token once for all of its ranks.
    """

    group: str
    collective: str
    shape: tuple[int, ...]
    width: int
    times: int = 1
    once: float = 1.0

    @property
    def size(self) -> int:
        """Bytes of one of them."""
        return math.prod(self.shape) * self.width


@dataclass(frozen=True, kw_only=True)
class Module:
    """A module with its parts. repeat: so many equal ones in a row (layers).

    Its sums are asked for again and again, of every module around it as well, so they are kept.
    """

    name: str
    weights: tuple[Weight, ...] = ()
    kept: tuple[Kept, ...] = ()
    forward: tuple[Message, ...] = ()
    backward: tuple[Message, ...] = ()
    children: tuple["Module", ...] = ()
    repeat: int = 1

    @cached_property
    def parameters(self) -> int:
        """Parameters of all repeats, children included."""
        own = sum(weight.count for weight in self.weights)
        return self.repeat * (own + sum(child.parameters for child in self.children))

    @cached_property
    def expert_parameters(self) -> int:
        """The routed experts' share of them."""
        own = sum(weight.count for weight in self.weights if weight.expert)
        return self.repeat * (own + sum(child.expert_parameters for child in self.children))

    @cached_property
    def trained(self) -> int:
        """Trained parameters of all repeats, children included."""
        own = sum(weight.count for weight in self.weights if weight.trained)
        return self.repeat * (own + sum(child.trained for child in self.children))

    @cached_property
    def trained_experts(self) -> int:
        """The routed experts' share of them."""
        own = sum(weight.count for weight in self.weights if weight.trained and weight.expert)
        return self.repeat * (own + sum(child.trained_experts for child in self.children))

    @cached_property
    def activations(self) -> float:
        """Bytes that a micro-batch keeps in all repeats, children included."""
        own = sum(tensor.size for tensor in self.kept)
        return self.repeat * (own + sum(child.activations for child in self.children))

    def times(self, repeat: int) -> "Module":
        """Return so many of them."""
        return replace(self, repeat=repeat)
