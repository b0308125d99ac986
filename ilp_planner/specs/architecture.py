"""The interface of model families: operators, their parameters and arithmetic."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from ilp_planner.base.limits import DIMENSION, MOST


class Parameters(NamedTuple):
    """Learnt numbers of one operator.

    split: divided among the tensor-parallel ranks. whole: repeated on each of them.
    """

    split: int = 0
    whole: int = 0

    @property
    def total(self) -> int:
        """Return the count of one copy."""
        return self.split + self.whole


class Architecture(Protocol):
    """A model family with its dimensions.

    family: `gpt`, `t5`, `resnet` or `decoder`.
    micro_batch_sizes: samples per replica worth trying, unless the user gives them.
    operators: names along the chain; equal names are equal operators.
    parameters, flops: per operator name. flops is the forward pass of one sample, matrix products
        and convolutions only, a multiplication with its addition counting 2; the backward pass
        takes twice that.
    masked_flops: of `flops` of all operators, the ones that a causal mask makes needless;
        masked: of one operator, by its name.
    tokens: of a sample; 0 if it has none.
    tensor_parts: tensor-parallel degrees must divide this.
    """

    family: ClassVar[str]
    micro_batch_sizes: ClassVar[tuple[int, ...]]

    @property
    def operators(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def parameters(self) -> Mapping[str, Parameters]: ...  # noqa: D102
    @property
    def flops(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def masked_flops(self) -> int: ...  # noqa: D102
    @property
    def masked(self) -> Mapping[str, float]: ...  # noqa: D102
    @property
    def tokens(self) -> float: ...  # noqa: D102
    @property
    def tensor_parts(self) -> int: ...  # noqa: D102
    def __hash__(self) -> int: ...


def check_fields(owner: object, *names: str, or_zero: Sequence[str] = ()) -> None:
    """Refuse the same as `check_counts` in fields of a dataclass. or_zero: names of fields that may
    be 0 as well.

    Raises
    ------
    ValueError: names the first that is not.
    """
    check_counts(
        **{name: getattr(owner, name) for name in names},
        **{name: getattr(owner, name) or 1 for name in or_zero},
    )


def check_counts(**counts: int) -> None:
    """Refuse everything but whole numbers of at least 1 that some model or cluster may have.

    Raises
    ------
    ValueError: names the first that is not, and its limit.
    """
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, found {count!r}")
        if count > (most := MOST.get(name, DIMENSION)):
            raise ValueError(f"{name} must be at most {most}, found {count}")


def check_choice(name: str, found: str, options: Sequence[str]) -> None:
    """Refuse everything but one of the options.

    Raises
    ------
    ValueError: with the found value and the options.
    """
    if found not in options:
        raise ValueError(f"{name} must be one of {', '.join(options)}, found {found!r}")


def check_positive(name: str, found: float) -> None:
    """Refuse everything but a finite number above 0.

    Raises
    ------
    ValueError: with the found value.
    """
    if not 0 < found < float("inf"):
        raise ValueError(f"{name} must be a positive number, found {found}")
