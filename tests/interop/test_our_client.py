"""Our transport client talks to official name servers and brokers, in both encodings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from orbitmq import java_json
from orbitmq.client.aio.instance.name_servers import NameServers
from orbitmq.errors import NeedsOrbitError, NotSupportedError, RouteNotFoundError
from orbitmq.model.routes import ClusterView, TopicRoute
from orbitmq.protocol.codes import OWN_CODES, RequestCode, ResponseCode
from orbitmq.protocol.command import Command, request
from orbitmq.protocol.failures import raise_for_failure
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.requests.configuration import GetBrokerConfig, GetNameServerConfig
from orbitmq.protocol.requests.key_values import GetKeyValue, PutKeyValue
from orbitmq.protocol.requests.routing import GetClusterView, GetRoute
from orbitmq.transport.rpc_client import RpcClient
from tests.interop.official import OfficialBroker
from tests.interop.peers import NameServer

pytestmark = pytest.mark.interop


@pytest.fixture
async def rpc() -> AsyncIterator[RpcClient]:
    async with RpcClient() as client:
        yield client


@pytest.mark.scenario("broker", "answers our client: route, clusters, options")
async def test_route_clusters_and_options_are_read_from_official_servers(
    rpc: RpcClient, broker: OfficialBroker, name_server: NameServer
) -> None:
    servers = NameServers([name_server.address], rpc)

    route = await servers.route("TBW102")
    view = await servers.cluster_view()
    server_options = await servers.ask(GetNameServerConfig())
    broker_options = await rpc.call(broker.address, GetBrokerConfig())

    addresses = {group.name: group.addresses[0] for group in route.brokers}
    assert addresses[broker.name] == broker.address
    assert view.brokers[broker.name].addresses == {0: broker.address}
    assert "listenPort=" in server_options.body.decode()
    assert f"brokerName={broker.name}" in broker_options.body.decode().splitlines()


@pytest.mark.parametrize("encoding", Encoding, ids=lambda encoding: encoding.name.lower())
async def test_both_encodings_are_understood_by_official_servers(
    rpc: RpcClient, broker: OfficialBroker, name_server: NameServer, encoding: Encoding
) -> None:
    route = await rpc.invoke(
        name_server.address, request(GetRoute(topic="TBW102"), encoding=encoding)
    )
    old = request(GetClusterView(), encoding=encoding)
    old.version = 317
    view = await rpc.invoke(name_server.address, old)
    options = await rpc.invoke(broker.address, request(GetBrokerConfig(), encoding=encoding))

    names = {group.name for group in java_json.decode(route.body, TopicRoute).brokers}
    assert broker.name in names
    assert broker.name in java_json.decode(view.body, ClusterView).brokers
    assert options.code == ResponseCode.SUCCESS


async def test_key_values_with_odd_characters_survive_an_official_name_server(
    rpc: RpcClient, name_server: NameServer
) -> None:
    value = 'ä "quoted" \\ 中文 \t end'

    await rpc.call(name_server.address, PutKeyValue(namespace="interop", key="k", value=value))
    answer = await rpc.call(name_server.address, GetKeyValue(namespace="interop", key="k"))

    assert answer.fields["value"] == value


async def test_refusals_of_official_servers_become_errors_that_say_what_to_do(
    rpc: RpcClient, broker: OfficialBroker, name_server: NameServer
) -> None:
    with pytest.raises(RouteNotFoundError, match="create the topic"):
        await NameServers([name_server.address], rpc).route("nobody-has-this")

    own = Command(code=OWN_CODES[0])
    refused = await rpc.invoke(broker.address, own)
    with pytest.raises(NeedsOrbitError, match="this needs an OrbitMQ broker"):
        raise_for_failure(own, refused, broker.address)

    foreign = Command(code=RequestCode.AUTH_LIST_USER, fields={})
    answer = await rpc.invoke(name_server.address, foreign)
    with pytest.raises(NotSupportedError):
        raise_for_failure(foreign, answer, name_server.address)
