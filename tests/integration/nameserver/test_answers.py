"""What the name server answers, code by code, over a socket and in both encodings."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from orbitmq import java_json
from orbitmq.clock import ManualClock
from orbitmq.model.routes import QueueRoute, TopicRoute
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import OUR_VERSION, DataVersion
from orbitmq.protocol.codes import RequestCode, ResponseCode, Role
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.configuration import GetNameServerConfig, UpdateNameServerConfig
from orbitmq.protocol.requests.key_values import (
    DeleteKeyValue,
    GetKeyValue,
    ListKeyValues,
    PutKeyValue,
)
from orbitmq.protocol.requests.registration import (
    BrokerHeartbeat,
    QueryDataVersion,
    RegisterBroker,
    UnregisterBroker,
    encode_register_body,
)
from orbitmq.protocol.requests.routing import (
    AddTopicRoute,
    AddWritePermission,
    DeleteTopicRoute,
    GetBrokerGroup,
    GetClusterView,
    GetRoute,
    ListClusterTopics,
    ListSystemTopics,
    ListTopics,
    ListUnitSubscribedPlainTopics,
    ListUnitSubscribedTopics,
    ListUnitTopics,
    WipeWritePermission,
)
from tests.integration.nameserver.conftest import Peer, Site

GO_VERSION = 317


def content(body: bytes) -> Any:
    return json.loads(java_json.to_standard(body))


def test_the_table_of_codes_names_exactly_the_codes_that_have_a_handler(site: Site) -> None:
    answered = {code for code in RequestCode if Role.NAME_SERVER in code.answered_by}

    handlers = site.server.server._requests._handlers

    assert set(handlers) == answered
    assert {code for code in RequestCode if Role.NAME_SERVER in code.receivers} == answered


async def test_an_answer_comes_in_the_encoding_of_the_request(
    peer: Peer, encoding: Encoding
) -> None:
    answer = await peer.ask(GetClusterView())

    assert answer.encoding is encoding
    assert answer.version == OUR_VERSION
    assert answer.is_response


async def test_a_registered_topic_is_routed_as_new_clients_read_it(peer: Peer) -> None:
    await peer.report("T", "U")

    answer = await peer.ask(GetRoute(topic="T"))

    assert answer.code == ResponseCode.SUCCESS
    assert json.loads(answer.body) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "10.0.0.1:10911"},
                "brokerName": "broker-a",
                "cluster": "C",
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": "broker-a",
                "perm": 6,
                "readQueueNums": 4,
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            }
        ],
    }


async def test_old_clients_and_go_get_broker_ids_unquoted(peer: Peer) -> None:
    await peer.report("T", "U")

    old = await peer.ask(GetRoute(topic="T"), version=GO_VERSION)
    strict = await peer.ask(GetRoute(topic="T", accept_standard_json_only=True), version=GO_VERSION)

    assert b'"brokerAddrs":{0:"10.0.0.1:10911"}' in old.body
    assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in strict.body


async def test_a_topic_without_a_route_is_answered_with_exactly_code_17(peer: Peer) -> None:
    answer = await peer.ask(GetRoute(topic="missing"))

    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert "missing" in answer.remark


async def test_a_request_without_a_required_field_is_told_which(peer: Peer) -> None:
    answer = await peer.ask_code(RequestCode.GET_ROUTEINFO_BY_TOPIC, tpoic="T")

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "'topic' of GetRoute is missing" in answer.remark
    assert "tpoic" in answer.remark


async def test_a_code_for_another_role_is_answered_not_supported(peer: Peer) -> None:
    answer = await peer.ask_code(RequestCode.GET_MAX_OFFSET, topic="T", queueId="0")

    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "GET_MAX_OFFSET (30)" in answer.remark


async def test_cluster_members_and_addresses_are_shown(peer: Peer) -> None:
    await peer.report("T", "U")
    await peer.report(broker_id=1, address="10.0.0.2:10911")

    view = content((await peer.ask(GetClusterView())).body)
    group = content((await peer.ask(GetBrokerGroup(cluster_name="C", broker_name="broker-a"))).body)
    nobody = content((await peer.ask(GetBrokerGroup(cluster_name="C", broker_name="x"))).body)

    addresses = {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}
    assert view["clusterAddrTable"] == {"C": ["broker-a"]}
    assert view["brokerAddrTable"]["broker-a"]["brokerAddrs"] == addresses
    assert group == {
        "brokerMemberGroup": {"brokerAddrs": addresses, "brokerName": "broker-a", "cluster": "C"}
    }
    assert nobody["brokerMemberGroup"]["brokerAddrs"] == {}


async def test_a_slave_is_told_its_master(peer: Peer) -> None:
    first = await peer.report("T", "U")
    slave = await peer.report(broker_id=1, address="10.0.0.2:10911")

    assert first.fields == {}
    assert slave.fields == {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10911-ha"}


async def test_a_body_that_does_not_fit_its_checksum_is_refused(peer: Peer) -> None:
    body = encode_register_body({}, DataVersion())
    header = RegisterBroker(
        broker_name="a",
        broker_address="10.0.0.1:1",
        cluster_name="C",
        broker_id=Long(0),
        body_crc=(zlib.crc32(body) & 0x7FFFFFFF) ^ 1,
    )

    answer = await peer.ask(header, body)

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "crc32 not match"


async def test_a_compressed_report_counts_like_a_plain_one(peer: Peer) -> None:
    table = {name: TopicConfig(name=name, read_queues=3, write_queues=2) for name in ("T", "U")}
    body = encode_register_body(table, DataVersion(counter=1), compressed=True)
    header = RegisterBroker(
        broker_name="a",
        broker_address="10.0.0.1:1",
        cluster_name="C",
        broker_id=Long(0),
        compressed=True,
        body_crc=zlib.crc32(body) & 0x7FFFFFFF,
    )

    assert (await peer.ask(header, body)).code == ResponseCode.SUCCESS

    route = json.loads((await peer.ask(GetRoute(topic="T"))).body)
    assert route["queueDatas"][0]["readQueueNums"] == 3
    assert route["queueDatas"][0]["writeQueueNums"] == 2


async def test_a_broken_report_is_refused_and_changes_nothing(peer: Peer) -> None:
    header = RegisterBroker(
        broker_name="a", broker_address="10.0.0.1:1", cluster_name="C", broker_id=Long(0)
    )

    answer = await peer.ask(header, b'{"topicConfigSerializeWrapper":{')

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "JSON" in answer.remark
    assert content((await peer.ask(GetClusterView())).body)["brokerAddrTable"] == {}


async def test_a_broker_that_unregisters_is_gone(peer: Peer) -> None:
    await peer.report("T", "U")

    await peer.ask(
        UnregisterBroker(
            broker_name="broker-a",
            broker_address="10.0.0.1:10911",
            cluster_name="C",
            broker_id=Long(0),
        )
    )

    assert (await peer.ask(GetRoute(topic="T"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_broker_asks_whether_its_topics_are_news(peer: Peer) -> None:
    await peer.report("T", "U", version=3)
    question = QueryDataVersion(cluster_name="C", broker_address="10.0.0.1:10911")
    stranger = QueryDataVersion(cluster_name="C", broker_address="10.0.0.9:10911")

    same = await peer.ask(question, java_json.encode(DataVersion(counter=3)))
    newer = await peer.ask(question, java_json.encode(DataVersion(counter=4)))
    unknown = await peer.ask(stranger, java_json.encode(DataVersion(counter=4)))

    assert same.fields == {"changed": "false"}
    assert newer.fields == {"changed": "true"}
    assert content(newer.body) == {"counter": 3, "stateVersion": 0, "timestamp": 0}
    assert (unknown.fields, unknown.body) == ({"changed": "true"}, b"")


async def test_topics_are_listed_by_all_cluster_system_and_unit(peer: Peer) -> None:
    await peer.report("T", "U")
    await peer.report("V", "W", name="b", cluster="D", address="10.0.0.2:10911", unit_flag=2)
    await peer.report("X", "Y", name="c", cluster="E", address="10.0.0.3:10911", unit_flag=3)

    async def listed(header: Any) -> list[str]:
        names: list[str] = content((await peer.ask(header)).body)["topicList"]
        return sorted(names)

    assert await listed(ListTopics()) == ["T", "U", "V", "W", "X", "Y"]
    assert await listed(ListClusterTopics(cluster="D")) == ["V", "W"]
    assert await listed(ListClusterTopics(cluster="none")) == []
    assert await listed(ListSystemTopics()) == ["C", "D", "E", "b", "broker-a", "c"]
    assert await listed(ListUnitTopics()) == ["X", "Y"]
    assert await listed(ListUnitSubscribedTopics()) == ["V", "W", "X", "Y"]
    assert await listed(ListUnitSubscribedPlainTopics()) == ["V", "W"]


async def test_write_permission_of_a_broker_is_wiped_and_added(peer: Peer) -> None:
    await peer.report("T", "U")

    async def permission() -> int:
        route = json.loads((await peer.ask(GetRoute(topic="T"))).body)
        found: int = route["queueDatas"][0]["perm"]
        return found

    wiped = await peer.ask(WipeWritePermission(broker_name="broker-a"))
    assert wiped.fields == {"wipeTopicCount": "2"}
    assert await permission() == 4
    added = await peer.ask(AddWritePermission(broker_name="broker-a"))
    assert added.fields == {"addTopicCount": "2"}
    assert await permission() == 6


async def test_routes_are_deleted_and_added_by_hand(peer: Peer) -> None:
    await peer.report("T", "U")
    queue = QueueRoute(broker_name="broker-a", permission=6, read_queues=1, write_queues=1)

    await peer.ask(DeleteTopicRoute(topic="T", cluster_name="C"))
    await peer.ask(DeleteTopicRoute(topic="U"))
    await peer.ask(
        AddTopicRoute(topic="N"), java_json.encode(TopicRoute(brokers=[], queues=[queue]))
    )
    await peer.ask(AddTopicRoute(topic="ignored"))

    assert content((await peer.ask(ListTopics())).body) == {"topicList": ["N"]}


async def test_key_values_are_put_read_listed_and_deleted(peer: Peer, site: Site) -> None:
    await peer.ask(PutKeyValue(namespace="N", key="k", value="äöü 中文"))

    read = await peer.ask(GetKeyValue(namespace="N", key="k"))
    listing = await peer.ask(ListKeyValues(namespace="N"))
    assert read.fields == {"value": "äöü 中文"}
    assert content(listing.body) == {"table": {"k": "äöü 中文"}}
    assert (site.folder / "kvConfig.json").exists()

    await peer.ask(DeleteKeyValue(namespace="N", key="k"))
    gone = await peer.ask(GetKeyValue(namespace="N", key="k"))
    nowhere = await peer.ask(ListKeyValues(namespace="M"))
    assert gone.code == ResponseCode.QUERY_NOT_FOUND
    assert gone.remark == "No config item, Namespace: N Key: k"
    assert nowhere.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_registering_broker_gets_the_order_of_topics(peer: Peer) -> None:
    await peer.ask(PutKeyValue(namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4"))

    answer = await peer.report("T", "U")

    assert content(answer.body) == {"table": {"T": "broker-a:4"}}


async def test_the_order_of_a_topic_is_in_its_route_only_when_switched_on(peer: Peer) -> None:
    await peer.report("T", "U")
    await peer.ask(PutKeyValue(namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4"))
    before = json.loads((await peer.ask(GetRoute(topic="T"))).body)

    await peer.ask(UpdateNameServerConfig(), b"orderMessageEnable=true")

    after = json.loads((await peer.ask(GetRoute(topic="T"))).body)
    assert "orderTopicConf" not in before
    assert after["orderTopicConf"] == "broker-a:4"


async def test_options_are_shown_and_changed_live_and_the_change_is_kept(
    peer: Peer, site: Site
) -> None:
    updated = await peer.ask(UpdateNameServerConfig(), b"enableTopicList=false\n")

    shown = (await peer.ask(GetNameServerConfig())).body.decode().splitlines()
    assert updated.code == ResponseCode.SUCCESS
    assert "enableTopicList=false" in shown
    assert (site.folder / "namesrv.conf").read_text() == (
        "# kept\nlistenPort=0\nenableTopicList=false\n"
    )
    for header in (ListClusterTopics(cluster="C"), ListUnitTopics()):
        answer = await peer.ask(header)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")
    assert (await peer.ask(ListTopics())).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("change", "code", "expected"),
    [
        (b"kvConfigPath=/elsewhere", ResponseCode.NO_PERMISSION, "kvConfigPath"),
        (b"listenPort=1234", ResponseCode.SYSTEM_ERROR, "only at start"),
        (
            b"deleteTopicWithBrokerRegistration=true",
            ResponseCode.NO_PERMISSION,
            "allowGuardedUpdates=true",
        ),
        (b"enableTopicLst=false", ResponseCode.SYSTEM_ERROR, "enableTopicList"),
        (b"enableTopicList=perhaps", ResponseCode.SYSTEM_ERROR, "perhaps"),
    ],
)
async def test_a_change_that_cannot_be_made_is_refused_with_a_reason(
    peer: Peer, change: bytes, code: ResponseCode, expected: str
) -> None:
    before = (await peer.ask(GetNameServerConfig())).body

    answer = await peer.ask(UpdateNameServerConfig(), change)

    assert answer.code == code
    assert expected in answer.remark
    assert (await peer.ask(GetNameServerConfig())).body == before


class TestWaitingForBrokers:
    @pytest.fixture
    def options(self) -> dict[str, str]:
        return {"needWaitForService": "true", "waitSecondsForService": "45"}

    async def test_route_requests_are_refused_until_brokers_had_time_to_report(
        self, peer: Peer, site: Site
    ) -> None:
        await peer.report("T", "U")
        early = await peer.ask(GetRoute(topic="T"))

        await site.clock.advance(45_000)

        assert (early.code, early.remark) == (1, "name server not ready")
        assert (await peer.ask(GetRoute(topic="T"))).code == ResponseCode.SUCCESS


async def test_a_client_in_a_zone_sees_the_brokers_there(peer: Peer) -> None:
    await peer.report("T", "U")

    anywhere = await peer.ask_code(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T", __ZONE_NAME="east", __ZONE_MODE="false"
    )
    elsewhere = await peer.ask_code(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T", __ZONE_NAME="east", __ZONE_MODE="TRUE"
    )

    assert json.loads(anywhere.body)["brokerDatas"]
    assert json.loads(elsewhere.body)["brokerDatas"] == []


async def test_a_heartbeat_keeps_a_broker(peer: Peer, site: Site) -> None:
    await peer.report("T", "U")

    for _ in range(5):
        await site.clock.advance(60_000)
        await peer.ask(BrokerHeartbeat(cluster_name="C", broker_address="10.0.0.1:10911"))

    assert (await peer.ask(GetRoute(topic="T"))).code == ResponseCode.SUCCESS
    assert isinstance(site.clock, ManualClock)
