"""Replays: messages that are stored are sent into a topic again, each once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from orbitmq.client import Admin, Message, PushConsumer, ReceivedMessage, Reject
from orbitmq.clock import ManualClock
from orbitmq.errors import ReplayDoubtError, ReplaySourceError, SettingsError
from orbitmq.pipelines.replaying.doubts import Choice, settle_doubt
from orbitmq.pipelines.replaying.plan import Plan, Request
from orbitmq.pipelines.replaying.planning import make_plan, sample
from orbitmq.pipelines.replaying.selection import Selection, order_of
from orbitmq.pipelines.replaying.sending import Replay, Sent
from orbitmq.pipelines.replaying.sources import parse_source
from orbitmq.pipelines.replaying.state import PROGRESS, Progress, ReplayState, held, peek
from orbitmq.spark.options.write_options import WriteOptions
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.spark.commands import orbitmq
from tests.spark.kills import START_TIMEOUT_S
from tests.spark.topics import Topics
from tests.unit.store.written_stores import T0, fill
from tests.waiting import wait_until

WANTED = "get_json_object(CAST(body AS STRING), '$.n') % 5 > 0 AND properties['region'] = 'eu'"
TWICE = """
    SELECT * EXCEPT (body, tags), 'twice' AS tags, concat('again ', CAST(body AS STRING)) AS body
    FROM messages
"""


A_LONG_TIME_MS = 2_000_000_000_000


class Desk:
    """Makes, plans and runs replays of one cluster."""

    def __init__(self, spark: SparkSession, topics: Topics, folder: Path) -> None:
        self.spark = spark
        self.topics = topics
        self.folder = folder
        self.sent: list[Sent] = []
        self.waits_ms: list[float] = []

    def request(self, source: str, **given: Any) -> Request:
        namesrv = self.topics.cluster.namesrv
        into = given.pop("into", "") or self.topics.create(queues=2)
        return Request(source=source, into=into, namesrv=namesrv, into_namesrv=namesrv, **given)

    def target(self, request: Request) -> dict[str, str]:
        return {
            "namesrvAddr": request.into_namesrv,
            "topic": request.into,
            "createTopics": "false",
            "delivery": "exactlyOnce" if request.guarantee == "exactly-once" else "atLeastOnce",
        }

    def selection(self, request: Request) -> Selection:
        at = {"namesrvAddr": request.namesrv}
        source = parse_source(request.source, request.source_topic, at)
        return Selection(self.spark, source, request)

    def plan(self, request: Request, **given: Any) -> Plan:
        options = WriteOptions.from_spark(self.target(request))
        times: dict[str, Any] = {"start_ms": None, "end_ms": None, "rate": None, **given}
        return make_plan(request.id, self.selection(request), options, now_ms=1, **times)

    def start(self, request: Request, **given: Any) -> Plan:
        plan = self.plan(request, **given)
        with held(self.folder, plan.id) as state:
            state.start(plan)
        return plan

    def run(
        self, request: Request, *, chunks: int = 1_000, rate: float | None = None
    ) -> ReplayState:
        last = len(self.sent) + chunks

        def stops_within(wait_ms: float) -> bool:
            if wait_ms:
                self.waits_ms.append(wait_ms)
            return len(self.sent) == last

        with held(self.folder, request.id) as state:
            Replay(
                selection=self.selection(request),
                state=state,
                target=self.target(request),
                rate=rate,
                clock=ManualClock(),
                stops_within=stops_within,
                on_chunk=self.sent.append,
            ).run()
            return state

    def settle(self, request: Request, choice: Choice = "", *, now_ms: int) -> Progress:
        with held(self.folder, request.id) as state:
            settle_doubt(state, {"namesrv": request.into_namesrv}, choice, now_ms=now_ms)
            return state.progress

    def forget_last_chunk(self, request: Request) -> None:
        """As if the program had been killed after brokers had the last chunk."""
        path = self.folder / request.id / PROGRESS
        progress = json.loads(path.read_text())
        progress["rows"] -= self.sent[-1].rows
        progress |= {"chunks": progress["chunks"] - 1, "finished_ms": 0, "begun_ms": 1}
        path.write_text(json.dumps(progress))


@pytest.fixture
def desk(spark: SparkSession, topics: Topics, tmp_path: Path) -> Desk:
    return Desk(spark, topics, tmp_path)


def orders(topics: Topics, count: int) -> str:
    topic = topics.create(queues=2)
    topics.send_messages(
        Message(
            topic,
            json.dumps({"n": number}),
            keys=[f"k{number}"],
            tags="paid",
            properties={"region": "us" if number % 3 == 0 else "eu"},
        )
        for number in range(count)
    )
    return topic


def by_queue(messages: list[ReceivedMessage]) -> dict[tuple[str, int], list[str]]:
    found: dict[tuple[str, int], list[str]] = {}
    for one in messages:
        found.setdefault((one.queue.broker_name, one.queue_id), []).append(one.keys[0])
    return found


def test_what_matches_is_sent_once_in_the_order_of_each_queue_and_resumes(desk: Desk) -> None:
    source = orders(desk.topics, 240)
    request = desk.request(source, where=WANTED, transform=TWICE)

    plan = desk.start(request, rate=10.0)
    desk.topics.send_messages(
        Message(source, '{"n": 2}', keys=["k2000"], properties={"region": "eu"}) for _ in range(8)
    )
    columns, rows = sample(desk.selection(request), plan.chunks[0], 3)
    stopped = desk.run(request, chunks=1, rate=10.0).progress
    finished = desk.run(request, rate=10.0).progress
    desk.forget_last_chunk(request)
    desk.settle(request, now_ms=A_LONG_TIME_MS)
    repeated = desk.run(request).progress
    again = desk.run(request).progress

    wanted = [number for number in range(240) if number % 5 and number % 3]
    assert (plan.in_range, plan.messages, plan.rows) == (240, 128, 128)
    assert len(plan.chunks) == 3
    assert max(chunk.messages for chunk in plan.chunks) <= 50 + 4
    assert plan.first_ms <= plan.last_ms
    assert order_of(columns) == "messages of one queue stay in one queue, in their order"
    assert [row["body"].startswith("again {") for row in rows] == [True] * 3
    assert (stopped.chunks, stopped.rows) == (1, plan.chunks[0].messages)
    assert (finished.chunks, finished.rows) == (3, 128)
    # No time passes while a chunk is sent, by this clock.
    assert desk.waits_ms == [chunk.messages * 100 for chunk in plan.chunks[:-1]]
    assert (repeated.rows, again.rows, len(desk.sent)) == (128, 128, 4)
    copies = desk.topics.messages(request.into)
    assert sorted(int(one.keys[0][1:]) for one in copies) == wanted
    for one in copies:
        number = int(one.keys[0][1:])
        assert one.body == f'again {{"n": {number}}}'.encode()
        assert (one.tags, one.as_message().properties["region"]) == ("twice", "eu")
    originals = by_queue(desk.topics.messages(source))
    kept = {queue: [key for key in keys if int(key[1:]) in wanted]
            for queue, keys in originals.items()}  # fmt: skip
    assert all(kept.values())
    assert by_queue(copies) == kept


def test_messages_that_are_gone_or_others_are_named_and_not_left_out(desk: Desk) -> None:
    gone, other = desk.topics.filled(40, queues=1), desk.topics.filled(40, queues=1)
    of_gone, of_other = desk.request(gone), desk.request(other)
    desk.start(of_gone)
    desk.start(of_other)

    desk.topics.create_again(gone, queues=1)
    desk.topics.create_again(other, queues=1)
    desk.topics.send(other, (f"other {number}" for number in range(50)))

    with pytest.raises(ReplaySourceError, match=f"messages of the plan are gone: .*{gone}"):
        desk.run(of_gone)
    with pytest.raises(ReplaySourceError, match=f"topic {other} has other messages now"):
        desk.run(of_other)
    for request in (of_gone, of_other):
        assert desk.topics.messages(request.into) == []
        stored = peek(desk.folder, request.id)
        assert stored is not None
        assert stored.progress.chunks == 0
    with pytest.raises(ReplayDoubtError, match=r"chunk 1 of 1 .* days ago.*--in-doubt"):
        desk.settle(of_gone, now_ms=A_LONG_TIME_MS)
    assert desk.settle(of_gone, now_ms=ManualClock().now_ms()).begun_ms > 0
    assert desk.settle(of_gone, "send", now_ms=A_LONG_TIME_MS).begun_ms == 0
    assert desk.settle(of_other, "skip", now_ms=A_LONG_TIME_MS).finished_ms == A_LONG_TIME_MS


def test_dead_letters_are_sent_without_what_brokers_noted_in_them(desk: Desk) -> None:
    topic, group = desk.topics.create(queues=1), "replayed-billing"
    namesrv = desk.topics.cluster.namesrv
    desk.topics.send_messages(
        Message(
            topic, f"letter {number}", keys=[f"k{number}"], tags="paid", properties={"own": "é"}
        )
        for number in range(3)
    )
    consumer = PushConsumer(
        group,
        on_message=lambda _: Reject("no customer"),
        consume_from="first",
        namesrv=namesrv,
    )
    consumer.subscribe(topic)
    with Admin(namesrv=namesrv) as admin, consumer:
        wait_until(
            lambda: (group, 3) in [(one.group, one.letters) for one in admin.dead_letters.counts()],
            timeout_s=CLIENT_TIMEOUT_S,
            what="dead letters",
        )
    request = desk.request(f"dlq:{group}", where="keys <> 'k1'", guarantee="at-least-once")

    desk.start(request)
    desk.run(request)

    copies = [one.as_message() for one in desk.topics.messages(request.into)]
    assert sorted((one.body, one.tags, one.properties["own"]) for one in copies) == [
        (b"letter 0", "paid", "é"),
        (b"letter 2", "paid", "é"),
    ]
    for one in desk.topics.messages(request.into):
        assert not {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC"} & one.properties.keys()
        assert one.reconsume_times == 0


def test_store_files_are_sent_without_their_broker(desk: Desk, tmp_path: Path) -> None:
    root = tmp_path / "broker-z" / "store"
    fill(root, 400)
    request = desk.request(f"store:{root}", source_topic="topic0", where="queueId = 1")

    plan = desk.start(request, start_ms=T0 + 1_000, end_ms=T0 + 3_000, rate=2.0)
    desk.run(request)

    copies = desk.topics.messages(request.into)
    assert 20 < plan.messages < plan.in_range <= 200
    assert len(plan.chunks) > 1
    assert [one.body for one in copies] == sorted({one.body for one in copies})
    assert len(copies) == plan.messages


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"where": "quueId = 1"}, "--where: .*queueId"),
        ({"where": "queueId = "}, "--where: "),
        ({"where": "rand() > 0.5"}, "another result each time"),
        ({"where": "queueId IN (SELECT 1)"}, "a query within the query"),
        ({"where": "count(*) > 1"}, "--where: "),
        ({"transform": "SELECT bodi FROM messages"}, "--transform: .*body"),
        ({"transform": "SELECT 'a' AS body"}, "reads something else than the messages"),
        ({"transform": "SELECT body FROM messages, range(2)"}, "has a join"),
        ({"transform": "SELECT body FROM messages UNION ALL SELECT body FROM messages"}, "UNION"),
        ({"transform": "SELECT max(body) AS body FROM messages"}, "aggregate function"),
        ({"transform": "SELECT body FROM messages ORDER BY queueOffset LIMIT 1"}, "has LIMIT"),
        ({"transform": "SELECT keys FROM messages"}, "no column 'body'"),
        ({"transform": "SELECT body, keys AS kyes FROM messages"}, "did you mean keys"),
        ({"transform": "SELECT body, 3 AS delayLevel FROM messages"}, "exactly once"),
    ],
)
def test_sql_that_cannot_be_replayed_is_refused_before_anything_is_read(
    desk: Desk, given: dict[str, str], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        desk.plan(desk.request("never-created", into="never-created-either", **given))


def test_a_body_that_a_transformation_leaves_empty_is_found_before_anything_is_sent(
    desk: Desk,
) -> None:
    source = orders(desk.topics, 6)
    sql = "SELECT get_json_object(CAST(body AS STRING), '$.m') AS body FROM messages"

    with pytest.raises(SettingsError, match="makes 6 of 6 bodies null or empty"):
        desk.plan(desk.request(source, transform=sql))


def _progress(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name / PROGRESS
    return json.loads(path.read_text()) if path.exists() else {"chunks": 0, "begun_ms": 0}


def _stopped_in_a_chunk(process: subprocess.Popen[str], folder: Path) -> Callable[[], bool]:
    def stopped() -> bool:
        assert process.poll() is None, process.communicate()
        if not _progress(folder, "night")["begun_ms"]:
            return False
        os.kill(process.pid, signal.SIGSTOP)
        if _progress(folder, "night")["begun_ms"]:
            return True
        os.kill(process.pid, signal.SIGCONT)
        return False

    return stopped


def test_a_command_killed_in_a_chunk_is_repeated_and_each_message_is_there_once(
    topics: Topics, tmp_path: Path
) -> None:
    source = orders(topics, 200)
    namesrv = topics.cluster.namesrv
    words = ["replay", source, "--into", "night-orders", "--id", "night", "--namesrv", namesrv,
             "--state", str(tmp_path), "--where", "tags = 'paid'"]  # fmt: skip

    missing = orbitmq(*words, "--yes")
    with subprocess.Popen(
        [Path(sys.executable).with_name("orbitmq"), *words, "--create", "--rate", "20"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("y\n")
        process.stdin.flush()
        wait_until(
            _stopped_in_a_chunk(process, tmp_path), timeout_s=START_TIMEOUT_S, what="a chunk"
        )
        process.kill()
        shown = process.stdout.read()
    left = _progress(tmp_path, "night")
    resumed = orbitmq(*words, "--create", "--yes")
    repeated = orbitmq(*words, "--yes", "--json")

    assert (missing.returncode, "there is no topic 'night-orders'" in missing.stderr) == (4, True)
    assert "topic night-orders, which is created" in shown
    assert '{"n": ' in shown
    assert f"send 200 messages of topic {source} into night-orders, 20 a second at most?" in shown
    assert left["chunks"] < 2
    assert resumed.returncode == 0, resumed.stderr
    assert "was being sent when the last run ended" in resumed.stderr
    assert "200 of 200 messages" in resumed.stderr
    assert "replay night: 200 messages became 200 messages in night-orders" in resumed.stdout
    assert repeated.returncode == 0, repeated.stderr
    assert json.loads(repeated.stdout)["sent_in_this_run"] is False
    copies = topics.messages("night-orders")
    assert sorted(int(one.keys[0][1:]) for one in copies) == list(range(200))
