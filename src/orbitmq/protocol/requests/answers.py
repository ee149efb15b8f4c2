"""Answers to requests that were sent as messages, pushed to the waiting client."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, Long, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class PushAnswer(Header):
    """The broker pushes an answer to the client that waits for it; the body is the message's."""

    CODE = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    producer_group: str
    topic: str
    template_topic: str = wire("defaultTopic")
    template_queues: int = wire("defaultTopicQueueNums")
    queue_id: int
    system_flag: int = wire("sysFlag")
    born_timestamp_ms: Long = wire("bornTimestamp")
    flag: int
    properties: str | None = None
    retries: int | None = wire("reconsumeTimes", None)
    unit_mode: bool | None = None
    born_host: str
    store_host: str
    store_timestamp_ms: Long = wire("storeTimestamp")
