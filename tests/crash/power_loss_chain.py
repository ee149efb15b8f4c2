"""One power loss after the other on one store; a test runs a few, a soak run thousands."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from orbitmq.store.config import FlushMode
from orbitmq.store.message_store import MessageStore
from tests.crash.power_loss import PowerLossDisk
from tests.crash.scenario import Ledger, append_some, check_after_crash, small_config


def run_chain(folder: Path, seed: int, mode: FlushMode, *, rounds: int) -> None:
    """Crash `rounds` times; after each, what is left must be what was acknowledged.

    Most crashes are power losses; some only kill the process, so that the next power loss finds
    bytes that were read after the kill and never synced.
    """
    rng = random.Random(f"{seed} {mode}")
    ledger = Ledger()
    (folder / "0").mkdir(parents=True)
    disk = PowerLossDisk(folder / "0", rng)
    for number in range(rounds):
        root, target = folder / str(number), folder / str(number + 1)
        if rng.random() < 0.3:
            following = _kill(root, target, disk, ledger, mode)
        else:
            ledger = _lose_power(root, target, disk, ledger, mode)
            following = PowerLossDisk(target, rng)
        disk.close()
        disk = following
        # A copy is recovered; the next round begins with the unrecovered state.
        recovered = folder / f"recovered{number}"
        shutil.copytree(target, recovered)
        with disk.installed():
            ledger = check_after_crash(recovered, ledger, mode)
    disk.close()


def _open(root: Path, ledger: Ledger, mode: FlushMode) -> MessageStore:
    """Recover; all that is left counts as on disk from then on, acknowledged or not."""
    store = MessageStore(small_config(root, mode))
    ledger.acked = len(ledger.tried)
    return store


def _kill(
    root: Path, target: Path, disk: PowerLossDisk, ledger: Ledger, mode: FlushMode
) -> PowerLossDisk:
    """Run a store in `root` and kill it; what it leaves is in `target`."""
    with disk.installed():
        store = _open(root, ledger, mode)
        append_some(store, ledger, disk.rng, disk.rng.randrange(1, 120))
        following = disk.kill(target)
        store.close()
    return following


def _lose_power(
    root: Path, target: Path, disk: PowerLossDisk, ledger: Ledger, mode: FlushMode
) -> Ledger:
    """Run a store in `root`, lose power somewhere; what is left is in `target`."""
    rng = disk.rng
    # Appending continues during the capture, so it may hold more than had been tried by then.
    acked_at_loss: list[int] = []
    with disk.installed():
        # Some points are during opening, most during work, some during closing.
        disk.lose_power_at(rng.randrange(1, 60), target, lambda: acked_at_loss.append(ledger.acked))
        store = _open(root, ledger, mode)
        for _ in range(rng.randrange(1, 6)):
            append_some(store, ledger, rng, rng.randrange(1, 60))
            disk.observe()
        if disk.is_armed and rng.random() < 0.5:
            acked_at_loss.append(ledger.acked)
            disk.lose_power_at(10**9, target, lambda: None)
            disk.capture(target)
        store.close()
        if not acked_at_loss:
            acked_at_loss.append(ledger.acked)
            disk.capture(target)
    return Ledger(ledger.tried, acked_at_loss[0])
