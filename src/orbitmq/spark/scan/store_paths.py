"""Finds the store directories that a user's paths name, and their brokers' names."""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from orbitmq.errors import SettingsError, StoreError
from orbitmq.spark.options.store_options import StoreOptions
from orbitmq.spark.scan.store_partitions import StoreLocation

# Compat: brokers of RocketMQ 5 and OrbitMQ have a topic whose name ends with their own.
_MEMBER_TOPIC: Final = re.compile(rb'"rmq_sys_SYNC_BROKER_MEMBER_([^"]+)"\s*:')
_TOPIC_NAME: Final = re.compile(rb'"topicName"\s*:\s*"([^"]+)"')
_USUAL_FOLDER: Final = "store"
_WILDCARDS: Final = frozenset("*?[")


def find_stores(options: StoreOptions) -> list[StoreLocation]:
    """Find the directories that options name, each with the name of its broker."""
    roots = _roots(options.path_patterns)
    if options.log_path and len(roots) > 1:
        raise SettingsError(
            f"storePathCommitLog is given for {len(roots)} directories",
            hint="read stores with separate logs one at a time, and union the DataFrames",
        )
    names = list(options.broker_names)
    if names and len(names) != len(roots):
        raise SettingsError(
            f"brokerName has {len(names)} names for {len(roots)} directories: "
            f"{', '.join(map(str, roots))}",
            hint="give one name for each, separated by ','",
        )
    names = names or [broker_name_of(root) for root in roots]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        same = [str(root) for root, name in zip(roots, names, strict=True) if name == repeated[0]]
        raise SettingsError(
            f"{' and '.join(same)} both belong to broker {repeated[0]!r}",
            hint="a copy or a slave holds the same messages: leave it out, or set the option "
            "brokerName to one name for each",
        )
    return [
        StoreLocation(str(root), name, options.log_path)
        for root, name in zip(roots, names, strict=True)
    ]


def broker_name_of(root: Path) -> str:
    """The name of a store's broker: as the store records it, or else by its folder."""
    found = _MEMBER_TOPIC.search(_topics_text(root))
    if found is not None:
        return found[1].decode(errors="replace")
    whole = root.resolve()
    return whole.parent.name if whole.name == _USUAL_FOLDER else whole.name


def topics_of_broker(root: Path) -> frozenset[str]:
    """The topics configured at a store's broker, with or without messages."""
    names = _TOPIC_NAME.findall(_topics_text(root))
    return frozenset(name.decode(errors="replace") for name in names)


def _topics_text(root: Path) -> bytes:
    topics = root / "config" / "topics.json"
    return topics.read_bytes() if topics.is_file() else b""


def _roots(patterns: Iterable[str]) -> list[Path]:
    """The directories that match the patterns, each once, in order."""
    roots: dict[Path, None] = {}
    for pattern in patterns:
        path = _local(pattern)
        if "\0" in path:
            raise SettingsError(
                f"{path!r} cannot be a path", hint="name the storePathRootDir of a broker"
            )
        # A folder's own name may contain such a character.
        if _WILDCARDS & set(path) and not Path(path).expanduser().exists():
            names = glob.glob(path)  # noqa: PTH207  # Path.glob takes no absolute pattern
            found = sorted(Path(name) for name in names if Path(name).is_dir())
            if not found:
                raise StoreError(f"{pattern} matches no folder")
        else:
            found = [Path(path).expanduser()]
        roots |= dict.fromkeys(root.absolute() for root in found)
    return list(roots)


def _local(path: str) -> str:
    """A path without its scheme, which must be `file`."""
    parts = urlsplit(path)
    if "://" not in path and not path.startswith("file:"):
        return path
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"}:
        raise SettingsError(
            f"{path} is not in this machine's file system",
            hint="mount it (NFS, s3fs, HDFS through FUSE …) at the same path on every machine of "
            "the Spark cluster",
        )
    return unquote(parts.path)
