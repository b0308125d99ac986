"""Every reader of files and texts from outside, with real examples of what it reads."""

import json
import pickle
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from ilp_planner.peers.aceso.source import OPERATOR_COLUMNS
from tests.alpa_cases import database, pickled
from tests.amp_cases import content
from tests.analysis.calibration.machines import lab
from tests.imported_cases import LINES, SMALLEST, nested
from tests.sailor_cases import small_files as sailor_files
from tests.sailor_cases import write_files, write_quotas
from tests.specs.hugging_face.published import PUBLISHED

ROOT = Path(__file__).parents[2]
SAVED = ROOT / "tests" / "formats" / "saved"
FLAGS = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 "
    "--max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8 "
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-experts 8 "
    "--moe-layer-freq ([0]*1+[1]*3) --pipeline-model-parallel-layout Et*2|t*2L --bf16"
)
SCRIPT = f"""#!/bin/bash
export N=${{N:-2}}
ARGS=({FLAGS.replace("(", "'(").replace(")", ")'").replace("|", "'|'")})
for i in 1 2; do if [ $i -eq $N ]; then X=$((i * 4)); fi; done
case "$X" in 8|16) W=$X ;; *) W=8 ;; esac
torchrun --nproc-per-node $W pretrain_gpt.py "${{ARGS[@]}}"
"""
TABLE = """# ilp-plan profile, version 1
# gpu: A100
record,layers,device,tp,micro_batch,time_s,forward_s,backward_s,name,split,group_size,bytes
layer,0-3,A100,1,1,0.01,,,,,,
layer,0-3,A100,2,2,0.012,,,,,,
operator,,A100,1,1,,0.001,0.002,mlp,0,,
collective,,A100,,,0.002,,,all-reduce,,4,1048576
point_to_point,,A100,,,0.003,,,,,,1048576
"""
RUN = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --bf16 "
    "--max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8 "
    "--tensor-model-parallel-size 2 --vocab-size 1000"
)
RUNS = f"""run,seconds,gpus,name,weight
"{RUN}",1.5,8,first,1
{RUN} --pipeline-model-parallel-size 2,2.5,8,second,2
"""
HOSTS = "node1 slots=8\nnode2 slots=8  # comment\nnode3 4\n"
ACESO = {
    "gpt_tiny_mbs1_tp1_algo0.csv": f"{','.join(OPERATOR_COLUMNS)}\n"
    "enc-MLP-gelu,100.5,200.25,8,16.5,4,12,1,2\npost,50,60,4,8,2,6,1,2\n",
    "prim_gpt_tiny_all_reduce_2gpus.csv": "data_size(MB),time(ms)\n8,1.5\n64,10\n",
    "p2p_intra_node.csv": "1,2,4\n10, 20,40.5\n",
}
CONFIGURED = ("nanotron", "gpt-neox", "nemo")
YAML = """# nanotron
model: {model_config: &m {hidden_size: 64, num_attention_heads: 4, num_hidden_layers: 4}}
parallelism:
  dp: 8
  tp: 1
  pp: 1
tokens: {micro_batch_size: 1, sequence_length: 64, batch_accumulation_per_replica: 2}
again: *m
"""
LAYOUTS = (b"Et*2|(t*2|)*3mL", b"E|t*4|(tt|)*2,t*3|L", b"Ettt|ttmL")


LOG = """  tensor_model_parallel_size ............... 8
 [2026-03-01 12:00:01] iteration        1/     500 | consumed samples: 64 | elapsed time per iteration (ms): 998.1 | global batch size:    64 |
(min, max) time across ranks (ms):
    forward-compute ................................: (100.25, 120.50)
 [2026-03-01 12:00:02] iteration        2/     500 | consumed samples: 128 | elapsed time per iteration (ms): 999.1 | global batch size:    64 |
"""  # noqa: E501
STEPS = "Step,run - step_time,run - tps\n1,0.5,1000\n2,0.75,900\n3,0.5,1000\n"
MLLOG = "".join(
    f':::MLLOG {{"time_ms": {1000 * n}, "key": "{key}", "value": {value}, '
    f'"metadata": {{"samples_count": {8 * n}}}}}\n'
    for n, (key, value) in enumerate([("global_batch_size", 8), *[("train_loss", 1.5)] * 4])
)
TRACE = json.dumps(
    {
        "traceEvents": [
            {"ph": "X", "cat": "kernel", "name": "ncclAllReduce", "ts": 5, "dur": 2.5,
             "args": {"correlation": 7, "Group size": 4, "In msg nelems": 64, "dtype": "Float"}},
            {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 1, "dur": 9},
            {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "ts": 10, "dur": 9},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 2, "dur": 1,
             "args": {"correlation": 7}},
        ]
    }
)  # fmt: skip
SNAPSHOT = {
    "segments": [{"device": 0, "total_size": 64, "blocks": [{"size": 64, "state": "inactive"}]}],
    "device_traces": [[{"action": "segment_alloc"}]],
}


def _logs() -> list[bytes]:
    state = {"log_history": [{"step": 9, "loss": 1.5}, {"step": 9, "train_runtime": 30.5}]}
    golden = {"iteration-time": {"start_step": 1, "values": {"1": 5.5, "5": 0.5}}}
    lines = [json.dumps({"_step": n, "train": {"step_time": 0.5}}) for n in range(3)]
    written = [LOG, STEPS, MLLOG, TRACE, json.dumps(state), json.dumps(golden), "\n".join(lines)]
    return [*map(str.encode, written), json.dumps(SNAPSHOT).encode(), pickle.dumps(SNAPSHOT)]


def _log(path: Path) -> object:
    from ilp_planner.analysis.doctor.statistics import steps_of
    from ilp_planner.formats.logs.base import RunLog
    from ilp_planner.formats.logs.metrics import printed_job
    from ilp_planner.formats.logs.read import read_log

    found = read_log(path)
    return (steps_of(found), printed_job(found)) if isinstance(found, RunLog) else found


class Reader(NamedTuple):
    """seeds: what it takes. read: of a file with a content. what: that it accepts, in words."""

    seeds: Callable[[], list[bytes]]
    read: Callable[[Path], object]
    what: str


def files(*patterns: str) -> Callable[[], list[bytes]]:
    """Return the contents of files of the repository."""
    return lambda: [p.read_bytes() for pattern in patterns for p in sorted(ROOT.glob(pattern))]


def texts(*contents: str) -> Callable[[], list[bytes]]:
    return lambda: [content.encode() for content in contents]


def _model(path: Path) -> object:
    from ilp_planner.specs.model_reader import read_model

    return read_model(path).architecture.parameters


def _cluster(path: Path) -> object:
    from ilp_planner.specs.cluster_reader import read_cluster

    return read_cluster(path).node_types


def _saved(path: Path) -> object:
    from ilp_planner.formats.saved_json import read_saved

    return read_saved(path)


def _alpa(path: Path) -> object:
    from ilp_planner.peers.alpa.profile import alpa_series

    return list(alpa_series(path))


def _amp(path: Path) -> object:
    from ilp_planner.peers.amp.profile import read_amp

    return read_amp(path, "pair")


def _table(path: Path) -> object:
    from ilp_planner.costs.profiles.measurements import read_measurements

    return read_measurements(path)


def _metis(path: Path) -> object:
    from ilp_planner.peers.metis.files import read_metis_profile

    path.rename(path.parent / "DeviceType.A100_tp1_bs1.json")
    return read_metis_profile(path.parent)


def _hosts(path: Path) -> object:
    from ilp_planner.specs.hostfile import read_hostfile

    return read_hostfile(path)


def _clusterfile(path: Path) -> object:
    from ilp_planner.peers.metis.cluster import metis_cluster_spec, read_metis_cluster

    return metis_cluster_spec(read_metis_cluster(SAVED / "hostfile", path))


def _configurations() -> list[bytes]:
    found = [json.dumps(nested(SMALLEST[name])) for name in CONFIGURED]
    toml = 'model = {name = "llama3", flavor = "8B"}\n[job]\na = 1\n[training]\nseq_len = 64\n'
    python = (
        "def run() -> Trainer.Config:\n"
        "    config = Trainer.Config(model_spec=model_registry('8B'))\n"
        "    config.training = TrainingConfig(seq_len=2 * 64)\n    for x in config.y(A.Config):\n"
        "        x.a = 1\n    return config\n"
    )
    return [text.encode() for text in (*found, YAML, toml, python)]


def _configuration(path: Path) -> object:
    from ilp_planner.formats.imports import read, recognise_file
    from ilp_planner.formats.megatron.arguments import job_of_arguments

    found = recognise_file(path)
    return None if found is None else job_of_arguments(read(found, 8))


def _line(path: Path) -> object:
    from ilp_planner.formats.megatron.arguments import job_of_arguments
    from ilp_planner.formats.megatron.script import read_line

    text = path.read_text(encoding="utf-8", errors="replace")
    return job_of_arguments(read_line(text, 8))


def _layout(path: Path) -> object:
    from ilp_planner.specs.pipeline_layout import read_layout

    return str(read_layout(path.read_text(encoding="utf-8", errors="replace")))


def _flags(path: Path) -> object:
    from ilp_planner.formats.megatron.arguments import read_arguments

    return read_arguments(path.read_text(encoding="utf-8", errors="replace"))


def _script(path: Path) -> object:
    from ilp_planner.formats.megatron.script import read_script

    return read_script(path, environment={}, strict=False)


def _runs(path: Path) -> object:
    from ilp_planner.analysis.calibration.runs import read_runs

    return read_runs(path, lab())


def _sailor(name: str, path: Path) -> object:
    """Read Sailor's files where one of them has a content."""
    from ilp_planner.peers.sailor.cluster import sailor_cluster
    from ilp_planner.peers.sailor.profile import read_sailor_profile

    folder = write_files(path.parent / "sailor", sailor_files())
    quotas = write_quotas(path.parent / "quotas.json", a100=8, v100=4)
    path.replace(quotas if name == quotas.name else folder / name)
    return sailor_cluster(folder, quotas, read_sailor_profile(folder, "small"))


def _sailor_reader(name: str, what: str) -> Reader:
    def seeds() -> list[bytes]:
        if name in sailor_files():
            return [json.dumps(sailor_files()[name]).encode()]
        with tempfile.TemporaryDirectory() as at:
            return [write_quotas(Path(at) / name, a100=8, v100=4).read_bytes()]

    return Reader(seeds, partial(_sailor, name), what)


def _aceso(name: str, path: Path) -> object:
    """Read Aceso's database where one of its files has a content."""
    from ilp_planner.peers.aceso.source import read_aceso_profile

    folder = path.parent / "db"
    folder.mkdir()
    for known, text in ACESO.items():
        (folder / known).write_text(text)
    path.replace(folder / name)
    return read_aceso_profile(folder, "gpt_tiny", devices_per_node=2)


def _aceso_reader(name: str, what: str) -> Reader:
    return Reader(texts(ACESO[name]), partial(_aceso, name), what)


def _scripts() -> list[bytes]:
    everyday = (ROOT / "tests/formats/launch_scripts/everyday.txt").read_text(encoding="utf-8")
    parts = [part.partition("\n")[2] for part in everyday.split("==== ")[1:]]
    pod = write_pod("run.sh", SCRIPT).encode()
    return [SCRIPT.encode(), pod, *(f"{part}{SCRIPT}".encode() for part in parts)]


def write_pod(name: str, text: str) -> str:
    """Return a job of Kubernetes that runs a script which it holds."""
    mounts = [{"name": "v", "mountPath": "/f"}]
    container = {"command": ["bash", f"/f/{name}"], "volumeMounts": mounts}
    pod = {"containers": [container], "volumes": [{"name": "v", "configMap": {"name": "c"}}]}
    held = {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {name: text}}
    items = [held, {"kind": "Job", "spec": pod}]
    return f"apiVersion: v1\nkind: List\nitems: {json.dumps(items)}\n"


def _configs() -> list[bytes]:
    return [json.dumps(values).encode() for values, _ in PUBLISHED.values()]


def _job(path: Path) -> object:
    from ilp_planner.formats.captured.reader import read_any_launch

    return read_any_launch(path, strict=False)


def _jobs() -> list[bytes]:
    from ilp_planner.formats.captured.job_file import CapturedJob, Launch, job_object

    lines = (FLAGS, f"torchrun --nproc_per_node 8 pretrain_gpt.py {FLAGS}")
    launches = [Launch(words=tuple(line.split()), folder="/w") for line in lines]
    launches.append(
        Launch(words=("mpirun", "--hostfile", "h", *launches[1].words[3:]), folder="/w")
    )
    files = {"/w/h": HOSTS, "/w/ds.json": "{}"}
    jobs = [
        CapturedJob(command=("bash",), folder="/w", launches=(one,), launch=1, files=files)
        for one in launches
    ]
    return [json.dumps(job_object(job)).encode() for job in jobs]


def _tuning(path: Path) -> object:
    """Go on with a tuning whose journal has a content."""
    from contextlib import closing

    from ilp_planner.faces.tuning.session import Asked, Session

    problem, target = tuned()
    path.rename(path.parent / "journal.jsonl")
    asked = Asked(problem=problem, target=target, system="megatron", folder=path.parent)
    with closing(Session(asked, 0.1, 1.0, None)) as session:
        return session.pending, session.spent


def _tunings() -> list[bytes]:
    from ilp_planner.formats.plan_json import encode_plan
    from ilp_planner.formats.saved_json import read_saved

    plan = encode_plan(read_saved(TUNED).plan)
    same = {"values": {}, "plan": plan, "expected_s": 1.5, "why": "", "wall_s": 9.5}
    rows = [
        {"status": "measured", "seconds": 1.25, "noise": 0.01, "steps": 20},
        {"status": "out of memory", "why": "out of memory", "wall_s": None},
        {"status": "begun", "process": 2**22, "process_begun": "1234"},
    ]
    text = '{"tuning": 1, "about": {}}\n'
    for number, row in enumerate(rows, 1):
        names = {"key": str(number), "log": f"{number:02}.log", "script": f"run{number:02}.sh"}
        text += json.dumps(names | same | row) + "\n"
    return [text.encode()]


TUNED = SAVED / "megatron-v4.json"


@cache
def tuned() -> tuple[Any, Any]:
    """Return a problem whose plans are tuned, and the target of their scripts."""
    from ilp_planner.formats.exports import Target
    from ilp_planner.formats.saved_json import read_saved
    from ilp_planner.formats.saved_problem import problem_of

    saved = read_saved(TUNED)
    problem = problem_of(saved, TUNED, accept_changed=True)
    return problem, Target(saved.inputs.files["model"], problem.cluster)


def _sweep(path: Path) -> object:
    """Go on with a sweep whose journal has a content, and write its table."""
    from contextlib import closing

    from ilp_planner.faces.sweeps.journal import Journal
    from ilp_planner.faces.sweeps.shown import sweep_lines
    from ilp_planner.faces.sweeps.sweep import JOURNAL
    from ilp_planner.faces.sweeps.table import Wish, check_row, frame_of, rows_of

    sweep = swept()
    with closing(Journal(path, {}, JOURNAL)) as journal:
        for row in journal.read():
            check_row(row)
        rows = rows_of(sweep, journal.latest(), Wish(objectives=("time", "price"), tokens=1e9))
        return frame_of(sweep, rows), sweep_lines(sweep, rows, Wish(), None)


@cache
def swept() -> Any:
    """Return a sweep of six points."""
    from tests.faces.sweeps.cases import sweep_of

    return sweep_of(gpus="8,16xH100", global_batch=[64, 128, 256])


def _sweeps() -> list[bytes]:
    from ilp_planner.faces.sweeps.journal import Journal
    from ilp_planner.faces.sweeps.sweep import JOURNAL, Run
    from tests.faces.sweeps.cases import AtOnce

    with tempfile.TemporaryDirectory() as at:
        journal = Journal(Path(at) / "j", {}, JOURNAL)
        Run(swept(), AtOnce(), journal, lambda done, what: None).finish()
        journal.close()
        return [(Path(at) / "j").read_bytes()]


def _amp_content() -> list[bytes]:
    return [json.dumps(content()).encode()]


READERS = {
    "model": Reader(files("models/*.toml"), _model, "models in TOML"),
    "config": Reader(_configs, _model, "Hugging Face's `config.json`"),
    "cluster": Reader(files("clusters/*.toml"), _cluster, "clusters in TOML"),
    "plan": Reader(files("tests/formats/saved/*-v*.json"), _saved, "saved plans"),
    "table": Reader(texts(TABLE), _table, "native tables in CSV"),
    "log": Reader(_logs, _log, "logs, traces and memory snapshots of runs"),
    "alpa": Reader(
        lambda: [pickled(database(), p) for p in (0, 2, 4)], _alpa, "Alpa's pickles"
    ),
    "amp": Reader(_amp_content, _amp, "AMP's profiles"),
    "metis": Reader(files("tests/formats/saved/metis/*.json"), _metis, "Metis's profiles"),
    "hostfile": Reader(texts(HOSTS), _hosts, "hostfiles"),
    "clusterfile": Reader(
        files("tests/formats/saved/clusterfile.json"), _clusterfile, "Metis's clusterfiles"
    ),
    "layout": Reader(lambda: list(LAYOUTS), _layout, "pipeline layouts"),
    "flags": Reader(texts(FLAGS), _flags, "Megatron-LM's arguments"),
    "script": Reader(_scripts, _script, "launch scripts"),
    "configuration": Reader(_configurations, _configuration, "configurations of other systems"),
    "line": Reader(texts(*LINES.values()), _line, "launch lines of other systems"),
    "runs": Reader(texts(RUNS), _runs, "tables of runs"),
    "sailor times": _sailor_reader("profiles_tmp.json", "Sailor's times"),
    "sailor sizes": _sailor_reader("llm_info.json", "Sailor's sizes"),
    "sailor machines": _sailor_reader("basic_cluster_config.json", "Sailor's machines"),
    "sailor links": _sailor_reader("multizone_bandwidths_het.json", "Sailor's links"),
    "sailor inside": _sailor_reader("intra_node_bandwidths.json", "Sailor's links in machines"),
    "sailor quotas": _sailor_reader("quotas.json", "Sailor's quotas"),
    "aceso operators": _aceso_reader("gpt_tiny_mbs1_tp1_algo0.csv", "Aceso's operators"),
    "aceso collective": _aceso_reader("prim_gpt_tiny_all_reduce_2gpus.csv", "Aceso's collectives"),
    "aceso links": _aceso_reader("p2p_intra_node.csv", "Aceso's links"),
    "job": Reader(_jobs, _job, "captured jobs"),
    "tuning": Reader(_tunings, _tuning, "journals of tunings"),
    "sweep": Reader(_sweeps, _sweep, "journals of sweeps"),
}  # fmt: skip


@cache
def seeds(name: str) -> list[bytes]:
    """Return the examples of a reader; at least one."""
    found = READERS[name].seeds()
    assert found, f"{name}: no example"
    return found


def run(name: str, data: bytes) -> str:
    """Read an input: `read`, `refused`, or what is wrong with how it was refused."""
    from ilp_planner.base.errors import PlannerError

    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as at:
        path = Path(at) / ("x.json" if data[:1] == b"{" else "x.txt")
        path.write_bytes(data)
        try:
            READERS[name].read(path)
        except PlannerError as error:
            return "an empty message" if not str(error).strip() else "refused"
        except MemoryError:
            return "out of memory"
        except TimeoutError:
            raise
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:200]}"
    return "read"
