"""The layers of each (virtual) pipeline stage, as in Megatron's layout text.

E embedding, t a layer, m a multi-token-prediction layer, L loss, | between stages
(`--pipeline-model-parallel-layout`).

Stage k of the text is virtual stage k // pp of pipeline rank k % pp.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from ilp_planner.base.errors import SpecError
from ilp_planner.base.hashing import HashedOnce, hashed_once
from ilp_planner.base.limits import LAYERS, NESTING, STAGES

# Which virtual stages take what is left over of a rank's layers.
REMAINDERS = FIRST, LAST, ALONE = "first", "last", "alone"
LONGEST = LAYERS + STAGES  # layers and stages that a text may mean
TOO_MUCH = f"found more than {LAYERS} layers or {STAGES} stages, expected at most so many"
SHOWN = 200  # characters of a text in a message
# A letter or a closing bracket with how often it is meant, or an opening bracket.
PIECE = re.compile(r"([Etm|L)])(?:\*([0-9]+))?|(\()")
ANYHOW = "anyhow"  # layers are spread over virtual stages in any way


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutStage:
    """The content of one (virtual) stage."""

    layers: int = 0
    embedding: bool = False
    prediction_layers: int = 0
    loss: bool = False


@hashed_once
@dataclass(frozen=True, slots=True)
class PipelineLayout(HashedOnce):
    """All (virtual) stages in the order that a sample passes them."""

    stages: tuple[LayoutStage, ...]

    def __post_init__(self) -> None:
        if not self.stages or not self.stages[0].embedding or not self.stages[-1].loss:
            raise ValueError("a layout must begin with the embedding and end with the loss")
        if sum(s.embedding for s in self.stages) > 1 or sum(s.loss for s in self.stages) > 1:
            raise ValueError("a layout must have one embedding and one loss")

    def __str__(self) -> str:
        return write_layout(self)

    @property
    def layers(self) -> int:
        """Transformer layers of all stages."""
        return sum(stage.layers for stage in self.stages)

    @property
    def starts(self) -> tuple[int, ...]:
        """Number of the first layer of every stage, from 0."""
        found, done = [], 0
        for stage in self.stages:
            found.append(done)
            done += stage.layers
        return tuple(found)


def even_layout(
    layers: int, pp: int, virtual: int = 1, *, prediction_layers: int = 0
) -> PipelineLayout:
    """Return Megatron's own split: equally many layers everywhere.

    Raises
    ------
    ValueError: pp x virtual does not divide the layers.
    """
    stages = pp * virtual
    if layers % stages:
        raise ValueError(f"{layers} layers are not divisible by {stages} pipeline stages")
    each = layers // stages
    return split_layout([each] * stages, prediction_layers=prediction_layers)


def is_even(layout: PipelineLayout, prediction_layers: int) -> bool:
    """Tell whether a layout is Megatron's own split with so many prediction layers."""
    stages = len(layout.stages)
    even = balanced_layout(layout.layers, stages, prediction_layers=prediction_layers)
    return layout.layers % stages == 0 and layout == even


def split_layout(layers: Sequence[int], *, prediction_layers: int = 0) -> PipelineLayout:
    """Return the layout with so many layers in each stage, embedding first and loss last."""
    return _split(tuple(layers), prediction_layers)


@lru_cache(maxsize=4096)  # thousands of jobs of a search have the same few layouts
def _split(layers: tuple[int, ...], prediction_layers: int) -> PipelineLayout:
    last = len(layers) - 1
    return PipelineLayout(
        tuple(
            LayoutStage(
                layers=count,
                embedding=k == 0,
                prediction_layers=prediction_layers if k == last else 0,
                loss=k == last,
            )
            for k, count in enumerate(layers)
        )
    )


def balanced_layout(layers: int, stages: int, *, prediction_layers: int = 0) -> PipelineLayout:
    """Return the layout that spreads layers over stages as evenly as can be, more of them first."""
    each, more = divmod(layers, stages)
    counts = [each + (k < more) for k in range(stages)]
    return split_layout(counts, prediction_layers=prediction_layers)


def with_layers(layout: PipelineLayout, layers: int) -> PipelineLayout:
    """Return a layout with so many layers, as like the given one as can be: one more or less in as
    many stages as it takes; all anew if that is not enough."""
    stages = layout.stages
    missing = layers - layout.layers
    step = 1 if missing > 0 else -1
    # Those with fewest layers get one more, those with most lose one.
    order = sorted(
        (k for k, stage in enumerate(stages) if stage.layers), key=lambda k: step * stages[k].layers
    )
    if abs(missing) > len(order):
        prediction = sum(stage.prediction_layers for stage in stages)
        return balanced_layout(layers, len(stages), prediction_layers=prediction)
    changed = set(order[: abs(missing)])
    return PipelineLayout(
        tuple(
            replace(stage, layers=stage.layers + step) if k in changed else stage
            for k, stage in enumerate(stages)
        )
    )


def write_layout(layout: PipelineLayout) -> str:
    """Return the text; runs of layers as `t*n`, of equal stages as `(t*n|)*m`."""
    texts = [_stage_text(stage) for stage in layout.stages]
    parts = []
    for text, run in groupby(texts[:-1]):
        count = len(list(run))
        parts.append(f"({text}|)*{count}" if text and count > 2 else f"{text}|" * count)
    return "".join(parts) + texts[-1]


def _stage_text(stage: LayoutStage) -> str:
    def run(letter: str, count: int) -> str:
        return letter * count if count < 2 else f"{letter}*{count}"

    return (
        "E" * stage.embedding
        + run("t", stage.layers)
        + run("m", stage.prediction_layers)
        + "L" * stage.loss
    )


def read_layout(text: str) -> PipelineLayout:
    """Read the text, `x*n` and `(..)*n` repeated, commas ignored.

    Raises
    ------
    SpecError: with its fault.
    """

    def refused(problem: str) -> SpecError:
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        return SpecError(f"pipeline layout {shown!r}: {problem}")

    try:
        parts = _flat(text).split("|")
    except ValueError as error:
        raise refused(str(error)) from None
    stages: list[LayoutStage] = []
    for part in parts:
        order = re.fullmatch(r"(E?)(t*)(m*)(L?)", part)
        if order is None:
            raise refused(
                f"expected E, t, m and L in this order in a stage, found {part[:SHOWN]!r}"
            )
        stages.append(
            LayoutStage(
                layers=len(order[2]),
                embedding=bool(order[1]),
                prediction_layers=len(order[3]),
                loss=bool(order[4]),
            )
        )
    try:
        layout = PipelineLayout(tuple(stages))
    except ValueError as error:
        raise refused(str(error)) from None
    if layout.layers > LAYERS or len(stages) > STAGES:
        raise refused(TOO_MUCH)
    return layout


def _flat(text: str) -> str:
    """Return the meaning of a text, without repetitions.

    Raises
    ------
    ValueError: it is none, or means more layers and stages than there may be.
    """
    written = text.replace(",", "").replace(" ", "")
    opened: list[list[str]] = [[]]  # what stands in each bracket that is open
    lengths = [0]  # of it
    at = 0
    while at < len(written):
        piece = PIECE.match(written, at)
        if piece is None or (piece[1] == ")" and (len(opened) == 1 or not piece[2])):
            raise ValueError(f"expected E, t, m, L, | and x*n or (..)*n, found {written[at]!r}")
        at = piece.end()
        if piece[3]:
            opened.append([])
            lengths.append(0)
            if len(opened) > NESTING:
                raise ValueError(f"found brackets more than {NESTING} deep in one another")
            continue
        part, length = piece[1], 1
        if part == ")":
            part, length = "".join(opened.pop()), lengths.pop()
        digits = (piece[2] or "1").lstrip("0") or "0"
        times = int(digits[: len(str(LONGEST)) + 1])
        lengths[-1] += times * length
        if lengths[-1] > LONGEST:
            raise ValueError(TOO_MUCH)
        opened[-1].append(part * times if part else "")
    if len(opened) > 1:
        raise ValueError("expected E, t, m, L, | and x*n or (..)*n, found '('")
    return "".join(opened[0])
