"""Values that are offered in the place of options of `ilp-plan analyze` work, all together."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.analysis.devices import Devices
from ilp_planner.base.errors import UsageError
from ilp_planner.costs.training.job import begins
from ilp_planner.faces.cli.analyze_job import UNSAID, job_of_options
from ilp_planner.settings.rules import check_sparse

few = st.sampled_from
ASKED: dict[str, Any] = {**UNSAID, "model": "gpt3-1.3b", "pp": 1, "devices_per_node": None}
NAMES = {"--virtual-stages": "virtual", "--global-batch-size": "global_batch"}
choices = st.fixed_dictionaries(
    {"model": few(["gpt3-1.3b", "llama3-8b", "mixtral-8x7b"])},
    optional={
        "tp": few([2, 3, 6, 16]),
        "pp": few([2, 3, 5, 8]),
        "cp": few([2, 3]),
        "dp": few([1, 2, 3]),
        "ep": few([2, 3, 8]),
        "virtual": few([2, 3]),
        "micro_batch": few([1, 2]),
        "global_batch": few([30, 63, 64]),
        "world_size": few([15, 16, 64]),
        "sequence_parallel": st.just(True),
    },
)


@given(choices)
def test_what_would_do_does(chosen: dict[str, Any]) -> None:
    asked = ASKED | chosen
    try:
        job_of_options(asked, Devices())
    except UsageError as error:
        match = re.fullmatch(r"(--[a-z-]+): .*; (.*) would do", str(error))
        if match is None:
            return
        words = match[2].split()
        repairs = (
            dict(zip(words[::2], words[1::2], strict=True)) if words[1:] else {match[1]: words[0]}
        )
        for option, text in repairs.items():
            name = NAMES.get(option, option.removeprefix("--").replace("-", "_"))
            asked[name] = int(text) if text.isdecimal() else text
        job, *_ = job_of_options(asked, Devices())
        said = {name: asked[name] for name in ("tp", "pp", "micro_batch") if asked[name]}
        assert {name: getattr(job, name) for name in said} == said


def test_a_repair_of_two_options() -> None:
    with pytest.raises(UsageError, match=r"^--tp: found 6, .*; --tp 4 --world-size 8 would do$"):
        job_of_options({**ASKED, "tp": 6, "dp": 2, "world_size": 12}, Devices())


@pytest.mark.parametrize("pp", range(2, 20))
@pytest.mark.parametrize("virtual", [1, 2])
def test_assumed_stages_begin_with_a_layer_that_has_an_indexer(pp: int, virtual: int) -> None:
    asked = {**ASKED, "model": "glm5.2", "pp": pp, "dp": 1, "virtual": virtual, "recompute": None}
    job, _, notes = job_of_options(asked, Devices())
    enough = pp * virtual < begins(job.model).sum() - 1  # but the output and the end
    broken = [one for one in check_sparse(job) if "begins with" in str(one)]
    assert bool(broken) == (not enough)
    assert (job.pp, job.virtual, job.pipeline.layers) == (pp, virtual, job.model.layers)
    assert any("layers that have an indexer" in note for note in notes)
