"""Names of message properties that RocketMQ gives a meaning."""

from __future__ import annotations

from typing import Final

# --- what a producer says of its message --------------------------------------------------------

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQUE_ID: Final = "UNIQ_KEY"
WAIT_FOR_STORE: Final = "WAIT"
PRODUCER_GROUP: Final = "PGROUP"
SHARDING_KEY: Final = "__SHARDINGKEY"
INSTANCE_ID: Final = "INSTANCE_ID"

# --- what a broker says of it -------------------------------------------------------------------

REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"

# --- delays -------------------------------------------------------------------------------------

DELAY_LEVEL: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TIMER_DELAY_SECONDS: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_CANCELS: Final = "TIMER_DEL_UNIQKEY"

# --- retries ------------------------------------------------------------------------------------

RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RETRIES: Final = "RECONSUME_TIME"
RETRIES_MAX: Final = "MAX_RECONSUME_TIMES"
POP_CHECK_POINT: Final = "POP_CK"

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
