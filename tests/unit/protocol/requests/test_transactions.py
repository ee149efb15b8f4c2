"""The question of a broker after a transaction, under the names that Java reads."""

from __future__ import annotations

from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.transactions import CheckTransaction


def test_a_check_travels_under_the_names_of_java() -> None:
    check = CheckTransaction(
        half_offset=Long(7), physical_offset=Long(9), message_id="m", transaction_id="t"
    )

    fields = check.encode()

    assert fields == {
        "tranStateTableOffset": "7",
        "commitLogOffset": "9",
        "msgId": "m",
        "transactionId": "t",
    }
    assert CheckTransaction.decode(fields) == check
