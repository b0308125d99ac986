"""Random plans for a runtime that shares Megatron's search, drawn without a line of it: from what
`ilp-plan runtimes` says is tried, and now and then from what is not."""

import itertools
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ilp_planner.costs.training.job import node_order
from ilp_planner.inputs.problem import Problem
from ilp_planner.plan import GroupPlan, GroupStage, Plan
from ilp_planner.settings.values import MOMENTS
from ilp_planner.spaces.training.enumerate.choices import with_beside
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.training import (
    CP_COMMUNICATIONS,
    MUON_MODES,
    ORDERS,
    RECOMPUTED,
    SHARDINGS,
    Kernels,
    Offload,
    Recompute,
    Settings,
)
from ilp_planner.specs.tuning import Tuning
from tests.divided_layouts import DIVIDED, drawn_sizes, ranks_in, takes
from tests.megatron_cases import rank_groups
from tests.random_layouts import ANY, ASKED, shifted, sizes_of
from tests.runtime_cases import (
    CHUNKS,
    SCHEDULES,
    SELECTIVE,
    SETTINGS,
    Degrees,
    every_degrees,
    orders_of_nodes,
    replicated,
)

T = TypeVar("T")

USUAL_TARGETS = {"megatron": ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")}
USUAL = 0.98  # of the values of a decision, the share that is tried without being asked for
# What Megatron-LM's plans have of each decision where nothing is asked for, and all that there is.
TRIED: dict[str, tuple[str, ...]] = {
    "sharding": ("optimizer", "parameters"),
    "sharding_copies": ("1",),
    "cp_comm": ("p2p", "a2a"),
    "overlap": ("data",),
    "fused_loss": ("native",),
    "gradients": ("fp32",),
    "moments": ("fp32",),
    "optimizer": ("adam",),
    "muon_tp_mode": ("blockwise",),
    "muon_packing": ("on",),
    "muon_steps": ("5",),
    "tensor_overlap": ("off",),
    "expert_overlap": ("off",),
    "cuda_graphs": ("none",),
    "optimizer_offload": ("0",),
    "activation_offload": ("none",),
    "dispatcher": ("alltoall",),
    "fused_permute": ("off",),
    "fp8_attention": ("off",),
}
EVERY: dict[str, tuple[str, ...]] = {
    "sharding": SHARDINGS,
    "sharding_copies": ("1", "2", "4"),
    "cp_comm": CP_COMMUNICATIONS,
    "overlap": ("data", "none"),
    "fused_loss": ("native", "te", "none"),
    "gradients": ("fp32", "bf16"),
    "moments": ("fp32", "bf16", "fp8"),
    "optimizer": ("adam", "muon"),
    "muon_tp_mode": MUON_MODES,
    "muon_packing": ("on", "off"),
    "muon_steps": ("5", "8", "10"),
    "tensor_overlap": ("off", "on"),
    "expert_overlap": ("off", "on"),
    "cuda_graphs": ("none", "attn", "router", "layer", "full_iteration"),
    "optimizer_offload": ("0", "0.25", "0.5", "1"),
    "activation_offload": ("none", "1", "mlp_norm", "attn_norm+core_attn"),
    "dispatcher": ("alltoall", "allgather", "flex"),
    "fused_permute": ("off", "on"),
    "fp8_attention": ("off", "on"),
}
# What CUDA graphs start, and of a layer what is in one; nothing: all of it.
GRAPHS: dict[str, tuple[str, tuple[str, ...]]] = {
    "none": ("", ()),
    "attn": ("transformer_engine", ("attn",)),
    "router": ("transformer_engine", ("attn", "moe_router", "moe_preprocess")),
    "layer": ("transformer_engine", ()),
    "full_iteration": ("full_iteration", ()),
}
# What is sharded with (True) and without a pipeline by the runtimes that differ there.
KINDS_OF_SHARDING = {
    ("torchtitan", False): ("gradients", "parameters", "none"),
    ("torchtitan", True): ("gradients", "parameters", "none"),
    ("deepspeed", False): SHARDINGS,
    ("deepspeed", True): ("none", "optimizer"),
}
BYTES = {"fp32": 4, "bf16": 2, "fp8": 1}  # of a gradient, and of one of Adam's two moments
USUAL_MODULES = (
    ("core_attn",),
    ("layernorm",),
    ("mla_up_proj",),
    ("mlp",),
    ("moe_act",),
    ("moe",),
    ("mlp", "moe"),
    ("layernorm", "mlp"),
    ("layernorm", "moe_act"),
    ("mla_up_proj", "mlp", "moe"),
    ("layernorm", "mla_up_proj", "moe"),
)


def offload_of(text: str) -> Offload:
    """Return what waits on the host: nothing, a number of layers, or modules joined by +."""
    if text.isdigit():
        return Offload(layers=int(text))
    return Offload() if text == "none" else Offload(modules=tuple(text.split("+")))


def having(value: T, **fields: Any) -> T:
    """Return a value with such fields: itself, where it has them."""
    if all(getattr(value, name) == field for name, field in fields.items()):
        return value
    changed: T = replace(value, **fields)  # type: ignore[type-var]
    return changed


DECISIONS = (
    "degrees", "samples", "nodes", "order", "settings", "recompute", "virtual", "turn", "schedule",
    "layout", "shift",
)  # fmt: skip


@dataclass(frozen=True)
class Draft:
    """A plan as its decisions. samples: of a micro-batch of a replica. nodes: as ranks fill them.
    settings: with the degrees and the recomputation. sizes: elements of every virtual stage."""

    degrees: Degrees
    samples: int
    nodes: tuple[int, ...]
    settings: Settings
    virtual: int
    sizes: tuple[int, ...]


class Drawer:
    """Draws plans of a problem. Seeds that are equal draw the same."""

    def __init__(self, problem: Problem[Any], seed: int) -> None:
        self.problem, self.random = problem, random.Random(seed)
        self.name = problem.space.name
        self.model = problem.costs.model
        self.settings_of: dict[Degrees, list[Settings]] = {}  # of the runtimes in SETTINGS
        self.each = problem.cluster.nodes[0].devices
        self.asked = problem.constraints
        self.anyhow = ASKED if self.asked.layout and self.asked.layout.free else 0.0
        experts = self.model.experts.count if self.model.experts else 0
        self.every = [
            d
            for d in every_degrees(problem.cluster.device_count, experts)
            if problem.global_batch % d.dp == 0 and d.pp <= self.model.layers + 2
        ]
        self.usual = [
            d
            for d in self.every
            if self.each % d.tp == 0
            and d.cp <= problem.costs.max_cp
            and (d.tp * d.cp * d.dp) % (d.ep * max(1, d.etp)) == 0
            and self.asked.allows("pp", d.pp)
            and (d.pp > 1 or self.asked.allows("virtual_stages", 1))
        ]

    def plans(self, best: GroupPlan | None) -> Iterator[GroupPlan]:
        """Yield plans without end; three of four are as `best`, but for one to three decisions."""
        old = None if best is None else self.draft_of(best)
        for draft in self.drafts(old):
            if min(draft.sizes) > 0:
                yield self.plan_of(draft)

    def drafts(self, old: Draft | None) -> Iterator[Draft]:
        """Yield decisions, of which some may leave a virtual stage without anything."""
        while True:
            yield self.draft(None, DECISIONS)
            for _ in range(3 if old is not None else 0):
                yield self.draft(old, self.random.sample(DECISIONS, self.random.randint(1, 3)))

    def plan_of(self, draft: Draft) -> GroupPlan:
        """Return the plan of some decisions."""
        d, problem = draft.degrees, self.problem
        ranks = [node * self.each + i for node in draft.nodes for i in range(self.each)]
        order = draft.settings.order
        groups = rank_groups(ranks, d.tp * d.cp, d.dp, d.pp, draft.samples, order)
        ends = (0, *itertools.accumulate(draft.sizes))
        place = ranks_in(draft.settings.schedule, d.pp, draft.virtual)
        return Plan(
            model=problem.model,
            global_batch=problem.global_batch,
            micro_batches=problem.global_batch // (draft.samples * d.dp),
            stages=tuple(
                GroupStage(start=a, stop=b, replicas=groups[rank])
                for rank, (a, b) in zip(place, itertools.pairwise(ends), strict=True)
            ),
            settings=draft.settings,
            virtual=draft.virtual,
        )

    def draft_of(self, plan: GroupPlan) -> Draft:
        """Return the decisions of a plan."""
        s = plan.settings
        assert s is not None
        nodes = node_order(plan, self.problem.cluster)
        assert nodes is not None
        first = plan.stages[0]
        etp = (s.etp or first.tp // s.cp) if self.model.experts else 0
        return Draft(
            degrees=Degrees(first.tp // s.cp, s.cp, s.ep, etp, first.dp, plan.ranks),
            samples=first.replicas[0].samples,
            nodes=nodes,
            settings=s,
            virtual=plan.virtual,
            sizes=tuple(stage.stop - stage.start for stage in plan.stages),
        )

    # ---- decisions ------------------------------------------------------------------------------

    def draft(self, old: Draft | None, changed: Collection[str]) -> Draft:
        """Return decisions: those of some names drawn, and others where the old ones do not go with
        them."""
        d = self.mostly(self.usual, self.every)
        if old is not None and "degrees" not in changed:
            d = old.degrees
        shares = divisors(self.problem.global_batch // d.dp)
        samples = self.random.choice(shares)
        if old is not None and "samples" not in changed and old.samples in shares:
            samples = old.samples
        nodes = self.nodes(d) if old is None or "nodes" in changed else old.nodes
        virtual = self.virtual(d, samples)
        if old is not None and "virtual" not in changed and d.pp == old.degrees.pp:
            virtual = old.virtual
        schedule = self.schedule(d, virtual, self.problem.global_batch // (samples * d.dp))
        if old is not None and "schedule" not in changed and virtual == old.virtual:
            schedule = old.settings.schedule
        same = old is not None and len(old.sizes) == d.pp * virtual and "layout" not in changed
        same = same and old is not None and schedule == old.settings.schedule
        if old is not None and same:
            sizes = old.sizes
        elif schedule in DIVIDED and d.pp > 1 and self.random.random() < 0.5:
            sizes = drawn_sizes(self.random, schedule, d.pp, virtual, self.model.layers)
        else:
            sizes = sizes_of(self.random, self.model, d.pp, virtual, self.anyhow or ANY)
        if "shift" in changed:
            sizes = shifted(self.random, self.model, sizes, d.pp, self.anyhow)
        settings = self.tuned(self.settings(d))
        if old is not None and d == old.degrees and "settings" not in changed:
            settings = old.settings
        order = self.order(d) if old is None or "order" in changed else old.settings.order
        turn = self.turn(d, samples, virtual)
        if (
            old is not None
            and "turn" not in changed
            and (d.pp, virtual) == (old.degrees.pp, old.virtual)
        ):
            turn = old.settings.turn
        again = old.settings.recompute if old is not None else Recompute()
        if "recompute" in changed:
            again = self.recompute(max(sizes))
        if schedule in DIVIDED and self.random.random() < USUAL:
            # what else there is does not go with it
            again, turn, optimizer = Recompute(), 0, settings.optimizer
            if optimizer.sharding == "parameters":
                settings = replace(settings, optimizer=replace(optimizer, sharding="gradients"))
        return Draft(
            degrees=d,
            samples=samples,
            nodes=nodes,
            settings=having(settings, order=order, recompute=again, turn=turn, schedule=schedule),
            virtual=virtual,
            sizes=sizes,
        )

    def mostly(self, usual: Sequence[T], every: Sequence[T]) -> T:
        """Draw one of the usual values, seldom of all."""
        return self.random.choice(usual if self.random.random() < USUAL else every)

    def nodes(self, d: Degrees) -> tuple[int, ...]:
        """Draw an order of the nodes: type by type, seldom any."""
        usual = orders_of_nodes(self.problem)
        count = len(self.problem.cluster.node_types)
        if d.pp == 1:
            usual = [tuple(range(count))]
        return self.mostly(usual, [tuple(self.random.sample(range(count), count))])

    def order(self, d: Degrees) -> str:
        """Draw an order of ranks: the first where all are the same."""
        several = d.pp > 1 and d.dp > 1 and self.name not in SETTINGS
        asked = self.asked.rank_order or ORDERS
        return self.mostly(asked if several else asked[:1], ORDERS)

    def virtual(self, d: Degrees, samples: int) -> int:
        """Draw the number of virtual stages per rank."""
        groups = d.pp > 1 and bool(self.turns(d, samples))
        every = range(1, max(1, (self.model.layers + 2) // d.pp) + 1)
        usual = every if groups and self.name != "deepspeed" else (1,)
        asked = [v for v in usual if self.asked.allows("virtual_stages", v)]
        return self.mostly(asked or usual, every)

    def turns(self, d: Degrees, samples: int) -> list[int]:
        """Return how many micro-batches may take turns: as many as ranks, or more where they are
        asked for and none are left over, or as many as ranks."""
        batches = self.problem.global_batch // (samples * d.dp)
        more = self.asked.micro_batch_group_size and self.name not in SETTINGS
        every = range(d.pp, (batches if more else d.pp) + 1)
        every = [n for n in every if n <= batches and not 0 < batches % n < d.pp]
        return [n for n in every if self.asked.allows("micro_batch_group_size", n)]

    def turn(self, d: Degrees, samples: int, virtual: int) -> int:
        """Draw how many micro-batches take turns; 0: as many as ranks."""
        if virtual == 1:
            return self.mostly((0,), (0, d.pp, d.pp + 1))
        found = self.mostly(self.turns(d, samples) or (d.pp,), (d.pp, d.pp + 1, 2 * d.pp))
        return 0 if found == d.pp else found

    def schedule(self, d: Degrees, virtual: int, batches: int) -> str:
        """Draw a schedule."""
        others = SCHEDULES.get(self.name, ())
        usual = ["1f1b", *(one for one in others if takes(one, d.pp, virtual, batches))]
        asked = [one for one in usual if self.asked.allows("schedule", one)]
        return self.mostly(asked or usual, ["1f1b", *DIVIDED])

    def settings(self, d: Degrees) -> Settings:
        """Draw what a whole job decides under some degrees."""
        base, asked = self.problem.costs.settings, self.asked
        if self.name in SETTINGS:
            if d not in self.settings_of:
                self.settings_of[d] = list(SETTINGS[self.name](base, d))
            every = self.settings_of[d]
            kinds = KINDS_OF_SHARDING[self.name.partition("@")[0], d.pp > 1]
            kinds = [one for one in kinds if asked.allows("sharding", one)]
            usual = [
                s
                for s in every
                if s.optimizer.sharding in kinds
                and asked.allows("sharding_copies", str(s.optimizer.instances))
            ]
            return self.compiled(self.mostly(usual or every, every), d)
        tried = dict(TRIED)
        if d.pp > 1:
            tried["sharding"] = ("optimizer",)
        if self.model.latent:
            tried["cp_comm"] = ("p2p",)
        asked = with_beside(asked)
        has = {
            name: self.mostly(getattr(asked, name) or values, EVERY[name])
            for name, values in tried.items()
        }
        sharding, how = has["sharding"], has["cp_comm"] if d.cp > 1 else "p2p"
        muon = has["optimizer"] == "muon"
        if muon and self.random.random() < USUAL:  # it goes with no others
            sharding = "none" if sharding == "none" else "optimizer"
            has |= {"moments": "fp32", "optimizer_offload": "0", "sharding_copies": "1"}
        if not replicated(d):
            sharding = (asked.sharding or TRIED["sharding"])[0]
        copies = has["sharding_copies"] if replicated(d) and sharding != "none" else "1"
        on = has["overlap"] == "data"
        optimizer = replace(
            base.optimizer,
            name=has["optimizer"],
            muon_tp_mode=has["muon_tp_mode"] if muon else "blockwise",
            muon_steps=int(has["muon_steps"]) if muon else 5,
            packed=has["muon_packing"] == "on" or not (muon and sharding == "optimizer"),
            sharding=sharding,
            instances=int(copies),
            gradient=BYTES[has["gradients"]],
            moments=(1 if muon else 2) * BYTES[has["moments"]],
            master=base.optimizer.master if has["moments"] == "fp32" else 2,
            overlap_gradients=on,
            overlap_parameters=on and sharding != "none",
            offload=float(has["optimizer_offload"]),
            overlap_offload=has["optimizer_offload"] != "0",
        )
        return replace(
            base,
            cp=d.cp,
            ep=d.ep,
            etp=d.etp,
            cp_comm=how,
            cp_inner=self.random.choice(divisors(d.cp)) if how == "a2a+p2p" else 0,
            sequence_parallel=self.mostly((d.tp > 1,), (False, True)),
            overlap_tensor=has["tensor_overlap"] == "on" and d.tp > 1,
            overlap_experts=has["expert_overlap"] == "on" and d.ep > 1,
            optimizer=optimizer,
            offload=offload_of(has["activation_offload"]),
            kernels=self.kernels(d, has),
        )

    def tuned(self, settings: Settings) -> Settings:
        """Return settings with a tuning, and with moments, as asked for, seldom with others."""
        if self.name in SETTINGS:
            every = ("fp32", "8bit", "paged", "paged-8bit")
            kept = MOMENTS.write(settings, self.mostly(self.asked.moments or every[:1], every))
            settings = kept or settings
        asked, titan = self.asked, self.name.startswith("torchtitan")
        adapted = asked.lora_targets or asked.lora_dropout or "on" in asked.qlora
        ranks = asked.lora or ("16" if adapted else "0",)
        rank = int(self.mostly(ranks, ("0", "8")))
        frozen = self.mostly(asked.freeze or ("none",), ("none", "embedding"))
        base = self.mostly(asked.qlora or ("off",), ("off", "on"))
        tuning = Tuning(
            base="nf4" if base == "on" else "",
            frozen=() if frozen == "none" else tuple(frozen.split("+")),
        )
        if rank:
            usual = USUAL_TARGETS.get(self.name, ("q_proj", "v_proj"))
            named = asked.lora_targets[0].split("+") if asked.lora_targets else usual
            tuning = replace(
                tuning,
                rank=rank,
                targets=tuple(named),
                dropout=float(self.mostly(asked.lora_dropout or ("0",), ("0", "0.1"))),
                adapters="fp32" if titan else "",
            )
        return having(settings, tuning=tuning)

    def compiled(self, settings: Settings, d: Degrees) -> Settings:
        """Return settings with compiled layers and with overlap of tensor parallelism, or not."""
        asked, switch = self.asked, ("off", "on")
        overlaps = d.tp > 1 and self.mostly(asked.tensor_overlap or switch[:1], switch) == "on"
        compiled = overlaps or self.mostly(asked.compile or switch[:1], switch) == "on"
        kernels = having(settings.kernels, compiled=compiled)
        return having(settings, overlap_tensor=overlaps, kernels=kernels)

    def kernels(self, d: Degrees, has: Mapping[str, str]) -> Kernels:
        """Return the kernels of some decisions: without experts, none about these."""
        base, loss = self.problem.costs.settings.kernels, has["fused_loss"]
        graphs, graphed = GRAPHS[has["cuda_graphs"]]
        kernels: Kernels = replace(
            base,
            fused_loss=loss != "none",
            loss_kernel=base.loss_kernel if loss == "none" else loss,
            graphs=graphs,
            graphed=graphed,
            fp8_attention=bool(base.quantised) and has["fp8_attention"] == "on",
        )
        if not self.model.experts:
            return kernels
        sends = has["dispatcher"] if d.ep * d.etp > 1 else "alltoall"
        return replace(kernels, dispatcher=sends, fused_permute=has["fused_permute"] == "on")

    def recompute(self, longest: int) -> Recompute:
        """Draw what is computed again. longest: elements of the largest virtual stage."""
        name, asked = self.name, self.asked
        layers = self.random.randint(1, longest)
        sizes = CHUNKS[name](self.model.layers) if name in CHUNKS else (1,)
        full = Recompute(granularity="full", method="uniform", layers=self.random.choice(sizes))
        if name in CHUNKS:
            usual = [Recompute(), *SELECTIVE[name], full]
            usual = [one for one in usual if asked.recomputes(one)]
            return self.mostly(usual, [replace(full, layers=layers)])
        able = {*(asked.modules or RECOMPUTED)} - self.lacking()
        modules = self.mostly(
            [m for m in USUAL_MODULES if able.issuperset(m)] or [("core_attn",)],
            [tuple(m for m in RECOMPUTED if self.random.random() < 0.4)],
        )
        usual = [
            Recompute(),
            full,
            Recompute(granularity="full", method="block", layers=layers),
            Recompute(granularity="selective", modules=modules),
        ]
        strange = [
            Recompute(granularity="full", method="uniform", layers=layers),
            replace(full, distribute=True),
        ]
        return self.mostly([r for r in usual if asked.recomputes(r)] or usual, strange)

    def lacking(self) -> set[str]:
        """Return the parts of layers that no layer of the model has."""
        kinds = {*self.model.expert_layers}
        found = set() if self.model.latent else {"mla_up_proj"}
        found |= set() if False in kinds else {"mlp"}
        return found | (set() if True in kinds else {"moe", "moe_act", "shared_experts"})
