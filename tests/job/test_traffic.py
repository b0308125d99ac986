"""What rows of messages add up to."""

from dataclasses import replace

from ilp_planner.job.modules import Message
from ilp_planner.job.traffic import Traffic, row_of, sent_share
from tests.examples import for_each
from tests.training_jobs import job


def test_a_row_of_messages_in_bytes_and_groups() -> None:
    """Of 16 GPUs in groups of four: 3 messages of 100 bytes with every one of 5 micro-batches."""
    row = Traffic(
        family="tensor", what="w", collective="all_reduce", group="tp", stages=(0, 1), gpus=16,
        size=100, members=4, per_micro_batch=3, per_iteration=15, link="inside a node",
    )  # fmt: skip
    assert (row.groups, row.sent) == (4, 150)
    assert (row.volume_per_micro_batch, row.volume_per_iteration) == (300, 1500)
    assert (row.sent_per_iteration, row.cluster_messages) == (15 * 150, 16 * 15)
    assert (row.cluster_volume, row.cluster_sent) == (100 * 240, 150 * 240)
    handed = replace(row, collective="send_recv", group="pp", members=2)
    assert (handed.groups, handed.sent) == (16, 100)
    taken = replace(handed, received=True)
    assert (taken.sent, taken.cluster_messages, taken.cluster_volume) == (0, 0, 0)
    assert taken.volume_per_iteration == 1500


@for_each(
    ("collective", "members", "share"),
    [
        ("all_reduce", 1, 0),
        ("send_recv", 1, 0),
        ("send_recv", 2, 1),
        ("all_reduce", 2, 1),
        ("all_reduce", 4, 1.5),
        ("all_gather", 4, 0.75),
        ("all_to_all", 2, 0.5),
    ],
)
def test_a_member_of_a_group_sends_a_share(collective: str, members: int, share: float) -> None:
    assert sent_share(collective, members) == share


def test_a_row_is_of_one_stage_s_gpus() -> None:
    """Two ranks of tensor parallelism and two replicas; pairs where it is between two stages."""
    found = row_of(job(), 3, "w", "all_reduce", "tp", 8.0, (2, 7))
    assert (found.stages, found.gpus, found.members) == ((3,), 4, 2)
    assert (found.per_micro_batch, found.per_iteration, found.received) == (2, 7, False)
    alone = row_of(job(tp=1), 0, "w", "all_reduce", "tp", 8.0, (2, 7))
    assert alone.members == 1
    handed = row_of(job(tp=1), 0, "w", "send_recv", "pp", 8.0, (1, 1), link="x", received=True)
    assert (handed.members, handed.link, handed.received) == (2, "x", True)


def test_a_message_is_sent_once_whole_where_nothing_else_is_said() -> None:
    message = Message(group="tp", collective="all_reduce", shape=(2, 3), width=4)
    assert (message.size, message.times, message.once) == (24, 1, 1.0)
