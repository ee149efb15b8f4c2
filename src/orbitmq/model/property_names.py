"""Names of message properties that have a meaning in RocketMQ."""

from __future__ import annotations

from typing import Final

# --- set by producers ---------------------------------------------------------------------------

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQUE_ID: Final = "UNIQ_KEY"
WAIT_FOR_STORE: Final = "WAIT"
PRODUCER_GROUP: Final = "PGROUP"
SHARDING_KEY: Final = "__SHARDINGKEY"
INSTANCE_ID: Final = "INSTANCE_ID"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"

# --- set by brokers -----------------------------------------------------------------------------

REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"
RECORD_CRC: Final = "__CRC32#"
# Properties with this prefix are only sent, never stored.
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."

# --- set by consumers ---------------------------------------------------------------------------

MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
CONSUME_START_MS: Final = "CONSUME_START_TIME"
POP_CHECK_POINT: Final = "POP_CK"
POP_CHECK_POINT_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_MS: Final = "1ST_POP_TIME"

# --- delays -------------------------------------------------------------------------------------

DELAY_LEVEL: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TIMER_DELAY_SECONDS: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_CANCELS: Final = "TIMER_DEL_UNIQKEY"
TIMER_DUE_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUED_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUED_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLLS: Final = "TIMER_ROLL_TIMES"
TIMER_ROLL_LABEL: Final = "TIMER_ROLL_LABEL"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"

# --- retries ------------------------------------------------------------------------------------

RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RETRIES: Final = "RECONSUME_TIME"
RETRIES_MAX: Final = "MAX_RECONSUME_TIMES"
DEAD_LETTER_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DEAD_LETTER_ORIGIN_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

# --- transactions -------------------------------------------------------------------------------

HALF_MESSAGE: Final = "TRAN_MSG"
TRANSACTION_ID: Final = "__transactionId__"
CHECK_IMMUNITY_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
HALF_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"

# --- request and reply --------------------------------------------------------------------------

CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
REPLY_TTL_MS: Final = "TTL"
MESSAGE_TYPE: Final = "MSG_TYPE"
# The only message type that brokers and clients treat in a special way.
ANSWER: Final = "reply"
REPLY_ARRIVED_MS: Final = "ARRIVE_TIME"
REPLY_PUSHED_MS: Final = "PUSH_REPLY_TIME"

# --- batches stored whole, and messages in many queues ------------------------------------------

INNER_COUNT: Final = "INNER_NUM"
INNER_FIRST_OFFSET: Final = "INNER_BASE"
INNER_QUEUES: Final = "INNER_MULTI_DISPATCH"
INNER_QUEUE_OFFSETS: Final = "INNER_MULTI_QUEUE_OFFSET"

# --- failures of consumers ----------------------------------------------------------------------

# OrbitMQ's own: why the last attempt to consume a message failed.
FAILURE_REASON: Final = "ORBIT_REASON"

# --- messages of a log that was cut -------------------------------------------------------------

# OrbitMQ's own: the saved tail, and where in its log the message was that was sent again.
CUT_FROM: Final = "ORBIT_CUT"

# --- rows written exactly once ------------------------------------------------------------------

STAGED_FOR: Final = "ORBIT_TO"
ROW_NAME: Final = "ORBIT_ROW"

# RocketMQ's own without a meaning here; passed on.
PASSED_ON: Final = frozenset(
    {
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "BUYER_ID",
        "DUP_INFO",
        "EXTEND_UNIQ_INFO",
        "PROPERTY_FORWARD_QUEUE_ID",
        "REDIRECT",
        "TRACE_CONTEXT",
    }
)

# Names that users may not set, as in Java's clients.
RESERVED: Final = frozenset(
    {
        KEYS,
        TAGS,
        UNIQUE_ID,
        WAIT_FOR_STORE,
        PRODUCER_GROUP,
        SHARDING_KEY,
        INSTANCE_ID,
        BORN_HOST,
        BORN_TIMESTAMP,
        REGION,
        TRACE_ON,
        CLUSTER,
        RECORD_CRC,
        MIN_OFFSET,
        MAX_OFFSET,
        CONSUME_START_MS,
        POP_CHECK_POINT,
        POP_CHECK_POINT_OFFSET,
        FIRST_POP_MS,
        DELAY_LEVEL,
        REAL_TOPIC,
        REAL_QUEUE_ID,
        TIMER_DELAY_SECONDS,
        TIMER_DELAY_MS,
        TIMER_DELIVER_MS,
        TIMER_CANCELS,
        TIMER_DUE_MS,
        TIMER_ENQUEUED_MS,
        TIMER_DEQUEUED_MS,
        TIMER_ROLLS,
        TIMER_DELAY_LEVEL,
        RETRY_TOPIC,
        ORIGIN_MESSAGE_ID,
        RETRIES,
        RETRIES_MAX,
        DEAD_LETTER_ORIGIN_TOPIC,
        DEAD_LETTER_ORIGIN_ID,
        HALF_MESSAGE,
        HALF_QUEUE_OFFSET,
        CORRELATION_ID,
        REPLY_TO_CLIENT,
        REPLY_TTL_MS,
        MESSAGE_TYPE,
        REPLY_ARRIVED_MS,
        REPLY_PUSHED_MS,
        INNER_QUEUE_OFFSETS,
        "TRANSFER_FLAG",
        "CORRECTION_FLAG",
        "MQ2_FLAG",
        "BUYER_ID",
        "DUP_INFO",
        "EXTEND_UNIQ_INFO",
    }
)

# What belongs to one copy of a message: its id, delay, transaction, retries and the like. A message
# that is sent on leaves them out, or it would be delayed again, or wait for a commit.
NOT_SENT_ON: Final = (
    RESERVED
    | {
        TIMER_ROLL_LABEL,
        TRANSACTION_ID,
        CHECK_IMMUNITY_SECONDS,
        CHECK_TIMES,
        INNER_COUNT,
        INNER_FIRST_OFFSET,
        INNER_QUEUES,
        INNER_QUEUE_OFFSETS,
        STAGED_FOR,
        ROW_NAME,
        FAILURE_REASON,
    }
) - {KEYS, TAGS, SHARDING_KEY}
# And all with this prefix.
BROKER_PREFIX: Final = "__RMQ"
