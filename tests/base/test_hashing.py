"""Hashes that are kept: those of equal values are equal, and none travels to another process."""

import copy
import pickle
import subprocess
import sys
from dataclasses import replace

from hypothesis import given

from ilp_planner.base.hashing import HashedOnce, Same
from ilp_planner.specs.lengths import Lengths
from ilp_planner.specs.training import TrainingJob
from tests.training_jobs import jobs, llama

TELL = """
import pickle, sys
job = pickle.loads(sys.stdin.buffer.read())
assert {job: 1}[pickle.loads(pickle.dumps(job))] == 1
fresh = type(job.settings)(**{n: getattr(job.settings, n) for n in job.settings.__slots__})
assert hash(fresh) == hash(job.settings)
own = job.model.lengths; fields = ("lengths", "counts", "batching")
assert hash(type(own)(**{n: getattr(own, n) for n in fields})) == hash(own)
"""


@given(jobs())
def test_equal_jobs_have_equal_hashes(job: TrainingJob) -> None:
    assert isinstance(job, HashedOnce)
    other = replace(job, settings=replace(job.settings))
    assert hash(job) == hash(job) == hash(other) == hash(copy.copy(job))
    changed = replace(job, global_batch=2 * job.global_batch)
    assert hash(changed) == hash(replace(other, global_batch=changed.global_batch))
    assert changed != job


@given(jobs())
def test_pickles_are_without(job: TrainingJob) -> None:
    hash(job)
    for one in (job, job.settings, job.model, job.layout):
        assert not hasattr(pickle.loads(pickle.dumps(one)), "_hash")


def test_another_process_counts_its_own() -> None:
    lengths = Lengths(lengths=(64, 512), counts=(3, 1))
    job = TrainingJob(model=llama(lengths=lengths), micro_batch=1, global_batch=2)
    hash(job)
    subprocess.run([sys.executable, "-c", TELL], input=pickle.dumps(job), check=True)


def test_a_key_of_an_object_equals_no_key_of_one_that_is_alike() -> None:
    first, alike = [1], [1]
    assert Same(first) == Same(first)
    assert hash(Same(first)) == hash(Same(first))
    assert Same(first) != Same(alike)
    assert Same(first) != first
