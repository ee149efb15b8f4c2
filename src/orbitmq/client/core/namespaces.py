"""Namespaces: tenants of one cluster, told apart by a prefix of their names.

A namespace stands before the name, behind the prefix of a group's own topics; names of RocketMQ
itself have none:

    orders          tenant%orders
    %RETRY%billing  %RETRY%tenant%billing
    TBW102          TBW102
"""

from __future__ import annotations

from typing import Final

from orbitmq.model.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    is_system_group,
    is_system_topic,
    retry_topic,
)

SEPARATOR: Final = "%"


def wrap(namespace: str, name: str) -> str:
    """The name that a topic or group has on the brokers; one that is wrapped stays as it is."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, bare = _parted(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def unwrap(namespace: str, name: str) -> str:
    """The name that users of the namespace know; one of another namespace stays as it is."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, bare = _parted(name)
    inside = bare.removeprefix(namespace + SEPARATOR)
    return name if inside == bare else prefix + inside


def wrapped_retry_topic(namespace: str, group: str) -> str:
    """The topic on the brokers with messages that a group of the namespace tries again."""
    return retry_topic(wrap(namespace, group))


def _parted(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return is_system_topic(name) or is_system_group(name)
