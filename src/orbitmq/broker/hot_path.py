"""The hot path: sends and pulls of a whole chunk in one call.

A plain send or batch (its topic exists; no delay, no transaction, no retry) is appended here, if the
compiled reader is available. Its reply waits for the disk together with all others of the flush
round. Anything special or invalid takes the ordinary way, which knows all rules and explains
refusals.

Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from orbitmq.broker.durability import IN_MEMORY
from orbitmq.broker.send_replies import PlainSendReply
from orbitmq.errors import OrbitError, ProtocolError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.protocol import fast_forms
from orbitmq.protocol.command import ONEWAY_FLAG, RESPONSE_FLAG
from orbitmq.protocol.frame import frame_end
from orbitmq.protocol.plain_sends import PlainSend
from orbitmq.protocol.pull_frames import read_pull
from orbitmq.record.hosts import encode_host
from orbitmq.record.properties import encode_properties
from orbitmq.transport.addresses import parse_address
from orbitmq.transport.request_loop import FRAMES_PER_TURN
from orbitmq.transport.turns import LARGE_FRAME_BYTES, TURN_MS, SlowTurnNeeded

if TYPE_CHECKING:
    from orbitmq.broker.confirmations import Confirmations
    from orbitmq.broker.delivery.pulls import Pulls
    from orbitmq.broker.plain_topics import PlainTopic
    from orbitmq.broker.send_replies import SendReplies
    from orbitmq.clock import Clock
    from orbitmq.protocol.fast_forms import ReadSend
    from orbitmq.protocol.plain_sends import PlainBatch
    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.connection import Connection
    from orbitmq.transport.request_loop import RequestLoop


# Waiting replies are counted by number; a longer id takes the ordinary way, which counts its bytes.
_UNIQUE_ID_BYTES_MAX: Final = 255


class HotPath:
    """Processes chunks; a broker has one per port."""

    def __init__(  # noqa: PLR0913  # the parts it works on
        self,
        requests: RequestLoop,
        *,
        store: MessageStore,
        confirmations: Confirmations,
        pulls: Pulls,
        replies: SendReplies,
        plain_topic: Callable[[bytes], PlainTopic | None],
        accepts_sends: Callable[[], bool],
        broker_properties: dict[str, str],
        clock: Clock,
        read_send: ReadSend | None = fast_forms.read_send,
    ) -> None:
        self._requests = requests
        self._store = store
        self._appender = store.appender
        self._append = store.appender.append
        self._confirmations = confirmations
        self._pulls = pulls
        self._encode_reply = replies.encode
        self._plain_topic = plain_topic
        self._accepts_sends = accepts_sends
        # Properties that the broker adds to every message.
        self._broker_properties = encode_properties(broker_properties)
        self._id_prefix = store.store_host.hex().upper().encode()
        self._clock = clock
        # None without compiled code: all sends take the ordinary way then.
        self._read_send = read_send
        self._loop = asyncio.get_running_loop()
        self._publish_is_due = False

    def process(  # noqa: C901, PLR0912  # Perf: flat, a call less per message
        self, connection: Connection, chunk: bytes
    ) -> tuple[int, bytes]:
        """Answer complete frames of the chunk; see `Processor`."""
        replies: list[bytes] = []
        replies_bytes = position = 0
        chunk_bytes = len(chunk)
        frame_bytes_max = connection.frame_bytes_max
        replies_bytes_max = connection.replies_bytes_max
        frames_left = FRAMES_PER_TURN
        broker_properties = self._broker_properties
        now_ms = self._clock.now_ms()
        turn_ends_ms = self._clock.monotonic_ms() + TURN_MS
        read_send = self._read_send if self._accepts_sends() else None
        while position < chunk_bytes and frames_left:
            try:
                end = frame_end(chunk, position, frame_bytes_max)
                if end == 0 or end > chunk_bytes:
                    break
                send = (
                    None
                    if read_send is None
                    else read_send(chunk, position, end, broker_properties)
                )
                reply: bytes | None
                if send is None:
                    if end - position > LARGE_FRAME_BYTES:
                        connection.require_slow_turn()
                    reply = self._pull(connection, chunk, position, end)
                elif isinstance(send, PlainSend):
                    reply = self._send(connection, send, now_ms)
                else:
                    reply = self._send_batch(connection, send, chunk, end, now_ms)
                if reply is None:
                    reply = self._requests.process_frame(connection, chunk, position, end)
            except SlowTurnNeeded:
                break
            except ProtocolError:
                if position:
                    # Frames before the broken one are answered first.
                    break
                raise
            if reply:
                replies.append(reply)
                replies_bytes += len(reply)
            position = end
            frames_left -= 1
            if replies_bytes > replies_bytes_max:
                break
            # Perf: a plain send takes microseconds; their number bounds a turn of them.
            if type(send) is not PlainSend and self._clock.monotonic_ms() > turn_ends_ms:
                break
        return position, b"".join(replies)

    def _pull(self, connection: Connection, chunk: bytes, start: int, end: int) -> bytes | None:
        """Answer a pull; None if it is not one, or is refused: the ordinary way explains why."""
        read = read_pull(chunk, start, end)
        if read is None:
            return None
        frame, encoding = read
        if frame.flag & RESPONSE_FLAG:
            # A reply to the broker's own request, whatever its code.
            return None
        try:
            return self._pulls.answer(
                connection,
                frame.fields,
                opaque=frame.opaque,
                encoding=encoding,
                is_oneway=frame.flag & ONEWAY_FLAG != 0,
            )
        except OrbitError:
            return None

    def _send(self, connection: Connection, send: PlainSend, now_ms: int) -> bytes | None:
        """Append a plain message; None if its topic is special, or it cannot be stored."""
        (
            name,
            queue_id,
            system_flag,
            born_ms,
            user_flag,
            reconsume_times,
            properties,
            unique_id,
            waits,
            body,
            opaque,
            flag,
            encoding,
        ) = send
        topic = self._plain_topic(name)
        if topic is None or queue_id >= topic.queues or len(unique_id) > _UNIQUE_ID_BYTES_MAX:
            return None
        try:
            offset, record_bytes, queue_offset, _ = self._append(
                name,
                queue_id,
                body,
                properties,
                user_flag,
                system_flag,
                born_ms,
                born_host(connection.address),
                reconsume_times,
                0,
                now_ms,
            )
        except OrbitError:
            return None
        self._publish_soon()
        topic.counter.add(1, record_bytes)
        if flag & ONEWAY_FLAG:
            return b""
        reply = PlainSendReply(
            opaque,
            encoding,
            self._id_prefix + b"%016X" % offset,
            queue_id,
            queue_offset,
            unique_id,
        )
        return self._reply(connection, reply, offset + record_bytes, waits=waits)

    def _send_batch(
        self, connection: Connection, batch: PlainBatch, chunk: bytes, chunk_end: int, now_ms: int
    ) -> bytes | None:
        """Append all messages of a batch; None if one is special, or they cannot be stored."""
        topic = self._plain_topic(batch.topic)
        if (
            topic is None
            or batch.queue_id >= topic.queues
            or chunk_end - batch.body_start > self._appender.body_bytes_max
        ):
            return None
        try:
            place = self._appender.append_packed(
                batch.topic,
                batch.queue_id,
                chunk,
                batch.body_start,
                chunk_end,
                batch.message_count,
                batch.content_bytes,
                self._broker_properties,
                batch.born_ms,
                born_host(connection.address),
                batch.reconsume_times,
                now_ms,
            )
        except OrbitError:
            return None
        if place is None:
            return None
        self._publish_soon()
        offset, records_bytes, queue_offset, ids = place
        topic.counter.add(batch.message_count, records_bytes)
        if batch.command_flag & ONEWAY_FLAG:
            return b""
        reply = PlainSendReply(batch.opaque, batch.encoding, ids, batch.queue_id, queue_offset, b"")
        return self._reply(connection, reply, offset + records_bytes, waits=batch.waits)

    def _reply(
        self, connection: Connection, reply: PlainSendReply, end: int, *, waits: bool
    ) -> bytes:
        """Encode the reply to an append that ends at `end`; empty if it waits until that is safe."""
        if waits and self._confirmations.waits:
            return self._confirmations.reply_later(
                PhysicalOffset(end), connection, self._encode_reply, reply
            )
        return self._encode_reply(IN_MEMORY, reply)

    def _publish_soon(self) -> None:
        if not self._publish_is_due:
            self._publish_is_due = True
            self._loop.call_soon(self._publish)

    def _publish(self) -> None:
        """Flush or publish what all chunks of this turn of the loop appended."""
        self._publish_is_due = False
        self._store.settle()


@lru_cache(maxsize=65_536)
def born_host(address: str) -> bytes:
    """Encode a peer's address as records store it."""
    return encode_host(*parse_address(address))
