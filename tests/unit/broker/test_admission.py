"""Admission: when sends are refused, and with which reason."""

from __future__ import annotations

from orbitmq.broker.admission import Admission
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.confirmations import Confirmations
from orbitmq.clock import ManualClock
from orbitmq.model.queues import PhysicalOffset
from orbitmq.protocol.codes import ResponseCode


def _admission(config: BrokerConfig, clock: ManualClock) -> tuple[Admission, Confirmations]:
    confirmations = Confirmations(
        flushed=PhysicalOffset(0), is_fenced=lambda: False, timeout_ms=5000, clock=clock
    )
    admission = Admission(
        config=lambda: config, confirmations=confirmations, clock=clock, by_role=lambda: None
    )
    admission.is_open = True
    return admission, confirmations


async def test_sends_are_accepted_while_the_broker_runs() -> None:
    admission, _ = _admission(BrokerConfig(), ManualClock())
    assert admission.accepts()

    admission.is_open = False

    assert admission.refusal() == (
        ResponseCode.SYSTEM_BUSY,
        "[REJECTREQUEST] the broker is stopping",
    )


async def test_sends_are_refused_until_the_configured_time() -> None:
    clock = ManualClock()
    admission, _ = _admission(BrokerConfig(accept_sends_ms=clock.now_ms() + 1000), clock)
    refusal = admission.refusal()
    assert refusal is not None
    assert "startAcceptSendRequestTimeStamp" in refusal[1]

    await clock.advance(1000)

    assert admission.accepts()


async def test_too_many_sends_that_wait_for_the_disk_block_others_unless_disabled() -> None:
    clock = ManualClock()
    admission, confirmations = _admission(BrokerConfig(unconfirmed_max=1), clock)
    patient, waiting = _admission(BrokerConfig(unconfirmed_max=1, fast_failure=False), clock)
    for each in (confirmations, waiting):
        each.reply_later(PhysicalOffset(10), None, lambda _durability, _reply: b"", None)  # type: ignore[arg-type]

    refusal = admission.refusal()

    assert refusal is not None
    assert refusal[0] is ResponseCode.SYSTEM_BUSY
    assert "sendThreadPoolQueueCapacity=1" in refusal[1]
    assert patient.accepts()
