"""Whether the key index agrees with the log, and look-ups find its entries.

Keys are added in log order, so log and index are compared side by side, in one pass over each. A
look-up finds an entry through its chain: each entry must name the previous one of its slot, and the
slot must name the newest. A look-up in a range of times needs those of entries and headers.

For a part of the log, only entries that lead into it are compared, found by halving; their files
are checked one by one with `check_index_file`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import StoreFormatError
from orbitmq.record.scan import KEY
from orbitmq.store.readonly.index_files import IndexEntry, ReadOnlyIndexFile, list_index_files
from orbitmq.store.tools.findings import Finding, FindingKind, Findings, Scope
from orbitmq.store.tools.index_search import IndexSearch

_END: Final = 1 << 62
_SECONDS_MAX: Final = 2**31 - 1
# Problems listed one by one; more are only counted.
_KEPT_MAX: Final = 100


class _Placed(NamedTuple):
    """An entry, its number, and the file that it is in; none after the last."""

    entry: IndexEntry
    number: int
    file: ReadOnlyIndexFile | None


_NOTHING: Final = _Placed(IndexEntry(0, _END, 0, 0), 0, None)


class IndexAgreement:
    """Compares the index with the log during a walk."""

    def __init__(
        self,
        folder: Path,
        findings: Findings,
        *,
        scope: Scope,
        slots: int | None,
        is_clean: bool,
        is_expected: bool,
    ) -> None:
        """Expect keys of records in the index, if it exists; with `is_expected` it must."""
        self._findings = findings
        self._scope = scope
        self._slots = slots
        self._is_clean = is_clean
        paths, strange_files = list_index_files(folder)
        if not scope.is_part:
            add_strange_index_files(findings, strange_files)
        self._files: list[ReadOnlyIndexFile] = []
        for path in paths:
            try:
                self._files.append(ReadOnlyIndexFile.open(path))
            except (StoreFormatError, FileNotFoundError) as error:
                if not scope.is_part:
                    _add_bad_file(findings, path, str(error))
        self.is_present = bool(self._files)
        if not self.is_present and not scope.is_part:
            check_presence(folder, findings, is_expected=is_expected)
        self._entries = self._part_entries() if scope.is_part else self._all_entries()
        self._next = next(self._entries, _NOTHING)
        self._kept = 0
        self._wrong_times: Counter[Path] = Counter()
        self.keys = 0

    def compare(self, keys: bytes | bytearray) -> None:
        """Compare the keys of records, packed as `KEY`, with the next entries."""
        if not self.is_present:
            return
        here = -1
        hashes: set[int] = set()
        for hashed, offset, store_ms in KEY.iter_unpack(keys):
            self.keys += 1
            if offset != here:
                here = offset
                self._skip_to(offset)
                hashes = self._hashes_at(offset, store_ms)
            if hashed not in hashes and offset < self._scope.required_until:
                self._add(FindingKind.MISSING_KEY, "a key of a record is not in the index", offset)

    def finish(self) -> None:
        """Check the remaining entries, which have no record."""
        self._skip_to(_END)
        for path, count in (+self._wrong_times).items():
            _add_bad_file(self._findings, path, f"{count} times in it are not those of the records")

    def _skip_to(self, offset: int) -> None:
        while (found := self._next.entry.physical_offset) < offset:
            scope = self._scope
            if scope.log_start <= found < scope.log_end and not scope.is_lost(found):
                self._add(
                    FindingKind.STRAY_KEY, "an index entry points to no record with keys", found
                )
            self._next = next(self._entries, _NOTHING)

    def _hashes_at(self, offset: int, store_ms: int) -> set[int]:
        hashes: set[int] = set()
        while self._next.entry.physical_offset == offset:
            hashes.add(self._next.entry.key_hash)
            self._check_times(*self._next, store_ms)
            self._next = next(self._entries, _NOTHING)
        return hashes

    def _check_times(
        self, entry: IndexEntry, number: int, file: ReadOnlyIndexFile | None, store_ms: int
    ) -> None:
        assert file is not None
        if number == 1:
            # Compat: its seconds count from the end of the previous file.
            is_right = entry.seconds >= 0 and file.begin_ms == store_ms
        else:
            seconds = (store_ms - file.begin_ms) // 1000 if file.begin_ms > 0 else 0
            is_right = entry.seconds == min(max(seconds, 0), _SECONDS_MAX)
        if self._is_clean and number == file.next_number - 1:
            is_right = is_right and file.end_ms == store_ms
        self._wrong_times[file.path] += not is_right

    def _all_entries(self) -> Iterator[_Placed]:
        for file in self._files:
            try:
                yield from _chained_entries(
                    file, self._slots, self._findings, is_clean=self._is_clean
                )
            except StoreFormatError as error:
                _add_bad_file(self._findings, file.path, str(error))

    def _part_entries(self) -> Iterator[_Placed]:
        scope = self._scope
        for file in self._files:
            try:
                slots = file.slot_count(self._slots)
                numbers = IndexSearch(file, slots).numbers(scope.log_start, scope.log_end)
                for number, entry in zip(
                    numbers, file.entries(slots, numbers.start, numbers.stop), strict=True
                ):
                    if scope.log_start <= entry.physical_offset < scope.log_end:
                        yield _Placed(entry, number, file)
            except (StoreFormatError, FileNotFoundError):
                # Whoever checks this file reports it.
                continue

    def _add(self, kind: FindingKind, text: str, offset: int) -> None:
        self._kept += 1
        if self._kept <= _KEPT_MAX:
            self._findings.add(Finding(kind=kind, text=text, offset=offset))
        else:
            self._findings.counts[kind] += 1


def check_presence(folder: Path, findings: Findings, *, is_expected: bool) -> None:
    """Report that there is no index although there should be; else note it."""
    if is_expected:
        _add_bad_file(findings, folder, "the key index is missing")
    else:
        findings.note("there is no key index")


def add_strange_index_files(findings: Findings, paths: list[Path]) -> None:
    """Report files in the folder of the index that do not belong there."""
    for path in paths:
        findings.add(
            Finding(
                kind=FindingKind.STRANGE_FILE, text="not a file of the key index", file=str(path)
            )
        )


def check_index_file(path: Path, findings: Findings, *, slots: int | None, is_clean: bool) -> int:
    """Check header, slots and chains of one file; returns its number of entries."""
    try:
        file = ReadOnlyIndexFile.open(path)
        return sum(1 for _ in _chained_entries(file, slots, findings, is_clean=is_clean))
    except StoreFormatError as error:
        _add_bad_file(findings, path, str(error))
    except FileNotFoundError:
        # Deleted by retention since the listing.
        pass
    return 0


def _chained_entries(
    file: ReadOnlyIndexFile, slots_configured: int | None, findings: Findings, *, is_clean: bool
) -> Iterator[_Placed]:
    """The entries of one file; checks its chains on the way."""
    slots = file.slot_count(slots_configured)
    newest = array("i", bytes(4 * slots))
    number = 1
    broken = 0
    first_offset = last_offset = -1
    for entry in file.entries(slots):
        slot = entry.key_hash % slots
        broken += entry.previous != newest[slot] or entry.physical_offset < last_offset
        newest[slot] = number
        last_offset = entry.physical_offset
        yield _Placed(entry, number, file)
        if number == 1:
            first_offset = last_offset
        number += 1
    on_disk = array("i", file.slot_table(slots))
    on_disk.byteswap()
    if is_clean:
        broken += sum(1 for here, found in zip(newest, on_disk, strict=False) if here != found)
    else:
        # A broker that has it open may have added entries since the header was read.
        broken += sum(1 for here, found in zip(newest, on_disk, strict=False) if here > found)
    if broken:
        _add_bad_file(findings, file.path, f"{broken} links of its chains are wrong")
    found = first_offset, last_offset
    if number > 1 and is_clean and found != (file.begin_offset, file.end_offset):
        _add_bad_file(
            findings,
            file.path,
            f"its header says it has offsets {file.begin_offset} to {file.end_offset}, its "
            f"entries have {first_offset} to {last_offset}",
        )


def _add_bad_file(findings: Findings, path: Path, text: str) -> None:
    findings.add(Finding(kind=FindingKind.BAD_INDEX_FILE, text=text, file=str(path)))
