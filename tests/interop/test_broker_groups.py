"""A master and two slaves at name servers of both official lines and at ours: what each answers.

In most tests the brokers report over the wire by hand, so that every name server is told exactly
the same; in the last one they are official brokers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.interop import wire
from tests.interop.building import LINES
from tests.interop.official import CLUSTER, OfficialBroker, OfficialNameServer
from tests.interop.ours import OrbitNameServer
from tests.interop.peers import BROKERS, OUR_LINE, NameServer, Peer
from tests.interop.timeouts import REGISTER_TIMEOUT_S, START_TIMEOUT_S
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

V4, V5 = LINES
NOTICED_S = 30
TOPIC = "orders"
# Of a 5.x broker: 4.9 has no such field.
WITHOUT_ACTING = {"enableActingMaster": "false"}
WITH_ACTING = {"enableActingMaster": "true"}
# What name servers of 4.9 do not know.
SINCE_V5 = {"enableActingMaster", "topicQueueMappingByBroker"}


class Member:
    """One broker of the group, as one name server knows it: its connection, and what it reports."""

    def __init__(self, name_server: str, name: str, broker_id: int, **fields: str) -> None:
        self._name = name
        self._conversation = wire.Conversation(name_server)
        self._id = broker_id
        self._fields = fields
        self.address = f"10.0.0.{broker_id + 1}:10911"

    def register(self, *, epoch: int = 0, version: int = 1, permission: int = 6) -> wire.Answer:
        topics = {
            topic: {
                "topicName": topic,
                "readQueueNums": 4,
                "writeQueueNums": 4,
                "perm": permission,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": False,
            }
            for topic in (TOPIC, "other")
        }
        data_version = {"counter": version, "stateVersion": epoch, "timestamp": 1}
        body = {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": data_version,
                "topicConfigTable": topics,
            },
        }
        return self._conversation.ask(
            wire.REGISTER_BROKER,
            {**self._identity(), "haServerAddr": f"{self.address}-ha", **self._fields},
            json.dumps(body).encode(),
        )

    def become(self, broker_id: int) -> None:
        """Report under another id from now on, at the same address."""
        self._id = broker_id

    def unregister(self) -> wire.Answer:
        return self._conversation.ask(wire.UNREGISTER_BROKER, self._identity())

    def die(self) -> None:
        self._conversation.close()

    def _identity(self) -> dict[str, str]:
        return {
            "brokerName": self._name,
            "brokerAddr": self.address,
            "clusterName": CLUSTER,
            "brokerId": str(self._id),
        }


class Group:
    """A master and two slaves that report to one name server."""

    def __init__(self, name_server: str, name: str, **fields: str) -> None:
        self.name_server = name_server
        self._name = name
        self._fields = fields
        self.members = {number: self._member(number) for number in range(3)}

    def _member(self, broker_id: int) -> Member:
        return Member(self.name_server, self._name, broker_id, **self._fields)

    def kill(self, broker_id: int) -> None:
        """Close a member's connection, and return once the name server noticed."""
        self.members[broker_id].die()
        wait_until(
            lambda: self.members[broker_id].address not in self.addresses(),
            timeout_s=NOTICED_S,
            what=f"broker {broker_id} gone at {self.name_server}",
        )

    def unregister(self, broker_id: int) -> int:
        """Unregister a member; official 5.x name servers do it after their reply."""
        code = self.members[broker_id].unregister().code
        wait_until(
            lambda: self.members[broker_id].address not in self.addresses(),
            timeout_s=NOTICED_S,
            what=f"broker {broker_id} unregistered at {self.name_server}",
        )
        return code

    def restart(self, broker_id: int) -> Member:
        """Connect a member again."""
        self.members[broker_id].die()
        self.members[broker_id] = self._member(broker_id)
        return self.members[broker_id]

    def addresses(self) -> list[str]:
        brokers = wire.ask(self.name_server, wire.GET_CLUSTERS).body["brokerAddrTable"]
        return list(brokers[self._name]["brokerAddrs"].values()) if brokers else []

    def close(self) -> None:
        """End every member, and return once the name server forgot the group."""
        for member in self.members.values():
            member.die()
        wait_until(lambda: not self.addresses(), timeout_s=NOTICED_S, what="the group is gone")

    def shown(self) -> dict[str, Any]:
        """What clients see: the route of a topic, and the cluster."""
        route = wire.ask(self.name_server, wire.GET_ROUTE, {"topic": TOPIC})
        clusters = wire.ask(self.name_server, wire.GET_CLUSTERS)
        return {"route": (route.code, route.body), "clusters": (clusters.code, clusters.body)}

    def told_members(self) -> Any:
        """What brokers see of their group; 4.9 does not know the request."""
        asked = {"clusterName": CLUSTER, "brokerName": self._name}
        answer = wire.ask(self.name_server, wire.GET_BROKER_GROUP, asked)
        return answer.code, answer.body


@pytest.fixture(scope="module")
def servers(new_folder: Callable[[str], Path]) -> Iterator[dict[str, NameServer]]:
    """A name server of each line, and ours."""
    made: dict[str, NameServer] = {
        line: OfficialNameServer(line, new_folder(f"name server {line}")) for line in LINES
    }
    made[OUR_LINE] = OrbitNameServer(new_folder("our name server"))
    try:
        for server in made.values():
            server.process.start()
        for server in made.values():
            server.wait_ready()
        yield made
    finally:
        for server in made.values():
            server.process.kill()


@pytest.fixture
def start_groups(
    servers: dict[str, NameServer], new_topic: str
) -> Iterator[Callable[..., dict[str, Group]]]:
    """Connects the same group to each name server, under a name that no other test uses."""
    name = f"group-of-{new_topic}"
    with ExitStack() as started:

        def start(
            *, lines: tuple[str, ...] = (V4, V5, OUR_LINE), **fields: str
        ) -> dict[str, Group]:
            groups = {line: Group(servers[line].address, name, **fields) for line in lines}
            for group in groups.values():
                started.callback(group.close)
            return groups

        yield start


def without_news(content: Any) -> Any:
    """Leave out what name servers of 4.9 do not know."""
    if isinstance(content, dict):
        return {name: without_news(one) for name, one in content.items() if name not in SINCE_V5}
    if isinstance(content, list | tuple):
        return [without_news(one) for one in content]
    return content


def assert_alike(groups: dict[str, Group], *, when: str) -> None:
    """Compare what all name servers show of their group."""
    ours = groups[OUR_LINE]
    if V5 in groups:
        assert ours.shown() == groups[V5].shown(), when
        assert ours.told_members() == groups[V5].told_members(), when
    if V4 in groups:
        assert without_news(ours.shown()) == without_news(groups[V4].shown()), when


def register_all(groups: dict[str, Group], broker_id: int, **report: int) -> dict[str, str]:
    """Register a member everywhere; returns the fields of the answer, which are the same."""
    answers = {line: group.members[broker_id].register(**report) for line, group in groups.items()}
    assert {answer.code for answer in answers.values()} == {wire.SUCCESS}, answers
    told = [answer.fields for answer in answers.values()]
    assert told.count(told[0]) == len(told), answers
    return told[0]


# Where slaves of 5.x report their topics once their master is gone, 4.9 shows the master's.
FORMS = [
    pytest.param({}, id="4.9 brokers"),
    pytest.param(WITHOUT_ACTING, id="5.x brokers"),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_group_looks_alike_while_its_members_come_and_go(
    start_groups: Callable[..., dict[str, Group]], form: dict[str, str]
) -> None:
    groups = start_groups(**form)
    master = {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10911-ha"}

    # A slave before its master: nobody to copy from yet.
    assert register_all(groups, 1) == {}
    assert register_all(groups, 0) == {}
    assert_alike(groups, when="one slave came before its master")
    assert register_all(groups, 1) == master
    assert register_all(groups, 2) == master
    assert_alike(groups, when="all are there")

    assert {group.unregister(1) for group in groups.values()} == {wire.SUCCESS}
    assert_alike(groups, when="a slave unregistered")
    assert register_all(groups, 1) == master
    assert_alike(groups, when="the slave is back")

    for group in groups.values():
        group.kill(0)
    assert_alike(groups, when="the master died")
    (code, route) = groups[OUR_LINE].shown()["route"]
    assert code == wire.SUCCESS
    assert route["brokerDatas"][0]["brokerAddrs"] == {
        "1": "10.0.0.2:10911",
        "2": "10.0.0.3:10911",
    }
    assert route["queueDatas"][0]["perm"] == wire.READ_WRITE
    assert register_all(groups, 1) == {}
    assert_alike(groups, when="a slave reports after the master died")

    for group in groups.values():
        group.kill(2)
    assert_alike(groups, when="a slave died, too")
    for group in groups.values():
        group.restart(0)
        group.restart(2)
    assert register_all(groups, 0, version=2) == {}
    assert register_all(groups, 1) == master
    assert register_all(groups, 2) == master
    assert_alike(groups, when="all are back")

    for group in groups.values():
        group.close()
    assert_alike(groups, when="all died")


def test_a_lone_slave_of_5_x_defines_its_topics_as_in_5_5(
    start_groups: Callable[..., dict[str, Group]],
) -> None:
    groups = start_groups(lines=(V5, OUR_LINE), **WITHOUT_ACTING)

    register_all(groups, 2)
    assert_alike(groups, when="one slave alone")
    register_all(groups, 1, version=7, permission=wire.READ_ONLY)
    assert_alike(groups, when="a slave with a smaller id")
    register_all(groups, 2, version=8)
    assert_alike(groups, when="a slave with a larger id reports something new")
    for group in groups.values():
        group.kill(1)
    assert_alike(groups, when="the first slave died")


def test_the_first_slave_acts_as_master_as_in_5_5(
    start_groups: Callable[..., dict[str, Group]],
) -> None:
    groups = start_groups(lines=(V5, OUR_LINE), **WITH_ACTING)
    for group in groups.values():
        update = b"supportActingMaster=true"
        assert wire.ask(group.name_server, wire.UPDATE_NAMESRV_CONFIG, body=update).code == 0
    try:
        for number in range(3):
            register_all(groups, number)
        assert_alike(groups, when="all are there")

        for group in groups.values():
            group.kill(0)
        assert_alike(groups, when="the master died")
        (_, route) = groups[OUR_LINE].shown()["route"]
        assert route["brokerDatas"][0]["brokerAddrs"] == {
            "0": "10.0.0.2:10911",
            "2": "10.0.0.3:10911",
        }
        assert route["queueDatas"][0]["perm"] == wire.READ_ONLY
        for number in (1, 2):
            register_all(groups, number)
        assert_alike(groups, when="the slaves report")

        for group in groups.values():
            group.kill(1)
        assert_alike(groups, when="the acting master died")
        for group in groups.values():
            group.restart(0)
        register_all(groups, 0, version=2)
        assert_alike(groups, when="the master is back")
    finally:
        for group in groups.values():
            update = b"supportActingMaster=false"
            wire.ask(group.name_server, wire.UPDATE_NAMESRV_CONFIG, body=update)


def test_a_promoted_slave_takes_the_masters_place_everywhere(
    start_groups: Callable[..., dict[str, Group]],
) -> None:
    groups = start_groups(**WITHOUT_ACTING)
    for number in range(3):
        register_all(groups, number)
    for group in groups.values():
        group.kill(0)
        group.members[1].become(0)

    register_all(groups, 1, epoch=1, version=2)

    assert_alike(groups, when="a slave was promoted")
    promoted = {"masterAddr": "10.0.0.2:10911", "haServerAddr": "10.0.0.2:10911-ha"}
    assert register_all(groups, 2) == promoted
    for group in groups.values():
        group.restart(0).become(1)
    assert register_all(groups, 0) == promoted
    assert_alike(groups, when="the old master is a slave")


def test_a_replaced_master_is_refused_by_ours_alone(
    start_groups: Callable[..., dict[str, Group]],
) -> None:
    groups = start_groups(**WITHOUT_ACTING)
    for group in groups.values():
        group.members[1].become(0)
    register_all(groups, 1, epoch=100)

    answers = {line: group.members[0].register(epoch=99) for line, group in groups.items()}

    # 4.9 believes whoever reported last; 5.x keeps the new one, and does not say so.
    masters = {line: group.addresses() for line, group in groups.items()}
    assert masters == {
        V4: ["10.0.0.1:10911"],
        V5: ["10.0.0.2:10911"],
        OUR_LINE: ["10.0.0.2:10911"],
    }
    codes = {line: answer.code for line, answer in answers.items()}
    assert codes[V4] == codes[V5] == wire.SUCCESS
    assert codes[OUR_LINE] == wire.ILLEGAL_OPERATION
    assert "has epoch 99, but broker group 'group-of" in answers[OUR_LINE].remark
    assert "is at epoch 100; now its master is 10.0.0.2:10911" in answers[OUR_LINE].remark
    for group in groups.values():
        group.kill(1)
    # Without the new one, 5.x accepts it, too.
    assert groups[V5].members[0].register(epoch=99).code == wire.SUCCESS
    assert groups[V5].addresses() == ["10.0.0.1:10911"]
    assert groups[OUR_LINE].members[0].register(epoch=99).code == wire.ILLEGAL_OPERATION
    assert groups[OUR_LINE].addresses() == []


class OfficialGroup:
    """An official master and two official slaves, known to every name server."""

    def __init__(
        self, line: str, name: str, new_folder: Callable[[str], Path], servers: list[str]
    ) -> None:
        self._name = name
        self._servers = servers
        self.members = {
            number: OfficialBroker(
                line,
                name,
                new_folder(f"{name}-{number}"),
                servers,
                {"brokerId": str(number), "brokerRole": "SLAVE" if number else "ASYNC_MASTER"},
            )
            for number in range(3)
        }

    def start(self, *numbers: int) -> None:
        """Start members, and return once every name server shows them."""
        for number in numbers:
            self.members[number].process.start()
        for number in numbers:
            wait_until(
                lambda number=number: self._is_shown(number),  # type: ignore[misc]
                timeout_s=START_TIMEOUT_S + REGISTER_TIMEOUT_S,
                what=f"broker {number} registered",
            )

    def kill(self, number: int) -> None:
        """Kill a member, and return once every name server noticed."""
        self.members[number].process.kill()
        for server in self._servers:
            wait_until(
                lambda server=server: number not in self.ids(server),  # type: ignore[misc]
                timeout_s=NOTICED_S,
                what=f"broker {number} gone at {server}",
            )

    def ids(self, server: str) -> set[int]:
        """Which members a name server shows."""
        brokers = wire.ask(server, wire.GET_CLUSTERS).body["brokerAddrTable"]
        return {int(number) for number in brokers.get(self._name, {}).get("brokerAddrs", ())}

    def _is_shown(self, number: int) -> bool:
        if all(number in self.ids(server) for server in self._servers):
            return True
        # Once it serves: it would otherwise register ten seconds later.
        with suppress(OSError):
            wire.force_registration(self.members[number].address)
        return False

    def shown(self, server: str, topic: str) -> Any:
        """The route of a topic and the cluster, as far as all lines know them."""
        route = wire.ask(server, wire.GET_ROUTE, {"topic": topic})
        clusters = wire.ask(server, wire.GET_CLUSTERS)
        return without_news([route.code, route.body, clusters.body])


@pytest.mark.scenario("peer", "is routed with its slaves, who stay when it is killed")
@pytest.mark.parametrize("peer", BROKERS, ids=str)
def test_official_masters_and_slaves_are_shown_alike_while_they_are_killed_and_return(
    peer: Peer,
    servers: dict[str, NameServer],
    new_folder: Callable[[str], Path],
    new_topic: str,
) -> None:
    addresses = [server.address for server in servers.values()]
    name = f"official-{peer.line}"
    group = OfficialGroup(peer.line, name, new_folder, addresses)

    def assert_shown(*numbers: int) -> None:
        shown = [group.shown(server, new_topic) for server in addresses]
        assert shown.count(shown[0]) == len(shown), shown
        code, route, _ = shown[0]
        assert code == wire.SUCCESS
        assert route["brokerDatas"][0]["brokerAddrs"] == {
            str(number): group.members[number].address for number in numbers
        }
        assert [queue["brokerName"] for queue in route["queueDatas"]] == [name]

    try:
        group.start(0, 1, 2)
        group.members[0].create_topic(new_topic)
        assert_shown(0, 1, 2)

        group.kill(0)
        assert_shown(1, 2)
        group.kill(1)
        assert_shown(2)
        group.start(0, 1)
        assert_shown(0, 1, 2)
    finally:
        for member in group.members.values():
            member.process.kill()


@pytest.mark.parametrize("peer", BROKERS, ids=str)
def test_an_official_master_is_refused_in_a_group_with_an_epoch_until_it_is_forgotten(
    peer: Peer, servers: dict[str, NameServer], new_folder: Callable[[str], Path]
) -> None:
    ours, other = servers[OUR_LINE].address, servers[V5].address
    name = f"replaced-{peer.line}"
    promoted = Member(ours, name, 0)
    assert promoted.register(epoch=3).code == wire.SUCCESS
    promoted.die()
    broker = OfficialBroker(peer.line, name, new_folder(name), [ours, other])

    def registers_with(server: str) -> bool:
        wire.force_registration(broker.address)
        return name in wire.broker_names(server)

    try:
        broker.process.start()
        broker.process.wait_printed("boot success", timeout_s=START_TIMEOUT_S)
        wait_until(
            lambda: registers_with(other), timeout_s=REGISTER_TIMEOUT_S, what=f"{name} registered"
        )
        assert not registers_with(ours)

        forgotten = wire.ask(ours, wire.FORGET_EPOCH, {"clusterName": CLUSTER, "brokerName": name})
        assert forgotten.fields == {"epoch": "3"}
        wait_until(
            lambda: registers_with(ours), timeout_s=REGISTER_TIMEOUT_S, what=f"{name} accepted"
        )
    finally:
        broker.process.kill()
