"""Administration of consumer groups: create, change, delete, list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq import java_json
from orbitmq.broker.table_bounds import page_of
from orbitmq.disk import off_loop
from orbitmq.errors import GroupMissingError
from orbitmq.model.groups import GroupConfig
from orbitmq.model.topics import Permission
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.requests.groups import (
    DeleteGroup,
    ForbidReading,
    GetGroupConfig,
    GroupConfigList,
    GroupConfigTable,
    ListGroupConfigs,
    ListGroupConfigsReply,
    Readability,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.groups.committed_offsets import CommittedOffsets
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.protocol.command import Command
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import Handler


@dataclass(slots=True, eq=False, kw_only=True)
class GroupRequests:
    """Administers consumer groups."""

    groups: GroupTable
    offsets: CommittedOffsets

    def by_code(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_many,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.list_all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
        }

    async def update(self, _: Connection, request: Command) -> Command:
        """Create or change a group."""
        await self.groups.put(java_json.decode(request.body, GroupConfig))
        return request.reply()

    async def update_many(self, _: Connection, request: Command) -> Command:
        """Create or change several groups."""
        await self.groups.put_all(java_json.decode(request.body, GroupConfigList).groups)
        return request.reply()

    async def delete(self, _: Connection, request: Command) -> Command:
        """Delete a group, and its committed offsets if asked to."""
        asked = DeleteGroup.decode(request.fields)
        await self.groups.delete(asked.group)
        if asked.clean_offsets:
            self.offsets.delete_group(asked.group)
        return request.reply()

    async def list_all(self, _: Connection, request: Command) -> Command:
        """List all groups, or one page of them; the first page has everything that is forbidden."""
        asked = ListGroupConfigs.decode(request.fields)
        groups = self.groups.groups
        forbidden = self.groups.forbidden if not asked.first else {}
        table = GroupConfigTable(
            data_version=self.groups.data_version,
            forbidden={group: dict(topics) for group, topics in forbidden.items()},
            groups=page_of(groups, asked.first, asked.groups_max),
        )
        total = len(groups) if asked.groups_max is not None else None
        return request.reply(
            ListGroupConfigsReply(group_count=total), body=await off_loop(java_json.encode, table)
        )

    def get(self, _: Connection, request: Command) -> Command:
        """Return one group."""
        asked = GetGroupConfig.decode(request.fields)
        try:
            group = self.groups.require(asked.group)
        except GroupMissingError as error:
            # Tools ask before they create a group.
            error.routine = True
            raise
        return request.reply(body=java_json.encode(group))

    async def forbid(self, _: Connection, request: Command) -> Command:
        """Allow or forbid a group to read a topic, or only return what applies now."""
        asked = ForbidReading.decode(request.fields)
        bits = self.groups.forbidden_bits(asked.group, asked.topic)
        if asked.readable is not None:
            bits = bits & ~Permission.READ if asked.readable else bits | Permission.READ
            await self.groups.forbid(asked.group, asked.topic, int(bits))
        answer = Readability(
            group=asked.group, topic=asked.topic, readable=not bits & Permission.READ
        )
        return request.reply(body=java_json.encode(answer))
