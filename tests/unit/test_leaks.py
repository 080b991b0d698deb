"""The search for planted secrets finds them in every form: the control of tests/e2e/test_secrets.py."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from e2e.leaks import leaks

SECRET = "pl4nted/secret+0f=a~test"
AROUND = f'{{"user": "ann", "password": "{SECRET}", "more": 1}}'


@pytest.mark.parametrize(
    "text",
    [
        f"login of ann with {SECRET} failed",
        f"x{SECRET}x",
        json.dumps({"message": json.dumps({"password": SECRET})}),
        quote(f"http://ann:{SECRET}@broker/"),
        quote(SECRET, safe=""),
        SECRET.encode().hex(),
        SECRET[::-1],
        *(base64.b64encode(AROUND[shift:].encode()).decode() for shift in range(4)),
        *(base64.b64encode(AROUND[: len(AROUND) - end].encode()).decode() for end in range(4)),
        *(
            base64.b64encode(("." * before + SECRET + "." * after).encode()).decode()
            for before in range(3)
            for after in range(3)
        ),
    ],
)
def test_a_planted_secret_is_found(text: str) -> None:
    found = leaks({"elsewhere": "nothing", "the log": f"before {text} after"}, {"the password": SECRET})
    assert found
    assert all(line.startswith("the password ") and line.endswith(" in the log") for line in found)
    assert not any(SECRET in line for line in found), "it is not repeated"


def test_secrets_with_characters_that_have_to_be_escaped_are_found() -> None:
    secret = 'qu"ote\\and-pässword'
    for text in (json.dumps({"a": secret}), json.dumps({"a": json.dumps({"b": secret})}), quote(secret), secret):
        assert leaks({"x": text}, {"s": secret}), text


def test_what_is_no_secret_is_not_found() -> None:
    text = (
        "SCRAM-SHA-512 credentialsSecret: kafka-user; secret; /etc/ackwright/secrets/kafka-user/password " + "A" * 2000
    )
    assert leaks({"x": text, "y": base64.b64encode(text.encode()).decode()}, {"s": SECRET}) == []
