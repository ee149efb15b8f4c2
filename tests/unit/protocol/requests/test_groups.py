"""Requests about consumer groups: names on the wire, and bodies as Java writes them."""

from __future__ import annotations

import pytest

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.model.groups import GroupConfig
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.headers import Header
from orbitmq.protocol.requests.groups import (
    ConsumeMode,
    DeleteGroup,
    ForbidReading,
    GetGroupConfig,
    GroupConfigList,
    GroupConfigTable,
    ListGroupConfigs,
    ListGroupConfigsReply,
    Readability,
    SetConsumeMode,
    UpdateGroup,
    UpdateGroups,
)


@pytest.mark.parametrize(
    ("header", "code", "fields"),
    [
        (UpdateGroup(), 200, {}),
        (UpdateGroups(), 225, {}),
        (
            DeleteGroup(group="g", clean_offsets=True),
            207,
            {"groupName": "g", "cleanOffset": "true"},
        ),
        (ListGroupConfigs(), 201, {}),
        (
            ListGroupConfigs(first=0, groups_max=2000, data_version="{}"),
            201,
            {"groupSeq": "0", "maxGroupNum": "2000", "dataVersion": "{}"},
        ),
        (SetConsumeMode(), 401, {}),
        (GetGroupConfig(group="g"), 352, {"group": "g"}),
        (ForbidReading(group="g", topic="T"), 353, {"group": "g", "topic": "T"}),
        (
            ForbidReading(group="g", topic="T", readable=False),
            353,
            {"group": "g", "topic": "T", "readable": "false"},
        ),
    ],
)
def test_a_request_has_its_code_and_javas_field_names(
    header: Header, code: int, fields: dict[str, str]
) -> None:
    assert code == header.CODE
    assert header.encode() == fields
    assert type(header).decode(fields) == header


def test_a_consume_mode_is_written_as_java_reads_it() -> None:
    written = java_json.encode(ConsumeMode(topic="T", group="g", mode="POP", pop_share_queues=2))

    assert written == b'{"topic":"T","consumerGroup":"g","mode":"POP","popShareQueueNum":2}'


def test_offsets_of_a_deleted_group_stay_unless_said_otherwise() -> None:
    assert not DeleteGroup.decode({"groupName": "g"}).clean_offsets


def test_a_group_is_not_deleted_without_its_name() -> None:
    with pytest.raises(ProtocolError, match="field 'groupName' of DeleteGroup is missing"):
        DeleteGroup.decode({"group": "g"})


def test_a_page_of_groups_says_how_many_there_are() -> None:
    assert ListGroupConfigsReply(group_count=3).encode() == {"totalGroupNum": "3"}
    assert ListGroupConfigsReply.decode({}) == ListGroupConfigsReply(group_count=None)


def test_a_list_of_groups_comes_back() -> None:
    groups = GroupConfigList(groups=[GroupConfig(name="g"), GroupConfig(name="h", retries_max=3)])

    encoded = java_json.encode(groups)

    assert encoded.startswith(b'{"groupConfigList":[{"attributes":{},"brokerId":0,')
    assert java_json.decode(encoded, GroupConfigList) == groups


def test_a_table_of_groups_comes_back() -> None:
    table = GroupConfigTable(
        data_version=DataVersion(counter=1, timestamp=7),
        forbidden={"g": {"T": 4}},
        groups={"g": GroupConfig(name="g")},
    )

    encoded = java_json.encode(table)

    assert encoded.startswith(
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":7},'
        b'"forbiddenTable":{"g":{"T":4}},"subscriptionGroupTable":{"g":{"attributes":{},'
    )
    assert java_json.decode(encoded, GroupConfigTable) == table


def test_whether_a_group_may_read_comes_back() -> None:
    text = b'{"group":"g","readable":false,"topic":"T"}'

    assert java_json.encode(Readability(group="g", topic="T", readable=False)) == text
    assert not java_json.decode(text, Readability).readable
