"""The possible layouts of plans: `even`, `any`, the layers of every stage, or Megatron's
letters."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.specs.pipeline_layout import (
    PipelineLayout,
    balanced_layout,
    even_layout,
    read_layout,
    split_layout,
    with_layers,
    write_layout,
)

EVEN, FREE = "even", "any"
EXPECTED = (
    "even, any, the layers of every stage as 10,11,11 or Megatron's letters as Et*10|t*11|t*11L"
)


@dataclass(frozen=True, slots=True)
class AskedLayout:
    """The layout that was asked for; nothing: equally many layers in every (virtual) stage.

    layers: of every (virtual) stage; the embedding comes before the first, the loss after the last,
    and with it the prediction of several tokens. letters: the layout itself. free: any layout.
    """

    layers: tuple[int, ...] = ()
    letters: PipelineLayout | None = None
    free: bool = False

    def __str__(self) -> str:
        if self.free:
            return FREE
        if self.letters is not None:
            return write_layout(self.letters)
        return ",".join(map(str, self.layers)) or EVEN

    def __contains__(self, layout: object) -> bool:
        if not isinstance(layout, PipelineLayout):
            return False
        prediction = layout.stages[-1].prediction_layers
        return self.free or layout == self.of(layout.layers, prediction, len(layout.stages))

    def of(self, layers: int, prediction_layers: int, stages: int) -> PipelineLayout | None:
        """Return the layout of so many layers in so many stages; None if there is none.

        prediction_layers: of multi-token prediction.
        """
        return _layout_of(self, layers, prediction_layers, stages)

    def check(self, model: str, layers: int, prediction_layers: int) -> None:
        """Refuse a layout that no plan of a model has.

        Raises
        ------
        UsageError: the found and the expected value, and a possible layout.
        """
        if self.free or (not self.layers and self.letters is None):
            return
        own = self._own(prediction_layers)
        if own.layers != layers:
            raise UsageError(
                f"layout: found {own.layers} layers, expected the {layers} of {model}; "
                f"`layout={self._fitting(own, layers)}` has them"
            )
        *others, last = own.stages
        if last.prediction_layers != prediction_layers or any(s.prediction_layers for s in others):
            found = ",".join(str(stage.prediction_layers) for stage in own.stages)
            raise UsageError(
                f"layout: found {found} layers of multi-token prediction (m) in its stages, "
                f"expected the {prediction_layers} of {model} before L"
            )
        if empty := _empty(own):
            raise UsageError(
                f"layout: found nothing in stage {empty[0]}, expected a layer or more in every "
                "stage but the first, which has the embedding, and the last, which has the loss"
            )

    def farness(self, text: str) -> float:
        """Return how far the number of stages of another layout is from this one's."""
        other, stages = asked_layout(text).count, self.count
        return abs(math.log2(other / stages)) if other and stages else 0.0

    @property
    def count(self) -> int:
        """Stages; 0: any number."""
        return len(self.letters.stages if self.letters else self.layers)

    def _fitting(self, own: PipelineLayout, layers: int) -> AskedLayout:
        """Return a layout of so many layers in the same form, in stages like its own."""
        near, stages = with_layers(own, layers), len(own.stages)
        if _empty(near):
            prediction = own.stages[-1].prediction_layers
            near = balanced_layout(layers, min(stages, layers), prediction_layers=prediction)
        if self.letters is not None:
            return AskedLayout(letters=near)
        return AskedLayout(tuple(stage.layers for stage in near.stages))

    def _own(self, prediction_layers: int) -> PipelineLayout:
        if self.letters is not None:
            return self.letters
        return split_layout(list(self.layers), prediction_layers=prediction_layers)


@lru_cache(maxsize=1024)  # the parts of a search ask for the same few
def _layout_of(
    asked: AskedLayout, layers: int, prediction_layers: int, stages: int
) -> PipelineLayout | None:
    if not asked.layers and asked.letters is None:
        if layers % stages:
            return None
        return even_layout(layers, stages, prediction_layers=prediction_layers)
    own = asked._own(prediction_layers)
    return own if len(own.stages) == stages and own.layers == layers else None


def _empty(layout: PipelineLayout) -> list[int]:
    """Return the stages that have nothing of a plan's chain."""
    stages = enumerate(layout.stages)
    return [k for k, stage in stages if not (stage.layers or stage.embedding or stage.loss)]


def asked_layout(value: object) -> AskedLayout:
    """Return the layout of a text, or of a list of layers.

    Raises
    ------
    UsageError: one line with the found and the expected value.
    """
    if isinstance(value, list | tuple) and all(type(each) is int for each in value):
        value = ",".join(map(str, value))
    text = str(value) if isinstance(value, str | int) and value is not True else ""
    if text.strip() == EVEN:
        return AskedLayout()
    if text.strip() == FREE:
        return AskedLayout(free=True)
    if re.fullmatch(r"\s*[0-9]{1,6}\s*(,\s*[0-9]{1,6}\s*)*", text):
        return AskedLayout(tuple(int(each) for each in text.split(",")))
    if not text.strip():
        raise UsageError(f"layout: found {value!r:.60}, expected {EXPECTED}")
    try:
        return AskedLayout(letters=read_layout(text))
    except SpecError as error:
        why = str(error).partition("': ")[2]
        raise UsageError(f"layout: found {text!r:.60}, expected {EXPECTED}; {why}") from None
