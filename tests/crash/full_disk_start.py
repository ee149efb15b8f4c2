"""A killed store on a full disk: `python -m tests.crash.full_disk_start ROOT`.

ROOT lies on a small file system of its own. A child fills the store and then the disk, and dies.
Opened again, the store serves what was acknowledged and refuses more, until there is room.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from orbitmq.clock import SystemClock
from orbitmq.errors import DiskFullError
from orbitmq.store.message_store import MessageStore
from tests.crash.agreement import check_agreement
from tests.crash.scenario import TOPIC, draft, small_config

COUNT = 60
_WAIT_MS = 60_000


def fill_and_die(root: Path, ballast: Path) -> None:
    """Acknowledge messages whose queue entries are not on disk, fill the disk, and be killed."""
    store = MessageStore(small_config(root))
    store._upkeep.stop()
    for number in range(COUNT):
        store.put(draft(number, queue_id=number % 2))
    with ballast.open("wb", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    os._exit(0)


def numbers_read(store: MessageStore) -> int:
    """How many messages consumers get."""
    count = 0
    for queue_id in (0, 1):
        offset = 0
        while records := (found := store.read(TOPIC, queue_id, offset)).records:
            count += len(records)
            offset = int(found.next_offset)
    return count


def main() -> None:
    """Fill, open, refuse, make room, continue."""
    root, ballast = Path(sys.argv[1]) / "store", Path(sys.argv[1]) / "ballast"
    child = os.fork()
    if not child:
        fill_and_die(root, ballast)
    assert os.waitpid(child, 0)[1] == 0
    config = small_config(root)
    with MessageStore(config) as store:
        count = COUNT
        refusal = ""
        try:
            # Until upkeep finds that entries have no room, the log may take some.
            while True:
                store.put(draft(count, queue_id=count % 2))
                count += 1
        except DiskFullError as error:
            refusal = str(error)
        assert "no room for" in refusal, refusal
        assert str(root) in refusal, refusal
        assert numbers_read(store) == count
        ballast.unlink()
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + _WAIT_MS
        while store._obstacles.errors:
            assert clock.monotonic_ms() < deadline_ms, store._obstacles.errors
            store._upkeep.wake()
        for number in range(count, count + 20):
            store.put(draft(number, queue_id=number % 2))
    with MessageStore(config) as store:
        queues = check_agreement(store, config)
        assert sum(map(len, queues.values())) == count + 20
    sys.stdout.write(f"{refusal}\n")


if __name__ == "__main__":
    main()
