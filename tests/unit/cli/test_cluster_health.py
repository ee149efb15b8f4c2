"""What `orbitmq cluster health` makes of the answers of brokers."""

from __future__ import annotations

from orbitmq.cli.cluster_health import Answer, GroupState, Health, Judge
from orbitmq.model.routes import BrokerGroup
from orbitmq.protocol.requests.statistics import MasterLink, Replication, SlaveLink

NOW_MS = 1_700_000_000_000
MASTER, SLAVE = "127.0.0.1:10911", "127.0.0.1:10921"


def judged(master: Answer | None, slave: Answer) -> GroupState:
    answers = {SLAVE: slave} | ({MASTER: master} if master is not None else {})
    addresses = {1: SLAVE} | ({0: MASTER} if master is not None else {})
    judge = Judge(answers=answers, lag_bytes_max=500, now_ms=NOW_MS)
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
