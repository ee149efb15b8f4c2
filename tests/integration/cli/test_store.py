"""`orbitmq store`, run as a user runs it."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orbitmq.store.log.draft import Draft
from tests.unit.store.written_stores import (
    LOG_FILE_BYTES,
    WriterProcess,
    as_rocketmq,
    change,
    fill,
    open_store,
    snapshot,
)

COMMAND = [sys.executable, "-m", "orbitmq.cli.main", "store"]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={**os.environ, "TZ": "UTC"},
    )


def as_json(*arguments: str | Path) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def test_inspect_shows_files_queues_and_state(tmp_path: Path) -> None:
    fill(tmp_path)
    before = snapshot(tmp_path)

    shown = run("inspect", tmp_path)

    assert shown.returncode == 0, shown.stderr
    for part in (
        "last written by OrbitMQ",
        "stopped cleanly",
        f"{LOG_FILE_BYTES * 5:020d}",
        "2023-11-14 22:13:20.000+00:00 to 2023-11-14 22:13:29.990+00:00",
    ):
        assert part in " ".join(shown.stdout.split())
    assert "topic1 1 0 250 250" in " ".join(shown.stdout.split())
    assert shown.stderr == ""
    assert snapshot(tmp_path) == before


def test_inspect_counts_when_asked(tmp_path: Path) -> None:
    fill(tmp_path, 100)

    found = as_json("inspect", tmp_path, "--count")

    assert found["counts"]["records"] == 100
    assert found["counts"]["queued"] == {"topic0": 50, "topic1": 50}
    assert "(all) 100" in " ".join(run("inspect", tmp_path, "--count").stdout.split())


def test_inspect_warns_of_topics_in_memory(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.keep_in_memory("prices")
        for number in range(3):
            store.put(Draft(topic="prices", queue_id=1, body=b"%d" % number))

    shown = " ".join(run("inspect", tmp_path).stdout.split())

    assert "warning kept in memory: prices; a Java broker would start their queues at offset 0" in (
        shown
    )
    assert "prices 1 3" in shown
    (queue,) = as_json("inspect", tmp_path)["memory_queues"]
    assert queue == {"topic": "prices", "queue_id": 1, "reserved_end": 3}
    verified = run("verify", tmp_path)
    assert verified.returncode == 0, verified.stdout


def test_inspect_says_who_has_the_store_open(tmp_path: Path) -> None:
    with WriterProcess(tmp_path) as writer:
        writer.ask(first=0, count=10)

        shown = run("inspect", tmp_path)

    assert shown.returncode == 0, shown.stderr
    assert "open in process" in shown.stdout


def test_inspect_shows_a_crashed_store_of_rocketmq(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    as_rocketmq(tmp_path, unclean=True)

    shown = run("inspect", tmp_path).stdout

    assert "RocketMQ" in shown
    assert "not stopped cleanly (abort says process 1)" in shown


def test_verify_tells_by_its_exit_code(tmp_path: Path) -> None:
    fill(tmp_path)
    fine = run("verify", tmp_path)
    change(tmp_path / "commitlog" / f"{LOG_FILE_BYTES:020d}", 100, b"X")
    damaged = run("verify", tmp_path)
    nowhere = run("verify", tmp_path / "none")

    assert (fine.returncode, damaged.returncode, nowhere.returncode) == (0, 1, 2)
    assert "no problems found" in fine.stdout
    assert "1000 records" in fine.stdout
    for part in (
        "problem: bad-record",
        f"{LOG_FILE_BYTES:020d} at byte 0",
        f"offset {LOG_FILE_BYTES}",
        "topic topic",
        "restore the files named above from a replica",
    ):
        assert part in damaged.stdout
    assert nowhere.stderr.startswith("orbitmq: ")
    assert "Traceback" not in nowhere.stderr


def test_verify_tells_programs(tmp_path: Path) -> None:
    fill(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / "topic0")

    found = as_json("verify", tmp_path)

    assert found["fine"] is False
    assert found["counts"] == {"missing-entry": 500}
    assert found["problems"][0]["topic"] == "topic0"
    assert found["problems"][0]["kind"] == "missing-entry"
    assert "orbitmq store rebuild" in found["advice"][0]


def test_rebuild_mends_what_verify_finds(tmp_path: Path) -> None:
    fill(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / "topic0")
    assert run("verify", tmp_path).returncode == 1

    made = run("rebuild", tmp_path)

    assert made.returncode == 0, made.stderr
    assert "1000 entries of 4 queues, 3000 keys" in made.stdout
    assert run("verify", tmp_path).returncode == 0
    assert as_json("rebuild", tmp_path)["entries"] == 1000


def test_rebuild_refuses_a_store_in_use_and_a_damaged_log(tmp_path: Path) -> None:
    fill(tmp_path)
    with open_store(tmp_path):
        in_use = run("rebuild", tmp_path)
    change(tmp_path / "commitlog" / f"{LOG_FILE_BYTES:020d}", 4, b"junk")
    damaged = run("rebuild", tmp_path)

    assert in_use.returncode == damaged.returncode == 2
    assert "in use by another process" in in_use.stderr
    assert "orbitmq store verify" in damaged.stderr


def test_logs_in_several_folders_are_given_by_an_option(tmp_path: Path) -> None:
    log_path = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    fill(tmp_path / "root", log_path=log_path)

    verified = run("verify", tmp_path / "root", "--log-path", log_path)
    rebuilt = run("rebuild", tmp_path / "root", "--log-path", log_path, "--no-index")

    assert verified.returncode == rebuilt.returncode == 0, verified.stdout + rebuilt.stderr
    assert "no index" in rebuilt.stdout


@pytest.mark.parametrize("command", ["inspect", "verify", "rebuild"])
def test_every_command_explains_itself(command: str) -> None:
    assert "DIR" in run(command, "--help").stdout


def test_an_unreadable_file_is_reported_without_a_traceback(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    (tmp_path / "commitlog").rmdir()
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "checkpoint").mkdir()

    refused = run("inspect", tmp_path)

    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert "checkpoint" in refused.stderr


def test_progress_is_shown_on_a_terminal_only(tmp_path: Path) -> None:
    fill(tmp_path)
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "verify", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(master, 4096):
            shown += part
    except OSError:
        # The other end of the terminal was closed: the command has ended.
        pass
    finally:
        os.close(master)
    out, _ = process.communicate(timeout=150)

    assert process.returncode == 0
    assert b"verifying" in shown
    assert b"no problems found" in out
    assert run("verify", tmp_path).stderr == ""


def test_a_loss_is_shown_first_and_accepted_only_when_confirmed(tmp_path: Path) -> None:
    fill(tmp_path)
    change(tmp_path / "commitlog" / f"{LOG_FILE_BYTES:020d}", 90, b"!!")

    verified = run("verify", tmp_path)
    command = f"orbitmq store accept-loss {tmp_path} --at {LOG_FILE_BYTES}"
    assert verified.returncode == 1
    assert command in verified.stdout

    shown = run("accept-loss", tmp_path, "--at", str(LOG_FILE_BYTES))
    assert shown.returncode == 1, shown.stderr
    assert "lost: 1 messages that queues know of" in shown.stdout
    assert "lost: topic topic" in shown.stdout
    assert "nothing was changed; to accept the loss, add --yes" in shown.stdout
    assert run("verify", tmp_path).returncode == 1

    done = run("accept-loss", tmp_path, "--at", str(LOG_FILE_BYTES), "--yes")
    assert done.returncode == 0, done.stderr
    assert f"accepted; the old bytes are kept in {tmp_path / 'orbitmq' / 'lost'}" in done.stdout
    verified = run("verify", tmp_path)
    assert verified.returncode == 0
    assert "note: 1 records replace bytes whose loss was accepted" in verified.stdout
    assert run("accept-loss", tmp_path, "--at", "0", "--yes").returncode == 2


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_folder_without_a_store_is_not_taken_for_a_good_one(tmp_path: Path, command: str) -> None:
    ended = run(command, tmp_path)

    assert ended.returncode == 2
    assert "holds no store" in ended.stderr


def test_the_folder_of_a_site_leads_to_its_stores(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b"):
        (tmp_path / name / "commitlog").mkdir(parents=True)

    ended = run("inspect", tmp_path)

    assert ended.returncode == 2
    assert f"give one of them: {tmp_path / 'broker-a'}, {tmp_path / 'broker-b'}" in ended.stderr
