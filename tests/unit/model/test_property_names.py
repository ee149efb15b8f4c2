"""Names of properties: no two of them are the same."""

from __future__ import annotations

from orbitmq.model import property_names


def test_every_name_is_given_one_meaning() -> None:
    names = [value for name, value in vars(property_names).items() if name.isupper()]

    assert len(names) == len(set(names))
