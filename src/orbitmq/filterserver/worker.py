"""A process that runs one filter function for the filter server.

It reads batches of records from its standard input and writes outcomes to what was its standard
output; the function's own output goes to standard error. On both, 4 bytes give the length of the
MessagePack document that follows. The first document it writes says whether the function was loaded.

Threads: one, and a watchdog that needs no Python: it ends a process whose function hangs, even in
C code, after it has written where.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import struct
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from orbitmq.clock import SystemClock
from orbitmq.filterserver.plugins import FilterContext, installed_filters, load_filter
from orbitmq.record.decode import decode_record

if TYPE_CHECKING:
    from orbitmq.filterserver.plugins import FilterFunction
    from orbitmq.record.decode import StoredMessage

LENGTH: Final = struct.Struct(">I")
CAUSE_LENGTH_MAX: Final = 500
# Between the cause of a failure and the message that the function failed on.
AT_MESSAGE: Final = "; message "


class Batch(msgspec.Struct, array_like=True, gc=False):
    """Records to filter for a group, back to back."""

    group: str
    records: bytes


class Outcome(msgspec.Struct, array_like=True, gc=False):
    """What a function said about a batch."""

    # Starts and ends of the records it accepts; records beside each other are one span.
    accepted: list[int] = []
    # How many bytes it has seen, and the queue offset after the last record among them.
    seen_bytes: int = 0
    next_offset: int = 0
    # Why it could not go on from there; empty if it only ran out of time, or saw all.
    failure: str = ""


def write_document(to: BinaryIO, document: Batch | Outcome) -> None:
    """Write one document."""
    content = msgspec.msgpack.encode(document)
    to.write(LENGTH.pack(len(content)) + content)
    to.flush()


def filter_batch(
    function: FilterFunction,
    batch: Batch,
    *,
    time_ms: float,
    now_ms: Callable[[], float],
) -> Outcome:
    """Run a function over a batch until it fails or the time is over; it sees one record at least."""
    context = FilterContext(batch.group)
    outcome = Outcome()
    ends_ms = now_ms() + time_ms
    at = 0
    while at < len(batch.records):
        message = decode_record(batch.records, at)
        try:
            accepts = _accepts(function, message, context)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the border: it becomes an answer
            at_message = f"{message.message_id} at offset {message.queue_offset}"
            outcome.failure = f"{_cause(error, function)}{AT_MESSAGE}{at_message}"
            break
        end = at + message.size
        if accepts:
            _add_span(outcome.accepted, at, end)
        at = outcome.seen_bytes = end
        outcome.next_offset = message.queue_offset + 1
        if now_ms() >= ends_ms:
            break
    return outcome


def _accepts(function: FilterFunction, message: StoredMessage, context: FilterContext) -> bool:
    answer: object = function(message, context)
    if not isinstance(answer, bool):
        # A forgotten return would reject every message, a coroutine accept every one.
        raise TypeError(f"it returned {type(answer).__name__}, not True or False")
    return answer


def _add_span(spans: list[int], start: int, end: int) -> None:
    if spans and spans[-1] == start:
        spans[-1] = end
    else:
        spans += (start, end)


def _cause(error: BaseException, function: FilterFunction | None = None) -> str:
    text = f"{type(error).__name__}: {error}"[:CAUSE_LENGTH_MAX]
    place = _place(error, function)
    return f"{text}, at {place}" if place else text


def _place(error: BaseException, function: FilterFunction | None) -> str:
    """The innermost line of the function's own module, else where it is defined, else the last."""
    places = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
    if function is not None:
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        own = [place for place in places if place[0] == getattr(module, "__file__", None)]
        # If it takes other arguments, or returned something wrong, the traceback does not show it.
        places = own or _definition(function) or places
    return f"{places[-1][0]}:{places[-1][1]}" if places else ""


def _definition(function: FilterFunction) -> list[tuple[str, int | None]]:
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return [(code.co_filename, code.co_firstlineno)] if code else []


def main(name: str, *, time_limit_ms: int, memory_bytes_max: int) -> None:
    """Run the function of that name over batches until the input ends."""
    batches = os.fdopen(os.dup(0), "rb")
    outcomes = os.fdopen(os.dup(1), "wb")
    # The function may read and print: neither may touch the documents.
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123  # a device
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    if memory_bytes_max:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes_max, memory_bytes_max))
    try:
        function = load_filter(name, installed_filters()[name])
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the border: it becomes an answer
        write_document(outcomes, Outcome(failure=f"cannot be loaded: {_cause(error)}"))
        return
    write_document(outcomes, Outcome())
    now_ms = SystemClock().monotonic_ms
    decoder = msgspec.msgpack.Decoder(Batch)
    while len(length := batches.read(LENGTH.size)) == LENGTH.size:
        batch = decoder.decode(batches.read(*LENGTH.unpack(length)))
        faulthandler.dump_traceback_later(time_limit_ms / 1000, exit=True)
        outcome = filter_batch(function, batch, time_ms=time_limit_ms / 2, now_ms=now_ms)
        faulthandler.cancel_dump_traceback_later()
        write_document(outcomes, outcome)


if __name__ == "__main__":
    main(sys.argv[1], time_limit_ms=int(sys.argv[2]), memory_bytes_max=int(sys.argv[3]))
