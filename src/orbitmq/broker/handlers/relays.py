"""Requests that the broker relays from operators to consumers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.disk import off_loop
from orbitmq.errors import CallTimeoutError, OrbitError, RequestRefusedError
from orbitmq.model.versions import V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT, version_name
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.command import request as make_request
from orbitmq.protocol.requests.relays import (
    ConsumeDirectly,
    ConsumerOffsets,
    GetConsumerOffsets,
    GetGroupOffsets,
    GetRunningConsumer,
)
from orbitmq.record.message_id import decode_message_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.groups.consuming_group import ConnectedClient
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.groups.members import Members
    from orbitmq.broker.topics.topic_table import TopicTable
    from orbitmq.java_json import JavaLong, ObjectKeyed
    from orbitmq.model.queues import MessageQueue
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler

log = logging.getLogger(__name__)

_RELAY_TIMEOUT_MS: Final = 10_000
_OFFSETS_TIMEOUT_MS: Final = 5_000


@dataclass(slots=True, eq=False, kw_only=True)
class RelayRequests:
    """Passes requests on to consumers, and returns their replies."""

    broker_name: Callable[[], str]
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    members: Members

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.show_running,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.show_offsets,
        }

    async def show_running(self, _: Connection, request: Command) -> Command:
        """Ask one consumer for its running state."""
        asked = GetRunningConsumer.decode(request.fields)
        return await self._relay(request, asked.consumer_group, asked.client_id, request.body)

    async def consume_directly(self, _: Connection, request: Command) -> Command:
        """Have one consumer consume one message now."""
        asked = ConsumeDirectly.decode(request.fields)
        request.fields["brokerName"] = self.broker_name()
        topic = self.topics.get(asked.topic or "")
        if topic is not None:
            request.fields["topicSysFlag"] = str(topic.unit_flag)
        group = self.groups.get(asked.consumer_group)
        if group is not None:
            request.fields["groupSysFlag"] = str(group.unit_flag)
        record = request.body
        if asked.message_id:
            physical_offset = decode_message_id(asked.message_id)[2]
            found = await off_loop(self.store.record_at, physical_offset)
            if found is None:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"there is no message at {physical_offset}, where the id "
                    f"{asked.message_id!r} points",
                    hint="it was deleted, or the id belongs to a message of another broker",
                )
            record = found
        return await self._relay(request, asked.consumer_group, asked.client_id or "", record)

    async def show_offsets(self, _: Connection, request: Command) -> Command:
        """Ask the members of a group for their offsets."""
        asked = GetGroupOffsets.decode(request.fields)
        group = self.members.groups.get(asked.group)
        if group is None or not group.members:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{asked.group}]",
            )
        clients = [member.client for member in group.members.values()]
        for client in clients:
            if client.version < V3_0_7_SNAPSHOT:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    "the client does not support this feature. "
                    f"version={version_name(client.version)} client={client.client_id}",
                )
        if asked.client_id:
            clients = [client for client in clients if client.client_id == asked.client_id][:1]
        answers = await asyncio.gather(
            *(self._offsets_of(client, asked.topic, asked.group) for client in clients)
        )
        offsets = ConsumerOffsets(
            by_client={
                client.client_id: answer
                for client, answer in zip(clients, answers, strict=True)
                if answer is not None
            }
        )
        return request.reply(body=java_json.encode(offsets))

    async def _offsets_of(
        self, client: ConnectedClient, topic: str, group: str
    ) -> ObjectKeyed[MessageQueue, JavaLong] | None:
        """Ask one member; None if it gives no usable answer."""
        question = make_request(GetConsumerOffsets(topic=topic, group=group))
        try:
            answer = await client.connection.ask(question, _OFFSETS_TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS and answer.body:
                return java_json.decode(answer.body, ConsumerOffsets).queues
        except OrbitError as error:
            log.warning(
                "member did not return its offsets group=%s client=%s reason=%s",
                group,
                client.client_id,
                error,
            )
        return None

    async def _relay(self, request: Command, group: str, client_id: str, body: bytes) -> Command:
        """Pass a request on to a member, and return its reply."""
        client = self.members.find_consumer(group, client_id)
        if client is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        if client.version < V3_1_8_SNAPSHOT:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version_name(client.version)}> too low to "
                "finish, please upgrade it to V3_1_8_SNAPSHOT",
            )
        question = Command(code=request.code, fields=dict(request.fields), body=body)
        try:
            answer = await client.connection.ask(question, _RELAY_TIMEOUT_MS)
        except CallTimeoutError as error:
            raise RequestRefusedError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: {error}",
            ) from error
        except OrbitError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{client_id}> Exception: {error}",
            ) from error
        reply = request.reply(code=answer.code, remark=answer.remark, body=answer.body)
        reply.fields = answer.fields
        return reply
