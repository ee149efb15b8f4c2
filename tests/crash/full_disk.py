"""A child that fills a small disk: `python -m tests.crash.full_disk ROOT tmpfs|limit`.

With `tmpfs`, ROOT lies on a file system with room for a few log files; with `limit`, the system
refuses to make files larger than a limit. It prints how many messages were kept.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from orbitmq.errors import DiskFullError
from orbitmq.store.message_store import MessageStore
from tests.crash.agreement import check_agreement
from tests.crash.scenario import draft, small_config

BALLAST_BYTES = 300 * 1024


def main() -> None:
    """Fill the disk, make room, continue, and count."""
    root, kind = Path(sys.argv[1]), sys.argv[2]
    ballast = root / "ballast"
    if kind == "tmpfs":
        ballast.write_bytes(bytes(BALLAST_BYTES))
    config = small_config(root / "store")
    count = 0
    refusal = ""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with MessageStore(config) as store:
        if kind == "limit":
            store.put(draft(count, body_bytes=1000))
            count += 1
            resource.setrlimit(resource.RLIMIT_FSIZE, (config.log_file_bytes // 2, hard))
        try:
            while True:
                store.put(draft(count, body_bytes=1000))
                count += 1
        except DiskFullError as error:
            refusal = str(error)
        assert "no room" in refusal
        assert store.read("numbers", 0, count - 1).records, "what is there stays readable"
        if kind == "tmpfs":
            ballast.unlink()
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        # Queues that found no room are written in the next round; a failed round that is still
        # running in the other thread would be reported after it.
        store._upkeep.stop()
        store._upkeep.round()
        for _ in range(20):
            store.put(draft(count, body_bytes=1000))
            count += 1
    with MessageStore(config) as store:
        queues = check_agreement(store, config)
        assert len(queues["numbers", 0]) == count
    sys.stdout.write(f"kept {count}\n")


if __name__ == "__main__":
    main()
