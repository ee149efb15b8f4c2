"""Notices to members of consumer groups: rebalance now.

They are sent one way. A member that misses one finds out by itself, with its next round.

Threads: the event loop's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.errors import TransportError
from orbitmq.protocol.command import request
from orbitmq.protocol.requests.clients import NotifyMembersChanged

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.groups.group_table import GroupTable
    from orbitmq.broker.groups.members import GroupChange

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, kw_only=True)
class MemberNotices:
    """Tells members that others joined or left, or that a queue they want is free."""

    config: Callable[[], BrokerConfig]
    groups: GroupTable

    def send(self, changes: Iterable[GroupChange]) -> None:
        """Notify the members that each change names, unless options forbid it."""
        if not self.config().notify_members:
            return
        for change in changes:
            group = self.groups.get(change.group)
            if group is not None and not group.tells_of_changes:
                continue
            for connection in change.notify:
                notice = request(NotifyMembersChanged(consumer_group=change.group))
                try:
                    connection.call_oneway(notice)
                except TransportError as error:
                    log.info("member not notified group=%s reason=%s", change.group, error)
