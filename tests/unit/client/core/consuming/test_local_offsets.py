"""The offset file of a broadcasting consumer: path, content, damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.client.core.consuming.local_offsets import (
    FoundOffsets,
    decode_offsets,
    encode_offsets,
    find_offsets,
    offsets_path,
)
from orbitmq.errors import LocalOffsetsError, SettingsError
from orbitmq.model.queues import MessageQueue

FIRST = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
SECOND = MessageQueue(topic="orders", broker_name="broker-b", queue_id=7)
PATH = Path("/offsets/10.0.0.1@DEFAULT/shippers/offsets.json")
SOUND = encode_offsets({FIRST: 5})


def test_the_file_is_where_java_puts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/user")

    path = offsets_path(Path("~/.rocketmq_offsets"), "10.0.0.1@DEFAULT", "shippers")

    assert path == Path("/home/user/.rocketmq_offsets/10.0.0.1@DEFAULT/shippers/offsets.json")


@pytest.mark.parametrize("client_id", ["../other", "a/b", "..", ""])
def test_a_client_id_cannot_lead_out_of_the_folder(client_id: str) -> None:
    with pytest.raises(SettingsError, match="cannot be the name of a folder"):
        offsets_path(Path("/offsets"), client_id, "shippers")


def test_keys_are_objects_as_java_writes_them() -> None:
    assert encode_offsets({FIRST: 5, SECOND: 2**40}) == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:5,'
        b'{"brokerName":"broker-b","queueId":7,"topic":"orders"}:1099511627776}}'
    )


def test_what_is_written_is_read() -> None:
    offsets = {FIRST: 5, SECOND: 2**40}

    assert decode_offsets(encode_offsets(offsets)) == offsets


def test_a_file_that_java_wrote_with_tabs_is_read() -> None:
    content = (
        b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n'
        b'\t\t\t"topic":"orders"\n\t\t}:5\n\t}\n}'
    )

    assert decode_offsets(content) == {FIRST: 5}


def test_without_files_there_are_no_offsets() -> None:
    assert find_offsets(PATH, None, None) == FoundOffsets({}, is_damaged=False)


def test_the_file_comes_before_its_backup() -> None:
    found = find_offsets(PATH, SOUND, encode_offsets({FIRST: 4}))

    assert found == FoundOffsets({FIRST: 5}, is_damaged=False)


@pytest.mark.parametrize("missing", [None, b""])
def test_the_backup_replaces_a_missing_file(missing: bytes | None) -> None:
    assert find_offsets(PATH, missing, SOUND) == FoundOffsets({FIRST: 5}, is_damaged=False)


@pytest.mark.parametrize("damaged", [b"{", SOUND[:-3], b'{"offsetTable":[1]}', b"\0" * 40])
def test_the_backup_replaces_a_damaged_file(
    damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert find_offsets(PATH, damaged, SOUND) == FoundOffsets({FIRST: 5}, is_damaged=True)
    assert f"offset file is damaged file={PATH}" in caplog.text


@pytest.mark.parametrize("backup", [None, b"", b"{"])
def test_damage_without_a_good_backup_is_an_error_with_a_hint(backup: bytes | None) -> None:
    with pytest.raises(LocalOffsetsError, match=r"offsets\.json nor its backup.*delete both"):
        find_offsets(PATH, b"{", backup)
