"""Signatures of requests."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import SignatureError
from orbitmq.protocol.signing import Credentials, signed_fields, verify

CREDENTIALS = Credentials(access_key="ak", secret_key="sk")
FIELDS = {"consumerGroup": "G", "topic": "T"}
NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)
VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def signed_by_hand(fields: dict[str, str], content: str, body: bytes = b"") -> dict[str, str]:
    digest = hmac.digest(b"sk", content.encode() + body, hashlib.sha1)
    return {**fields, "AccessKey": "ak", "Signature": base64.b64encode(digest).decode()}


@pytest.mark.parametrize(
    ("body", "signature"),
    [(b"", "KvXPaAYDq988oRBN0BuceHdSJRU="), (b"body", "+oOEX716M07cvJEs/mhOBkm7hMk=")],
)
def test_signatures_equal_the_vectors_of_the_reference(body: bytes, signature: str) -> None:
    signed = signed_fields(FIELDS, body, CREDENTIALS)

    assert signed == {**FIELDS, "AccessKey": "ak", "Signature": signature}
    verify(signed, body, "sk")


def test_values_are_signed_in_the_order_of_their_names_upper_case_first() -> None:
    signed = signed_fields({"b": "3", "a": "2", "Z": "1"}, b"", CREDENTIALS)

    assert signed == signed_by_hand({"b": "3", "a": "2", "Z": "1"}, "ak123")


def test_a_security_token_is_sent_and_signed() -> None:
    credentials = Credentials(access_key="ak", secret_key="sk", security_token="token")

    signed = signed_fields(FIELDS, b"", credentials)

    assert signed == signed_by_hand({**FIELDS, "SecurityToken": "token"}, "aktokenGT")
    verify(signed, b"", "sk")


def test_signing_again_replaces_the_signature() -> None:
    once = signed_fields(FIELDS, b"", CREDENTIALS)

    assert signed_fields(once, b"", CREDENTIALS) == once


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({"topic": "T", "_UNIQUE_KEY_QUERY": "true"}, "akT"),
        ({"topic": "T", "SecurityToken": "token"}, "akT"),
        ({"topic": "T", "__ZONE_NAME": "z", "__ZONE_MODE": "true"}, "akT"),
        ({"topic": "T", "__ZONE_NAME": "z", "SecurityToken": "token"}, "aktokenT"),
        ({"topic": "T", "__ZONE_NAME": "z", "SecurityToken": "token"}, "akzT"),
        ({"topic": "T", "__ZONE_NAME": "z", "_UNIQUE_KEY_QUERY": "true"}, "akT"),
    ],
)
def test_fields_that_some_clients_leave_unsigned_may_be_unsigned(
    fields: dict[str, str], content: str
) -> None:
    verify(signed_by_hand(fields, content), b"", "sk")


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.binary(max_size=20))
def test_a_signed_request_is_verified(fields: dict[str, str], body: bytes) -> None:
    verify(signed_fields(fields, body, CREDENTIALS), body, "sk")


@pytest.mark.parametrize(
    ("change", "body", "secret"),
    [
        ({"topic": "U"}, b"body", "sk"),
        ({"more": "x"}, b"body", "sk"),
        ({"AccessKey": "other"}, b"body", "sk"),
        ({"Signature": "AAAA"}, b"body", "sk"),
        ({"Signature": "中"}, b"body", "sk"),
        ({}, b"bodx", "sk"),
        ({}, b"", "sk"),
        ({}, b"body", "other"),
    ],
)
def test_any_change_breaks_the_signature(change: dict[str, str], body: bytes, secret: str) -> None:
    signed = signed_fields(FIELDS, b"body", CREDENTIALS)

    with pytest.raises(SignatureError, match="does not match the request"):
        verify({**signed, **change}, body, secret)


@pytest.mark.parametrize("missing", ["Signature", "AccessKey"])
def test_a_request_without_signature_or_name_is_refused(missing: str) -> None:
    signed = signed_fields(FIELDS, b"", CREDENTIALS)

    with pytest.raises(SignatureError, match="not signed"):
        verify({**signed, missing: ""}, b"", "sk")
    del signed[missing]
    with pytest.raises(SignatureError, match="not signed"):
        verify(signed, b"", "sk")


def test_secrets_do_not_show() -> None:
    credentials = Credentials(access_key="ak", secret_key="hidden", security_token="hidden too")

    assert "hidden" not in repr(credentials)
    assert "ak" in repr(credentials)
