"""Every body of a request or a reply beside its bytes.

A row holds in both directions. Bytes are as Java writes them, unless a row names another peer.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import msgspec
import pytest

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.java_json import ObjectKeyed
from orbitmq.model.archives import Archive, ArchiveFigures, KnownArchives
from orbitmq.model.groups import GroupConfig
from orbitmq.model.queues import MessageQueue
from orbitmq.model.subscriptions import (
    BROADCASTING,
    CLUSTERING,
    FROM_LAST_OFFSET,
    FROM_TIMESTAMP,
    PUSH,
    ConsumeType,
    Subscription,
)
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.protocol import requests
from orbitmq.protocol.requests.archives import ArchiveList, MarkMove
from orbitmq.protocol.requests.clients import (
    ClientConnection,
    ConsumerConnections,
    ConsumerGroup,
    GroupMembers,
    HeartbeatBody,
    ListedProducer,
    ProducerConnections,
    ProducerGroup,
    ProducerTable,
    SubscriptionToCheck,
)
from orbitmq.protocol.requests.groups import (
    ConsumeMode,
    GroupConfigList,
    GroupConfigTable,
    Readability,
)
from orbitmq.protocol.requests.key_values import KeyValueTable
from orbitmq.protocol.requests.locking import LockedQueues, QueuesToLock
from orbitmq.protocol.requests.metadata import (
    ConsumeModeTable,
    ReservedNumbers,
    StoreTables,
    TimerMetrics,
)
from orbitmq.protocol.requests.offsets import ListedQueueOffset, QueueOffsetList, QueueOffsetTable
from orbitmq.protocol.requests.pending import PendingCounts, PendingMessage, PendingPage
from orbitmq.protocol.requests.queries import QueueEntries, QueueEntry
from orbitmq.protocol.requests.relays import (
    ConsumerOffsets,
    ConsumeSpeed,
    DirectOutcome,
    DirectResult,
    PopQueueProgress,
    QueueProgress,
    RunningConsumer,
)
from orbitmq.protocol.requests.replication import EpochStart, MasterSeen, QueueEnds, Standing
from orbitmq.protocol.requests.routing import BrokerGroupReply, BrokerMembers, TopicList
from orbitmq.protocol.requests.staged_writes import (
    BatchDecision,
    BatchStatus,
    Confirmed,
    Part,
    QueryPage,
    QuerySummary,
    SourceRange,
)
from orbitmq.protocol.requests.statistics import (
    BrokerConsumeStats,
    ConsumeProgress,
    ConsumeStats,
    CounterReply,
    CounterWindow,
    MasterLink,
    QueueTimeSpan,
    QueueTimeSpans,
    Replication,
    SlaveLink,
    SubscriptionReply,
)
from orbitmq.protocol.requests.topics import (
    GroupNames,
    QueueStats,
    TopicConfigList,
    TopicConfigTable,
    TopicStats,
)
from orbitmq.protocol.requests.transactions import ChecksSent, OpenTransaction, TransactionPage

# A body, its bytes, and what distinguishes the row from others of the type.
Row = tuple[msgspec.Struct, bytes, str]

QUEUE = MessageQueue(broker_name="b", queue_id=0, topic="T")
QUEUE_JSON = b'{"brokerName":"b","queueId":0,"topic":"T"}'

SUBSCRIPTION = Subscription(
    topic="T", expression="TagA", tags=["TagA"], tag_codes=[2598919], version=1700000000000
)
SUBSCRIPTION_JSON = (
    b'{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA",'
    b'"subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T"}'
)
EVERYTHING = Subscription(topic="T", expression="*")
EVERYTHING_JSON = (
    b'{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*",'
    b'"subVersion":0,"tagsSet":[],"topic":"T"}'
)

TOPIC = TopicConfig(name="T", read_queues=8, write_queues=8)
TOPIC_JSON = (
    b'{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"T","topicSysFlag":0,"writeQueueNums":8}'
)
STATS = ConsumeStats(
    consumed_per_second=0.5,
    queues=ObjectKeyed(
        {
            QUEUE: ConsumeProgress(
                broker_offset=9, consumer_offset=5, last_timestamp_ms=7, pull_offset=6
            )
        }
    ),
)
STATS_JSON = (
    b'{"consumeTps":0.5,"offsetTable":{' + QUEUE_JSON + b":"
    b'{"brokerOffset":9,"consumerOffset":5,"lastTimestamp":7,"pullOffset":6}}}'
)


def group_json(name: bytes, retries: bytes = b"16") -> bytes:
    return (
        b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
        b'"groupName":"' + name + b'","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
        b'"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":' + retries + b","
        b'"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
    )


CLIENTS: list[Row] = [
    (
        HeartbeatBody(
            client_id="10.0.0.5@4711#123456789",
            producers=[ProducerGroup(group="CLIENT_INNER_PRODUCER")],
            consumers=[ConsumerGroup(group="g", subscriptions=[SUBSCRIPTION])],
        ),
        b'{"clientID":"10.0.0.5@4711#123456789","consumerDataSet":['
        b'{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
        b'"groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":['
        + SUBSCRIPTION_JSON
        + b'],"unitMode":false}],"heartbeatFingerprint":0,'
        b'"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":false}',
        "",
    ),
    (GroupMembers(client_ids=["a", "b"]), b'{"consumerIdList":["a","b"]}', ""),
    (
        SubscriptionToCheck(client_id="c", group="g", subscription=SUBSCRIPTION),
        b'{"clientId":"c","group":"g","subscriptionData":' + SUBSCRIPTION_JSON + b"}",
        "",
    ),
    (
        ConsumerConnections(
            connections=[
                ClientConnection(address="1.2.3.4:5", client_id="c", language="JAVA", version=479)
            ],
            consume_from=FROM_LAST_OFFSET,
            consume_type=PUSH,
            message_model=CLUSTERING,
            subscriptions={"T": SUBSCRIPTION},
        ),
        b'{"connectionSet":[{"clientAddr":"1.2.3.4:5","clientId":"c","language":"JAVA",'
        b'"version":479}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{"T":'
        + SUBSCRIPTION_JSON
        + b"}}",
        "",
    ),
    (
        ProducerConnections(
            connections=[
                ClientConnection(address="1.2.3.4:5", client_id="c", language="GO", version=317)
            ]
        ),
        b'{"connectionSet":[{"clientAddr":"1.2.3.4:5","clientId":"c","language":"GO",'
        b'"version":317}]}',
        "",
    ),
    (
        ProducerTable(
            groups={
                "p": [
                    ListedProducer(
                        client_id="c",
                        language="JAVA",
                        last_heard_ms=7,
                        address="/1.2.3.4:5",
                        version=479,
                    )
                ]
            }
        ),
        b'{"data":{"p":[{"clientId":"c","language":"JAVA","lastUpdateTimestamp":7,'
        b'"remoteIP":"/1.2.3.4:5","version":479}]}}',
        "",
    ),
    (
        # Sent by a master of RocketMQ 5.5.0 without slaves.
        Replication(is_master=True, log_end=1738),
        b'{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,'
        b'"masterFlushOffset":0,"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":[],'
        b'"inSyncSlaveNums":0,"master":true,"masterCommitLogMaxOffset":1738}',
        "",
    ),
    (
        MasterLink(address="1.2.3.4:5", end_offset=7, flushed_offset=6, bytes_per_second=3),
        b'{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterAddr":"1.2.3.4:5",'
        b'"masterFlushOffset":6,"maxOffset":7,"transferredByteInSecond":3}',
        "",
    ),
    (
        SlaveLink(
            address="1.2.3.4:5",
            lag_bytes=2,
            in_sync=True,
            confirmed_offset=5,
            sent_from_offset=6,
            bytes_per_second=3,
        ),
        b'{"addr":"1.2.3.4:5","diff":2,"inSync":true,"slaveAckOffset":5,"transferFromWhere":6,'
        b'"transferredByteInSecond":3}',
        "",
    ),
    (
        # As a master of ours shows a slave of ours.
        SlaveLink(address="1.2.3.4:5", broker_id=1, broker_address="1.2.3.4:10921", lag_ms=1500),
        b'{"addr":"1.2.3.4:5","diff":0,"inSync":false,"slaveAckOffset":0,"transferFromWhere":0,'
        b'"transferredByteInSecond":0,"slaveBrokerId":1,"slaveBrokerAddr":"1.2.3.4:10921",'
        b'"slaveLagMillis":1500}',
        "of ours",
    ),
    (
        QueuesToLock(client_id="c", consumer_group="g", queues=[QUEUE]),
        b'{"clientId":"c","consumerGroup":"g","mqSet":[' + QUEUE_JSON + b"],"
        b'"onlyThisBroker":false}',
        "",
    ),
    (LockedQueues(queues=[QUEUE]), b'{"lockOKMQSet":[' + QUEUE_JSON + b"]}", ""),
]

GROUPS: list[Row] = [
    (
        ConsumeMode(topic="T", group="g", mode="POP", pop_share_queues=2),
        b'{"topic":"T","consumerGroup":"g","mode":"POP","popShareQueueNum":2}',
        "",
    ),
    (
        GroupConfigList(groups=[GroupConfig(name="g"), GroupConfig(name="h", retries_max=3)]),
        b'{"groupConfigList":[' + group_json(b"g") + b"," + group_json(b"h", b"3") + b"]}",
        "",
    ),
    (
        GroupConfigTable(
            data_version=DataVersion(counter=1, timestamp=7),
            forbidden={"g": {"T": 4}},
            groups={"g": GroupConfig(name="g")},
        ),
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":7},'
        b'"forbiddenTable":{"g":{"T":4}},"subscriptionGroupTable":{"g":' + group_json(b"g") + b"}}",
        "",
    ),
    (
        TimerMetrics(
            data_version=DataVersion(counter=1, timestamp=7),
            counts={"T": {"count": 2, "timeStamp": 7}},
        ),
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":7},'
        b'"timingCount":{"T":{"count":2,"timeStamp":7}}}',
        "",
    ),
    (ConsumeModeTable(), b'{"messageRequestModeMap":{}}', ""),
    (
        Readability(group="g", topic="T", readable=False),
        b'{"group":"g","readable":false,"topic":"T"}',
        "",
    ),
]

OFFSETS: list[Row] = [
    # Java and Go read keys that are objects; C++ cannot.
    (
        QueueOffsetTable(offsets=ObjectKeyed({QUEUE: 5})),
        b'{"offsetTable":{' + QUEUE_JSON + b":5}}",
        "",
    ),
    (
        QueueOffsetList(
            offsets=[ListedQueueOffset(broker_name="b", offset=5, queue_id=0, topic="T")]
        ),
        b'{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"T"}]}',
        "for C++",
    ),
    (
        ConsumerOffsets(by_client={"c": ObjectKeyed({QUEUE: 5})}, queues=ObjectKeyed({QUEUE: 6})),
        b'{"consumerTable":{"c":{' + QUEUE_JSON + b":5}},"
        b'"messageQueueTable":{' + QUEUE_JSON + b":6}}",
        "",
    ),
]

RELAYS: list[Row] = [
    (
        RunningConsumer(
            pop_queues=ObjectKeyed({QUEUE: PopQueueProgress(last_pop_ms=3, waiting_acks=1)}),
            queues=ObjectKeyed(
                {
                    QUEUE: QueueProgress(
                        cached_messages=2,
                        cached_max_offset=9,
                        cached_min_offset=8,
                        cached_mib=1,
                        commit_offset=8,
                        dropped=True,
                        last_consume_ms=7,
                        last_lock_ms=4,
                        last_pull_ms=6,
                        locked=True,
                        consuming_messages=1,
                        consuming_max_offset=8,
                        consuming_min_offset=8,
                        unlock_attempts=5,
                    )
                }
            ),
            properties={"PROP_CLIENT_VERSION": "V5_3_3"},
            speeds={
                "T": ConsumeSpeed(
                    failed_messages=1,
                    failed_per_second=0.1,
                    consumed_per_second=0.2,
                    consume_ms=0.3,
                    pull_ms=0.4,
                    pulled_per_second=0.5,
                )
            },
            subscriptions=[EVERYTHING],
        ),
        b'{"mqPopTable":{' + QUEUE_JSON + b':{"droped":false,"lastPopTimestamp":3,'
        b'"waitAckCount":1}},"mqTable":{' + QUEUE_JSON + b':{"cachedMsgCount":2,'
        b'"cachedMsgMaxOffset":9,"cachedMsgMinOffset":8,"cachedMsgSizeInMiB":1,"commitOffset":8,'
        b'"droped":true,"lastConsumeTimestamp":7,"lastLockTimestamp":4,"lastPullTimestamp":6,'
        b'"locked":true,"transactionMsgCount":1,"transactionMsgMaxOffset":8,'
        b'"transactionMsgMinOffset":8,"tryUnlockTimes":5}},'
        b'"properties":{"PROP_CLIENT_VERSION":"V5_3_3"},"statusTable":{"T":{"consumeFailedMsgs":1,'
        b'"consumeFailedTPS":0.1,"consumeOKTPS":0.2,"consumeRT":0.3,"pullRT":0.4,"pullTPS":0.5}},'
        b'"subscriptionSet":[' + EVERYTHING_JSON + b'],"userConsumerInfo":{}}',
        "",
    ),
    (
        DirectResult(outcome=DirectOutcome("CR_LATER"), spent_ms=1),
        b'{"autoCommit":true,"consumeResult":"CR_LATER","order":false,"spentTimeMills":1}',
        "",
    ),
]

ROUTES: list[Row] = [
    (
        BrokerGroupReply(
            members=BrokerMembers(addresses={0: "a:1", 1: "b:1"}, name="b", cluster="C")
        ),
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"a:1",1:"b:1"},"brokerName":"b","cluster":"C"}}',
        "",
    ),
    (TopicList(topics=["A", "B"]), b'{"topicList":["A","B"]}', "without an address"),
    (
        TopicList(topics=[], broker_address="a:1"),
        b'{"brokerAddr":"a:1","topicList":[]}',
        "with an address",
    ),
    (
        KeyValueTable(table={"T": "broker-a:4;broker-b:4", "中": "文"}),
        '{"table":{"T":"broker-a:4;broker-b:4","中":"文"}}'.encode(),
        "",
    ),
]

STATISTICS: list[Row] = [
    (STATS, STATS_JSON, ""),
    (
        BrokerConsumeStats(
            broker_address="1.2.3.4:10911", groups=[{"g": [STATS]}], lag=4, in_flight=1
        ),
        b'{"brokerAddr":"1.2.3.4:10911","consumeStatsList":[{"g":[' + STATS_JSON + b"]}],"
        b'"totalDiff":4,"totalInflightDiff":1}',
        "",
    ),
    (
        CounterReply(minute=CounterWindow(average=1.5, sum=3, per_second=0.05)),
        b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},'
        b'"statsMinute":{"avgpt":1.5,"sum":3,"tps":0.05}}',
        "",
    ),
    (
        QueueTimeSpans(
            queues=[
                QueueTimeSpan(
                    queue=QUEUE, consumed_until_ms=3, delay_ms=4, newest_ms=5, oldest_ms=1
                )
            ]
        ),
        b'{"consumeTimeSpanSet":[{"consumeTimeStamp":3,"delayTime":4,"maxTimeStamp":5,'
        b'"messageQueue":' + QUEUE_JSON + b',"minTimeStamp":1}]}',
        "",
    ),
    (
        SubscriptionReply(group="g", topic="T", subscription=EVERYTHING),
        b'{"group":"g","subscriptionData":' + EVERYTHING_JSON + b',"topic":"T"}',
        "",
    ),
    (SubscriptionReply(group="g"), b'{"group":"g"}', "without a subscription"),
    (
        QueueEntries(
            max_offset=9,
            min_offset=0,
            entries=[
                QueueEntry(physical_offset=1000, record_bytes=104, tag_hash=2598919, matches=True)
            ],
            subscription=EVERYTHING,
        ),
        b'{"maxQueueIndex":9,"minQueueIndex":0,"queueData":[{"eval":true,"physicOffset":1000,'
        b'"physicSize":104,"tagsCode":2598919}],"subscriptionData":' + EVERYTHING_JSON + b"}",
        "",
    ),
]

TOPICS: list[Row] = [
    (TopicConfigList(topics=[TOPIC]), b'{"topicConfigList":[' + TOPIC_JSON + b"]}", ""),
    (
        TopicConfigTable(data_version=DataVersion(counter=1, timestamp=7), topics={"T": TOPIC}),
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":7},'
        b'"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},'
        b'"topicConfigTable":{"T":' + TOPIC_JSON + b"},"
        b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}',
        "",
    ),
    (
        TopicStats(
            queues=ObjectKeyed({QUEUE: QueueStats(last_update_ms=7, max_offset=9, min_offset=1)}),
            puts_per_second=0.5,
        ),
        b'{"offsetTable":{' + QUEUE_JSON + b":"
        b'{"lastUpdateTimestamp":7,"maxOffset":9,"minOffset":1}},"topicPutTps":0.5}',
        "",
    ),
    (GroupNames(groups=["g"]), b'{"groupList":["g"]}', ""),
]

ROWS = [*CLIENTS, *GROUPS, *OFFSETS, *RELAYS, *ROUTES, *STATISTICS, *TOPICS]

# OrbitMQ's own bodies, which no Java peer reads.
OWN: list[Row] = [
    (
        ArchiveList(
            known=KnownArchives(
                revision=7,
                archives={
                    "a": Archive(
                        name="a", topic="T", gates=True, target="t", life=2, marks={0: 2**40}
                    )
                },
            ),
            figures={"a": ArchiveFigures(unarchived_messages=3, held_files=1)},
        ),
        b'{"known":{"revision":7,"unknown":"","archives":{"a":{"name":"a","topic":"T","gates":true,'
        b'"target":"t","life":2,"lifeFrom":0,"openedMs":0,"advancedMs":0,"marks":{"0":1099511627776}}}},'
        b'"figures":{"a":{"unarchivedMessages":3,"heldLogBytes":0,"oldestMs":0,"heldFiles":1,'
        b'"missedMessages":0}}}',
        "",
    ),
    (MarkMove(queue_id=1, before=2, mark=2**40), b"[1,2,1099511627776]", ""),
    (
        BatchDecision(
            query="q",
            batch=3,
            parts={"broker-a": Part(writes={"a" * 32: 5}, start=1, end=2**40)},
            source=SourceRange(start="0a", end="0b"),
            target="orders",
        ),
        b'{"query":"q","batch":3,"parts":{"broker-a":{"writes":{"' + b"a" * 32 + b'":5},'
        b'"start":1,"end":1099511627776}},"source":{"start":"0a","end":"0b"},"target":"orders"}',
        "",
    ),
    (
        BatchStatus(counts=False, complete=False, problems={"broker-a": "down"}, same_source=True),
        b'{"counts":false,"complete":false,"problems":{"broker-a":"down"},"refused":false,'
        b'"same_source":true}',
        "",
    ),
    (
        QueryPage(
            queries=[
                QuerySummary(
                    query="q",
                    coordinator="broker-a",
                    batch=3,
                    rows=5,
                    confirmed={"broker-b": Confirmed(2, "d")},
                )
            ]
        ),
        b'{"queries":[{"query":"q","coordinator":"broker-a","batch":3,"rows":5,"staged_bytes":0,'
        b'"decided":-1,"decided_ms":0,"target":"","complete":true,'
        b'"moved":true,"part_digest":"","digest":"","confirmed":{"broker-b":[2,"d"]}}],'
        b'"from_log":false,"damage":[]}',
        "",
    ),
    (
        Standing(
            broker_name="b",
            broker_id=1,
            address="127.0.0.1:5",
            role="SLAVE",
            is_master=False,
            epoch=2,
            epochs=[EpochStart(epoch=2, offset=3, former_id=4)],
            log_start=5,
            log_end=6,
            flushed=7,
            visible=8,
            master=MasterSeen(
                address="127.0.0.1:9",
                role="SYNC_MASTER",
                log_end=10,
                visible=11,
                heard_ms=12,
                slaves_awaited=13,
                slaves=14,
                permission=4,
            ),
            is_linked=True,
            failure="f",
        ),
        b'{"brokerName":"b","brokerId":1,"address":"127.0.0.1:5","role":"SLAVE","isMaster":false,'
        b'"epoch":2,"epochs":[{"epoch":2,"offset":3,"formerId":4}],"logStart":5,"logEnd":6,'
        b'"flushed":7,"visible":8,"master":{"address":"127.0.0.1:9","role":"SYNC_MASTER",'
        b'"logEnd":10,"visible":11,"heardMs":12,"slavesAwaited":13,"slaves":14,"permission":4},"isLinked":true,'
        b'"failure":"f","differsFrom":null}',
        "",
    ),
    (
        QueueEnds(log_end=1, ends={"T": {2: 3}}, has_more=True),
        b'{"logEnd":1,"ends":{"T":{"2":3}},"hasMore":true}',
        "",
    ),
    (
        StoreTables(reserved=[ReservedNumbers("T", 1, 2)], deleted={"D": 3}, log_start=4),
        b'{"reserved":[["T",1,2]],"deleted":{"D":3},"logStart":4}',
        "",
    ),
    (
        TransactionPage(
            transactions=[
                OpenTransaction(
                    transaction_id="id",
                    group="g",
                    topic="T",
                    queue_id=1,
                    keys="k",
                    body_bytes=2,
                    since_ms=3,
                    half_offset=4,
                    checks=5,
                    producers=6,
                )
            ],
            count=7,
        ),
        b'{"transactions":[{"transaction_id":"id","group":"g","topic":"T","queue_id":1,"keys":"k",'
        b'"body_bytes":2,"since_ms":3,"half_offset":4,"checks":5,"asked_client":"","asked_ms":0,'
        b'"producers":6}],"count":7}',
        "",
    ),
    (
        ChecksSent(clients=["c"], asked=1, without_producer=2),
        b'{"clients":["c"],"asked":1,"without_producer":2}',
        "",
    ),
    (
        PendingPage(
            messages=[
                PendingMessage(
                    message_id="id",
                    topic="T",
                    due_ms=1,
                    stored_ms=2,
                    keys="k",
                    body_bytes=3,
                    recall_handle="h",
                )
            ],
            cursor="4:5",
        ),
        b'{"messages":[{"message_id":"id","topic":"T","due_ms":1,"stored_ms":2,"keys":"k",'
        b'"body_bytes":3,"recall_handle":"h"}],"cursor":"4:5"}',
        "",
    ),
    (
        PendingCounts(counts=[(1000, 2)], next_ms=3),
        b'{"counts":[[1000,2]],"next_ms":3}',
        "",
    ),
]

# What peers omit or spell differently, and what it means here.
READ: list[Row] = [
    (
        HeartbeatBody(
            client_id="192.0.2.2@54536566",
            consumers=[
                ConsumerGroup(
                    group="g",
                    subscriptions=[
                        msgspec.structs.replace(SUBSCRIPTION, version=1794721803179630767)
                    ],
                )
            ],
        ),
        b'{"clientID":"192.0.2.2@54536566","producerDataSet":[],"consumerDataSet":['
        b'{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":['
        b'{"classFilterMode":false,"topic":"T","subString":"TagA","tagsSet":["TagA"],'
        b'"codeSet":["2598919"],"subVersion":1794721803179630767,"expressionType":"TAG"}],'
        b'"unitMode":false}]}',
        "Go 2.1.2 quotes codes and counts versions in nanoseconds",
    ),
    (
        HeartbeatBody(
            client_id="c",
            consumers=[
                ConsumerGroup(
                    group="g",
                    consume_from=FROM_TIMESTAMP,
                    consume_type=PUSH,
                    message_model=BROADCASTING,
                    subscriptions=[
                        Subscription(
                            topic="T", expression="*", tag_codes=[1], version=1700000000000
                        )
                    ],
                )
            ],
        ),
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":5,"consumeType":1,'
        b'"groupName":"g","messageModel":0,"subscriptionDataSet":[{"codeSet":["1"],'
        b'"subString":"*","subVersion":"1700000000000","tagsSet":[],"topic":"T"}]}]}',
        "C++ has positions instead of names",
    ),
    (
        HeartbeatBody(client_id="c"),
        b'{"clientID":"c","producerDataSet":null,"consumerDataSet":null}',
        "nulls instead of sets",
    ),
    (
        HeartbeatBody(
            client_id="c",
            consumers=[
                ConsumerGroup(
                    group="g",
                    consume_type=ConsumeType("CONSUME_NEW"),
                    message_model=CLUSTERING,
                    consume_from=FROM_LAST_OFFSET,
                )
            ],
        ),
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_NEW"}]}',
        "a way of consuming that is not known yet is kept",
    ),
    (
        QueuesToLock(client_id="c", consumer_group="g", queues=[], this_broker_only=False),
        b'{"consumerGroup":"g","clientId":"c","mqSet":[]}',
        "a peer that knows no scope means every broker",
    ),
    (
        QueueOffsetTable(offsets=ObjectKeyed({QUEUE: 5})),
        rb'{"offsetTable":{"{\"topic\":\"T\",\"brokerName\":\"b\",\"queueId\":0}":5}}',
        "quoted keys",
    ),
    (
        RunningConsumer(stacks="main"),
        b'{"jstack":"main","mqTable":{},"properties":{},"statusTable":{},"subscriptionSet":[]}',
        "other releases leave members out",
    ),
    (
        DirectResult(outcome=DirectOutcome("CR_LATER"), spent_ms=1),
        b'{"autoCommit":true,"consumeResult":1,"order":false,"spentTimeMills":1}',
        "Go has positions instead of names",
    ),
    (
        TopicConfigTable(data_version=DataVersion(counter=1, timestamp=7), topics={"T": TOPIC}),
        b'{"dataVersion":{"counter":1,"timestamp":7},"topicConfigTable":{"T":' + TOPIC_JSON + b"}}",
        "RocketMQ 4 knows no static topics",
    ),
]


def row_id(row: Row) -> str:
    body, _, note = row
    return f"{type(body).__name__}: {note}" if note else type(body).__name__


@pytest.mark.parametrize("row", ROWS, ids=row_id)
def test_a_body_is_written_and_read_as_java_does(row: Row) -> None:
    body, text, _ = row

    assert java_json.encode(body) == text
    assert java_json.decode(text, type(body)) == body


@pytest.mark.parametrize("row", OWN, ids=row_id)
def test_a_body_of_our_own_is_plain_json(row: Row) -> None:
    body, text, _ = row

    assert msgspec.json.encode(body) == text
    assert msgspec.json.decode(text, type=type(body)) == body


@pytest.mark.parametrize("row", READ, ids=row_id)
def test_a_body_of_another_peer_is_read(row: Row) -> None:
    body, text, _ = row

    assert java_json.decode(text, type(body)) == body


def test_a_heartbeat_must_have_a_client_id() -> None:
    with pytest.raises(ProtocolError, match="missing required field `clientID`"):
        java_json.decode(b'{"consumerDataSet":[]}', HeartbeatBody)


def test_offsets_become_a_list_for_consumers_in_cpp() -> None:
    assert QueueOffsetTable(offsets=ObjectKeyed({QUEUE: 5})).as_list() == QueueOffsetList(
        offsets=[ListedQueueOffset(broker_name="b", offset=5, queue_id=0, topic="T")]
    )


def kinds_in(value: object) -> Iterator[type]:
    """The types of a value and of all its parts."""
    yield type(value)
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from kinds_in(getattr(value, name))
    elif isinstance(value, dict):
        for held in value.values():
            yield from kinds_in(held)
    elif isinstance(value, list):
        for held in value:
            yield from kinds_in(held)


def test_every_body_has_a_row() -> None:
    # How brokers register has a file of its own.
    modules = [
        importlib.import_module(f"{requests.__name__}.{module.name}")
        for module in pkgutil.iter_modules(requests.__path__)
        if module.name != "registration"
    ]
    bodies = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__module__ == module.__name__
    }

    shown = {kind for body, _, _ in [*ROWS, *OWN] for kind in kinds_in(body)}

    assert {kind.__name__ for kind in bodies - shown} == set()
