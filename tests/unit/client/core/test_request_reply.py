"""Replies as a broker pushes them become messages like any other."""

from __future__ import annotations

import pytest

from orbitmq.client.core.request_reply import received_reply
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.answers import PushAnswer
from orbitmq.record.compression import Compression, compress


def pushed(**changes: object) -> PushAnswer:
    fields: dict[str, object] = {
        "producer_group": "g",
        "topic": "C_REPLY_TOPIC",
        "template_topic": "TBW102",
        "template_queues": 4,
        "queue_id": 2,
        "system_flag": 0,
        "born_timestamp_ms": Long(1),
        "flag": 3,
        "properties": "own\x01é\x02",
        "born_host": "10.0.0.1:5",
        "store_host": "10.0.0.2:6",
        "store_timestamp_ms": Long(2),
    }
    return PushAnswer(**{**fields, **changes})  # type: ignore[arg-type]  # checked by the tests


def test_a_reply_has_what_was_pushed() -> None:
    reply = received_reply(pushed(retries=4), b"yes", 7)

    assert (reply.body, reply.topic, reply.queue_id, reply.flag) == (b"yes", "C_REPLY_TOPIC", 2, 3)
    assert reply.properties == {"own": "é", "ARRIVE_TIME": "7"}
    assert (reply.born_ms, reply.store_ms, reply.reconsume_times) == (1, 2, 4)
    assert (reply.born_host, reply.store_host) == (("10.0.0.1", 5), ("10.0.0.2", 6))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[::1]:5", ("::1", 5)),
        ("::1:5", ("::1", 5)),
        ("a-host:5", ("0.0.0.0", 0)),
        ("10.0.0.1", ("0.0.0.0", 0)),
        (f"10.0.0.1:{2**40}", ("0.0.0.0", 0)),
        ("", ("0.0.0.0", 0)),
    ],
)
def test_hosts_may_be_of_any_kind(text: str, shown: tuple[str, int]) -> None:
    reply = received_reply(pushed(born_host=text, store_host=text, properties=None), b"yes", 7)

    assert (reply.born_host, reply.store_host, reply.body) == (shown, shown, b"yes")


@pytest.mark.parametrize("kind", Compression)
def test_a_body_is_decompressed_if_it_is_compressed(kind: Compression) -> None:
    header = pushed(system_flag=1 | kind.value)
    body = b"compressed " * 1000

    assert received_reply(header, compress(body, kind), 7).body == body
    # Go's clients mark large bodies that are not compressed.
    assert received_reply(header, body, 7).body == body
