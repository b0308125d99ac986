"""What to change in a launch line, in options or in a plan, so that it says another job."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange:
    """What to change.

    add: words to add; they go before what is said already of the same. drop: options to leave out.
    gpus: that it runs on then; 0: as many as before. environment: variables to set, and those to
    unset, with an empty text. language: whose words they are, where not those of what is changed.
    fields: of a plan, where no words say it: each with what it is and was.
    """

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    gpus: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    language: str = ""
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        to_set = [f"{name}={value}" for name, value in self.environment.items() if value]
        to_unset = [name for name, value in self.environment.items() if not value]
        texts = (
            f"{self.gpus:,} GPUs" if self.gpus else "",
            f"{self.language and f'{self.language}: '}{shlex.join(self.add)}" if self.add else "",
            *self.fields,
            f"without {' '.join(self.drop)}" if self.drop else "",
            f"with {' '.join(to_set)} set" if to_set else "",
            f"with {' '.join(to_unset)} unset" if to_unset else "",
        )
        return ", ".join(text for text in texts if text)
