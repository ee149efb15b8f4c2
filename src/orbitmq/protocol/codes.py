"""The one table of request and response codes.

A request code is one row: its number, who receives it, which of our roles answers it today, and its
purpose. Adding a code takes one row here and a pair of header types in `requests/`. A test compares
the rows with the handlers, and the page of codes in the docs is generated from them.
"""

from __future__ import annotations

from enum import Flag, IntEnum, auto
from typing import Final


class Role(Flag):
    """Who receives a request."""

    BROKER = auto()
    NAME_SERVER = auto()
    CLIENT = auto()
    CONTROLLER = auto()
    FILTER_SERVER = auto()


NOBODY: Final = Role(0)

# OrbitMQ's own request codes; no RocketMQ release uses this range.
OWN_CODES: Final = range(21_000, 21_400)


class RequestCode(IntEnum):
    """What a request asks for."""

    receivers: Role
    answered_by: Role
    purpose: str

    def __new__(cls, number: int, receivers: Role, answered_by: Role, purpose: str) -> RequestCode:
        """Keep the row's other columns on the member."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.receivers = receivers
        member.answered_by = answered_by
        member.purpose = purpose
        return member

    # to the broker: messages
    SEND_MESSAGE = 10, Role.BROKER, Role.BROKER, "send a message, long field names"
    PULL_MESSAGE = (
        11,
        Role.BROKER | Role.FILTER_SERVER,
        Role.BROKER | Role.FILTER_SERVER,
        "read messages of a queue, with long polling",
    )
    QUERY_MESSAGE = 12, Role.BROKER, Role.BROKER, "find messages by key"
    QUERY_BROKER_OFFSET = 13, Role.BROKER, NOBODY, "unused"
    QUERY_CONSUMER_OFFSET = 14, Role.BROKER, Role.BROKER, "committed offset of a group"
    UPDATE_CONSUMER_OFFSET = 15, Role.BROKER, Role.BROKER, "commit an offset of a group"
    UPDATE_AND_CREATE_TOPIC = 17, Role.BROKER, Role.BROKER, "create or change a topic"
    UPDATE_AND_CREATE_TOPIC_LIST = 18, Role.BROKER, Role.BROKER, "create or change many topics"
    GET_ALL_TOPIC_CONFIG = 21, Role.BROKER, Role.BROKER, "every topic of a broker"
    GET_TOPIC_CONFIG_LIST = 22, Role.BROKER, NOBODY, "unused"
    GET_TOPIC_NAME_LIST = 23, Role.BROKER, NOBODY, "unused"
    UPDATE_BROKER_CONFIG = 25, Role.BROKER, Role.BROKER, "change options of a running broker"
    GET_BROKER_CONFIG = 26, Role.BROKER, Role.BROKER, "options of a broker"
    TRIGGER_DELETE_FILES = 27, Role.BROKER, NOBODY, "unused"
    GET_BROKER_RUNTIME_INFO = 28, Role.BROKER, Role.BROKER, "counters and state of a broker"
    SEARCH_OFFSET_BY_TIMESTAMP = 29, Role.BROKER, Role.BROKER, "queue offset at a time"
    GET_MAX_OFFSET = 30, Role.BROKER, Role.BROKER, "end of a queue"
    GET_MIN_OFFSET = 31, Role.BROKER, Role.BROKER, "start of a queue"
    GET_EARLIEST_MSG_STORETIME = 32, Role.BROKER, Role.BROKER, "store time of the oldest message"
    VIEW_MESSAGE_BY_ID = 33, Role.BROKER, Role.BROKER, "one message by physical offset"
    HEART_BEAT = 34, Role.BROKER, Role.BROKER, "a client reports what it produces and consumes"
    UNREGISTER_CLIENT = 35, Role.BROKER, Role.BROKER, "a client leaves its groups"
    CONSUMER_SEND_MSG_BACK = 36, Role.BROKER, Role.BROKER, "send a message back for a later retry"
    END_TRANSACTION = 37, Role.BROKER, Role.BROKER, "commit or roll back a half message"
    GET_CONSUMER_LIST_BY_GROUP = 38, Role.BROKER, Role.BROKER, "members of a group"
    CHECK_TRANSACTION_STATE = (
        39,
        Role.CLIENT,
        Role.CLIENT,
        "ask a producer for the state of a transaction",
    )
    NOTIFY_CONSUMER_IDS_CHANGED = 40, Role.CLIENT, Role.CLIENT, "members of the group changed"
    LOCK_BATCH_MQ = 41, Role.BROKER, Role.BROKER, "lock queues for ordered consumption"
    UNLOCK_BATCH_MQ = 42, Role.BROKER, Role.BROKER, "unlock queues"
    GET_ALL_CONSUMER_OFFSET = 43, Role.BROKER, Role.BROKER, "every committed offset, for slaves"
    GET_ALL_DELAY_OFFSET = 45, Role.BROKER, Role.BROKER, "progress of the delay queues, for slaves"
    CHECK_CLIENT_CONFIG = 46, Role.BROKER, Role.BROKER, "check a filter expression"
    GET_CLIENT_CONFIG = 47, Role.BROKER, NOBODY, "unused"
    UPDATE_AND_CREATE_ACL_CONFIG = 50, Role.BROKER, NOBODY, "access rules of RocketMQ 4"
    DELETE_ACL_CONFIG = 51, Role.BROKER, NOBODY, "access rules of RocketMQ 4"
    GET_BROKER_CLUSTER_ACL_INFO = 52, Role.BROKER, NOBODY, "access rules of RocketMQ 4"
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53, Role.BROKER, NOBODY, "access rules of RocketMQ 4"
    GET_BROKER_CLUSTER_ACL_CONFIG = 54, Role.BROKER, NOBODY, "access rules of RocketMQ 4"
    GET_TIMER_CHECK_POINT = 60, Role.BROKER, Role.BROKER, "progress of the timer, for slaves"
    GET_TIMER_METRICS = 61, Role.BROKER, Role.BROKER, "metrics of the timer, for slaves"
    # to the name server
    PUT_KV_CONFIG = 100, Role.NAME_SERVER, Role.NAME_SERVER, "set one key of a namespace"
    GET_KV_CONFIG = 101, Role.NAME_SERVER, Role.NAME_SERVER, "read one key of a namespace"
    DELETE_KV_CONFIG = 102, Role.NAME_SERVER, Role.NAME_SERVER, "delete one key of a namespace"
    REGISTER_BROKER = (
        103,
        Role.NAME_SERVER,
        Role.NAME_SERVER,
        "a broker registers itself and its topics",
    )
    UNREGISTER_BROKER = 104, Role.NAME_SERVER, Role.NAME_SERVER, "a broker leaves"
    GET_ROUTEINFO_BY_TOPIC = 105, Role.NAME_SERVER, Role.NAME_SERVER, "route of a topic"
    GET_BROKER_CLUSTER_INFO = (
        106,
        Role.NAME_SERVER,
        Role.NAME_SERVER,
        "every broker of every cluster",
    )
    # administration
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = (
        200,
        Role.BROKER,
        Role.BROKER,
        "create or change a consumer group",
    )
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = (
        201,
        Role.BROKER,
        Role.BROKER,
        "every consumer group of a broker",
    )
    GET_TOPIC_STATS_INFO = 202, Role.BROKER, Role.BROKER, "offsets of the queues of a topic"
    GET_CONSUMER_CONNECTION_LIST = 203, Role.BROKER, Role.BROKER, "connections of a consumer group"
    GET_PRODUCER_CONNECTION_LIST = 204, Role.BROKER, Role.BROKER, "connections of a producer group"
    WIPE_WRITE_PERM_OF_BROKER = 205, Role.NAME_SERVER, Role.NAME_SERVER, "stop sends to a broker"
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206, Role.NAME_SERVER, Role.NAME_SERVER, "every topic name"
    DELETE_SUBSCRIPTIONGROUP = 207, Role.BROKER, Role.BROKER, "delete a consumer group"
    GET_CONSUME_STATS = 208, Role.BROKER, Role.BROKER, "progress of a consumer group"
    SUSPEND_CONSUMER = 209, Role.BROKER, NOBODY, "unused"
    RESUME_CONSUMER = 210, Role.BROKER, NOBODY, "unused"
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211, Role.BROKER, NOBODY, "unused"
    RESET_CONSUMER_OFFSET_IN_BROKER = 212, Role.BROKER, NOBODY, "unused"
    ADJUST_CONSUMER_THREAD_POOL = 213, Role.BROKER, NOBODY, "unused"
    WHO_CONSUME_THE_MESSAGE = 214, Role.BROKER, NOBODY, "unused"
    DELETE_TOPIC_IN_BROKER = 215, Role.BROKER, Role.BROKER, "delete a topic"
    DELETE_TOPIC_IN_NAMESRV = 216, Role.NAME_SERVER, Role.NAME_SERVER, "drop the route of a topic"
    REGISTER_TOPIC_IN_NAMESRV = (
        217,
        Role.NAME_SERVER,
        Role.NAME_SERVER,
        "add queues of a topic to the routes",
    )
    GET_KVLIST_BY_NAMESPACE = 219, Role.NAME_SERVER, Role.NAME_SERVER, "every key of a namespace"
    RESET_CONSUMER_CLIENT_OFFSET = 220, Role.CLIENT, Role.CLIENT, "set a consumer's offsets"
    GET_CONSUMER_STATUS_FROM_CLIENT = 221, Role.CLIENT, Role.CLIENT, "offsets of a consumer"
    INVOKE_BROKER_TO_RESET_OFFSET = 222, Role.BROKER, Role.BROKER, "reset the offsets of a group"
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = (
        223,
        Role.BROKER,
        Role.BROKER,
        "offsets of the members of a group",
    )
    GET_TOPICS_BY_CLUSTER = 224, Role.NAME_SERVER, Role.NAME_SERVER, "topics of a cluster"
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = (
        225,
        Role.BROKER,
        Role.BROKER,
        "create or change many consumer groups",
    )
    QUERY_TOPIC_CONSUME_BY_WHO = 300, Role.BROKER, Role.BROKER, "groups that consume a topic"
    REGISTER_FILTER_SERVER = 301, Role.BROKER, Role.BROKER, "a filter server is alive"
    REGISTER_MESSAGE_FILTER_CLASS = (
        302,
        Role.FILTER_SERVER,
        Role.FILTER_SERVER,
        "the filter class of a group; its source is never run",
    )
    QUERY_CONSUME_TIME_SPAN = 303, Role.BROKER, Role.BROKER, "how old the unconsumed messages are"
    GET_SYSTEM_TOPIC_LIST_FROM_NS = (
        304,
        Role.NAME_SERVER,
        Role.NAME_SERVER,
        "cluster and broker names, which are topics too",
    )
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305, Role.BROKER, Role.BROKER, "system topics of a broker"
    CLEAN_EXPIRED_CONSUMEQUEUE = 306, Role.BROKER, Role.BROKER, "drop queue files without messages"
    GET_CONSUMER_RUNNING_INFO = (
        307,
        Role.BROKER | Role.CLIENT,
        Role.BROKER | Role.CLIENT,
        "state of one consumer, relayed by the broker",
    )
    QUERY_CORRECTION_OFFSET = 308, Role.BROKER, NOBODY, "offsets of other groups"
    CONSUME_MESSAGE_DIRECTLY = (
        309,
        Role.BROKER | Role.CLIENT,
        Role.BROKER | Role.CLIENT,
        "have one consumer consume a message now, relayed by the broker",
    )
    SEND_MESSAGE_V2 = 310, Role.BROKER, Role.BROKER, "send a message, short field names"
    GET_UNIT_TOPIC_LIST = 311, Role.NAME_SERVER, Role.NAME_SERVER, "topics of units"
    GET_HAS_UNIT_SUB_TOPIC_LIST = (
        312,
        Role.NAME_SERVER,
        Role.NAME_SERVER,
        "topics subscribed by units",
    )
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = (
        313,
        Role.NAME_SERVER,
        Role.NAME_SERVER,
        "topics outside units that units subscribe to",
    )
    CLONE_GROUP_OFFSET = 314, Role.BROKER, Role.BROKER, "copy offsets of a group to another"
    VIEW_BROKER_STATS_DATA = 315, Role.BROKER, Role.BROKER, "one counter of a broker"
    CLEAN_UNUSED_TOPIC = 316, Role.BROKER, Role.BROKER, "drop queues of deleted topics"
    GET_BROKER_CONSUME_STATS = 317, Role.BROKER, Role.BROKER, "progress of every group"
    UPDATE_NAMESRV_CONFIG = (
        318,
        Role.NAME_SERVER,
        Role.NAME_SERVER,
        "change options of a running name server",
    )
    GET_NAMESRV_CONFIG = 319, Role.NAME_SERVER, Role.NAME_SERVER, "options of a name server"
    SEND_BATCH_MESSAGE = 320, Role.BROKER, Role.BROKER, "send many messages in one request"
    QUERY_CONSUME_QUEUE = 321, Role.BROKER, Role.BROKER, "raw entries of a queue"
    QUERY_DATA_VERSION = (
        322,
        Role.NAME_SERVER,
        Role.NAME_SERVER,
        "whether the broker needs to register again",
    )
    RESUME_CHECK_HALF_MESSAGE = 323, Role.BROKER, Role.BROKER, "check a half message again"
    SEND_REPLY_MESSAGE = 324, Role.BROKER, Role.BROKER, "answer a request message, long field names"
    SEND_REPLY_MESSAGE_V2 = (
        325,
        Role.BROKER,
        Role.BROKER,
        "answer a request message, short field names",
    )
    PUSH_REPLY_MESSAGE_TO_CLIENT = (
        326,
        Role.CLIENT,
        Role.CLIENT,
        "deliver an answer to the producer that waits for it",
    )
    ADD_WRITE_PERM_OF_BROKER = (
        327,
        Role.NAME_SERVER,
        Role.NAME_SERVER,
        "allow sends to a broker again",
    )
    GET_ALL_PRODUCER_INFO = 328, Role.BROKER, Role.BROKER, "every producer of a broker"
    DELETE_EXPIRED_COMMITLOG = 329, Role.BROKER, Role.BROKER, "delete expired log files"
    QUERY_TOPICS_BY_CONSUMER = 343, Role.BROKER, Role.BROKER, "topics a group consumed"
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345, Role.BROKER, Role.BROKER, "subscriptions of a group"
    GET_TOPIC_CONFIG = 351, Role.BROKER, Role.BROKER, "one topic of a broker"
    GET_SUBSCRIPTIONGROUP_CONFIG = 352, Role.BROKER, Role.BROKER, "one consumer group of a broker"
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353, Role.BROKER, Role.BROKER, "forbid a group to read a topic"
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS = 354, Role.BROKER, NOBODY, "RocksDB stores only"
    EXPORT_ROCKSDB_CONFIG_TO_JSON = 355, Role.BROKER, NOBODY, "RocksDB stores only"
    LITE_PULL_MESSAGE = (
        361,
        Role.BROKER,
        Role.BROKER,
        "read messages of a queue, from lite consumers",
    )
    RECALL_MESSAGE = 370, Role.BROKER, Role.BROKER, "recall a delayed message"
    QUERY_ASSIGNMENT = 400, Role.BROKER, NOBODY, "queues assigned by the broker"
    SET_MESSAGE_REQUEST_MODE = 401, Role.BROKER, NOBODY, "pull or pop for a group"
    GET_ALL_MESSAGE_REQUEST_MODE = 402, Role.BROKER, Role.BROKER, "pull or pop of every group"
    UPDATE_AND_CREATE_STATIC_TOPIC = 513, Role.BROKER, NOBODY, "static topics"
    # between brokers, and controllers
    GET_BROKER_MEMBER_GROUP = (
        901,
        Role.NAME_SERVER,
        Role.NAME_SERVER,
        "addresses of one broker group",
    )
    ADD_BROKER = 902, Role.BROKER, NOBODY, "broker containers"
    REMOVE_BROKER = 903, Role.BROKER, NOBODY, "broker containers"
    BROKER_HEARTBEAT = 904, Role.NAME_SERVER, Role.NAME_SERVER, "a broker is alive"
    NOTIFY_MIN_BROKER_ID_CHANGE = 905, Role.BROKER, NOBODY, "another broker of the group took over"
    EXCHANGE_BROKER_HA_INFO = 906, Role.BROKER, NOBODY, "replication addresses"
    GET_BROKER_HA_STATUS = 907, Role.BROKER, Role.BROKER, "slaves of a broker"
    RESET_MASTER_FLUSH_OFFSET = 908, Role.BROKER, NOBODY, "replication"
    CONTROLLER_ALTER_SYNC_STATE_SET = 1001, Role.CONTROLLER, NOBODY, "controller"
    CONTROLLER_ELECT_MASTER = 1002, Role.CONTROLLER, NOBODY, "controller"
    CONTROLLER_REGISTER_BROKER = 1003, Role.CONTROLLER, NOBODY, "controller"
    CONTROLLER_GET_REPLICA_INFO = 1004, Role.CONTROLLER, NOBODY, "controller"
    CONTROLLER_GET_METADATA_INFO = 1005, Role.CONTROLLER, NOBODY, "controller"
    CONTROLLER_GET_SYNC_STATE_DATA = 1006, Role.CONTROLLER, NOBODY, "controller"
    GET_BROKER_EPOCH_CACHE = 1007, Role.BROKER, NOBODY, "controller"
    NOTIFY_BROKER_ROLE_CHANGED = 1008, Role.BROKER, NOBODY, "controller"
    UPDATE_CONTROLLER_CONFIG = 1009, Role.CONTROLLER, NOBODY, "controller"
    GET_CONTROLLER_CONFIG = 1010, Role.CONTROLLER, NOBODY, "controller"
    CLEAN_BROKER_DATA = 1011, Role.CONTROLLER, NOBODY, "controller"
    CONTROLLER_GET_NEXT_BROKER_ID = 1012, Role.CONTROLLER, NOBODY, "controller"
    CONTROLLER_APPLY_BROKER_ID = 1013, Role.CONTROLLER, NOBODY, "controller"
    BROKER_CLOSE_CHANNEL_REQUEST = 1014, Role.CONTROLLER, NOBODY, "controller"
    CHECK_NOT_ACTIVE_BROKER_REQUEST = 1015, Role.CONTROLLER, NOBODY, "controller"
    GET_BROKER_LIVE_INFO_REQUEST = 1016, Role.CONTROLLER, NOBODY, "controller"
    GET_SYNC_STATE_DATA_REQUEST = 1017, Role.CONTROLLER, NOBODY, "controller"
    RAFT_BROKER_HEART_BEAT_EVENT_REQUEST = 1018, Role.CONTROLLER, NOBODY, "controller"
    UPDATE_COLD_DATA_FLOW_CTR_CONFIG = 2001, Role.BROKER, NOBODY, "cold reads"
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG = 2002, Role.BROKER, NOBODY, "cold reads"
    GET_COLD_DATA_FLOW_CTR_INFO = 2003, Role.BROKER, NOBODY, "cold reads"
    SET_COMMITLOG_READ_MODE = 2004, Role.BROKER, NOBODY, "cold reads"
    AUTH_CREATE_USER = 3001, Role.BROKER, NOBODY, "users and rules of RocketMQ 5"
    AUTH_UPDATE_USER = 3002, Role.BROKER, NOBODY, "users and rules of RocketMQ 5"
    AUTH_DELETE_USER = 3003, Role.BROKER, NOBODY, "users and rules of RocketMQ 5"
    AUTH_GET_USER = 3004, Role.BROKER, NOBODY, "users and rules of RocketMQ 5"
    AUTH_LIST_USER = 3005, Role.BROKER, NOBODY, "users and rules of RocketMQ 5"
    AUTH_CREATE_ACL = 3006, Role.BROKER, NOBODY, "users and rules of RocketMQ 5"
    AUTH_UPDATE_ACL = 3007, Role.BROKER, NOBODY, "users and rules of RocketMQ 5"
    AUTH_DELETE_ACL = 3008, Role.BROKER, NOBODY, "users and rules of RocketMQ 5"
    AUTH_GET_ACL = 3009, Role.BROKER, NOBODY, "users and rules of RocketMQ 5"
    AUTH_LIST_ACL = 3010, Role.BROKER, NOBODY, "users and rules of RocketMQ 5"
    SWITCH_TIMER_ENGINE = 5001, Role.BROKER, NOBODY, "timers"
    # OrbitMQ's own: rows of Spark that are written exactly once
    STAGE_ROWS = 21_001, Role.BROKER, Role.BROKER, "stage rows until their batch is committed"
    DECIDE_WRITES = 21_002, Role.BROKER, Role.BROKER, "decide which staged rows of a batch count"
    APPOINT_COORDINATOR = 21_003, Role.BROKER, Role.BROKER, "which broker decides for a query"
    MOVE_ROWS = 21_004, Role.BROKER, Role.BROKER, "move decided rows to their queues"
    LIST_QUERIES = 21_005, Role.BROKER, Role.BROKER, "queries that write exactly once"
    FORGET_QUERY = 21_006, Role.BROKER, Role.BROKER, "forget a query that wrote exactly once"
    # OrbitMQ's own: open transactions
    LIST_TRANSACTIONS = 21_101, Role.BROKER, Role.BROKER, "transactions that wait for their end"
    CHECK_TRANSACTIONS = 21_102, Role.BROKER, Role.BROKER, "ask producers about transactions now"
    # OrbitMQ's own: slaves
    FOLLOW_MASTER = 21_301, Role.BROKER, Role.BROKER, "what is visible at the master, for slaves"
    READ_STANDING = 21_302, Role.BROKER, Role.BROKER, "role, epoch and log of a broker in its group"
    PROMOTE_BROKER = 21_303, Role.BROKER, Role.BROKER, "make a slave the master of its group"
    LIST_QUEUE_ENDS = 21_304, Role.BROKER, Role.BROKER, "where queues end in a log, visible or not"
    LIST_QUEUE_LOCKS = 21_305, Role.BROKER, Role.BROKER, "owners of queue locks, for slaves"
    LIST_STORE_TABLES = 21_306, Role.BROKER, Role.BROKER, "what of a store is not in its log"
    # OrbitMQ's own: messages that are not due yet
    LIST_PENDING = 21_201, Role.BROKER, Role.BROKER, "messages that are not due yet"
    COUNT_PENDING = 21_202, Role.BROKER, Role.BROKER, "how many messages are due when"
    DELIVER_PENDING = 21_203, Role.BROKER, Role.BROKER, "deliver a message before its due time"
    # OrbitMQ's own: archives that retention may wait for
    OPEN_ARCHIVE = 21_351, Role.BROKER, Role.BROKER, "open an archive of a topic"
    ADVANCE_ARCHIVE = 21_352, Role.BROKER, Role.BROKER, "how far queues are archived"
    LIST_ARCHIVES = 21_353, Role.BROKER, Role.BROKER, "archives, and how far they are"
    RELEASE_ARCHIVE = 21_354, Role.BROKER, Role.BROKER, "forget an archive"
    # OrbitMQ's own: epochs of masters
    FORGET_EPOCH = (
        21_251,
        Role.NAME_SERVER,
        Role.NAME_SERVER,
        "forget the epoch of a broker group",
    )
    POP_MESSAGE = 200050, Role.BROKER, NOBODY, "pop messages, invisible to others for a while"
    ACK_MESSAGE = 200051, Role.BROKER, NOBODY, "acknowledge a popped message"
    PEEK_MESSAGE = 200052, Role.BROKER, NOBODY, "read messages without popping them"
    CHANGE_MESSAGE_INVISIBLETIME = 200053, Role.BROKER, NOBODY, "extend the time of a pop"
    NOTIFICATION = 200054, Role.BROKER, NOBODY, "whether there are messages to pop"
    POLLING_INFO = 200055, Role.BROKER, NOBODY, "waiting pops"
    POP_ROLLBACK = 200056, Role.BROKER, NOBODY, "return popped messages"
    POP_LITE_MESSAGE = 200070, Role.BROKER, NOBODY, "lite topics of RocketMQ 5.5"
    LITE_SUBSCRIPTION_CTL = 200071, Role.BROKER, NOBODY, "lite topics of RocketMQ 5.5"
    ACK_LITE_MESSAGE = 200072, Role.BROKER, NOBODY, "lite topics of RocketMQ 5.5"
    NOTIFY_UNSUBSCRIBE_LITE = 200073, Role.CLIENT, NOBODY, "lite topics of RocketMQ 5.5"
    GET_BROKER_LITE_INFO = 200074, Role.BROKER, NOBODY, "lite topics of RocketMQ 5.5"
    GET_PARENT_TOPIC_INFO = 200075, Role.BROKER, NOBODY, "lite topics of RocketMQ 5.5"
    GET_LITE_TOPIC_INFO = 200076, Role.BROKER, NOBODY, "lite topics of RocketMQ 5.5"
    GET_LITE_CLIENT_INFO = 200077, Role.BROKER, NOBODY, "lite topics of RocketMQ 5.5"
    GET_LITE_GROUP_INFO = 200078, Role.BROKER, NOBODY, "lite topics of RocketMQ 5.5"
    TRIGGER_LITE_DISPATCH = 200079, Role.BROKER, NOBODY, "lite topics of RocketMQ 5.5"
    BATCH_ACK_MESSAGE = 200151, Role.BROKER, NOBODY, "acknowledge popped messages"


# Not answered yet, but planned: access rules.
PLANNED: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    }
)


class ResponseCode(IntEnum):
    """The outcome of a request."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROKER_NOT_EXIST = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500
    USER_NOT_EXIST = 3001
    POLICY_NOT_EXIST = 3002


def request_name(code: int) -> str:
    """Name a request code, known or not, for messages and logs."""
    try:
        return f"{RequestCode(code).name} ({code})"  # type: ignore[call-arg]  # looked up by value, not made
    except ValueError:
        return f"request code {code}"
