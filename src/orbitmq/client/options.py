"""Options of clients: how they find servers, who they are, how they work.

A producer or consumer takes them as keyword arguments (`keywords.py`); what is not given there is
looked for in the environment, as ORBITMQ_ and the option's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orbitmq.errors import OptionValueError, SettingsError
from orbitmq.model.names import TEMPLATE_TOPIC
from orbitmq.settings import option
from orbitmq.transport.addresses import parse_addresses

# The instance name that stands for "one of my own"; broadcasting consumers keep it as it is.
DEFAULT_INSTANCE: Final = "DEFAULT"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What every client has: servers, identity, credentials, TLS, intervals."""

    namesrv: str = option(
        "",
        java="namesrvAddr",
        environment=("NAMESRV_ADDR",),
        doc="Addresses of the name servers, separated by ';'. Without any, the address server "
        "is asked for them.",
    )
    namesrv_domain: str = option(
        "",
        java="rocketmq.namesrv.domain",
        doc="Host of an HTTP server that knows the name servers, port 8080 unless it names one.",
    )
    namesrv_subgroup: str = option(
        "nsaddr",
        java="rocketmq.namesrv.domain.subgroup",
        doc="Which list of name servers to ask the address server for.",
    )
    namesrv_interval_ms: int = option(
        120_000,
        low=100,
        high=86_400_000,
        doc="Pause between two looks at the address server.",
    )
    client_ip: str = option(
        "",
        java="clientIP",
        default_shown="an address of this machine",
        doc="What the id of this client begins with; any name will do.",
    )
    instance_name: str = option(
        DEFAULT_INSTANCE,
        doc="Clients of one process with the same name share connections. DEFAULT gives each "
        "producer and each clustering consumer a name of its own.",
    )
    unit_name: str = option("", doc="The unit this client lives in; becomes a part of its id.")
    namespace: str = option("", doc="Put before the names of topics and groups, as in RocketMQ 4.")
    access_key: str = option("", doc="Who signs the requests; empty leaves them unsigned.")
    secret_key: str = option("", secret=True, doc="What they are signed with.")
    security_token: str = option(
        "", secret=True, doc="Goes with temporary keys; empty for lasting ones."
    )
    tls: bool = option(False, java="tls.enable", doc="Connect with TLS.")
    tls_verify_server: bool = option(
        False,
        java="tls.client.authServer",
        doc="Refuse servers whose certificate does not chain to a trusted one.",
    )
    tls_trusted_path: str = option(
        "",
        java="tls.client.trustCertPath",
        doc="Certificates to trust, PEM; empty trusts the system's.",
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
        doc="Send to the brokers' second port, their own less two, which pulls do not use.",
    )
    route_interval_ms: int = option(
        30_000,
        low=100,
        high=86_400_000,
        java="pollNameServerInterval",
        doc="Pause between two looks at where the topics in use are.",
    )
    heartbeat_interval_ms: int = option(
        30_000,
        low=100,
        high=86_400_000,
        java="heartbeatBrokerInterval",
        doc="Pause between two heartbeats; brokers forget a client after 120 s of silence.",
    )
    persist_interval_ms: int = option(
        5_000,
        low=100,
        high=86_400_000,
        java="persistConsumerOffsetInterval",
        doc="Pause between two commits of the offsets of consumers.",
    )
    call_timeout_ms: int = option(
        3_000,
        low=1,
        high=600_000,
        java="mqClientApiTimeout",
        doc="Longest wait for an answer, of calls that have no time limit of their own.",
    )
    connect_timeout_ms: int = option(
        3_000,
        low=1,
        high=600_000,
        java="connectTimeoutMillis",
        doc="Longest wait for a connection.",
    )

    def __post_init__(self) -> None:
        parse_addresses(self.namesrv)
        if bool(self.access_key) != bool(self.secret_key):
            there, missing = (
                ("access_key", "secret_key") if self.access_key else ("secret_key", "access_key")
            )
            raise SettingsError(
                f"{there} is set and {missing} is not", hint="requests are signed with both"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(ClientOptions):
    """How a producer sends."""

    send_timeout_ms: int = option(
        3_000,
        low=1,
        high=86_400_000,
        java="sendMsgTimeout",
        doc="Time for all tries of a send together.",
    )
    retries: int = option(
        2,
        low=0,
        high=100,
        java="retryTimesWhenSendFailed",
        doc="How often an awaited send is tried again, on another broker if there is one.",
    )
    async_retries: int = option(
        2,
        low=0,
        high=100,
        java="retryTimesWhenSendAsyncFailed",
        doc="The same for sends with callbacks.",
    )
    retry_pause_ms: int = option(
        100,
        low=0,
        high=60_000,
        doc="Pause before the same broker is tried again, when there is no other; doubles each "
        "time.",
    )
    try_timeout_ms: int = option(
        0,
        low=0,
        high=86_400_000,
        java="sendMsgMaxTimeoutPerRequest",
        doc="Longest wait for the answer to one try while others are left; 0 waits as long as "
        "the send may take.",
    )
    retry_another_broker_when_not_store_ok: bool = option(
        False,
        java="retryAnotherBrokerWhenNotStoreOK",
        doc="Send once more, to another broker, what was stored but not flushed or copied in "
        "time; consumers may see both.",
    )
    avoid_slow_brokers: bool = option(
        True,
        java="sendLatencyFaultEnable",
        doc="Leave brokers alone for a while that were slow or failed, as long as there are "
        "others.",
    )
    compress_above_bytes: int = option(
        4096,
        low=1,
        high=2**31 - 1,
        java="compressMsgBodyOverHowmuch",
        doc="Bodies of at least so many bytes are compressed.",
    )
    compress_kind: str = option(
        "zlib",
        choices=("zlib", "lz4", "zstd"),
        java="compressType",
        doc="How bodies are compressed; Go consumers read zlib only.",
    )
    compress_level: int = option(
        5, low=0, high=22, java="compressLevel", doc="From fast to small; zlib takes 9 at most."
    )
    max_message_bytes: int = option(
        4 * 1024 * 1024,
        low=1,
        high=2**31 - 1,
        java="maxMessageSize",
        doc="Largest body, or batch, that is sent; brokers have a limit of their own.",
    )
    template_topic: str = option(
        TEMPLATE_TOPIC,
        java="createTopicKey",
        doc="The topic after which brokers make one that does not exist, where they do.",
    )
    template_queues: int = option(
        4,
        low=0,
        high=65_536,
        java="defaultTopicQueueNums",
        doc="How many queues per broker such a topic gets; 0 refuses topics that do not exist.",
    )
    accumulate: bool = option(
        False,
        java="autoBatch",
        doc="Let small messages wait a moment for others, and send them in batches.",
    )
    accumulate_delay_ms: int = option(
        10,
        low=1,
        high=30_000,
        java="batchMaxDelayMs",
        doc="How long a message waits for others at most.",
    )
    accumulate_batch_bytes: int = option(
        32 * 1024,
        low=1,
        high=2 * 1024 * 1024,
        java="batchMaxBytes",
        doc="A batch of so many bytes is sent without waiting any longer.",
    )
    accumulate_held_bytes: int = option(
        32 * 1024 * 1024,
        low=1,
        high=2**31 - 1,
        java="totalBatchMaxBytes",
        doc="When so many bytes wait, further messages are sent by themselves.",
    )

    def __post_init__(self) -> None:
        # Zero arguments would not do: a dataclass with slots is another class than this one.
        ClientOptions.__post_init__(self)
        if self.compress_kind == "zlib" and self.compress_level > 9:
            raise OptionValueError(
                "compress_level",
                str(self.compress_level),
                where=type(self).__name__,
                allowed="0 to 9 with zlib",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(ClientOptions):
    """What all consumers have."""

    message_model: str = option(
        "CLUSTERING",
        choices=("CLUSTERING", "BROADCASTING"),
        doc="CLUSTERING: the members of the group share the messages. BROADCASTING: each gets all "
        "of them, and keeps its offsets in a file of its own.",
    )
    local_offset_dir: Path = option(
        Path("~/.rocketmq_offsets"),
        java="rocketmq.client.localOffsetStoreDir",
        doc="Folder of the offset files of broadcasting consumers.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions(ConsumerOptions):
    """What consumers have that get their queues by rebalancing."""

    consume_from: str = option(
        "last",
        choices=("last", "first", "timestamp"),
        java="consumeFromWhere",
        doc="Where a group begins in a queue it has never read: behind its last message, with its "
        "first one, or at consume_timestamp_ms. Brokers give it all of a queue, whatever it says, "
        "as long as the queue is young: its first message is there, and in memory.",
    )
    consume_timestamp_ms: int = option(
        0,
        low=0,
        high=2**63 - 1,
        java="consumeTimestamp",
        default_shown="half an hour before the start",
        doc="Messages stored before this time, in milliseconds since the epoch, are not for a "
        "group that begins by timestamp.",
    )
    rebalance_interval_ms: int = option(
        20_000,
        low=100,
        high=86_400_000,
        java="rocketmq.client.rebalance.waitInterval",
        doc="Pause between two looks at which queues are this member's own.",
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
        doc="Calls of the listener at a time, at most: threads of a plain one, tasks of an async "
        "one.",
    )
    consume_batch_size: int = option(
        1,
        low=1,
        high=1024,
        java="consumeMessageBatchMaxSize",
        doc="Messages in the list that on_messages gets, at most.",
    )
    consume_timeout_minutes: int = option(
        15,
        low=1,
        high=100_000,
        java="consumeTimeout",
        doc="A message whose listener takes longer is handed back, to be delivered again.",
    )
    stall_warning_ms: int = option(
        60_000,
        low=100,
        high=86_400_000,
        doc="A listener that has been at one batch for so long is told of in the log.",
    )
    max_reconsume_times: int = option(
        -1,
        low=-1,
        high=2**31 - 1,
        doc="How often a message comes again before it becomes a dead letter. -1 is 16 times, and "
        "for ordered consumption without end.",
    )
    suspend_current_queue_ms: int = option(
        1_000,
        low=10,
        high=30_000,
        java="suspendCurrentQueueTimeMillis",
        doc="How long an ordered queue stands still after a failure.",
    )
    await_termination_ms: int = option(
        10_000,
        low=0,
        high=86_400_000,
        java="awaitTerminationMillisWhenShutdown",
        doc="How long a stop waits for listeners at work. RocketMQ's default is 0.",
    )
    pull_batch_size: int = option(32, low=1, high=1024, doc="Messages of one pull, at most.")
    pull_batch_bytes: int = option(
        256 * 1024,
        low=1,
        high=2**31 - 1,
        java="pullBatchSizeInBytes",
        doc="Bytes of one pull, at most; one message may be larger.",
    )
    pull_interval_ms: int = option(
        0,
        low=0,
        high=65_535,
        java="pullInterval",
        doc="Pause of a queue after a pull that brought messages.",
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
        doc="A queue is not pulled while more of its messages are unfinished.",
    )
    pull_threshold_size_for_queue: int = option(
        100,
        low=1,
        high=1024,
        doc="A queue is not pulled while its unfinished messages take more MiB.",
    )
    pull_threshold_for_topic: int = option(
        -1,
        low=-1,
        high=6_553_500,
        doc="The same for all queues of the consumer together, each with an equal share; -1 for "
        "no such limit.",
    )
    pull_threshold_size_for_topic: int = option(
        -1,
        low=-1,
        high=102_400,
        doc="The same in MiB for all queues of the consumer together; -1 for no such limit.",
    )
    consume_concurrently_max_span: int = option(
        2_000,
        low=1,
        high=65_535,
        doc="A queue is not pulled while an unfinished message lies farther behind the last one; "
        "ordered consumption has no such limit.",
    )

    def __post_init__(self) -> None:
        # A dataclass with slots is made anew, so that super() without arguments finds the old one.
        super(PushOptions, self).__post_init__()
        for name in ("pull_threshold_for_topic", "pull_threshold_size_for_topic"):
            if getattr(self, name) == 0:
                raise SettingsError(f"{name} is 0, so nothing would be pulled", hint="-1 is none")


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullOptions(MemberOptions):
    """How a lite pull consumer fills its buffer, and what it commits."""

    auto_commit: bool = option(
        True,
        doc="Commit by itself what polls have returned, once a later poll says that it is done.",
    )
    auto_commit_interval_ms: int = option(
        5_000,
        low=1_000,
        high=86_400_000,
        java="autoCommitIntervalMillis",
        doc="Pause between two of these commits.",
    )
    poll_timeout_ms: int = option(
        5_000,
        low=0,
        high=86_400_000,
        java="pollTimeoutMillis",
        doc="Longest wait of a poll that names no time of its own.",
    )
    pull_batch_size: int = option(
        32, low=1, high=1024, doc="Messages that a pull asks for, and a poll returns, at most."
    )
    pull_threshold_for_queue: int = option(
        1_000,
        low=1,
        high=1_000_000,
        doc="Messages of one queue that wait for a poll before no more are pulled.",
    )
    pull_threshold_size_for_queue: int = option(
        100,
        low=1,
        high=4_096,
        doc="Mebibytes of one queue that wait for a poll before no more are pulled.",
    )
    pull_threshold_for_all: int = option(
        10_000,
        low=1,
        high=10_000_000,
        doc="Messages of all queues that wait for a poll before no more are pulled.",
    )
    pull_retry_ms: int = option(
        1_000,
        low=1,
        high=600_000,
        java="pullTimeDelayMillsWhenException",
        doc="Pause before a pull that failed is tried again.",
    )
    hold_ms: int = option(
        20_000,
        low=1,
        high=600_000,
        java="brokerSuspendMaxTimeMillis",
        doc="How long a broker waits for a message before it answers that there is none.",
    )
    held_pull_timeout_ms: int = option(
        30_000,
        low=1,
        high=600_000,
        java="consumerTimeoutMillisWhenSuspend",
        doc="Longest wait for the answer to such a pull; more than `hold_ms`.",
    )

    def __post_init__(self) -> None:
        super(LitePullOptions, self).__post_init__()
        check_hold(self.hold_ms, self.held_pull_timeout_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullOptions(ConsumerOptions):
    """How a pull consumer asks."""

    pull_timeout_ms: int = option(
        10_000,
        low=1,
        high=600_000,
        java="consumerPullTimeoutMillis",
        doc="Longest wait for the answer to a pull that is not held.",
    )
    hold_ms: int = option(
        20_000,
        low=1,
        high=600_000,
        java="brokerSuspendMaxTimeMillis",
        doc="How long a broker waits for a message before it answers a held pull with none.",
    )
    held_pull_timeout_ms: int = option(
        30_000,
        low=1,
        high=600_000,
        java="consumerTimeoutMillisWhenSuspend",
        doc="Longest wait for the answer to a held pull; more than `hold_ms`.",
    )

    def __post_init__(self) -> None:
        super(PullOptions, self).__post_init__()
        check_hold(self.hold_ms, self.held_pull_timeout_ms)


def check_hold(hold_ms: int, held_pull_timeout_ms: int) -> None:
    """Raise unless the client waits longer than it lets the broker wait."""
    if held_pull_timeout_ms <= hold_ms:
        raise SettingsError(
            f"held_pull_timeout_ms {held_pull_timeout_ms} does not exceed hold_ms {hold_ms}",
            hint="the client would give up before the broker answers",
        )
