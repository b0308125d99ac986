"""One kind of message of a training job, as a row of a table."""

from dataclasses import dataclass

from ilp_planner.job.groups import group_size, kind_link
from ilp_planner.specs.training import TrainingJob

FAMILIES = ("tensor", "context", "expert", "pipeline", "data")
EMBEDDING = "embedding"  # the kind of group of first and last stage
FAMILY = {
    **{"tp": "tensor", "cp": "context", "dp-cp": "data", "edp": "data"},
    **dict.fromkeys(("ep", "etp", "etp-ep"), "expert"),
    **dict.fromkeys(("pp", EMBEDDING), "pipeline"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """One kind of message of the GPUs of some pipeline stages.

    family: one of `FAMILIES`. what: for people. collective: as in `Message`. group: the kind of
    group, for `job.groups`; part: of replicas, the group of them, likewise. stages: pipeline
    ranks with GPUs that take part so. gpus: of all these stages. size: bytes of one message: of the
    whole tensor that is reduced or gathered, of one GPU's exchange or send. members: of one group.
    per_micro_batch, per_iteration: messages of one GPU, all virtual stages together;
    per_micro_batch is 0 for messages once per iteration. received: the GPU only receives it;
    another row, of its sender, counts it for the cluster. link: inside a node, between nodes, or
    both.
    """

    family: str
    what: str
    collective: str
    group: str
    stages: tuple[int, ...]
    gpus: int
    size: float
    members: int
    per_micro_batch: int
    per_iteration: int
    link: str
    received: bool = False
    part: str = ""

    @property
    def groups(self) -> int:
        """Groups of these GPUs; a pipeline stage hands on in pairs, one for each GPU."""
        return self.gpus if self.group == "pp" else self.gpus // self.members

    @property
    def sent(self) -> float:
        """Bytes that one GPU sends per message, by the ring or pairwise algorithm."""
        if self.received:
            return 0.0
        return self.size * sent_share(self.collective, self.members)

    @property
    def volume_per_micro_batch(self) -> float:
        """Bytes of one GPU's messages per micro-batch."""
        return self.size * self.per_micro_batch

    @property
    def volume_per_iteration(self) -> float:
        """Bytes of one GPU's messages per iteration."""
        return self.size * self.per_iteration

    @property
    def sent_per_iteration(self) -> float:
        """Bytes that one GPU sends per iteration."""
        return self.sent * self.per_iteration

    @property
    def cluster_messages(self) -> int:
        """Messages per iteration, summed over GPUs; received ones not again."""
        return 0 if self.received else self.gpus * self.per_iteration

    @property
    def cluster_volume(self) -> float:
        """Bytes per iteration, summed likewise."""
        return self.size * self.cluster_messages

    @property
    def cluster_sent(self) -> float:
        """Bytes per iteration that all GPUs of these stages send."""
        return self.sent * self.cluster_messages


def sent_share(collective: str, members: int) -> float:
    """Return one member's sent share of a message's size.

    Ring algorithms (Thakur et al. 2005, "Optimization of collective communication operations in
    MPICH"): a gather or a reduce-scatter moves all parts but one's own, an all-reduce is both.
    """
    if members < 2:
        return 0.0
    if collective == "send_recv":
        return 1.0
    share = (members - 1) / members
    return 2 * share if collective == "all_reduce" else share


def row_of(
    job: TrainingJob,
    pp_rank: int,
    what: str,
    collective: str,
    group: str,
    size: float,
    times: tuple[int, int],
    *,
    link: str = "",
    received: bool = False,
    part: str = "",
) -> Traffic:
    """Return one kind of message of a stage. times: per micro-batch and per iteration. link: of
    the pairs of two stages. part: of the replicas."""
    return Traffic(
        family=FAMILY[group],
        what=what,
        collective=collective,
        group=group,
        stages=(pp_rank,),
        gpus=job.world // job.pp,
        size=size,
        members=2 if link else group_size(job, group, part),
        per_micro_batch=times[0],
        per_iteration=times[1],
        link=link or kind_link(job, group, pp_rank, part),
        received=received,
        part=part,
    )
