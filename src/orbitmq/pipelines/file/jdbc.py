"""A sink `jdbc: jdbc:postgresql://…`, a table of a database."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from orbitmq.errors import PackageMissingError
from orbitmq.pipelines.file.fields import FieldReader
from orbitmq.pipelines.file.sources import Defaults
from orbitmq.pipelines.plan import JdbcSink
from orbitmq.pipelines.suggestions import suggestion

TLS_PARAMETERS: Final = ("sslmode", "sslrootcert")
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_URL_EXAMPLE: Final = "jdbc:postgresql://127.0.0.1:5432/shop"
_DATABASE: Final = re.compile(r"jdbc:(?:[a-z]+:)*?([a-z0-9]+):.*", re.I | re.S)
_PORT: Final = 5432
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z_0-9]*)\}")
_NAME_BYTES_MAX: Final = 63
_APPLIED: Final = ("changes",)
_STATEMENT_MS: Final = 10 * 60 * 1000


@dataclass(frozen=True, slots=True)
class _Url:
    host: str = ""
    port: int = _PORT
    database: str = ""
    sslmode: str = "prefer"
    sslrootcert: str = ""


def read_jdbc(
    name: str, reads: str, reader: FieldReader, defaults: Defaults, *, adds_columns: bool
) -> JdbcSink:
    """Read the fields of the sink."""
    url = _url(reader)
    schema, table = _table(reader)
    file, variable = _password(reader)
    key = _key(reader)
    return JdbcSink(
        name=name,
        reads=reads,
        host=url.host,
        port=url.port,
        database=url.database,
        sslmode=url.sslmode,
        sslrootcert=url.sslrootcert,
        schema=schema,
        table=table,
        user=reader.required("user", "shop"),
        password_file=defaults.folder / file if file else None,
        password_variable=variable,
        adds_columns=adds_columns,
        statement_ms=reader.duration("timeout", _STATEMENT_MS),
        key=key,
        applies_changes=_applies_changes(reader, key),
    )


def _url(reader: FieldReader) -> _Url:
    text = reader.required("jdbc", _URL_EXAMPLE)
    kind = _DATABASE.fullmatch(text)
    # Text that may be a secret is in no error.
    if text and kind is None:
        reader.add("jdbc", "this is no URL of JDBC", hint=f"as in jdbc: {_URL_EXAMPLE}")
    if kind is None:
        return _Url()
    if not text.startswith("jdbc:postgresql:"):
        reader.add(
            "jdbc",
            f"{kind[1]} is not a database that a pipeline can write to",
            hint=f"PostgreSQL is the only one yet, as in {_URL_EXAMPLE}",
        )
        return _Url()
    if importlib.util.find_spec("psycopg") is None:
        raise PackageMissingError("psycopg", needed_by=reader.what, extra="spark,postgres")
    try:
        parts = urlsplit(text.removeprefix("jdbc:"))
        host, port = parts.hostname or "", parts.port or _PORT
    except ValueError:
        # Also several hosts, which are not parted from a last port.
        reader.add("jdbc", "the URL has no such host and port", hint=f"as in {_URL_EXAMPLE}")
        return _Url()
    database = unquote(parts.path.removeprefix("/"))
    if not host or not database or "/" in database or "," in host:
        problem = "the URL does not name one host and one database"
        reader.add("jdbc", problem, hint=f"as in {_URL_EXAMPLE}")
        return _Url()
    if parts.username is not None:
        reader.add(
            "jdbc", "the URL has a user", hint="user and password_file are fields of the sink"
        )
    tls = _tls(reader, parts.query)
    return _Url(host, port, database, **tls)


def _tls(reader: FieldReader, query: str) -> dict[str, str]:
    found = dict(parse_qsl(query, keep_blank_values=True))
    for name in found:
        if name not in TLS_PARAMETERS:
            reader.add(
                "jdbc",
                f"the URL cannot have the parameter {name!r}",
                hint="user and password_file are fields of the sink"
                if name in {"user", "password"}
                else suggestion(name, TLS_PARAMETERS),
            )
    mode = found.get("sslmode")
    if mode is not None and mode not in _SSL_MODES:
        reader.add("jdbc", f"sslmode cannot be {mode!r}", hint=suggestion(mode, _SSL_MODES))
    return {name: value for name, value in found.items() if name in TLS_PARAMETERS}


def _table(reader: FieldReader) -> tuple[str, str]:
    """The schema, if it is given, and the name."""
    text = reader.required("table", "orders")
    schema, _, table = text.rpartition(".")
    is_wrong = not table or "." in schema or ("." in text and not schema)
    if text and (is_wrong or max(len(one.encode()) for one in (schema, table)) > _NAME_BYTES_MAX):
        reader.add("table", f"table cannot be {text!r}", hint="as in orders, or public.orders")
    return schema, table


def _key(reader: FieldReader) -> tuple[str, ...]:
    key = reader.texts("key")
    if len({name.lower() for name in key}) < len(key):
        reader.add("key", f"the key of {reader.what} has a column twice")
    return key


def _applies_changes(reader: FieldReader, key: tuple[str, ...]) -> bool:
    if "apply" not in reader:
        reader.node("apply")
        return False
    reader.choice("apply", _APPLIED, _APPLIED[0])
    if not key:
        reader.problems.add(
            reader.place_of("apply"),
            f"{reader.what} applies changes, and has no key",
            hint="as in key: id, or key: [shop, id]",
        )
    return True


def _password(reader: FieldReader) -> tuple[str, str]:
    """The file, or the variable of the environment, that has the password; none if neither is given."""
    file, text = reader.text("password_file"), reader.text("password")
    variable = _VARIABLE.fullmatch(text)
    if text and variable is None:
        reader.add(
            "password",
            "a password does not belong into this file",
            hint="put it into a file, as in password_file: secrets/shop, or into a variable of "
            "the environment, as in password: ${SHOP_PASSWORD}",
        )
    if text and file:
        reader.add("password", f"{reader.what} has password and password_file: it is one of them")
    return file, variable[1] if variable else ""
