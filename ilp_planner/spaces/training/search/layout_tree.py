"""All layouts of interleaved virtual stages: a bound on them, and the best one.

In any layout, an iteration takes no less than each of some weighted sums over virtual stages,

    schedule >= s_j = c_j + sum_k (u_jk f_k + w_jk b_k)        synchronisation >= t_r

with f and b the passes of a micro-batch through stage k, and t_r the synchronisation of rank r.
Some are known of the schedule (`bounds.schedule`). If messages travel while ranks compute,
another one is the critical path of any layout that is simulated: its operations follow each other
in all layouts. Paths are added for the layouts with the least sums so far (Kelley's cutting
planes), so that the bound equals the event engine's near the plans of the search.

The layout is decided stage by stage, so layouts are a tree. No layout below a node undercuts

    max_j (s_j so far + the least of the rest) + max_r (t_r so far + the least of the rest),

nor the same of convex combinations in place of the maxima (a Lagrangian relaxation: layers that one
rank has not another one has), with multipliers found by ascent at the root. Besides, within T
seconds a rank makes its passes through as many whole layers as it has time for, and all ranks
together must make the passes of all layers. The node of the least bound is divided first.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.costs.training.iteration import stage_times, stages_of, timeline, travels
from ilp_planner.schedule.engine import critical_path
from ilp_planner.spaces.training.bounds.cut_tables import stage_ranges
from ilp_planner.spaces.training.bounds.near_cuts import ROUNDING
from ilp_planner.spaces.training.enumerate.layouts import stage_bytes
from ilp_planner.spaces.training.enumerate.partition import INFINITE, Cut, CutSearch

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ilp_planner.spaces.training.enumerate.variants import Variant
    from ilp_planner.spaces.training.search.parts import MegatronPart

    Array = NDArray[np.float64]
    Stops = tuple[int, ...]

ROUNDS = 20  # steps of the ascent, for every path that is added
LONGEST = 5.0  # a step changes no multiplier by more than this factor, as a logarithm
MET = 1e-5  # relative: bounds so near to a layout are not raised
NODES = 32  # that are divided, for every layout that may be simulated


class Sums(NamedTuple):
    """Lower bounds of all layouts (`s_j`): fixed [j] in seconds, forward and backward [j, stages]
    how often passes count. alone [ranks]: of a rank's passes, without the path of a micro-batch to
    the rank and back."""

    fixed: Array
    forward: Array
    backward: Array
    alone: NDArray[np.int64]

    def and_path(self, seconds: float, forward: Array, backward: Array) -> Sums:
        """Return these and that of a path of operations with so many seconds of messages."""
        fixed = np.append(self.fixed, seconds)
        passes = np.vstack((self.forward, forward)), np.vstack((self.backward, backward))
        return Sums(fixed, *passes, self.alone)


def interleaved_sums(pp: int, virtual: int, micro_batches: int, turn: int, sends: Array) -> Sums:
    """Return the bounds of `bounds.schedule` for a layout, as sums.

    sends: seconds that each rank sends to the next one and back, the last to the first.
    """
    stages, m = pp * virtual, micro_batches
    number, half = np.arange(stages), np.tile(sends, virtual)[: stages - 1] / 2
    rows: list[tuple[float, Array, Array]] = []
    alone = []
    for rank in range(pp):
        last = stages - pp + rank
        before, own = (number < rank) * 1.0, (number % pp == rank) * 1.0
        further, behind = (number >= rank) * 1.0, (number > last) * 1.0
        whole, ready = before + m * own, float(sends[:rank].sum())
        # of messages from the first forward pass to the first backward pass, and so at the end
        late = float(half[rank:].sum() + half[last:].sum())
        alone.append(len(rows))
        rows.append((ready, whole, whole))
        warm = 2 * (pp - rank - 1) + (virtual - 1) * turn + 1
        if m * virtual <= warm:
            rows.append((ready + late, before + further, whole + behind))
            rows.append((ready + late, whole + behind, before + further))
            continue
        ahead, after = np.zeros(stages), np.zeros(stages)
        ahead[rank::pp] = _passes(warm, turn, turn, virtual)
        after[rank::pp] = _passes(warm, m % turn or turn, turn, virtual)
        begin, end = (further - ahead, behind), (behind, further - after)
        rows.append((ready + late, whole + begin[0], whole + begin[1]))
        rows.append((ready + late, whole + end[0], whole + end[1]))
        rows.append((ready + 2 * late, whole + begin[0] + end[0], whole + begin[1] + end[1]))
    fixed, forward, backward = zip(*rows, strict=True)
    return Sums(np.array(fixed), np.array(forward), np.array(backward), np.array(alone))


def _passes(number: int, begin: int, turn: int, virtual: int) -> Array:
    """Return how many of a rank's first passes go through each of its virtual stages, in a group of
    `begin` micro-batches and then of `turn`."""
    stage = np.arange(virtual)
    whole, left = divmod(max(number - virtual * begin, 0), virtual * turn)
    first = np.clip(number - stage * begin, 0, begin)
    return np.asarray(first + whole * turn + np.clip(left - stage * turn, 0, turn), np.float64)


class Multipliers(NamedTuple):
    """A convex combination. sums [j], syncs [ranks]: multipliers that add up to 1 each. rest
    [stages + 1, n + 1]: its least over the stages from each one on, by its first layer. value: the
    least of all layouts, seconds."""

    sums: Array
    syncs: Array
    rest: Array
    value: float = -INFINITE


class Node(NamedTuple):
    """Layouts that begin alike. stops: ends of their first stages. sums, syncs: of these (`s_j`,
    `t_r`), seconds. held: bytes of ranks, by rank and number in flight."""

    stops: Stops
    sums: Array
    syncs: Array
    held: Array


class LayoutTree:
    """All layouts of a variant, and a search of them that goes on if it was left.

    Additions at the root do not depend on the search's results, so that a certificate is checked by
    the same search.
    """

    def __init__(self, part: MegatronPart, variant: Variant) -> None:
        self.part, self.variant = part, variant
        self.pp, self.rows = part.degrees.pp, part.rank_rows
        self.stages = self.pp * variant.virtual
        self.length = part.costs.model.layers + 2
        self.ranges = stage_ranges(part, variant.recompute)
        sends, turn = np.array(part.ranks.transfers), variant.turn or self.pp
        shape = self.pp, variant.virtual, part.micro_batches
        self.sums = interleaved_sums(*shape, turn, sends)
        self.fixed_syncs = part.syncs[self.rows, 0]
        edge = np.arange(self.length + 1)
        self.nothing = np.where(edge[:, None] < edge, 0.0, INFINITE)  # of ranges that are empty
        self.memory = stage_bytes(part.memory(variant), part.limits)
        self.coming, self.layers = self._coming(), self._layers()
        self.judged: dict[Stops, float] = {}
        self.simulated: dict[Stops, bool] = {}  # and whether it has a path that was added
        self.proposed: dict[Stops, None] = {}
        count = self.sums.fixed.size
        self.best = Multipliers(
            np.full(count, 1 / count), np.full(self.pp, 1 / self.pp), np.zeros(0)
        )
        self.queue: list[tuple[float, int, int, bool, Node]] = []
        self.pushed, self.dropped = 0, INFINITE  # nodes in all, the least bound of those left out

    # ---- the root -------------------------------------------------------------------------------

    def tighten(self, paths: int) -> None:
        """Begin anew, with the critical paths of so many layouts in all."""
        more = True
        while more:
            self._ascend()
            waiting = [stops for stops in self.proposed if stops not in self.simulated]
            more = bool(waiting) and len(self.simulated) < paths
            if more:
                least = self.least(np.array(waiting))
                more = self._add_path(waiting[int(least.argmin())])
        count = self.sums.fixed.size
        self.rest_sums = self._rest(np.eye(count), np.zeros((count, self.pp)))
        self.rest_syncs = self._rest(np.zeros((self.pp, count)), np.eye(self.pp))
        root = Node((0,), self.sums.fixed, self.fixed_syncs, self.memory.fixed)
        self.queue, self.pushed, self.dropped = [(0.0, 0, 0, False, root)], 0, INFINITE

    def _add_path(self, stops: Stops) -> bool:
        """Add the critical path of a layout; tell whether there are any to be added."""
        part = self.part
        job = part.job_of_stages(self.variant, stops)
        if not travels(job):
            return False
        times = stage_times(part.ranks, job, stages_of(part.ranks, job))
        run = timeline(job, times)
        path, seconds = critical_path(run, times)
        often = np.bincount(run.orders.places[path], minlength=4 * self.stages).astype(float)
        forward, backward, *_ = often.reshape(4, -1)
        self.sums = self.sums.and_path(seconds, forward, backward)
        self.simulated[stops] = True
        return True

    def _ascend(self) -> None:
        """Find multipliers with a large bound, from the best ones so far on, and propose the
        layouts that are the least on the way."""
        count = self.sums.fixed.size
        more = count - self.best.sums.size
        self.best = self.best._replace(sums=np.append(self.best.sums, np.zeros(more)))
        sums, syncs = self.best.sums.copy(), self.best.syncs
        sums[count - more :] = 1 / count
        sums /= sums.sum()
        known = [*self.proposed]
        target = float(self.least(np.array(known)).min()) if known else INFINITE
        for _ in range(ROUNDS):
            rest = self._rest(sums[None], syncs[None])[0]
            value = float(sums @ self.sums.fixed + syncs @ self.fixed_syncs + rest[0, 0])
            stops = self._path(Multipliers(sums, syncs, rest))
            self.proposed[stops] = None
            if value > self.best.value:
                self.best = Multipliers(sums, syncs, rest, value)
            (own,), (once,) = self._of(np.array([stops]))
            target = min(target, float(own.max() + once.max()))
            up, along = own - sums @ own, once - syncs @ once
            steep = max(abs(up).max(), abs(along).max())
            if steep <= 0 or value >= target * (1 - MET):
                return
            step = (target - value) / steep**2
            sums = sums * np.exp(np.clip(step * up, -LONGEST, LONGEST))
            syncs = syncs * np.exp(np.clip(step * along, -LONGEST, LONGEST))
            sums, syncs = sums / sums.sum(), syncs / syncs.sum()

    # ---- what layouts take ----------------------------------------------------------------------

    def least(self, layouts: NDArray[np.int64]) -> Array:
        """Return the seconds that layouts take at least, without the constant.

        layouts: ends of their stages, from 0 on, [layouts, stages + 1].
        """
        sums, syncs = self._of(layouts)
        return np.asarray(sums.max(axis=1) + syncs.max(axis=1))

    def _of(self, layouts: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return the sums and the synchronisation of layouts, [layouts, j] and [layouts, ranks]."""
        kinds = self.rows[np.arange(self.stages) % self.pp]
        found = self.ranges[kinds, :, layouts[:, :-1], layouts[:, 1:]]
        forward, backward, once = np.moveaxis(found, -1, 0)
        sums = self.sums.fixed + forward @ self.sums.forward.T + backward @ self.sums.backward.T
        syncs = once.reshape(len(layouts), -1, self.pp).sum(axis=1)
        return sums, self.fixed_syncs + syncs

    def _costs(self, stage: int, sums: Array, syncs: Array) -> Array:
        """Return the seconds that ranges add to combinations as a stage, [c, n + 1, n + 1].

        sums, syncs: multipliers, [c, j] and [c, ranks].
        """
        rank = stage % self.pp
        forward, backward, once = self.ranges[self.rows[rank]]
        u, w = sums @ self.sums.forward[:, stage], sums @ self.sums.backward[:, stage]
        own = np.multiply.outer(u, forward) + np.multiply.outer(w, backward)
        return np.asarray(own + np.multiply.outer(syncs[:, rank], once) + self.nothing)

    def _rest(self, sums: Array, syncs: Array) -> Array:
        """Return the least of combinations over the stages from each one on, [c, stages + 1, n +
        1]; multipliers as in `_costs`."""
        rest = np.full((len(sums), self.stages + 1, self.length + 1), INFINITE)
        rest[:, -1, -1] = 0.0
        for stage in reversed(range(self.stages)):
            each = self._costs(stage, sums, syncs) + rest[:, stage + 1, None, :]
            rest[:, stage] = np.minimum(each.min(axis=2), INFINITE)
        return rest

    def _path(self, of: Multipliers) -> Stops:
        """Return the layout that is the least in a combination."""
        stops = [0]
        for stage in range(self.stages):
            (each,) = self._costs(stage, of.sums[None], of.syncs[None])
            stops.append(int((each[stops[-1]] + of.rest[stage + 1]).argmin()))
        return tuple(stops)

    def _coming(self) -> Array:
        """Return the seconds [stages + 1, ranks] of the undecided rest of a rank's sum, layers of
        its own aside, by the first stage that is not: a micro-batch in the first virtual stages of
        the ranks before it, and the embedding and the output."""
        m, edge = self.part.micro_batches, np.arange(self.length)
        each = self.ranges[self.rows, :2].sum(axis=1)[:, edge, edge + 1]
        found = np.zeros((self.stages + 1, self.pp))
        found[0, 0] = m * each[0, 0]
        found[: self.stages, -1] = m * each[-1, -1]
        for rank in range(self.pp - 1):
            first = each[rank, 0] if rank == 0 else each[rank, 1:-1].min()
            found[: rank + 1, rank + 1 :] += first
        return found

    def _layers(self) -> Array:
        """Return the seconds [virtual + 1, ranks, layers] of all passes through so many layers of a
        rank, at least, in so many virtual stages that have a layer or more: recomputation of each
        is least if all others have one."""
        part, again = self.part, self.variant.recompute
        repeated = part.repeated(again)[:, 1:-1]
        block = again.layers if again.method == "block" else repeated.shape[1]
        once = (part.elements[:, 0] + part.waits(again).sum(axis=1))[:, 1:-1].min(axis=1)
        steps = np.arange(1, repeated.shape[1] + 1)
        others = np.maximum(np.arange(self.variant.virtual + 1) - 1, 0)
        more = np.minimum(steps, block + others[:, None])[:, None] * repeated.min(axis=1)[:, None]
        return np.asarray(part.micro_batches * (steps * once[:, None] + more)[:, self.rows])

    # ---- the tree -------------------------------------------------------------------------------

    def search(
        self, cutoff: float, most: int, goon: Callable[[], bool], judge: Callable[[Stops], float]
    ) -> CutSearch:
        """Return the fastest layout below the cutoff, and a bound on all of them.

        Parameters
        ----------
        most: layouts that are judged. judge: seconds of a layout; `NEVER` if it does not fit.
        """
        best: Cut | None = None

        def value(stops: Stops) -> None:
            nonlocal best, cutoff
            if stops not in self.judged:
                self.judged[stops] = judge(stops)
            if self.judged[stops] < cutoff:
                best = Cut(stops, self.judged[stops])
                cutoff = best.value

        for stops in self.simulated:
            if goon():
                value(stops)
        nodes = NODES * most
        while self.queue and goon():
            room = cutoff * (1 - ROUNDING)
            floor, _, _, final, node = self.queue[0]
            if floor >= room or nodes <= 0 or most <= 0:
                break
            heappop(self.queue)
            if not final:  # it may be higher, by how ranks share the layers
                self._push(max(floor, self._shared(node)), node, room, final=True)
            elif len(node.stops) > self.stages:
                most -= node.stops not in self.judged
                value(node.stops)
            else:
                nodes -= 1
                self._divide(node, room)
        least = self.queue[0][0] if self.queue else INFINITE
        floors = (self.dropped, least, *self.judged.values())
        bound = min((one for one in floors if one < cutoff * (1 - ROUNDING)), default=cutoff)
        return CutSearch(best, bound)

    def _push(self, floor: float, node: Node, room: float, *, final: bool) -> None:
        if floor >= room:
            self.dropped = min(self.dropped, floor)
            return
        self.pushed += 1
        heappush(self.queue, (floor, -len(node.stops), self.pushed, final, node))

    def _divide(self, node: Node, room: float) -> None:
        """Replace a node by nodes that decide its next stage as well."""
        stage, start = len(node.stops) - 1, node.stops[-1]
        rank, left = stage % self.pp, self.stages - stage - 1
        stops = np.arange(start + 1 if left else self.length, self.length - left + 1)
        forward, backward, once = self.ranges[self.rows[rank], :, start, stops].T
        sums = node.sums + np.multiply.outer(forward, self.sums.forward[:, stage])
        sums += np.multiply.outer(backward, self.sums.backward[:, stage])
        syncs = np.repeat(node.syncs[None], stops.size, axis=0)
        syncs[:, rank] += once
        held = self.memory.with_stage(node.held, stage, start, stops)
        most = (sums + self.rest_sums[:, stage + 1, stops].T).max(axis=1)
        most += (syncs + self.rest_syncs[:, stage + 1, stops].T).max(axis=1)
        one = self.best
        mean = sums @ one.sums + syncs @ one.syncs + one.rest[stage + 1, stops]
        floors = np.maximum(most, mean) + self.part.ranks.constant
        for place in np.flatnonzero((held <= self.memory.limits).all(axis=1)).tolist():
            own = (*node.stops, int(stops[place]))
            child = Node(own, sums[place], syncs[place], held[place])
            self._push(float(floors[place]), child, room, final=not left)

    def _shared(self, node: Node) -> float:
        """Return a lower bound in seconds of the layouts below a node, as all ranks together must
        make the passes of all layers."""
        stage, start = len(node.stops) - 1, node.stops[-1]
        ready = node.sums[self.sums.alone] + self.coming[stage]
        most, layers = float(ready.max()), self.length - 1 - max(start, 1)
        if layers > 0:
            left = np.arange(stage, self.stages)
            ranks = np.unique(left % self.pp)
            inner = left[(left > 0) & (left < self.stages - 1)]
            several = np.bincount(inner % self.pp, minlength=self.pp)[ranks]
            ends = ready[ranks, None] + self.layers[several, ranks, :layers]
            most = max(most, float(np.partition(ends, layers - 1, axis=None)[layers - 1]))
        sync = float((node.syncs + self.rest_syncs[:, stage, start]).max())
        return most + sync + self.part.ranks.constant
