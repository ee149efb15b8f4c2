"""Options as Spark's users write them: one table, as for all other settings.

A class of options is a frozen dataclass whose fields are made by `spark_option`; `options_from`
makes one from what Spark hands over. Spark lowercases names, so case does not matter here. An
unknown name is an error that suggests the nearest option; names from Kafka's connector and from
Java's clients lead to ours.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from orbitmq.client.options import ClientOptions
from orbitmq.errors import (
    SettingsError,
    SettingsProblemsError,
    UnknownOptionError,
)
from orbitmq.settings import Option, check_limits, describe, option
from orbitmq.spark.options.secret_options import with_secrets
from orbitmq.spark.options.times import time_ms

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from orbitmq.client.keywords import ClientKeywords

T = TypeVar("T")
O = TypeVar("O", bound="DataclassInstance")  # noqa: E741  # reads as "the options class"

PAGE: Final = "docs/spark-options.md"
_NAMES_ELSEWHERE: Final = "orbitmq.spark.elsewhere"
_IS_TIME: Final = "orbitmq.spark.time"

# What Spark itself adds to a user's options, for files, tables and streams.
_SPARKS_OWN: Final = frozenset(
    {
        "path",
        "paths",
        "checkpointlocation",
        "queryname",
        "outputmode",
        "provider",
        "location",
        "owner",
        "comment",
        "collation",
        "external",
        "is_managed_location",
        "table_type",
        "serialization.format",
    }
)
_SPARKS_PREFIXES: Final = ("option.", "spark.", "pipelines.", "transient_")

_SECRETS_PATH: Final = "secretspath"
_DURATION: Final = re.compile(r"([0-9]{1,15})\s*([a-z]*)")
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}


@dataclass(frozen=True, slots=True)
class _NamesElsewhere:
    """An option's names in other software."""

    kafka: str
    others: tuple[str, ...]


def spark_option(  # noqa: PLR0913 - each argument is one column of the table
    default: T,
    *,
    doc: str,
    name: str | None = None,
    kafka: str = "",
    others: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
    choices: tuple[T, ...] = (),
    secret: bool = False,
    is_time: bool = False,
    default_shown: str | None = None,
) -> T:
    """Declare a field of a class of Spark options.

    Args:
        default: the value without any setting.
        doc: what the option does, in whole sentences.
        name: as users write it; otherwise the field name in lowerCamelCase.
        kafka: the name of its counterpart in Spark's Kafka connector, if it has one.
        others: further names for which an error suggests it.
        low: the smallest number allowed.
        high: the largest number allowed.
        choices: the only values allowed.
        secret: whether its value is hidden wherever settings are shown.
        is_time: whether it is a time in milliseconds, which may also be written as ISO 8601.
        default_shown: the default in words.
    """
    row = option(
        default,
        doc=doc,
        low=low,
        high=high,
        choices=choices,
        java=name,
        secret=secret,
        default_shown=default_shown,
    )
    declared = typing.cast("dataclasses.Field[T]", row)
    made: object = dataclasses.field(
        default=default,
        metadata={
            **declared.metadata,
            _NAMES_ELSEWHERE: _NamesElsewhere(kafka, others),
            _IS_TIME: is_time,
        },
        # Options are pickled and shown in plans and stack traces.
        repr=not secret,
    )
    return typing.cast("T", made)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How to connect to a cluster, for reading and writing."""

    namesrv: str = spark_option(
        "",
        name="namesrvAddr",
        kafka="kafka.bootstrap.servers",
        others=("namesrv", "nameserver", "bootstrapServers"),
        doc="Addresses of the name servers, separated by ';'. Required. Tasks connect to them too, "
        "so they must be reachable from every machine of the Spark cluster.",
    )
    namespace: str = spark_option(
        "", doc="Prefix for the names of topics and groups, as in RocketMQ 4."
    )
    access_key: str = spark_option(
        "",
        kafka="kafka.sasl.jaas.config",
        doc="Access key that requests are signed with; if empty, they are not signed.",
    )
    secret_key: str = spark_option("", secret=True, doc="Secret of the access key.")
    security_token: str = spark_option(
        "", secret=True, doc="Token of temporary keys; empty for permanent ones."
    )
    secrets_path: str = spark_option(
        "",
        doc="A file with any of `accessKey=…`, `secretKey=…`, `securityToken=…` and "
        "`tlsKeyPassword=…`, one per line, read on the driver. SQL tables take secrets only this "
        "way.",
    )
    tls: bool = spark_option(
        False, kafka="kafka.security.protocol", others=("tls.enable",), doc="Connect with TLS."
    )
    tls_verify_server: bool = spark_option(
        False,
        others=("tls.client.authServer",),
        doc="Refuse servers whose certificate does not chain to a trusted one.",
    )
    tls_trusted_path: str = spark_option(
        "",
        kafka="kafka.ssl.truststore.location",
        doc="Certificates to trust, PEM, on every machine of the Spark cluster; if empty, the "
        "system's.",
    )
    tls_certificate_path: str = spark_option(
        "", kafka="kafka.ssl.keystore.location", doc="Certificate chain of the client, PEM."
    )
    tls_key_path: str = spark_option("", doc="Private key of the client, PEM.")
    tls_key_password: str = spark_option(
        "", kafka="kafka.ssl.key.password", secret=True, doc="Password of the private key."
    )
    call_timeout_ms: int = spark_option(
        3_000,
        low=1,
        high=600_000,
        kafka="kafka.request.timeout.ms",
        doc="Longest wait for a reply, for calls without a time limit of their own.",
    )
    connect_timeout_ms: int = spark_option(
        3_000, low=1, high=600_000, doc="Longest wait for a connection."
    )

    def __post_init__(self) -> None:
        if not self.namesrv.strip():
            raise SettingsError(
                "the option namesrvAddr is missing",
                hint='.option("namesrvAddr", "127.0.0.1:9876") says where the cluster is; for a '
                "SQL table, leave the columns out of CREATE TABLE: Spark drops the options of a "
                "table that names its columns, or that is created AS SELECT; and rows can be "
                "inserted only into a table with a column of text, such as topic or keys",
            )
        # The client's own options check addresses, and that keys are complete.
        ClientOptions(**self.client_keywords())

    def client_keywords(self) -> ClientKeywords:
        """These options as keyword arguments of a client."""
        return {
            "namesrv": self.namesrv,
            "namespace": self.namespace,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "security_token": self.security_token,
            "tls": self.tls,
            "tls_verify_server": self.tls_verify_server,
            "tls_trusted_path": self.tls_trusted_path,
            "tls_certificate_path": self.tls_certificate_path,
            "tls_key_path": self.tls_key_path,
            "tls_key_password": self.tls_key_password,
            "call_timeout_ms": self.call_timeout_ms,
            "connect_timeout_ms": self.connect_timeout_ms,
        }


def options_from(
    options_class: type[O],
    given: Mapping[str, str],
    *,
    where: str,
    beside: Iterable[type[DataclassInstance]] = (),
) -> O:
    """Make options from what Spark hands over; the error lists every problem found.

    Args:
        options_class: the class to make.
        given: names, in any letter case, and texts.
        where: what the user called, for errors: `format("rocketmq")`.
        beside: classes whose options may also be given: a table is read and written.
    """
    rows = {row.name.lower(): row for row in describe(options_class)}
    others = {row.name.lower() for row in describe(*beside)}
    values: dict[str, object] = {}
    problems: list[SettingsError] = []
    path = next((given[name] for name in given if name.lower() == _SECRETS_PATH), "")
    if path and _SECRETS_PATH in rows:
        given = with_secrets(given, path, rows.values())
    for name, text in given.items():
        row = rows.get(name.lower())
        if row is not None:
            try:
                values[row.field] = _value(options_class, row, text, where)
            except SettingsError as problem:
                problems.append(problem)
        elif name.lower() not in others and not is_sparks_own(name):
            nearest = nearest_option(options_class, name)
            problems.append(UnknownOptionError(name, where=where, nearest=nearest, page=PAGE))
    if problems:
        raise problems[0] if len(problems) == 1 else SettingsProblemsError(problems)
    made = options_class(**values)
    check_limits(made)
    return made


def _value(options_class: type[DataclassInstance], row: Option, text: str, where: str) -> object:
    if text.strip() and _metadata(options_class, row.field).get(_IS_TIME):
        return time_ms(text, name=row.name)
    return row.parse(text, where=where)


def given_among(options: DataclassInstance, fields: Iterable[str]) -> list[str]:
    """Name the options among `fields` that were given."""
    names = {row.field: row.name for row in describe(type(options))}
    return [names[field] for field in fields if getattr(options, field) not in ("", None)]


def check_one_given(options: DataclassInstance, fields: Iterable[str], *, hint: str) -> None:
    """Refuse options of which only one can be given."""
    given = given_among(options, fields)
    if len(given) > 1:
        raise SettingsError(f"{' and '.join(given)} are given together", hint=hint)


def is_sparks_own(name: str) -> bool:
    """Whether Spark itself sets an option of this name."""
    lowered = name.lower()
    return lowered in _SPARKS_OWN or lowered.startswith(_SPARKS_PREFIXES)


def nearest_option(options_class: type[DataclassInstance], name: str) -> str | None:
    """Find the option that was most likely meant."""
    # Our own names come last, so that they win where two are spelled the same.
    spelled = {_letters(other): row.name for other, row in _all_names(options_class)}
    matches = difflib.get_close_matches(_letters(name), spelled, n=1)
    return spelled[matches[0]] if matches else None


def kafka_name(options_class: type[DataclassInstance], row: Option) -> str:
    """An option's name in Spark's Kafka connector; empty if it has no counterpart."""
    return _elsewhere(options_class, row.field).kafka


def parse_duration_ms(text: str) -> int:
    """Parse a time such as 500ms, 30s, 15m or 1h; a bare number is milliseconds."""
    matched = _DURATION.fullmatch(text.strip().lower())
    if matched is None or matched[2] not in _UNITS_MS:
        raise ValueError(text)
    return int(matched[1]) * _UNITS_MS[matched[2]]


def _all_names(options_class: type[DataclassInstance]) -> Iterator[tuple[str, Option]]:
    rows = describe(options_class)
    client_names = {row.field: row.name for row in describe(ClientOptions)}
    for row in rows:
        elsewhere = _elsewhere(options_class, row.field)
        client_name = client_names.get(row.field, "")
        for other in (elsewhere.kafka, *elsewhere.others, client_name):
            if other:
                yield other, row
                yield other.removeprefix("kafka."), row
    for row in rows:
        yield row.name, row


def _elsewhere(options_class: type[DataclassInstance], field: str) -> _NamesElsewhere:
    found = _metadata(options_class, field).get(_NAMES_ELSEWHERE)
    return found if isinstance(found, _NamesElsewhere) else _NamesElsewhere("", ())


def _metadata(options_class: type[DataclassInstance], field: str) -> Mapping[str, object]:
    fields: Iterable[dataclasses.Field[object]] = dataclasses.fields(options_class)
    return next(one for one in fields if one.name == field).metadata


def _letters(name: str) -> str:
    """Reduce a name to its letters and digits, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
