"""Audits of store directories, on a real Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.pipelines.auditing.audit import AuditOptions, audit
from orbitmq.pipelines.auditing.directories import parse_directories
from orbitmq.pipelines.auditing.message_checks import MessageChecks, Repeated, SequenceGap
from orbitmq.pipelines.auditing.results import Audit
from orbitmq.record.properties import encode_properties
from orbitmq.store.log.draft import Draft
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from orbitmq.store.tools.findings import FindingKind
from tests.spark.commands import orbitmq
from tests.unit.store.written_stores import (
    INDEX_SLOTS,
    LOG_FILE_BYTES,
    QUEUE_FILE_BYTES,
    T0,
    change,
    open_store,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 600
OPTIONS = AuditOptions(range_bytes=30_000, sequence_property="seq", sequence_per="customer")


@dataclass(frozen=True)
class Stores:
    """A master with a slave, and another broker; whole, and with a defect of each kind."""

    healthy: tuple[str, ...]
    defective: tuple[str, ...]


def order(number: int, *, key: str = "", topic: str = "orders", sequence: str = "") -> Draft:
    return Draft(
        topic=topic,
        queue_id=number % 2,
        body=(f"{number}:".encode() * 300)[:300],
        properties=encode_properties(
            {
                "UNIQ_KEY": key or f"{topic}-{number}",
                "KEYS": f"key{number}",
                "seq": sequence or str(number // 3),
                "customer": f"customer{number % 3}",
            }
        ),
        born_ms=T0,
    )


def write(root: Path, drafts: Iterable[Draft]) -> Path:
    with open_store(root) as store:
        for draft in drafts:
            store.append(draft)
        store.publish()
    return root


def offset_of(root: Path, number: int) -> int:
    with ReadOnlyStore(root) as store:
        return [offset for offset, _ in store.records()][number]


def log_file(root: Path, offset: int) -> Path:
    return root / "commitlog" / f"{offset // LOG_FILE_BYTES * LOG_FILE_BYTES:020d}"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    healthy = tmp_path_factory.mktemp("healthy")
    master = write(healthy / "master", map(order, range(COUNT)))
    shutil.copytree(master, healthy / "slave")
    # A retry, and a delayed copy, have the same unique key.
    copies = [order(1, key="bills-1", topic=topic) for topic in ("%RETRY%g", "SCHEDULE_TOPIC_XXXX")]
    write(healthy / "other", [*(order(n, topic="bills") for n in range(COUNT)), *copies])
    defective = tmp_path_factory.mktemp("defective")
    for name in ("master", "slave", "other"):
        shutil.copytree(healthy / name, defective / name)
    plant(defective)
    return Stores(
        *(
            (f"a={folder}/master,{folder}/slave", f"b={folder}/other")
            for folder in (healthy, defective)
        )
    )


def plant(folder: Path) -> None:
    """Plant one defect of each kind."""
    master, slave, other = folder / "master", folder / "slave", folder / "other"
    # Two of the same message, and none for two numbers of a customer.
    write(master, [order(COUNT, key="orders-7", sequence="202"), order(COUNT + 1, sequence="x")])
    # Its slave has another one there.
    write(slave, [order(COUNT, key="another"), order(COUNT + 1)])
    body, head = offset_of(master, 100), offset_of(master, 101)
    change(log_file(master, body), body % LOG_FILE_BYTES + 120, b"X")
    change(log_file(master, head), head % LOG_FILE_BYTES + 31, b"X")
    wrong = master / "consumequeue" / "orders" / "1" / f"{QUEUE_FILE_BYTES:020d}"
    change(wrong, 20 * 5, (5).to_bytes(8))
    change(sorted((master / "index").iterdir())[0], 40 + 4 * INDEX_SLOTS + 20 * 70, b"\1\2\3\4")
    log_file(other, LOG_FILE_BYTES).unlink()
    (other / "consumequeue" / "bills" / "0" / f"{3 * QUEUE_FILE_BYTES:020d}").unlink()
    cut = other / "consumequeue" / "bills" / "1" / f"{5 * QUEUE_FILE_BYTES:020d}"
    change(cut, 20 * 30, bytes(20 * 20))


@pytest.fixture(scope="module")
def found(spark: SparkSession, stores: Stores) -> Audit:
    return audit(parse_directories(stores.defective), OPTIONS, lambda: spark)


def test_nothing_is_found_in_healthy_stores(spark: SparkSession, stores: Stores) -> None:
    found = audit(parse_directories(stores.healthy), OPTIONS, lambda: spark)

    assert [store.findings for store in found.stores] == [[], [], []]
    assert not found.has_defects
    assert found.is_complete
    assert [store.records for store in found.stores] == [COUNT, COUNT, COUNT + 2]
    assert found.stores[1].compared_bytes == found.stores[0].plan.end
    assert found.messages == MessageChecks()


def test_each_planted_defect_is_found_and_nothing_else(found: Audit) -> None:
    master, slave, other = found.stores

    assert found.is_complete
    places = {
        one.kind: (one.topic, one.queue_id, one.first_number, one.last_number)
        for one in master.findings
    }
    assert master.counts == {
        FindingKind.BAD_RECORD: 2,
        FindingKind.WRONG_ENTRY: 1,
        FindingKind.MISSING_KEY: 1,
        FindingKind.BAD_INDEX_FILE: 1,
    }
    assert places[FindingKind.WRONG_ENTRY] == ("orders", 1, 55, 55)
    assert set(slave.counts) == {FindingKind.REPLICA_DIFFERS}
    assert set(other.counts) == {
        FindingKind.MISSING_LOG_FILE,
        FindingKind.LOST_RECORDS,
        FindingKind.MISSING_ENTRY,
    }
    missing = [
        (one.queue_id, one.first_number, one.last_number)
        for one in other.findings
        if one.kind is FindingKind.MISSING_ENTRY
    ]
    assert missing == [(0, 150, 199), (1, 280, 299)]
    (differs,) = slave.findings
    assert "is damaged in" in differs.text


def test_repeated_keys_and_gaps_of_sequences_are_told(found: Audit) -> None:
    assert found.messages.repeated == [
        Repeated(
            topic="orders",
            unique_key="orders-7",
            count=2,
            first="a queue 0 offset 300",
            last="a queue 1 offset 3",
        )
    ]
    orders = [gap for gap in found.messages.gaps if gap.topic == "orders"]
    assert (
        SequenceGap(
            topic="orders", sequence="customer0", first=200, last=201, before="a queue 0 offset 300"
        )
        in orders
    )
    assert found.messages.not_numbers == 1
    # Those of the missing file.
    assert {gap.topic for gap in found.messages.gaps} == {"orders", "bills"}


def test_the_command_ends_with_a_code_that_says_what_it_found(
    java_home: Path, stores: Stores, tmp_path: Path
) -> None:
    assert java_home.is_dir()

    defective = orbitmq("audit", *stores.defective, "--no-duplicates", "--json")
    nothing = orbitmq("audit", str(tmp_path), "--no-duplicates")
    mistaken = orbitmq("audit", str(tmp_path / "none"))

    assert defective.returncode == 1, defective.stderr
    shown = json.loads(defective.stdout)
    assert shown["healthy"] is False
    assert shown["stores"][0]["counts"]["bad-record"] == 2
    assert shown["stores"][2]["advice"]
    assert nothing.returncode == 2
    assert "holds no store" in nothing.stdout + nothing.stderr
    assert mistaken.returncode == 2
    assert "is not a folder" in mistaken.stderr
