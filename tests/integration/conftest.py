"""Integration tests hold on a machine that stands still for seconds, as a busy one does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from orbitmq.broker import registration
from orbitmq.broker.handlers import relays
from orbitmq.client.aio.admin import groups
from orbitmq.client.aio.instance.broker_calls import BrokerCalls
from orbitmq.client.aio.instance.name_servers import NameServers
from orbitmq.client.keywords import options_of
from orbitmq.client.options import ProducerOptions, PullOptions
from orbitmq.settings.environment import variables_of
from orbitmq.settings.option import describe
from orbitmq.transport.config import ClientConfig
from orbitmq.transport.rpc_client import RpcClient

# Far above what a machine stalls, and below the time limit of a test. Tests of a time limit set
# their own.
PATIENCE_MS: Final = 60_000

# Of clients, in processes of ours too.
PATIENT_ENVIRONMENT: Final = {
    variables_of(option.name)[0]: str(PATIENCE_MS)
    for options in (ProducerOptions, PullOptions)
    for option in describe(options)
    if option.field
    in {"call_timeout_ms", "connect_timeout_ms", "send_timeout_ms", "pull_timeout_ms"}
}
_LIMITS: Final = (
    (registration, "_START_WAIT_MS"),
    (registration, "_CHANGES_WAIT_MS"),
    (registration, "_UNREGISTER_TIMEOUT_MS"),
    (relays, "_RELAY_TIMEOUT_MS"),
    (relays, "_OFFSETS_TIMEOUT_MS"),
    (groups, "_RELAY_TIMEOUT_MS"),
)

_DEFAULTS: Final = (
    ("connect_timeout_ms", PATIENCE_MS),
    # Less: some stop while a call is never answered.
    ("shutdown_grace_seconds", 15),
)


def _keyword_defaults(options: type) -> dict[str, object]:
    defaults = vars(options)["__init__"].__kwdefaults__
    assert isinstance(defaults, dict)
    return defaults


@pytest.fixture(autouse=True, scope="module")
def patience() -> Iterator[None]:
    """Let what is given no time limit wait longer than any stall."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in PATIENT_ENVIRONMENT.items():
            patch.setenv(variable, value)
        assert options_of(ProducerOptions, {}).send_timeout_ms == PATIENCE_MS
        for module, name in _LIMITS:
            patch.setattr(module, name, PATIENCE_MS)
        for limit, most in _DEFAULTS:
            patch.setitem(_keyword_defaults(ClientConfig), limit, most)
        for calls in (RpcClient, BrokerCalls, NameServers):
            for method in vars(calls).values():
                defaults = getattr(method, "__kwdefaults__", None) or {}
                if "timeout_ms" in defaults:
                    patch.setitem(defaults, "timeout_ms", float(PATIENCE_MS))
        yield
