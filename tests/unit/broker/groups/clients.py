"""Fake connections and heartbeats of clients."""

from __future__ import annotations

from orbitmq.clock import ManualClock
from orbitmq.model.subscriptions import MessageModel, Subscription
from orbitmq.protocol.requests.clients import ConsumerGroup, HeartbeatBody, ProducerGroup
from orbitmq.transport.connection import Connection
from orbitmq.transport.limits import ByteBudget, CallBudgets, ConnectionLimits
from orbitmq.transport.request_loop import RequestLoop
from orbitmq.transport.warning_limit import WarningLimit

MIB = 1024 * 1024


def new_connection(address: str = "10.0.0.1:1") -> Connection:
    """A connection that was never made, and counts as open."""
    clock = ManualClock()
    connection = Connection(
        processor=RequestLoop({}),
        limits=ConnectionLimits(
            frame_bytes_max=MIB, work_bytes_max=MIB, write_high_water_bytes=MIB, write_bytes_max=MIB
        ),
        kept_bytes=ByteBudget(MIB),
        calls=CallBudgets(oneway_max=1, unanswered_max=1),
        clock=clock,
        warnings=WarningLimit(clock, "connections closed for bad input or refused"),
        on_open=lambda _: None,
        on_close=lambda _connection, _error: None,
        address=address,
    )
    connection.closed = False
    return connection


def subscription(topic: str, expression: str = "*", version: int = 1) -> Subscription:
    return Subscription(topic=topic, expression=expression, version=version)


def consumer(group: str, *subscriptions: Subscription, model: str = "CLUSTERING") -> ConsumerGroup:
    return ConsumerGroup(
        group=group, subscriptions=list(subscriptions), message_model=MessageModel(model)
    )


def heartbeat(
    client_id: str,
    *consumers: ConsumerGroup,
    produces: tuple[str, ...] = (),
    fingerprint: int = 0,
    without_subscriptions: bool = False,
) -> HeartbeatBody:
    return HeartbeatBody(
        client_id=client_id,
        consumers=list(consumers),
        producers=[ProducerGroup(group=group) for group in produces],
        fingerprint=fingerprint,
        without_subscriptions=without_subscriptions,
    )
