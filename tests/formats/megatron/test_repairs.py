"""Every repair that is offered for a launch line works on the whole line."""

import re
import shlex
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.formats.megatron.arguments import read_arguments
from ilp_planner.formats.megatron.repairs import Finding
from ilp_planner.formats.megatron.rules import check_arguments

few = st.sampled_from
OPTIONS = (
    "--num-virtual-stages-per-pipeline-rank 2", "--num-virtual-stages-per-pipeline-rank 3",
    "--num-layers-per-virtual-pipeline-stage 2", "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split", "--decoder-first-pipeline-num-layers 2",
    "--sequence-parallel", "--num-experts 6 --disable-bias-linear --expert-model-parallel-size 4",
    "--group-query-attention --num-query-groups 3", "--ffn-hidden-size 258",
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 5",
    "--overlap-param-gather", "--pipeline-model-parallel-layout Et*4|t*5L",
)  # fmt: skip


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, int]:
    """Return a launch line that is likely to be broken, and its ranks."""
    tp, pp, cp = draw(few([1, 2, 3, 4, 6])), draw(few([1, 2, 3, 4, 5])), draw(few([1, 1, 2, 3]))
    dp, micro = draw(few([1, 2, 3])), draw(few([1, 2, 3]))
    heads, sequence = draw(few([4, 8, 12, 20])), draw(few([30, 32, 96, 100]))
    line = (
        f"--num-layers {draw(few([6, 8, 9, 12, 31]))} --hidden-size {8 * heads + draw(few([0, 2]))}"
        f" --num-attention-heads {heads} --seq-length {sequence} --max-position-embeddings "
        f"{draw(few([16, sequence, 128]))} --micro-batch-size {micro} --bf16 --global-batch-size "
        f"{draw(few([63, 64, 4 * micro * dp]))} --tensor-model-parallel-size {tp} "
        f"--pipeline-model-parallel-size {pp} --context-parallel-size {cp} "
    )
    options = draw(st.lists(few(OPTIONS), max_size=2, unique=True))
    return line + " ".join(options), draw(st.just(tp * pp * cp * dp) | few([9, 16]))


def repaired(line: str, world: int, fix: str) -> tuple[str, int]:
    """Do what a repair says, as somebody who edits the line would."""
    fix, _, dropped = fix.partition(" without ")
    for flag in dropped.split(" and ") if dropped else ():
        line = re.sub(rf"{flag}( [^-]\S*)?(?= |$)", "", line)
    if size := re.match(r"a world size of (\d+)(?: with)?", fix):
        world, fix = int(size[1]), fix[size.end() :]
    return f"{line} {fix}", world


def complaints(line: str, world: int) -> tuple[Finding, ...]:
    return check_arguments(read_arguments(shlex.split(line), world))


@given(lines())
def test_what_would_do_does_and_breaks_nothing_else(launch: tuple[str, int]) -> None:
    before = complaints(*launch)
    flags = Counter(finding.flag for finding in before)
    for finding in before:
        if finding.fix:
            after = Counter(f.flag for f in complaints(*repaired(*launch, finding.fix)))
            assert after <= flags
            assert after[finding.flag] < flags[finding.flag]


def test_a_repair_of_several_arguments_and_one_that_leaves_some_out() -> None:
    line = (
        "--num-layers 9 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
        "--max-position-embeddings 32 --micro-batch-size 1 --global-batch-size 16 --bf16 "
    )
    pipeline = "--pipeline-model-parallel-size 4 --account-for-loss-in-pipeline-split"
    finding, *others = complaints(f"{line} {pipeline} --num-layers 8", 4)
    assert finding.fix == (
        "--pipeline-model-parallel-layout 'Et*2|t*2|t*2|t*2L' without "
        "--account-for-loss-in-pipeline-split"
    )
    assert not others
    tensor = "--tensor-model-parallel-size 3 --num-attention-heads 8 --global-batch-size 7"
    finding, *_ = complaints(f"{line} {tensor}", 3)
    world, ranks = repaired(f"{line} {tensor}", 3, finding.fix)
    assert not complaints(world, ranks)
