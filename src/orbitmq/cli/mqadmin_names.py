"""Names of `mqadmin` commands, each with ours that does the same.

`orbitmq updateTopic -t orders -c DefaultCluster` works as `orbitmq topic create orders -c …` does:
mqadmin's flags become our arguments and options.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from orbitmq.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """Which command of ours does the work of one of mqadmin's."""

    ours: str
    # Flags whose values become our arguments, in this order.
    arguments: tuple[str, ...] = ()
    # Flags by the name of our option; empty where it is left out.
    options: dict[str, str] = field(default_factory=dict)
    # Options of ours that go with it always.
    always: tuple[str, ...] = ()


_CLUSTER: Final = {"-c": "--cluster"}

ALIASES: Final[dict[str, Alias]] = {
    "clusterList": Alias(ours="cluster list", options={"-m": "", "-i": "", "-c": ""}),
    "topicList": Alias(ours="topic list", options={"-c": ""}, always=("--all",)),
    "topicRoute": Alias(ours="topic show", arguments=("-t",)),
    "topicStatus": Alias(ours="topic stats", arguments=("-t",)),
    "topicClusterList": Alias(ours="topic show", arguments=("-t",)),
    "updateTopic": Alias(
        ours="topic create",
        arguments=("-t",),
        options={
            **_CLUSTER,
            "-b": "--broker",
            "-r": "--queues",
            "-w": "--write-queues",
            "-a": "--attributes",
        },
    ),
    "deleteTopic": Alias(
        ours="topic delete", arguments=("-t",), options=_CLUSTER, always=("--yes",)
    ),
    "updateSubGroup": Alias(
        ours="group create",
        arguments=("-g",),
        options={**_CLUSTER, "-r": "--retries-max", "-q": "--retry-queues"},
    ),
    "deleteSubGroup": Alias(
        ours="group delete", arguments=("-g",), options=_CLUSTER, always=("--yes",)
    ),
    "getConsumerConfig": Alias(ours="group show", arguments=("-g",)),
    "consumerProgress": Alias(ours="group lag", arguments=("-g",), options={"-t": "--topic"}),
    "consumerConnection": Alias(ours="group members", arguments=("-g",)),
    "consumerStatus": Alias(ours="group running", arguments=("-g", "-i"), options={"-s": ""}),
    "brokerStatus": Alias(ours="broker status", arguments=("-b",)),
    "getBrokerConfig": Alias(ours="broker config", arguments=("-b",)),
    "wipeWritePerm": Alias(ours="broker forbid-writing", arguments=("-b",), always=("--yes",)),
    "addWritePerm": Alias(ours="broker allow-writing", arguments=("-b",)),
    "queryMsgById": Alias(ours="message show", arguments=("-i",), options={"-t": "--topic"}),
    "queryMsgByUniqueKey": Alias(ours="message show", arguments=("-i",), options={"-t": "--topic"}),
    "queryMsgByKey": Alias(ours="message find", arguments=("-t",), options={"-k": "--key"}),
    "queryMsgByOffset": Alias(ours="message at", arguments=("-t", "-b", "-i", "-o"), options={}),
    "sendMessage": Alias(
        ours="message send",
        arguments=("-t", "-p"),
        options={"-k": "--keys", "-c": "--tags", "-b": "--broker", "-i": "--queue"},
    ),
    "consumeMessage": Alias(ours="message tail", arguments=("-t",), options={"-c": "--count"}),
    "printMsg": Alias(ours="message tail", arguments=("-t",), options={"-s": "--tags"}),
    "resetOffsetByTime": Alias(
        ours="offset reset",
        arguments=("-g", "-t"),
        options={"-s": "--to", "-f": ""},
        always=("--yes",),
    ),
    "cloneGroupOffset": Alias(
        ours="offset clone",
        arguments=("-s", "-d", "-t"),
        options={"-o": ""},
        always=("--yes",),
    ),
    "updateKvConfig": Alias(ours="kv put", arguments=("-s", "-k", "-v")),
    "deleteKvConfig": Alias(ours="kv delete", arguments=("-s", "-k"), always=("--yes",)),
    "cleanExpiredCQ": Alias(ours="broker clean", arguments=("-b",), always=("--yes",)),
    "cleanUnusedTopic": Alias(ours="broker clean", arguments=("-b",), always=("--yes",)),
    "deleteExpiredCommitLog": Alias(ours="broker clean", arguments=("-b",), always=("--yes",)),
}
# Commands of mqadmin that nothing here does, each with what to do instead.
MISSING: Final[dict[str, str]] = {
    "producerConnection": "ask the broker: orbitmq broker status",
    "updateBrokerConfig": "use: orbitmq broker set BROKER NAME=VALUE",
    "exportMetadata": "copy the config folder of the broker",
    "exportConfigs": "use: orbitmq broker config BROKER --json",
    "checkMsgSendRT": "benchmarks/ measures sends",
    "updateAclConfig": "access control is not built",
    "getAccessConfigSubCommand": "access control is not built",
    "haStatus": "replication is not built",
    "getSyncStateSet": "replication is not built",
    "queryCq": "use: orbitmq store inspect DIR",
    "dumpCompactionLog": "compaction is not built",
}


def as_our_command(words: list[str]) -> list[str]:
    """Turn a command line of mqadmin into one of ours; ours stay as they are."""
    if not words or (words[0] not in ALIASES and words[0] not in MISSING):
        return words
    name = words[0]
    if name in MISSING:
        raise SettingsError(f"mqadmin's {name} is not there", hint=MISSING[name])
    alias = ALIASES[name]
    given: dict[str, str] = {}
    rest: list[str] = []
    at = 1
    while at < len(words):
        word = words[at]
        value = words[at + 1] if at + 1 < len(words) and not words[at + 1].startswith("-") else ""
        if word in alias.arguments or word in alias.options:
            given[word] = value
            at += 2 if value else 1
        else:
            rest.append(word)
            at += 1
    missing = [flag for flag in alias.arguments if flag not in given]
    if missing and "--help" not in rest:
        raise SettingsError(
            f"{name} needs {' and '.join(missing)}", hint=f"it does what orbitmq {alias.ours} does"
        )
    options = [
        word
        for flag, option in alias.options.items()
        if option and flag in given
        for word in (option, given[flag])
    ]
    arguments = [given[flag] for flag in alias.arguments if flag in given]
    return [*alias.ours.split(), *arguments, *options, *alias.always, *rest]
