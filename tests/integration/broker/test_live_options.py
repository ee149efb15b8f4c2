"""Which options strangers may change while the broker runs."""

from __future__ import annotations

import pytest

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.replication.config import ReplicationConfig
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.requests.configuration import GetBrokerConfig, UpdateBrokerConfig
from orbitmq.settings import describe
from orbitmq.store.config import StoreConfig
from orbitmq.store.retention import RetentionConfig
from orbitmq.transport.config import ServerConfig, TlsServerConfig
from tests.integration.broker.conftest import Peer, Site

SERVER_CONFIGS = (
    BrokerConfig,
    StoreConfig,
    RetentionConfig,
    ReplicationConfig,
    NameServerConfig,
    ServerConfig,
    TlsServerConfig,
)
DANGEROUS = [
    "namesrvAddr=10.0.0.1:9876",
    "fileReservedTime=0",
    "deleteWhen=0;1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18;19;20;21;22;23",
    "diskMaxUsedSpaceRatio=10",
    "diskSpaceCleanForciblyRatio=30",
    "diskSpaceWarningLevelRatio=35",
    "cleanFileForciblyEnable=false",
    f"diskFreeBytesMin={1 << 60}",
    "deleteFileBatchMax=10000",
    f"startAcceptSendRequestTimeStamp={1 << 62}",
    "sendThreadPoolQueueCapacity=1",
    "pullThreadPoolQueueCapacity=10000000",
]


@pytest.mark.parametrize("change", DANGEROUS)
async def test_a_change_that_can_do_harm_is_refused_with_what_to_do_instead(
    site: Site, peer: Peer, change: str
) -> None:
    before = (await peer.ask(GetBrokerConfig())).body

    refused = await peer.ask(UpdateBrokerConfig(), f"longPollingEnable=false\n{change}\n".encode())

    assert refused.code == ResponseCode.NO_PERMISSION
    assert change.partition("=")[0] in refused.remark
    assert "set it in the server's file and restart" in refused.remark
    assert "allowGuardedUpdates=true" in refused.remark
    assert (await peer.ask(GetBrokerConfig())).body == before
    assert not (site.folder / "store" / "config" / "broker.properties").exists()


async def test_a_change_to_the_present_value_is_no_change(peer: Peer) -> None:
    same = await peer.ask(UpdateBrokerConfig(), b"fileReservedTime=72\nmaxMessageSize=65537\n")

    assert same.code == ResponseCode.SUCCESS
    assert b"maxMessageSize=65537\n" in (await peer.ask(GetBrokerConfig())).body


@pytest.mark.parametrize("options", [{"allowGuardedUpdates": "true"}])
async def test_a_server_that_allows_it_takes_every_live_option(peer: Peer) -> None:
    for change in DANGEROUS:
        assert (await peer.ask(UpdateBrokerConfig(), change.encode())).code == ResponseCode.SUCCESS

    lines = (await peer.ask(GetBrokerConfig())).body.decode().splitlines()
    assert "diskFreeBytesMin=1152921504606846976" in lines


@pytest.mark.parametrize("options", [{}, {"allowGuardedUpdates": "true"}])
async def test_no_update_can_allow_or_forbid_guarded_updates(
    peer: Peer, options: dict[str, str]
) -> None:
    other = "false" if options else "true"

    refused = await peer.ask(UpdateBrokerConfig(), f"allowGuardedUpdates={other}".encode())

    assert refused.code != ResponseCode.SUCCESS
    assert "only at start" in refused.remark


def test_what_anybody_may_change_deletes_nothing_and_can_be_undone() -> None:
    # Weigh a new name: whoever can connect can set it to any value of its range.
    assert {row.name for row in describe(*SERVER_CONFIGS) if row.live and not row.guarded} == {
        "brokerFastFailureEnable",
        "brokerPermission",
        "bulkPullBytesMax",
        "bulkPullCountMax",
        "enableAllTopicList",
        "enablePropertyFilter",
        "enableTopicList",
        "longPollingEnable",
        "maxMessageSize",
        "needWaitForService",
        "notifyConsumerIdsChangedEnable",
        "orderMessageEnable",
        "recallMessageEnable",
        "rejectTransactionMessage",
        "returnOrderTopicConfigToBroker",
        "shortPollingTimeMills",
        "slaveReadEnable",
        "storeReplyMessageEnable",
        "supportActingMaster",
        "waitSecondsForService",
    }
