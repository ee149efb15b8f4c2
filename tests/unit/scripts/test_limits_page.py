"""The page of limits has a row for each request that is answered."""

from __future__ import annotations

import pytest

from orbitmq.protocol.codes import RequestCode, Role
from scripts import limits_page
from scripts.limits_page import COSTS, Cost, check_rows


def test_each_answered_request_is_on_the_page_with_its_limits() -> None:
    page = limits_page.limits_page()

    for code in RequestCode:
        roles = code.answered_by & ~Role.CLIENT
        assert page.count(f"`{code.name}` ({code.value})") == len(list(roles))
    assert "`frameMaxLength` (16 MiB)" in page
    assert "`membersBytesMax` (512 MiB)" in page


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        (COSTS[1:], r"no row for \['SEND_BATCH_MESSAGE', 'SEND_MESSAGE', 'SEND_MESSAGE_V2'\]"),
        ((*COSTS, COSTS[-1]), r"several for \['GET_KVLIST_BY_NAMESPACE', 'GET_KV_CONFIG'\]"),
        (
            (*COSTS, Cost((RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,), "", "")),
            r"rows of \['NOTIFY_CONSUMER_IDS_CHANGED'\]",
        ),
    ],
)
def test_rows_that_are_missing_repeated_or_idle_are_an_error(
    costs: tuple[Cost, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_page, "COSTS", costs)

    with pytest.raises(ValueError, match=expected):
        check_rows()
