"""The table of a training system's keys, and what a configuration of it says by them.

Everything ends in arguments of Megatron-LM, the words that jobs are read from. A row has the
argument that says the same, by value where words differ. Names that begin with `@` are numbers that
no argument says, such as replicas or the model's name.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import MISSING, SpecError, shown
from ilp_planner.base.limits import DIGITS, RANKS, SAMPLES
from ilp_planner.base.units import counted
from ilp_planner.formats.imported.rows import (
    Arguments,
    Given,
    Says,
    Uncounted,
    model_arguments,
    switch,
    targets_of,
)
from ilp_planner.formats.megatron.flags import Value, flag_of, flags, flags_by_key
from ilp_planner.formats.megatron.hybrid import SPARSE, VARIANT
from ilp_planner.formats.megatron.launcher import smallest_world
from ilp_planner.formats.megatron.launchers import Open, Said
from ilp_planner.formats.megatron.ranks import USUAL_NODE, ranks_of
from ilp_planner.formats.megatron.values import (
    CP,
    ETP,
    REPLICAS,
    SHARDS,
    STEPS,
    MegatronArguments,
    Spelling,
    assigned,
    check_stages,
    data_parallel_of,
    model_parallel,
    read_value,
)
from ilp_planner.settings.rules import AS_ENCODER, ENCODER_FIELD
from ilp_planner.specs.samples import beyond_positions
from ilp_planner.specs.training import Settings
from ilp_planner.specs.tuning import MOST_DROPOUT

if TYPE_CHECKING:
    from ilp_planner.formats.megatron.ranks import Gpus
    from ilp_planner.formats.megatron.values import Form
    from ilp_planner.specs.images import AnyEncoder

WORLD, NODES, EACH = "@world", "@nodes", "@each"
LENGTH, TOKENS, MODEL = "@length", "@tokens", "@model"
COUNTS = {
    WORLD: RANKS,
    NODES: RANKS,
    EACH: RANKS,
    REPLICAS: RANKS,
    SHARDS: RANKS,
    STEPS: SAMPLES,
    LENGTH: RANKS,
    TOKENS: RANKS,
}
# Topics of arguments that decide neither memory nor time of a step.
ASIDE = frozenset(("data", "checkpoints", "logging", "inference", "retrieval"))
# Their arguments that do.
VOCABULARY = defaultdict[str, frozenset[str]](
    frozenset, dict.fromkeys(("vocab_size", "padded_vocab_size", "vocab_extra_ids"), ASIDE)
)
OF_SETTINGS = "settings."  # before the fields that no argument says


class System(NamedTuple):
    """The table of one training system.

    name: for people. rows: by key, dots between the names of sections. same: beginnings of keys
    that go on with the name of an argument. aside: patterns of keys that decide neither memory nor
    time of a step. usual: its defaults. notes: on every job of it. finish: says what several keys
    say together. normal: a key as `rows` has it. words: of lists in launches that are words.
    seldom: the names of arguments say nothing unless a file has one of them. has: the arguments
    that changes may be said in by these names; None: all. form: the words of a key and its values;
    none: the key is left out. launched: they are words of a launch line. options: a key may be
    left out of it.
    """

    name: str
    rows: Mapping[str, Says]
    aside: tuple[str, ...] = ()
    usual: Arguments = {}  # noqa: RUF012 - never changed
    notes: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    finish: Callable[[Reading], None] = lambda reading: None
    normal: Callable[[str], str] = lambda key: key
    variables: tuple[str, ...] = ()
    form: Form = assigned
    runtime: str = ""
    seldom: bool = False
    has: frozenset[str] | None = None
    launched: bool = False
    options: bool = False


@dataclass(slots=True)
class Reading:
    """What a configuration says.

    source: for messages. said: arguments and numbers, and keys: which key says each. given: values
    by key. opened: numbers of ranks that are not known. aside, unread: keys that are not about the
    plan unless `finish` looks at them, and unknown ones. encoders: those of the model that is
    named, by their fields. encoder_is: their fields that the system decides, and the parts of the
    model that are `frozen`. outputs: numbers that the head gives for a token, as of a classifier;
    0: one for every word. batching, longer: as `MegatronArguments` has them.
    """

    system: System
    source: str
    said: dict[str, Value] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    given: Given = field(default_factory=Given)
    opened: dict[str, Open] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    encoders: dict[str, AnyEncoder] = field(default_factory=dict)
    encoder_is: dict[str, Any] = field(default_factory=dict)
    outputs: int = 0
    batching: str = ""
    longer: str = ""

    def take(self, written: str, value: Any) -> None:
        """Read one key; None: its default; an `Open` value is not known.

        Raises
        ------
        SpecError: the key, the value and what is expected instead.
        """
        key = self.system.normal(written)
        self.given[key] = value
        row = self.system.rows.get(key) or self._same(key)
        if row is None:
            known = any(fnmatchcase(key, pattern) for pattern in self.system.aside)
            (self.aside if known else self.unread).append(key)
        elif isinstance(value, Open):
            self._open(key, row, value)
        elif value is not None and value != []:
            self._row(key, row, value)

    def _open(self, key: str, row: Says, value: Open) -> None:
        """Note a value that is not known, if it may stay so."""
        if isinstance(row, Uncounted):
            self.remarks.append(f"{key}: not counted: {row.text}")
        elif isinstance(row, str) and row in COUNTS:
            self.opened[row], self.keys[row] = value, key
        elif row == MODEL and (name := _last_known(value)):
            self.say(MODEL, name, key)
        else:
            fix = f": {value.fix}" if value.fix else ""
            raise SpecError(f"{value.where or f'{self.source}: '}{value.message}{fix}")

    def _row(self, key: str, row: Says, value: Any) -> None:
        if isinstance(row, Uncounted):
            if value not in row.unless:
                self.remarks.append(f"{key}: not counted: {row.text}")
            return
        try:
            said = _said(row, value)
        except ValueError as error:
            raise self.error(key, value, str(error)) from None
        before = self._other(key, row)
        for argument, one in said.items():
            self.say(argument, one, key)
        if before and isinstance(row, str) and before[1] != self.said[row]:
            self.remarks.append(
                f"{before[0]}: found {shown(self.given[before[0]])}, and {key}: {shown(value)}, "
                "which counts: they are one setting"
            )

    def _other(self, key: str, row: Says) -> tuple[str, Value] | None:
        """Return another key that has said what this one says, and what that was."""
        other = self.keys.get(row) if isinstance(row, str) else None
        if other in (None, key) or other not in self.given or row not in self.said:
            return None
        return other, self.said[row]

    def _same(self, key: str) -> Says | None:
        """Return the row of a key that is named like an argument, or like a switch of it."""
        for beginning in self.system.same:
            if not key.startswith(beginning):
                continue
            name = key.removeprefix(beginning)
            flag = flags().get(name.replace("_", "-"))
            argument = name if name in flags_by_key() else flag.key if flag else ""
            if not argument or flags_by_key()[argument][0].topic in ASIDE - VOCABULARY[argument]:
                continue
            if argument == name or flag is None or flag.kind != "switch":
                return argument
            return switch({argument: flag.sets}, {argument: not flag.sets})
        return None

    def error(self, key: str, value: Any, expected: str) -> SpecError:
        """Return the error to raise for the value of a key."""
        where = f"{self.source}: " if self.source else ""
        return SpecError(f"{where}{key}: found {shown(value)}, expected {expected}")

    def say(self, argument: str, value: Value, key: str = "") -> None:
        """Note what an argument or a number is. key: that says so; empty: several together."""
        if argument in COUNTS:
            self.said[argument] = self._count(key or argument, value, COUNTS[argument])
        elif argument.startswith(OF_SETTINGS):
            self.said[argument] = self._field(key or argument, argument, value)
        elif argument.startswith("@") or value is None:
            self.said[argument] = value
        else:
            self.said[argument] = self._typed(key or flag_of(argument), argument, value)
        if key:
            self.keys[argument] = key

    def _count(self, key: str, value: Any, most: int) -> int:
        short = isinstance(value, str) and value.isdecimal() and len(value) <= DIGITS
        number = int(value) if short else value
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
            raise self.error(key, value, f"a whole number from 1 to {most}")
        return number

    def _field(self, key: str, name: str, value: Any) -> Value:
        """Return the value of a field of settings: what its type is there."""
        usual = attrgetter(name.removeprefix(OF_SETTINGS))(Settings())
        if isinstance(usual, bool) is not isinstance(value, bool):
            raise self.error(key, value, "true or false" if isinstance(usual, bool) else "a number")
        if isinstance(usual, int) and not isinstance(usual, bool):
            return self._count(key, value, RANKS)
        found: Value = value
        return found

    def _typed(self, key: str, argument: str, value: Any) -> Value:
        flag = flags_by_key()[argument][0]
        if flag.kind == "switch":
            switch = {"true": True, "false": False, "none": False}.get(str(value).lower())
            if switch is None:
                raise self.error(key, value, "true or false")
            return switch
        listed = isinstance(value, list | tuple)
        if flag.kind in ("pattern", "sizes") and listed:
            if not all(type(entry) is int for entry in value):
                raise self.error(key, value, "whole numbers")
            return tuple(value)
        if listed and not flag.many:
            if len(value) != 1:
                raise self.error(key, value, "one value")
            value, listed = value[0], False
        words = [str(word) for word in value] if listed else [_word(value, flag.kind)]
        try:
            return read_value(flag, words)
        except SpecError as error:
            where = f"{self.source}: " if self.source else ""
            raise SpecError(f"{where}{key}{str(error).removeprefix(flag.text)}") from None

    def whole(self, key: str, otherwise: int, least: int = 1) -> int:
        """Return the whole number that a key has. otherwise: its default.

        Raises
        ------
        SpecError: it is none.
        """
        value = self.given.get(key)
        if value is None:
            return otherwise
        if least == 0 and value in (0, "0", False):
            return 0
        return self._count(key, value, SAMPLES)

    def real(self, key: str, otherwise: float, most: float = 1e6) -> float:
        """Return the number of at least 0 that a key has. otherwise: its default.

        Raises
        ------
        SpecError: it is none, or above `most`.
        """
        value = self.given.get(key)
        try:
            found = otherwise if value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            found = -1
        if not 0 <= found <= most:
            raise self.error(key, value, f"a number from 0 to {most:g}")
        return found

    def adapters(
        self,
        rank: tuple[str, int],
        targets: tuple[str, tuple[str, ...]],
        dropout: tuple[str, float],
    ) -> None:
        """Say low-rank adapters. Each argument is a key, and the default of the system.

        Raises
        ------
        SpecError: a value is not possible.
        """
        key, every = targets
        try:
            found = targets_of(self.given.get(key), every)
        except ValueError as error:
            raise self.error(key, self.given[key], str(error)) from None
        self.say("settings.tuning.rank", self.whole(*rank))
        self.say("settings.tuning.targets", found)
        self.say("settings.tuning.dropout", self.real(*dropout, MOST_DROPOUT))

    def pairs(self, key: str, usual: Mapping[str, int]) -> None:
        """Say that a sample is two answers, so that sizes of batches count twice.

        Parameters
        ----------
        key: the one that says so, for messages.
        usual: the names of the sizes, and their defaults.
        """
        for name, samples in usual.items():
            self.say(name, 2 * self.number(name, samples), key)
        # Adapters that are switched off are the reference, and a reward model needs none.
        alone = self.given[key] == "rm" or "settings.tuning.rank" in self.said
        self.remarks.append(
            f"{key}: {self.given[key]}: a sample is two answers, each counted as one"
            f"{'' if alone else '; the reference model is not counted'}"
        )

    def layers(self) -> int:
        """Return the number of layers of the model that is named; 0: no model is named.

        Raises
        ------
        SpecError: the library has no such model.
        """
        found = self._named()
        return int(str(found[0]["num_layers"])) if found else 0

    def language_model(self) -> tuple[str, ...]:
        """Return all parts of the model that is named but those of its encoder, as frozen ones."""
        return "embedding", f"layers:0-{self.layers() - 1}", "norms", "output"

    def sees(self) -> bool:
        """Tell whether the model that is named has an encoder of images or sounds.

        Raises
        ------
        SpecError: it is not here.
        """
        found = self._named()
        return bool(found and found[2])

    def routes(self) -> bool:
        """Tell whether the model that is named, or said, has routed experts."""
        found = self._named()
        return bool(self.said.get("num_experts") or (found and found[0].get("num_experts")))

    def chooses(self) -> bool:
        """Tell whether attention of the model that is named sees keys that an indexer chooses."""
        found = self._named()
        return bool(found and found[0].get(VARIANT) == SPARSE)

    def _named(self) -> tuple[dict[str, Value], list[str], dict[str, AnyEncoder]] | None:
        named = self.said.get(MODEL)
        if not isinstance(named, str):
            return None
        return model_arguments(named, self.source, self.keys.get(MODEL, "model"))

    def usual_length(self, key: str) -> None:
        """Say the tokens of a sample where nothing does. key: that would, for the remark."""
        if LENGTH not in self.said and "seq_length" not in self.said:
            self.say(LENGTH, 2048)
            self.remarks.append(f"{key}: found none, counted as samples of 2048 tokens")

    def number(self, name: str, otherwise: int = 0) -> int:
        """Return a whole number that was said, or is the system's default."""
        value = self.said.get(name, self.system.usual.get(name))
        return value if isinstance(value, int) else otherwise


def _last_known(value: Open) -> str:
    """Return the name of a folder in one that is not known; empty if that is not known either."""
    name = value.shown.rstrip("/").rpartition("/")[2]
    return name if re.fullmatch(r"[\w.-]+", name) else ""


def _word(value: Any, kind: str) -> str:
    """Return a value as a command line says it: a whole number may be written as 1e4 or 8.0."""
    if kind == "int" and isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _said(row: Says, value: Any) -> Arguments:
    if isinstance(row, str):
        return {row: value}
    if callable(row):
        return row(value)
    assert isinstance(row, Mapping)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    wanted = value.lower() if isinstance(value, str) else value
    try:
        found = row.get(wanted)
    except TypeError:  # a list
        found = None
    if found is None or isinstance(wanted, bool) != isinstance(_like(row, wanted), bool):
        raise ValueError(f"one of {', '.join(map(shown, row))}")
    assert isinstance(found, Mapping)
    return found


def _like(row: Mapping[Any, Any], wanted: Any) -> Any:
    """Return the value of a row that is equal: 1 is not true."""
    return next((value for value in row if value == wanted), None)


def flat(values: Any, before: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the keys of mappings in mappings, dots between their names."""
    for name, value in values.items():
        key = f"{before}{name}"
        if isinstance(value, dict) and value:
            yield from flat(value, f"{key}.")
        else:
            yield key, None if value == {} else value


def dotted_option(word: str, rest: list[str]) -> tuple[str, str]:
    """Return the key and the value of `--SECTION.KEY VALUE`, or of a switch, as tyro takes them:
    dashes count as underscores, and `--SECTION.no-KEY` turns a switch off.

    rest: the words behind it, of which the value is taken.
    """
    name, equals, inside = word[2:].partition("=")
    *sections, last = name.replace("-", "_").split(".")
    alone = not equals and (not rest or rest[0].startswith("--"))
    off = alone and bool(sections) and last.startswith("no_")
    key = ".".join([*sections, last.removeprefix("no_") if off else last])
    if equals:
        return key, inside
    return key, ("false" if off else "true") if alone else rest.pop(0)


# ---- from what is said to arguments --------------------------------------------------------------


def read_pairs(
    system: System,
    pairs: Iterable[tuple[str, Any]],
    *,
    source: str,
    world: int | None = None,
    gpus: Gpus | None = None,
    strict: bool = False,
    environment: Mapping[str, str] | None = None,
    launch: Sequence[Said] = (),
) -> MegatronArguments:
    """Return what keys and values train.

    Parameters
    ----------
    source: for messages. world: ranks, for any the keys say. gpus: of the cluster, taken where
        nothing says how many there are. strict: refuse unknown keys. environment: variables that
        are set; None: unknown. launch: launchers around it.

    Raises
    ------
    SpecError: a value that cannot be, a model that is not supported, or something is missing.
    """
    reading = Reading(system, source)
    for key, value in pairs:
        reading.take(key, value)
    if strict and reading.unread:
        raise reading.error(
            reading.unread[0],
            reading.given[reading.unread[0]],
            f"a key of {system.name} that is known here, as --strict asks",
        )
    system.finish(reading)
    where = f"{source}: " if source else ""
    try:
        check_stages(reading.said)
    except SpecError as error:
        words = MegatronArguments(spelling=spelling(system, reading.keys))
        raise SpecError(f"{where}{words.spelled(str(error))}") from None
    named = next((key for key, row in system.rows.items() if row == MODEL), "")
    if named and not {MODEL, "num_layers"} & reading.said.keys():
        raise reading.error(named, reading.given.get(named, MISSING), "the model that is trained")
    values = _values(reading)
    args = MegatronArguments(
        values=values,
        features=_features(reading),
        batching=reading.batching,
        longer=reading.longer,
        program=system.name,
        source=source,
        environment=environment,
        runtime=system.runtime,
        beyond={
            name.removeprefix(OF_SETTINGS): value
            for name, value in reading.said.items()
            if name.startswith(OF_SETTINGS)
        },
        spelling=spelling(system, {n: key for n, key in reading.keys.items() if n in reading.said}),
    )
    said = _launchers(reading, args, launch)
    try:
        ranks = ranks_of(said, world, gpus)
    except SpecError as error:
        raise SpecError(f"{source}: {error}") from None
    count = ranks.world or smallest_world(args)
    args = replace(
        args,
        world=count,
        world_said=ranks.said,
        devices_per_node=ranks.each or min(USUAL_NODE, count),
        launch=ranks.unlike,
        remarks=(*ranks.remarks, *system.notes),
    )
    return _remarked(_with_batch(reading, args), reading)


def knows(system: System, written: str) -> bool:
    """Tell whether a key has a row, or is known not to be about the plan."""
    reading = Reading(system, "")
    reading.take(written, None)
    return not reading.unread


def nearest_key(system: System, written: str) -> str:
    """Return the key that was probably meant; empty if none is like it."""
    near = difflib.get_close_matches(system.normal(written), system.rows, n=1, cutoff=0.75)
    return "".join(near)


def spelling(system: System, said: Mapping[str, str]) -> Spelling:
    """Return a system's words for arguments. said: the keys that say them in this job."""
    plain: dict[str, str] = {}
    named: dict[str, str] = {}
    pairs: dict[tuple[str, Value], tuple[str, tuple[str, ...]]] = {}
    for key, row in system.rows.items():
        if isinstance(row, str):
            plain.setdefault(row, key)
        elif isinstance(row, Mapping):
            _add_pairs(pairs, named, key, row)
    has_arguments = any(key in flags_by_key() and key not in system.rows for key in said.values())
    if system.same and (has_arguments or not system.seldom):
        plain = {name: f"{system.same[0]}{name}" for name in flags_by_key()} | plain
    for argument, key in said.items():
        if system.rows.get(key, argument) == argument:
            plain[argument] = key
        else:
            plain.pop(argument, None)  # made of several keys, or of words
    if TOKENS in said:
        plain.pop("micro_batch_size", None)  # follows from them
    keys = {**named, **plain, **said}
    if system.rows.get(keys.get(LENGTH, "")) == LENGTH:
        keys["seq_length"] = keys[LENGTH]
    may, rows = system.has, system.rows
    if may is not None:
        plain = {n: key for n, key in plain.items() if n in may | said.keys() or rows.get(key) == n}
    return Spelling(
        {flag_of(name) if name in flags_by_key() else name: key for name, key in keys.items()},
        plain,
        pairs,
        system.form,
        system.launched,
        {
            name: system.usual.get(name, flags_by_key()[name][0].default)
            for name in said
            if name in flags_by_key()
        }
        if system.options
        else None,
    )


def _add_pairs(
    pairs: dict[tuple[str, Value], tuple[str, tuple[str, ...]]],
    named: dict[str, str],
    key: str,
    row: Mapping[Any, Arguments],
) -> None:
    """Add what the values of a key say; an argument that one leaves out has its default then."""
    arguments = {name for said in row.values() for name in said}
    for value, said in row.items():
        for name in arguments:
            if name not in flags_by_key():
                continue
            default = flags_by_key()[name][0].default
            word = str(value).lower() if isinstance(value, bool) else str(value)
            pairs.setdefault((name, said.get(name, default)), (key, (word,)))
            named.setdefault(name, key)


def _values(reading: Reading) -> dict[str, Value]:
    """Return the arguments: of the system's defaults, of the model's name, and what was said."""
    named = reading.said.get(MODEL)
    model: dict[str, Value] = {}
    if isinstance(named, str):
        found = model_arguments(named, reading.source, reading.keys.get(MODEL, "model"))
        model, notes, reading.encoders = found
        reading.remarks += notes
    own = {name: value for name, value in reading.said.items() if name in flags_by_key()}
    usual = {name: value for name, value in reading.system.usual.items() if name[0] != "@"}
    values = {**usual, **model, **own}
    if not values.get("num_experts"):
        values = {name: v for name, v in values.items() if name in own or not _of_experts(name)}
    if length := reading.number(LENGTH):
        values["seq_length"] = length
    length = int(values.get("seq_length") or 0)  # type: ignore[arg-type]
    most = values.get("max_position_embeddings")
    if values.get("position_embedding_type") in ("rope", "yarn", "none") and length:
        # No parameters: positions beyond those of the model's file need none.
        most = most if isinstance(most, int) and most else length
        reading.remarks += beyond_positions(length, most, learned=False)
        values["max_position_embeddings"] = max(length, most)
    return {name: value for name, value in values.items() if value is not None}


def _features(reading: Reading) -> dict[str, Any]:
    """Return the fields of the model that no argument says: outputs of the head, and encoders.
    Say which parts of them are frozen, unless adapters freeze the whole model."""
    head = {"outputs": reading.outputs, "tied": False} if reading.outputs else {}
    if not reading.encoders:
        return head
    has = dict(reading.encoder_is)
    frozen = has.pop("frozen", ())
    if frozen and "settings.tuning.rank" not in reading.said:
        before = reading.said.get("settings.tuning.frozen") or ()
        assert isinstance(before, tuple)
        reading.said["settings.tuning.frozen"] = tuple(dict.fromkeys((*before, *frozen)))
    own: dict[str, Any] = {}
    for name, encoder in reading.encoders.items():
        alone = has | {"as_decoder": False} if has and encoder.as_decoder else has
        own[name] = replace(encoder, **alone)
    trained = "settings.tuning.rank" not in reading.said and "encoder" not in frozen
    if trained and any(encoder.as_decoder for encoder in own.values()):
        again = reading.said.get("recompute_granularity") or "none"
        reading.say(ENCODER_FIELD, AS_ENCODER[str(again)])
    return head | own


def _of_experts(name: str) -> bool:
    return flags_by_key()[name][0].topic == "experts" or name == ETP


def _launchers(reading: Reading, args: MegatronArguments, launch: Sequence[Said]) -> Sequence[Said]:
    """Return how many ranks are started, as far as anything says."""
    names = [reading.keys[n] for n in (NODES, EACH, WORLD, REPLICAS) if n in reading.keys]
    numbers = {name: reading.opened.get(name) or reading.number(name) or None for name in COUNTS}
    if not names and not (numbers[NODES] and numbers[EACH]):
        return launch
    world = numbers[WORLD]
    if replicas := reading.number(REPLICAS):
        world = replicas * model_parallel(args)
    name = ", ".join(names) or f"{reading.system.name}'s default"
    return (Said(name=name, nodes=numbers[NODES], each=numbers[EACH], all=world),)


def _with_batch(reading: Reading, args: MegatronArguments) -> MegatronArguments:
    """Return arguments with the samples of a micro-batch and of a step."""
    values = dict(args.values)
    dp = data_parallel_of(args)
    micro, steps = args.whole("micro_batch_size"), reading.number(STEPS)
    batch = args.whole("global_batch_size")
    if not micro and batch and steps:
        micro = max(1, batch // (steps * dp))
    tokens, length = reading.number(TOKENS), args.whole("seq_length")
    if not micro and tokens and length:
        micro = _packed(tokens * max(1, args.whole(CP)), length, batch // dp if batch else 0)
        reading.remarks.append(
            f"{reading.keys[TOKENS]}: micro-batches of up to {tokens} tokens per GPU are counted "
            f"as {counted(micro, 'sample')} of {length} tokens each, the longest there are"
        )
    if micro:
        values["micro_batch_size"] = micro
    if micro and not batch and steps:
        values["global_batch_size"] = micro * steps * dp
    return replace(args, values=values)


def _packed(tokens: int, length: int, samples: int) -> int:
    """Return how many full samples fit into a micro-batch, as many in each. samples: of a replica;
    0: any."""
    most = max(1, tokens // length)
    if not samples:
        return most
    return next(count for count in range(min(most, samples), 0, -1) if samples % count == 0)


def _remarked(args: MegatronArguments, reading: Reading) -> MegatronArguments:
    """Return arguments with remarks on all keys that were not read."""
    remarks = list(reading.remarks)
    if aside := [key for key in reading.aside if key not in reading.given.read]:
        remarks.append(f"not about the plan: {_grouped(aside)}")
    if reading.unread:
        names = ", ".join(dict.fromkeys(reading.unread))
        remarks.append(f"{names}: not read: no key of {reading.system.name} that is known here")
    return replace(args, remarks=(*args.remarks, *remarks))


def _grouped(keys: Sequence[str]) -> str:
    """Return keys in words, those of a section together if they are many."""
    groups: dict[str, list[str]] = {}
    for key in dict.fromkeys(keys):
        groups.setdefault(key.rpartition(".")[0].partition(".")[0], []).append(key)
    texts = []
    for section, names in groups.items():
        if section and len(names) > 1:
            texts.append(f"{section} ({len(names)} keys)")
        else:
            texts += names
    return ", ".join(texts)
