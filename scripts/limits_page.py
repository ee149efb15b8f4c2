"""The page of limits: what the largest request of each code costs, and what it leaves behind.

Numbers come from the constants and options that enforce them. A code without a row, or a row without
a code, is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orbitmq.broker import tool_requests
from orbitmq.broker.archives.archive_table import ARCHIVES_MAX, MARKS_MAX, TARGET_LENGTH_MAX
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.delivery.pulls import HOLD_MS_MAX
from orbitmq.broker.exactly_once.query_states import (
    PENDING_MOVES_MAX,
    QUERIES_MAX,
    STATES_BYTES_MAX,
)
from orbitmq.broker.filter_servers import ADDRESS_LENGTH_MAX, SILENCE_MS_MAX
from orbitmq.broker.groups import committed_offsets
from orbitmq.broker.groups.group_table import FORBIDDEN_MAX, GROUPS_MAX
from orbitmq.broker.groups.members import GROUPS_PER_CLIENT_MAX, SUBSCRIPTIONS_PER_GROUP_MAX
from orbitmq.broker.groups.queue_locks import LEASE_MS, LOCKS_MAX
from orbitmq.broker.handlers import following, promotion
from orbitmq.broker.handlers.locks import QUEUES_PER_REQUEST_MAX
from orbitmq.broker.handlers.queries import ENTRIES_MAX, REPLY_BYTES_MAX
from orbitmq.broker.handlers.staged_writes import PAGE_MAX, PARTS_MAX, WRITES_MAX
from orbitmq.broker.replication.config import ReplicationConfig
from orbitmq.broker.table_bounds import PER_CHANGE_MAX
from orbitmq.broker.timers import pending_messages
from orbitmq.broker.topics.topic_table import (
    QUEUES_MAX,
    TOPICS_MAX,
    TOTAL_QUEUES_MAX,
)
from orbitmq.broker.transactions import open_transactions
from orbitmq.broker.transactions.half_queue import OPEN_MAX
from orbitmq.filtering.parser import EXPRESSION_CHARACTERS_MAX
from orbitmq.filterserver.config import FilterServerConfig
from orbitmq.filterserver.filter_classes import CLASSES_MAX
from orbitmq.filterserver.filter_classes import NAME_LENGTH_MAX as CLASS_NAME_LENGTH_MAX
from orbitmq.model.recall_handles import ID_BYTES_MAX
from orbitmq.nameserver.broker_registry import NAME_LENGTH_MAX
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.route_view import CACHED_BYTES_MAX
from orbitmq.protocol.body_limits import BODY_BYTES_MAX, body_bytes_max
from orbitmq.protocol.codes import RequestCode, Role
from orbitmq.protocol.frame import FIELDS_MAX, HEADER_BYTES_MAX
from orbitmq.protocol.plain_sends import BATCH_MESSAGES_MAX
from orbitmq.protocol.requests.filter_servers import FILTER_SERVERS_MAX
from orbitmq.settings import describe
from orbitmq.store.config import StoreConfig
from orbitmq.store.reading.bodiless_reading import READ_FACTOR
from orbitmq.store.retention import RetentionConfig
from orbitmq.store.timers.pending import SLICE_SLOTS, SLICE_UNITS
from orbitmq.transport.config import ServerConfig
from orbitmq.transport.turns import LARGE_FRAME_BYTES, SLOW_MS, TURN_MS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_MIB = 1024 * 1024
_CONFIGS: tuple[type[DataclassInstance], ...] = (
    BrokerConfig,
    NameServerConfig,
    FilterServerConfig,
    StoreConfig,
    RetentionConfig,
    ReplicationConfig,
    ServerConfig,
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What the largest request of some codes costs, and what it leaves behind."""

    codes: tuple[RequestCode, ...]
    cost: str
    outlives: str


def _option(name: str) -> str:
    """An option and its default."""
    (row,) = {row.name: row for row in describe(*_CONFIGS) if row.name == name}.values()
    default: Any = row.default
    is_size = any(part in name for part in ("ytes", "Size", "frameMaxLength", "WaterMark"))
    return f"`{name}` ({_size(default) if is_size else f'{default:,}'})"


def _size(count: int) -> str:
    for unit, name in ((_MIB, "MiB"), (1024, "KiB")):
        if count >= unit and not count % unit:
            return f"{count // unit:,} {name}"
    return f"{count:,} bytes"


NOTHING = "nothing"
_CODE = RequestCode

COSTS = (
    Cost(
        (_CODE.SEND_MESSAGE, _CODE.SEND_MESSAGE_V2, _CODE.SEND_BATCH_MESSAGE),
        f"one append: a body or batch of {_option('maxMessageSize')}, at most "
        f"{BATCH_MESSAGES_MAX:,} messages in a batch. "
        f"{_option('sendThreadPoolQueueCapacity')} sends wait for the disk at a time",
        f"the messages, until retention deletes them; a topic that it creates, of {TOPICS_MAX:,}",
    ),
    Cost(
        (_CODE.SEND_REPLY_MESSAGE, _CODE.SEND_REPLY_MESSAGE_V2),
        "one append, as for a send, and a call to the client that waits for the reply; "
        f"{_option('serverAsyncSemaphoreValue')} calls at a time, of 10 s at most",
        "with `storeReplyMessageEnable`, the reply",
    ),
    Cost(
        (_CODE.END_TRANSACTION,),
        "one read, and two appends: the message and a mark",
        f"the message and the mark; {OPEN_MAX:,} transactions may be open",
    ),
    Cost(
        (_CODE.LIST_PENDING,),
        f"reads of {pending_messages.UNITS_MAX:,} messages in a thread, {SLICE_UNITS} at a time, "
        f"{pending_messages.PAGE_MAX:,} in the reply; without an id, of messages due in order. "
        f"{tool_requests.AT_WORK_MAX} such requests, counts and deliveries are at work, and "
        f"{tool_requests.WAITING_MAX} wait",
        NOTHING,
    ),
    Cost(
        (_CODE.COUNT_PENDING,),
        f"looks at the timer wheel, {SLICE_SLOTS:,} seconds at a time, until "
        f"{pending_messages.COUNTED_MAX:,} had messages",
        NOTHING,
    ),
    Cost(
        (_CODE.DELIVER_PENDING,),
        "one query by key in a thread, and for each of up to 31 messages with the id two appends",
        "copies of the messages, and what takes them back",
    ),
    Cost(
        (_CODE.LIST_TRANSACTIONS,),
        f"reads of {open_transactions.PAGE_MAX:,} half messages in a thread, 16 at a time. "
        f"{tool_requests.AT_WORK_MAX} such requests and checks are at work, and "
        f"{tool_requests.WAITING_MAX} wait",
        NOTHING,
    ),
    Cost(
        (_CODE.CHECK_TRANSACTIONS,),
        f"{open_transactions.PAGE_MAX:,} times one read in a thread, two appends and a request to a "
        "producer, one after the other; the appends only at the first check of a half, and no request "
        "about one that was asked about within a second",
        "copies of half messages that were not checked before, each with a mark of the former",
    ),
    Cost(
        (_CODE.RESUME_CHECK_HALF_MESSAGE,),
        "reads of at most 33 half messages in a thread, and two appends; one such request at a time",
        f"a half message; {OPEN_MAX:,} transactions may be open",
    ),
    Cost(
        (_CODE.CONSUMER_SEND_MSG_BACK,),
        "one read in a thread, and one append of a stored message; half messages and messages that "
        "are not due yet are refused",
        "the copy; the group's retry or dead-letter topic",
    ),
    Cost(
        (_CODE.RECALL_MESSAGE,),
        f"one append of a small message, for an id of {ID_BYTES_MAX} bytes",
        "the message, until the second of its due time is over and retention deletes it; in that "
        "second a key of 16 bytes",
    ),
    Cost(
        (_CODE.PULL_MESSAGE, _CODE.LITE_PULL_MESSAGE),
        f"one read: {_option('maxTransferCountOnMessageInMemory')} messages and "
        f"{_option('maxTransferBytesOnMessageInMemory')}, in bulk {_option('bulkPullCountMax')} and "
        f"{_option('bulkPullBytesMax')} in a thread, for records without bodies from up to "
        f"{READ_FACTOR} times as many bytes. A filter has at most "
        f"{EXPRESSION_CHARACTERS_MAX:,} characters",
        f"the pull itself, if it is held: {HOLD_MS_MAX // 1000} s, "
        f"{_option('pullThreadPoolQueueCapacity')} pulls; a committed offset; who pulled a queue "
        f"last, of {committed_offsets.PULLS_MAX:,} queues of groups",
    ),
    Cost(
        (_CODE.QUERY_MESSAGE,),
        f"a search of the index in a thread; {_option('maxMsgsNumBatch')} messages, "
        f"{_size(REPLY_BYTES_MAX)}",
        NOTHING,
    ),
    Cost((_CODE.VIEW_MESSAGE_BY_ID,), "one read in a thread", NOTHING),
    Cost((_CODE.QUERY_CONSUME_QUEUE,), f"{ENTRIES_MAX:,} entries, read in a thread", NOTHING),
    Cost(
        (_CODE.QUERY_CONSUMER_OFFSET, _CODE.GET_MAX_OFFSET, _CODE.GET_MIN_OFFSET),
        "a look-up",
        NOTHING,
    ),
    Cost(
        (_CODE.SEARCH_OFFSET_BY_TIMESTAMP, _CODE.GET_EARLIEST_MSG_STORETIME),
        "a binary search in a thread",
        NOTHING,
    ),
    Cost(
        (_CODE.UPDATE_CONSUMER_OFFSET,),
        "a look-up; offsets of queues that do not exist, or above their end, and those of the "
        "broker's own groups are refused",
        f"one offset, of {committed_offsets.QUEUES_MAX:,}; written every "
        f"{_option('flushConsumerOffsetInterval')} ms",
    ),
    Cost(
        (_CODE.CLONE_GROUP_OFFSET,),
        "as many offsets as the source group has",
        f"these offsets, of {committed_offsets.QUEUES_MAX:,}",
    ),
    Cost(
        (_CODE.INVOKE_BROKER_TO_RESET_OFFSET,),
        f"a search in each queue of a topic, of at most {QUEUES_MAX:,}, in a thread",
        f"an offset for each, of {committed_offsets.QUEUES_MAX:,}",
    ),
    Cost(
        (_CODE.FOLLOW_MASTER,),
        f"waits {following.WAIT_MS_MAX // 1000} s for something new, {following.WAITING_MAX} such "
        "requests at a time; further ones are answered at once",
        "what the slave says of itself, until its connection closes",
    ),
    Cost((_CODE.READ_STANDING,), "a few fields, and the epochs of the group", "nothing"),
    Cost(
        (_CODE.PROMOTE_BROKER,),
        "one at a time; asks the master whether it answers, syncs the log, and restarts the broker",
        "the epoch and the role, on disk",
    ),
    Cost(
        (_CODE.LIST_QUEUE_ENDS,),
        f"whole topics until {promotion.ENDS_PER_PAGE:,} queues are reached, listed in a thread, with "
        f"a scan of what the log has and does not show; {tool_requests.AT_WORK_MAX} at work, "
        f"{tool_requests.WAITING_MAX} wait",
        "nothing",
    ),
    Cost(
        (_CODE.OPEN_ARCHIVE,),
        f"two writes of the table of archives, in a thread; a name of 127 characters and a target of "
        f"{TARGET_LENGTH_MAX:,}",
        f"an archive, of {ARCHIVES_MAX:,}",
    ),
    Cost(
        (_CODE.ADVANCE_ARCHIVE,),
        "one write of the table of archives, in a thread; changes that wait share it",
        f"marks of queues, {MARKS_MAX:,} of all archives together",
    ),
    Cost((_CODE.RELEASE_ARCHIVE,), "one write of the table of archives, in a thread", NOTHING),
    Cost(
        (_CODE.LIST_ARCHIVES,),
        f"a list of {ARCHIVES_MAX:,} archives; with figures, a look at each queue of their topics, and "
        f"one read if a mark has moved, in a thread; {tool_requests.AT_WORK_MAX} at work, "
        f"{tool_requests.WAITING_MAX} wait",
        NOTHING,
    ),
    Cost(
        (_CODE.GET_ALL_CONSUMER_OFFSET,),
        f"a copy of {committed_offsets.QUEUES_MAX:,} offsets; the reply is made in a thread",
        NOTHING,
    ),
    Cost(
        (_CODE.HEART_BEAT,),
        f"{GROUPS_PER_CLIENT_MAX:,} groups, {SUBSCRIPTIONS_PER_GROUP_MAX:,} subscriptions in each, "
        "within the body; new groups and retry topics are written once",
        f"groups, of {GROUPS_MAX:,}, and their retry topics, of {TOPICS_MAX:,}; membership, until "
        f"the connection closes or {_option('channelExpiredTimeout')} ms pass; "
        f"{_option('membersBytesMax')} of all clients together",
    ),
    Cost((_CODE.UNREGISTER_CLIENT,), "a look-up", NOTHING),
    Cost((_CODE.CHECK_CLIENT_CONFIG,), "one filter is compiled", "the filter, in a bounded cache"),
    Cost(
        (
            _CODE.GET_CONSUMER_LIST_BY_GROUP,
            _CODE.GET_CONSUMER_CONNECTION_LIST,
            _CODE.GET_PRODUCER_CONNECTION_LIST,
            _CODE.GET_ALL_PRODUCER_INFO,
            _CODE.QUERY_SUBSCRIPTION_BY_CONSUMER,
        ),
        f"an entry for each client in a group, within {_option('membersBytesMax')} of all clients",
        NOTHING,
    ),
    Cost(
        (_CODE.LOCK_BATCH_MQ, _CODE.UNLOCK_BATCH_MQ),
        f"{QUEUES_PER_REQUEST_MAX:,} queues that exist, of a group that exists; as many bytes are "
        "appended to a file as the request has",
        f"locks, of {LOCKS_MAX:,}, for {LEASE_MS // 1000} s",
    ),
    Cost(
        (_CODE.LIST_QUEUE_LOCKS,),
        f"a list of {LOCKS_MAX:,} locks; the reply is made in a thread",
        "nothing",
    ),
    Cost(
        (_CODE.LIST_STORE_TABLES,),
        "an entry for each queue in memory and for each deleted topic; the reply is made in a thread",
        "nothing",
    ),
    Cost(
        (_CODE.UPDATE_AND_CREATE_TOPIC, _CODE.UPDATE_AND_CREATE_TOPIC_LIST),
        f"one write of the table of topics, in a thread; {PER_CHANGE_MAX:,} topics of "
        f"{QUEUES_MAX:,} queues, and one report to each name server",
        f"topics, of {TOPICS_MAX:,}, with {TOTAL_QUEUES_MAX:,} queues together",
    ),
    Cost(
        (_CODE.DELETE_TOPIC_IN_BROKER,),
        "one write of the table, and the files of its queues, in a thread",
        "its messages stay in the log until retention deletes them",
    ),
    Cost(
        (
            _CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            _CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        ),
        f"one write of the table of groups, in a thread; {PER_CHANGE_MAX:,} groups",
        f"groups, of {GROUPS_MAX:,}",
    ),
    Cost(
        (_CODE.DELETE_SUBSCRIPTIONGROUP, _CODE.UPDATE_AND_GET_GROUP_FORBIDDEN),
        "one write of the table of groups, in a thread",
        f"topics that groups may not read, {FORBIDDEN_MAX:,} of all groups together",
    ),
    Cost(
        (_CODE.GET_ALL_TOPIC_CONFIG, _CODE.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        f"{TOPICS_MAX:,} topics, {GROUPS_MAX:,} groups, or a page of them; the reply is made in a "
        "thread, and refused above the size of a frame",
        NOTHING,
    ),
    Cost(
        (
            _CODE.GET_ALL_DELAY_OFFSET,
            _CODE.GET_TIMER_CHECK_POINT,
            _CODE.GET_TIMER_METRICS,
            _CODE.GET_ALL_MESSAGE_REQUEST_MODE,
        ),
        "a few numbers",
        NOTHING,
    ),
    Cost(
        (_CODE.GET_TOPIC_CONFIG, _CODE.GET_SUBSCRIPTIONGROUP_CONFIG),
        "a look-up",
        NOTHING,
    ),
    Cost(
        (
            _CODE.GET_TOPIC_STATS_INFO,
            _CODE.GET_CONSUME_STATS,
            _CODE.QUERY_CONSUME_TIME_SPAN,
            _CODE.GET_BROKER_CONSUME_STATS,
        ),
        f"a row for each queue, {QUEUES_MAX:,} in a topic, measured and written in a thread; "
        "refused above the size of a frame",
        NOTHING,
    ),
    Cost(
        (
            _CODE.QUERY_TOPIC_CONSUME_BY_WHO,
            _CODE.QUERY_TOPICS_BY_CONSUMER,
            _CODE.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        ),
        f"a name for each of {GROUPS_MAX:,} groups or {TOPICS_MAX:,} topics",
        NOTHING,
    ),
    Cost(
        (
            _CODE.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            _CODE.GET_CONSUMER_RUNNING_INFO,
            _CODE.CONSUME_MESSAGE_DIRECTLY,
        ),
        f"a call to a client of the group; {_option('serverAsyncSemaphoreValue')} at a time",
        NOTHING,
    ),
    Cost(
        (_CODE.UPDATE_BROKER_CONFIG, _CODE.UPDATE_NAMESRV_CONFIG),
        "live options within their ranges; guarded ones only with `allowGuardedUpdates=true`",
        "the values, in the file of options",
    ),
    Cost(
        (
            _CODE.GET_BROKER_CONFIG,
            _CODE.GET_NAMESRV_CONFIG,
            _CODE.GET_BROKER_RUNTIME_INFO,
            _CODE.VIEW_BROKER_STATS_DATA,
            _CODE.GET_BROKER_HA_STATUS,
        ),
        "a few hundred lines",
        NOTHING,
    ),
    Cost(
        (
            _CODE.CLEAN_EXPIRED_CONSUMEQUEUE,
            _CODE.CLEAN_UNUSED_TOPIC,
            _CODE.DELETE_EXPIRED_COMMITLOG,
        ),
        "a pass over queue or log files, in a thread; deletes only what has expired by "
        f"{_option('fileReservedTime')} hours or belongs to no topic",
        NOTHING,
    ),
    Cost(
        (_CODE.STAGE_ROWS,),
        f"appends within a frame, at most {PARTS_MAX:,} requests in one",
        "the rows, until their batch is decided or retention deletes them",
    ),
    Cost(
        (_CODE.DECIDE_WRITES, _CODE.APPOINT_COORDINATOR, _CODE.MOVE_ROWS, _CODE.FORGET_QUERY),
        f"{WRITES_MAX:,} writes, decided and moved in threads",
        f"the state of a query, of {QUERIES_MAX:,} with {_size(STATES_BYTES_MAX)} together; a call a "
        f"second to each broker that has not moved its rows, {PENDING_MOVES_MAX:,} for all queries; "
        f"the state of a batch write that is finished, for "
        f"{_option('batchWriteHoursMax')} hours",
    ),
    Cost(
        (_CODE.LIST_QUERIES,),
        f"{PAGE_MAX:,} queries in a reply; a slave reads their states in its log, in a thread",
        f"at a slave, what was read: {QUERIES_MAX:,} queries",
    ),
    Cost(
        (_CODE.REGISTER_FILTER_SERVER,),
        f"an address of at most {ADDRESS_LENGTH_MAX} characters",
        f"a filter server, of {FILTER_SERVERS_MAX}, until its connection closes or "
        f"{SILENCE_MS_MAX // 1000} s pass without another such request",
    ),
    Cost(
        (_CODE.REGISTER_BROKER, _CODE.QUERY_DATA_VERSION, _CODE.BROKER_HEARTBEAT),
        "the topics of a broker, as many as fit a frame, names of at most "
        f"{NAME_LENGTH_MAX} characters, {FILTER_SERVERS_MAX} filter servers",
        f"a broker, of {_option('brokersMax')}, with its topics, of {_option('topicsMax')}, and "
        f"their routes, of {_option('routesMax')} of all brokers, until "
        f"its connection closes or {_option('brokerChannelExpiredTime')} ms pass; then what is "
        "remembered of a missing broker, bounded too; of a master with an epoch above 0 that "
        f"epoch, of {_option('epochsMax')} broker groups, for good",
    ),
    Cost(
        (_CODE.FORGET_EPOCH,),
        f"the file of epochs, of {_option('epochsMax')} broker groups, is written again",
        NOTHING,
    ),
    Cost(
        (
            _CODE.UNREGISTER_BROKER,
            _CODE.WIPE_WRITE_PERM_OF_BROKER,
            _CODE.ADD_WRITE_PERM_OF_BROKER,
            _CODE.DELETE_TOPIC_IN_NAMESRV,
        ),
        "a pass over the topics of a broker, or the brokers of a topic",
        NOTHING,
    ),
    Cost(
        (_CODE.REGISTER_TOPIC_IN_NAMESRV,),
        "the queues in the body",
        f"a topic, of {_option('topicsMax')}, and its routes, of {_option('routesMax')}",
    ),
    Cost(
        (_CODE.GET_ROUTEINFO_BY_TOPIC, _CODE.GET_BROKER_MEMBER_GROUP),
        "the brokers of a topic or of a name",
        f"the reply, in a cache of {_size(CACHED_BYTES_MAX)}",
    ),
    Cost(
        (
            _CODE.GET_BROKER_CLUSTER_INFO,
            _CODE.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            _CODE.GET_TOPICS_BY_CLUSTER,
            _CODE.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            _CODE.GET_UNIT_TOPIC_LIST,
            _CODE.GET_HAS_UNIT_SUB_TOPIC_LIST,
            _CODE.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        ),
        f"a row for each of {_option('brokersMax')} brokers, or a name for each of "
        f"{_option('topicsMax')} topics; refused above the size of a frame",
        NOTHING,
    ),
    Cost(
        (_CODE.PUT_KV_CONFIG, _CODE.DELETE_KV_CONFIG),
        "one write of the table, in a thread; changes that wait share it",
        f"a key, of {_option('kvConfigMax')} and {_option('kvConfigBytesMax')}",
    ),
    Cost(
        (_CODE.GET_KV_CONFIG, _CODE.GET_KVLIST_BY_NAMESPACE),
        f"a namespace, of {_option('kvConfigMax')} keys",
        NOTHING,
    ),
)

# What a filter server answers; a pull costs it something else than a broker.
FILTER_SERVER_COSTS = (
    Cost(
        (_CODE.PULL_MESSAGE,),
        "a pull from its broker, then the function in a process of its own: "
        f"{_option('workersPerFilter')} processes a function, killed after "
        f"{_option('filterTimeLimitMillis')} ms or at {_option('filterMemoryBytesMax')}; at most "
        f"{_option('filterWaitingBytesMax')} of messages wait for a function",
        f"the process, for {_option('filterIdleSeconds')} s",
    ),
    Cost(
        (_CODE.REGISTER_MESSAGE_FILTER_CLASS,),
        f"three names of at most {CLASS_NAME_LENGTH_MAX} characters; the body is dropped unread",
        f"the name of a class, of {CLASSES_MAX:,}; the one registered longest ago is dropped",
    ),
)

_HEAD = f"""\
# Limits

<!-- Written by scripts/generate_docs.py from scripts/limits_page.py and the constants that enforce \
the limits; change those. -->

What the largest request of each code costs a server, and what it leaves behind. There is no access \
control yet: whoever can connect may send any of these, as often as the limits of all requests allow.

## All requests

| what | limit | beyond it |
|---|---|---|
| connections | {_option("serverConnectionsMax")} | closed |
| a frame | {_option("frameMaxLength")} | the connection is closed |
| a header | {_size(HEADER_BYTES_MAX)}, {FIELDS_MAX:,} fields | the connection is closed |
| a body | as below; {_size(BODY_BYTES_MAX)} unless the request carries messages or lists | refused |
| requests in flight of a connection | {_option("connectionWorkBytesMax")} | busy |
| requests in flight of all connections | {_option("totalWorkBytesMax")} | busy |
| unsent replies of a connection | {_option("writeBufferHighWaterMark")} | it is not read until they are sent |
| a connection's turn on the event loop | {TURN_MS:g} ms | others are served before its next one |
| one that used over {SLOW_MS:g} ms; a request of over {LARGE_FRAME_BYTES // 1024} KiB that is no plain send; \
a long filter that is new | one of them at a time | all others are served in between; while there are others, such \
requests get a quarter of the loop's time |

So a request may be repeated as fast as its connection gets its turns, and repeats cost time, not \
memory: what is in flight is counted, and what outlives a connection has a limit of its own. Work that \
reads or writes files, and large replies, are done in threads. A table that requests change together \
is written once for all of them.

## By request

"A frame" in the second column means that only the size of a frame limits the body.
"""


def limits_page() -> str:
    """Write the page."""
    return "\n".join([_HEAD, *_tables()]) + "\n"


def _tables() -> Iterator[str]:
    check_rows()
    for role, title in (
        (Role.BROKER, "Broker"),
        (Role.NAME_SERVER, "Name server"),
        (Role.FILTER_SERVER, "Filter server"),
    ):
        yield f"### {title}\n"
        yield "| request | body | the largest one costs | outlives the connection |"
        yield "|---|---|---|---|"
        for row in FILTER_SERVER_COSTS if role is Role.FILTER_SERVER else COSTS:
            codes = [code for code in row.codes if role in code.answered_by]
            if codes:
                named = ", ".join(f"`{code.name}` ({code.value})" for code in codes)
                bodies = ", ".join(dict.fromkeys(_body(code) for code in codes))
                yield f"| {named} | {bodies} | {row.cost} | {row.outlives} |"
        yield ""


def _body(code: RequestCode) -> str:
    limit = body_bytes_max(code)
    return "a frame" if limit is None else _size(limit)


def check_rows() -> None:
    """Raise ValueError unless each request that our servers answer has exactly one row."""
    _check(COSTS, Role.BROKER | Role.NAME_SERVER)
    _check(FILTER_SERVER_COSTS, Role.FILTER_SERVER)


def _check(costs: tuple[Cost, ...], roles: Role) -> None:
    listed = [code for row in costs for code in row.codes]
    answered = {code for code in RequestCode if code.answered_by & roles}
    repeated = {code.name for code in listed if listed.count(code) > 1}
    missing = {code.name for code in answered - set(listed)}
    unanswered = {code.name for code in set(listed) - answered}
    if repeated or missing or unanswered:
        raise ValueError(
            f"docs/limits.md: no row for {sorted(missing)}, several for {sorted(repeated)}, "
            f"and rows of {sorted(unanswered)}, which nobody answers"
        )
