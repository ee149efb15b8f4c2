"""Locks on queues, which let one client of a group consume a queue in order."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.headers import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class LockQueues(Header):
    """Lock the queues of a `QueuesToLock`, or keep them; the reply's body is `LockedQueues`."""

    CODE = RequestCode.LOCK_BATCH_MQ


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockQueues(Header):
    """Give the queues of a `QueuesToLock` back; often sent one way."""

    CODE = RequestCode.UNLOCK_BATCH_MQ


class QueuesToLock(msgspec.Struct, kw_only=True):
    """The queues a client wants to lock or to give back."""

    client_id: str = msgspec.field(name="clientId")
    consumer_group: str = msgspec.field(name="consumerGroup")
    queues: list[MessageQueue] = msgspec.field(default_factory=list, name="mqSet")
    this_broker_only: bool = msgspec.field(default=False, name="onlyThisBroker")


class LockedQueues(msgspec.Struct, kw_only=True):
    """Those of the wanted queues that the client now holds."""

    queues: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")
