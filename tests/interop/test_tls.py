"""Official clients that speak TLS reach our name server, which takes nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.nameserver.app import NameServer, load_settings
from tests.interop.drivers import DriverError, JavaDriver
from tests.interop.peers import ADMINS

pytestmark = pytest.mark.interop


@pytest.fixture(params=ADMINS, ids=str)
def tls_admin(
    request: pytest.FixtureRequest, new_folder: Callable[[str], Path]
) -> Iterator[JavaDriver]:
    """The official mqadmin with TLS switched on."""
    line = request.param.line
    driver = JavaDriver(line, new_folder(f"tls-driver-{line}"), ["tls.enable=true"])
    yield driver.start()
    driver.stop()


@pytest.mark.scenario("tls_admin", "updateKvConfig over TLS")
async def test_a_client_with_tls_is_served_by_an_enforcing_name_server_and_a_plain_one_is_not(
    tls_admin: JavaDriver, drivers: Callable[[str], JavaDriver], tmp_path: Path
) -> None:
    server = NameServer(
        load_settings(
            flags={
                "bindAddress": "127.0.0.1",
                "listenPort": "0",
                "kvConfigPath": str(tmp_path / "kv.json"),
                "tls.server.mode": "enforcing",
            }
        )
    )
    await server.start()
    namesrv = f"127.0.0.1:{server.port}"
    put = ["updateKvConfig", "-s", "tls", "-v", "yes", "-n", namesrv, "-k"]

    try:
        await asyncio.to_thread(tls_admin.mqadmin, *put, "over-tls")
        with pytest.raises(DriverError):
            await asyncio.to_thread(drivers("v5").mqadmin, *put, "plain")

        assert server.key_values.namespace("tls") == {"over-tls": "yes"}
    finally:
        await server.stop()
