"""The manual's table of predicted and measured memory, from the kept results."""

from typing import Any

from tests.benchmarks.mixed_table import line

# name in the results -> (what it is, limits asked for)
GROUPS = {
    "analysis tool": ("7B GPT, 8 x H800 (Megatron-LM PR 482)", "each 1 %"),
    "b200": (
        "Llama-3 70B and 405B, DeepSeek-V2 and V3 of few layers, 8 x B200 (SimuMax)",
        "MAPE 3 %, worst 8 %",
    ),
    "Megatron CI": ("Megatron-LM's own tests without experts, A100 and H100", "-"),
    "Megatron CI, experts": ("Megatron-LM's own tests with experts, A100 and H100", "-"),
    "Megatron CI, between steps": ("the same, states held between two steps", "-"),
    "published steps, NVIDIA": ("Llama-3.1 8B on 8 x H100, one line of a log (NVIDIA)", "-"),
    "published steps, BigScience": (
        "BigScience's iterations, A100: a rounded `Mem` of unknown kind, beside what is needed",
        "-",
    ),
    "torchtitan": (
        "Llama-3.1 8B and 70B by torchtitan, 8 to 256 x H100, eager and compiled: reserved memory",
        "MAPE 8 %",
    ),
}


def memory_table(record: dict[str, Any]) -> str:
    """Return a row per group of runs as Markdown."""
    heads = ("runs", "GPUs compared", "MAPE", "worst", "asked")
    lines = [line(heads), "|---|" + "---:|" * 4]
    for name, (what, asked) in GROUPS.items():
        found = record[name]
        worst = max(found["rows"], key=lambda row: abs(row["error"]))
        lines.append(
            line(
                [
                    what,
                    str(len(found["rows"])),
                    f"{found['mape']:.2%}",
                    f"{worst['error']:+.2%}",
                    asked,
                ]
            )
        )
    return "\n".join(lines)
