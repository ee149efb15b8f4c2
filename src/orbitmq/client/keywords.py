"""Options as keyword arguments: their types for type checkers, and their checks.

Each `…Keywords` has the fields of the options class of the same name; a test compares them.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict, TypeVar

from orbitmq.client.options import ClientOptions
from orbitmq.errors import UnknownOptionError
from orbitmq.settings import Option, describe
from orbitmq.settings.environment import variables_of

O = TypeVar("O", bound=ClientOptions)  # noqa: E741  # reads as "the options class"


class ClientKeywords(TypedDict, total=False):
    """Keyword arguments of every client."""

    namesrv: str
    namesrv_domain: str
    namesrv_subgroup: str
    namesrv_interval_ms: int
    client_ip: str
    instance_name: str
    unit_name: str
    namespace: str
    access_key: str
    secret_key: str
    security_token: str
    tls: bool
    tls_verify_server: bool
    tls_trusted_path: str
    tls_certificate_path: str
    tls_key_path: str
    tls_key_password: str
    vip_channel: bool
    route_interval_ms: int
    heartbeat_interval_ms: int
    persist_interval_ms: int
    call_timeout_ms: int
    connect_timeout_ms: int


class TracedKeywords(ClientKeywords, total=False):
    """Keyword arguments of producers and consumers."""

    trace: bool
    trace_topic: str
    trace_batch_size: int
    trace_interval_ms: int
    trace_pending_max: int
    trace_close_ms: int
    opentelemetry: bool


class ProducerKeywords(TracedKeywords, total=False):
    """Keyword arguments of a producer."""

    send_timeout_ms: int
    retries: int
    async_retries: int
    retry_pause_ms: int
    try_timeout_ms: int
    retry_another_broker_when_not_store_ok: bool
    avoid_slow_brokers: bool
    compress_above_bytes: int
    compress_kind: str
    compress_level: int
    max_message_bytes: int
    template_topic: str
    template_queues: int
    accumulate: bool
    accumulate_delay_ms: int
    accumulate_batch_bytes: int
    accumulate_held_bytes: int


class ConsumerKeywords(TracedKeywords, total=False):
    """Keyword arguments of every consumer."""

    message_model: str
    local_offset_dir: Path


class MemberKeywords(ConsumerKeywords, total=False):
    """Keyword arguments of consumers that get their queues by rebalancing."""

    consume_from: str
    consume_timestamp_ms: int
    rebalance_interval_ms: int


class PushKeywords(MemberKeywords, total=False):
    """Keyword arguments of a push consumer."""

    concurrency: int
    consume_batch_size: int
    consume_timeout_minutes: int
    stall_warning_ms: int
    max_reconsume_times: int
    suspend_current_queue_ms: int
    lock_trust_ms: int
    await_termination_ms: int
    pull_batch_size: int
    pull_batch_bytes: int
    pull_interval_ms: int
    pull_retry_ms: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    consume_concurrently_max_span: int


class LitePullKeywords(MemberKeywords, total=False):
    """Keyword arguments of a lite pull consumer."""

    auto_commit: bool
    auto_commit_interval_ms: int
    poll_timeout_ms: int
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_threshold_for_all: int
    pull_retry_ms: int
    hold_ms: int
    held_pull_timeout_ms: int


class PullKeywords(ConsumerKeywords, total=False):
    """Keyword arguments of a pull consumer."""

    pull_timeout_ms: int
    hold_ms: int
    held_pull_timeout_ms: int


def options_of(
    options_class: type[O],
    keywords: Mapping[str, object],
    *,
    environment: Mapping[str, str] | None = None,
) -> O:
    """Make options from keyword arguments, and from the environment where they are missing."""
    where = options_class.__name__
    rows = {row.field: row for row in describe(options_class)}
    values: dict[str, object] = {}
    for name, value in keywords.items():
        row = rows.get(name)
        if row is None:
            raise UnknownOptionError(name, where=where, nearest=_nearest(name, rows))
        # The error must name the keyword, not the spelling in configuration files.
        dataclasses.replace(row, name=name).check(value, where=where)
        values[name] = value
    environment = os.environ if environment is None else environment
    for name, row in rows.items():
        if name not in values:
            values |= _from_environment(row, environment)
    return options_class(**values)  # type: ignore[arg-type]  # checked by the rows


def _nearest(name: str, rows: Mapping[str, Option]) -> str | None:
    """Find the keyword that was probably meant; RocketMQ's name of an option counts too."""
    for row in rows.values():
        if row.name == name:
            return row.field
    matches = difflib.get_close_matches(name, rows, n=1)
    return matches[0] if matches else None


def _from_environment(row: Option, environment: Mapping[str, str]) -> dict[str, object]:
    for variable in (*variables_of(row.name), *row.environment):
        text = environment.get(variable)
        if text:
            return {row.field: row.parse(text, where=f"environment {variable}")}
    return {}
