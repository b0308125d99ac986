"""The files of a problem, and their content."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlannerError, SpecError, UsageError
from ilp_planner.base.files import Document, existing, places, read_document, sha256_of
from ilp_planner.base.library import find_specs, library_folder
from ilp_planner.base.parts import part
from ilp_planner.inputs.devices import usable, usable_nodes
from ilp_planner.inputs.request import HELD, Reference, Request
from ilp_planner.inputs.table import DEFAULT_GLOBAL_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec

DEFAULT_MODEL = "gpt3-1.3b"
DEFAULT_CLUSTER = "v100-32gb-1x4"
# What follows the colon of `FORMAT:PATH`; empty: nothing does.
PROFILE_FORMATS = {
    "analytic": "",
    "table": "FILE.csv",
    "aceso": "FOLDER",
    "metis": "FOLDER",
    "amp": "FILE",
}
FORMS = {"analytic": "analytic", "table": "FILE.csv"}  # how these formats are written
TABLE = ".csv"  # how the name of a native table ends, which needs no `table:` before it
READ = 64  # models and clusters that are kept as read: many requests of one process have the same


class InputFiles:
    """Finds and reads the inputs of one request, each once.

    held: the content that was read, with hashes. notes: differences of today from the request.
    """

    def __init__(
        self,
        request: Request,
        folders: tuple[Path, ...] = (),
        *,
        objects: Mapping[str, Any] | None = None,
        anew: bool = False,
        compared: bool = True,
        possible: bool = True,
    ) -> None:
        """Take a request.

        Parameters
        ----------
        folders: bases of relative paths, besides the current folder.
        objects: inputs that are given instead of read, by the names of `FILES`.
        anew: read the files that are there now, also if the request holds their text.
        compared: note differences of today's files from the request.
        possible: refuse a problem that has no plan on all nodes together.
        """
        self.request = replace(request, memory_limits=None) if anew else request
        self.folders = folders
        self.objects = dict(objects or {})
        self.anew = anew
        self.compared = compared
        self.possible = possible
        self.refused: SpecError | None = None  # of nodes that were left out for it
        self.kind, self.path = split_profile(request.profile)
        self.held: dict[str, Reference] = {}
        self.notes: list[str] = []

    @property
    def global_batch(self) -> int:
        """Samples per iteration."""
        asked = self.request.global_batch
        if asked is None and self.kind == "amp" and "profile" not in self.objects:
            return int(self.experiment.global_batch)
        return DEFAULT_GLOBAL_BATCH if asked is None else asked

    @property
    def model_name(self) -> str:
        """Return the name of the model if one is known; else empty."""
        model = self.model
        return str(self.objects.get("model_name", "")) if model is None else model.name

    def on_nodes(self, request: Request, nodes: Collection[int]) -> InputFiles:
        """Return the same inputs with some of the nodes that plans may use.

        Parameters
        ----------
        request: all but the nodes. nodes: by their numbers among the usable ones.
        """
        usable = usable_nodes(self.whole_cluster, request.constraints)
        kept = {usable[node] for node in nodes}
        left = [n for n in range(self.whole_cluster.node_count) if n not in kept]
        constraints = request.constraints.with_(without=tuple(map(str, left)), max_devices=None)
        return self._again(replace(request, constraints=constraints))

    def unchecked(self) -> InputFiles:
        """Return the same inputs, for a problem that may have no plan on all nodes together."""
        return self._again(self.request, possible=False)

    def _again(self, request: Request, *, possible: bool = True) -> InputFiles:
        return InputFiles(
            request,
            self.folders,
            objects=self.objects,
            anew=self.anew,
            compared=self.compared,
            possible=possible,
        )

    def nodes_left(self, request: Request) -> list[int]:
        """Return the nodes of the cluster that another request leaves to plans, by their numbers
        among the usable ones here; unusable ones are left out."""
        usable = usable_nodes(self.whole_cluster, self.request.constraints)
        theirs = {*usable_nodes(self.whole_cluster, request.constraints)}
        return [place for place, node in enumerate(usable) if node in theirs]

    # ---- what was read --------------------------------------------------------------------------

    def keep(self, kind: str, digest: str) -> None:
        """Record the hash of an input."""
        self.held[kind] = Reference(name=self.request.name(kind) or "analytic", sha256=digest)

    def recorded(self, kind: str) -> Reference | None:
        """Return the input's content as recorded in the request."""
        reference = self.request.files.get(kind)
        return reference if reference is not None and reference.sha256 else None

    def find(self, kind: str, path: str, wanted: Callable[[str], bool] = lambda name: True) -> Path:
        """Return the path of a file or folder."""
        place, digest = choose(self._tries(path), self.recorded(kind), wanted)
        self.keep(kind, digest)
        return place

    def document(self, kind: str, reference: Reference | None = None) -> Document:
        """Return the content of an input: as the request holds it, else as its file does.

        Parameters
        ----------
        reference: the named input; None: the request's.
        """
        reference = reference or self.request.files[kind]
        if reference.text is not None and not self.anew:
            self.held[kind] = reference
            return Document(reference.name, reference.text)
        place, _ = choose(self._places(kind, reference.name), self.recorded(kind))
        document = read_document(place, SpecError)
        self.held[kind] = Reference(name=reference.name, sha256=document.sha256, text=document.text)
        return document

    def compare_with_today(self) -> None:
        """Note the files that differ today from the request."""
        for kind in HELD:
            reference = self.request.files.get(kind)
            if reference is None or reference.text is None or self.anew or not self.compared:
                continue
            try:
                digest = self._digest_today(kind, reference)
            except PlannerError:
                continue
            if digest and digest != reference.sha256:
                self.notes.append(
                    f"{kind} {reference.name}: differs today from what the plan was saved with, "
                    "which it is judged by"
                )

    def _digest_today(self, kind: str, reference: Reference) -> str:
        """Return the hash of an input today; empty if it is not there."""
        from ilp_planner.specs.cluster_reader import read_cluster
        from ilp_planner.specs.gpu_cluster import names_gpus

        if kind == "model":
            return self._model_today(reference)
        if kind == "lengths":
            from ilp_planner.specs.lengths_reader import lengths_text, read_lengths

            place, _ = choose(self._places(kind, reference.name), reference)
            lengths = read_lengths(read_document(place, SpecError))
            return Document(reference.name, lengths_text(lengths)).sha256
        held = Document(reference.name, reference.text or "")
        if kind != "cluster" or not names_gpus(read_cluster(held)):
            return choose(self._places(kind, reference.name), reference)[1]
        today = InputFiles(Request(files={kind: replace(reference, text=None)}), self.folders)
        today.cluster_file()
        return today.held[kind].sha256

    def _model_today(self, reference: Reference) -> str:
        """Return the hash of a model's file today."""
        from ilp_planner.specs.model_reader import is_config

        path, digest = choose(self._places("model", reference.name), reference)
        document = read_document(path, SpecError)
        if not is_config(document) and "encoder" not in document.text:  # held as it is
            return digest
        request = Request(
            files={"model": replace(reference, text=None)}, text_only=self._text_only(reference)
        )
        today = InputFiles(request, self.folders)
        today._model_in(request.files["model"])
        return today.held["model"].sha256

    def _places(self, kind: str, name: str) -> list[Path]:
        if kind == "model":
            return find_specs(name, "models", self.folders)
        if kind == "cluster":
            return cluster_places(name, self.folders)
        return self._tries(name)

    def _tries(self, name: str) -> list[Path]:
        tries = places(name, self.folders)
        return existing(tries) or tries[:1]

    # ---- the model ------------------------------------------------------------------------------

    @cached_property
    def model(self) -> ModelSpec | None:
        """The model that was named; the default one if an analytic profile needs one."""
        if "model" in self.objects:
            given: ModelSpec = self.objects["model"]
            return given
        reference = self.request.files.get("model")
        if reference is None:
            if self.kind not in ("analytic", "aceso") or "profile" in self.objects:
                return None
            if "hostfile" in self.request.files:
                raise UsageError("model: found none, expected a model to estimate")
            reference = Reference(name=DEFAULT_MODEL)
        return self._with_lengths(self._with_samples(self._model_in(reference)))

    def _model_in(self, reference: Reference) -> ModelSpec:
        """Return the model of a file; held of another format is the model file that says it."""
        from ilp_planner.specs.model_reader import is_config

        document = self.document("model", reference)
        text_only = self._text_only(reference)
        model = _model_of(document, text_only)
        if is_config(document) or (text_only and model != _model_of(document, False)):
            from ilp_planner.specs.model_writer import model_text

            text = model_text(model, source=f"From {document.name}.")
            written = Document(reference.name, text)
            self.held["model"] = Reference(name=reference.name, sha256=written.sha256, text=text)
        return model

    def _text_only(self, reference: Reference) -> bool:
        """Tell whether a model's text alone is planned: that is asked for, or a saved plan holds a
        model without an encoder of images."""
        from ilp_planner.specs.model_reader import is_config

        if self.request.text_only or reference.text is None:
            return self.request.text_only
        held = Document(reference.name, reference.text)
        return is_config(held) or not _sees_images(_model_of(held, False))

    def _with_samples(self, model: ModelSpec) -> ModelSpec:
        """Return the model with as much of a sample as the request says: tokens, images, sound."""
        from ilp_planner.specs.samples import Samples, with_samples

        request = self.request
        for name in ("images", "image_size", "audio_seconds") if request.text_only else ():
            if value := getattr(request, name):
                raise UsageError(
                    f"{name}: found {value} with `text_only`, which leaves images and sounds out, "
                    "expected one of the two"
                )
        samples = Samples(
            request.sequence, request.images, request.image_size, request.audio_seconds
        )
        if self.kind != "analytic":
            samples = samples._replace(sequence=None)
        return with_samples(model, samples)

    def _with_lengths(self, model: ModelSpec) -> ModelSpec:
        """Return the model with samples made of documents, if the request says their lengths.

        Raises
        ------
        SpecError, UsageError: they are none, or too long.
        """
        from ilp_planner.specs.lengths_reader import lengths_text, of_samples, read_lengths

        reference, batching = self.request.files.get("lengths"), self.request.batching
        if reference is None:
            if batching:
                raise UsageError(
                    f"batching: found {batching} without `lengths`, expected none, or a file of "
                    "lengths beside it"
                )
            return model
        if self.kind != "analytic":
            raise UsageError(
                f"`lengths`: found {reference.name} with `profile={self.request.profile}`, whose "
                "times are of one length, expected `profile=analytic`"
            )
        document = self.document("lengths", reference)
        lengths = read_lengths(document, batching)
        written = Document(reference.name, lengths_text(lengths))
        self.held["lengths"] = Reference(
            name=reference.name, sha256=written.sha256, text=written.text
        )
        said = self.request.images, self.request.audio_seconds
        architecture = of_samples(model, lengths, document.name, *said)
        return replace(model, architecture=architecture)

    def model_or_default(self) -> ModelSpec:
        """Return the model that was named, else the default one, which is then the model."""
        if self.model is None:
            self.model = _model_of(self.document("model", Reference(name=DEFAULT_MODEL)), False)
        return self.model

    def need_model(self, why: str) -> ModelSpec:
        """Return the model.

        Raises
        ------
        UsageError: none was named. why: the purpose.
        """
        if self.model is None:
            raise UsageError(f"model: found none, expected {why}")
        return self.model

    # ---- the cluster ----------------------------------------------------------------------------

    @cached_property
    def cluster(self) -> tuple[ClusterSpec, Any]:
        """The cluster, with the description of Metis's files if they have one."""
        files = self.request.files
        if "metis_cluster" in self.objects:
            return self.objects["cluster"], self.objects["metis_cluster"]
        if "cluster" in self.objects:
            return self.cluster_file(), None
        if self.kind == "amp":
            return self.experiment.cluster, None
        pair = [kind for kind in ("hostfile", "clusterfile") if kind in files]
        if len(pair) == 1:
            missing = "clusterfile" if "hostfile" in files else "hostfile"
            raise UsageError(f"`{pair[0]}`: expected a `{missing}` beside it, found none")
        if pair:
            read = part("peers.metis.cluster:read_metis_cluster")
            metis = read(self.document("hostfile"), self.document("clusterfile"))
            name = Path(files["hostfile"].name).name
            return part("peers.metis.cluster:metis_cluster_spec")(metis, name), metis
        if "cluster" not in files and self.kind not in ("analytic", "aceso", "table"):
            raise UsageError(
                "cluster: found none, expected a cluster whose devices are in the profile (or "
                "`hostfile` and `clusterfile`)"
            )
        return self.cluster_file(), None

    def cluster_file(self) -> ClusterSpec:
        """Return the usable nodes of the named cluster."""
        return usable(self.whole_cluster, self.request.constraints)

    @cached_property
    def whole_cluster(self) -> ClusterSpec:
        """The cluster that was named; the default one if none was.

        Of one that leaves numbers to the table of GPUs, all numbers are held instead of the file: a
        saved plan is judged by its own numbers.
        """
        from ilp_planner.specs.cluster_writer import cluster_text
        from ilp_planner.specs.gpu_cluster import gpu_cluster, is_gpus, names_gpus, parse_gpus

        if "cluster" in self.objects:
            given: ClusterSpec = self.objects["cluster"]
            return given
        reference = self.request.files.get("cluster", Reference(name=DEFAULT_CLUSTER))
        written = reference.text is None or self.anew
        if written and is_gpus(reference.name):
            cluster = gpu_cluster(parse_gpus(reference.name))
        else:
            cluster = _cluster_of(self.document("cluster", reference))
        if written and names_gpus(cluster):
            document = Document(reference.name, cluster_text(cluster))
            self.held["cluster"] = Reference(
                name=reference.name, sha256=document.sha256, text=document.text
            )
        return cluster

    # ---- AMP's experiment ------------------------------------------------------------------------

    @cached_property
    def experiment(self) -> Any:
        """The experiment of an `amp:FILE`, on the devices of a cluster or a hostfile if one is
        named.

        Raises
        ------
        UsageError: a model is named beside it.
        """
        return part("peers.amp.source:experiment")(self)


def split_profile(text: str) -> tuple[str, str]:
    """Return format and path of `FORMAT:PATH`; of `FILE.csv`, `table` and the file.

    Raises
    ------
    UsageError: an unknown format, or a path is missing or too many.
    """
    kind, _, path = text.partition(":")
    if kind not in PROFILE_FORMATS and text.casefold().endswith(TABLE):
        return "table", text
    forms = [FORMS.get(name, f"{name}:{rest}") for name, rest in PROFILE_FORMATS.items()]
    if kind not in PROFILE_FORMATS:
        raise UsageError(f"profile: found {text!r}, expected one of {', '.join(forms)}")
    rest = PROFILE_FORMATS[kind]
    if rest and not path:
        place = "folder" if rest == "FOLDER" else "file"
        form = FORMS.get(kind, f"{kind}:{rest}")
        raise UsageError(f"profile: found {text!r} without a {place}, expected {form}")
    if path and not rest:
        raise UsageError(f"profile: found {text!r}, but an analytic profile reads no file")
    return kind, path


@lru_cache(maxsize=READ)
def _model_of(document: Document, text_only: bool) -> ModelSpec:
    """Return the model that a text says: one object for requests that say the same."""
    from ilp_planner.specs.model_reader import read_model

    return read_model(document, text_only=text_only)


def _sees_images(model: ModelSpec) -> bool:
    """Tell whether a model has an encoder of images or sounds."""
    from ilp_planner.specs.decoder import as_decoder

    decoder = as_decoder(model.architecture)
    return bool(decoder and decoder.encoders)


@lru_cache(maxsize=READ)
def _cluster_of(document: Document) -> ClusterSpec:
    """Return the cluster that a text says: one object for requests that say the same."""
    from ilp_planner.specs.cluster_reader import read_cluster

    return read_cluster(document)


def find_cluster(name: str) -> ClusterSpec:
    """Return the cluster of a name or path, or of so many GPUs (`16xA100-80GB`).

    Raises
    ------
    SpecError: not there, or malformed.
    """
    from ilp_planner.specs.cluster_reader import read_cluster
    from ilp_planner.specs.gpu_cluster import gpu_cluster, is_gpus, parse_gpus

    if is_gpus(name):
        return gpu_cluster(parse_gpus(name))
    return read_cluster(cluster_places(name)[0])


def cluster_places(name: str, folders: tuple[Path, ...] = ()) -> list[Path]:
    """Return the files that the name of a cluster may mean.

    Raises
    ------
    SpecError, UsageError: there is none; of so many GPUs, those that there are.
    """
    from ilp_planner.specs.gpu_cluster import FORM, parse_gpus

    try:
        return find_specs(name, "clusters", folders)
    except SpecError:
        if FORM.fullmatch(name):
            parse_gpus(name)
        raise


def cluster_or_gpus(cluster: str | None, gpus: str | None) -> str | None:
    """Return the name of the cluster that is asked for by its own or by so many GPUs; None for
    neither.

    Raises
    ------
    UsageError: both, or unknown GPUs.
    """
    from ilp_planner.specs.gpu_cluster import parse_gpus

    if gpus is None:
        return cluster
    if cluster is not None:
        raise UsageError(f"gpus: found {gpus} and `cluster={cluster}`, expected one of the two")
    return parse_gpus(gpus).name


def find_model(name: str, *, text_only: bool = False) -> ModelSpec:
    """Return the model of a name or path.

    Parameters
    ----------
    text_only: of a model of text and something else, its text alone.

    Raises
    ------
    SpecError: not there, or malformed.
    """
    from ilp_planner.specs.model_reader import library_spec, read_model

    path = find_specs(name, "models")[0]
    if not text_only and path.parent == library_folder() / "models":
        return library_spec(path)
    return read_model(read_document(path, SpecError), text_only=text_only)


def choose(
    paths: Sequence[Path],
    recorded: Reference | None,
    wanted: Callable[[str], bool] = lambda name: True,
) -> tuple[Path, str]:
    """Return the first path with the recorded content, else the first, and its SHA-256.

    Parameters
    ----------
    wanted: the names of files of a folder that count.
    """
    try:
        digests = [sha256_of(path, wanted) if path.exists() else "" for path in paths]
    except OSError as error:
        raise SpecError(f"{error.filename}: cannot be read: {error.strerror}") from None
    place = 0
    if recorded is not None and recorded.sha256 in digests:
        place = digests.index(recorded.sha256)
    return paths[place], digests[place]


def plan_folders(file: Path) -> tuple[Path, ...]:
    """Return the bases of relative paths in a plan: its folder, and the one above."""
    folder = file.resolve().parent
    return folder, folder.parent
