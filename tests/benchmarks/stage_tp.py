"""What it is worth that device types of a stage may differ in their tensor-parallel degree, and
what looking for it takes.

python -m tests.benchmarks --suite stage-tp [--only TEXT] [--seconds 60]

Every case is solved with one degree for all replicas of a stage and then, from the plan of the
first, with a degree for each device type (`twice`).
"""

from tests.benchmarks.twice import Twice

SUITE = Twice(
    name="stage-tp",
    cases=(
        "gpt3-350m mixed-v100-t4 --global-batch-size 64",
        "gpt3-1.3b mixed-v100-t4 --global-batch-size 256",
        "gpt3-2.6b mixed-v100-t4 --global-batch-size 256",
        "gpt3-6.7b mixed-a100-t4 --global-batch-size 256",
        "gpt3-1.3b mixed-v100-t4 --global-batch-size 64 --max-stages 2",
        "gpt3-1.3b mixed-a100-t4 --global-batch-size 256 --max-stages 1",
        "gpt3-13b mixed-h100-a100-v100 --global-batch-size 256",
    ),
    ways={"one": (), "mixed": ("--stage-tp", "mixed")},
    heads=("one degree (s)", "one each (s)", "CPU-s more"),
    chained=True,
)
