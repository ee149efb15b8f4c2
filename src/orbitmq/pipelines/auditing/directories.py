"""The store directories of an audit: brokers, and replicas of each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orbitmq.errors import SettingsError
from orbitmq.spark.scan.store_paths import broker_name_of

_NAMED: Final = re.compile(r"([A-Za-z0-9._-]+)=(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class BrokerDirectories:
    """The store directories of one broker: the first, and copies of its log."""

    name: str
    roots: tuple[str, ...]


def parse_directories(words: Sequence[str]) -> list[BrokerDirectories]:
    """Parse `[NAME=]DIR[,REPLICA…]`, one for each broker."""
    brokers = [_parse(word) for word in words]
    roots = Counter(str(Path(root).resolve()) for broker in brokers for root in broker.roots)
    for root, count in roots.items():
        if count > 1:
            raise SettingsError(f"{root} is given {count} times", hint="name each directory once")
    names = Counter(broker.name for broker in brokers)
    for name, count in names.items():
        if count > 1:
            same = [root for broker in brokers if broker.name == name for root in broker.roots]
            raise SettingsError(
                f"{' and '.join(same)} belong to broker {name!r}",
                hint=f"for replicas of one broker: {name}={','.join(same)}; give other brokers "
                "other names: NAME=DIR",
            )
    return brokers


def _parse(word: str) -> BrokerDirectories:
    # A directory may exist whose own name has such a character.
    named = None if Path(word).expanduser().is_dir() else _NAMED.fullmatch(word)
    text = named[2] if named else word
    parts = [text] if Path(text).expanduser().is_dir() else text.split(",")
    if "" in parts:
        raise SettingsError(
            f"{word!r} names no directory", hint="write it as DIR, NAME=DIR or NAME=DIR,REPLICA"
        )
    folders = [Path(part).expanduser().absolute() for part in parts]
    for folder in folders:
        if not folder.is_dir():
            raise SettingsError(
                f"{folder} is not a folder", hint="name the storePathRootDir of a broker"
            )
    name = named[1] if named else broker_name_of(folders[0])
    return BrokerDirectories(name, tuple(map(str, folders)))
