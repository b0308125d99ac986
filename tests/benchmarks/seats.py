"""What it is worth that stages may be spread evenly over nodes, and what looking for it takes.

python -m tests.benchmarks --suite seats [--only TEXT] [--seconds 60]

Every case is solved with packed stages alone and with both patterns of seats (`twice`).
"""

from tests.benchmarks.twice import Twice

T4 = "--cluster tests/benchmarks/t4-4x4.toml"
SUITE = Twice(
    name="seats",
    cases=(
        "gpt3-350m mixed-v100-t4 --global-batch-size 64",
        "gpt3-1.3b mixed-v100-t4 --global-batch-size 256",
        "gpt3-2.6b mixed-v100-t4 --global-batch-size 256",
        "gpt3-1.3b mixed-a100-t4 --global-batch-size 256",
        "gpt3-1.3b --gpus 16xT4 --global-batch-size 1024",
        "gpt3-2.6b --gpus 16xL4 --global-batch-size 512",
        f"gpt3-1.3b {T4} --global-batch-size 256",
        f"gpt3-1.3b {T4} --global-batch-size 1024",
        f"gpt3-2.6b {T4} --global-batch-size 1024",
    ),
    ways={"packed": (), "spread": ("--seats", "spread")},
    heads=("packed (s)", "spread (s)", "CPU-s"),
)
