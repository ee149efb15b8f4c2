"""Messages that a user creates to send them.

A message is immutable, so that it can safely be sent again, or wait to be sent in a batch.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn

from orbitmq.errors import MessageError, MessageTypeError
from orbitmq.model import property_names

_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
# The argument that sets a reserved property, for those that users may set.
_SET_BY: Final = {
    property_names.TAGS: "tags=",
    property_names.KEYS: "keys=",
    property_names.DELAY_LEVEL: "delay_level=",
    property_names.WAIT_FOR_STORE: "wait_store_ok=",
    property_names.SHARDING_KEY: "sharding_key=",
    property_names.TIMER_DELIVER_MS: "deliver_at=",
    property_names.TIMER_DELAY_MS: "delay=",
    property_names.TIMER_DELAY_SECONDS: "delay=",
}
_TIMERS: Final = frozenset({property_names.TIMER_DELIVER_MS, property_names.TIMER_DELAY_MS})
# Perf: 0.06 us a slot; a plain assignment would call the __setattr__ that refuses (timeit).
_set: Final = object.__setattr__


class Message:
    """What is sent to a topic: a body, and what consumers find and filter messages by."""

    __slots__ = (
        "body",
        "delay_level",
        "flag",
        "keys",
        "properties",
        "reserved_properties",
        "sharding_key",
        "tags",
        "topic",
        "wait_store_ok",
    )

    topic: str
    body: bytes
    tags: str
    keys: tuple[str, ...]
    flag: int
    # The user's own; read-only.
    properties: Mapping[str, str]
    delay_level: int
    wait_store_ok: bool
    sharding_key: str
    # RocketMQ's own, which clients add to those of the other attributes; see `with_reserved`.
    reserved_properties: Mapping[str, str]

    def __init__(  # noqa: PLR0913  # by name
        self,
        topic: str,
        body: bytes | bytearray | memoryview | str,
        *,
        tags: str | None = "",
        keys: str | Iterable[str] | None = (),
        flag: int = 0,
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        wait_store_ok: bool = True,
        sharding_key: str | None = "",
        deliver_at: datetime.datetime | None = None,
        delay: datetime.timedelta | None = None,
    ) -> None:
        """Create a message; None means none of an argument.

        Args:
            topic: the topic to send it to.
            body: its content; a str is encoded as UTF-8.
            tags: one word that consumers can filter by.
            keys: words that the message can be found by: a list, or one str with commas or spaces
                between them.
            flag: a number for the user's own use, 32 bits, signed.
            properties: the user's own names and values; RocketMQ's own names are refused.
            delay_level: which of the broker's delays passes before consumers see it; 0 for none.
            wait_store_ok: whether the broker acknowledges it only once it is stored as safely as
                the broker is configured to; False acknowledges it sooner.
            sharding_key: messages with the same key stay in order.
            deliver_at: when consumers get it, at the earliest, with a time zone; for brokers with
                timers (OrbitMQ, RocketMQ 5).
            delay: the same, counted from when the broker stores it.
        """
        if not isinstance(wait_store_ok, bool):
            raise MessageTypeError("wait_store_ok", wait_store_ok, takes="True or False")
        _set(self, "topic", _text("topic", topic))
        _set(self, "body", body if type(body) is bytes else _body(body))
        _set(self, "tags", "" if tags is None else _text("tags", tags))
        _set(self, "keys", () if keys is None else _keys(keys))
        _set(self, "flag", _number("flag", flag, low=_INT_MIN))
        _set(self, "properties", _properties(properties) if properties is not None else _NOTHING)
        _set(self, "delay_level", _number("delay_level", delay_level, low=0))
        _set(self, "wait_store_ok", wait_store_ok)
        key = "" if sharding_key is None else _text("sharding_key", sharding_key)
        _set(self, "sharding_key", key)
        timer = _NOTHING
        if deliver_at is not None or delay is not None:
            timer = _timer(deliver_at, delay, delay_level)
        _set(self, "reserved_properties", timer)

    @property
    def has_due_time(self) -> bool:
        """Whether it is delivered at a time of its own."""
        return bool(self.reserved_properties) and not _TIMERS.isdisjoint(self.reserved_properties)

    def with_reserved(self, properties: Mapping[str, str]) -> Message:
        """Return a copy with further properties of RocketMQ's own; for clients, not for users."""
        return self._with(
            "reserved_properties", MappingProxyType({**self.reserved_properties, **properties})
        )

    def with_properties(self, properties: Mapping[str, str]) -> Message:
        """Return a copy with further properties of the user's own."""
        return self._with("properties", _properties({**self.properties, **properties}))

    def _with(self, changed: str, value: object) -> Message:
        copy = object.__new__(Message)
        for name in self.__slots__:
            _set(copy, name, getattr(self, name))
        _set(copy, changed, value)
        return copy

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise MessageError(
            f"a message is immutable, so its {name} cannot be set",
            hint=f"pass {name}= when you create the message",
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise MessageError(f"a message is immutable, so its {name} cannot be deleted")

    def __repr__(self) -> str:
        tags = f", tags={self.tags!r}" if self.tags else ""
        keys = f", keys={self.keys!r}" if self.keys else ""
        return f"<Message topic={self.topic!r}{tags}{keys}, {len(self.body)} bytes>"

    def __reduce__(self) -> tuple[Any, ...]:
        values = {name: getattr(self, name) for name in self.__slots__}
        values["properties"] = dict(self.properties)
        values["reserved_properties"] = dict(self.reserved_properties)
        return _restored, (values,)


def _restored(values: dict[str, Any]) -> Message:
    """Rebuild a message that was pickled."""
    message = object.__new__(Message)
    for name, value in values.items():
        _set(message, name, MappingProxyType(value) if isinstance(value, dict) else value)
    return message


def _text(part: str, value: str) -> str:
    if not isinstance(value, str):
        raise MessageTypeError(part, value, takes="a str")
    if "\x01" in value or "\x02" in value:
        raise MessageError(
            f"{part} {value[:60]!r} contains one of the separators 0x01 and 0x02",
            hint="encode it, for example as base64",
        )
    return value


def _timer(deliver_at: object, delay: object, delay_level: int) -> Mapping[str, str]:
    """The property that asks for a due time."""
    if delay_level or (deliver_at is not None and delay is not None):
        raise MessageError(
            "a message has several of deliver_at, delay and delay_level", hint="choose one of them"
        )
    if deliver_at is None:
        if not isinstance(delay, datetime.timedelta):
            raise MessageTypeError("delay", delay, takes="a timedelta")
        if delay < datetime.timedelta(0):
            raise MessageError(f"delay cannot be {delay}", hint="it takes 0 or more")
        # Rounded up: it may be late, but never early.
        delay_ms = -(-delay // datetime.timedelta(milliseconds=1))
        return MappingProxyType({property_names.TIMER_DELAY_MS: str(delay_ms)})
    if not isinstance(deliver_at, datetime.datetime):
        raise MessageTypeError("deliver_at", deliver_at, takes="a datetime")
    if deliver_at.tzinfo is None:
        raise MessageError(
            f"deliver_at {deliver_at} has no time zone",
            hint="write datetime.now(UTC) + timedelta(…), or deliver_at.astimezone()",
        )
    since = deliver_at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    deliver_ms = -(-since // datetime.timedelta(milliseconds=1))
    return MappingProxyType({property_names.TIMER_DELIVER_MS: str(deliver_ms)})


def _body(body: bytes | bytearray | memoryview | str) -> bytes:
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise MessageError(
                f"the body contains {body[error.start]!r}, half of a character, at {error.start}",
                hint="pass the body as bytes",
            ) from error
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    raise MessageTypeError(
        "body", body, takes="bytes or a str", hint="convert it, for example with json.dumps(value)"
    )


def _keys(keys: object) -> tuple[str, ...]:
    if isinstance(keys, str):
        return tuple(_text("keys", keys).replace(",", " ").split())
    if not isinstance(keys, Iterable) or isinstance(keys, (bytes, bytearray)):
        raise MessageTypeError("keys", keys, takes="a list of str, or a str")
    several = tuple(keys)
    for key in several:
        if not _text("a key", key) or " " in key:
            raise MessageError(
                f"key {key[:60]!r} is empty or contains a space, which separates keys on the wire",
                hint="replace the space, for example with _",
            )
    return several


def _number(part: str, value: object, *, low: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise MessageTypeError(part, value, takes="an int")
    if not low <= value <= _INT_MAX:
        raise MessageError(f"{part} cannot be {value}", hint=f"it takes {low} to {_INT_MAX}")
    return value


def _properties(properties: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(properties, Mapping):
        raise MessageTypeError("properties", properties, takes="a dict of str to str")
    for name, value in properties.items():
        _text("the name of a property", name)
        if not isinstance(value, str):
            raise MessageTypeError(
                f"property {name!r}", value, takes="a str", hint=f"write str({value!r:.60})"
            )
        _text(f"property {name!r}", value)
        if not name.strip() or not value:
            raise MessageError(
                f"property {name[:60]!r} has no {'value' if name.strip() else 'name'}",
                hint="leave it out: consumers would never see it",
            )
        if name in property_names.RESERVED or name.startswith(property_names.TRANSIENT_PREFIX):
            raise MessageError(
                f"property {name!r} is reserved by RocketMQ",
                hint=f"use {_SET_BY[name]}"
                if name in _SET_BY
                else "choose another name; to send a received message on, use its as_message()",
            )
    return MappingProxyType(dict(properties))
