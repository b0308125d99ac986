"""`ilp-plan profile import` and `ilp-plan profile export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ilp_planner.base.errors import OutputError, PlannerError, ProfileError, SpecError, UsageError
from ilp_planner.base.files import check_writable, missing_folder, resolved, write_text
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.terminal import echo
from ilp_planner.faces.cli.wording import option_of
from ilp_planner.inputs.files import find_model
from ilp_planner.inputs.tables import find_tables, read_tables, wanted_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ilp_planner.costs.profiles.measurements import Measurements
    from ilp_planner.specs.model import ModelSpec


def import_profile(
    source: Annotated[
        Literal["alpa", "metis", "aceso", "amp", "sailor"],
        typer.Argument(metavar="FORMAT", help="alpa | metis | aceso | amp | sailor"),
    ],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The file or folder to read.")],
    output: o.TableOutput,
    model: Annotated[
        str | None,
        o.plain(
            "--model",
            "Which model of several: as the format calls it, or a model file that says so. "
            "Of metis, the model file that says the sizes.",
            "NAME",
            default="the only one",
        ),
    ] = None,
    sequence: Annotated[
        int | None,
        o.count(
            "--sequence-length", "Tokens of a sample, where the format does not say.", "the model's"
        ),
    ] = None,
    hidden: Annotated[
        int | None, o.count("--hidden-size", "Width of the layers, likewise.", "the model's")
    ] = None,
    quotas: Annotated[
        Path | None,
        o.plain(
            "--quotas",
            "Of sailor: the cluster to describe, GPU type, zone and number of GPUs in JSON.",
            "FILE",
            default="none",
        ),
    ] = None,
    cluster_output: Annotated[
        Path | None,
        o.plain("--cluster-output", "Where to save that cluster, TOML.", "FILE", default="nowhere"),
    ] = None,
) -> None:
    """Make a native table of somebody else's profile."""
    from ilp_planner.costs.profiles.measurements import write_measurements
    from ilp_planner.costs.profiles.table_rows import describe_records

    check_writable(output, [path, *([] if quotas is None else [quotas])])
    check_quotas(source, quotas, cluster_output)
    if cluster_output is not None and resolved(cluster_output) == resolved(output):
        raise UsageError(f"--cluster-output: found {output}, as --output has, expected another")
    sizes = {"sequence": sequence, "hidden": hidden}
    if source == "alpa":
        if model or sequence or hidden:
            raise UsageError("--model: an Alpa database has no model, expected none")
        from ilp_planner.peers.alpa.profile import read_alpa

        table = read_alpa(path)
    elif source == "metis":
        table = metis_rows(path, model, sizes)
    elif source == "aceso":
        table = aceso_rows(path, model, sizes)
    elif source == "sailor":
        table = sailor_rows(path, model, sizes, quotas, cluster_output)
    else:
        table = amp_rows(path, model)
    write_measurements(output, table)
    say(f"{output}: {len(table.frame)} rows, {describe_records(table)}", table.notes)


def say(line: str, notes: Iterable[str]) -> None:
    """Say the written file, and remarks on it."""
    echo(line, err=True)
    for note in dict.fromkeys(notes):
        echo(f"note: {note}", err=True)


def metis_rows(path: Path, model: str | None, sizes: dict[str, int | None]) -> Measurements:
    """Read a folder of Metis's."""
    from ilp_planner.peers.metis.files import read_metis_profile
    from ilp_planner.peers.metis.source import check_model_layers
    from ilp_planner.peers.metis.tables import metis_table
    from ilp_planner.specs.chain_layers import segments

    profile = read_metis_profile(path)
    if model is None:
        return metis_table(profile, hidden=sizes["hidden"], sequence=sizes["sequence"])
    spec = find_model(model)
    check_model_layers(profile, len(segments(spec.operators)), model)
    said = said_sizes(spec, sizes)
    return metis_table(profile, hidden=said["hidden"], sequence=said["sequence"])


def said_sizes(spec: ModelSpec, given: dict[str, int | None]) -> dict[str, int | None]:
    """Return the sizes of a model; sizes given beside it must be the same."""
    found = {}
    for name, asked in given.items():
        said = getattr(spec.architecture, name, None)
        if asked is not None and said not in (None, asked):
            raise UsageError(f"{option_of(name)}: found {asked}, expected {said} as in {spec.name}")
        found[name] = asked if said is None else said
    return found


def aceso_rows(path: Path, model: str | None, sizes: dict[str, int | None]) -> Measurements:
    """Read one model of a database of Aceso's."""
    from ilp_planner.peers.aceso.source import TENSOR_DEGREES, read_aceso_profile
    from ilp_planner.peers.aceso.tables import aceso_table

    key, spec = aceso_model(path, model)
    profile = read_aceso_profile(path, key, devices_per_node=max(TENSOR_DEGREES), unused=True)
    said = sizes if spec is None else said_sizes(spec, sizes)
    columns = {name: size for name, size in said.items() if size is not None}
    if spec is not None:
        columns["dtype"] = spec.precision  # type: ignore[assignment]
    return aceso_table(profile, key, columns)


def aceso_model(path: Path, model: str | None) -> tuple[str, ModelSpec | None]:
    """Return the name of a model in a database, and the model's description if one was named."""
    from ilp_planner.peers.aceso.source import known_models

    if not path.is_dir():
        raise ProfileError(missing_folder(path, "files MODEL_mbs*_tp*_algo*.csv"))
    known = known_models(path)
    there = f"one of {', '.join(known)}" if known else "files MODEL_mbs*_tp*_algo*.csv in it"
    if model is None:
        if len(known) != 1:
            raise UsageError(
                f"--model: found none, expected {there}: a table is of one model ({path})"
            )
        return known[0], None
    if model in known:
        return model, None
    try:
        spec = find_model(model)
    except SpecError as error:
        if Path(model).suffix == ".toml":
            raise
        raise UsageError(f"--model: found {model!r}, expected {there} ({path})") from error
    if "aceso" not in spec.profile:
        raise SpecError(f"{model}: profile.aceso: found nothing, expected {there}")
    return spec.profile["aceso"], spec


def amp_rows(path: Path, model: str | None) -> Measurements:
    """Read one model of a file of AMP's, on all its device types."""
    from ilp_planner.peers.amp.profile import read_amp_profile
    from ilp_planner.peers.amp.tables import amp_models, amp_table

    models = amp_models(path)
    if model is None and len(models) == 1:
        (model,) = models
    if model not in models:
        found = "none" if model is None else repr(model)
        raise UsageError(f"--model: found {found}, expected one of {', '.join(models)} ({path})")
    return amp_table(read_amp_profile(path, model, list(models[model])))


def check_quotas(source: str, quotas: Path | None, cluster_output: Path | None) -> None:
    """Refuse a cluster without a file for it, a file without a cluster, and both of other formats.

    Raises
    ------
    UsageError: the option that is too many or missing.
    """
    given = {"--quotas": quotas, "--cluster-output": cluster_output}
    named = [name for name, value in given.items() if value is not None]
    if named and source != "sailor":
        raise UsageError(f"{named[0]}: a profile of {source} has no quotas, expected none")
    if len(named) == 1:
        (missing,) = set(given) - set(named)
        raise UsageError(f"{missing}: found none, expected a file, which {named[0]} needs")
    if quotas is not None and cluster_output is not None:
        check_writable(cluster_output, [quotas])


def sailor_rows(
    path: Path,
    model: str | None,
    sizes: dict[str, int | None],
    quotas: Path | None,
    cluster_output: Path | None,
) -> Measurements:
    """Read one model of a folder or a checkout of Sailor's, and write the cluster of its quotas."""
    from ilp_planner.peers.sailor.profile import read_sailor_profile, sailor_models, sailor_table

    models = sailor_models(path)
    if model is None and len(models) == 1:
        (model,) = models
    if model not in models:
        found = "none" if model is None else repr(model)
        raise UsageError(f"--model: found {found}, expected one of {', '.join(models)} ({path})")
    profile = read_sailor_profile(path, model)
    table = sailor_table(profile, hidden=sizes["hidden"], sequence=sizes["sequence"])
    if quotas is not None and cluster_output is not None:
        from ilp_planner.peers.sailor.cluster import sailor_cluster
        from ilp_planner.specs.cluster_writer import cluster_text

        cluster = sailor_cluster(path, quotas, profile)
        write_text(cluster_output, cluster_text(cluster))
        say(f"{cluster_output}: {cluster.device_count} GPUs", cluster.notes)
    return table


def export_profile(
    to: Annotated[
        Literal["metis", "aceso"], typer.Argument(metavar="FORMAT", help="metis | aceso")
    ],
    profile: Annotated[
        str,
        typer.Argument(
            metavar="PROFILE", help="A native table, CSV, or several joined with commas."
        ),
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the files.")],
    model: Annotated[
        str | None,
        o.plain(
            "--model",
            "What the files call the model, or a model file that says so, and its sizes.",
            "NAME",
            default="as the table says",
        ),
    ] = None,
    sequence: Annotated[
        int | None, o.count("--sequence-length", "Which rows, where the table has several.")
    ] = None,
    hidden: Annotated[
        int | None, o.count("--hidden-size", "Which rows, where the table has several.")
    ] = None,
) -> None:
    """Write a native table as the profile that Metis or Aceso reads."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: is a file, expected a folder to write in")
    table = read_tables(find_tables(profile)[0])
    spec = named_model(model)
    wanted = wanted_rows(spec, hidden=hidden, sequence=sequence)
    if to == "metis":
        from ilp_planner.peers.metis.files import write_metis_profile
        from ilp_planner.peers.metis.tables import exportable_profile

        name = (model or "") if spec is None else spec.name
        found, notes = exportable_profile(table, wanted, model=name)
        write_metis_profile(found, folder)
        say(f"{folder}: {len(found.rows)} files of {found.layers} layers for Metis", notes)
        return
    from ilp_planner.costs.profiles.operator_table import operator_profile
    from ilp_planner.peers.aceso.tables import check_exportable, write_aceso_profile

    key = (
        (model or table.machine.get("model", "")) if spec is None else spec.profile.get("aceso", "")
    )
    if not key:
        raise UsageError(
            "--model: found none, expected what Aceso calls the model, as gpt_1_3B"
            + ("" if spec is None else f" (profile.aceso in {model} says it)")
        )
    operators = operator_profile(table, wanted, exact_sizes=True)
    notes = check_exportable(operators, table.source, key)
    files = write_aceso_profile(operators, folder, key)
    say(f"{folder}: {len(files)} files of {key} for Aceso", [*operators.notes, *notes])


def named_model(name: str | None) -> ModelSpec | None:
    """Return the description of a model if a name or a file is one."""
    if name is None:
        return None
    try:
        return find_model(name)
    except PlannerError:
        if Path(name).suffix == ".toml":
            raise
        return None
