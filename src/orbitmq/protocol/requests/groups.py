"""Consumer groups of a broker: create, change, delete, list, forbid."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from orbitmq.java_json import JavaInt
from orbitmq.model.groups import GroupConfig
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGroup(Header):
    """Create or change the group in the body, a `GroupConfig`."""

    CODE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGroups(Header):
    """Create or change the groups of a `GroupConfigList`."""

    CODE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST


class GroupConfigList(msgspec.Struct, kw_only=True):
    """Groups to create or change."""

    groups: list[GroupConfig] = msgspec.field(default_factory=list, name="groupConfigList")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup(Header):
    """Delete a group, and optionally its committed offsets."""

    CODE = RequestCode.DELETE_SUBSCRIPTIONGROUP
    group: str = wire("groupName")
    clean_offsets: bool = wire("cleanOffset", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupConfigs(Header):
    """Ask for every group of a broker; the reply's body is a `GroupConfigTable`.

    Compat: callers newer than RocketMQ 5.3.3 ask page by page. They also accept a reply with every
    group and no total, as older brokers give it.
    """

    CODE = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    first: int | None = wire("groupSeq", None)
    groups_max: int | None = wire("maxGroupNum", None)
    # The version of the earlier pages, as JSON.
    data_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupConfigsReply(Header):
    """How many groups there are, if the body is one page of them."""

    group_count: int | None = wire("totalGroupNum", None)


class GroupConfigTable(msgspec.Struct, kw_only=True):
    """The groups of a broker, and their version."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion, name="dataVersion")
    # Group to topic to the bits of `Permission` that the group is denied.
    forbidden: dict[str, dict[str, JavaInt]] = msgspec.field(
        default_factory=dict, name="forbiddenTable"
    )
    groups: dict[str, GroupConfig] = msgspec.field(
        default_factory=dict, name="subscriptionGroupTable"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GetGroupConfig(Header):
    """Ask for one group; the reply's body is a `GroupConfig`."""

    CODE = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForbidReading(Header):
    """Allow or forbid a group to read a topic, or only ask; the reply's body is `Readability`."""

    CODE = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    group: str
    topic: str
    readable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetConsumeMode(Header):
    """Set how a group gets the messages of a topic; the body is a `ConsumeMode`."""

    CODE = RequestCode.SET_MESSAGE_REQUEST_MODE


class ConsumeMode(msgspec.Struct, kw_only=True):
    """How a group gets the messages of a topic: by pulls, or by pops that share queues."""

    topic: str
    group: str = msgspec.field(name="consumerGroup")
    mode: str = "PULL"
    pop_share_queues: JavaInt = msgspec.field(default=0, name="popShareQueueNum")


class Readability(msgspec.Struct, kw_only=True):
    """Whether a group may read a topic."""

    group: str
    readable: bool = True
    topic: str
