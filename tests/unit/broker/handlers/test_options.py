"""Options of a broker over the wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.options import BrokerOptionRequests
from orbitmq.clock import ManualClock
from orbitmq.errors import RequestRefusedError
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import request
from orbitmq.protocol.requests.configuration import (
    BrokerConfigReply,
    GetBrokerConfig,
    UpdateBrokerConfig,
)
from orbitmq.settings import ServerRole, Settings
from orbitmq.transport.config import ServerConfig
from tests.unit.broker.groups.clients import new_connection

TOOL = new_connection()


class Registered:
    """Counts reports to the name servers."""

    def __init__(self) -> None:
        self.count = 0

    async def register_all(self) -> None:
        self.count += 1


def _options(settings: Settings, folder: Path, registered: Registered) -> BrokerOptionRequests:
    return BrokerOptionRequests(
        settings,
        file=folder / "broker.conf",
        register=registered.register_all,
        clock=ManualClock(),
    )


async def test_a_new_permission_is_reported_to_the_name_servers(tmp_path: Path) -> None:
    settings, registered = (
        Settings.load(BrokerConfig, ServerConfig, role=ServerRole.BROKER),
        Registered(),
    )
    options = _options(settings, tmp_path, registered)

    await options.update(TOOL, request(UpdateBrokerConfig(), b"longPollingEnable=false\n"))
    assert registered.count == 0
    await options.update(TOOL, request(UpdateBrokerConfig(), b"brokerPermission=4\n"))

    assert registered.count == 1
    assert settings.of(BrokerConfig).permission == 4
    assert "brokerPermission=4" in (tmp_path / "broker.conf").read_text()


async def test_options_are_shown_with_their_version(tmp_path: Path) -> None:
    settings = Settings.load(BrokerConfig, ServerConfig, role=ServerRole.BROKER)
    options = _options(settings, tmp_path, Registered())

    def version() -> int:
        reply = options.show(TOOL, request(GetBrokerConfig()))
        assert b"brokerPermission=" in reply.body
        text = BrokerConfigReply.decode(reply.fields).data_version or ""
        return java_json.decode(text.encode(), DataVersion).counter

    assert version() == 0
    await options.update(TOOL, request(UpdateBrokerConfig(), b"brokerPermission=6\n"))
    assert version() == 0  # it is what it was
    await options.update(TOOL, request(UpdateBrokerConfig(), b"brokerPermission=4\n"))
    assert version() == 1


@pytest.mark.parametrize("name", ["configBlackList", "brokerConfigPath", "rocketmqHome"])
async def test_options_on_the_black_list_cannot_be_changed(tmp_path: Path, name: str) -> None:
    settings = Settings.load(BrokerConfig, ServerConfig, role=ServerRole.BROKER)
    options = _options(settings, tmp_path, Registered())

    with pytest.raises(RequestRefusedError, match=name) as refused:
        await options.update(TOOL, request(UpdateBrokerConfig(), f"{name}=x\n".encode()))

    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert set(options.by_code()) == {25, 26}
