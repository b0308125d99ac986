import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import PlanError, ProfileError, UsageError
from ilp_planner.costs.groups import GroupClass, GroupOption
from ilp_planner.peers.metis.cluster import (
    MetisCluster,
    MetisNode,
    metis_cluster_spec,
    read_metis_cluster,
)
from ilp_planner.peers.metis.costs import rank_types
from ilp_planner.peers.metis.files import read_metis_profile
from ilp_planner.peers.metis.formulas import MetisFormulas, MetisGroup, powers, running_sums
from ilp_planner.plan import GroupStage, Plan, Replica
from tests.examples import examples
from tests.metis_cases import (
    DATA,
    SAMPLES,
    metis_cost_ms,
    needs_data,
    scaled_samples,
    synthetic_costs,
    synthetic_profile,
)

MIB = 2**20
PLAN_KEYS = ("node_sequence", "device_groups", "strategies", "batches", "layer_partition")


@needs_data
@pytest.mark.parametrize(("case", "factor"), [("a100_2x8", None), ("het16_t4x8", 8)])
def test_every_published_cost_to_the_last_bit(tmp_path, case, factor):
    """Valid plans, plans with empty stages and plans that lose layers alike."""
    setup, *rows = map(json.loads, (DATA / f"{case}.jsonl").read_text().splitlines())
    setup = setup["setup"]
    (tmp_path / "hostfile").write_text(setup["hostfile"])
    (tmp_path / "clusterfile.json").write_text(json.dumps(setup["clusterfile"]))
    folder = SAMPLES if factor is None else scaled_samples(tmp_path / "profiles", factor)
    formulas = MetisFormulas(
        profile=read_metis_profile(folder, model_file=setup["model_file"]),
        cluster=read_metis_cluster(tmp_path / "hostfile", tmp_path / "clusterfile.json"),
        hidden=setup["hidden"],
        sequence=setup["seq"],
        vocabulary=setup["vocab"],
    )
    assert len(rows) > 200
    for row in rows:
        cost = metis_cost_ms(formulas, global_batch=setup["gbs"], **{k: row[k] for k in PLAN_KEYS})
        assert cost == row["cost_ms"], row


@given(st.integers(0, 10**6))
def test_powers(samples):
    parts = powers(samples)
    assert sum(parts) == samples
    assert all(part.bit_count() == 1 for part in parts)
    assert list(parts) == sorted(set(parts), reverse=True)


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=12))
def test_running_sums_are_those_of_a_loop(values):
    """To the last bit: a difference of prefix sums would not be."""
    sums = running_sums(np.array(values))
    for a, b in itertools.combinations_with_replacement(range(len(values) + 1), 2):
        expected = 0.0
        for value in values[a:b]:
            expected += value
        assert sums[a, b] == expected


class TestShare:
    def formulas(self, speeds):
        return MetisFormulas(
            profile=synthetic_profile(speeds, 3),
            cluster=MetisCluster(nodes=tuple(MetisNode(d, d, 2, 1, 1, 80) for d in speeds)),
            hidden=8,
            sequence=8,
            vocabulary=8,
        )

    def test_in_proportion_with_the_rest_to_the_largest_fraction(self):
        formulas = self.formulas({"A": 1.0, "B": 3.0})
        assert formulas.share(["A", "B"], 1, 4) == (3, 1)
        assert formulas.share(["A", "B"], 1, 5) == (4, 1)  # 3.75 and 1.25
        assert formulas.share(["A", "A", "B"], 1, 1) == (1, 0, 0)
        equal = self.formulas({"A": 1.0, "B": 1.0})
        assert equal.share(["A", "B"], 1, 3) == (2, 1)  # first come, first served
        assert equal.share(["B", "A"], 1, 3) == (2, 1)

    @given(st.lists(st.sampled_from("AB"), min_size=1, max_size=8), st.integers(1, 64))
    def test_all_samples_and_no_more(self, leads, batch):
        samples = self.formulas({"A": 1.0, "B": 3.7}).share(leads, 2, batch)
        assert sum(samples) == batch
        assert min(samples) >= 0

    def test_not_without_the_rows(self):
        assert self.formulas({"A": 1.0}).share(["A"], 4, 8) is None

    def test_equal_replicas_share_without_a_rest(self):
        formulas = self.formulas({"A": 1.0, "B": 3.0})
        assert formulas.group("AA", 1, 4).samples == (2, 2)
        assert formulas.group("AA", 1, 5) is None
        assert formulas.group("AB", 1, 4) == MetisGroup((("A",), ("B",)), (3, 1), 2)


def test_what_does_not_fit_together_is_named():
    formulas = synthetic_costs({"A": 2, "B": 2}, 4).formulas
    good = {
        "global_batch": 8,
        "node_sequence": ["A", "B"],
        "device_groups": [2, 2],
        "strategies": [(2, 1), (1, 2)],
        "batches": 4,
        "layer_partition": [0, 2, 4],
    }
    assert metis_cost_ms(formulas, **good) > 0
    with pytest.raises(PlanError, match="node_sequence must order A, B, found A"):
        metis_cost_ms(formulas, **{**good, "node_sequence": ["A"]})
    with pytest.raises(ProfileError, match="made-up: not profiled: A tp1 bs8"):
        metis_cost_ms(formulas, **{**good, "batches": 1, "global_batch": 16})


def test_a_device_type_without_a_profile():
    with pytest.raises(ProfileError, match="no file of device type 'T4', which the cluster has"):
        MetisFormulas(
            profile=synthetic_profile({"A100": 1.0}, 3),
            cluster=MetisCluster(nodes=(MetisNode("a", "T4", 1, 1, 1, 15),)),
            hidden=8,
            sequence=8,
            vocabulary=8,
        )


def test_sizes_must_make_sense():
    formulas = synthetic_costs({"A": 1}, 3).formulas
    assert replace(formulas, vocabulary=0).vocabulary == 0
    for name, value in (("hidden", 0), ("sequence", -1), ("vocabulary", -1)):
        with pytest.raises(UsageError, match=f"{name} size must be at least"):
            replace(formulas, **{name: value})


def test_names_of_the_cluster_and_of_the_profile_may_differ():
    formulas = MetisFormulas(
        profile=synthetic_profile({"A100": 1.0}, 3),
        cluster=MetisCluster(nodes=(MetisNode("a", "fast", 1, 1, 1, 15),)),
        hidden=8,
        sequence=8,
        vocabulary=8,
        row_names={"fast": "a100"},
    )
    assert formulas.row("fast", 1, 1) is not None


def plan_of(stages, batches=4, global_batch=16):
    return Plan(model="m", global_batch=global_batch, micro_batches=batches, stages=tuple(stages))


def test_a_missing_row_is_named_and_not_priced():
    costs = synthetic_costs({"A": 2}, 3)
    cluster = metis_cluster_spec(costs.formulas.cluster)
    stage = GroupStage(start=0, stop=3, replicas=(Replica(devices=(0,), samples=3),))
    cost = costs.plan_cost(plan_of([stage], 4, 12), cluster)
    assert np.isnan(cost.iteration_time)
    assert cost.stages[0].unprofiled == ("A tp1 bs3",)


@pytest.mark.parametrize("least_sync", [0.0, -20.0])
@examples(30)
@given(data=st.data())
def test_tables_add_up_to_the_cost_of_the_plan(least_sync, data):
    """The optimiser's numbers, for stages of one and of two types, against the judge's."""
    seed = data.draw(st.integers(0, 5))
    costs = synthetic_costs({"B": 4, "A": 6}, 5, seed=seed, least_sync=least_sync)
    cluster = metis_cluster_spec(costs.formulas.cluster)
    batches = data.draw(st.sampled_from([2, 4, 8]))
    options = []
    for _ in range(data.draw(st.integers(1, 3))):
        replicas = data.draw(
            st.tuples(st.integers(0, 2), st.integers(0, 2)).filter(lambda r: sum(r) > 0)
        )
        options.append(GroupOption(data.draw(st.sampled_from([1, 2])), replicas))
    used = np.sum([option.use for option in options], axis=0)
    if (used > cluster.type_counts).any():
        return
    cuts = sorted(data.draw(st.sets(st.integers(1, 4), min_size=2, max_size=2)))
    cuts = [0, *cuts[: len(options) - 1], 5]
    tables = [costs.option_tables(o, batches, 16, cluster) for o in options]
    if None in tables:
        return
    free = {n: [d for d, t in enumerate(cluster.type_of) if t == n] for n in cluster.type_names}
    stages, times, extra, peaks = [], [], 0.0, []
    for s, (option, table) in enumerate(zip(options, tables, strict=True)):
        a, b = cuts[s], cuts[s + 1]
        names = [
            n for n, r in zip(cluster.type_names, option.replicas, strict=True) for _ in range(r)
        ]
        replicas = tuple(
            Replica(devices=tuple(free[n].pop() for _ in range(option.tp)), samples=x)
            for n, x in zip(names, table.samples, strict=True)
        )
        stages.append(GroupStage(start=a, stop=b, replicas=replicas))
        times.append(table.time[a, b])
        extra += table.extra[a, b]
        peaks.append(table.peaks[:, a, b])
        if s + 1 < len(options):
            types = tuple(i for i, r in enumerate(options[s + 1].replicas) if r)
            again, once = costs.send(
                option, table.samples, batches, GroupClass(types, within_node=True), cluster
            )
            times[-1] += again[b]
            extra += once[b]
    objective = (batches - 1) * max(times) + sum(times) + extra + np.max(peaks, axis=0).sum()
    cost = costs.plan_cost(plan_of(stages, batches), cluster)
    assert objective + costs.constant(batches) == pytest.approx(cost.iteration_time, rel=1e-12)
    assert sum(cost.terms.values()) == pytest.approx(cost.iteration_time, rel=1e-12)
    assert extra >= 0
    for table in tables:
        assert (table.extra >= 0).all()
        assert (table.peaks >= 0).all()


def test_memory_of_every_device():
    """A stage fits when each device does; not one micro-batch more in flight counts."""
    costs = synthetic_costs({"A": 2, "B": 2}, 3, memory=4.0)  # 4096 MB
    cluster = metis_cluster_spec(costs.formulas.cluster)
    option = GroupOption(1, (1, 1))
    table = costs.option_tables(option, 4, 16, cluster)
    assert table.samples == (3, 1)
    held = {
        device: costs.formulas.row(device, 1, part).memory for device, part in (("A", 2), ("B", 1))
    }
    for a, b in itertools.combinations(range(4), 2):
        fits = all(memory[a:b].sum() <= 4096 for memory in held.values())
        assert bool(table.in_flight[a, b]) == fits
    assert {0, 10**6} == set(table.in_flight[np.triu_indices(3, 1)].tolist()) | {0}
    plan = plan_of(
        [
            GroupStage(
                start=0,
                stop=2,
                replicas=(Replica(devices=(0,), samples=3), Replica(devices=(2,), samples=1)),
            )
        ]
    )
    memory = costs.plan_cost(plan, cluster).stages[0].memory
    assert memory == (held["A"][:2].sum() * MIB, held["B"][:2].sum() * MIB)


def test_metis_counts_the_memory_of_a_group():
    """Five times what a replica holds on the type of the first rank, against the sum."""
    costs = synthetic_costs({"A": 2, "B": 2}, 3, memory=4.0)
    cluster = metis_cluster_spec(costs.formulas.cluster)
    stages = [
        GroupStage(start=0, stop=1, replicas=(Replica(devices=(2, 3), samples=4),)),
        GroupStage(start=1, stop=3, replicas=(Replica(devices=(0,), samples=4),)),
    ]
    first, second = costs.group_memory(plan_of(stages), cluster)
    row = costs.formulas.row
    assert first == (pytest.approx((5 * row("B", 2, 4).memory[0] + 0.001) * MIB), 2 * 4 * 2**30)
    assert second[0] == pytest.approx((5 * row("B", 1, 4).memory[1:].sum() + 0.001) * MIB)
    assert second[1] == 4 * 2**30


def test_options_that_cannot_be():
    costs = synthetic_costs({"A": 4, "B": 4}, 3)
    cluster = metis_cluster_spec(costs.formulas.cluster)
    assert costs.option_tables(GroupOption(4, (1, 0)), 4, 16, cluster) is None  # tp 4: no rows
    assert costs.option_tables(GroupOption(1, (3, 0)), 4, 16, cluster) is None  # 4 samples over 3
    assert costs.option_tables(GroupOption(1, (1, 0)), 2, 16, cluster) is None  # 8 samples: no row
    assert costs.option_tables(GroupOption(1, (4, 4)), 4, 16, cluster) is None  # 4 samples over 8
    assert costs.option_tables(GroupOption(1, (2, 0)), 3, 16, cluster) is None
    assert costs.option_tables(GroupOption(1, (2, 0)), 4, 16, cluster) is not None


def test_degrees_and_notes():
    costs = synthetic_costs({"A": 4, "B": 4}, 3, degrees=(1, 2, 4))
    assert costs.degrees() == {"A": (1, 2, 4), "B": (1, 2, 4)}
    capped = type(costs)(formulas=costs.formulas, max_tp=2)
    assert capped.degrees() == {"A": (1, 2), "B": (1, 2)}
    asked = type(costs)(formulas=costs.formulas, max_tp=8)
    assert "tp is profiled up to 4, found 8 asked" in asked.notes[-1]


def test_limits_of_the_user_come_first():
    costs = synthetic_costs({"A": 1, "B": 1}, 3, memory=80.0)
    assert costs.limits_mb == {"A": 81920.0, "B": 81920.0}
    limited = type(costs)(formulas=costs.formulas, limits={"A": 2**30})
    assert limited.limits_mb == {"A": 1024.0, "B": 81920.0}


def test_ranks_are_laid_out_type_by_type():
    formulas = synthetic_costs({"A": 2, "B": 3}, 3).formulas
    assert rank_types(formulas, ["B", "A"]) == ("B", "B", "B", "A", "A")
