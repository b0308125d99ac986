"""The cases of Aceso's evaluation, with what its own search found and the best that was known."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "aceso"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table.

    published: Aceso's plan. known: the best plan known before. bound: a prototype's. Milliseconds.
    target: the gap asked for.
    """

    name: str
    model: str
    cluster: str
    database: str
    memory: str
    global_batch: int
    published: int
    known: int
    bound: int | None
    target: float


CASES = (
    Case(name="gpt 1.3B, 4 GPUs", model="gpt3-1.3b", cluster="v100-32gb-1x4", database="eurosys",
     memory="28000 MiB", global_batch=1024, published=101185, known=99691, bound=99534,
     target=0.001),
    Case(name="gpt 2.6B, 8", model="gpt3-2.6b", cluster="v100-32gb-1x8", database="eurosys",
     memory="28000 MiB", global_batch=1024, published=87134, known=86229, bound=86139,
     target=0.001),
    Case(name="gpt 6.7B, 2x8", model="gpt3-6.7b", cluster="v100-32gb-2x8", database="eurosys",
     memory="28000 MiB", global_batch=1024, published=86594, known=83639, bound=82952,
     target=0.005),
    Case(name="gpt 1.3B mini, 4", model="gpt3-1.3b", cluster="v100-32gb-1x4", database="miniset",
     memory="12000 MiB", global_batch=512, published=58761, known=57818, bound=57113, target=0.003),
    Case(name="t5 770M mini, 4", model="t5-770m", cluster="v100-32gb-1x4", database="miniset",
     memory="12000 MiB", global_batch=512, published=33659, known=33350, bound=32593, target=0.005),
    Case(name="t5 3B, 4", model="t5-3b", cluster="v100-32gb-1x4", database="eurosys",
     memory="28000 MiB", global_batch=1024, published=161919, known=158858, bound=156183,
     target=0.005),
    Case(name="resnet 1B mini, 4", model="wide-resnet-1b", cluster="v100-32gb-1x4",
     database="miniset", memory="12000 MiB", global_batch=768, published=17672, known=17570,
     bound=None, target=0.005),
    Case(name="resnet 2B, 4", model="wide-resnet-2b", cluster="v100-32gb-1x4", database="eurosys",
     memory="28000 MiB", global_batch=1536, published=49324, known=48976, bound=48959, target=0.0),
    Case(name="resnet 4B, 8", model="wide-resnet-4b", cluster="v100-32gb-1x8", database="eurosys",
     memory="28000 MiB", global_batch=1536, published=53856, known=52942, bound=51277,
     target=0.005),
    Case(name="scale-layer 64 layers, 8", model="scale-layer-64", cluster="v100-32gb-1x8",
     database="eurosys", memory="28000 MiB", global_batch=1024, published=24804, known=24296,
     bound=23820, target=0.005),
    Case(name="scale-layer 1024 layers, 8", model="scale-layer-1024", cluster="v100-32gb-1x8",
     database="eurosys", memory="28000 MiB", global_batch=1024, published=458987, known=448727,
     bound=None, target=0.01),
)  # fmt: skip
