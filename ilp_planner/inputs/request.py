"""The request of a user, or of a saved plan: enough to build the problem again."""

from collections.abc import Mapping
from dataclasses import dataclass

from ilp_planner.base.errors import UsageError
from ilp_planner.base.limits import beyond
from ilp_planner.inputs.constraints import ANY, Constraints
from ilp_planner.inputs.table import BY_KEYWORD, INPUTS, Size, Whole, Wholes
from ilp_planner.specs.lengths import PACKED

FILES = ("model", "cluster", "hostfile", "clusterfile", "lengths", "profile")
HELD = ("model", "cluster", "hostfile", "clusterfile", "lengths")  # what saved plans hold
ANALYTIC = "analytic"
NUMBERS = tuple(
    dict.fromkeys(
        name
        for row in INPUTS
        for name in (row.name, row.attribute)
        if isinstance(row.kind, Whole | Wholes | Size)
    )
)


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
    """The request: `files`, `constraints`, and a field for each row of `INPUTS`.

    files: the inputs that were named, out of `FILES`; that of the profile is `FORMAT:PATH`, or
    `FORMAT` if the format needs no files. space: empty: by the other inputs. global_batch: None:
    the experiment's own, or the usual one. micro_batch: as the user says it: of a replica for a
    training runtime, of all replicas for other spaces; a problem that is built says it by the
    constraint `micro_batch_size` or by micro_batch_sizes: samples over all replicas to try; empty:
    all. memory_limit: bytes per device. memory_limits: device type -> bytes, as they came out;
    None before a problem is built. constraints: on plans and their devices.

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
    images: int | None = None
    image_size: int | None = None
    audio_seconds: int | None = None
    batching: str = ""
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


def request_of(
    files: Mapping[str, Reference],
    said: Mapping[str, object],
    constraints: Constraints = ANY,
    *,
    typed: bool = False,
) -> Request:
    """Return the request of some inputs.

    Parameters
    ----------
    said: texts, numbers or lists by keyword; None says nothing. typed: messages name options of the
        command line, not keywords.

    Raises
    ------
    UsageError: one line with the name, the value found and the values expected.
    """
    values = {
        (row := BY_KEYWORD[name]).name: row.kind.read(row.typed if typed else name, value)
        for name, value in said.items()
        if value is not None
    }
    if "lengths" in files:
        values.setdefault("batching", PACKED)
    return Request(files=files, constraints=constraints, **values)
