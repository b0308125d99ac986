"""From a model and a cluster to the problem of planning for Megatron-LM."""

from __future__ import annotations

import dataclasses
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

from ilp_planner.base.errors import ProfileError, SpecError, UsageError
from ilp_planner.base.hashing import Same
from ilp_planner.costs.profiles.elements import ElementProfile, element_table, elements_of_layers
from ilp_planner.costs.training.measured import measured_times, scale_notes
from ilp_planner.inputs.constraints import ANY, NAMES
from ilp_planner.inputs.devices import usable, usable_devices
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.profiles import layer_source, native_table
from ilp_planner.inputs.tables import wanted_rows
from ilp_planner.settings.rules import check_recipe_beside
from ilp_planner.settings.values import by_peft_trained, trainer_alone
from ilp_planner.spaces.layers import memory_limits, micro_batch_counts
from ilp_planner.spaces.training.costs import MegatronCosts
from ilp_planner.spaces.training.enumerate.choices import uncounted
from ilp_planner.spaces.training.enumerate.degrees import check_cluster, default_max_cp
from ilp_planner.spaces.training.search.conflict import Answers, Demands, check_possible
from ilp_planner.spaces.training.space import MegatronSpace
from ilp_planner.specs.cluster import SLOWEST_TAKEN
from ilp_planner.specs.data_sheets import architecture_notes
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.recipes import check_recipe, precision_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.request import Request
    from ilp_planner.spaces.training.runtime import Runtime
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.model import ModelSpec

PROFILES = ("analytic", "metis", "table")
ENCODERS_EXACT = (
    "encoder: its products are counted in 16 bits, as Megatron-Bridge and modules of transformers "
    "have them; Megatron-LM's LLaVA and Pai-Megatron-Patch copy the decoder's recipe: not counted"
)
MOST = ("max_stages", "max_tp", "max_cp")
# What a process keeps for problems to come: models on devices; batches of each of them; what their
# jobs have found, some kilobytes each.
KEPT, BATCHES, FOUND = 16, 64, 32_768


def build(files: InputFiles) -> Problem[MegatronCosts]:
    """Read all inputs and build the problem of Megatron-LM's space."""
    return build_for(files, MegatronSpace())


def build_for(
    files: InputFiles, space: MegatronSpace, *, trained: bool = False
) -> Problem[MegatronCosts]:
    """Read all inputs and build the problem of a space with a runtime of this engine.

    trained: all plans are PEFT's and the Trainer's, whether or not a demand says so.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    InfeasibleError: no choice of degrees is possible.
    """
    asked, runtime = files.request, space.runtime
    if files.kind not in PROFILES:
        _refuse("profile", files.kind)
    for kind in ("hostfile", "clusterfile"):
        if kind in asked.files:
            _refuse(f"`{kind}`", asked.files[kind].name)
    model = files.need_model("the model that was profiled: `space=megatron` needs its dimensions")
    runtime.check_asked(asked.constraints)
    check_recipe_beside(asked.constraints.texts, precision_of(asked.precision, model.precision)[1])
    cluster = files.cluster_file()
    check_cluster(cluster)
    limits = memory_limits(cluster, asked)
    trained = trained or trainer_alone(partial(getattr, asked.constraints))
    for name in MOST:
        value = getattr(asked, name)
        if value is not None and value < 1:
            raise UsageError(f"{name}: must be at least 1, found {value}")
    if files.kind != "analytic" or "profile" in files.objects:
        if asked.precision:
            raise UsageError(
                f"precision: found {asked.precision} with `profile={asked.profile}`, whose times "
                "are of its own, expected none"
            )
        decoder = decoder_of(model, runtime)
        profile = _element_profile(files, cluster, decoder, model)
        base = _base(space, model, cluster, "", profile, trained)
    else:
        files.keep("profile", "")
        base = _estimated(space, model, Same(cluster), asked.precision, trained)
    base.bound()
    batches, notes = micro_batch_counts(files.global_batch, asked.micro_batch_sizes)
    heard = uncounted(runtime.implied(asked.constraints), runtime.listens)
    notes += (*base.notes, *heard, *base.notes_of_profile)
    if asked.constraints.headroom:
        notes.append(f"headroom: {asked.constraints.texts['headroom']} of every device stay free")
    problem = Problem(
        model=model.name,
        cluster=cluster,
        costs=base.costs,
        global_batch=files.global_batch,
        micro_batches=batches,
        memory_limits=limits,
        max_stages=cluster.device_count,
        max_tp=cluster.nodes[0].devices,
        space=space,
        profile_source=base.source,
        notes=tuple(notes),
    )
    decoder = base.costs.model
    runtime.batched(decoder, asked.constraints)
    if asked.constraints.layout is not None:
        asked.constraints.layout.check(model.name, decoder.layers, decoder.prediction_layers)
    for stage in asked.constraints.keep:
        stage.check(model.name, decoder.layers, files.whole_cluster)
    said = said_of(asked)
    if not files.possible:
        return limited(problem, files, said, files.global_batch)
    return check_possible(
        Demands(
            said,
            {name: _value_of(asked, name) for name in said},
            files.global_batch,
            lambda names, batch: limited(problem, files, names, batch),
            base.answers(files.whole_cluster, files.global_batch),
        )
    )


class Base:
    """The common data of problems of the same model and devices, under any constraints.

    notes: on devices and the runtime. notes_of_profile: on the profile, named by source.
    """

    def __init__(
        self,
        costs: MegatronCosts,
        notes: tuple[str, ...],
        notes_of_profile: tuple[str, ...],
        source: str,
    ) -> None:
        self.costs, self.source = costs, source
        self.notes, self.notes_of_profile = notes, notes_of_profile
        self._answers: dict[object, Answers] = {}

    def answers(self, cluster: ClusterSpec, global_batch: int) -> Answers:
        """Return the feasibility answers for a batch on some nodes of a cluster."""
        return self._answers.setdefault((Same(cluster), global_batch), Answers())

    def bound(self) -> None:
        """Forget cached results if there are very many."""
        self.costs.found.bound(FOUND)
        if len(self._answers) > BATCHES:
            self._answers.clear()
        for answers in self._answers.values():
            answers.bound()


@lru_cache(maxsize=KEPT)
def _estimated(
    space: MegatronSpace, model: ModelSpec, on: Same[ClusterSpec], precision: str, trained: bool
) -> Base:
    """Return the common data of problems with estimated times: one object for all of them."""
    return _base(space, model, on.value, precision, None, trained)


def _base(
    space: MegatronSpace,
    model: ModelSpec,
    cluster: ClusterSpec,
    asked: str,
    profile: ElementProfile | None,
    trained: bool,
) -> Base:
    """Return the common data of problems.

    asked: the precision, or a recipe of quantised products; empty: the model's. trained: all plans
    are PEFT's and the Trainer's, which have any model of transformers.

    Raises
    ------
    SpecError: the problem cannot be planned, with the reason.
    """
    runtime, decoder = space.runtime, decoder_of(model, space.runtime)
    precision, recipe = precision_of(asked, model.precision)
    cluster.check_figures(precision, model.name, asked=runtime.search_of("precision").values)
    check_recipe(cluster, recipe)
    notes = [] if cluster.symmetric else [SLOWEST_TAKEN]
    notes += (*architecture_notes(cluster), *runtime.notes())
    settings, measured = runtime.settings(decoder, precision, cluster, recipe), None
    if recipe and any(not (one.whole or one.as_decoder) for one in decoder.encoders):
        notes.append(ENCODERS_EXACT)
    try:
        runtime.check_model(decoder, by_peft_trained(settings) if trained else settings)
    except SpecError as error:
        raise SpecError(f"model {model.name!r}: {error}") from None
    if profile is not None:
        measured = measured_times(profile, decoder, settings, cluster)
    costs = MegatronCosts(
        model=decoder,
        settings=settings,
        choices=runtime.choices(settings, ANY, cluster.device_count, decoder),
        runtime=runtime,
        max_cp=min(runtime.most_cp, default_max_cp(settings.kernels, profile)),
        profile=measured,
    )
    if profile is None or measured is None:
        return Base(costs, tuple(notes), (), "analytic")
    return Base(costs, tuple(notes), (*profile.notes, *scale_notes(measured)), profile.source)


def said_of(asked: Request) -> dict[str, str]:
    """Return the limits of a request on plans, by name, as given."""
    said = {name: getattr(asked, name) for name in MOST}
    sizes = ",".join(map(str, asked.micro_batch_sizes))
    texts = {name: text for name, text in asked.constraints.texts.items() if name != "headroom"}
    return {
        **texts,
        **{name: str(value) for name, value in said.items() if value},
        **({"micro_batch_sizes": sizes} if sizes else {}),
    }


def _value_of(asked: Request, name: str) -> Any:
    """Return the value of a request for one of the names of `said_of`."""
    of_request = (*MOST, "micro_batch_sizes")
    return getattr(asked if name in of_request else asked.constraints, name)


def limited(
    problem: Problem[MegatronCosts], files: InputFiles, names: Collection[str], batch: int
) -> Problem[MegatronCosts]:
    """Return a problem with the limits of its request that have these names, and a batch.

    Raises
    ------
    SpecError, UsageError: no such part of the cluster.
    """
    asked, model = files.request, problem.costs.model
    kept = asked.constraints.but({*NAMES} - {"headroom", *names})
    cluster = usable(files.whole_cluster, kept)
    check_cluster(cluster)
    if kept.keep:
        devices = usable_devices(files.whole_cluster, kept)
        kept = kept.with_(keep=tuple(stage.on(devices) for stage in kept.keep))
    sizes = asked.micro_batch_sizes if "micro_batch_sizes" in names else ()
    most = {name: getattr(asked, name) if name in names else None for name in MOST}
    cp = 1 if kept.cp is None else kept.cp.most
    return dataclasses.replace(
        problem,
        cluster=cluster,
        costs=dataclasses.replace(
            problem.costs,
            max_cp=most["max_cp"] or max(problem.costs.max_cp, cp),
            choices=problem.costs.runtime.choices(
                problem.costs.settings, kept, cluster.device_count, problem.costs.model
            ),
        ),
        global_batch=batch,
        micro_batches=micro_batch_counts(batch, sizes)[0],
        max_stages=min(most["max_stages"] or cluster.device_count, model.layers + 2),
        max_tp=most["max_tp"] or cluster.nodes[0].devices,
        constraints=kept,
    )


def _refuse(option: str, found: str) -> NoReturn:
    raise UsageError(
        f"{option}: found {found} with `space=megatron`, whose times and memory are its own, "
        "expected none"
    )


def _element_profile(
    files: InputFiles, cluster: ClusterSpec, decoder: Decoder, model: ModelSpec
) -> ElementProfile:
    """Return the measured profile under the cluster's names of device types.

    Raises
    ------
    ProfileError, UsageError: it is not there, malformed, or of another model.
    """
    given = files.objects.get("profile")
    if isinstance(given, ElementProfile):
        profile = given
    elif files.kind == "table" and given is None:
        asked = files.request
        wanted = wanted_rows(model, hidden=asked.hidden, sequence=asked.sequence)
        profile = element_table(native_table(files), decoder, wanted, cluster)
    else:
        profile = elements_of_layers(layer_source(files, cluster).profile, decoder)
    if profile.layers != decoder.layers + 2:
        raise ProfileError(
            f"{profile.source}: profiled with {profile.layers} layers, embedding and head "
            f"included, found {decoder.layers + 2} in {model.name}"
        )
    return profile.of_types(cluster)


def decoder_of(model: ModelSpec, runtime: Runtime) -> Decoder:
    """Return the model's dimensions.

    Raises
    ------
    SpecError: it is no decoder-only transformer.
    """
    decoder = as_decoder(model.architecture)
    if decoder is None:
        raise SpecError(
            f"model {model.name!r}: family must be gpt or decoder for {runtime.title}, found "
            f" {model.family!r}"
        )
    if decoder.prediction_layers and decoder.positions == "learned":
        raise SpecError(
            f"model {model.name!r}: positions: found learned with multi-token prediction, expected "
            "rope, for which Megatron-LM has it"
        )
    return decoder
