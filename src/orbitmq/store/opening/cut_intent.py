"""Asks the next opening of a store to cut its log; lists what was cut.

The tail of a replaced master may differ from the log of the new one. It is cut while nobody uses the
store: by its next opening (see `log_cut`), which saves it first (see `cut_tail`).

File layout of `<root>/orbitmq/cut/intent`, two lines: a JSON document, and its CRC-32 in eight
hexadecimal digits.

Threads: one at a time.
Crash: the file is replaced as a whole. It stays until the log is cut, and until whoever opened the
store has lowered what it keeps about the log.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.disk import PRIVATE, FileModes, delete_leftovers, replace_file, sync_folder
from orbitmq.errors import StoreDamagedError, StoreError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.files.descriptor import write_failure
from orbitmq.store.files.file_names import file_name
from orbitmq.store.index.watermark import read_watermark

# In the store's own folder.
CUT_FOLDER: Final = "cut"
_OWN_FOLDER: Final = "orbitmq"
_INTENT_NAME: Final = "intent"
_FILE_BYTES_MAX: Final = 64 * 1024
# Epoch and offset; a number follows if something else was cut there before.
_SAVED_NAME: Final = re.compile(r"([0-9]{1,19})-([0-9]{20})(?:-([0-9]{1,9}))?")


class CutIntent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the log is to be cut."""

    epoch: int
    at: int
    # The folder with the tail, once the log is cut; until then empty.
    saved: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cut:
    """A tail that was cut from the log."""

    # The epoch of the master whose log differed.
    epoch: int
    at: PhysicalOffset
    end: PhysicalOffset
    # A store of its own that has the cut messages.
    saved_path: Path

    @property
    def bytes(self) -> int:
        """How much of the log was cut."""
        return self.end - self.at


def ask_for_cut(root: Path, at: PhysicalOffset, epoch: int, modes: FileModes = PRIVATE) -> None:
    """Have the next opening of a store cut its log; on disk when this returns.

    `at` is a place between two records below which the log is on disk. Asking again replaces what
    was asked for before.
    """
    if at < 0 or not 0 < epoch < 2**63:
        raise StoreError(
            f"the log cannot be cut at {at} for epoch {epoch}",
            hint="offsets are not negative, and only a larger epoch, which is positive, cuts a log",
        )
    write_intent(root, CutIntent(epoch, at), modes)


def cuts(root: Path) -> list[Cut]:
    """What was cut from a store and is still there, by epoch and offset."""
    folder = cut_folder(root)
    found: list[tuple[int, int, int, Cut]] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        name = _SAVED_NAME.fullmatch(path.name)
        cut = saved_cut(path) if name is not None else None
        if name is not None and cut is not None:
            found.append((cut.epoch, cut.at, int(name[3] or 1), cut))
    return [cut for *_, cut in sorted(found, key=lambda one: one[:3])]


def saved_cut(path: Path) -> Cut | None:
    """The cut whose tail is in a folder; None if there is none."""
    name = _SAVED_NAME.fullmatch(path.name)
    end = read_watermark(path / _OWN_FOLDER)
    if name is None or end is None:
        return None
    at = PhysicalOffset(int(name[2]))
    return Cut(epoch=int(name[1]), at=at, end=end, saved_path=path)


def saved_name(intent: CutIntent, number: int) -> str:
    """The name of the folder for a tail; `number` is 1 for the first one cut there."""
    name = f"{intent.epoch}-{file_name(intent.at)}"
    return name if number == 1 else f"{name}-{number}"


def cut_folder(root: Path) -> Path:
    """Where a store has the intent, and the tails that were cut."""
    return root / _OWN_FOLDER / CUT_FOLDER


# --- the file ---------------------------------------------------------------------------------


def read_intent(root: Path) -> CutIntent | None:
    """Read the intent; None if there is none."""
    path = cut_folder(root) / _INTENT_NAME
    if not path.exists():
        return None
    delete_leftovers(path)
    with path.open("rb") as file:
        line, _, checksum = file.read(_FILE_BYTES_MAX).partition(b"\n")
    try:
        if checksum != b"%08x\n" % zlib.crc32(line):
            raise _damaged(path, "its checksum does not match")
        intent = msgspec.json.decode(line, type=CutIntent)
    except msgspec.DecodeError as error:
        raise _damaged(path, str(error)) from error
    if intent.saved and _SAVED_NAME.fullmatch(intent.saved) is None:
        raise _damaged(path, f"{intent.saved!r} is no name of a saved tail")
    return intent


def write_intent(root: Path, intent: CutIntent, modes: FileModes) -> None:
    """Replace the intent; on disk when this returns."""
    path = cut_folder(root) / _INTENT_NAME
    content = msgspec.json.encode(intent)
    try:
        replace_file(path, b"%b\n%08x\n" % (content, zlib.crc32(content)), modes)
    except OSError as error:
        raise write_failure(path, error, what=f"{len(content)} bytes") from error


def forget_intent(root: Path) -> None:
    """Forget an intent that is carried out; on disk when this returns."""
    folder = cut_folder(root)
    for name in (_INTENT_NAME, _INTENT_NAME + ".bak"):
        (folder / name).unlink(missing_ok=True)
    if folder.is_dir():
        sync_folder(folder)


def _damaged(path: Path, reason: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"{path} is damaged: {reason}",
        hint="move it away: a slave then compares its log with the master's again. Nothing was "
        "changed",
    )
