"""Numbers with their nouns, and causes with their remedies, for messages. Pure."""

from __future__ import annotations

from collections.abc import Collection


def counted(number: int, noun: str) -> str:
    """The number and the noun in its regular plural form: 1 partition, 2 partitions."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def named(noun: str, names: Collection[object]) -> str:
    """The noun, in the plural if there are several names, and the names: topic a; topics a, b."""
    return f"{noun if len(names) == 1 else noun + 's'} {', '.join(map(str, names))}"


def listed(names: Collection[object], last: str = "and") -> str:
    """The names in a sentence: a; a and b; a, b and c. last: the word before the last one."""
    *first, end = map(str, names)
    return f"{', '.join(first)} {last} {end}" if first else end


def sentence(cause: str, remedy: str) -> str:
    """The message of a cause and its remedy, which may be empty."""
    return f"{cause}; {remedy}" if remedy else cause
