"""What `orbitmq cluster health` makes of the answers of brokers."""

from __future__ import annotations

from orbitmq.cli.cluster_health import Answer, GroupState, Health, Judge, Limits
from orbitmq.client.aio.admin.archives import BrokerArchives
from orbitmq.model.archives import Archive, ArchiveFigures
from orbitmq.model.routes import BrokerGroup
from orbitmq.protocol.requests.statistics import MasterLink, Replication, SlaveLink

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
MASTER, SLAVE = "127.0.0.1:10911", "127.0.0.1:10921"


def judged(master: Answer | None, slave: Answer) -> GroupState:
    answers = {SLAVE: slave} | ({MASTER: master} if master is not None else {})
    addresses = {1: SLAVE} | ({0: MASTER} if master is not None else {})
    judge = Judge(
        answers=answers, limits=Limits(lag_bytes=500, archive_ms=3_600_000), now_ms=NOW_MS
    )
    return judge.group(BrokerGroup(addresses=addresses, name="broker-a", cluster="c"), None)


def master(*slaves: SlaveLink, awaited: int = 0, is_master: bool = True) -> Answer:
    state = Replication(is_master=is_master, log_end=1000, slaves=list(slaves))
    return Answer("up", state, awaited)


def slave(end: int, *, address: str | None = "127.0.0.1:10912", last_read_ms: int = 0) -> Answer:
    link = MasterLink(address=address, end_offset=end, last_read_ms=last_read_ms)
    return Answer("up", Replication(master_link=link, log_end=end))


def texts(group: GroupState) -> list[str]:
    return [problem.text for problem in group.problems]


def test_a_slave_that_follows_closely_is_healthy() -> None:
    group = judged(master(SlaveLink(in_sync=True), awaited=1), slave(600))

    assert group.health is Health.HEALTHY
    assert [one.lag_bytes for one in group.brokers] == [None, 400]
    assert [one.follows for one in group.brokers] == [None, True]


def test_a_slave_that_lags_too_far_is_a_problem() -> None:
    group = judged(master(SlaveLink(in_sync=True)), slave(400))

    assert group.health is Health.DEGRADED
    assert texts(group) == [f"slave 1 at {SLAVE} lags by 600 bytes"]


def test_a_slave_of_rocketmq_whose_link_is_silent_does_not_follow() -> None:
    links = master(SlaveLink(in_sync=True))

    heard = judged(links, slave(1000, last_read_ms=NOW_MS - 5000))
    silent = judged(links, slave(1000, last_read_ms=NOW_MS - 90_000))

    assert heard.health is Health.HEALTHY
    assert texts(silent) == [f"slave 1 at {SLAVE} is not connected to its master: its log says why"]


def test_a_master_that_has_fewer_slaves_than_say_so_is_a_problem() -> None:
    group = judged(master(awaited=1), slave(1000))

    assert texts(group) == [
        "of 1 slave, 0 are connected to the master",
        "sends wait for 1 slave, and 0 are in sync",
    ]


def test_brokers_of_rocketmq_4_say_nothing_and_are_not_judged() -> None:
    group = judged(Answer("unknown"), Answer("unknown"))

    assert group.health is Health.HEALTHY
    assert [one.state for one in group.brokers] == ["unknown"] * 2


def test_a_group_without_a_master_is_down() -> None:
    advice = (
        "slaves serve its readers: start it, or make a slave the master: orbitmq broker promote "
        "broker-a"
    )
    for found, text in (
        (None, f"there is no master; {advice}"),
        (Answer("unreachable"), f"the master {MASTER} cannot be reached; {advice}"),
        (master(is_master=False), f"{MASTER} is registered as master, but is a slave"),
    ):
        group = judged(found, slave(1000))
        assert group.health is Health.DOWN
        assert texts(group) == [text]


def test_a_slave_that_cannot_be_reached_degrades_its_group() -> None:
    group = judged(master(), Answer("unreachable"))

    assert group.health is Health.DEGRADED
    assert texts(group) == [f"slave 1 at {SLAVE} cannot be reached"]


def archived(unknown: str = "", *, gates: bool = True, **left: int) -> GroupState:
    """A group whose master has one archive, opened five hours ago."""
    archive = Archive(
        name="lake", topic="orders", gates=gates, opened_ms=NOW_MS - 5 * HOUR_MS, advanced_ms=0
    )
    at = BrokerArchives(
        archives={"lake": archive}, figures={"lake": ArchiveFigures(**left)}, unknown=unknown
    )
    return judged(master(SlaveLink(in_sync=True))._replace(archives=at), slave(1000))


def test_an_archive_that_keeps_files_beyond_their_time_is_a_problem() -> None:
    group = archived(unarchived_messages=7, oldest_ms=NOW_MS, held_files=2)

    assert group.health is Health.DEGRADED
    (text,) = texts(group)
    assert text.startswith(
        "archive lake keeps 2 log files of all topics beyond their time: 7 messages of topic "
        "orders are not archived, the oldest of 20"
    )


def test_an_archive_that_stands_still_while_messages_wait_is_a_problem() -> None:
    old, new = NOW_MS - 2 * HOUR_MS, NOW_MS - HOUR_MS // 2

    (text,) = texts(archived(unarchived_messages=1, oldest_ms=old))
    assert text.startswith("archive lake has not advanced for 2 hours: 1 message of topic orders")
    assert texts(archived(unarchived_messages=1, oldest_ms=new)) == []
    assert texts(archived(unarchived_messages=1, oldest_ms=old, gates=False)) == []
    assert texts(archived()) == []


def test_a_master_that_does_not_list_its_archives_is_a_problem() -> None:
    busy = master(SlaveLink(in_sync=True))._replace(archives_failure="too many requests")

    group = judged(busy, slave(1000))

    assert texts(group) == ["the master does not list its archives: too many requests"]


def test_a_broker_that_keeps_everything_says_how_that_ends() -> None:
    (text,) = texts(archived("its table is gone"))

    assert "broker broker-a keeps every log file" in text
    assert "its table is gone" in text
    assert "orbitmq lake release --unknown --broker broker-a" in text
