"""From a request to Metis's profile, and to sizes that it does not say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import ProfileError, UsageError
from ilp_planner.inputs.profiles import native_table, refuse_profile, source_of
from ilp_planner.inputs.tables import wanted_rows
from ilp_planner.peers.metis.files import FILE_NAME, read_metis_profile
from ilp_planner.peers.metis.profile import MetisProfile
from ilp_planner.peers.metis.tables import metis_layer_profile, metis_profile
from ilp_planner.specs.chain_layers import segments

if TYPE_CHECKING:
    from ilp_planner.costs.profiles.layers import LayerProfile
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.specs.model import ModelSpec

PROFILE = MetisProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizes:
    """Sizes that Metis's files leave to its command line. None: not known.

    hidden: width of the layers. sequence: tokens of a sample. vocabulary: entries of the word
    embedding; 0 makes Metis's last cut free.
    """

    hidden: int | None = None
    sequence: int | None = None
    vocabulary: int | None = None

    def need(self, name: str) -> int:
        """Return a size.

        Raises
        ------
        UsageError: it is not known.
        """
        value: int | None = getattr(self, name)
        if value is None:
            raise UsageError(
                f"{name}: found nothing, expected a number (or `model`): "
                "a Metis profile does not say it"
            )
        return value


class MetisSource(NamedTuple):
    """Metis's profile, the name of its model and the sizes that it lacks."""

    profile: MetisProfile
    model: str
    sizes: ModelSizes


def metis_source(files: InputFiles) -> MetisSource:
    """Return the profile in Metis's terms.

    Raises
    ------
    UsageError: it is of another kind. ProfileError: not there, malformed, or of another model.
    """
    model, asked = files.model, files.request
    if "profile" in files.objects:
        given = files.objects["profile"]
        if not isinstance(given, MetisProfile):
            refuse_profile("metis", "metis:FOLDER", source_of(given))
        return _sized(files, given, model)
    if files.kind == "metis":
        folder = files.find(
            "profile", files.path, lambda name: FILE_NAME.fullmatch(name) is not None
        )
        return _sized(files, read_metis_profile(folder), model)
    if files.kind != "table":
        refuse_profile("metis", "metis:FOLDER", asked.profile)
    wanted = wanted_rows(model, hidden=asked.hidden, sequence=asked.sequence)
    return _sized(files, metis_profile(native_table(files), wanted), model)


def layers(files: InputFiles) -> tuple[LayerProfile, str, str]:
    """Return Metis's profile in the planner's own terms, and the names of its model and itself."""
    profile, model, sizes = metis_source(files)
    layers = metis_layer_profile(
        profile, hidden=sizes.need("hidden"), sequence=sizes.need("sequence")
    )
    return layers, model, profile.named


def _sized(files: InputFiles, profile: MetisProfile, model: ModelSpec | None) -> MetisSource:
    """Return a profile, the name of its model and the sizes that it lacks."""
    asked = files.request
    given = ModelSizes(hidden=asked.hidden, sequence=asked.sequence, vocabulary=asked.vocabulary)
    if model is None:
        name = files.model_name or profile.model_name or Path(files.path).name
        return MetisSource(profile, name or "model", given)
    named = asked.name("model") or model.name
    check_model_layers(profile, len(segments(model.operators)), named)
    return MetisSource(profile, model.name, _agreed(given, model, named))


def _agreed(given: ModelSizes, model: ModelSpec, named: str) -> ModelSizes:
    """Return the sizes of a model; sizes given beside it must be the same, but for a vocabulary of
    0."""
    architecture = model.architecture
    agreed = {}
    for size, attribute in (
        ("hidden", "hidden"),
        ("sequence", "sequence"),
        ("vocabulary", "vocab"),
    ):
        said = getattr(architecture, attribute, None)
        asked = getattr(given, size)
        if asked and said not in (None, asked):
            raise UsageError(f"{size}: found {asked}, expected {said} as in {named}")
        agreed[size] = said if asked is None else asked
    return replace(given, **agreed)


def check_model_layers(profile: MetisProfile, layers: int, model: str) -> None:
    """Refuse a model with another number of layers than was profiled.

    Parameters
    ----------
    layers: of the model, embedding and head included. model: to blame.

    Raises
    ------
    ProfileError: with both numbers.
    """
    if layers != profile.layers:
        raise ProfileError(
            f"{profile.source}: profiled with {profile.layers} layers, embedding and head "
            f"included, found {layers} in {model}"
        )
