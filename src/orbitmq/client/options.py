"""Options of clients: servers, identity, sending, consuming.

Clients take them as keyword arguments (`keywords.py`). An option that is not given is looked up in
the environment, as ORBITMQ_ and the option's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from orbitmq.errors import OptionValueError, PackageMissingError, SettingsError
from orbitmq.model.names import TEMPLATE_TOPIC, TRACE_TOPIC, check_topic
from orbitmq.settings import option
from orbitmq.transport.addresses import parse_addresses

# Means "an instance name of my own"; broadcasting consumers use it literally.
DEFAULT_INSTANCE: Final = "DEFAULT"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options of every client: servers, identity, credentials, TLS, intervals."""

    namesrv: str = option(
        "",
        java="namesrvAddr",
        environment=("NAMESRV_ADDR",),
        doc="Addresses of the name servers, separated by ';'. If empty, the client gets them "
        "from the address server.",
    )
    namesrv_domain: str = option(
        "",
        java="rocketmq.namesrv.domain",
        doc="Host of the address server, an HTTP server that lists the name servers; port 8080 "
        "unless given.",
    )
    namesrv_subgroup: str = option(
        "nsaddr",
        java="rocketmq.namesrv.domain.subgroup",
        doc="The list of name servers to request from the address server.",
    )
    namesrv_interval_ms: int = option(
        120_000,
        low=100,
        high=86_400_000,
        doc="Interval between requests to the address server.",
    )
    client_ip: str = option(
        "",
        java="clientIP",
        default_shown="an address of this machine",
        doc="First part of the id of this client; any name will do.",
    )
    instance_name: str = option(
        DEFAULT_INSTANCE,
        doc="Clients of one process with the same name share connections. DEFAULT gives each "
        "producer and each clustering consumer a name of its own.",
    )
    unit_name: str = option("", doc="The unit of this client; becomes part of its id.")
    namespace: str = option("", doc="Prefix of the names of topics and groups, as in RocketMQ 4.")
    access_key: str = option(
        "", doc="Access key that requests are signed with; empty leaves them unsigned."
    )
    secret_key: str = option("", secret=True, doc="Secret key that requests are signed with.")
    security_token: str = option(
        "", secret=True, doc="Token of temporary keys; empty for permanent ones."
    )
    tls: bool = option(False, java="tls.enable", doc="Connect with TLS.")
    tls_verify_server: bool = option(
        False,
        java="tls.client.authServer",
        doc="Refuse servers whose certificate is not signed by a trusted one.",
    )
    tls_trusted_path: str = option(
        "",
        java="tls.client.trustCertPath",
        doc="Trusted certificates, PEM; empty trusts the system's.",
    )
    tls_certificate_path: str = option(
        "", java="tls.client.certPath", doc="Certificate chain of the client, PEM."
    )
    tls_key_path: str = option("", java="tls.client.keyPath", doc="Private key of the client, PEM.")
    tls_key_password: str = option(
        "", java="tls.client.keyPassword", secret=True, doc="Password of the private key."
    )
    vip_channel: bool = option(
        False,
        java="vipChannelEnabled",
        doc="Send to the second port of brokers, which is their port minus 2 and not used by pulls.",
    )
    route_interval_ms: int = option(
        30_000,
        low=100,
        high=86_400_000,
        java="pollNameServerInterval",
        doc="Interval between refreshes of the routes of topics in use.",
    )
    heartbeat_interval_ms: int = option(
        30_000,
        low=100,
        high=86_400_000,
        java="heartbeatBrokerInterval",
        doc="Interval between heartbeats; brokers drop a client after 120 s of silence.",
    )
    persist_interval_ms: int = option(
        5_000,
        low=100,
        high=86_400_000,
        java="persistConsumerOffsetInterval",
        doc="Interval between commits of consumer offsets.",
    )
    call_timeout_ms: int = option(
        3_000,
        low=1,
        high=600_000,
        java="mqClientApiTimeout",
        doc="Timeout of calls to servers that have none of their own.",
    )
    connect_timeout_ms: int = option(
        3_000,
        low=1,
        high=600_000,
        java="connectTimeoutMillis",
        doc="Timeout of opening a connection.",
    )

    def __post_init__(self) -> None:
        parse_addresses(self.namesrv)
        if bool(self.access_key) != bool(self.secret_key):
            given, missing = (
                ("access_key", "secret_key") if self.access_key else ("secret_key", "access_key")
            )
            raise SettingsError(
                f"{given} is set and {missing} is not", hint="requests are signed with both"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedOptions(ClientOptions):
    """Options of producers and consumers: what they report about each message."""

    trace: bool = option(
        False,
        java="enableTrace",
        doc="Write what happens to each message to the trace topic, as RocketMQ's clients do; "
        "`orbitmq message trace` shows it.",
    )
    trace_topic: str = option(
        TRACE_TOPIC, java="traceTopic", doc="The topic that traces are written to."
    )
    trace_batch_size: int = option(
        50,
        low=1,
        high=200,
        java="traceMsgBatchNum",
        doc="Most trace records in one message. So many are sent at once, fewer after "
        "trace_interval_ms.",
    )
    trace_interval_ms: int = option(
        1_000, low=10, high=600_000, doc="Longest time that a trace record waits to be sent."
    )
    trace_pending_max: int = option(
        10_000,
        low=1,
        high=10_000_000,
        doc="Most trace records that wait to be sent; further ones are dropped and counted.",
    )
    trace_close_ms: int = option(
        3_000,
        low=0,
        high=600_000,
        doc="How long a client that stops waits until its last trace records are sent.",
    )
    opentelemetry: bool = option(
        False,
        doc="Make OpenTelemetry spans of sends and of calls of listeners, and send their context "
        "along as properties. Needs the extra `opentelemetry`.",
    )

    def __post_init__(self) -> None:
        # Not super(): a dataclass with slots is a new class, which super() does not know.
        ClientOptions.__post_init__(self)
        check_topic(self.trace_topic)
        if self.opentelemetry and find_spec("opentelemetry") is None:
            raise PackageMissingError(
                "opentelemetry-api", needed_by="opentelemetry=True", extra="opentelemetry"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(TracedOptions):
    """How a producer sends."""

    send_timeout_ms: int = option(
        3_000,
        low=1,
        high=86_400_000,
        java="sendMsgTimeout",
        doc="Timeout of a send, all its attempts together.",
    )
    retries: int = option(
        2,
        low=0,
        high=100,
        java="retryTimesWhenSendFailed",
        doc="How often a send is retried, on another broker if there is one.",
    )
    async_retries: int = option(
        2,
        low=0,
        high=100,
        java="retryTimesWhenSendAsyncFailed",
        doc="How often a send with callbacks (send_async) is retried.",
    )
    retry_pause_ms: int = option(
        100,
        low=0,
        high=60_000,
        doc="Pause before a retry on the same broker, if there is no other; doubles each time.",
    )
    try_timeout_ms: int = option(
        0,
        low=0,
        high=86_400_000,
        java="sendMsgMaxTimeoutPerRequest",
        doc="Timeout of one attempt while retries are left; 0 uses the timeout of the send.",
    )
    retry_another_broker_when_not_store_ok: bool = option(
        False,
        java="retryAnotherBrokerWhenNotStoreOK",
        doc="Retry on another broker if a message was stored but not flushed or replicated in "
        "time; consumers may see both copies.",
    )
    avoid_slow_brokers: bool = option(
        True,
        java="sendLatencyFaultEnable",
        doc="Avoid brokers for a while that were slow or failed, if there are others.",
    )
    compress_above_bytes: int = option(
        4096,
        low=1,
        high=2**31 - 1,
        java="compressMsgBodyOverHowmuch",
        doc="Compress bodies of at least this many bytes.",
    )
    compress_kind: str = option(
        "zlib",
        choices=("zlib", "lz4", "zstd"),
        java="compressType",
        doc="How to compress bodies; Go consumers read zlib only.",
    )
    compress_level: int = option(
        5,
        low=0,
        high=22,
        java="compressLevel",
        doc="Compression level, from fast to small; at most 9 with zlib.",
    )
    max_message_bytes: int = option(
        4 * 1024 * 1024,
        low=1,
        high=2**31 - 1,
        java="maxMessageSize",
        doc="Largest body or batch that is sent; brokers have a limit of their own.",
    )
    template_topic: str = option(
        TEMPLATE_TOPIC,
        java="createTopicKey",
        doc="Template that brokers create missing topics from, if they create them.",
    )
    template_queues: int = option(
        4,
        low=0,
        high=65_536,
        java="defaultTopicQueueNums",
        doc="Queues per broker of a topic that the first send creates; 0 refuses missing topics.",
    )
    accumulate: bool = option(
        False,
        java="autoBatch",
        doc="Collect small messages for a moment and send them in batches.",
    )
    accumulate_delay_ms: int = option(
        10,
        low=1,
        high=30_000,
        java="batchMaxDelayMs",
        doc="How long a message may wait for others.",
    )
    accumulate_batch_bytes: int = option(
        32 * 1024,
        low=1,
        high=2 * 1024 * 1024,
        java="batchMaxBytes",
        doc="Send a batch as soon as it has this many bytes.",
    )
    accumulate_held_bytes: int = option(
        32 * 1024 * 1024,
        low=1,
        high=2**31 - 1,
        java="totalBatchMaxBytes",
        doc="While this many bytes are waiting, send further messages unbatched.",
    )

    def __post_init__(self) -> None:
        TracedOptions.__post_init__(self)
        if self.compress_kind == "zlib" and self.compress_level > 9:
            raise OptionValueError(
                "compress_level",
                str(self.compress_level),
                where=type(self).__name__,
                allowed="0 to 9 with zlib",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(TracedOptions):
    """Options of every consumer."""

    message_model: str = option(
        "CLUSTERING",
        choices=("CLUSTERING", "BROADCASTING"),
        doc="CLUSTERING: the members of the group share the messages. BROADCASTING: each gets all "
        "of them and keeps its offsets in a local file.",
    )
    local_offset_dir: Path = option(
        Path("~/.rocketmq_offsets"),
        java="rocketmq.client.localOffsetStoreDir",
        doc="Directory for the offset files of broadcasting consumers.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions(ConsumerOptions):
    """Options of consumers that get their queues by rebalancing."""

    consume_from: str = option(
        "last",
        choices=("last", "first", "timestamp"),
        java="consumeFromWhere",
        doc="Where a new group starts in a queue: after its last message, at its first one, or at "
        "consume_timestamp_ms. A young queue, whose first message still exists and is in memory, "
        "is always read from the start: brokers decide that.",
    )
    consume_timestamp_ms: int = option(
        0,
        low=0,
        high=2**63 - 1,
        java="consumeTimestamp",
        default_shown="half an hour before the start",
        doc="Where a new group starts with consume_from=timestamp: at the first message stored at "
        "this time or later, in milliseconds since the epoch.",
    )
    rebalance_interval_ms: int = option(
        20_000,
        low=100,
        high=86_400_000,
        java="rocketmq.client.rebalance.waitInterval",
        doc="Interval between rebalances: which queues this member of the group has.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions(MemberOptions):
    """How a push consumer pulls and calls its listener."""

    concurrency: int = option(
        20,
        low=1,
        high=1000,
        java="consumeThreadMax",
        live=True,
        doc="Most concurrent calls of the listener: threads for a plain function, tasks for an "
        "async one.",
    )
    consume_batch_size: int = option(
        1,
        low=1,
        high=1024,
        java="consumeMessageBatchMaxSize",
        doc="Most messages in one call of on_messages.",
    )
    consume_timeout_minutes: int = option(
        15,
        low=1,
        high=100_000,
        java="consumeTimeout",
        doc="A message whose listener takes longer is sent back, to be redelivered.",
    )
    stall_warning_ms: int = option(
        60_000,
        low=100,
        high=86_400_000,
        doc="Log a warning if a listener takes this long for one batch.",
    )
    max_reconsume_times: int = option(
        -1,
        low=-1,
        high=2**31 - 1,
        doc="How often a message is redelivered before it becomes a dead letter. -1 means 16 "
        "times, and without limit in ordered consumption.",
    )
    suspend_current_queue_ms: int = option(
        1_000,
        low=10,
        high=30_000,
        java="suspendCurrentQueueTimeMillis",
        doc="How long an ordered queue pauses after a failure.",
    )
    lock_trust_ms: int = option(
        10_000,
        low=1_000,
        high=30_000,
        doc="How long ordered consumption continues without a renewal of a queue's lock. Renewals "
        "are three times as frequent. After a consumer was killed, a broker of ours gives its "
        "queues to others after this time and 5 s. RocketMQ's is 30 s.",
    )
    await_termination_ms: int = option(
        10_000,
        low=0,
        high=86_400_000,
        java="awaitTerminationMillisWhenShutdown",
        doc="How long a stop waits for running listeners. RocketMQ's default is 0.",
    )
    pull_batch_size: int = option(32, low=1, high=1024, doc="Most messages in one pull.")
    pull_batch_bytes: int = option(
        256 * 1024,
        low=1,
        high=2**31 - 1,
        java="pullBatchSizeInBytes",
        doc="Most bytes in one pull; a single message may be larger.",
    )
    pull_interval_ms: int = option(
        0,
        low=0,
        high=65_535,
        java="pullInterval",
        doc="Pause of a queue after a pull that returned messages.",
    )
    pull_retry_ms: int = option(
        1_000,
        low=1,
        high=600_000,
        java="pullTimeDelayMillsWhenException",
        doc="Pause of a queue after a pull that failed.",
    )
    pull_threshold_for_queue: int = option(
        1_000,
        low=1,
        high=65_535,
        doc="A queue is not pulled while more of its messages are in flight.",
    )
    pull_threshold_size_for_queue: int = option(
        100,
        low=1,
        high=1024,
        doc="A queue is not pulled while its messages in flight take more MiB.",
    )
    pull_threshold_for_topic: int = option(
        -1,
        low=-1,
        high=6_553_500,
        doc="Limit of messages in flight for all queues of the consumer, each with an equal "
        "share; -1 for no limit.",
    )
    pull_threshold_size_for_topic: int = option(
        -1,
        low=-1,
        high=102_400,
        doc="Limit of MiB in flight for all queues of the consumer, each with an equal share; -1 "
        "for no limit.",
    )
    consume_concurrently_max_span: int = option(
        2_000,
        low=1,
        high=65_535,
        doc="A queue is not pulled while the offsets of its messages in flight span more than "
        "this; ordered consumption has no such limit.",
    )

    def __post_init__(self) -> None:
        # A dataclass with slots is a new class, which super() without arguments does not know.
        super(PushOptions, self).__post_init__()
        for name in ("pull_threshold_for_topic", "pull_threshold_size_for_topic"):
            if getattr(self, name) == 0:
                raise SettingsError(
                    f"{name} is 0, so nothing would be pulled", hint="-1 means no limit"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullOptions(MemberOptions):
    """How a lite pull consumer fills its buffer and commits."""

    auto_commit: bool = option(
        True,
        doc="Commit messages automatically: those that a poll returned, once the next poll is made.",
    )
    auto_commit_interval_ms: int = option(
        5_000,
        low=1_000,
        high=86_400_000,
        java="autoCommitIntervalMillis",
        doc="Interval between automatic commits.",
    )
    poll_timeout_ms: int = option(
        5_000,
        low=0,
        high=86_400_000,
        java="pollTimeoutMillis",
        doc="Timeout of a poll that is given none.",
    )
    pull_batch_size: int = option(
        32, low=1, high=1024, doc="Most messages that a pull asks for, and that a poll returns."
    )
    pull_threshold_for_queue: int = option(
        1_000,
        low=1,
        high=1_000_000,
        doc="A queue is not pulled while this many of its messages wait for a poll.",
    )
    pull_threshold_size_for_queue: int = option(
        100,
        low=1,
        high=4_096,
        doc="A queue is not pulled while this many MiB of its messages wait for a poll.",
    )
    pull_threshold_for_all: int = option(
        10_000,
        low=1,
        high=10_000_000,
        doc="No queue is pulled while this many messages of all queues wait for a poll.",
    )
    pull_retry_ms: int = option(
        1_000,
        low=1,
        high=600_000,
        java="pullTimeDelayMillsWhenException",
        doc="Pause before a failed pull is retried.",
    )
    hold_ms: int = option(
        20_000,
        low=1,
        high=600_000,
        java="brokerSuspendMaxTimeMillis",
        doc="How long a broker holds a pull, waiting for a message, before it answers empty.",
    )
    held_pull_timeout_ms: int = option(
        30_000,
        low=1,
        high=600_000,
        java="consumerTimeoutMillisWhenSuspend",
        doc="Timeout of a held pull; must exceed `hold_ms`.",
    )

    def __post_init__(self) -> None:
        super(LitePullOptions, self).__post_init__()
        check_hold(self.hold_ms, self.held_pull_timeout_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions(ConsumerOptions):
    """How a pull consumer pulls."""

    pull_timeout_ms: int = option(
        10_000,
        low=1,
        high=600_000,
        java="consumerPullTimeoutMillis",
        doc="Timeout of a pull that is not held.",
    )
    hold_ms: int = option(
        20_000,
        low=1,
        high=600_000,
        java="brokerSuspendMaxTimeMillis",
        doc="How long a broker waits for a message before it answers a held pull empty.",
    )
    held_pull_timeout_ms: int = option(
        30_000,
        low=1,
        high=600_000,
        java="consumerTimeoutMillisWhenSuspend",
        doc="Timeout of a held pull; must exceed `hold_ms`.",
    )

    def __post_init__(self) -> None:
        super(PullOptions, self).__post_init__()
        check_hold(self.hold_ms, self.held_pull_timeout_ms)


def check_hold(hold_ms: int, held_pull_timeout_ms: int) -> None:
    """Raise unless the client waits longer for a held pull than the broker holds it."""
    if held_pull_timeout_ms <= hold_ms:
        raise SettingsError(
            f"held_pull_timeout_ms {held_pull_timeout_ms} does not exceed hold_ms {hold_ms}",
            hint="the client would give up before the broker answers",
        )
