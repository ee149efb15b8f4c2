"""Damages one file of a store at a time; a test does it to a sample, a soak run to every file."""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orbitmq.errors import OrbitError
from orbitmq.store.config import FlushMode
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.retention import RetentionConfig
from orbitmq.store.tools.verification import Verification, verify
from tests.crash.agreement import check_agreement
from tests.crash.scenario import TOPIC, copy_as_killed, draft, small_config

DELETED = "deleted"

Kind = Callable[[Path, random.Random], None]
Bodies = dict[tuple[str, int], list[bytes]]


def _truncated(share: float) -> Kind:
    def truncate(path: Path, _: random.Random) -> None:
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.truncate(int(size * share))

    return truncate


def _shortened(path: Path, rng: random.Random) -> None:
    with path.open("r+b") as file:
        file.truncate(max(0, path.stat().st_size - rng.randrange(1, 20)))


def _lengthened(path: Path, rng: random.Random) -> None:
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.randrange(1, 100)))


def _garbage(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(path.stat().st_size or 10))


def _zeroed(path: Path, _: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flipped(*, first_bytes: int | None = None) -> Kind:
    """Flip a bit anywhere, or in the first bytes, which matter in a file of mostly zeros."""

    def flip(path: Path, rng: random.Random) -> None:
        content = bytearray(path.read_bytes())
        if content:
            content[rng.randrange(len(content[:first_bytes]))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)

    return flip


def _deleted(path: Path, _: random.Random) -> None:
    path.unlink()


def _folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


KINDS: dict[str, Kind] = {
    "emptied": _truncated(0),
    "halved": _truncated(0.5),
    "shortened": _shortened,
    "lengthened": _lengthened,
    "garbage": _garbage,
    "zeroed": _zeroed,
    "bit flipped": flipped(first_bytes=64),
    "deleted": _deleted,
    "a folder": _folder,
}
# Single bits of these have campaigns of their own.
_NOT_FLIPPED = ("commitlog", "consumequeue", "index")


@dataclass(frozen=True, slots=True)
class Damage:
    """One case."""

    state: str
    file: str
    kind: str


class Logged(logging.Handler):
    """Collects warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def names(self, file: str) -> bool:
        """Whether a line names the file, or its folder or queue."""
        return any(Path(file).name in line or Path(file).parent.name in line for line in self.lines)


@contextmanager
def logged_warnings() -> Iterator[Logged]:
    """Collect what is logged, and show it nowhere else."""
    logged = Logged()
    logger = logging.getLogger("orbitmq")
    propagate, level = logger.propagate, logger.level
    logger.addHandler(logged)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    try:
        yield logged
    finally:
        logger.removeHandler(logged)
        logger.propagate = propagate
        logger.setLevel(level)


class DamagedStores:
    """A store as it was stopped and as it was killed, to be damaged in copies."""

    def __init__(self, folder: Path, seed: int, mode: FlushMode) -> None:
        self._folder = folder
        self._mode = mode
        self._rng = random.Random(f"{seed} {mode} damage")
        self._stored: dict[str, Bodies] = {}
        self._write()

    def _write(self) -> None:
        root = self._folder / "stopped"
        # Without a minimum of free space everything may be deleted that is no longer written.
        config, retention = small_config(root, self._mode), RetentionConfig(reserved_hours=0)
        with MessageStore(config, retention=retention) as store:
            for number in range(90):
                store.put(draft(number, queue_id=number % 2, body_bytes=1000))
            store.flush()
            store._upkeep.round()
            store.put_batch([Draft(topic=DELETED, body=b"x", properties=b"KEYS\x01g\x02")])
            store.delete_topic(DELETED)
            store.keep_in_memory("memory")
            store.put(Draft(topic="memory", body=b"m"))
            assert store.delete_expired(), "a log file is deleted"
            store._upkeep.round()
            for number in range(90, 200):
                store.put(draft(number, queue_id=number % 3, body_bytes=500))
            store.flush()
            store._upkeep.round()
            (root / "config").mkdir()
            names: dict[str, object] = {TOPIC: {}, "memory": {}}
            (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": names}))
            copy_as_killed(store, root, self._folder / "killed")
        for state in ("stopped", "killed"):
            with self._copied(state) as copy:
                self._stored[state] = self._served(copy)

    def cases(self) -> list[Damage]:
        """Every kind of damage to every file in both states."""
        found = []
        for state in ("stopped", "killed"):
            root = self._folder / state
            for path in sorted(root.rglob("*")):
                if path.is_dir() or path.parent.name == "config":
                    continue
                file = str(path.relative_to(root))
                for kind in KINDS:
                    if kind == "bit flipped" and file.startswith(_NOT_FLIPPED):
                        continue
                    found.append(Damage(state, file, kind))
        return found

    def run(self, damage: Damage) -> str:
        """Damage a copy and open it; returns what happened."""
        with self._copied(damage.state) as copy, logged_warnings() as logged:
            KINDS[damage.kind](copy / damage.file, self._rng)
            try:
                return self._outcome(copy, damage, logged)
            except AssertionError as error:
                raise AssertionError(f"{damage}: {error}") from error

    @contextmanager
    def _copied(self, state: str) -> Iterator[Path]:
        copy = self._folder / "copy"
        shutil.copytree(self._folder / state, copy)
        try:
            yield copy
        finally:
            shutil.rmtree(copy)

    def _outcome(self, copy: Path, damage: Damage, logged: Logged) -> str:
        fine = _verified(copy)
        try:
            served = self._served(copy)
        except OrbitError as error:
            return _refused(damage, str(error), verified=fine)
        expected = self._stored[damage.state]
        if served != expected:
            lost = {key: len(expected[key]) - len(served.get(key, [])) for key in expected}
            assert logged.names(damage.file), f"{damage}: lost {lost}, and only {logged.lines}"
            assert damage.file.startswith("commitlog"), f"{damage}: lost {lost}: {logged.lines}"
            assert not fine, f"{damage}: verify found nothing"
            return "opened, loss logged"
        return "served all, logged" if logged.lines else "served all"

    def _served(self, root: Path) -> Bodies:
        config = small_config(root, self._mode)
        with MessageStore(config) as store:
            _read_all(store)
            queues = check_agreement(store, config, deleted_topics={DELETED})
            assert store.end_of(DELETED, 0) == 0, "a deleted topic is back"
        with ReadOnlyStore(root) as reader:
            assert _verify(reader).is_fine, _verify(reader).findings.problems[:5]
        return {
            key: [b"%d " % m.queue_offset + m.stored_body[:10] for m in messages]
            for key, messages in queues.items()
            if key[0] == TOPIC
        }


def _read_all(store: MessageStore) -> None:
    """Read as consumers do, which reports damaged records."""
    for queue in store.queues():
        offset = queue.start
        while offset < queue.end:
            offset = store.read(queue.topic, queue.queue_id, offset).next_offset


def _refused(damage: Damage, error: str, *, verified: bool) -> str:
    if damage.file.startswith("consumequeue") and damage.kind in ("garbage", "zeroed"):
        # Opening looks at the ends of queues only; reading what is between them tells.
        topic, queue_id = Path(damage.file).parts[1:3]
        assert f"topic {topic!r} queue {queue_id}" in error, f"{damage}: {error} names no queue"
        return "opened, reported by readers"
    assert Path(damage.file).name in error, f"{damage}: {error} names no file"
    can_be_rebuilt = damage.file.startswith(("consumequeue", "index", "checkpoint"))
    assert not can_be_rebuilt or damage.kind == "a folder", f"{damage}: refused: {error}"
    assert not verified or not damage.file.startswith("commitlog"), f"{damage}: verify is content"
    return "refused, by name"


def _verify(store: ReadOnlyStore) -> Verification:
    return verify(store, index_slots=small_config(store.root).index_slots)


def _verified(root: Path) -> bool:
    """Whether verification finds nothing; it must end, whatever is there."""
    try:
        with ReadOnlyStore(root) as store:
            return _verify(store).is_fine
    except OrbitError:
        return False


def run_damage(folder: Path, seed: int, mode: FlushMode, *, rounds: int) -> Counter[str]:
    """Damage files at random; counts what happened."""
    stores = DamagedStores(folder, seed, mode)
    cases = stores.cases()
    chosen = random.Random(seed).sample(cases, min(rounds, len(cases)))
    return Counter(stores.run(damage) for damage in chosen)
