"""What it is worth that stages of groups may compute layers again, and what looking for it takes.

python -m tests.benchmarks --suite again [--only TEXT] [--seconds 60]

Every case is solved without recomputation (`--recompute none`, what there was before) and with all
that is tried (`twice`).
"""

from tests.benchmarks.twice import Twice

SUITE = Twice(
    name="again",
    cases=(
        "gpt3-350m mixed-v100-t4 --global-batch-size 64",
        "gpt3-1.3b mixed-v100-t4 --global-batch-size 256",
        "gpt3-2.6b mixed-v100-t4 --global-batch-size 256",
        "gpt3-6.7b mixed-a100-t4 --global-batch-size 256",
        "gpt3-6.7b mixed-a100-t4 --global-batch-size 256 --memory-limit 40GiB",
        "gpt3-13b mixed-h100-a100-v100 --global-batch-size 256",
        "gpt3-6.7b --gpus 2048xH100 --global-batch-size 1920",
    ),
    ways={"none": ("--recompute", "none"), "any": ()},
    heads=("without (s)", "recomputed (s)", "CPU-s"),
)
