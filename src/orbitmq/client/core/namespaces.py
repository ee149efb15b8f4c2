"""Namespaces: tenants of one cluster, separated by a prefix of their names.

The namespace comes before the name, but after the prefix of a group's retry and dead letter topics.
RocketMQ's own names have none:

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
)

SEPARATOR: Final = "%"


def wrap(namespace: str, name: str) -> str:
    """Return the name of a topic or group on the brokers; a wrapped name stays as it is."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, bare = _split_prefix(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def unwrap(namespace: str, name: str) -> str:
    """Return the name without the namespace; one of another namespace stays as it is."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, bare = _split_prefix(name)
    inside = bare.removeprefix(namespace + SEPARATOR)
    return name if inside == bare else prefix + inside


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return is_system_topic(name) or is_system_group(name)
