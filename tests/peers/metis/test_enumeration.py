import itertools
import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.peers.metis.cluster import metis_cluster_spec, read_metis_cluster
from ilp_planner.peers.metis.costs import MetisCosts, rank_types
from ilp_planner.peers.metis.enumeration import metis_graphs
from ilp_planner.peers.metis.files import read_metis_profile
from ilp_planner.peers.metis.formulas import MetisFormulas
from tests.examples import examples, for_each
from tests.metis_cases import (
    MODEL_FILE,
    SAMPLES,
    SHARED,
    metis_cost_ms,
    needs_data,
    published_cluster,
    published_costs,
    scaled_samples,
    synthetic_costs,
)


def cheapest(graphs):
    """Return (seconds, graph, path) of the best path by Pareto labels, without a line of the
    package's own search."""
    best = (np.inf, None, ())
    for space in graphs:
        graph = space.graph
        leaving = [[] for _ in range(graph.nodes)]
        for arc, tail in enumerate(graph.tail.tolist()):
            leaving[tail].append(arc)
        head, times = graph.head.tolist(), graph.time.tolist()
        totals = (graph.time + graph.extra).tolist()
        peaks = graph.peaks.T.tolist()
        weight = graph.weight
        labels = [[] for _ in range(graph.nodes)]
        for source in graph.sources:
            labels[source] = [((0.0, 0.0, 0.0, 0.0), ())]
        for node in range(graph.nodes - 1):
            for (slowest, total, first, second), path in front(labels[node]):
                for arc in leaving[node]:
                    key = (
                        max(slowest, times[arc]),
                        total + totals[arc],
                        max(first, peaks[arc][0]),
                        max(second, peaks[arc][1]),
                    )
                    cost = weight * key[0] + sum(key[1:]) + space.constant
                    if cost < best[0]:
                        labels[head[arc]].append((key, (*path, arc)))
                        if head[arc] == graph.sink:
                            best = (cost, space, (*path, arc))
    return best


def front(labels):
    kept = []
    for key, path in sorted(labels):
        if not any(all(a <= b for a, b in zip(k, key, strict=True)) for k, _ in kept):
            kept.append((key, path))
    return kept


def metis_words(space, path):
    """Return the arguments of `metis_cost_ms`."""
    plan = space.plan_of(path)
    return {
        "global_batch": plan.global_batch,
        "node_sequence": space.sequence,
        "device_groups": [len(stage.devices) for stage in plan.stages],
        "strategies": [(stage.dp, stage.tp) for stage in plan.stages],
        "batches": plan.micro_batches,
        "layer_partition": [0, *(stage.stop for stage in plan.stages)],
    }


PUBLISHED = [
    # T4 nodes, A100 nodes, T4 slower by, vocabulary, device rule, Metis's rule (ms)
    pytest.param([4], [4, 4, 4], 1, 0, 3125.445, 2728.0, id="shipped"),
    pytest.param([4], [4, 4, 4], 8, 51200, 3837.05, 3837.1, id="12+4"),
    pytest.param([4, 4], [4, 4], 8, 51200, 4728.07, 4728.1, id="8+8"),
    pytest.param([4], [4], 8, 51200, 9292.8, 9427.3, id="4+4"),
    pytest.param([4], [4], 2.5, 51200, 7771.7, 7771.7, id="4+4-2.5x"),
    pytest.param([2], [2], 8, 51200, 18422.4, 20053.0, id="2+2"),
    pytest.param([4] * 4, [4] * 4, 8, 51200, 2445.7, 2445.7, id="16+16"),
    pytest.param([], [8, 8], 1, 51200, 2496.8, 2461.9, id="16 A100"),
]


@pytest.mark.few(1)
@needs_data
@pytest.mark.parametrize(("t4", "a100", "factor", "vocabulary", "device", "metis"), PUBLISHED)
def test_published_optima(tmp_path, t4, a100, factor, vocabulary, device, metis):
    """The optima of Metis's own space, under both memory rules, priced again in its own words."""
    folder = scaled_samples(tmp_path, factor) if t4 else SAMPLES
    costs = published_costs(folder, published_cluster(t4, a100), vocabulary)
    cluster = metis_cluster_spec(costs.formulas.cluster)
    for summed, expected in ((False, device), (True, metis)):
        graphs = list(metis_graphs(costs, cluster, global_batch=128, summed=summed))
        found, space, path = cheapest(graphs)
        digits = len(str(expected).partition(".")[2])
        assert round(found * 1e3, digits) == expected
        assert space.graph.is_path(path)
        plan = space.plan_of(path)
        words = metis_cost_ms(costs.formulas, **metis_words(space, path))
        assert costs.plan_cost(plan, cluster).iteration_time == words / 1e3
        assert found == pytest.approx(words / 1e3, rel=1e-12)
        assert sorted(d for s in plan.stages for d in s.devices) == list(
            range(cluster.device_count)
        )


def every_plan(costs, global_batch, summed):
    """Enumerate Metis's space from its definition, one plan at a time: {plan: seconds}."""
    formulas = costs.formulas
    layers, types = formulas.layers, formulas.cluster.device_types
    found = {}
    for sequence in itertools.permutations(types):
        ranks = rank_types(formulas, sequence)
        for batches in (b for b in range(1, global_batch + 1) if global_batch % b == 0):
            for groups in compositions(len(ranks)):
                for cuts in itertools.combinations(range(1, layers), len(groups) - 1):
                    cuts = (0, *cuts, layers)
                    ways = [[(g // tp, tp) for tp in (1, 2) if g % tp == 0] for g in groups]
                    for strategies in itertools.product(*ways):
                        plan = (sequence, groups, strategies, batches, cuts)
                        if allowed(costs, ranks, groups, strategies, batches, cuts, summed):
                            found[plan] = metis_cost_ms(
                                formulas,
                                global_batch=global_batch,
                                node_sequence=sequence,
                                device_groups=groups,
                                strategies=strategies,
                                batches=batches,
                                layer_partition=cuts,
                            ) / 1e3  # fmt: skip
    return found


def compositions(ranks):
    if ranks == 0:
        yield ()
    for size in (1, 2, 4, 8):
        if size <= ranks:
            for rest in compositions(ranks - size):
                yield (size, *rest)


def allowed(costs, ranks, groups, strategies, batches, cuts, summed):
    """Tell whether every stage is profiled and fits, one layer at a time."""
    formulas, limits = costs.formulas, costs.limits_mb
    batch, first = GLOBAL_BATCH // batches, 0
    for s, (size, (dp, tp)) in enumerate(zip(groups, strategies, strict=True)):
        types, layers = ranks[first : first + size], range(cuts[s], cuts[s + 1])
        first += size
        mean = batch // dp
        if not 1 <= mean <= 4:
            return False
        single = len(set(types)) == 1
        last = s + 1 == len(groups)
        if single:
            if mean * dp != batch:
                return False
            parts = [[mean]] * dp
        else:
            split = formulas.share([types[i * tp] for i in range(dp)], tp, batch)
            parts = [[2**k for k in range(9) if samples >> k & 1] for samples in split]
        leads = [types[i * tp] for i in range(dp)]
        needed = {(d, tp, p) for d, ps in zip(leads, parts, strict=True) for p in ps}
        if last:
            needed |= {(d, tp, mean) for d in types}
        if any(formulas.row(*key) is None for key in needed):
            return False
        if not summed:
            for i, ps in enumerate(parts):
                held = sum(
                    formulas.row(leads[i], tp, max(ps)).memory[layer] if ps else 0
                    for layer in layers
                )
                if any(held > limits[d] for d in types[i * tp : (i + 1) * tp]):
                    return False
        else:
            if not single:
                whole = [ranks[i * (len(ranks) // dp)] for i in range(dp)]
                split = formulas.share(whole, tp, batch)
                parts = [[2**k for k in range(9) if samples >> k & 1] for samples in split]
            read = [mean] if single else [p for ps in parts for p in ps]
            if any(formulas.row(ranks[0], tp, p) is None for p in read):
                return False
            demand = 0.001 + sum(
                5 * formulas.row(ranks[0], tp, p).memory[layer] for p in read for layer in layers
            )
            if demand > sum(limits[d] for d in types):
                return False
    return True


def every_path(space):
    graph = space.graph
    leaving = {}
    for arc, tail in enumerate(graph.tail.tolist()):
        leaving.setdefault(tail, []).append(arc)

    def walk(node, path):
        if node == graph.sink:
            yield tuple(path)
            return
        for arc in leaving.get(node, ()):
            yield from walk(int(graph.head[arc]), [*path, arc])

    for source in graph.sources:
        yield from walk(source, [])


GLOBAL_BATCH = 8


@pytest.mark.slow
@for_each("summed", [False, True])
@for_each("counts", [{"A": 3}, {"A": 2, "B": 2}, {"B": 3, "A": 2}, {"A": 1, "C": 1, "B": 2}])
@for_each(("memory", "least_sync"), [(1000.0, 0.0), (9.0, -8.0)])
def test_paths_are_exactly_the_space(counts, summed, memory, least_sync):
    """Every plan of the definition is one path, at its own cost, and there is no other path."""
    costs = synthetic_costs(counts, 4, memory=memory, least_sync=least_sync, seed=len(counts))
    cluster = metis_cluster_spec(costs.formulas.cluster)
    expected = every_plan(costs, GLOBAL_BATCH, summed)
    found = {}
    for space in metis_graphs(costs, cluster, global_batch=GLOBAL_BATCH, summed=summed):
        for path in every_path(space):
            assert space.graph.is_path(path)
            words = metis_words(space, path)
            plan = (
                tuple(words["node_sequence"]),
                tuple(words["device_groups"]),
                tuple(words["strategies"]),
                words["batches"],
                tuple(words["layer_partition"]),
            )
            assert plan not in found
            found[plan] = space.graph.path_time(path) + space.constant
            judged = costs.plan_cost(space.plan_of(path), cluster)
            assert judged.iteration_time == pytest.approx(expected[plan], rel=1e-14)
            if summed:
                memory = costs.group_memory(space.plan_of(path), cluster)
                assert all(wanted <= there for wanted, there in memory)
    assert found.keys() == expected.keys()
    assert found
    for plan, seconds in found.items():
        assert seconds == pytest.approx(expected[plan], rel=1e-12)


@examples(7)
@given(st.integers(0, 99), st.sampled_from([{"A": 4}, {"B": 2, "A": 4}, {"A": 6}]))
def test_more_memory_never_hurts(seed, counts):
    best = []
    for memory in (8.0, 12.0, 1000.0):
        costs = synthetic_costs(counts, 4, memory=memory, seed=seed)
        cluster = metis_cluster_spec(costs.formulas.cluster)
        best.append(cheapest(metis_graphs(costs, cluster, global_batch=8))[0])
    assert best == sorted(best, reverse=True)


def test_micro_batches_can_be_chosen():
    costs = synthetic_costs({"A": 2}, 4)
    cluster = metis_cluster_spec(costs.formulas.cluster)
    graphs = list(metis_graphs(costs, cluster, global_batch=8, micro_batches=[4, 3, 2]))
    assert [space.micro_batches for space in graphs] == [2, 4]


class TestUnusualInputs:
    """What Metis crashes on, or answers differently from run to run."""

    def best(self, costs, global_batch=128):
        cluster = metis_cluster_spec(costs.formulas.cluster)
        found, space, path = cheapest(metis_graphs(costs, cluster, global_batch=global_batch))
        assert np.isfinite(found)
        plan = space.plan_of(path)
        assert costs.plan_cost(plan, cluster).iteration_time == pytest.approx(found, rel=1e-12)
        return found, plan

    @needs_data
    @pytest.mark.parametrize("batch", [24, 30, 48, 96])
    def test_global_batches_that_are_no_power_of_two(self, tmp_path, batch):
        costs = published_costs(scaled_samples(tmp_path, 8), published_cluster([4], [4]))
        _, plan = self.best(costs, batch)
        assert plan.global_batch == batch
        for stage in plan.stages:
            assert sum(r.samples for r in stage.replicas) * plan.micro_batches == batch

    @needs_data
    @pytest.mark.parametrize("nodes", [([2], [4]), ([4], [8]), ([], [6]), ([1], [2])])
    def test_six_and_twelve_devices_and_unequal_nodes(self, tmp_path, nodes):
        costs = published_costs(scaled_samples(tmp_path, 8), published_cluster(*nodes))
        _, plan = self.best(costs)
        assert plan.devices == sum(map(sum, nodes))

    @needs_data
    def test_a_missing_row_is_left_out(self, tmp_path):
        scaled_samples(tmp_path, 8)
        whole = self.best(published_costs(tmp_path, published_cluster([4], [4])))[0]
        (tmp_path / "DeviceType.A100_tp1_bs4.json").unlink()
        (tmp_path / "DeviceType.T4_tp2_bs1.json").unlink()
        costs = published_costs(tmp_path, published_cluster([4], [4]))
        assert self.best(costs)[0] >= whole
        assert "left out of every plan: DeviceType.A100_tp1_bs4.json" in costs.notes[-1]

    @needs_data
    def test_layers_that_take_all_the_time(self, tmp_path):
        """Metis takes a forward and backward time of just the layers for a missing one."""
        for path in SAMPLES.iterdir():
            content = json.loads(path.read_text())
            times = content["execution_time"]
            total = 0
            for layer in times["layer_compute_total_ms"]:
                total += layer
            times["forward_backward_time_ms"] = total
            (tmp_path / path.name).write_text(json.dumps(content))
        costs = published_costs(tmp_path, published_cluster([], [4]))
        assert costs.formulas.profile.notes == ()
        self.best(costs)

    @needs_data
    def test_tensor_parallel_degrees_that_are_not_profiled(self, tmp_path):
        four = published_costs(SAMPLES, published_cluster([], [8]))
        eight = MetisCosts(formulas=four.formulas, max_tp=8)
        assert self.best(eight)[0] == self.best(four)[0]
        assert "found 8 asked" in eight.notes[-1]

    def test_more_devices_than_layers(self):
        _, plan = self.best(synthetic_costs({"A": 8}, 2), 8)
        assert len(plan.stages) <= 2

    def test_one_layer_and_one_device(self):
        _, plan = self.best(synthetic_costs({"A": 1}, 1), 8)
        assert plan.devices == len(plan.stages) == 1

    def test_nothing_fits(self):
        costs = synthetic_costs({"A": 2}, 4, memory=0.5)
        assert not list(
            metis_graphs(costs, metis_cluster_spec(costs.formulas.cluster), global_batch=8)
        )

    def test_a_gpu_that_metis_does_not_know(self):
        _, plan = self.best(synthetic_costs({"H100": 2, "B200": 1}, 3), 8)
        assert plan.devices == 3

    @needs_data
    def test_the_order_of_lines_and_files(self, tmp_path):
        """Neither the hostfile's lines nor the clusterfile's entries change the best time."""
        folder = scaled_samples(tmp_path / "profiles", 8)
        lines = ["a 2", "b slots=1", "c 1", "d 2"]
        kinds = {"a": "A100", "b": "T4", "c": "T4", "d": "A100"}
        found = set()
        for seed in range(4):
            order = random.Random(seed).sample(lines, len(lines))
            names = random.Random(seed + 9).sample(sorted(kinds), len(kinds))
            (tmp_path / "hosts").write_text("\n".join(order))
            (tmp_path / "cluster.json").write_text(
                json.dumps(
                    {
                        n: {
                            "instance_type": kinds[n],
                            "inter_bandwidth": 10,
                            "intra_bandwidth": 46 + len(kinds[n]),
                            "memory": 15 if kinds[n] == "T4" else 80,
                        }
                        for n in names
                    }
                )
            )
            cluster = read_metis_cluster(tmp_path / "hosts", tmp_path / "cluster.json")
            costs = published_costs(folder, cluster)
            seconds, plan = self.best(costs)
            spec = metis_cluster_spec(cluster)
            types = [tuple(spec.type_of[d] for d in stage.devices) for stage in plan.stages]
            shape = [(s.start, s.stop, s.dp, s.tp) for s in plan.stages]
            found.add((seconds, str(types), str(shape), plan.micro_batches))
        assert len(found) == 1

    def test_the_readmes_example(self, tmp_path):
        """The files of Metis's README, as they are written there, for all four device types."""
        readme = SHARED / "seeds" / "metis.txt"
        if not readme.is_file():
            pytest.skip("the README is not in ../shared/seeds")
        text = readme.read_text()
        profile = re.search(r"Example Profile Data\s*(\{.*?\n\})\s*\n", text, re.DOTALL)
        clusterfile = re.search(r"(\{\s*\"IP1\".*?\n\})\s*\n", text, re.DOTALL)
        (tmp_path / "hosts").write_text(re.search(r"(?m)(?:^IP\d \d *\n)+", text).group())
        (tmp_path / "cluster.json").write_text(clusterfile.group(1))
        folder = tmp_path / "profiles"
        folder.mkdir()
        for device in ("V100", "P100", "T4", "A100"):
            for samples in (1, 2, 4):
                (folder / f"DeviceType.{device}_tp1_bs{samples}.json").write_text(profile.group(1))
        formulas = MetisFormulas(
            profile=read_metis_profile(folder),
            cluster=read_metis_cluster(tmp_path / "hosts", tmp_path / "cluster.json"),
            hidden=4096,
            sequence=1024,
            vocabulary=51200,
        )
        costs = MetisCosts(formulas=formulas)
        assert formulas.cluster.bandwidth["T4"] == 5312500000.0
        cluster = metis_cluster_spec(formulas.cluster)
        assert cluster.device_count == 32
        # Bytes per second, read as such; Metis's own model keeps the figure as gigabytes.
        assert cluster.link(0, 1).bandwidth == 312500000.0
        assert sum("looks like bytes/s" in note for note in costs.notes) == 2
        assert any("forward_backward_time_ms is missing" in note for note in costs.notes)
        graphs = list(metis_graphs(costs, cluster, global_batch=128, micro_batches=[2, 4]))
        assert len({space.sequence for space in graphs}) == 24
        found, space, path = cheapest(graphs[:1])
        assert space.plan_of(path).devices == 32
        assert found > 0


@needs_data
def test_the_file_of_the_constants_can_be_named(tmp_path):
    """The cost depends on it, as in Metis; its choice never on the directory."""
    costs = published_costs(SAMPLES, published_cluster([], [4]))
    other = read_metis_profile(SAMPLES, model_file=MODEL_FILE.replace("tp1", "tp4"))
    changed = MetisCosts(formulas=replace(costs.formulas, profile=other), max_tp=4)
    cluster = metis_cluster_spec(costs.formulas.cluster)
    first, second = (
        cheapest(metis_graphs(c, cluster, global_batch=128))[0] for c in (costs, changed)
    )
    assert second < first
