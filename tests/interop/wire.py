"""One request to a RocketMQ server by hand, to see its exact answer.

Knows just enough of the remoting protocol, and nothing of our own codec: what it says about our
servers must not rest on our own code.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import wait_until

SEND = 10
PULL = 11
QUERY_CONSUMER_OFFSET = 14
UPDATE_CONSUMER_OFFSET = 15
UPDATE_AND_CREATE_TOPIC = 17
UPDATE_AND_CREATE_TOPIC_LIST = 18
GET_ALL_TOPIC_CONFIG = 21
UPDATE_BROKER_CONFIG = 25
GET_RUNTIME = 28
GET_MIN_OFFSET = 31
GET_MEMBERS = 38
DELETE_EXPIRED_LOGS = 329
GET_MAX_OFFSET = 30
SEND_BACK = 36
GET_KV_CONFIG = 101
REGISTER_BROKER = 103
UNREGISTER_BROKER = 104
GET_ROUTE = 105
GET_CLUSTERS = 106
UPDATE_NAMESRV_CONFIG = 318
GET_BROKER_GROUP = 901
FORGET_EPOCH = 21_251
READ_STANDING = 21_302
PROMOTE_BROKER = 21_303

SUCCESS = 0
TOPIC_NOT_EXIST = 17
QUERY_NOT_FOUND = 22
ILLEGAL_OPERATION = 604

READ_ONLY = 4
READ_WRITE = 6

_VERSION_WITH_QUOTED_IDS = 401
# Far above what an answer takes: a server whose machine stands still is not one that refuses.
_ANSWER_TIMEOUT_S = 60
_UNQUOTED_KEY = re.compile(rb"([{,])(\d+):")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server said."""

    code: int
    remark: str
    fields: dict[str, str]
    body: Any


class Conversation:
    """A connection to a server that stays open, as a broker's to its name servers does."""

    def __init__(self, address: str, *, timeout_s: float = _ANSWER_TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        self._connection = socket.create_connection((host, int(port)), timeout=timeout_s)

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, as the death of a process does."""
        self._connection.close()

    def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Answer:
        """Send one request and return the answer."""
        header = json.dumps(
            {
                "code": code,
                "language": "JAVA",
                "version": _VERSION_WITH_QUOTED_IDS,
                "opaque": 1,
                "flag": 0,
                "serializeTypeCurrentRPC": "JSON",
                "extFields": fields or {},
            }
        ).encode()
        frame_bytes = 4 + len(header) + len(body)
        self._connection.sendall(
            frame_bytes.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body
        )
        with self._connection.makefile("rb") as replies:
            frame = replies.read(int.from_bytes(_exactly(replies.read(4), 4), "big"))
        header_bytes = int.from_bytes(frame[1:4], "big")
        reply = json.loads(frame[4 : 4 + header_bytes])
        return Answer(
            code=reply["code"],
            remark=reply.get("remark") or "",
            fields=reply.get("extFields") or {},
            body=_parse_body(frame[4 + header_bytes :]),
        )


def ask(
    address: str,
    code: int,
    fields: dict[str, str] | None = None,
    *,
    body: bytes = b"",
    timeout_s: float = _ANSWER_TIMEOUT_S,
) -> Answer:
    """Send one request to `host:port` and return the answer."""
    with Conversation(address, timeout_s=timeout_s) as conversation:
        return conversation.ask(code, fields, body)


def broker_names(name_server: str) -> set[str]:
    """The brokers that a name server knows; none while it does not answer."""
    try:
        clusters = ask(name_server, GET_CLUSTERS).body
    except OSError:
        return set()
    return set(clusters["brokerAddrTable"]) if clusters else set()


def broker_addresses(name_server: str, name: str) -> dict[str, str]:
    """The addresses of the brokers of one name that a name server knows, by their id."""
    brokers: dict[str, Any] = ask(name_server, GET_CLUSTERS).body["brokerAddrTable"]
    return dict(brokers[name]["brokerAddrs"]) if name in brokers else {}


def route_code(name_server: str, topic: str) -> int:
    """The code that a name server answers when asked for the route of a topic."""
    return ask(name_server, GET_ROUTE, {"topic": topic}).code


def route_permissions(name_server: str, topic: str) -> dict[str, int]:
    """Which permission a name server shows for a topic, by broker."""
    route = ask(name_server, GET_ROUTE, {"topic": topic}).body
    return {queue["brokerName"]: queue["perm"] for queue in route["queueDatas"]} if route else {}


def wait_route_code(name_server: str, topic: str, code: int, *, timeout_s: float) -> None:
    """Return once a name server answers with `code` when asked for the route of a topic."""
    wait_until(
        lambda: route_code(name_server, topic) == code,
        timeout_s=timeout_s,
        what=f"code {code} for topic {topic} at name server {name_server}",
    )


def wait_route_permissions(
    name_server: str, topic: str, permissions: dict[str, int], *, timeout_s: float
) -> None:
    """Return once a name server shows these permissions for a topic, by broker."""
    wait_until(
        lambda: route_permissions(name_server, topic) == permissions,
        timeout_s=timeout_s,
        what=f"permissions {permissions} for topic {topic} at name server {name_server}",
    )


def members(broker: str, group: str) -> list[str]:
    """The clients of a group that a broker knows."""
    answer = ask(broker, GET_MEMBERS, {"consumerGroup": group})
    return list(answer.body["consumerIdList"]) if answer.code == SUCCESS else []


def create_topic(broker: str, topic: str, *, queues: int = 4, permission: int = READ_WRITE) -> None:
    """Create a topic on one broker, which then tells its name servers."""
    answer = ask(
        broker,
        UPDATE_AND_CREATE_TOPIC,
        {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(permission),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        },
    )
    assert answer.code == SUCCESS, answer


def create_topics(broker: str, topics: Iterable[str], *, queues: int = 4) -> None:
    """Create topics on one broker with one request, which brokers of 5.3 and later know."""
    configs = [
        {
            "topicName": topic,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": READ_WRITE,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        for topic in topics
    ]
    body = json.dumps({"topicConfigList": configs}).encode()
    answer = ask(broker, UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert answer.code == SUCCESS, answer


def max_offset(broker: str, topic: str, queue_id: int) -> int:
    """The number behind the last message of a queue."""
    answer = ask(broker, GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
    return int(answer.fields["offset"]) if answer.code == SUCCESS else 0


def wait_above(broker: str, topic: str, queue_id: int, offset: int, *, timeout_s: float) -> None:
    """Return once a queue has a message at or above an offset."""
    wait_until(
        lambda: max_offset(broker, topic, queue_id) > offset,
        timeout_s=timeout_s,
        what=f"a message in {topic} {queue_id}",
    )


def committed(broker: str, group: str, topic: str, queue_id: int) -> int:
    """Where a group goes on in a queue, as a broker knows it; 0 while it knows nothing."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
    answer = ask(broker, QUERY_CONSUMER_OFFSET, fields)
    return int(answer.fields["offset"]) if answer.code == SUCCESS else 0


def wait_shown(
    broker: str, topic: str, count: int, *, queues: int = 4, timeout_s: float = CLIENT_TIMEOUT_S
) -> None:
    """Return once readers see so many messages of a topic: official brokers show them after the reply."""
    wait_until(
        lambda: sum(max_offset(broker, topic, queue_id) for queue_id in range(queues)) == count,
        timeout_s=timeout_s,
        what=f"{count} messages in sight in {topic}",
    )


def wait_committed(
    broker: str,
    group: str,
    topic: str,
    count: int,
    *,
    queues: int = 4,
    timeout_s: float = CLIENT_TIMEOUT_S,
) -> None:
    """Return once a group has committed so many messages of a topic.

    A consumer does so a while after its listener has returned, and one that stops before may not.
    """
    wait_until(
        lambda: sum(committed(broker, group, topic, each) for each in range(queues)) == count,
        timeout_s=timeout_s,
        what=f"{count} messages of {topic} committed by {group}",
    )


def commit(broker: str, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Commit the offset of a group in a queue."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "commitOffset": str(offset),
    }
    assert ask(broker, UPDATE_CONSUMER_OFFSET, fields).code == SUCCESS


def send_back(broker: str, offset: int, *, group: str, topic: str, delay_level: int = 1) -> None:
    """Turn down the message at a physical offset: the broker delivers it to the group again."""
    answer = ask(
        broker,
        SEND_BACK,
        {
            "offset": str(offset),
            "group": group,
            "delayLevel": str(delay_level),
            "originMsgId": "",
            "originTopic": topic,
            "unitMode": "false",
            "maxReconsumeTimes": "16",
        },
    )
    assert answer.code == SUCCESS, answer


def force_registration(broker: str, *, permission: int = READ_WRITE) -> None:
    """Make a broker register all its topics at once, with this permission.

    Setting this option is the one thing that makes a broker do so.
    """
    answer = ask(broker, UPDATE_BROKER_CONFIG, body=f"brokerPermission={permission}\n".encode())
    assert answer.code == SUCCESS, answer


def _exactly(piece: bytes, length: int) -> bytes:
    if len(piece) != length:
        raise ConnectionError("the server closed the connection instead of answering")
    return piece


def _parse_body(body: bytes) -> Any:
    if not body:
        return None
    # Java servers write number keys of maps without quotes.
    return json.loads(_UNQUOTED_KEY.sub(rb'\1"\2":', body))
