"""Metrics: names, labels and values of a scrape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from orbitmq.broker.statistics.archive_metrics import ArchiveState
from orbitmq.broker.statistics.metrics import Metrics, Tables, Waiting
from orbitmq.broker.statistics.replication_metrics import ReplicationFigures, SlaveFigures
from orbitmq.broker.statistics.transaction_metrics import TransactionFigures
from orbitmq.model.archives import Archive, ArchiveFigures, KnownArchives
from orbitmq.model.queues import PhysicalOffset
from tests.unit.broker.groups.clients import consumer, heartbeat, new_connection, subscription
from tests.unit.broker.parts import BrokerParts, broker_parts, figures_of_master

NODE = {"cluster": "c", "node_type": "broker", "node_id": "b"}


def metrics_of(parts: BrokerParts, replication: ReplicationFigures | None = None) -> Metrics:
    return Metrics(
        permission=lambda: 6,
        labels=NODE,
        store=parts.store,
        store_folder=parts.folder,
        counters=parts.counters,
        tables=Tables(
            topics=parts.topics,
            groups=parts.groups,
            members=parts.members,
            offsets=parts.offsets,
            progress=parts.progress,
        ),
        waiting=Waiting(sends=[1, 2], long_polls=[1], reads=[]),
        transactions=lambda: TransactionFigures(
            open={"orders": 2},
            oldest_ms=1500,
            committed={"orders": 3},
            rolled_back={"orders": 1},
            checks=4,
            given_up=1,
        ),
        replication=lambda: replication or figures_of_master(),
        archives=lambda: ArchiveState(
            known=KnownArchives(
                archives={"lake": Archive(name="lake", topic="orders", gates=True)}
            ),
            figures={
                "lake": ArchiveFigures(
                    unarchived_messages=3,
                    held_log_bytes=700,
                    oldest_ms=parts.clock.now_ms() - 1500,
                    held_files=2,
                    missed_messages=1,
                )
            },
        ),
        clock=parts.clock,
    )


class Scraped(Collector):
    """Metrics of one moment, by name and labels."""

    def __init__(self, metrics: Metrics) -> None:
        self._families = list(metrics.families(metrics.snapshot()))
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def collect(self) -> list[Metric]:
        return self._families

    def value(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(name, NODE | labels)


async def test_transactions_are_shown(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        scraped = Scraped(metrics_of(parts))

        assert scraped.value("rocketmq_half_messages", topic="orders") == 2
        assert scraped.value("rocketmq_commit_messages_total", topic="orders") == 3
        assert scraped.value("rocketmq_rollback_messages_total", topic="orders") == 1
        assert scraped.value("orbitmq_transaction_oldest_ms") == 1500
        assert scraped.value("orbitmq_transaction_checks_total") == 4
        assert scraped.value("orbitmq_transactions_given_up_total") == 1


async def test_a_master_shows_its_role_its_log_and_what_each_slave_has(tmp_path: Path) -> None:
    of_ours = SlaveFigures(
        broker_id=1,
        address="10.0.0.1:10911",
        copied=PhysicalOffset(300),
        lag_bytes=700,
        is_near=True,
    )
    official = replace(of_ours, broker_id=None, address="10.0.0.2:3", lag_bytes=800, is_near=False)
    figures = figures_of_master(
        slaves=(of_ours, official),
        lag_ms=lambda copied: 1500 if copied == 300 else None,
        awaited=2,
        near=1,
        given_up=5,
    )
    async with broker_parts(tmp_path) as parts:
        scraped = Scraped(metrics_of(parts, figures))

    role = {"role": "SYNC_MASTER", "id": "0", "address": "10.0.0.9:10911"}
    assert scraped.value("orbitmq_broker_role", **role) == 1
    assert scraped.value("orbitmq_is_master") == 1
    assert scraped.value("orbitmq_epoch") == 2
    assert scraped.value("orbitmq_log_start_offset") == 100
    assert scraped.value("orbitmq_log_end_offset") == 1000
    assert scraped.value("orbitmq_log_visible_offset") == 900
    assert scraped.value("orbitmq_slaves_connected") == 2
    assert scraped.value("orbitmq_slaves_awaited") == 2
    assert scraped.value("orbitmq_slaves_near") == 1
    assert scraped.value("orbitmq_shown_without_copies_total") == 5
    first = {"slave": "1", "address": "10.0.0.1:10911"}
    second = {"slave": "", "address": "10.0.0.2:3"}
    assert scraped.value("orbitmq_slave_copied_offset", **first) == 300
    assert scraped.value("orbitmq_slave_lag_bytes", **first) == 700
    assert scraped.value("orbitmq_slave_lag_seconds", **first) == 1.5
    assert scraped.value("orbitmq_slave_near", **first) == 1
    assert scraped.value("orbitmq_slave_lag_bytes", **second) == 800
    assert scraped.value("orbitmq_slave_near", **second) == 0
    assert scraped.value("orbitmq_master_linked", master="") is None


async def test_a_slave_shows_whom_it_follows_and_what_that_master_had(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        figures = figures_of_master(
            role="SLAVE",
            broker_id=1,
            is_slave=True,
            is_master=False,
            master="10.0.0.8:10911",
            is_linked=True,
            master_end=2000,
            master_heard_ms=parts.clock.now_ms() - 2500,
        )
        scraped = Scraped(metrics_of(parts, figures))

    master = {"master": "10.0.0.8:10911"}
    role = {"role": "SLAVE", "id": "1", "address": "10.0.0.9:10911"}
    assert scraped.value("orbitmq_broker_role", **role) == 1
    assert scraped.value("orbitmq_is_master") == 0
    assert scraped.value("orbitmq_master_linked", **master) == 1
    assert scraped.value("orbitmq_master_log_end_offset", **master) == 2000
    assert scraped.value("orbitmq_master_silence_seconds", **master) == 2.5
    assert scraped.value("orbitmq_slaves_near") is None


async def test_messages_are_shown_by_topic_and_by_group(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        await parts.make_topic()
        parts.counters.put("orders").add(3, 300)
        parts.counters.read("%RETRY%g", "g").add(2, 200)
        parts.counters.dead_letter("orders", "g").add(1, 100)

        scraped = Scraped(metrics_of(parts))

        labels = {"topic": "orders", "message_type": "unspecified"}
        of_topic = labels | {"is_system": "false"}
        assert scraped.value("rocketmq_messages_in_total", **of_topic) == 3
        assert scraped.value("rocketmq_throughput_in_total", **of_topic) == 300
        assert scraped.value("rocketmq_message_size_count", **labels) == 3
        assert scraped.value("rocketmq_message_size_sum", **labels) == 300
        of_group = {"topic": "%RETRY%g", "consumer_group": "g", "is_system": "false"}
        assert scraped.value("rocketmq_messages_out_total", **of_group, is_retry="true") == 2
        assert scraped.value("rocketmq_throughput_out_total", **of_group, is_retry="true") == 200
        dead_letters = of_group | {"topic": "orders"}
        assert scraped.value("rocketmq_send_to_dlq_messages_total", **dead_letters) == 1


async def test_connections_are_shown_by_language_and_version(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        group = consumer("g", subscription("orders"))
        parts.join(heartbeat("one", group, produces=("p",)))
        parts.join(heartbeat("two", group), connection=new_connection("10.0.0.2:1"))

        scraped = Scraped(metrics_of(parts))

        client = {"language": "java", "version": "v5_3_3", "protocol_type": "remoting"}
        assert scraped.value("rocketmq_producer_connections", **client) == 1
        of_group = client | {"consumer_group": "g", "consume_mode": "push", "is_system": "false"}
        assert scraped.value("rocketmq_consumer_connections", **of_group) == 2


async def test_lag_is_shown_for_groups_online_or_not(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        await parts.make_topic()
        await parts.make_group()
        await parts.put(5)
        parts.offsets.commit("g", "orders", 0, 2)
        parts.offsets.note_pull("g", "orders", 0, "client", 4)
        await parts.clock.advance(700)

        scraped = Scraped(metrics_of(parts))

        labels = {
            "consumer_group": "g",
            "topic": "orders",
            "is_retry": "false",
            "is_system": "false",
        }
        assert scraped.value("rocketmq_consumer_lag_messages", **labels) == 3
        assert scraped.value("rocketmq_consumer_inflight_messages", **labels) == 2
        assert scraped.value("rocketmq_consumer_ready_messages", **labels) == 1
        assert scraped.value("rocketmq_consumer_lag_latency", **labels) == 700
        assert scraped.value("rocketmq_consumer_queueing_latency", **labels) == 700


async def test_the_broker_and_its_storage_are_shown(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        await parts.put(1)
        await parts.clock.advance(300)

        scraped = Scraped(metrics_of(parts))

        assert scraped.value("rocketmq_broker_permission") == 6
        assert scraped.value("rocketmq_topic_number") == len(parts.topics.topics)
        assert scraped.value("rocketmq_consumer_group_number") == len(parts.groups.groups)
        assert scraped.value("rocketmq_processor_watermark", processor="send") == 2
        on_disk = {"storage_type": "local", "storage_medium": "disk"}
        assert scraped.value("rocketmq_storage_flush_behind_bytes", **on_disk) == 0
        assert scraped.value("rocketmq_storage_dispatch_behind_bytes", **on_disk) == 0
        assert scraped.value("rocketmq_storage_message_reserve_time", **on_disk) == 300
        assert (scraped.value("rocketmq_storage_size", **on_disk) or 0) > 0


async def test_archives_are_shown(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        scraped = Scraped(metrics_of(parts))

        labels = {"archive": "lake", "topic": "orders"}
        shown = {
            name: scraped.value(f"orbitmq_archive_{name}", **labels)
            for name in (
                "unarchived_messages",
                "held_log_bytes",
                "oldest_seconds",
                "held_files",
                "missed_messages",
            )
        }
        assert list(shown.values()) == [3, 700, 1.5, 2, 1]
        assert scraped.value("orbitmq_archives_unknown") == 0


async def test_metrics_that_rocketmq_lacks_have_our_prefix(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        parts.offsets.commit("g", "orders", 0, 5)
        parts.offsets.note_pull("g", "orders", 0, "owner", 5)
        parts.offsets.commit("g", "orders", 0, 1, sender="late")
        parts.join(heartbeat("one", consumer("g", subscription("orders"))))
        other = consumer("g", subscription("orders", "tag"))
        parts.join(heartbeat("two", other), connection=new_connection("10.0.0.2:1"))
        parts.counters.failed_puts += 1

        scraped = Scraped(metrics_of(parts))

        assert scraped.value("orbitmq_refused_commits_total") == 1
        assert scraped.value("orbitmq_inconsistent_members") == 1
        assert scraped.value("orbitmq_held_long_polls") == 1
        assert scraped.value("orbitmq_unconfirmed_sends") == 2
        assert scraped.value("orbitmq_failed_sends_total") == 1
