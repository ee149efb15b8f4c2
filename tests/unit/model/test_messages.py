"""Messages to send: what they accept, and what they refuse."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251  # multiprocessing sends messages so
from typing import Any

import pytest

from orbitmq.errors import MessageError, MessageTypeError
from orbitmq.model import property_names
from orbitmq.model.messages import Message


def test_a_message_has_the_parts_it_was_made_of() -> None:
    message = Message(
        "orders",
        b"body",
        tags="paid",
        keys=["one", "two"],
        flag=7,
        properties={"colour": "blue"},
        delay_level=3,
        wait_store_ok=False,
        sharding_key="customer",
    )

    assert (message.topic, message.body, message.tags) == ("orders", b"body", "paid")
    assert message.keys == ("one", "two")
    assert (message.flag, message.delay_level) == (7, 3)
    assert message.properties == {"colour": "blue"}
    assert message.wait_store_ok is False
    assert message.sharding_key == "customer"
    assert message.reserved_properties == {}


def test_none_means_that_a_message_has_none_of_it() -> None:
    bare = Message("orders", b"", tags=None, keys=None, properties=None, sharding_key=None)

    assert (bare.tags, bare.keys, bare.properties, bare.sharding_key) == ("", (), {}, "")


def test_a_message_of_topic_and_body_has_defaults_for_the_rest() -> None:
    message = Message("orders", b"body")

    assert (message.tags, message.keys, message.flag, message.delay_level) == ("", (), 0, 0)
    assert message.properties == {}
    assert message.wait_store_ok is True
    assert message.sharding_key == ""


@pytest.mark.parametrize("body", ["größe 🚀", "größe 🚀".encode(), bytearray("größe 🚀".encode())])
def test_text_and_buffers_become_bytes(body: Any) -> None:
    assert Message("orders", body).body == "größe 🚀".encode()
    assert type(Message("orders", body).body) is bytes


def test_a_view_of_memory_becomes_bytes() -> None:
    assert Message("orders", memoryview(b"a body")[2:]).body == b"body"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("one", ("one",)),
        ("one two", ("one", "two")),
        ("one, two,three  four ", ("one", "two", "three", "four")),
        ("", ()),
        ((), ()),
        (["a,b"], ("a,b",)),
        ((key for key in ["one", "two"]), ("one", "two")),
    ],
)
def test_keys_are_a_list_or_words_of_a_string(keys: Any, expected: tuple[str, ...]) -> None:
    assert Message("orders", b"", keys=keys).keys == expected


@pytest.mark.parametrize("key", ["", "two words"])
def test_a_key_that_could_not_be_found_is_refused(key: str) -> None:
    with pytest.raises(MessageError, match="is empty or contains a space"):
        Message("orders", b"", keys=[key])


@pytest.mark.parametrize(
    ("arguments", "part", "takes"),
    [
        ({"topic": 7}, "topic", "a str"),
        ({"topic": None}, "topic", "a str"),
        ({"body": None}, "body", "bytes or a str"),
        ({"body": {"a": 1}}, "body", "bytes or a str"),
        ({"tags": b"paid"}, "tags", "a str"),
        ({"keys": 7}, "keys", "a list of str, or a str"),
        ({"keys": b"one"}, "keys", "a list of str, or a str"),
        ({"keys": [7]}, "a key", "a str"),
        ({"flag": "7"}, "flag", "an int"),
        ({"flag": True}, "flag", "an int"),
        ({"delay_level": 1.5}, "delay_level", "an int"),
        ({"wait_store_ok": 1}, "wait_store_ok", "True or False"),
        ({"sharding_key": 7}, "sharding_key", "a str"),
        ({"properties": ["a"]}, "properties", "a dict of str to str"),
        ({"properties": {7: "a"}}, "the name of a property", "a str"),
        ({"properties": {"a": 7}}, "property 'a'", "a str"),
    ],
)
def test_a_wrong_type_is_refused_with_the_accepted_one(
    arguments: dict[str, Any], part: str, takes: str
) -> None:
    with pytest.raises(MessageTypeError) as caught:
        Message(**({"topic": "orders", "body": b""} | arguments))

    assert isinstance(caught.value, TypeError)
    assert str(caught.value).startswith(f"{part} cannot be of type ")
    assert f"it takes {takes}" in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"flag": 2**31},
        {"flag": -(2**31) - 1},
        {"delay_level": -1},
        {"delay_level": 2**31},
    ],
)
def test_a_number_out_of_bounds_is_refused_with_the_bounds(arguments: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match=r"cannot be -?\d+ \(it takes"):
        Message("orders", b"", **arguments)


def test_a_flag_has_all_32_bits() -> None:
    assert Message("orders", b"", flag=-(2**31)).flag == -(2**31)
    assert Message("orders", b"", flag=2**31 - 1).flag == 2**31 - 1


def test_every_property_of_rocketmq_is_refused() -> None:
    for name in property_names.RESERVED:
        with pytest.raises(MessageError, match=f"{name!r}.*reserved by RocketMQ"):
            Message("orders", b"", properties={name: "x"})


def test_the_argument_for_a_reserved_property_is_named() -> None:
    with pytest.raises(MessageError, match="use delay_level="):
        Message("orders", b"", properties={"DELAY": "3"})
    with pytest.raises(MessageError, match="choose another name"):
        Message("orders", b"", properties={"__RMQ.TRANSIENT.x": "3"})


@pytest.mark.parametrize(
    "arguments",
    [
        {"tags": "a\x01"},
        {"keys": "a\x02"},
        {"keys": ["a\x02"]},
        {"sharding_key": "\x01"},
        {"properties": {"a\x01": "b"}},
        {"properties": {"a": "b\x02"}},
    ],
)
def test_a_separator_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match="separators 0x01 and 0x02"):
        Message("orders", b"", **arguments)


@pytest.mark.parametrize("properties", [{"": "a"}, {" ": "a"}, {"a": ""}])
def test_a_property_without_name_or_value_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(MessageError, match=r"has no (name|value)"):
        Message("orders", b"", properties=properties)


def test_half_a_character_in_the_body_is_refused() -> None:
    with pytest.raises(MessageError, match="half of a character, at 1"):
        Message("orders", "a\ud800")


def test_a_message_never_changes() -> None:
    properties = {"colour": "blue"}
    message = Message("orders", b"", properties=properties)

    properties["colour"] = "red"

    assert message.properties == {"colour": "blue"}
    with pytest.raises(MessageError, match="pass tags= when you create the message"):
        message.tags = "paid"
    with pytest.raises(MessageError, match="cannot be deleted"):
        del message.tags
    with pytest.raises(TypeError):
        message.properties["colour"] = "red"  # type: ignore[index]  # what a user may try


def test_reserved_properties_are_added_to_a_copy() -> None:
    message = Message("orders", b"body", keys=["one"])

    first = message.with_reserved({"PGROUP": "group"})
    second = first.with_reserved({"TRAN_MSG": "true"})

    assert message.reserved_properties == {}
    assert first.reserved_properties == {"PGROUP": "group"}
    assert second.reserved_properties == {"PGROUP": "group", "TRAN_MSG": "true"}
    assert (second.topic, second.body, second.keys) == ("orders", b"body", ("one",))


def _parts(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in Message.__slots__}


def test_a_message_can_be_copied_and_sent_to_another_process() -> None:
    message = Message("orders", b"body", tags="paid", properties={"a": "b"})
    message = message.with_reserved({"PGROUP": "group"})

    for other in (pickle.loads(pickle.dumps(message)), copy.copy(message), copy.deepcopy(message)):
        assert _parts(other) == _parts(message)


def test_a_message_shows_itself_without_its_body() -> None:
    assert repr(Message("orders", b"secret")) == "<Message topic='orders', 6 bytes>"
    shown = repr(Message("orders", b"secret", tags="paid", keys="one"))
    assert shown == "<Message topic='orders', tags='paid', keys=('one',), 6 bytes>"
