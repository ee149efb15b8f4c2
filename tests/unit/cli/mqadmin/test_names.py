"""Command lines of mqadmin, turned into ours."""

from __future__ import annotations

import pytest

from orbitmq.cli.main import NOUNS
from orbitmq.cli.mqadmin.names import ALIASES, MISSING, as_our_command, nearest_command
from orbitmq.errors import CommandError

# What mqadmin 5.5.0 lists without an argument, and what 4.9.8 and 5.3 had besides.
NAMES = [
    "addBroker",
    "addWritePerm",
    "allocateMQ",
    "brokerConsumeStats",
    "brokerStatus",
    "checkMsgSendRT",
    "checkRocksdbCqWriteProgress",
    "cleanBrokerMetadata",
    "cleanExpiredCQ",
    "cleanUnusedTopic",
    "cloneGroupOffset",
    "clusterList",
    "clusterRT",
    "consumeMessage",
    "consumerConnection",
    "consumerProgress",
    "consumerStatus",
    "copyAcl",
    "copyUser",
    "createAcl",
    "createUser",
    "deleteAcl",
    "deleteExpiredCommitLog",
    "deleteKvConfig",
    "deleteSubGroup",
    "deleteTopic",
    "deleteUser",
    "dumpCompactionLog",
    "electMaster",
    "exportConfigs",
    "exportMetadata",
    "exportMetadataInRocksDB",
    "exportMetrics",
    "exportPopRecord",
    "getAcl",
    "getBrokerConfig",
    "getBrokerEpoch",
    "getBrokerLiteInfo",
    "getColdDataFlowCtrInfo",
    "getConsumerConfig",
    "getControllerConfig",
    "getControllerMetaData",
    "getLiteClientInfo",
    "getLiteGroupInfo",
    "getLiteTopicInfo",
    "getNamesrvConfig",
    "getParentTopicInfo",
    "getSyncStateSet",
    "getUser",
    "haStatus",
    "listAcl",
    "listUser",
    "printMsg",
    "printMsgByQueue",
    "producer",
    "producerConnection",
    "queryCq",
    "queryMsgById",
    "queryMsgByKey",
    "queryMsgByOffset",
    "queryMsgByUniqueKey",
    "queryMsgTraceById",
    "remappingStaticTopic",
    "removeBroker",
    "removeColdDataFlowCtrGroupConfig",
    "resetMasterFlushOffset",
    "resetOffsetByTime",
    "rocksDBConfigToJson",
    "sendMessage",
    "sendMsgStatus",
    "setCommitLogReadAheadMode",
    "setConsumeMode",
    "skipAccumulatedMessage",
    "startMonitoring",
    "statsAll",
    "switchTimerEngine",
    "topicClusterList",
    "topicList",
    "topicRoute",
    "topicStatus",
    "triggerLiteDispatch",
    "updateAcl",
    "updateBrokerConfig",
    "updateColdDataFlowCtrGroupConfig",
    "updateControllerConfig",
    "updateKvConfig",
    "updateNamesrvConfig",
    "updateOrderConf",
    "updateStaticTopic",
    "updateSubGroup",
    "updateSubGroupList",
    "updateTopic",
    "updateTopicList",
    "updateTopicPerm",
    "updateUser",
    "wipeWritePerm",
    "updateAclConfig",
    "deleteAclConfig",
    "deleteAccessConfig",
    "updateGlobalWhiteAddr",
    "clusterAclConfigVersion",
]


def test_every_command_of_mqadmin_works_or_says_what_to_use_instead() -> None:
    for name in NAMES:
        assert (name in ALIASES) != (name in MISSING), name
        if name in MISSING:
            with pytest.raises(CommandError, match=f"mqadmin's {name} is not supported"):
                as_our_command([name])
        else:
            assert as_our_command([name, "-h"])[0] in NOUNS, name


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("topicRoute -t T -n h:1", "topic show -n h:1 -- T"),
        ("updateTopic -t T -c C -r 2 -w 3 -p 6 -o true",
         "topic create --yes --cluster C --queues 2 --write-queues 3 --permission 6 --ordered -- T"),
        ("updateTopic -t T -b h:1 -a -x", "topic create --yes --broker h:1 --attributes -x -- T"),
        ("updateBrokerConfig -c C -k name -v 1", "broker set --yes -- C name=1"),
        ("brokerStatus -b h:1", "broker status -- h:1"),
        ("consumerProgress", "group list"),
        ("consumerProgress -g G -t T", "group lag --topic T -- G"),
        ("consumerStatus -g G -s", "group running --stacks -- G"),
        ("consumerStatus -g G -i C", "group running -- G C"),
        ("deleteSubGroup -g G -c C", "group delete --yes --keep-offsets --cluster C -- G"),
        ("deleteSubGroup -g G -c C -r true", "group delete --yes --cluster C -- G"),
        ("queryMsgById -i A,B -t T", "message show --topic T -- A B"),
        ("queryMsgById -i A,B -t T -s true", "message resend --topic T -- A B"),
        ("queryMsgByKey -t T -k K -m 5", "message find --key K --count 5 -- T"),
        ("queryMsgByKey -t T -k K -p K", "message find --key K -- T"),
        ("queryMsgByKey -t T -k red -p T", "message find --from 0 --newest --tags red -- T"),
        ("haStatus -c C", "broker slaves -- C"),
        ("queryMsgById -i A -g G -d C -t T", "message consume --topic T -- A G C"),
        ("resetOffsetByTime -g G -t T -s -1", "offset reset --yes --to -1 -- G T"),
        ("resetOffsetByTime -g G -t T -s now -f false",
         "offset reset --yes --to now --only-back -- G T"),
        ("resetOffsetByTime -g G -t T -s 0 -b h:1 -q 2 -o 7", "offset set --yes -- G T h:1 2 7"),
        ("updateOrderConf -t T -m put -v a:4", "kv put -- ORDER_TOPIC_CONFIG T a:4"),
        ("cleanUnusedTopic -b b", "broker clean --only topics --yes -- b"),
        ("statsAll -a", "topic traffic --all --active"),
        ("printMsg -t T -s tag", "message find --from 0 --count 1000000 --tags tag -- T"),
        ("topic list", "topic list"),
        ("", ""),
    ],
)  # fmt: skip
def test_flags_of_mqadmin_are_translated(theirs: str, ours: str) -> None:
    assert as_our_command(theirs.split()) == ours.split()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topicStatus", "topicStatus requires -t"),
        ("brokerStatus", "brokerStatus requires -b, or -c"),
        ("updateOrderConf -t T", "requires -t and -v and -m put, or -t and -m get, or"),
        ("topicRoute -t T -z", "topicRoute does not support -z"),
        ("getBrokerEpoch -b x", "orbitmq broker slaves"),
    ],
)
def test_what_cannot_be_done_is_explained(line: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        as_our_command(line.split())


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("topicStats", "topicStatus"), ("topc", "topic"), ("mesxage", "message"), ("zzz", None)],
)
def test_a_typo_gets_the_nearest_of_both(typo: str, meant: str | None) -> None:
    assert nearest_command(typo, NOUNS) == meant
