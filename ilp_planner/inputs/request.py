"""The request of a user, or of a saved plan: enough to build the problem again."""

from collections.abc import Mapping
from dataclasses import dataclass

from ilp_planner.base.errors import UsageError
from ilp_planner.base.limits import beyond
from ilp_planner.inputs.constraints import ANY, Constraints

FILES = ("model", "cluster", "hostfile", "clusterfile", "profile")
HELD = ("model", "cluster", "hostfile", "clusterfile")  # a saved plan holds what these say
ANALYTIC = "analytic"
NUMBERS = (
    "global_batch", "micro_batch_sizes", "memory_limit", "max_stages", "max_tp", "max_cp",
    "max_stage_nodes", "hidden", "sequence", "vocabulary",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An input: the name or path that the user gave, and its content's SHA-256 (empty: none).

    text: the content itself, if it is held.
    """

    name: str
    sha256: str = ""
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request.

    files: the inputs that were named, out of `FILES`; that of the profile is `FORMAT:PATH`, or
    `FORMAT` if the format needs no files. space: empty: by the other inputs.
    memory_rule, placement, shares, stage_tp, seats, experiment: as the space has them; empty: its
    default.
    shares: of replicas of groups and of micro-batches; "even": all alike. stage_tp: of a stage;
    "mixed": each device type has a tensor-parallel degree of its own. seats: of a stage's replicas;
    "spread": packed, or equally many on each of several nodes. precision: of training, or a recipe
    of quantised products; empty: the model's. price: of devices per hour, as `specs/prices.py`
    reads it; empty: as the cluster says.
    global_batch: samples; None: the experiment's own, or the usual one. micro_batch: the value of
    `--micro-batch-size`: samples of a replica for a training runtime, of all replicas for other
    spaces; a problem that is built says it by the constraint `micro_batch_size` or by
    micro_batch_sizes: samples over all replicas to try; empty: all. memory_limit: bytes per device.
    max_stages, max_tp, max_cp: at most. max_stage_nodes: nodes that one stage of operators is on,
    at most. All None: not limited further. memory_limits: device type -> bytes, as they
    came out; empty before a problem is built.
    hidden, sequence, vocabulary: sizes of the model that its profile does not say. text_only: of a
    model of text and something else, its text alone; a saved plan holds the same.
    constraints: on plans and their devices.

    Raises UsageError for a number beyond its limit.
    """

    files: Mapping[str, Reference]
    cost_model: str = "native"
    space: str = ""
    memory_rule: str = ""
    placement: str = ""
    shares: str = ""
    stage_tp: str = ""
    seats: str = ""
    experiment: str = ""
    precision: str = ""
    price: str = ""
    global_batch: int | None = None
    micro_batch: tuple[int, ...] = ()
    micro_batch_sizes: tuple[int, ...] = ()
    memory_limit: float | None = None
    memory_limits: Mapping[str, float] | None = None
    max_stages: int | None = None
    max_tp: int | None = None
    max_cp: int | None = None
    max_stage_nodes: int | None = None
    hidden: int | None = None
    sequence: int | None = None
    vocabulary: int | None = None
    text_only: bool = False
    constraints: Constraints = ANY

    def __post_init__(self) -> None:
        for name in NUMBERS:
            value = getattr(self, name)
            for each in value if isinstance(value, tuple) else (value,):
                if each is not None and (expected := beyond(name, each)):
                    raise UsageError(f"{name}: found {each}, expected {expected}")

    def name(self, kind: str) -> str | None:
        """Return the user's name of an input; None when it was not given."""
        return self.files[kind].name if kind in self.files else None

    @property
    def profile(self) -> str:
        """The user's name of the profile."""
        return self.name("profile") or ANALYTIC
