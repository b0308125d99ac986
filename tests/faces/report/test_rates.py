"""Rates of a plan as lines: how long GPUs wait for the host among them."""

from ilp_planner.faces.report.rates import FELT, rates_lines, rates_object
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.spaces.throughput import Throughput, throughput
from ilp_planner.spaces.training.space import MegatronSpace
from tests.every_space import every_space, problem_in, result_in

DONE = Throughput(
    samples=1.0, tokens=2048.0, devices=1, flops=1e12, mfu=0.1, hfu=None, bubble=None, busy=1.0
)


def test_the_host_is_a_line_where_it_is_felt() -> None:
    for host in (None, 0.0, 0.9 * FELT, FELT, 0.46):
        done = DONE._replace(host=host)
        lines = dict(rates_lines(done, "bf16"))
        assert ("host" in lines) == (host is not None and host >= FELT)
        found = rates_object(done)
        assert found is not None
        assert found["host"] == host
    assert "46.00 % of the iteration" in lines["host"]
    assert "micro-batch" in lines["host"]
    assert "CUDA graphs" not in lines["host"]
    lines = dict(rates_lines(done._replace(graphs="attn"), "bf16"))
    assert "`--cuda-graphs attn`" in lines["host"]


@every_space
def test_training_systems_tell_the_host(space: str) -> None:
    problem, result = problem_in(space), result_in(space)
    assert result.plan is not None
    assert result.evaluation is not None
    done = throughput(problem, result.plan, result.evaluation)
    told = None if done is None else done.host
    trained = isinstance(problem.space, MegatronSpace) and problem.costs.profile is None
    assert (told is not None) == trained
    assert 0 <= (told or 0.0) < 1
    if done is not None and done.graphs:
        pasted = {"cuda_graphs": done.graphs}
        assert isinstance(problem.space, MegatronSpace)
        check = constraints_of(pasted)
        problem.space.runtime.check_asked(check)
        assert "cuda_graphs" in problem.space.runtime.listens
