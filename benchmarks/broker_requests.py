"""What producers and consumers ask of a broker in benchmarks, as Java clients of 5.x write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.load import SERIAL_MARK
from benchmarks.messages import NOW_MS, body_of
from orbitmq.model.property_names import TIMER_DELIVER_MS
from orbitmq.model.versions import OUR_VERSION
from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.headers import Header, Long
from orbitmq.protocol.languages import Language
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from orbitmq.protocol.requests.sending import SendBatch, SendMessageShort
from orbitmq.record.batch import BatchedMessage, encode_batch
from orbitmq.record.properties import encode_properties

PRODUCERS: Final = "benchmark_producers"
CONSUMERS: Final = "benchmark_consumers"
OFFSET_MARK: Final = "@"
HOLD_MS: Final = 15_000
# What the client library adds, and a tag; every message has a unique id of its own.
PROPERTIES: Final = {
    "UNIQ_KEY": f"7F00000100002A139A55{SERIAL_MARK}",
    "WAIT": "true",
    "TAGS": "TagA",
}
# The messages of a batch have ids of their own; the batch has none.
BATCH_PROPERTIES: Final = {"WAIT": "true"}


def send_request(
    topic: str, queue_id: int, body_bytes: int, *, encoding: Encoding = Encoding.JSON
) -> Command:
    """Send one message."""
    return _send(topic, queue_id, body_of(body_bytes), PROPERTIES, encoding)


def timer_request(topic: str, queue_id: int, due_ms: int, body_bytes: int) -> Command:
    """Send one message that is due at a time, with which its body begins."""
    body = due_ms.to_bytes(8) + body_of(body_bytes - 8)
    properties = PROPERTIES | {TIMER_DELIVER_MS: str(due_ms)}
    return _send(topic, queue_id, body, properties, Encoding.JSON)


def _send(
    topic: str, queue_id: int, body: bytes, properties: Mapping[str, str], encoding: Encoding
) -> Command:
    return _request(
        SendMessageShort(
            producer_group=PRODUCERS,
            topic=topic,
            template_topic="TBW102",
            template_queues=4,
            queue_id=queue_id,
            system_flag=0,
            born_timestamp_ms=Long(NOW_MS),
            flag=0,
            properties=encode_properties(properties).decode(),
            retries=0,
            unit_mode=False,
            batch=False,
            broker_name="benchmark",
        ),
        body,
        encoding,
    )


def batch_request(topic: str, queue_id: int, body_bytes: int, messages: int) -> Command:
    """Send many messages to one queue."""
    one = BatchedMessage(0, body_of(body_bytes), encode_properties(PROPERTIES))
    return _request(
        SendBatch(
            producer_group=PRODUCERS,
            topic=topic,
            template_topic="TBW102",
            template_queues=4,
            queue_id=queue_id,
            system_flag=0,
            born_timestamp_ms=Long(NOW_MS),
            flag=0,
            properties=encode_properties(BATCH_PROPERTIES).decode(),
            retries=0,
            unit_mode=False,
            batch=True,
            broker_name="benchmark",
        ),
        encode_batch([one] * messages),
        Encoding.JSON,
    )


def pull_request(topic: str, queue_id: int, offset: int | None, messages: int) -> Command:
    """Read messages of a queue; without an offset there is a mark in its place."""
    request = _request(
        PullMessages(
            consumer_group=CONSUMERS,
            topic=topic,
            queue_id=queue_id,
            queue_offset=Long(offset or 0),
            messages_max=messages,
            system_flag=PullFlag.SUSPEND | PullFlag.SUBSCRIPTION,
            commit_offset=Long(0),
            suspend_timeout_ms=Long(HOLD_MS),
            expression="*",
            subscription_version=Long(NOW_MS),
            expression_type="TAG",
            broker_name="benchmark",
        ),
        b"",
        Encoding.JSON,
    )
    if offset is None:
        request.fields["queueOffset"] = OFFSET_MARK
    return request


def _request(header: Header, body: bytes, encoding: Encoding) -> Command:
    return Command(
        code=header.CODE,
        fields=header.encode(),
        body=body,
        language=Language.JAVA,
        version=OUR_VERSION,
        encoding=encoding,
    )
