"""Problems of objects that have no file: specifications and profiles made in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.api.problem import Problem
from ilp_planner.cli.inputs import Request, find_model, read_profile
from ilp_planner.cli.layer_checks import check_options
from ilp_planner.cli.layer_files import LayerFiles
from ilp_planner.cli.layer_inputs import LAYER_COSTS, LAYER_PROFILES, group_case, megatron_case
from ilp_planner.cli.options import DEFAULT_GLOBAL_BATCH, DEFAULT_MODEL
from ilp_planner.errors import UsageError
from ilp_planner.problem import Problem

if TYPE_CHECKING:
    from ilp_planner.formats.saved_groups import GroupInputs
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec

# Which objects stand for an input, by the names of their types.
KINDS = {
    "model": ("ModelSpec",),
    "cluster": ("ClusterSpec",),
    "profile": ("Profile", "LayerProfile", "MetisProfile"),
}


class GivenFiles(LayerFiles):
    """Inputs of which some are given as objects instead of read."""

    def __init__(self, asked: GroupInputs, objects: dict[str, Any]) -> None:
        super().__init__(asked, ())
        self.objects = objects

    def cluster_file(self) -> ClusterSpec:
        """Return the cluster that was given, or read that of the name."""
        given: ClusterSpec | None = self.objects.get("cluster")
        return super().cluster_file() if given is None else given

    def model(self) -> ModelSpec | None:
        """Return the model that was given, or read that of the name."""
        given: ModelSpec | None = self.objects.get("model")
        if given is None:
            return super().model()
        self.held["model"] = self.asked.files["model"]
        return given


def problem_of_objects(asked: GroupInputs, objects: dict[str, Any], *, operators: bool) -> Problem:
    """Build a problem of which some inputs are objects.

    Parameters
    ----------
    objects: input -> the object. operators: whole layers are not wanted.
    """
    files = GivenFiles(asked, objects)
    cluster, _ = files.cluster()
    model = files.model()
    named = ", ".join(objects)
    if model is None and "profile" in objects and type(objects["profile"]).__name__ == "Profile":
        model = find_model(DEFAULT_MODEL)[0]
    if not operators and _plans_layers(files, cluster, model):
        check_options(files)
        layers = _layers(files, cluster, model)
        return Problem(instance=layers, model=model, objects=tuple(objects))
    if model is None:
        raise UsageError(f"model: found none beside objects ({named}), expected a model")
    return Problem(instance=_operators(files, cluster, model), model=model, objects=tuple(objects))


def _plans_layers(files: GivenFiles, cluster: ClusterSpec, model: ModelSpec | None) -> bool:
    """Tell whether to plan whole layers, by the rule of `plans_layers`."""
    asked, given = files.asked, files.objects.get("profile")
    if given is not None and not asked.space:
        return type(given).__name__ != "Profile"
    if files.kind in LAYER_PROFILES or asked.cost_model in LAYER_COSTS or asked.space:
        return True
    if asked.cost_model != "native":
        return False
    return len(cluster.type_names) > 1 or (model is not None and model.family == "decoder")


def _layers(files: GivenFiles, cluster: ClusterSpec, model: ModelSpec | None) -> Problem[Any]:
    given = files.objects.get("profile")
    if given is None:
        case = megatron_case if files.asked.space == "megatron" else group_case
        return case(files).problem
    from ilp_planner.spaces.build import ModelSizes, build_group_problem
    from ilp_planner.spaces.megatron.build import build_megatron_problem

    asked = files.asked
    batch = asked.global_batch or DEFAULT_GLOBAL_BATCH
    if asked.space == "megatron":
        if model is None or type(given).__name__ != "LayerProfile":
            raise UsageError(
                f"profile: found a {type(given).__name__}"
                f"{'' if model else ' without a model'}, expected a model and a LayerProfile for "
                "--runtime megatron"
            )
        return build_megatron_problem(
            cluster,
            model,
            global_batch=batch,
            micro_batch_sizes=asked.micro_batch_sizes,
            memory_limit=asked.memory_limit,
            max_stages=asked.max_stages,
            max_tp=asked.max_tp,
            max_cp=asked.max_cp,
            profile=given,
        )
    return build_group_problem(
        cluster,
        given,
        model=model.name if model is not None else getattr(given, "model_name", "") or "model",
        global_batch=batch,
        cost_model=asked.cost_model,
        sizes=ModelSizes(hidden=asked.hidden, sequence=asked.sequence, vocabulary=asked.vocabulary),
        micro_batch_sizes=asked.micro_batch_sizes,
        memory_limit=asked.memory_limit,
        max_stages=asked.max_stages,
        max_tp=asked.max_tp,
        space=asked.space,
        memory_rule=asked.memory_rule or "device",
        placement=asked.placement or "default",
    )


def _operators(files: GivenFiles, cluster: ClusterSpec, model: ModelSpec) -> Any:
    from ilp_planner.cli.solve import operator_request
    from ilp_planner.problem import build_problem

    request: Request = operator_request(files.asked)
    profile = files.objects.get("profile")
    if profile is None:
        profile = read_profile(request, model, cluster, None, ())[0]
    return build_problem(
        model,
        cluster,
        profile,
        cost_model=request.cost_model,
        global_batch=request.global_batch,
        micro_batches=request.micro_batches,
        memory_limit=request.memory_limit,
        max_stages=request.max_stages,
    )
