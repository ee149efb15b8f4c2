"""Asks one server for what it holds, directly and past all links."""

from __future__ import annotations

from typing import Final

from orbitmq.protocol.command import Command, request
from orbitmq.protocol.failures import raise_for_failure
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages
from orbitmq.transport.rpc_client import RpcClient
from tests.replication.cluster import Server
from tests.replication.history import Queue

ASK_TIMEOUT_MS: Final = 1_000
AUDITORS: Final = "auditors"


async def pull(rpc: RpcClient, server: Server, queue: Queue, offset: int, *, count: int) -> Command:
    """Pull messages of a queue; the reply says where it begins and ends."""
    header = PullMessages(
        consumer_group=AUDITORS,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=Long(offset),
        messages_max=count,
        system_flag=int(PullFlag.SUBSCRIPTION),
        commit_offset=Long(0),
        suspend_timeout_ms=Long(0),
        expression="*",
        subscription_version=Long(0),
        expression_type="TAG",
        broker_name=queue.broker,
    )
    asked = request(header)
    reply = await rpc.invoke(server.address, asked, timeout_ms=ASK_TIMEOUT_MS)
    if "maxOffset" not in reply.fields:
        raise_for_failure(asked, reply, server.address)
    return reply
