"""Locks on queues, which let one client of a group consume a queue in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from orbitmq.java_json import JavaInt
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header

# Bodies above this size must be standard JSON, as every client writes them.
BODY_TOLERATED_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LockQueues(Header):
    """Lock the queues of a `QueuesToLock`, or renew the locks; the reply's body: `LockedQueues`."""

    CODE = RequestCode.LOCK_BATCH_MQ


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockQueues(Header):
    """Unlock the queues of a `QueuesToLock`; often sent one way."""

    CODE = RequestCode.UNLOCK_BATCH_MQ


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQueueLocks(Header):
    """Ask for the owners of all locks; the reply's body is as a broker's file of locks."""

    CODE = RequestCode.LIST_QUEUE_LOCKS


class QueuesToLock(msgspec.Struct, kw_only=True):
    """The queues a client wants to lock or unlock."""

    client_id: str = msgspec.field(name="clientId")
    consumer_group: str = msgspec.field(name="consumerGroup")
    queues: list[MessageQueue] = msgspec.field(default_factory=list, name="mqSet")
    this_broker_only: bool = msgspec.field(default=False, name="onlyThisBroker")
    # Ours only: how long the client consumes without a renewal.
    trust_ms: JavaInt | None = msgspec.field(default=None, name="orbitTrustMillis")


class LockedQueues(msgspec.Struct, kw_only=True):
    """The wanted queues that the client has now locked."""

    queues: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")
