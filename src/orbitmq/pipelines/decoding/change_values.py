"""Values of rows in change envelopes, as Arrow takes them.

Debezium writes times as numbers, and decimals and bytes in Base64; what a number counts is in the
schema of the envelope, if it has one. Canal writes every value as a text.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

# Of Kafka Connect, in an envelope.
Schema = Mapping[str, Any]

JSON: Final = msgspec.json.Decoder(float_hook=Decimal)
# What a decoder raises for bytes that are no JSON.
NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
UNITS_NS: Final = {"millis": 1_000_000, "micros": 1000, "nanos": 1}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY: Final = dt.date(1970, 1, 1)
# What a column is whose value PostgreSQL did not log, as it had not changed.
_UNAVAILABLE: Final = frozenset(
    {
        "__debezium_unavailable_value",
        base64.b64encode(b"__debezium_unavailable_value").decode(),
    }
)
_DAYS: Final = frozenset({"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"})
_UNIT_OF: Final = {
    "io.debezium.time.Timestamp": "millis",
    "org.apache.kafka.connect.data.Timestamp": "millis",
    "io.debezium.time.MicroTimestamp": "micros",
    "io.debezium.time.NanoTimestamp": "nanos",
}
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_UNFIT: Final = (ValueError, TypeError, ArithmeticError, LookupError, *NOT_JSON)
_TRUTHS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class UnfitValueError(Exception):
    """A value that cannot be one of its column; the text goes into quarantine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """How the values of one source are written."""

    # Canal's, otherwise Debezium's.
    are_texts: bool
    # What numbers count where the envelope does not say it; empty if that is not known.
    timestamps: str = ""

    def row(
        self,
        given: Mapping[str, Any],
        form: pa.StructType,
        schemas: Mapping[str, Schema],
        where: str,
    ) -> dict[str, Any]:
        """The columns of a row; raises UnfitValueError. `schemas` are those of Debezium's fields."""
        found: dict[str, Any] = {}
        for one in form:
            try:
                value = given.get(one.name)
                found[one.name] = self.value(value, one.type, schemas.get(one.name) or {})
            except UnfitValueError as error:
                raise UnfitValueError(f"{where}.{one.name}: {error}") from None
            except _UNFIT as error:
                raise UnfitValueError(f"{where}.{one.name} is not {one.type}") from error
        return found

    def value(self, value: Any, kind: pa.DataType, schema: Schema) -> Any:
        """One value; raises if it does not fit."""
        if value is None:
            return None
        if not self.are_texts and isinstance(value, str) and value in _UNAVAILABLE:
            raise UnfitValueError(
                "the database did not log it (REPLICA IDENTITY FULL has it do so)"
            )
        for is_kind, convert in _CONVERSIONS:
            if is_kind(kind):
                return convert(self, value, kind, schema)
        raise TypeError(kind)

    def nested(self, value: Any, kind: pa.DataType, _: Schema) -> Any:
        """An array, a map or a struct."""
        if isinstance(value, str):
            # A column of type JSON.
            value = JSON.decode(value)
        if pa.types.is_struct(kind):
            return self.row(dict(value), kind, {}, "")
        if pa.types.is_map(kind):
            return [(key, self.value(one, kind.item_type, {})) for key, one in value.items()]
        if not isinstance(value, list):
            raise TypeError
        return [self.value(one, kind.value_type, {}) for one in value]

    def binary(self, value: Any, _kind: pa.DataType, _: Schema) -> bytes:
        """Bytes."""
        if self.are_texts:
            # Compat: Canal takes bytes for Latin-1.
            return bytes(value.encode("latin-1"))
        return base64.b64decode(value, validate=True)

    def date(self, value: Any, _kind: pa.DataType, schema: Schema) -> dt.date:
        """A day."""
        if isinstance(value, str):
            return dt.date.fromisoformat(value)
        if schema.get("name") in _UNIT_OF:
            raise UnfitValueError("it is a timestamp")
        return _DAY + dt.timedelta(days=_integer(value))

    def timestamp(self, value: Any, kind: pa.DataType, schema: Schema) -> dt.datetime:
        """A time, in the zone UTC unless it says another."""
        found = self._moment(value, schema)
        return found if kind.tz else found.astimezone(dt.UTC).replace(tzinfo=None)

    def _moment(self, value: Any, schema: Schema) -> dt.datetime:
        if isinstance(value, str):
            found = dt.datetime.fromisoformat(value)
            return found if found.tzinfo else found.replace(tzinfo=dt.UTC)
        if schema.get("name") in _DAYS:
            return _EPOCH + dt.timedelta(days=_integer(value))
        unit = _UNIT_OF.get(str(schema.get("name")), self.timestamps)
        if not unit:
            raise UnfitValueError("a number whose unit is not known (timestamps: millis says it)")
        return _after_epoch(value, unit)


def moment(value: Any, unit: str) -> dt.datetime | None:
    """A time of an envelope; None if there is none."""
    try:
        return _after_epoch(value, unit)
    except (ValueError, TypeError, ArithmeticError):
        return None


def _after_epoch(value: Any, unit: str) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=_integer(value) * UNITS_NS[unit] // 1000)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    raise TypeError


def _integer(value: Any) -> int:
    found = int(value)
    if isinstance(value, bool) or (isinstance(value, Decimal) and found != value):
        raise ValueError
    return found


def _decimal(value: Any, schema: Schema) -> Decimal:
    if isinstance(value, Mapping):
        # Compat: Debezium's VariableScaleDecimal.
        return _unscaled(value["value"], value["scale"])
    if schema.get("name") == _DECIMAL:
        return _unscaled(value, int(schema["parameters"]["scale"]))
    if isinstance(value, bool):
        raise TypeError
    found = Decimal(value)
    if not found.is_finite():
        raise ValueError
    return found


def _unscaled(text: str, scale: int) -> Decimal:
    unscaled = int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)
    return Decimal(unscaled).scaleb(-scale)


# By the first that says it is of its kind.
_CONVERSIONS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[..., Any]], ...]] = (
    (pa.types.is_nested, Values.nested),
    (pa.types.is_string, lambda _self, value, _kind, _schema: _text(value)),
    (pa.types.is_boolean, lambda _self, value, _kind, _schema: _TRUTHS[str(value).lower()]),
    (pa.types.is_integer, lambda _self, value, _kind, _schema: _integer(value)),
    (pa.types.is_floating, lambda _self, value, _kind, _schema: float(value)),
    (pa.types.is_decimal, lambda _self, value, _kind, schema: _decimal(value, schema)),
    (pa.types.is_binary, Values.binary),
    (pa.types.is_date, Values.date),
    (pa.types.is_timestamp, Values.timestamp),
)
