"""The search for planted secrets detects them in every encoding: the control of tests/e2e/test_secrets.py."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from e2e.leaks import leaks

SECRET = "pl4nted/secret+0f=a~test"
DOCUMENT = f'{{"user": "ann", "password": "{SECRET}", "more": 1}}'


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
        *(base64.b64encode(DOCUMENT[shift:].encode()).decode() for shift in range(4)),
        *(base64.b64encode(DOCUMENT[: len(DOCUMENT) - end].encode()).decode() for end in range(4)),
        *(
            base64.b64encode(("." * before + SECRET + "." * after).encode()).decode()
            for before in range(3)
            for after in range(3)
        ),
    ],
)
def test_a_planted_secret_is_detected(text: str) -> None:
    detected = leaks({"elsewhere": "nothing", "the log": f"before {text} after"}, {"the password": SECRET})
    assert detected
    assert all(line.startswith("the password ") and line.endswith(" in the log") for line in detected)
    assert not any(SECRET in line for line in detected), "the report does not contain the secret"


def test_secrets_with_escaped_characters_are_detected() -> None:
    secret = 'qu"ote\\and-pässword'
    for text in (json.dumps({"a": secret}), json.dumps({"a": json.dumps({"b": secret})}), quote(secret), secret):
        assert leaks({"x": text}, {"s": secret}), text


def test_other_texts_are_not_reported() -> None:
    text = (
        "SCRAM-SHA-512 credentialsSecret: kafka-user; secret; /etc/ackwright/secrets/kafka-user/password " + "A" * 2000
    )
    assert leaks({"x": text, "y": base64.b64encode(text.encode()).decode()}, {"s": SECRET}) == []
