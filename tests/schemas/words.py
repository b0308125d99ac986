"""What the keys of outputs mean, and their units: what no output can say of itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from ilp_planner.costs.profiles.measurements import COLUMNS, TEXT_COLUMNS
from ilp_planner.faces.cli.values import Solver
from ilp_planner.faces.report.catalogues import OPTIONS, UNITS
from ilp_planner.faces.sweeps.journal import NO_PLAN
from ilp_planner.formats import inputs_json
from ilp_planner.inputs.constraints import KEEP, NAMES
from ilp_planner.inputs.table import Size, Whole, Wholes
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.profiler.check.finding import Severity
from ilp_planner.settings.base import Treatment
from ilp_planner.settings.kept import KeptStage
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.gpus import Gpu
from ilp_planner.specs.training import Settings
from tests.schemas.derived import closed, of_class

# Objects whose keys are names: of device types, of terms, of packages, of fields.
BY_NAME = (
    "memory_limit_bytes", "terms_s", "time_terms_s", "memory_terms_bytes", "provenance",
    "provenance_error", "seconds_s", "alternative_seconds_s", "more_s", "differs", "terms",
    "outside_terms", "memory_terms", "time_terms", "varied", "machine", "versions", "groups",
    "memory_bytes", "memory_limits_bytes", "environment", "objectives", "values", "devices_asked",
    "about", "peak", "outside", "changed", "devices",
)  # fmt: skip
# Parts of outputs that are said once, under `$defs`.
SHARED = (
    "stages", "parallelism", "throughput", "run", "modules", "more_gpus", "ranking", "best", "sets",
    "certificate",
)  # fmt: skip
# Keys whose number is whole.
WHOLE = {
    "version", "seed", "gpus", "devices", "micro_batch", "micro_batches", "micro_batch_size",
    "micro_batch_sizes", "global_batch", "tp", "pp", "cp", "ep", "etp", "dp", "virtual",
    "virtual_stages", "start", "stop", "samples", "count", "split", "recompute", "first_device",
    "idle", "nodes", "numbers", "stage", "stages", "rank", "ranks", "stages_per_rank", "runs",
    "calibration_runs", "number", "world", "devices_per_node", "padded_vocab", "repeat", "times",
    "parameters", "shape", "layers", "pp_ranks", "members", "in_flight", "hidden", "sequence",
    "vocabulary", "max_stages", "max_tp", "max_cp", "max_stage_nodes", "digits", "counts", "points",
    "done", "singles", "pairs", "rows", "errors", "warnings", "lines", "values", "varied", "tokens",
    "size", "held_micro_batches", "groups", "compute_capability",
    "messages_per_iteration", "messages_per_micro_batch", "cluster_messages_per_iteration",
    "sweep", "layer_range", "asked", "scenarios", "searched", "candidates", "steps",
    "warm_up_steps",
}  # fmt: skip
CHOICES: dict[str, Sequence[str]] = {
    "stopped_by": [str(one) for one in Stop],
    "severity": [str(one) for one in Severity],
    "solver_asked": list(get_args(Solver)),
}
# Types that a key may have besides those of the outputs that are looked at.
MAY_BE: dict[str, set[str]] = {
    "parallelism.tp": {"null"},
    "parallelism.dp": {"null"},
    "parallelism.micro_batch_size": {"null"},
    "parallelism.layout": {"null"},
    "throughput.mfu": {"null"},
    "throughput.padding": {"number", "null"},
    "throughput": {"null"},
    "parallelism": {"null"},
    "certificate": {"null"},
    "fastest": {"null"},
    "fastest.predicted_error": {"number"},
    "prefer_plain": {"number"},
    "result": {"null"},
    "evaluation": {"null"},
    "run": {"null"},
    "expected_error": {"number", "null"},
    "expected_interval": {"object", "null"},
    "expected_low_s": {"number", "null"},
    "expected_high_s": {"number", "null"},
    "expected_basis": {"string", "null"},
    "outside": {"string"},
    "max_price_per_hour": {"number"},
    "layout": {"string"},
    "sha256": {"null"},
    "schedule_s": {"number"},
    "free.bound": {"number"},
    "memory_limit_bytes": {"number"},
    "fits": {"boolean", "null"},
    "verdict": {"null"},
}
# Places where the same part stands as under another key, or null.
LIKE = {"free.change": "more_gpus"}
# Types of what is in lists that are empty in all outputs, or are of another type elsewhere.
ITEMS = {
    "drop": "string",
    "calibrate:left_out": "object",
    "profile-predict:left_out": "string",
    "not_ruled_out": "integer",
    "parts_not_ruled_out": "integer",
    "prices": "object",
    "exact_stages": "object",
}
# Keys that may be missing in any output.
OPTIONAL: dict[str, set[str]] = {
    "plan": {
        "among", "confirmed_by", "prefer_plain", "fastest", "provenance", "provenance_error", "run",
        "objective", "settings", "virtual", "history", "parts", "version", "covered",
    },
    "evaluate": {"memory_bytes", "nodes", "types"},
}  # fmt: skip
STATUSES = list(dict.fromkeys([*map(str, Status), *NO_PLAN]))
CHOICES["status"] = STATUSES


def _constraints() -> dict[str, Any]:
    """Return what plans are asked to have: texts by the names of constraints, stages that they
    keep."""
    texts = {
        name: {"description": f"What --{name.replace('_', '-')} says.", "type": "string"}
        for name in NAMES
        if name != KEEP
    }
    kept = {"description": "Stages that plans keep.", "type": "array", "items": of_class(KeptStage)}
    return closed(texts | {KEEP: kept}, [])


def _row() -> dict[str, Any]:
    """Return a row of a native table, without what does not apply."""
    return closed(
        {
            name: {
                "description": column(name),
                "type": "string" if name in (*TEXT_COLUMNS, "status", "provenance", "source")
                else ["number", "null"],
            }
            for name in COLUMNS
        },
        [],
    )  # fmt: skip


def _treatments() -> dict[str, Any]:
    """Return what a search does about each setting."""
    row = of_class(Treatment, said={"setting": "Its name.", "fields": "Fields of the job."})
    row["properties"] = {
        OPTIONS if name == "asked_by" else name: x for name, x in row["properties"].items()
    }
    return {"type": "array", "items": row | {"required": sorted(row["properties"])}}


def _inputs() -> dict[str, Any]:
    """Return what was asked for: files with what they held, texts and numbers."""
    held = closed(
        {
            "name": {"description": "Name or path.", "type": "string"},
            "sha256": {"description": MEANING["sha256"], "type": ["string", "null"]},
            "text": {"description": MEANING["text"], "type": "string"},
        },
        ["name", "sha256"],
    )
    count = {"type": "integer", "minimum": 0}
    kinds: dict[str, Any] = dict.fromkeys(inputs_json.FILES, held)
    of_kind = {Whole: count, Wholes: {"type": "array", "items": count}, Size: {"type": "number"}}
    kinds |= {
        key: of_kind.get(type(row.kind), {"type": "string"})
        for key, row in inputs_json.SAVED.items()
    }
    kinds |= {
        "memory_limits_bytes": {"type": "object", "additionalProperties": {"type": "number"}},
        "constraints": _constraints(),
    }
    said = {
        key: {"description": meaning("plan", ("inputs", key)), **kinds[key]}
        for key in inputs_json.KEYS
    }
    return closed(said, ["profile", "global_batch"])


def column(name: str) -> str:
    """Return what a column of a native table says."""
    return COLUMN.get(name) or MEANING[name]


def _gpus() -> dict[str, Any]:
    """Return the rows of the table of GPUs, whose keys have units."""
    row = of_class(Gpu)
    for kind in (row["properties"]["architecture"], row):
        kind["properties"] = {UNITS.get(name, name): x for name, x in kind["properties"].items()}
        kind["required"] = sorted(kind["properties"])
    row["properties"]["memory_seen"] = {
        "description": "Whether the memory was seen, and not derived.", "type": "boolean",
    }  # fmt: skip
    return {"type": "array", "items": row | {"required": sorted(row["properties"])}}


# Parts that are derived from where their keys are declared: by key, or by schema and key.
REFERENCES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "gpus:gpus": _gpus,
    "fit:settings": lambda: {"type": "array", "items": {"type": "string"}},
    "runtime:settings": _treatments,
    "plan:inputs": _inputs,
    "plan:independent": lambda: {"type": "object"},  # docs/reference/certificate.md has its keys
    "settings": lambda: of_class(Settings),
    "architecture": lambda: of_class(Decoder),
    "constraints": _constraints,
    "row": _row,
}


def meaning(name: str, place: tuple[str, ...]) -> str:
    """Return what a key means.

    name: of the schema. place: the keys that lead to it.
    """
    for known in (f"{name}:{place[-1]}", ".".join(place[-2:]), place[-1]):
        if known in MEANING:
            return MEANING[known]
    raise KeyError(f"{name}: {'.'.join(place)}: say in tests/schemas/words.py what it means")


def whole(key: str) -> bool:
    """Tell whether the numbers of a key are whole."""
    return key in WHOLE


COLUMN = {
    "record": "What the row is of.",
    "dtype": "Type of parameters and activations.",
    "timing": "isolated where each layer was timed by itself; empty where among the others.",
    "original": "time_s as the source has it.",
    "group_size": "Devices of a collective.",
    "hosts": "Nodes that they are on.",
    "stride": "Between their ranks.",
    "groups": "How many groups do it at once.",
    "hidden": "Width of the hidden states.",
    "flop": "FLOP of the forward pass.",
    "traffic_bytes": "Bytes of device memory that the forward pass reads and writes.",
    "time_s": "Seconds; of layers and operators both passes of one micro-batch together.",
    "forward_s": "Seconds of the forward pass.",
    "backward_s": "Seconds of the backward pass.",
    "optimizer_s": "Seconds of the optimiser step.",
    "spread": "Quartile distance of the repeats over their median.",
    "weight_bytes": "Bytes of the parameters.",
    "gradient_bytes": "Bytes of their gradients.",
    "state_bytes": "Bytes of parameters, gradients and optimiser states.",
    "activation_bytes": "Bytes kept for the backward pass of one micro-batch.",
    "forward_workspace_bytes": "Bytes beyond these while the forward pass runs.",
    "backward_workspace_bytes": "Bytes beyond these while the backward pass runs.",
    "memory_bytes": "The most bytes that it needs altogether.",
    "input_bytes": "Bytes of one micro-batch that come in.",
    "output_bytes": "Bytes of one micro-batch that go out.",
    "message_bytes": "Bytes of each tensor-parallel message.",
    "repeats": "How often it was measured.",
    "bytes": "Bytes of the whole tensor that a collective gathers or reduces, or of a message.",
    "layers": "Which layers of the model, from 0: 3, or 1-24.",
    "messages": "Tensor-parallel all-reduces of a pass that time_s leaves out.",
    "sequence": "Tokens of a sample, all context-parallel ranks together.",
    "name": "Name of the layer kind, the operator, the collective, or the part of a step.",
    "error": "Expected relative error of a prediction.",
    "status": "ok, out_of_memory or failed; the times of a row that is not ok are empty.",
    "provenance": "Where the figures come from.",
    "source": "What measured or predicted it.",
    "micro_batch": "Samples of one replica.",
    "parameters": "Parameters of the whole layer, in the unit of the source.",
    "device": "Device type.",
}
MEANING = {
    # Of all outputs
    "schema": "Which schema this is: ilp-planner/NAME.",
    "version": "Version of the format: a key goes, or changes its name, unit or meaning, only with "
    "a new one.",
    "notes": "Remarks, one line each.",
    "reason": "Why there is no plan, or why something is left out; empty where there is none.",
    "name": "What it is called.",
    # Runs
    "doctor:log": "The log that was read; null without one.",
    "doctor:trace": "Path of the trace that was read; null without one.",
    "doctor:snapshot": "Path of the memory snapshot that was read; null without one.",
    "doctor:file": "Its path.",
    "doctor:format": "What wrote it.",
    "doctor:measured": "The steps of the log; null where it has no seconds.",
    "doctor:mean_s": "Seconds of a step in the mean of all.",
    "doctor:low_s": "Seconds below which 1 in 20 steps, or 1 in 10 runs like it, is.",
    "doctor:high_s": "Seconds above which 1 in 20 steps, or 1 in 10 runs like it, is.",
    "doctor:steady_s": "Seconds of a step without slow ones.",
    "doctor:noise_s": "Standard deviation of a step's seconds, slow steps aside.",
    "doctor:steps": "Steps that the log has the seconds of.",
    "doctor:warm_up_steps": "Slow steps at its beginning.",
    "doctor:predicted": "The prediction of the job; null without one.",
    "doctor:ran": "The prediction of what ran by the log; null where nothing differs from the job.",
    "doctor:differs": "What differs, in words.",
    "doctor:parts": "Parts of a step, predicted of what ran.",
    "doctor:measured_s": "Seconds by timers or a trace; null where neither tells them.",
    "doctor:predicted_s": "Seconds that are predicted; null where nothing is.",
    "doctor:causes": "Why a step takes longer than it should, or less, the most seconds first.",
    "doctor:title": "The cause in words.",
    "doctor:cost_s": "Seconds of a step that it explains; null where they are not known.",
    "doctor:evidence": "What tells so, with its numbers.",
    "doctor:check": "What to run to be sure, or to mend it.",
    "doctor:unexplained_s": "Seconds of a step above those predicted of what ran that no cause "
    "explains.",
    "doctor:untold": "Causes that the files do not tell of.",
    "doctor:needs": "What would tell.",
    "doctor:titles": "The causes in words.",
    "doctor:faster": "Changes of one setting that are faster, the fastest first.",
    "doctor:words": "What to change.",
    "size:model": "Name or path of the model.",
    "size:tokens": "Of the run.",
    "size:days": "That the run may take, or that it takes on a cluster.",
    "size:failures": "What is assumed of failures.",
    "size:gpu_hours_between": "GPU-hours between two failures; null: none are counted.",
    "size:restart_s": "Seconds until it trains again after a failure.",
    "size:checkpoint_s": "Seconds that a checkpoint stops training.",
    "size:checkpoint_every_s": "Seconds between two checkpoints; null where the best are taken, or "
    "none are needed.",
    "size:repair_s": "Seconds until a failed node is back; 0: another one is there at once.",
    "size:gpus": "Kinds of GPU, in their order; of a cluster, how many train.",
    "size:gpu": "Its name in the table of GPUs.",
    "size:reason": "Why nothing was searched; empty if it was.",
    "size:steps": "Iterations of the run; null where nothing was searched.",
    "size:price_per_gpu_hour": "Of a GPU and hour; null if nothing was said.",
    "size:node_size": "GPUs of a node.",
    "size:most_nodes": "Nodes of the largest cluster that was asked about.",
    "size:not_ruled_out": "Numbers of nodes below the smallest that are not ruled out; of all "
    "where none ends in time.",
    "size:parts_of_node": "Numbers of GPUs below a node that were asked about.",
    "size:parts_not_ruled_out": "Those below the smallest cluster that are not ruled out.",
    "size:smallest": "The cluster of the fewest nodes; null if none ends in time.",
    "size:cheapest": "The cheapest cluster, by GPU-hours without a price; null if none is in time.",
    "size:cheapest_of_nodes": "Nodes of the largest cluster that the cheapest was chosen among.",
    "size:cheapest_gap": "Share by which another of them may be cheaper.",
    "size:nodes": "Nodes that train.",
    "size:spare_nodes": "Idle nodes beside them.",
    "size:iteration_s": "Seconds of an iteration of its plan.",
    "size:bound_s": "Seconds of an iteration that no plan on these nodes undercuts.",
    "size:days_low": "Days that 1 of 10 such runs end before; null if that is not known.",
    "size:days_high": "Days that 1 of 10 such runs take longer than; null if that is not known.",
    "size:lost_share": "Share of the run that failures and checkpoints take.",
    "size:gpu_hours": "GPU-hours that are billed, spares included.",
    "size:price": "Of the run; null without prices.",
    "size:plan": "Its plan in words.",
    "supports:model": "Its name.",
    "supports:layers": "How many layers there are of each kind.",
    "supports:kind": "Of its blocks, in words.",
    "supports:count": "Layers of the kind.",
    "supports:runtimes": "The training systems that `solve --runtime` takes.",
    "supports:title": "Of the system, for people.",
    "supports:planned": "The model is planned for the system.",
    "supports:reason": "Why not; empty if it is.",
    "supports:searched": "Settings of the system that the search tries values of.",
    "supports:fixed": "Settings that have one value, or the one that is asked for.",
    "supports:left_out": "Settings that could be otherwise, and are not tried.",
    "supports:exports": "The systems and releases that `export --to` takes.",
    "supports:written": "The plainest job of the model is written.",
    "supports:part_alone": "Jobs that train a part of the model are written, others are not.",
    "supports:errors": "Expected errors of times by GPU and by the bits of products.",
    "supports:gpu": "Its name in the table of GPUs.",
    "supports:bits": "Of the operands of the layers' products.",
    "supports:mean": "Mean relative error of times that nobody calibrated.",
    "supports:low": "Measured over predicted seconds that 1 of 10 runs are below.",
    "supports:high": "Measured over predicted seconds that 1 of 10 runs are above.",
    "supports:published_groups": "Published groups of runs that are like the job.",
    "supports:basis": "What the interval rests on.",
    "tune:reason": "Why it ended, or why a run failed; empty for one that did not.",
    "tune:proved": "The best run is proved to be within the asked gap of every plan of the set.",
    "tune:gap_asked": "Share of the best run's seconds that another plan may take less.",
    "tune:gap": "Share that is proved; null before any run, and where no plan is left.",
    "tune:bound_s": "Seconds that no plan undercuts that was not run, on machines that the runs "
    "allow; null where there is no such plan.",
    "tune:best_s": "Seconds of a step of the best run; null before any run.",
    "tune:best_run": "Its number; null before any run.",
    "tune:machines": "Machines that were searched for a faster plan.",
    "tune:factor": "By which steps take longer than calibrated constants say; null before any run.",
    "tune:error": "Of a run that these constants do not explain, relative; null before any run.",
    "tune:next_script": "Path of the script that waits for its log; null where none does.",
    "tune:runs": "Runs in their order.",
    "tune:run": "Its number.",
    "tune:outcome": "measured, out of memory, failed, ended at the budget, begun, or asked.",
    "tune:plan": "The plan in words.",
    "tune:script": "Its script in the folder; null where its training system does not run it.",
    "tune:expected_s": "Seconds of a step that were expected before it ran.",
    "tune:measured_s": "Seconds of a step; null where none was measured.",
    "tune:steps": "Steps that were read; null where none was.",
    "tune:wall_s": "Seconds of the run; null where it is not known.",
    "doctor:best_plan": "The best plan with all settings free; null where none was searched.",
    # What is planned
    "model": "Name of the model.",
    "layers": "Names of the layers of the chain that stages are made of, or how many they are.",
    "operators": "Names of the operators of the chain that stages are made of.",
    "cluster": "Name of the cluster.",
    "profile": "Where times come from.",
    "cost_model": "Name of the cost model.",
    "space": "Name of the plan space.",
    "shares": "Samples of replicas that are tried: any or even.",
    "stage_tp": "Tensor-parallel degrees of a stage that are tried: one or mixed.",
    "seats": "On which nodes the replicas of a stage sit, as is tried: packed or spread.",
    "memory_rule": "Whose memory limits hold: device or metis.",
    "placement": "Orders of ranks that are tried: default or free.",
    "global_batch": "Samples of an iteration.",
    "memory_limit_bytes": "Bytes that a device may use; by device type of a whole problem.",
    # A result
    "status": "What is known of the plan: optimal, feasible, infeasible or unknown; in sweeps also "
    "refused, failed and lost.",
    "stopped_by": "What ended the search.",
    "objective": "What was minimised over sets of nodes; null where all nodes were planned for the "
    "least time.",
    "objective_s": "Seconds of an iteration of the plan.",
    "bound_s": "Seconds that no plan undercuts, proved; null where no number is known.",
    "gap": "1 - bound / value: a share from 0, which means proved.",
    "physical_bound_s": "Seconds that no run on these devices undercuts, however it is planned.",
    "bound_source": "Which argument proved the bound.",
    "among": "Which plans the bound is about.",
    "confirmed_by": "Which other solver found the same optimum; empty for none.",
    "wall_s": "Seconds that the search took.",
    "solver": "Which solver ran.",
    "seed": "Seed of what is drawn at random.",
    "fastest": "The fastest plan found, where a plainer one was chosen; null where the plan is it.",
    "prefer_plain": "How much longer than the fastest plan a plainer one might take, as a share; "
    "null where no plan is plainer than others.",
    "ranking": "The best plans in order, where more than one was asked for.",
    "shortlist": "Plans to try, chosen together; null where one plan was asked for.",
    "plans": "The plans, the one of this result first.",
    "less_plain": "It is less plain than the first plan, and counts as slower by prefer_plain.",
    "worst_regret": "By how much longer than the best candidate it takes in the worst scenario, a "
    "share; of a list, of its first plan alone, of the best two, and so on.",
    "mean_regret": "The same on average over the scenarios.",
    "condition": "What would have to be true for the plan to win, in words.",
    "wins": "Conditions under which it is the best of the list; in each, all constants must hold.",
    "constant": "Name of a constant of the machine.",
    "assumed": "Its assumed value.",
    "asked": "Plans that were asked for.",
    "scenarios": "Machines that were compared, the assumed one among them.",
    "shortlist.searched": "Scenarios that were searched to the end for better plans, or leave no "
    "room for any.",
    "candidates": "Plans that were compared.",
    "proved": "Whether no other choice of the candidates is better.",
    "faults": "What does not hold of the file, the worst first.",
    # A plan
    "micro_batch": "Samples of a micro-batch over all replicas of a stage.",
    "micro_batches": "Micro-batches of an iteration.",
    "settings": "How every rank trains.",
    "virtual": "Virtual stages of a pipeline rank.",
    "stages": "The stages of the pipeline, in order.",
    "idle": "Numbers of the devices that are in no stage.",
    "terms_s": "Seconds of an iteration by name; they add up to its time.",
    "schedule_s": "Seconds of an iteration by its schedule, where its time is by a formula.",
    "violations": "Rules that the plan breaks, one line each.",
    "legal": "Whether the plan breaks no rule.",
    "iteration_time_s": "Seconds of an iteration.",
    "start": "The first unit of the chain.",
    "stop": "The first unit of the chain behind it.",
    "stages.devices": "Devices: their numbers, or how many they are.",
    "devices": "Numbers of devices in the cluster's order, or how many they are.",
    "first_device": "Number of the first device; the others follow.",
    "strategies": "Runs of operators that are split alike.",
    "count": "How many.",
    "split": "Which dimension tensor parallelism splits: 0 the usual order, 1 swapped.",
    "strategies.recompute": "Whether activations are forgotten and computed again.",
    "stages.recompute": "How many operators are computed again.",
    "replicas": "The data-parallel replicas of a stage.",
    "samples": "Samples of every micro-batch that a replica takes.",
    "nodes": "Nodes: their numbers, or what they are.",
    "types": "Device types.",
    "memory_bytes": "Bytes of the fullest device.",
    "full_model.memory_bytes": "Bytes by what holds them.",
    "memory_terms_bytes": "Bytes of a device by what holds them.",
    "time_s": "Seconds of a micro-batch.",
    "time_terms_s": "Seconds of a micro-batch by what they are spent on.",
    "tp": "Tensor-parallel degree.",
    "stages.tp": "Tensor-parallel degree; all of them where operators or replicas differ in it.",
    "pp": "Pipeline-parallel degree: pipeline ranks.",
    "cp": "Context-parallel degree.",
    "ep": "Expert-parallel degree.",
    "etp": "Tensor-parallel degree of experts.",
    "dp": "Data-parallel degree.",
    # What it is worth
    "parallelism": "The plan in Megatron's words; null where stages or operators differ.",
    "virtual_stages": "Virtual stages of a pipeline rank.",
    "micro_batch_size": "Samples of a micro-batch of one replica, as --micro-batch-size says it.",
    "layout": "Layers of the virtual stages, as --pipeline-model-parallel-layout says them; null "
    "where no training job says the plan.",
    "throughput": "What the plan does per second; null where the model's dimensions are not known.",
    "gpus": "How many GPUs.",
    "samples_per_s": "Samples per second of all GPUs.",
    "samples_per_s_per_gpu": "Samples per second of one GPU.",
    "tokens_per_s": "Tokens per second of all GPUs; null where samples have none.",
    "tokens_per_s_per_gpu": "Tokens per second of one GPU; null where samples have none.",
    "tflops_per_gpu": "10^12 FLOP per second of the model on one GPU: its products, forward and "
    "backward, without what a causal mask makes needless.",
    "mfu": "Model FLOPs utilisation: the model's FLOP/s as a share of the peak of the training "
    "precision (Chowdhery et al. 2022); null where a GPU has no figure.",
    "hfu": "Hardware FLOPs utilisation: the same with what is computed again (Korthikanti et al. "
    "2022); null also where plans do not say what is.",
    "bubble": "Share of the iteration in which a pipeline rank waits, in the mean of all.",
    "padding": "Share of tokens that are none of documents; null where samples have one length.",
    "host": "Share of the iteration that GPUs wait for the host to start kernels; null: untold.",
    "busy": "Share of the iteration in which the slowest rank runs its stages.",
    "price_per_hour": "Price per hour of all nodes in use, in the currency of the cluster.",
    "price_per_iteration": "Price of an iteration.",
    "price_per_1e9_tokens": "Price of 10^9 tokens.",
    "run": "A training run on the tokens that were asked for; null where none were.",
    "tokens": "Number of tokens.",
    "run.seconds": "Seconds that the run takes.",
    "days": "Days that the run takes.",
    "price": "Price of the run.",
    "expected_error": "How far times are off in the mean, as a share; null where it is not known.",
    "expected_interval": "Seconds between which 4 of 5 such runs are; null where it is not known.",
    "expected_interval.low_s": "Seconds that 1 of 10 such runs stays below.",
    "expected_interval.high_s": "Seconds that 1 of 10 such runs takes longer than.",
    "expected_low_s": "Seconds that 1 of 10 such runs stays below; null where it is not known.",
    "expected_high_s": "Seconds that 1 of 10 such runs takes longer than; null where it is not "
    "known.",
    "expected_basis": "The runs that the expected error rests on, and what none of them had; or "
    "why it is not known.",
    "calibration_runs": "Runs of this machine that constants were fitted to.",
    "provenance": "Shares of the iteration time by where their figures come from.",
    "provenance_error": "Expected relative error of those shares.",
    "predicted_error": "Expected relative error of all that was predicted from measurements.",
    # Objectives over sets of nodes
    "objective.name": "time, price, or both.",
    "max_price_per_hour": "What the nodes may cost per hour; null without a limit.",
    "complete": "Whether no plan is missing in the front, but for the gaps of its plans.",
    "best": "The best plans: one, or the front of time and price, the fastest first.",
    "sets": "All sets of nodes that may be used.",
    "numbers": "Numbers of the nodes.",
    "on": "The nodes that the bound is about.",
    "covered": "Whether the bound of the result is about plans on these nodes, too.",
    "judged_by": "seconds or price, of an iteration.",
    "value": "The figure that is judged.",
    "bound": "What no plan undercuts in that figure.",
    "figure": "seconds or price, of an iteration.",
    "objective.objective": "time, price, or both.",
    "hourly": "Price per hour.",
    "claimed": "Seconds that are claimed.",
    "rederived": "Seconds that were found anew.",
    # Judging
    "outside": "Why the bound is not about the plan; null where it is.",
    "certificate": "The proof: what was enumerated, and how each part was closed.",
    "holds": "Whether it holds: of a file, that its plan is legal and all that it claims is true.",
    "parts": "The parts of the space.",
    "part": "Name of the part.",
    "claimed_s": "Seconds that no plan of the part undercuts, as the certificate claims.",
    "rederived_s": "The same, found anew.",
    "by": "What closed the part.",
    # Comparing
    "compared": "Names of the plans that are compared.",
    "differs": "What plans decide differently: a list of values, one of every plan, by name.",
    "entries": "Plans and solvers.",
    "entries.stages": "How many stages.",
    "memory_excess_bytes": "Bytes over the memory limit.",
    "seconds_s": "Seconds of an iteration by what they are spent on.",
    "heuristic": "Whether it is a solver that proves nothing.",
    "remark": "What else to know.",
    # Planning again
    "changed": "What changes, by the option that says it.",
    "replan:before_s": "Seconds of an iteration before the change.",
    "slack": "How much longer than the fastest plan the one that moves least may take, relative.",
    "replan:fastest": "The fastest plan that was found and what it moves; null for none.",
    "least_moved": "The plan that moves least of those within the slack; null where there is none.",
    "least_proved": "Whether no plan that was compared moves less; null without one.",
    "least_at_least_bytes": "Bytes that every plan which was compared moves; null without one.",
    "least_among": "Which plans were compared; null without one.",
    "moved_bytes": "Bytes of weights and optimiser states that devices get from elsewhere.",
    "between_nodes_bytes": "Those of them that cross nodes.",
    "most_moved_bytes": "Those of the device that gets most.",
    "kept_bytes": "Bytes that devices hold already.",
    "checkpoint_bytes": "Bytes that only a checkpoint still has.",
    "moved_in_s": "Seconds that moving takes at the bandwidth of the links.",
    "machines": "Names of the machines, by the nodes of the plan in order.",
    "fastest.devices": "What each device moves, in order.",
    "least_moved.devices": "What each device moves, in order.",
    # Why
    "best_s": "Seconds of the best plan found.",
    "derived": "Whether the bound is of a search now, not of the plan's file.",
    "ranks": "What every pipeline rank is busy with, or how many there are.",
    "number": "Number of the pipeline rank.",
    "load_s": "Seconds of a micro-batch.",
    "slack_s": "Seconds that it could take longer without the iteration doing so.",
    "bottleneck": "Whether the others wait for it.",
    "memory_left_bytes": "Bytes that are left on its fullest device.",
    "gains": "What letting go of a limit gains.",
    "kind": "Of which kind it is.",
    "limit": "The limit.",
    "change": "What is there instead.",
    "device": "Device type.",
    "failure": "Why nothing is known of it.",
    "gain_at_least_s": "Seconds that it gains at least, proved.",
    "gain_at_most_s": "Seconds that it gains at most, proved.",
    "proved_none": "Whether it is proved to gain nothing.",
    "within": "How far above the best the plan may be, as a share.",
    "survived_error": "The largest relative error of all times with which it stays within that.",
    "within_expected_error": "How far above the best it is at most if each time is within the "
    "expected interval, as a share.",
    "alternative": "What was asked about.",
    "alternative_s": "Seconds of the best alternative found.",
    "alternative_bound_s": "Seconds that no alternative undercuts.",
    "alternative_worth": "The alternative in the numbers that people talk in.",
    "alternative_seconds_s": "Seconds of its iteration by what they are spent on.",
    "impossible": "Whether it is proved that there is none.",
    "has": "Whether the plan has itself what is demanded.",
    "costs_at_least_s": "Seconds that the alternative takes more, at least.",
    "costs_at_most_s": "Seconds that the alternative takes more, at most.",
    "turning_error": "Relative error of times with which the alternative would be as fast.",
    "more_s": "Seconds that it spends more on each thing.",
    # Fit
    "fits": "Whether every GPU has room; null where no limit is known, or it may not.",
    "decides": "The GPU that needs the largest share of its memory.",
    "rank": "Number of the rank.",
    "stage": "Number of the pipeline stage.",
    "needed": "Bytes that it needs.",
    "decides.limit": "Bytes that it has.",
    "left": "Bytes that are left; below 0 where they are too few.",
    "terms": "Bytes by what holds them.",
    "decides.outside": "Bytes outside of PyTorch's allocator, by what holds them.",
    "seconds": "Seconds of an iteration.",
    "changes": "Changes that make it fit, the fastest first.",
    "fit:settings": "Names of the settings that are changed.",
    "language": "What the change is written in.",
    "add": "What to add to the line.",
    "drop": "What to leave out.",
    "fields": "Fields of a saved plan to change.",
    "environment": "Variables to set.",
    "relative": "Seconds over those of the job as it is.",
    "tried": "How many jobs were tried.",
    "singles": "With one setting changed.",
    "pairs": "With two settings changed.",
    "more_gpus": "The change on the fewest more GPUs.",
    "free": "The best plan with all settings free.",
    "free.change": "The change to it.",
    "free.bound": "Seconds that no such plan undercuts.",
    "enough": "What would do where nothing fits.",
    "otherwise": "Ways to train something else that fit, where nothing does.",
    "otherwise.runtime": "Training system whose plan fits, by its name in `solve`.",
    "free.runtime": "Training system of these plans, by its name in `solve`.",
    "otherwise.by": "Programs that train so.",
    "memory": "Bytes of every GPU, or of each stage.",
    # Simulate
    "schedule": "Name of the order of operations.",
    "stages_per_rank": "Virtual stages of a rank.",
    "judged_s": "Seconds of an iteration as the judge has them.",
    "by_formula": "Whether these are by a formula.",
    "pipeline_s": "Seconds of the pipeline.",
    "outside_s": "Seconds of the iteration that no schedule moves.",
    "least_s": "Seconds of the pipeline that no order of these passes undercuts.",
    "by_rank": "What every rank does.",
    "by_rank.stages": "Numbers of its virtual stages.",
    "busy_s": "Seconds in which it computes.",
    "idle_s": "Seconds in which it does not.",
    "held_micro_batches": "Most micro-batches that each of its stages holds.",
    # Sweep
    "points": "How many points there are.",
    "done": "How many of them are done.",
    "varied": "How many values each field has.",
    "objectives": "The column by which each objective is judged.",
    "rows": "What was found, a row for each point; or how many rows there are.",
    "key": "Hash of all that the point's result depends on.",
    "values": "Values of the fields that are varied, as texts; or how many values.",
    "gpu": "Kinds of GPUs.",
    "gpus_used": "How many GPUs the plan uses.",
    "step_s": "Seconds of an iteration.",
    "peak_memory_bytes": "Bytes of the fullest device.",
    "plan": "The plan on one line.",
    "billed": "Devices of the nodes in use: type, how many, price per hour, spot price.",
    "pareto": "Whether no other row is better in all objectives.",
    # Analyze
    "jobs": "The distinct training jobs of the stages.",
    "jobs.micro_batch": "Samples of a micro-batch of one replica.",
    "world": "Ranks of the job.",
    "devices_per_node": "Ranks of a node.",
    "padded_vocab": "Words of the vocabulary, padded.",
    "architecture": "The dimensions of the model.",
    "device_memory_bytes": "Bytes of a device that may be used.",
    "full_model": "The whole model on one device.",
    "parameters": "Number of parameters.",
    "peak_bytes": "Bytes at the peak.",
    "modules": "The modules, each with what is inside.",
    "repeat": "How often it is there; counts are of all of them.",
    "parameter_bytes": "Bytes of its parameters.",
    "activation_bytes": "Bytes that it keeps for the backward pass of a micro-batch.",
    "weights": "Its weights with their shapes.",
    "activations": "What it keeps for the backward pass.",
    "shape": "Dimensions.",
    "bytes": "Bytes.",
    "why": "Why it is kept.",
    "forward": "Messages of its forward pass.",
    "backward": "Messages of its backward pass.",
    "collective": "Name of the collective, or send.",
    "group": "Which group of ranks.",
    "times": "How often it is sent.",
    "pp_ranks": "Numbers of the pipeline ranks.",
    "stages.layers": "First layer and the one behind the last, of every virtual stage.",
    "gpus_of_stage": "GPUs of the stage.",
    "in_flight": "Micro-batches that are held at the peak.",
    "moment": "When the peak is.",
    "needed_bytes": "Bytes that a GPU needs.",
    "limit_bytes": "Bytes that it has; null where that is not known.",
    "left_bytes": "Bytes that are left.",
    "communication": "Messages of an iteration by what they are for.",
    "communication.stages": "Numbers of the pipeline stages, as a text.",
    "what": "What it is.",
    "family": "Family of architectures, or the kind of parallelism that messages are of.",
    "groups": "Groups of ranks by kind, or how many there are.",
    "members": "Ranks of a group, or their names.",
    "link": "What the messages travel on.",
    "received": "Whether it is counted where it arrives.",
    "message_bytes": "Bytes of one message.",
    "messages_per_micro_batch": "Messages of one GPU for a micro-batch.",
    "bytes_per_micro_batch": "Bytes of these.",
    "messages_per_iteration": "Messages of one GPU in an iteration.",
    "bytes_per_iteration": "Bytes of these.",
    "sent_bytes_per_iteration": "Bytes that one GPU puts on its links in an iteration.",
    "cluster_messages_per_iteration": "Messages of all GPUs in an iteration.",
    "cluster_bytes_per_iteration": "Bytes of these.",
    "cluster_sent_bytes_per_iteration": "Bytes that all GPUs put on their links in an iteration.",
    "purpose": "What the groups are for.",
    "size": "Ranks of a group.",
    "analyze:recompute": "What ways to recompute would do, or the name of one.",
    "extra_flops_share": "What it adds to the arithmetic of an iteration, as a share.",
    "saved_bytes": "Bytes that it saves at the peak.",
    "chosen": "Whether the job does this.",
    "source": "Where it is from.",
    "costs": "Name of the cost model.",
    "time": "Seconds of a micro-batch.",
    "memory_terms": "Bytes of a device by what holds them.",
    "time_terms": "Seconds of a micro-batch by what they are spent on.",
    # Catalogues
    "models": "The models of the catalogue.",
    "hidden": "Width of the hidden states; null where the model has none.",
    "precision": "Training precision.",
    "hub": "Names at Hugging Face.",
    "runtimes": "The training systems.",
    "releases": "The releases that plans are written for.",
    "to": "What --to says.",
    "release": "Name of the release.",
    "written": "Files that are written.",
    "checked": "What checks them.",
    "searched": "Whether solve --runtime plans for it; or the values that are searched.",
    # Calibration
    "constants": "The constants of the machine.",
    "default": "The usual value of its GPUs.",
    "constants.value": "The value that is taken.",
    "fitted": "Whether it was fitted.",
    "runs": "The runs, or how many of them say something.",
    "runs.run": "Name of the run.",
    "place": "File and line.",
    "weight": "How much it counts.",
    "measured_s": "Seconds of an iteration as measured.",
    "before_s": "Seconds by the constants of before.",
    "after_s": "Seconds by the fitted constants.",
    "left_out_s": "Seconds by constants fitted without this run.",
    "left_out_error": "Relative error of these.",
    "left_out": "What was left out, and why.",
    # Profiles
    "table": "The table.",
    "errors": "How many errors.",
    "warnings": "How many warnings.",
    "verdict": "On one line; of a job FITS, MAY NOT FIT (within 5 % of the limit) or DOES NOT FIT, "
    "null where no limit is known.",
    "findings": "What is implausible.",
    "severity": "How bad it is.",
    "rule": "Name of the rule.",
    "worst": "The row that is worst.",
    "found": "What was found.",
    "expected": "What was expected.",
    "lines": "Lines of the rows, the worst first.",
    "machine": "What was measured on, in words.",
    "predictions": "Figures that were asked for.",
    "where": "Of which shape or group.",
    "basis": "What it rests on.",
    "predictions.provenance": "Where the figure comes from.",
    "row": "The row of the table.",
    "cross_validation": "How well the table predicts its own rows.",
    "protocol": "What was left out at a time.",
    "cross_validation.values": "How many values.",
    "mean": "Mean relative error.",
    "median": "Median relative error.",
    "percentile_90": "Relative error that one in ten exceeds.",
    # The saved plan
    "inputs": "What was asked for: the inputs by name and hash, and their content.",
    "inputs.model": "The model's file.",
    "inputs.cluster": "The cluster's file.",
    "inputs.profile": "The profile.",
    "hostfile": "The host file, of Metis.",
    "clusterfile": "The cluster file, of Metis.",
    "inputs.lengths": "The histogram of documents that samples are made of.",
    "batching": "How samples are made of documents.",
    "sha256": "Hash of the content; null where there is no file.",
    "text": "The content.",
    "experiment": "Name of the experiment in a file of AMP.",
    "micro_batch_sizes": "Samples of micro-batches that are tried.",
    "inputs.memory_limit_bytes": "Bytes of a device that may be used, as was asked.",
    "memory_limits_bytes": "Bytes that each device type may use.",
    "max_stages": "Most stages.",
    "max_tp": "Most tensor parallelism.",
    "max_cp": "Most context parallelism.",
    "max_stage_nodes": "Most nodes of a stage.",
    "sequence": "Tokens of a sample.",
    "images": "Images of a sample.",
    "image_size": "Pixels of the side of an image.",
    "audio_seconds": "Seconds of sound of a sample.",
    "vocabulary": "Words of the vocabulary.",
    "constraints": "What plans must have.",
    "plan:plan": "The decision.",
    "plan:price": "What devices cost, as --price says it.",
    "plan:settings": "How every rank trains.",
    "plan:devices": "Numbers of devices, how many they are, or constraints on them.",
    "plan:samples": "Samples of every micro-batch that each replica takes.",
    "result": "What the search claimed; null for a plan from elsewhere.",
    "evaluation": "What the evaluator said when the plan was saved.",
    "plan:run": "How the search went: what is not the same in every run.",
    "history": "What was known from moment to moment.",
    "history.after_s": "Seconds after the start of the search.",
    "versions": "Versions of packages.",
    "plan:tp": "Devices of a replica: tensor-parallel degree x cp; of each where they differ.",
    "counted": "Whether stages behind each stage were counted.",
    "digits": "Digits that times were rounded to.",
    "slowest_s": "Seconds of the slowest stage from which on no better plan is.",
    "prices": "Prices of memory with which stages were bounded.",
    "prices.seconds_per_byte": "Seconds that a byte costs.",
    "exact_stages": "Stages that were solved exactly.",
    "independent": "A proof for `checker/checker.py`, which shares nothing with the planner.",
    "enters_node": "Whether what it receives comes from another node.",
    "leaves_node": "Whether what it sends goes to another node.",
    "counts": "Nodes of each kind.",
    # The journal of a sweep
    "sweep": "Version of the journal.",
    "about": "What all points have in common, by name.",
}
