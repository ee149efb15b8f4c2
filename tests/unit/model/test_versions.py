"""Versions of peers and of tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.model.versions import (
    OUR_VERSION,
    V3_0_7_SNAPSHOT,
    V3_0_11,
    V3_1_8_SNAPSHOT,
    V4_9_4,
    V5_0_0,
    V5_3_3,
    DataVersion,
    version_name,
)

INT_64 = st.integers(-(2**63), 2**63 - 1)


def test_releases_have_the_numbers_of_java() -> None:
    assert (V3_0_11, V4_9_4, V5_0_0, V5_3_3) == (37, 401, 413, 479)
    assert (V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT) == (28, 62)
    assert OUR_VERSION == V5_3_3


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, "V3"),
        (194, "V3_9_1_SNAPSHOT"),
        (V4_9_4, "V4_9_4"),
        (V5_0_0 - 1, "V5_0_0_SNAPSHOT"),
        (V5_0_0, "V5_0_0"),
        (V5_3_3, "V5_3_3"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
    ],
)
def test_releases_have_the_names_of_java(number: int, name: str) -> None:
    assert version_name(number) == name


@given(st.builds(DataVersion, counter=INT_64, state_version=INT_64, timestamp=INT_64))
def test_a_data_version_survives_a_round_trip(version: DataVersion) -> None:
    assert java_json.decode(java_json.encode(version), DataVersion) == version


def test_a_data_version_is_written_as_java_writes_it() -> None:
    version = DataVersion(counter=1, state_version=2, timestamp=3)

    assert java_json.encode(version) == b'{"counter":1,"stateVersion":2,"timestamp":3}'


def test_a_data_version_of_4_9_has_no_state_version() -> None:
    assert java_json.decode(b'{"counter":1,"timestamp":3}', DataVersion) == DataVersion(
        counter=1, timestamp=3
    )


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_data_version_wider_than_javas_is_refused(number: int) -> None:
    with pytest.raises(ProtocolError):
        java_json.decode(b'{"counter":%d}' % number, DataVersion)


def test_a_change_makes_the_next_version() -> None:
    version = DataVersion(counter=3, state_version=2, timestamp=5)

    assert version.next(9) == DataVersion(counter=4, state_version=2, timestamp=9)
