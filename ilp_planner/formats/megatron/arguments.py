"""A launch line of Megatron-LM and the training job that it means, in both directions.

`read_arguments` understands a line, `job_of_arguments` gives its job, `arguments_of_job` writes the
arguments of a job.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import as_whole
from ilp_planner.formats.exported import rocm_variables
from ilp_planner.formats.megatron.earlier import Today, in_todays_words
from ilp_planner.formats.megatron.flags import Value
from ilp_planner.formats.megatron.hybrid import PATTERN, with_pipes
from ilp_planner.formats.megatron.launcher import Launch, smallest_world, split_launch
from ilp_planner.formats.megatron.launchers import (
    FindOpen,
    LeftOpenError,
    Open,
    ReadHosts,
    Said,
    numbers_of,
)
from ilp_planner.formats.megatron.model import decoder_of, layers_of, model_values, said_vocabulary
from ilp_planner.formats.megatron.pipeline import layout_of, pipeline_values
from ilp_planner.formats.megatron.ranks import USUAL_NODE, Gpus, Ranks, ranks_of
from ilp_planner.formats.megatron.settings import settings_of, settings_values
from ilp_planner.formats.megatron.values import (
    MegatronArguments,
    data_parallel_of,
    parse_values,
    split_words,
    take_values,
)
from ilp_planner.settings.rules import check_compressed, check_sparse
from ilp_planner.settings.values import with_fields
from ilp_planner.specs.training import Settings, TrainingJob

__all__ = ["MegatronArguments", "arguments_of_job", "job_of_arguments", "read_arguments"]

# What the libraries below Megatron want set where results must be the same bit for bit.
DETERMINISTIC = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "NCCL_ALGO": "Ring",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0",
}
# Names that AMD's libraries do not read, and what they read instead.
ON_ROCM = {"CUBLAS_WORKSPACE_CONFIG": ("ROCBLAS_DEFAULT_ATOMICS_MODE", "0")}


def open_text(option: str, value: str) -> Open | None:
    """Return the open part in the value of a typed option: a variable of a shell."""
    if "$" not in value:
        return None
    where = f"{option}: " if option else ""
    return Open(f"{option} {value}".strip(), f"{where}found {value}, expected its value")


def no_hosts(name: str) -> None:
    """Return the devices of the nodes of a hostfile, if none is looked for."""


def read_arguments(
    words: Sequence[str] | str,
    world: int | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    source: str = "",
    strict: bool = True,
    gpus: Gpus | None = None,
    find_open: FindOpen = open_text,
    read_hosts: ReadHosts = no_hosts,
) -> MegatronArguments:
    """Read a launch line: Megatron's arguments, alone or after torchrun, srun, mpirun or python.

    Parameters
    ----------
    words: the line, or its words.
    world: ranks; None: those of the launcher, else of `gpus`, else the fewest for these arguments.
    environment: variables that are set; None: unknown.
    source: of the line, for messages.
    strict: refuse arguments that today's Megatron does not have; otherwise those of earlier
        releases and of Megatron-DeepSpeed are read as their equivalents of today, and the others
        are kept word for word, both with a remark.
    gpus: of the cluster that the line is for. find_open, read_hosts: as of `numbers_of`.

    Raises
    ------
    SpecError: an argument that Megatron's parser would not accept, another kind of model, or a
    number of ranks that launchers leave open and nothing says.
    """
    where = f"{source}: " if source else ""
    try:
        launch = split_launch(shlex.split(words) if isinstance(words, str) else words)
        today = Today(launch.words) if strict else in_todays_words(launch.words)
        values = parse_values(today.words)
        ranks = launch_ranks(launch, environment or {}, world, gpus, find_open, read_hosts)
    except LeftOpenError as error:
        raise SpecError(f"{error.where or where}{error}") from None
    except SpecError as error:
        raise SpecError(f"{where}{error}") from None
    except ValueError as error:
        raise SpecError(f"{where}not a command line: {error}") from None
    args = MegatronArguments(
        values=values,
        program=launch.program,
        source=source,
        remarks=(*ranks.remarks, *today.remarks),
        launch=ranks.unlike,
        unread=today.unread,
        environment=(
            None
            if environment is None and not launch.environment
            else {**(environment or {}), **launch.environment}
        ),
    )
    count = ranks.world or smallest_world(args)
    each = ranks.each or min(USUAL_NODE, count)
    args = replace(args, world=count, world_said=ranks.said, devices_per_node=each)
    if today.micro_batches and not args.given("global_batch_size"):
        samples = today.micro_batches * args.whole("micro_batch_size") * data_parallel_of(args)
        args = replace(args, values={**args.values, "global_batch_size": samples})
    return args


def launch_ranks(
    launch: Launch,
    environment: Mapping[str, str],
    world: int | None,
    gpus: Gpus | None,
    find_open: FindOpen,
    read_hosts: ReadHosts,
) -> Ranks:
    """Return the ranks of a launch; the parameters are those of `read_arguments`.

    Raises
    ------
    SpecError: launchers contradict each other, or leave a number open that nothing says.
    """
    variables = {**environment, **launch.environment}
    launchers = numbers_of(launch.launcher, variables, find_open, read_hosts)
    text = variables.get("WORLD_SIZE", "")
    if not launchers and text.isdecimal() and as_whole(text):
        # Megatron itself reads it, where no launcher sets it.
        launchers = [Said(name="WORLD_SIZE", all=as_whole(text))]
    return ranks_of(launchers, world, gpus)


def job_of_arguments(args: MegatronArguments, *, checked: bool = True) -> TrainingJob:
    """Return the job of arguments.

    Parameters
    ----------
    checked: ask all of Megatron's rules first; otherwise only those that make a job.

    Raises
    ------
    SpecError: Megatron would refuse them or fail later, or the model is not supported.
    """
    from ilp_planner.formats.megatron.rules import check_arguments

    where = f"{args.source}: " if args.source else ""
    findings = check_arguments(args) if checked else ()
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        first = findings[0]
        absent = (
            re.search(r": (line|launch) \d", args.source)
            and first.found == "none"
            and first.flag[:2] == "--"
        )
        added = f"; --set {first.flag[2:]}=VALUE adds it" if absent else ""  # to a script
        ranks = re.search(r"world size|\branks\b|data-parallel size", str(first)) and args.launch
        beside = f" ({ranks})" if ranks else ""  # what the number rests on
        raise SpecError(args.spelled(f"{where}{first}{added}{more}{beside}"))
    try:
        model = replace(decoder_of(args), **args.features)
        dp = data_parallel_of(args)
        pp = args.whole("pipeline_model_parallel_size")
        micro_batch = args.whole("micro_batch_size")
        job = TrainingJob(
            model=model,
            micro_batch=micro_batch,
            global_batch=args.whole("global_batch_size") or micro_batch * dp,
            tp=args.whole("tensor_model_parallel_size"),
            pp=pp,
            dp=dp,
            layout=layout_of(args, layers_of(args), pp, model.prediction_layers),
            settings=with_fields(settings_of(args), dict(args.beyond)),
            devices_per_node=args.devices_per_node,
        )
    except ValueError as error:
        raise SpecError(args.spelled(f"{where}{error}")) from None
    broken = next(chain(check_sparse(job), check_compressed(job)), None) if checked else None
    if broken:
        said = f"{broken.rule}: found {broken.have}, expected {broken.limit}"
        raise SpecError(args.spelled(f"{where}{said}"))
    return replace(job, settings=_usual_turns(job))


def _usual_turns(job: TrainingJob) -> Settings:
    """Return the settings without microbatch groups if virtual stages have the usual ones, or are
    none."""
    if job.virtual == 1 or job.pp == 1:
        return replace(job.settings, turn=0, overlap_sends=True)
    return replace(job.settings, turn=0) if job.settings.turn == job.pp else job.settings


def arguments_of_job(job: TrainingJob) -> MegatronArguments:
    """Return the arguments that train a job.

    Raises
    ------
    SpecError: Megatron has no arguments for it.
    """
    values = model_values(job.model, job.settings.vocab_multiple)
    values |= {"micro_batch_size": job.micro_batch, "global_batch_size": job.global_batch}
    values["tensor_model_parallel_size"] = job.tp
    values |= pipeline_values(job.pipeline, job.pp)
    if PATTERN in values:
        values = with_pipes(values, job.pipeline)
    values |= settings_values(job.settings, gated="swiglu" in values)
    known, others = split_words(job.settings.carried)
    values |= _taken(known, others)
    if "tokenizer_type" in values:
        values["vocab_size"] = said_vocabulary(values, job.model.vocab)
    return MegatronArguments(
        values=values,
        unread=tuple(others),
        world=job.world,
        devices_per_node=job.devices_per_node,
        environment=environment_of(job),
    )


def _taken(known: Sequence[str], others: list[str]) -> dict[str, Value]:
    """Return the values of carried words; the ones without a value, as `--lr $1`, go to the
    others."""
    values: dict[str, Value] = {}
    rest = list(known)
    while rest:
        one = [rest.pop(0), *take_values(rest, None)]
        try:
            values |= parse_values(one)
        except SpecError:
            others += one
    return values


def environment_of(job: TrainingJob) -> dict[str, str]:
    """Return the variables that a job needs set.

    With tensor or context parallelism the order of kernels on a stream of GPUs before Blackwell
    depends on one hardware queue; FSDP needs several. AMD's GPUs have variables of their own.
    """
    kernels, amd = job.settings.kernels, job.gpu_architecture.vendor == "AMD"
    found = rocm_variables(job, engine=True)
    for name, value in DETERMINISTIC.items() if kernels.deterministic else ():
        own, other = ON_ROCM.get(name, (name, value)) if amd else (name, value)
        found[own] = other
    sharded = job.settings.optimizer.divides
    if not sharded and job.tp * job.settings.cp > 1:
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if job.settings.offload.modules:
        # Otherwise Transformer Engine moves weights as well.
        found["NVTE_CPU_OFFLOAD_V1"] = "1"
    return found
