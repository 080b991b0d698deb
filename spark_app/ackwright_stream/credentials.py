"""Reads a login from its files, one file per key, as in a mounted Secret.

Standard library only: operator and job share it.
"""

from __future__ import annotations

from pathlib import Path

_BREAKS_JAAS = frozenset('"\\\r\n')


class Unusable(Exception):
    """A file of a login that cannot be used. Its content is in neither text."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause, remedy)
        self.cause, self.remedy = cause, remedy


def login(directory: str) -> dict[str, str]:
    """librdkafka's settings with the current user name and password. Raises Unusable.

    Java clients read the same files unchanged into a quoted text (sasl.jaas.config). Characters that end this text are
    refused here: there, the login fails with a part of the password in the message, or uses another password.
    """
    settings = {}
    for name in ("username", "password"):
        file = Path(directory, name)
        try:
            text = file.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as e:
            why = (e.strerror or str(e)) if isinstance(e, OSError) else "it is not UTF-8 text"
            raise Unusable(
                f"the {name} cannot be read from {file}: {why}",
                "put it there, one file per key, as in a mounted Secret",
            ) from None
        if _BREAKS_JAAS & set(text):
            raise Unusable(
                f"the {name} in {file} contains a line break, a quotation mark or a backslash, with which Kafka's Java "
                "clients cannot log in",
                "create the Secret without a final line break (printf %s, not echo), or choose another password",
            )
        settings[f"sasl.{name}"] = text
    return settings
