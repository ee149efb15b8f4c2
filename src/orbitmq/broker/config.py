"""Options of the broker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orbitmq.settings import option
from orbitmq.transport.local_machine import host_name

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Identity, permissions and limits of the broker."""

    # --- identity -----------------------------------------------------------------------------

    home: str = option(
        "",
        java="rocketmqHome",
        environment=("ROCKETMQ_HOME",),
        doc="Installation directory; accepted for RocketMQ's scripts, otherwise unused.",
    )
    name_servers: str = option(
        "",
        java="namesrvAddr",
        environment=("NAMESRV_ADDR",),
        live=True,
        guarded="send the broker to other name servers",
        doc="Name servers to register with, as host:port;host:port; with none the broker registers "
        "nowhere.",
    )
    cluster_name: str = option(
        "DefaultCluster", java="brokerClusterName", doc="Cluster this broker belongs to."
    )
    broker_name: str = option(
        host_name() or "broker",
        java="brokerName",
        default_shown="the host name",
        doc="Name of the broker; a master and its slaves share it.",
    )
    broker_id: int = option(
        0,
        low=0,
        high=2**31 - 1,
        java="brokerId",
        doc="0 for a master; each slave of it has another one.",
    )
    advertised_address: str = option(
        "",
        java="brokerIP1",
        default_shown="bindAddress, or an address of this machine if that is 0.0.0.0 or ::",
        doc="Address that clients connect to.",
    )
    replication_address: str = option(
        "",
        java="brokerIP2",
        default_shown="brokerIP1",
        doc="Address that slaves connect to.",
    )
    region: str = option(
        "DefaultRegion", java="regionId", doc="Region that messages and replies are marked with."
    )
    trace_on: bool = option(True, java="traceOn", doc="Tell clients to send traces.")
    store_answers: bool = option(
        True,
        java="storeReplyMessageEnable",
        live=True,
        doc="Store the replies of request-reply in the cluster's reply topic, besides pushing them "
        "to the clients that wait for them.",
    )
    config_black_list: tuple[str, ...] = option(
        ("configBlackList", "brokerConfigPath"),
        java="configBlackList",
        doc="Options that no live update may change.",
    )
    config_path: Path = option(
        Path(),
        java="brokerConfigPath",
        default_shown="config/broker.properties below storePathRootDir",
        doc="File that live updates are written to when the broker was started without -c.",
    )

    # --- topics and groups --------------------------------------------------------------------

    permission: int = option(
        6,
        low=0,
        high=7,
        live=True,
        java="brokerPermission",
        doc="What clients may do here: 4 read, 2 write, 6 both.",
    )
    topic_queues: int = option(
        8,
        low=1,
        high=65_536,
        java="defaultTopicQueueNums",
        doc="Queues of the template topic for new topics.",
    )
    create_topics: bool = option(
        True,
        java="autoCreateTopicEnable",
        doc="Create a topic when a message is sent to one that does not exist.",
    )
    create_groups: bool = option(
        True,
        java="autoCreateSubscriptionGroup",
        doc="Create a consumer group when its first member appears.",
    )
    cluster_topic: bool = option(
        True, java="clusterTopicEnable", doc="Let the cluster's topic be a template for new topics."
    )
    broker_topic: bool = option(
        True, java="brokerTopicEnable", doc="Let the broker's topic be a template for new topics."
    )
    trace_topic: bool = option(
        False, java="traceTopicEnable", doc="Create the topic for message traces."
    )
    trace_topic_name: str = option(
        "RMQ_SYS_TRACE_TOPIC", java="msgTraceTopicName", doc="Topic for message traces."
    )
    reject_inconsistent: bool = option(
        False,
        java="rejectInconsistentSubscriptions",
        doc="Reject a consumer whose subscriptions differ from those of its group.",
    )
    notify_members: bool = option(
        True,
        live=True,
        java="notifyConsumerIdsChangedEnable",
        doc="Notify the members of a group at once when one joins or leaves.",
    )

    batch_write_hours: int = option(
        168,
        low=1,
        high=1_000_000,
        live=True,
        guarded="write rows twice",
        java="batchWriteHoursMax",
        doc="Hours that a finished batch write of Spark with `delivery=exactlyOnce` is remembered. A "
        "batch that is written later under the same `writeId` counts as a new one. Streams are "
        "never forgotten.",
    )

    # --- sending and reading ------------------------------------------------------------------

    reject_transactions: bool = option(
        False, live=True, java="rejectTransactionMessage", doc="Refuse half messages."
    )
    transaction_timeout_ms: int = option(
        6000,
        low=0,
        high=24 * _HOUR_MS,
        live=True,
        guarded="give up transactions early",
        java="transactionTimeOut",
        doc="How long a transaction is open before a producer of its group is asked how it ended, "
        "unless the producer set a time of its own.",
    )
    transaction_checks_max: int = option(
        15,
        low=1,
        high=10_000,
        live=True,
        guarded="give up transactions early",
        java="transactionCheckMax",
        doc="How often producers are asked how a transaction ended; then its message is moved to "
        "TRANS_CHECK_MAX_TIME_TOPIC.",
    )
    transaction_check_interval_ms: int = option(
        30_000,
        low=10,
        high=24 * _HOUR_MS,
        java="transactionCheckInterval",
        doc="Pause between two rounds of asking producers how transactions ended.",
    )
    property_filter: bool = option(
        True, live=True, java="enablePropertyFilter", doc="Allow SQL92 filters on properties."
    )
    long_polling: bool = option(
        True,
        live=True,
        java="longPollingEnable",
        doc="Hold a pull of an empty queue until a message arrives.",
    )
    short_poll_ms: int = option(
        1000,
        low=1,
        high=60_000,
        live=True,
        java="shortPollingTimeMills",
        doc="How long a pull of an empty queue is held without long polling.",
    )
    bulk_pull_count_max: int = option(
        16_384,
        low=0,
        high=1_000_000,
        live=True,
        doc="Messages in one reply to a bulk pull, as Spark sends; 0 treats bulk pulls like all "
        "others.",
    )
    bulk_pull_bytes_max: int = option(
        4 * 1024 * 1024,
        low=1024,
        high=8 * 1024 * 1024,
        live=True,
        doc="Bytes of one reply to a bulk pull; a single message may be larger.",
    )
    long_polls_max: int = option(
        100_000,
        low=1,
        high=10_000_000,
        live=True,
        guarded="use up memory or end long polling",
        java="pullThreadPoolQueueCapacity",
        doc="Pulls held at the same time; further ones get an empty reply.",
    )
    slave_read: bool = option(
        True,
        live=True,
        java="slaveReadEnable",
        doc="On a master: send consumers that lag to a slave. On a slave: serve pulls; without it "
        "they are refused.",
    )
    offset_check_in_slave: bool = option(
        False,
        live=True,
        guarded="move the consumers of a slave that lags",
        java="offsetCheckInSlave",
        doc="On a slave whose master is gone: move consumers whose offset is outside the queue, as "
        "a master does, instead of waiting until the slave or its master has the offset.",
    )
    accept_sends_ms: int = option(
        0,
        low=0,
        high=2**62,
        live=True,
        guarded="stop all sends",
        java="startAcceptSendRequestTimeStamp",
        doc="Refuse sends before this time, in milliseconds since 1970.",
    )
    fast_failure: bool = option(
        True,
        live=True,
        java="brokerFastFailureEnable",
        doc="Refuse sends early while the broker cannot keep up.",
    )
    unconfirmed_max: int = option(
        10_000,
        low=1,
        high=10_000_000,
        live=True,
        guarded="use up memory or stop sends",
        java="sendThreadPoolQueueCapacity",
        doc="Sends that may wait for the disk at the same time; further ones get a busy reply.",
    )

    # --- intervals ----------------------------------------------------------------------------

    offsets_flush_interval_ms: int = option(
        5000,
        low=10,
        high=_HOUR_MS,
        java="flushConsumerOffsetInterval",
        doc="Pause between two writes of committed offsets to disk.",
    )
    delay_flush_interval_ms: int = option(
        10_000,
        low=10,
        high=_HOUR_MS,
        java="flushDelayOffsetInterval",
        doc="Pause between two writes of the delay queues' progress to disk.",
    )
    recall_enable: bool = option(
        True,
        live=True,
        java="recallMessageEnable",
        doc="Whether producers may take back messages that are not due yet.",
    )
    register_interval_ms: int = option(
        30_000,
        low=10_000,
        high=60_000,
        java="registerNameServerPeriod",
        doc="Pause between two reports to the name servers.",
    )
    register_timeout_ms: int = option(
        24_000,
        low=100,
        high=600_000,
        java="registerBrokerTimeoutMills",
        doc="How long a report to a name server may take.",
    )
    member_silence_ms_max: int = option(
        120_000,
        low=1000,
        high=24 * _HOUR_MS,
        java="channelExpiredTimeout",
        doc="A client without a heartbeat for this long is removed.",
    )
    members_bytes_max: int = option(
        512 * 1024 * 1024,
        low=1024 * 1024,
        high=1024 * 1024 * 1024 * 1024,
        java="membersBytesMax",
        doc="Memory for what connected clients report of their groups and subscriptions; a "
        "heartbeat that would exceed it is refused.",
    )
    member_scan_interval_ms: int = option(
        10_000,
        low=100,
        high=_HOUR_MS,
        java="scanNotActiveClientInterval",
        doc="Pause between two checks for silent clients.",
    )
