"""Every request and reply header beside the fields that carry it on the wire.

A row holds in both directions. Names, spellings and codes are Java's, as its peers need them.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.protocol import requests
from orbitmq.protocol.headers import Header, Long
from orbitmq.protocol.requests import (
    answers,
    archives,
    clients,
    configuration,
    filter_servers,
    groups,
    key_values,
    locking,
    maintenance,
    metadata,
    offsets,
    pending,
    pulling,
    queries,
    registration,
    relays,
    replication,
    retries,
    routing,
    sending,
    staged_writes,
    statistics,
    topics,
    transactions,
)
from orbitmq.protocol.requests.pulling import PullFlag, PullForbidden

Fields = dict[str, str]
# The code of a header, the header, its fields, and what distinguishes the row from others of its type.
Row = tuple[int | None, Header, Fields, str]
# Replies have no code of their own.
REPLY = None


def fields(text: str) -> Fields:
    """Read fields written as `name=text`, with spaces between them."""
    return dict(field.split("=", 1) for field in text.split(" ") if field)


def row(code: int | None, header: Header, carried: str | Fields = "", *, note: str = "") -> Row:
    return code, header, fields(carried) if isinstance(carried, str) else carried, note


# Each field of a send by its name here: its long name, its letter, its value, and that as text.
# The first eight are required.
SEND: dict[str, tuple[str, str, Any, str]] = {
    "producer_group": ("producerGroup", "a", "g", "g"),
    "topic": ("topic", "b", "T", "T"),
    "template_topic": ("defaultTopic", "c", "TBW102", "TBW102"),
    "template_queues": ("defaultTopicQueueNums", "d", 4, "4"),
    "queue_id": ("queueId", "e", -1, "-1"),
    "system_flag": ("sysFlag", "f", 769, "769"),
    "born_timestamp_ms": ("bornTimestamp", "g", Long(1_700_000_000_000), "1700000000000"),
    "flag": ("flag", "h", 7, "7"),
    "properties": ("properties", "i", "TAGS\x01TagA\x02", "TAGS\x01TagA\x02"),
    "retries": ("reconsumeTimes", "j", 1, "1"),
    "unit_mode": ("unitMode", "k", False, "false"),
    "retries_max": ("maxReconsumeTimes", "l", 16, "16"),
    "batch": ("batch", "m", True, "true"),
    "broker_name": ("bname", "n", "broker-a", "broker-a"),
}
REQUIRED_SEND = dict(list(SEND.items())[:8])
SEND_VALUES = {ours: value for ours, (_, _, value, _) in SEND.items()}
REQUIRED_SEND_VALUES = {ours: value for ours, (_, _, value, _) in REQUIRED_SEND.items()}
SEND_BY_NAME = {name: text for name, _, _, text in SEND.values()}
SEND_BY_LETTER = {letter: text for _, letter, _, text in SEND.values()}
REQUIRED_BY_NAME = {name: text for name, _, _, text in REQUIRED_SEND.values()}
REQUIRED_BY_LETTER = {letter: text for _, letter, _, text in REQUIRED_SEND.values()}

REQUIRED_PULL_VALUES: dict[str, Any] = {
    "consumer_group": "g",
    "topic": "T",
    "queue_id": 1,
    "queue_offset": Long(7),
    "messages_max": 32,
    "system_flag": PullFlag.COMMIT_OFFSET | PullFlag.SUSPEND,
    "commit_offset": Long(5),
    "suspend_timeout_ms": Long(15_000),
    "subscription_version": Long(1_700_000_000_000),
}
REQUIRED_PULL = fields(
    "consumerGroup=g topic=T queueId=1 queueOffset=7 maxMsgNums=32 sysFlag=3 commitOffset=5"
    " suspendTimeoutMillis=15000 subVersion=1700000000000"
)
PULL_VALUES = REQUIRED_PULL_VALUES | {
    "expression": "TagA || TagB",
    "expression_type": "TAG",
    "bytes_max": 262_144,
    "request_source": 1,
    "proxied_client_id": "c",
    "broker_name": "broker-a",
    "bulk_count": 4000,
    "bulk_bytes": 8_000_000,
}
PULL = {
    **REQUIRED_PULL,
    "subscription": "TagA || TagB",
    **fields("expressionType=TAG maxMsgBytes=262144 requestSource=1 proxyFrowardClientId=c"),
    **fields("bname=broker-a bulkCount=4000 bulkBytes=8000000"),
}

UPDATE_TOPIC_VALUES: dict[str, Any] = {
    "topic": "T",
    "template_topic": "TBW102",
    "read_queues": 8,
    "write_queues": 4,
    "permission": 6,
    "filter_type": "SINGLE_TAG",
}
UPDATE_TOPIC = fields(
    "topic=T defaultTopic=TBW102 readQueueNums=8 writeQueueNums=4 perm=6 topicFilterType=SINGLE_TAG"
)
ANSWERED = fields("bornHost=10.0.0.1:1 storeHost=10.0.0.2:2 storeTimestamp=12")

CLIENTS = [
    row(34, clients.Heartbeat()),
    row(
        REPLY,
        clients.HeartbeatReply(takes_fingerprints=True),
        "IS_SUPPORT_HEART_BEAT_V2=true IS_SUB_CHANGE=false",
    ),
    row(35, clients.UnregisterClient(client_id="c"), "clientID=c", note="alone"),
    row(
        35,
        clients.UnregisterClient(client_id="c", producer_group="p", consumer_group="g"),
        "clientID=c producerGroup=p consumerGroup=g",
        note="with groups",
    ),
    row(38, clients.ListGroupMembers(consumer_group="g"), "consumerGroup=g"),
    row(40, clients.NotifyMembersChanged(consumer_group="g"), "consumerGroup=g"),
    row(46, clients.CheckSubscription()),
    row(203, clients.ListConsumerConnections(consumer_group="g"), "consumerGroup=g"),
    row(204, clients.ListProducerConnections(producer_group="p"), "producerGroup=p"),
    row(328, clients.ListProducers()),
    row(41, locking.LockQueues()),
    row(42, locking.UnlockQueues()),
]

CONFIGURATION = [
    row(25, configuration.UpdateBrokerConfig()),
    row(26, configuration.GetBrokerConfig()),
    row(
        REPLY,
        configuration.BrokerConfigReply(data_version='{"counter":1}'),
        'version={"counter":1}',
    ),
    row(REPLY, configuration.BrokerConfigReply(), note="without a version"),
    row(318, configuration.UpdateNameServerConfig()),
    row(319, configuration.GetNameServerConfig()),
    row(
        100, key_values.PutKeyValue(namespace="N", key="k", value="v"), "namespace=N key=k value=v"
    ),
    row(101, key_values.GetKeyValue(namespace="N", key="k"), "namespace=N key=k"),
    row(REPLY, key_values.KeyValueReply(value="broker-a:4"), "value=broker-a:4"),
    row(102, key_values.DeleteKeyValue(namespace="N", key="k"), "namespace=N key=k"),
    row(219, key_values.ListKeyValues(namespace="N"), "namespace=N"),
    row(306, maintenance.CleanExpiredQueues()),
    row(316, maintenance.CleanUnusedTopics()),
    row(329, maintenance.DeleteExpiredLogs()),
]

GROUPS = [
    row(200, groups.UpdateGroup()),
    row(225, groups.UpdateGroups()),
    row(207, groups.DeleteGroup(group="g", clean_offsets=True), "groupName=g cleanOffset=true"),
    row(201, groups.ListGroupConfigs(), note="all"),
    row(
        201,
        groups.ListGroupConfigs(first=0, groups_max=2000, data_version="{}"),
        "groupSeq=0 maxGroupNum=2000 dataVersion={}",
        note="a page",
    ),
    row(REPLY, groups.ListGroupConfigsReply(group_count=3), "totalGroupNum=3"),
    row(REPLY, groups.ListGroupConfigsReply(), note="without a total"),
    row(401, groups.SetConsumeMode()),
    row(352, groups.GetGroupConfig(group="g"), "group=g"),
    row(353, groups.ForbidReading(group="g", topic="T"), "group=g topic=T", note="asked"),
    row(
        353,
        groups.ForbidReading(group="g", topic="T", readable=False),
        "group=g topic=T readable=false",
        note="set",
    ),
]

OFFSETS = [
    row(
        14,
        offsets.GetCommittedOffset(consumer_group="g", topic="T", queue_id=1),
        "consumerGroup=g topic=T queueId=1",
    ),
    row(
        14,
        offsets.GetCommittedOffset(
            consumer_group="g", topic="T", queue_id=1, zero_if_missing=False, broker_name="b"
        ),
        "consumerGroup=g topic=T queueId=1 setZeroIfNotFound=false bname=b",
        note="every field",
    ),
    row(
        15,
        offsets.CommitOffset(
            consumer_group="g", topic="T", queue_id=1, commit_offset=Long(9), broker_name="b"
        ),
        "consumerGroup=g topic=T queueId=1 commitOffset=9 bname=b",
    ),
    row(
        29,
        offsets.SearchOffset(
            topic="T", queue_id=1, timestamp_ms=Long(7), boundary="UPPER", broker_name="b"
        ),
        "topic=T queueId=1 timestamp=7 boundaryType=UPPER bname=b",
    ),
    row(30, offsets.GetMaxOffset(topic="T", queue_id=1), "topic=T queueId=1 committed=true"),
    row(
        30,
        offsets.GetMaxOffset(topic="T", queue_id=1, committed=False, broker_name="b"),
        "topic=T queueId=1 committed=false bname=b",
        note="every field",
    ),
    row(31, offsets.GetMinOffset(topic="T", queue_id=1), "topic=T queueId=1"),
    row(
        31,
        offsets.GetMinOffset(topic="T", queue_id=1, broker_name="b"),
        "topic=T queueId=1 bname=b",
        note="broker",
    ),
    row(REPLY, offsets.OffsetReply(offset=Long(5)), "offset=5"),
    row(32, offsets.GetOldestTime(topic="T", queue_id=1), "topic=T queueId=1"),
    row(
        32,
        offsets.GetOldestTime(topic="T", queue_id=1, broker_name="b"),
        "topic=T queueId=1 bname=b",
        note="broker",
    ),
    row(REPLY, offsets.OldestTimeReply(timestamp_ms=Long(-1)), "timestamp=-1"),
    row(43, offsets.GetAllCommittedOffsets()),
    row(45, offsets.GetDelayProgress()),
    row(60, metadata.GetTimerCheckpoint()),
    row(61, metadata.GetTimerMetrics()),
    row(402, metadata.ListConsumeModes()),
    row(
        222,
        offsets.ResetOffsets(topic="T", group="g", timestamp_ms=Long(-1), force=True),
        "topic=T group=g timestamp=-1 isForce=true queueId=-1",
        note="every queue",
    ),
    row(
        220,
        offsets.ResetConsumerOffsets(
            topic="T", group="g", timestamp_ms=Long(7), force=False, queue_id=1, offset=Long(5)
        ),
        "topic=T queueId=1 group=g timestamp=7 isForce=false offset=5",
        note="one queue",
    ),
    row(
        314,
        offsets.CloneOffsets(source_group="a", target_group="b", topic="T", offline=True),
        "srcGroup=a destGroup=b topic=T offline=true",
    ),
]

MESSAGES = [
    row(10, sending.SendMessage(**SEND_VALUES), SEND_BY_NAME, note="every field"),
    row(10, sending.SendMessage(**REQUIRED_SEND_VALUES), REQUIRED_BY_NAME, note="required fields"),
    row(310, sending.SendMessageShort(**SEND_VALUES), SEND_BY_LETTER, note="every field"),
    row(
        310,
        sending.SendMessageShort(**REQUIRED_SEND_VALUES),
        REQUIRED_BY_LETTER,
        note="required fields",
    ),
    row(320, sending.SendBatch(**SEND_VALUES), SEND_BY_LETTER),
    row(324, sending.SendAnswer(**SEND_VALUES), SEND_BY_NAME),
    row(325, sending.SendAnswerShort(**SEND_VALUES), SEND_BY_LETTER),
    row(
        REPLY,
        sending.SendReply(message_id="C0A8010A", queue_id=1, queue_offset=Long(7)),
        "msgId=C0A8010A queueId=1 queueOffset=7 MSG_REGION=DefaultRegion TRACE_ON=true",
        note="with what Java looks up besides",
    ),
    row(
        REPLY,
        sending.SendReply(
            message_id="id",
            queue_id=0,
            queue_offset=Long(0),
            transaction_id="t",
            batch_unique_id="b",
            recall_handle="r",
            region="r1",
            trace=False,
            durability="DISK",
        ),
        "msgId=id queueId=0 queueOffset=0 transactionId=t batchUniqId=b recallHandle=r"
        " MSG_REGION=r1 TRACE_ON=false durability=DISK",
        note="every field",
    ),
    row(
        370,
        sending.RecallMessage(
            producer_group="g", topic="t", recall_handle="r", broker_name="broker-a"
        ),
        "producerGroup=g topic=t recallHandle=r bname=broker-a",
    ),
    row(REPLY, sending.RecallReply(message_id="id"), "msgId=id"),
    row(11, pulling.PullMessages(**PULL_VALUES), PULL, note="every field"),
    # The Go client sends no more than these.
    row(11, pulling.PullMessages(**REQUIRED_PULL_VALUES), REQUIRED_PULL, note="required fields"),
    row(361, pulling.LitePullMessages(**PULL_VALUES), PULL),
    row(
        REPLY,
        pulling.PullReply(
            suggested_broker_id=Long(1), next_offset=Long(8), min_offset=Long(0), max_offset=Long(9)
        ),
        "suggestWhichBrokerId=1 nextBeginOffset=8 minOffset=0 maxOffset=9",
    ),
    row(
        REPLY,
        pulling.PullReply(
            suggested_broker_id=Long(0),
            next_offset=Long(0),
            min_offset=Long(0),
            max_offset=Long(0),
            offset_delta=Long(2),
            topic_unit_flag=1,
            group_unit_flag=0,
            forbidden=PullForbidden.GROUP,
        ),
        "suggestWhichBrokerId=0 nextBeginOffset=0 minOffset=0 maxOffset=0"
        " offsetDelta=2 topicSysFlag=1 groupSysFlag=0 forbiddenType=2",
        note="refused",
    ),
    row(
        326,
        answers.PushAnswer(
            **{name: SEND_VALUES[name] for name in list(SEND)[:11]},
            born_host="10.0.0.1:1",
            store_host="10.0.0.2:2",
            store_timestamp_ms=Long(12),
        ),
        {**{name: SEND_BY_NAME[name] for name in list(SEND_BY_NAME)[:11]}, **ANSWERED},
    ),
    row(
        36,
        retries.SendBack(
            physical_offset=Long(1000),
            group="g",
            delay_level=retries.BROKER_CHOOSES,
            original_message_id="id",
            original_topic="T",
            retries_max=16,
            broker_name="broker-a",
        ),
        "offset=1000 group=g delayLevel=0 originMsgId=id originTopic=T unitMode=false maxReconsumeTimes=16 bname=broker-a",
    ),
    row(
        37,
        transactions.EndTransaction(
            producer_group="g", half_offset=Long(7), physical_offset=Long(9), outcome=8
        ),
        "producerGroup=g tranStateTableOffset=7 commitLogOffset=9 commitOrRollback=8",
        note="required fields",
    ),
    row(
        37,
        transactions.EndTransaction(
            topic="T",
            producer_group="g",
            half_offset=Long(7),
            physical_offset=Long(9),
            outcome=12,
            is_answer=True,
            message_id="m",
            transaction_id="t",
            broker_name="b",
        ),
        "topic=T producerGroup=g tranStateTableOffset=7 commitLogOffset=9 commitOrRollback=12 "
        "fromTransactionCheck=true msgId=m transactionId=t bname=b",
        note="every field",
    ),
    row(
        39,
        transactions.CheckTransaction(half_offset=Long(7), physical_offset=Long(9)),
        "tranStateTableOffset=7 commitLogOffset=9",
        note="required fields",
    ),
    row(
        39,
        transactions.CheckTransaction(
            topic="T",
            half_offset=Long(7),
            physical_offset=Long(9),
            message_id="m",
            transaction_id="t",
            offset_message_id="o",
            broker_name="b",
        ),
        "topic=T tranStateTableOffset=7 commitLogOffset=9 msgId=m transactionId=t offsetMsgId=o bname=b",
        note="every field",
    ),
    row(
        12,
        queries.FindMessages(
            topic="T",
            key="k",
            messages_max=32,
            begin_ms=Long(0),
            end_ms=Long(9),
            by_unique_key=True,
            key_type="U",
        ),
        "topic=T key=k maxNum=32 beginTimestamp=0 endTimestamp=9 _UNIQUE_KEY_QUERY=true indexType=U",
    ),
    row(
        REPLY,
        queries.FindMessagesReply(indexed_until_ms=Long(7), indexed_until=Long(1000)),
        "indexLastUpdateTimestamp=7 indexLastUpdatePhyoffset=1000",
    ),
    row(33, queries.ReadMessage(physical_offset=Long(1000)), "offset=1000"),
    row(
        33,
        queries.ReadMessage(physical_offset=Long(1000), topic="T"),
        "offset=1000 topic=T",
        note="with a topic",
    ),
    row(
        33,
        queries.ReadMessage(physical_offset=Long(1000), hidden=True),
        "offset=1000 hidden=true",
        note="from a slave of ours",
    ),
    row(
        321,
        queries.ReadQueueEntries(
            topic="T", queue_id=1, queue_offset=Long(5), count=10, consumer_group="g"
        ),
        "topic=T queueId=1 index=5 count=10 consumerGroup=g",
    ),
]

# OrbitMQ's own.
STAGED_WRITES = [
    row(
        21_001,
        staged_writes.StageRows(**REQUIRED_SEND_VALUES, write_id="w", first_sequence=Long(2**40)),
        {**REQUIRED_BY_NAME, "writeId": "w", "firstSequence": "1099511627776"},
    ),
    row(
        REPLY,
        staged_writes.StagedReply(start=Long(3), end=Long(1099511627776)),
        "start=3 end=1099511627776",
    ),
    row(21_002, staged_writes.DecideWrites(wait_ms=500), "waitMs=500"),
    row(21_003, staged_writes.AppointCoordinator(query="q"), "query=q", note="asked"),
    row(
        21_003,
        staged_writes.AppointCoordinator(query="q", candidate="broker-a"),
        "query=q candidate=broker-a",
        note="appointed",
    ),
    row(REPLY, staged_writes.CoordinatorReply(coordinator="broker-a"), "coordinator=broker-a"),
    row(REPLY, staged_writes.CoordinatorReply(), note="none yet"),
    row(
        21_004,
        staged_writes.MoveRows(query="q", batch=Long(1099511627776), coordinator="broker-a"),
        "query=q batch=1099511627776 coordinator=broker-a",
    ),
    row(
        21_004,
        staged_writes.MoveRows(query="q", batch=Long(7), coordinator="broker-a", digest="0a"),
        "query=q batch=7 coordinator=broker-a digest=0a",
        note="with the decision's digest",
    ),
    row(21_005, staged_writes.ListQueries(query="q", limit=1), "query=q limit=1", note="one"),
    row(21_005, staged_writes.ListQueries(after="q", limit=9), "after=q limit=9", note="a page"),
    row(21_006, staged_writes.ForgetQuery(query="q", force=True), "query=q force=true"),
    row(
        21_201,
        pending.ListPending(
            message_id="m",
            topic="T",
            due_from_ms=Long(5),
            due_until_ms=Long(6),
            cursor="1000:52",
            limit=9,
        ),
        "messageId=m topic=T dueFromMs=5 dueUntilMs=6 cursor=1000:52 limit=9",
    ),
    row(
        21_202,
        pending.CountPending(due_from_ms=Long(5), due_until_ms=Long(6), span_ms=Long(1000)),
        "dueFromMs=5 dueUntilMs=6 spanMs=1000",
    ),
    row(
        21_351,
        archives.OpenArchive(name="a", topic="T", gates=True, target="s3://b/t"),
        "name=a topic=T gates=true target=s3://b/t",
    ),
    row(21_352, archives.AdvanceArchive(name="a", life=Long(2)), "name=a life=2"),
    row(21_353, archives.ListArchives(with_figures=True), "withFigures=true"),
    row(21_354, archives.ReleaseArchive(name="a"), "name=a"),
    row(21_203, pending.DeliverPending(message_id="m", topic="T"), "messageId=m topic=T"),
    row(
        21_301,
        replication.FollowMaster(
            broker_name="b",
            broker_id=Long(1),
            broker_address="127.0.0.1:5",
            link="127.0.0.1:6",
            is_flushed=True,
            visible=Long(7),
            wait_ms=8,
            epoch=Long(9),
            tables="1.2.3,4.5.6,7",
        ),
        "brokerName=b brokerId=1 brokerAddr=127.0.0.1:5 link=127.0.0.1:6 isFlushed=true visible=7 "
        "waitMillis=8 epoch=9 tables=1.2.3,4.5.6,7",
    ),
    row(
        REPLY,
        replication.FollowReply(
            visible=Long(1),
            log_start=Long(2),
            log_end=Long(3),
            log_file_bytes=Long(4),
            is_master=True,
            epoch=Long(5),
            role="SYNC_MASTER",
            slaves_awaited=6,
            slaves=7,
            tables="8.9.10,11.12.13,14",
            permission=4,
        ),
        "visible=1 logStart=2 logEnd=3 logFileBytes=4 isMaster=true epoch=5 role=SYNC_MASTER "
        "slavesAwaited=6 slaves=7 tables=8.9.10,11.12.13,14 permission=4",
    ),
    row(
        21_302,
        replication.ReadStanding(broker_name="b", epoch=Long(1), broker_address="127.0.0.1:5"),
        "brokerName=b epoch=1 brokerAddr=127.0.0.1:5",
    ),
    row(
        21_303,
        replication.PromoteBroker(broker_name="b", epoch=Long(1), role="SYNC_MASTER", force=True),
        "brokerName=b epoch=1 role=SYNC_MASTER force=true",
    ),
    row(
        REPLY,
        replication.PromoteReply(log_end=Long(1), epoch=Long(2)),
        "logEnd=1 epoch=2",
    ),
    row(21_304, replication.ListQueueEnds(after="T", limit=1), "after=T limit=1"),
    row(21_305, locking.ListQueueLocks()),
    row(21_306, metadata.ListStoreTables()),
    row(21_101, transactions.ListTransactions(limit=9), "limit=9", note="all"),
    row(
        21_101,
        transactions.ListTransactions(transaction_id="t", limit=9),
        "transactionId=t limit=9",
        note="one",
    ),
    row(21_102, transactions.CheckTransactions(limit=9), "limit=9", note="all"),
    row(323, transactions.ResumeTransaction(message_id="m"), "msgId=m", note="by its place"),
    row(
        323,
        transactions.ResumeTransaction(topic="t", message_id="m"),
        "topic=t msgId=m",
        note="with its topic",
    ),
    row(
        21_102,
        transactions.CheckTransactions(transaction_id="t", limit=9),
        "transactionId=t limit=9",
        note="one",
    ),
]

BROKERS = [
    row(
        103,
        registration.RegisterBroker(
            broker_name="broker-a",
            broker_address="127.0.0.1:10911",
            cluster_name="C",
            ha_address="127.0.0.1:10912",
            broker_id=Long(0),
            heartbeat_timeout_ms=Long(10000),
            enable_acting_master=True,
            body_crc=1159126793,
        ),
        "brokerName=broker-a brokerAddr=127.0.0.1:10911 clusterName=C haServerAddr=127.0.0.1:10912 brokerId=0 heartbeatTimeoutMillis=10000 enableActingMaster=true compressed=false bodyCrc32=1159126793",
    ),
    row(
        REPLY,
        registration.RegisterBrokerReply(ha_address="a:2", master_address="a:1"),
        "haServerAddr=a:2 masterAddr=a:1",
    ),
    row(REPLY, registration.RegisterBrokerReply(), note="without a master"),
    row(
        104,
        registration.UnregisterBroker(
            broker_name="b", broker_address="a:1", cluster_name="C", broker_id=Long(3)
        ),
        "clusterName=C brokerAddr=a:1 brokerName=b brokerId=3",
    ),
    row(
        21_251,
        registration.ForgetEpoch(cluster_name="C", broker_name="b"),
        "clusterName=C brokerName=b",
    ),
    row(REPLY, registration.ForgetEpochReply(epoch=Long(3)), "epoch=3"),
    row(
        904,
        registration.BrokerHeartbeat(cluster_name="C", broker_address="a:1", broker_name="b"),
        "clusterName=C brokerAddr=a:1 brokerName=b",
    ),
    row(
        322,
        registration.QueryDataVersion(
            cluster_name="C", broker_address="a:1", broker_name="b", broker_id=Long(3)
        ),
        "clusterName=C brokerAddr=a:1 brokerName=b brokerId=3",
    ),
    row(REPLY, registration.QueryDataVersionReply(changed=True), "changed=true"),
]

RELAYS = [
    row(221, relays.GetConsumerOffsets(topic="T", group="g"), "topic=T group=g"),
    row(
        223,
        relays.GetGroupOffsets(topic="T", group="g", client_id="c"),
        "topic=T group=g clientAddr=c",
    ),
    row(
        307,
        relays.GetRunningConsumer(consumer_group="g", client_id="c", with_stacks=True),
        "consumerGroup=g clientId=c jstackEnable=true",
    ),
    row(
        309,
        relays.ConsumeDirectly(
            consumer_group="g",
            client_id="c",
            message_id="id",
            broker_name="b",
            topic="T",
            topic_unit_flag=0,
            group_unit_flag=0,
        ),
        "consumerGroup=g clientId=c msgId=id brokerName=b topic=T topicSysFlag=0 groupSysFlag=0",
    ),
]

ROUTES = [
    row(105, routing.GetRoute(topic="T"), "topic=T"),
    row(
        105,
        routing.GetRoute(topic="T", accept_standard_json_only=True),
        "topic=T acceptStandardJsonOnly=true",
        note="standard JSON",
    ),
    row(
        105,
        routing.GetRoute(topic="T", with_missing_brokers=True),
        "topic=T withMissingBrokers=true",
        note="with missing brokers",
    ),
    row(106, routing.GetClusterView()),
    row(
        901, routing.GetBrokerGroup(cluster_name="C", broker_name="b"), "clusterName=C brokerName=b"
    ),
    row(206, routing.ListTopics()),
    row(224, routing.ListClusterTopics(cluster="C"), "cluster=C"),
    row(304, routing.ListSystemTopics()),
    row(311, routing.ListUnitTopics()),
    row(312, routing.ListUnitSubscribedTopics()),
    row(313, routing.ListUnitSubscribedPlainTopics()),
    row(216, routing.DeleteTopicRoute(topic="T"), "topic=T", note="everywhere"),
    row(
        216,
        routing.DeleteTopicRoute(topic="T", cluster_name="C"),
        "topic=T clusterName=C",
        note="in a cluster",
    ),
    row(217, routing.AddTopicRoute(topic="T"), "topic=T"),
    row(205, routing.WipeWritePermission(broker_name="b"), "brokerName=b"),
    row(REPLY, routing.WipeWritePermissionReply(topic_count=3), "wipeTopicCount=3"),
    row(327, routing.AddWritePermission(broker_name="b"), "brokerName=b"),
    row(REPLY, routing.AddWritePermissionReply(topic_count=3), "addTopicCount=3"),
]

STATISTICS = [
    row(208, statistics.GetConsumeStats(consumer_group="g"), "consumerGroup=g", note="all topics"),
    row(
        208,
        statistics.GetConsumeStats(consumer_group="g", topic="T", topic_list="T;U;"),
        "consumerGroup=g topic=T topicList=T;U;",
        note="some topics",
    ),
    row(317, statistics.GetBrokerConsumeStats(ordered_topics_only=True), "isOrder=true"),
    row(
        315,
        statistics.GetCounter(name="TOPIC_PUT_NUMS", key="T"),
        "statsName=TOPIC_PUT_NUMS statsKey=T",
    ),
    row(
        301,
        filter_servers.RegisterFilterServer(address="10.0.0.1:30000"),
        "filterServerAddr=10.0.0.1:30000",
    ),
    row(
        REPLY,
        filter_servers.RegisterFilterServerReply(
            filter_server_id=Long(7), broker_name="a", broker_id=Long(0)
        ),
        "filterServerId=7 brokerName=a brokerId=0",
    ),
    row(
        302,
        filter_servers.RegisterFilterClass(
            consumer_group="g", topic="T", class_name="shop.Paid", class_crc=17
        ),
        "consumerGroup=g topic=T className=shop.Paid classCRC=17",
    ),
    row(303, statistics.GetTimeSpans(topic="T", group="g"), "topic=T group=g"),
    row(343, statistics.ListConsumedTopics(group="g"), "group=g"),
    row(345, statistics.GetSubscription(group="g", topic="T"), "group=g topic=T"),
    row(28, statistics.GetRuntime()),
    row(907, statistics.GetReplication()),
]

TOPICS = [
    row(17, topics.UpdateTopic(**UPDATE_TOPIC_VALUES), {**UPDATE_TOPIC, "order": "false"}),
    row(
        17,
        topics.UpdateTopic(
            **UPDATE_TOPIC_VALUES,
            unit_flag=0,
            order=True,
            attributes="+message.type=FIFO",
            force=False,
        ),
        UPDATE_TOPIC
        | fields("order=true topicSysFlag=0 attributes=+message.type=FIFO force=false"),
        note="every field",
    ),
    row(18, topics.UpdateTopics()),
    row(215, topics.DeleteTopic(topic="T"), "topic=T"),
    row(21, topics.ListTopicConfigs(), note="all"),
    row(
        21,
        topics.ListTopicConfigs(first=0, topics_max=2000, data_version=""),
        "topicSeq=0 maxTopicNum=2000 dataVersion=",
        note="a page",
    ),
    row(REPLY, topics.ListTopicConfigsReply(topic_count=3), "totalTopicNum=3"),
    row(REPLY, topics.ListTopicConfigsReply(), note="without a total"),
    row(351, topics.GetTopicConfig(topic="T"), "topic=T"),
    row(202, topics.GetTopicStats(topic="T"), "topic=T"),
    row(300, topics.ListTopicConsumers(topic="T"), "topic=T"),
    row(305, topics.ListBrokerSystemTopics()),
]

ROWS = [
    *(*CLIENTS, *CONFIGURATION, *GROUPS, *OFFSETS, *MESSAGES, *STAGED_WRITES),
    *(*BROKERS, *RELAYS, *ROUTES, *STATISTICS, *TOPICS),
]

# What peers omit or spell differently, and what it means here.
FIND = "topic=T key=k maxNum=32 beginTimestamp=0 endTimestamp=9"
REGISTER = "brokerName=b brokerAddr=a:1 clusterName=C brokerId=1"
READ: list[tuple[Header, str, str]] = [
    (clients.HeartbeatReply(takes_fingerprints=False, subscriptions_changed=False), "", "says no"),
    (groups.DeleteGroup(group="g", clean_offsets=False), "groupName=g", "offsets stay"),
    (
        offsets.CloneOffsets(source_group="a", target_group="b", topic=None, offline=False),
        "srcGroup=a destGroup=b",
        "all topics",
    ),
    (
        queries.FindMessages(
            topic="T",
            key="k",
            messages_max=32,
            begin_ms=Long(0),
            end_ms=Long(9),
            by_unique_key=False,
        ),
        FIND,
        "a key that the sender chose",
    ),
    (
        retries.SendBack(
            physical_offset=Long(1000),
            group="g",
            delay_level=retries.TO_DEAD_LETTERS,
            original_message_id=None,
            original_topic=None,
            unit_mode=False,
            retries_max=None,
            broker_name=None,
        ),
        "offset=1000 group=g delayLevel=-1",
        "old consumers name no limit",
    ),
    (
        registration.RegisterBroker(
            broker_name="b",
            broker_address="a:1",
            cluster_name="C",
            broker_id=Long(1),
            ha_address=None,
            heartbeat_timeout_ms=None,
            enable_acting_master=None,
            compressed=False,
            body_crc=0,
        ),
        REGISTER,
        "brokers of 4.9 say nothing about acting masters",
    ),
    (
        registration.RegisterBroker(
            broker_name="b", broker_address="a:1", cluster_name="C", broker_id=Long(1)
        ),
        f"{REGISTER} __ZONE_NAME=z",
        "other fields are ignored",
    ),
]

# Required fields.
REQUIRED: list[tuple[type[Header], Fields]] = [
    (clients.UnregisterClient, fields("clientID=c")),
    (groups.DeleteGroup, fields("groupName=g")),
    (offsets.CommitOffset, fields("consumerGroup=g topic=T queueId=1 commitOffset=9")),
    (pulling.PullMessages, REQUIRED_PULL),
    (queries.FindMessages, fields(FIND)),
    (relays.GetRunningConsumer, fields("consumerGroup=g clientId=c")),
    (retries.SendBack, fields("offset=1000 group=g delayLevel=0")),
    (routing.GetRoute, fields("topic=T")),
    (sending.SendMessage, REQUIRED_BY_NAME),
    (statistics.GetCounter, fields("statsName=TOPIC_PUT_NUMS statsKey=T")),
    (topics.UpdateTopic, UPDATE_TOPIC),
    (answers.PushAnswer, {**REQUIRED_BY_NAME, **ANSWERED}),
]


def without(given: Fields, missing: str) -> Fields:
    return {name: text for name, text in given.items() if name != missing}


# A type, fields that it refuses, the field that it misses, and why it is not there.
REFUSED: list[tuple[type[Header], Fields, str, str]] = [
    *(
        (kind, without(needed, missing), missing, "left out")
        for kind, needed in REQUIRED
        for missing in needed
    ),
    *(
        (sending.SendMessageShort, without(REQUIRED_BY_LETTER, letter), name, "its letter left out")
        for name, letter, _, _ in REQUIRED_SEND.values()
    ),
    (clients.UnregisterClient, {"clientId": "c"}, "clientID", "spelt as elsewhere"),
    (groups.DeleteGroup, {"group": "g"}, "groupName", "spelt as elsewhere"),
    (routing.GetRoute, {"Topic": "T"}, "topic", "in another case"),
    (
        sending.SendMessage,
        SEND_BY_LETTER,
        "producerGroup",
        "a letter means nothing among long names",
    ),
]


def named(header: Header, note: str) -> str:
    return f"{type(header).__name__}: {note}" if note else type(header).__name__


@pytest.mark.parametrize(
    ("code", "header", "carried"),
    [pytest.param(*each[:3], id=named(each[1], each[3])) for each in ROWS],
)
def test_a_header_has_its_code_and_javas_field_names(
    code: int | None, header: Header, carried: Fields
) -> None:
    assert getattr(type(header), "CODE", REPLY) == code
    assert header.encode() == carried
    assert type(header).decode(carried) == header


@pytest.mark.parametrize(
    ("header", "carried"),
    [pytest.param(header, text, id=named(header, note)) for header, text, note in READ],
)
def test_fields_of_other_peers_are_read(header: Header, carried: str) -> None:
    assert type(header).decode(fields(carried)) == header


@pytest.mark.parametrize(
    ("kind", "given", "missing"),
    [
        pytest.param(kind, given, missing, id=f"{kind.__name__}.{missing}: {why}")
        for kind, given, missing, why in REFUSED
    ],
)
def test_a_header_without_a_required_field_is_refused(
    kind: type[Header], given: Fields, missing: str
) -> None:
    with pytest.raises(ProtocolError, match=f"field '{missing}' of {kind.__name__} is missing"):
        kind.decode(given)


def test_every_header_has_a_row() -> None:
    modules = [
        importlib.import_module(f"{requests.__name__}.{module.name}")
        for module in pkgutil.iter_modules(requests.__path__)
    ]
    headers = {
        kind.__name__
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Header) and kind is not Header
    }

    assert headers == {type(header).__name__ for _, header, _, _ in ROWS}


@given(st.text(), st.integers(-(2**31), 2**31 - 1))
def test_a_send_of_any_properties_to_any_queue_survives_a_round_trip(
    properties: str, queue_id: int
) -> None:
    header = sending.SendMessageShort.decode(
        {**REQUIRED_BY_LETTER, "i": properties, "e": str(queue_id)},
    )

    assert (header.properties, header.queue_id) == (properties, queue_id)
    assert sending.SendMessageShort.decode(header.encode()) == header


def test_numbers_and_names_are_javas() -> None:
    assert PullFlag.SUSPEND | PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL == 0b10110
    assert PullFlag(1) is PullFlag.COMMIT_OFFSET
    assert PullFlag(8) is PullFlag.CLASS_FILTER
    assert key_values.ORDER_TOPIC_NAMESPACE == "ORDER_TOPIC_CONFIG"


@pytest.mark.parametrize(
    ("boundary", "upper"),
    [(None, False), ("LOWER", False), ("UPPER", True), ("upper", True), ("other", False)],
)
def test_the_upper_boundary_is_asked_for_by_name(boundary: str | None, *, upper: bool) -> None:
    header = offsets.SearchOffset(topic="T", queue_id=1, timestamp_ms=Long(7), boundary=boundary)

    assert header.wants_last_before is upper


@pytest.mark.parametrize(
    ("topic", "topic_list", "named_topics"),
    [
        (None, None, []),
        ("", "", []),
        ("T", None, ["T"]),
        ("T", "", ["T"]),
        (None, "T;U;", ["T", "U"]),
        (None, ";;T", ["T"]),
    ],
)
def test_topics_are_named_alone_or_as_a_list(
    topic: str | None, topic_list: str | None, named_topics: list[str]
) -> None:
    header = statistics.GetConsumeStats(consumer_group="g", topic=topic, topic_list=topic_list)

    assert header.topics == named_topics
