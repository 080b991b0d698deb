"""Reads a login from its files, one file a key, as a mounted Secret has it. Standard library only: operator and job share it."""

from __future__ import annotations

from pathlib import Path

_BREAKS_JAAS = frozenset('"\\\r\n')


class Unusable(Exception):
    """What is wrong with a file of a login, and what to do; never what is in it."""


def login(directory: str) -> dict[str, str]:
    """librdkafka's settings with the user's name and password as they are at this moment. Raises Unusable.

    Java's clients read the same files into a quoted text (sasl.jaas.config), as they are: what would end it is refused here, for there it
    fails with a part of the password in the message, or logs in with another one.
    """
    found = {}
    for name in ("username", "password"):
        file = Path(directory, name)
        try:
            text = file.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as e:
            why = (e.strerror or str(e)) if isinstance(e, OSError) else "it is not UTF-8 text"
            raise Unusable(
                f"the {name} cannot be read from {file}: {why}; put it there, one file a key, as a mounted Secret has it"
            ) from None
        if _BREAKS_JAAS & set(text):
            raise Unusable(
                f"the {name} in {file} has a line break, a quotation mark or a backslash in it, or at its end, with which Kafka's Java "
                "clients cannot log in; make the Secret without (printf %s, not echo), or choose another password"
            )
        found[f"sasl.{name}"] = text
    return found
