"""Crash tests for hours: `python -m tests.crash.soak FOLDER SECONDS [SEED]`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from orbitmq.clock import SystemClock
from orbitmq.store.config import FlushMode
from tests.crash.killing import run_kills
from tests.crash.power_loss_chain import run_chain


def main() -> None:
    """Go on until the time is over; a failure names its seed."""
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + seconds * 1000
    while clock.monotonic_ms() < end_ms:
        for mode in FlushMode:
            sys.stdout.write(f"seed {seed} {mode}\n")
            sys.stdout.flush()
            run_chain(folder / "power", seed, mode, rounds=8)
            shutil.rmtree(folder / "power")
            if seed % 10 == 0:
                run_kills(folder / "kill", seed, mode, rounds=10)
                shutil.rmtree(folder / "kill")
        seed += 1


if __name__ == "__main__":
    main()
