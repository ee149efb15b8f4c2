"""A client that was given keys signs what it sends."""

from __future__ import annotations

from orbitmq.client.aio.instance.signing import signing_of
from orbitmq.client.options import ClientOptions
from orbitmq.protocol.command import Command
from orbitmq.protocol.signing import verify


def test_without_keys_nothing_is_signed() -> None:
    assert signing_of(ClientOptions()) == []


def test_a_request_is_signed_with_the_keys_it_was_given() -> None:
    options = ClientOptions(access_key="ak", secret_key="sk", security_token="token")
    (hook,) = signing_of(options)
    request = Command(code=34, fields={"topic": "T"}, body=b"body")

    hook.before_request("127.0.0.1:1", request)
    hook.after_response("127.0.0.1:1", request, None)

    verify(request.fields, request.body, "sk")
    assert request.fields["AccessKey"] == "ak"
    assert request.fields["SecurityToken"] == "token"
