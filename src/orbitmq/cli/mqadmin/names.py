"""Names of `mqadmin` commands, each with our command that does the same.

`orbitmq updateTopic -t orders -c DefaultCluster` runs `orbitmq topic create orders -c …`: mqadmin's
short flags become our arguments and options. Of several forms of a command, the first one counts
that knows all given flags and whose required flags are all given.
"""

from __future__ import annotations

import difflib
from typing import Final

from orbitmq.cli.mqadmin.alias import Alias
from orbitmq.errors import CommandError

_CLUSTER: Final = {"-c": "--cluster"}
_ONLY: Final = {**_CLUSTER, "-b": "--broker"}
_YES: Final = ("--yes",)
_SPAN: Final = {"-b": "--from", "-e": "--to", "-m": "--count"}
_MESSAGE: Final = {"-t": "--topic", "-f": "", "-u": "", "-c": ""}

_TRACE: Final = (
    Alias(
        ours="message trace",
        arguments=("-i",),
        options={"-t": "--trace-topic", "-b": "--from", "-e": "--to", "-c": "--count"},
    ),
)


def _of_brokers(ours: str, *more: str, always: tuple[str, ...] = ()) -> tuple[Alias, ...]:
    """Commands that take a broker or a cluster: two flags in mqadmin, one argument in ours."""
    return tuple(Alias(ours=ours, arguments=(flag, *more), always=always) for flag in ("-b", "-c"))


ALIASES: Final[dict[str, tuple[Alias, ...]]] = {
    # topics
    "topicList": (Alias(ours="topic list", switches={"-c": ""}, always=("--all",)),),
    "topicRoute": (Alias(ours="topic show", arguments=("-t",), switches={"-l": ""}),),
    "topicStatus": (Alias(ours="topic stats", arguments=("-t",), options={"-c": ""}),),
    "topicClusterList": (Alias(ours="topic show", arguments=("-t",)),),
    "updateTopic": (
        Alias(
            ours="topic create",
            arguments=("-t",),
            options={
                **_ONLY,
                "-r": "--queues",
                "-w": "--write-queues",
                "-p": "--permission",
                "-a": "--attributes",
            },
            choices={"-o": ("--ordered", "--no-ordered")},
            always=_YES,
        ),
    ),
    "updateTopicPerm": (Alias(ours="topic permit", arguments=("-t", "-p"), options=_ONLY),),
    "deleteTopic": (Alias(ours="topic delete", arguments=("-t",), options=_CLUSTER, always=_YES),),
    "updateOrderConf": (
        Alias(
            ours="kv put",
            when={"-m": "put"},
            first=("ORDER_TOPIC_CONFIG",),
            arguments=("-t", "-v"),
        ),
        Alias(
            ours="kv get",
            when={"-m": "get"},
            first=("ORDER_TOPIC_CONFIG",),
            arguments=("-t",),
        ),
        Alias(
            ours="kv delete",
            when={"-m": "delete"},
            first=("ORDER_TOPIC_CONFIG",),
            arguments=("-t",),
            always=_YES,
        ),
    ),
    "allocateMQ": (Alias(ours="topic allocation", arguments=("-t", "-i"), lists=True),),
    "statsAll": (
        Alias(ours="topic traffic", arguments=("-t",), switches={"-a": "--active"}),
        Alias(ours="topic traffic", switches={"-a": "--active"}, always=("--all",)),
    ),
    "queryCq": (
        Alias(
            ours="topic entries",
            arguments=("-t", "-b", "-q", "-i"),
            options={"-c": "--count", "-g": "--group"},
        ),
    ),
    # groups
    "updateSubGroup": (
        Alias(
            ours="group create",
            arguments=("-g",),
            options={**_ONLY, "-r": "--retries-max", "-q": "--retry-queues"},
            choices={
                "-s": ("--consuming", "--no-consuming"),
                "-d": ("--broadcasting", "--no-broadcasting"),
                "-o": ("--in-order", "--no-in-order"),
                "-a": ("--tell-of-changes", "--no-tell-of-changes"),
            },
        ),
    ),
    "deleteSubGroup": (
        Alias(
            ours="group delete",
            when={"-r": "true"},
            arguments=("-g",),
            options=_ONLY,
            always=_YES,
        ),
        Alias(
            ours="group delete",
            arguments=("-g",),
            options={**_ONLY, "-r": ""},
            always=(*_YES, "--keep-offsets"),
        ),
    ),
    "getConsumerConfig": (Alias(ours="group show", arguments=("-g",)),),
    "consumerProgress": (
        Alias(ours="group lag", arguments=("-g",), options={"-t": "--topic", "-s": "", "-c": ""}),
        Alias(ours="group list", options={"-s": "", "-c": ""}),
    ),
    "consumerConnection": (Alias(ours="group members", arguments=("-g",), options={"-b": ""}),),
    "producerConnection": (Alias(ours="group producers", arguments=("-g", "-t")),),
    "consumerStatus": (
        Alias(ours="group running", arguments=("-g", "-i"), switches={"-s": "--stacks"}),
        Alias(ours="group running", arguments=("-g",), switches={"-s": "--stacks"}),
    ),
    "setConsumeMode": (
        Alias(
            ours="group mode",
            arguments=("-g", "-t", "-m"),
            options={"-q": "--share", "-b": "", "-c": ""},
        ),
    ),
    # brokers and clusters
    "clusterList": (Alias(ours="cluster list", switches={"-m": ""}, options={"-i": "", "-c": ""}),),
    "brokerStatus": _of_brokers("broker status"),
    "haStatus": _of_brokers("broker slaves"),
    "getBrokerConfig": _of_brokers("broker config"),
    "updateBrokerConfig": _of_brokers("broker set", "-k=-v", always=_YES),
    "brokerConsumeStats": (
        Alias(ours="broker lag", arguments=("-b",), options={"-l": "--level", "-t": "", "-o": ""}),
    ),
    "producer": (Alias(ours="broker producers", arguments=("-b",)),),
    "wipeWritePerm": (Alias(ours="broker forbid-writing", arguments=("-b",), always=_YES),),
    "addWritePerm": (Alias(ours="broker allow-writing", arguments=("-b",)),),
    "cleanExpiredCQ": _of_brokers("broker clean", always=("--only", "queues", *_YES)),
    "cleanUnusedTopic": _of_brokers("broker clean", always=("--only", "topics", *_YES)),
    "deleteExpiredCommitLog": _of_brokers("broker clean", always=("--only", "logs", *_YES)),
    # messages
    "queryMsgById": (
        Alias(ours="message consume", arguments=("-i", "-g", "-d"), options=_MESSAGE),
        Alias(
            ours="message resend",
            arguments=("-i",),
            lists=True,
            options=_MESSAGE,
            when={"-s": "true"},
        ),
        Alias(ours="message show", arguments=("-i",), lists=True, options=_MESSAGE),
    ),
    "queryMsgByUniqueKey": (
        Alias(ours="message consume", arguments=("-i", "-g", "-d"), options=_MESSAGE),
        Alias(ours="message show", arguments=("-i",), options=_MESSAGE, switches={"-a": ""}),
    ),
    "queryMsgTraceById": _TRACE,
    "QueryMsgTraceById": _TRACE,
    "queryMsgByKey": (
        Alias(
            ours="message find",
            arguments=("-t",),
            options={"-k": "--key", **_SPAN, "-c": ""},
        ),
        Alias(
            ours="message find",
            arguments=("-t",),
            options={"-k": "--key", **_SPAN, "-c": ""},
            when={"-p": "K"},
        ),
        Alias(
            ours="message find",
            arguments=("-t",),
            options={"-k": "--tags", **_SPAN, "-c": ""},
            when={"-p": "T"},
            always=("--from", "0", "--newest"),
        ),
    ),
    "queryMsgByOffset": (
        Alias(ours="message at", arguments=("-t", "-b", "-i", "-o"), options={"-f": ""}),
    ),
    "printMsg": (
        Alias(
            ours="message find",
            arguments=("-t",),
            options={"-s": "--tags", "-b": "--from", "-e": "--to", "-c": "", "-d": ""},
            always=("--from", "0", "--count", "1000000"),
        ),
    ),
    "printMsgByQueue": (
        Alias(
            ours="message find",
            arguments=("-t",),
            options={
                "-a": "--broker",
                "-i": "--queue",
                "-s": "--tags",
                "-b": "--from",
                "-e": "--to",
                "-c": "",
                "-p": "",
                "-d": "",
            },
            always=("--from", "0", "--count", "1000000"),
        ),
    ),
    "consumeMessage": (
        Alias(
            ours="message at",
            arguments=("-t", "-b", "-i", "-o"),
            options={"-g": "", "-c": "--count"},
            always=("--count", "128"),
        ),
        Alias(
            ours="message find",
            arguments=("-t",),
            options={
                "-b": "--broker",
                "-i": "--queue",
                "-s": "--from",
                "-e": "--to",
                "-c": "--count",
                "-g": "",
            },
            always=("--from", "0", "--count", "128"),
        ),
    ),
    "sendMessage": (
        Alias(
            ours="message send",
            arguments=("-t", "-p"),
            options={"-k": "--keys", "-c": "--tags", "-b": "--broker", "-i": "--queue", "-m": ""},
        ),
    ),
    "checkMsgSendRT": (
        Alias(ours="message probe", arguments=("-t",), options={"-a": "--count", "-s": "--bytes"}),
    ),
    "sendMsgStatus": (
        Alias(ours="message probe", arguments=("-b",), options={"-c": "--count", "-s": "--bytes"}),
    ),
    # offsets
    "resetOffsetByTime": (
        Alias(
            ours="offset set",
            arguments=("-g", "-t", "-b", "-q", "-o"),
            options={"-s": "", "-f": "", "-c": ""},
            always=_YES,
        ),
        Alias(
            ours="offset reset",
            arguments=("-g", "-t"),
            options={"-s": "--to", "-c": ""},
            choices={"-f": ("", "--only-back")},
            always=_YES,
        ),
    ),
    "skipAccumulatedMessage": (
        Alias(
            ours="offset reset",
            arguments=("-g", "-t"),
            options={"-f": "", "-c": ""},
            always=("--to", "latest", *_YES),
        ),
    ),
    "cloneGroupOffset": (
        Alias(
            ours="offset clone",
            arguments=("-s", "-d", "-t"),
            options={"-o": ""},
            always=_YES,
        ),
    ),
    # name servers
    "updateKvConfig": (Alias(ours="kv put", arguments=("-s", "-k", "-v")),),
    "deleteKvConfig": (Alias(ours="kv delete", arguments=("-s", "-k"), always=_YES),),
    "getNamesrvConfig": (Alias(ours="namesrv config"),),
    "updateNamesrvConfig": (Alias(ours="namesrv set", arguments=("-k=-v",), always=_YES),),
}

_ACCESS: Final = "access control is not supported: restrict access with TLS and firewalls"
_REPLICATION: Final = "this belongs to RocketMQ's controller; use: orbitmq broker slaves"
_CONTROLLER: Final = "there is no controller: an operator decides which broker is the master"
_CONTAINER: Final = "each broker is a process of its own: orbitmq up --brokers N runs several"
_COLD: Final = "cold reads are not throttled; there is nothing to set"
_ROCKS: Final = "OrbitMQ does not use RocksDB: topics, groups and offsets are JSON files"
_LITE: Final = "lite topics of RocketMQ 5.5 are not supported"
_STATIC: Final = "static topics are not supported; use: orbitmq topic create"

# mqadmin commands without a counterpart, each with what to do instead.
MISSING: Final[dict[str, str]] = {
    "clusterRT": "use: orbitmq message probe BROKER; every broker has a topic of its own name",
    "startMonitoring": "use: orbitmq group lag GROUP --watch, or the metrics of the brokers",
    "updateTopicList": "use: orbitmq topic create TOPIC, once for each",
    "updateSubGroupList": "use: orbitmq group create GROUP, once for each",
    "updateStaticTopic": _STATIC,
    "remappingStaticTopic": _STATIC,
    "exportMetadata": "use: orbitmq broker topics BROKER --json, orbitmq group list --json",
    "exportConfigs": "use: orbitmq broker config CLUSTER --json",
    "exportMetrics": "use: orbitmq broker status CLUSTER --json, or the metrics of the brokers",
    "exportMetadataInRocksDB": _ROCKS,
    "exportPopRecord": "pop is not supported; use: orbitmq group lag GROUP",
    "rocksDBConfigToJson": _ROCKS,
    "checkRocksdbCqWriteProgress": _ROCKS,
    "dumpCompactionLog": "compaction is not supported; use: orbitmq store inspect DIR",
    "getSyncStateSet": _REPLICATION,
    "resetMasterFlushOffset": _REPLICATION,
    "getBrokerEpoch": _REPLICATION,
    "getControllerMetaData": _CONTROLLER,
    "getControllerConfig": _CONTROLLER,
    "updateControllerConfig": _CONTROLLER,
    "electMaster": _CONTROLLER,
    "cleanBrokerMetadata": _CONTROLLER,
    "addBroker": _CONTAINER,
    "removeBroker": _CONTAINER,
    "getColdDataFlowCtrInfo": _COLD,
    "updateColdDataFlowCtrGroupConfig": _COLD,
    "removeColdDataFlowCtrGroupConfig": _COLD,
    "setCommitLogReadAheadMode": _COLD,
    "switchTimerEngine": "timers are not supported; there is nothing to switch",
    **dict.fromkeys(
        (
            "getBrokerLiteInfo",
            "getParentTopicInfo",
            "getLiteTopicInfo",
            "getLiteClientInfo",
            "getLiteGroupInfo",
            "triggerLiteDispatch",
        ),
        _LITE,
    ),
    **dict.fromkeys(
        (
            *("createUser", "updateUser", "deleteUser", "getUser", "listUser", "copyUser"),
            *("createAcl", "updateAcl", "deleteAcl", "getAcl", "listAcl", "copyAcl"),
            *("updateAclConfig", "deleteAclConfig", "deleteAccessConfig"),
            *("updateGlobalWhiteAddr", "clusterAclConfigVersion", "getAccessConfigSubCommand"),
        ),
        _ACCESS,
    ),
}


def as_our_command(words: list[str]) -> list[str]:
    """Turn an mqadmin command line into ours; returns our own unchanged."""
    if not words or (words[0] not in ALIASES and words[0] not in MISSING):
        return words
    name, *rest = words
    if name in MISSING:
        raise CommandError(f"mqadmin's {name} is not supported", hint=MISSING[name])
    forms = ALIASES[name]
    if "-h" in rest or "--help" in rest:
        return [*forms[-1].ours.split(), "--help"]
    given, others = _flags(name, rest, forms)
    for form in forms:
        if form.matches(given):
            return form.translate(given, others)
    raise CommandError(
        f"{name} requires {', or '.join(map(_required_flags, forms))}",
        hint=f"it runs orbitmq {forms[-1].ours}",
    )


def nearest_command(word: str, ours: tuple[str, ...]) -> str | None:
    """The most similar command, ours or mqadmin's."""
    found = difflib.get_close_matches(word, [*ours, *ALIASES, *MISSING], n=1)
    return found[0] if found else None


def _flags(
    name: str, words: list[str], forms: tuple[Alias, ...]
) -> tuple[dict[str, str], list[str]]:
    """Split words into mqadmin's flags with their values, and the rest: our options."""
    given: dict[str, str] = {}
    others: list[str] = []
    left = iter(words)
    for word in left:
        if any(word in form.switches for form in forms):
            given[word] = ""
        elif any(word in form.valued for form in forms):
            given[word] = next(left, "")
        elif word in {"-n", "--namesrv"}:
            others += [word, next(left, "")]
        elif len(word) == 2 and word.startswith("-") and word != "-y":
            raise CommandError(
                f"{name} does not support {word}",
                hint=f"see orbitmq {forms[-1].ours} --help for the options",
            )
        else:
            others.append(word)
    return given, others


def _required_flags(form: Alias) -> str:
    words = [f"{flag} {form.when[flag]}" if flag in form.when else flag for flag in form.required]
    return " and ".join(words) or "no flags"
