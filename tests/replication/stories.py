"""Made-up histories: told step by step, with a clock that moves when it is told to."""

from __future__ import annotations

from collections.abc import Sequence

from tests.replication.history import (
    Assigned,
    CommitAcked,
    CommitInvoked,
    CommittedSeen,
    Delivered,
    Fenced,
    Followed,
    History,
    Killed,
    LagBegan,
    LogEndSeen,
    Loss,
    MessageRead,
    Paused,
    PowerLost,
    Promoted,
    Queue,
    Resumed,
    ScanEnded,
    SendAcked,
    SendFailed,
    SendInvoked,
    SendUnknown,
    Started,
)

BROKER = "a"
MASTER, SLAVE = "master", "slave"
QUEUE = Queue(BROKER, "T", 0)
OTHER_QUEUE = Queue(BROKER, "T", 1)


class Story:
    """One queue, one producer, one group, one master and its slave, unless told otherwise."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.history = History(lambda: self.now_ms)

    def wait(self, ms: float) -> Story:
        """Let time pass."""
        self.now_ms += ms
        return self

    # --- sends --------------------------------------------------------------------------------

    def begin(self, value: str, *, producer: str = "p") -> int:
        """Begin a send; returns its number."""
        return self.history.record(SendInvoked(producer=producer, value=value)).number

    def ack(
        self,
        send: int,
        offset: int,
        *,
        queue: Queue = QUEUE,
        server: str = MASTER,
        flushed: bool = True,
        copies: int = 1,
        tries: int = 1,
        physical_offset: int = -1,
    ) -> Story:
        """Acknowledge a send."""
        begun = self.history[send]
        assert isinstance(begun, SendInvoked)
        self.history.record(
            SendAcked(
                send=send,
                producer=begun.producer,
                value=begun.value,
                queue=queue,
                offset=offset,
                server=server,
                flushed=flushed,
                copies=copies,
                tries=tries,
                physical_offset=physical_offset,
            )
        )
        return self

    def send(self, *values: str, first: int = 0, server: str = MASTER, **receipt: int) -> Story:
        """Send messages one by one, acknowledged at offsets from the first on."""
        for offset, value in enumerate(values, first):
            flushed = bool(receipt.get("flushed", True))
            copies, tries = receipt.get("copies", 1), receipt.get("tries", 1)
            self.ack(
                self.begin(value),
                offset,
                server=server,
                flushed=flushed,
                copies=copies,
                tries=tries,
            )
        return self

    def fail(self, value: str) -> Story:
        """Send a message that is surely not stored."""
        self.history.record(SendFailed(send=self.begin(value), value=value, reason="refused"))
        return self

    def lose_answer(self, value: str) -> Story:
        """Send a message without getting an answer."""
        self.history.record(SendUnknown(send=self.begin(value), value=value, reason="timeout"))
        return self

    # --- reads --------------------------------------------------------------------------------

    def scan(
        self,
        *values: str | None,
        low: int = 0,
        reader: str = "r",
        server: str = MASTER,
        queue: Queue = QUEUE,
        final: bool = False,
    ) -> Story:
        """Read a queue from a server; None is a hole."""
        asked = len(self.history)
        for offset, value in enumerate(values, low):
            if value is not None:
                self.history.record(
                    MessageRead(
                        reader=reader,
                        queue=queue,
                        offset=offset,
                        value=value,
                        server=server,
                        asked=asked,
                    )
                )
        self.history.record(
            ScanEnded(
                reader=reader,
                queue=queue,
                low=low,
                end=low + len(values),
                server=server,
                asked=asked,
                final=final,
            )
        )
        return self

    def end(self, *values: str | None, server: str = MASTER, queue: Queue = QUEUE) -> Story:
        """Read a queue in the end."""
        return self.scan(*values, server=server, queue=queue, final=True)

    # --- consumers ----------------------------------------------------------------------------

    def assign(self, member: str = "m1", start: int = 0, group: str = "g") -> Story:
        """Give the queue to a member."""
        self.history.record(Assigned(group=group, member=member, queue=QUEUE, start=start))
        return self

    def deliver(
        self,
        *values: str,
        first: int = 0,
        member: str = "m1",
        group: str = "g",
        server: str = MASTER,
    ) -> Story:
        """Give messages to a member."""
        for offset, value in enumerate(values, first):
            self.history.record(
                Delivered(
                    group=group,
                    member=member,
                    queue=QUEUE,
                    offset=offset,
                    value=value,
                    server=server,
                    asked=len(self.history),
                )
            )
        return self

    def begin_commit(self, offset: int, *, member: str = "m1", group: str = "g") -> int:
        """Begin a commit; returns its number."""
        event = CommitInvoked(group=group, member=member, queue=QUEUE, offset=offset)
        return self.history.record(event).number

    def commit(
        self, offset: int, *, member: str = "m1", server: str = MASTER, group: str = "g"
    ) -> Story:
        """Commit an offset, acknowledged."""
        commit = self.begin_commit(offset, member=member, group=group)
        self.history.record(
            CommitAcked(
                commit=commit,
                group=group,
                member=member,
                queue=QUEUE,
                offset=offset,
                server=server,
            )
        )
        return self

    def committed(self, offset: int, *, server: str = MASTER, group: str = "g") -> Story:
        """Ask a server what is committed."""
        asked = len(self.history)
        self.history.record(
            CommittedSeen(group=group, queue=QUEUE, offset=offset, server=server, asked=asked)
        )
        return self

    # --- servers ------------------------------------------------------------------------------

    def kill(self, server: str = MASTER) -> Story:
        """Kill a server and start it again."""
        self.history.record(Killed(server=server, broker=BROKER))
        self.history.record(Started(server=server, broker=BROKER))
        return self

    def lose_power(self, server: str = MASTER, *, flushes_first: bool = False) -> Story:
        """Take the power of a server, and start it again."""
        self.history.record(PowerLost(server=server, broker=BROKER, flushes_first=flushes_first))
        self.history.record(Started(server=server, broker=BROKER))
        return self

    def pause(self, server: str = MASTER) -> Story:
        """Let a server stand still."""
        self.history.record(Paused(server=server, broker=BROKER))
        return self

    def resume(self, server: str = MASTER) -> Story:
        """Let a paused server go on."""
        self.history.record(Resumed(server=server, broker=BROKER))
        return self

    def log_end(self, end: int, *, server: str = MASTER) -> Story:
        """Ask a server where its log ends."""
        asked = len(self.history)
        self.history.record(LogEndSeen(server=server, broker=BROKER, end=end, asked=asked))
        return self

    def lag(self, server: str = SLAVE) -> Story:
        """Cut a slave off."""
        self.history.record(LagBegan(server=server, broker=BROKER))
        return self

    def follow(self, server: str) -> Story:
        """Have a server catch up with the present master."""
        self.history.record(Followed(server=server, broker=BROKER))
        return self

    def fence(self, server: str = MASTER) -> Story:
        """Tell a master of its successor."""
        self.history.record(Fenced(server=server, broker=BROKER))
        return self

    def promote(
        self, kept: int, end: int | None, *, server: str = SLAVE, deposed: str = MASTER
    ) -> Story:
        """Promote a slave, which announces what is lost of the queue."""
        self.history.record(
            Promoted(
                server=server,
                broker=BROKER,
                deposed=deposed,
                announced=(Loss(QUEUE, kept, end),),
            )
        )
        return self


def texts(events: Sequence[object]) -> str:
    """Events in words, one a line."""
    return "\n".join(map(str, events))
