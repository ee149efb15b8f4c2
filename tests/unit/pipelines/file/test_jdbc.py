"""A sink into a database is read whole, and its password is neither in the plan nor in an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import PipelineFileError
from orbitmq.pipelines.file.pipeline_file import read_pipeline
from orbitmq.pipelines.plan import JdbcSink, Sink

SMALL = """\
namesrv: 127.0.0.1:9876
sources:
  orders: {topic: orders}
sinks:
  table:
    from: orders
    jdbc: jdbc:postgresql://127.0.0.1/shop
    table: orders
    user: shop
"""


def sink_of(folder: Path, text: str) -> Sink:
    file = folder / "shop.yaml"
    file.write_text(text)
    (sink,) = read_pipeline(file).sinks
    return sink


def test_a_small_sink_has_defaults(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, SMALL)

    assert sink == JdbcSink(
        name="table", reads="orders", host="127.0.0.1", port=5432, database="shop",
        sslmode="prefer", sslrootcert="", schema="", table="orders", user="shop",
        password_file=None, password_variable="", adds_columns=False, statement_ms=600_000,
        key=(), applies_changes=False,
    )  # fmt: skip
    assert sink.target == "table orders of postgresql://127.0.0.1:5432/shop"


def test_a_whole_sink_is_read(tmp_path: Path) -> None:
    text = SMALL.replace(
        "127.0.0.1/shop", "[::1]:5433/my%20shop?sslmode=verify-full&sslrootcert=/ca.pem"
    ).replace("table: orders", "table: sales.orders")
    more = (
        "    password_file: secrets/shop\n    schema: add-columns\n    timeout: 1 hour\n"
        "    key: [shop, id]\n    apply: changes\n"
    )

    sink = sink_of(tmp_path, text + more)

    assert sink == JdbcSink(
        name="table", reads="orders", host="::1", port=5433, database="my shop",
        sslmode="verify-full", sslrootcert="/ca.pem", schema="sales", table="orders", user="shop",
        password_file=tmp_path / "secrets" / "shop", password_variable="", adds_columns=True,
        statement_ms=3_600_000, key=("shop", "id"), applies_changes=True,
    )  # fmt: skip


def test_a_password_may_be_in_a_variable(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, f"{SMALL}    password: ${{SHOP_PASSWORD}}\n")

    assert isinstance(sink, JdbcSink)
    assert sink.password_variable == "SHOP_PASSWORD"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("jdbc:postgresql://127.0.0.1/shop", "jdbc:mysql://127.0.0.1/shop", "7:11: mysql is not a database that a pipeline can write to (PostgreSQL is the only one yet"),
        ("jdbc:postgresql://127.0.0.1/shop", "jdbc:sqlserver://x;user=me;password=hunter2", "7:11: sqlserver is not"),
        ("jdbc:postgresql://127.0.0.1/shop", "postgresql://127.0.0.1/shop", "7:11: this is no URL of JDBC (as in jdbc: jdbc:postgresql://127.0.0.1:5432/shop)"),
        ("127.0.0.1/shop", "127.0.0.1", "7:11: the URL does not name one host and one database"),
        ("127.0.0.1/shop", "a,b/shop", "does not name one host"),
        ("127.0.0.1/shop", "127.0.0.1:port/shop", "7:11: the URL has no such host and port"),
        ("127.0.0.1/shop", "shop:hunter2@127.0.0.1/shop", "7:11: the URL has a user (user and password_file are fields of the sink)"),
        ("127.0.0.1/shop", "127.0.0.1/shop?password=hunter2", "the URL cannot have the parameter 'password' (user and password_file"),
        ("127.0.0.1/shop", "127.0.0.1/shop?sslmod=require", "the URL cannot have the parameter 'sslmod' (did you mean sslmode?)"),
        ("127.0.0.1/shop", "127.0.0.1/shop?sslmode=verify", "sslmode cannot be 'verify' (did you mean verify-ca?)"),
        ("    table: orders\n", "", "5:3: sink table needs table (as in table: orders)"),
        ("    table: orders\n", "    table: a.b.c\n", "8:12: table cannot be 'a.b.c' (as in orders, or public.orders)"),
        ("    table: orders\n", "    table: .c\n", "table cannot be '.c'"),
        ("    user: shop\n", "", "5:3: sink table needs user"),
        ("    user: shop\n", "    usr: shop\n", "9:5: sink table has no field 'usr' (did you mean user?)"),
        ("    user: shop\n", "    user: shop\n    password: hunter2\n", "10:15: a password does not belong into this file (put it into a file, as in password_file: secrets/shop"),
        ("    user: shop\n", "    user: shop\n    password: ${A}\n    password_file: b\n", "sink table has password and password_file: it is one of them"),
        ("    user: shop\n", "    user: shop\n    schema: add_columns\n", "10:13: schema cannot be 'add_columns' (did you mean add-columns?)"),
        ("    user: shop\n", "    user: shop\n    timeout: long\n", "timeout cannot be 'long'"),
        ("    user: shop\n", "    user: shop\n    apply: changes\n", "10:5: sink table applies changes, and has no key (as in key: id, or key: [shop, id])"),
        ("    user: shop\n", "    user: shop\n    key: [id, ID]\n", "10:10: the key of sink table has a column twice"),
        ("    user: shop\n", "    user: shop\n    key: id\n    apply: change\n", "11:12: apply cannot be 'change' (did you mean changes?)"),
        ("    jdbc: ", "    jdcb: ", "7:5: sink table has no field 'jdcb' (did you mean jdbc?)"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_place_and_shows_no_secret(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert old in SMALL

    with pytest.raises(PipelineFileError) as refused:
        sink_of(tmp_path, SMALL.replace(old, new, 1))

    assert any(expected in one for one in refused.value.problems), refused.value.problems
    assert "hunter2" not in str(refused.value)
