"""The partitions in which Kafka stores groups and transactional ids."""

from __future__ import annotations

import pytest

from ackwright.local.coordinators import internal_partition, java_hash


# "Aa" and "BB" have the same hash; the others follow Java's definition, s[0]·31^(n-1) + … + s[n-1].
@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("a", 97), ("Aa", 2112), ("BB", 2112), ("hello", 99162322), ("ä", 228)]
)
def test_java_hash_equals_javas_hash_code(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_java_hash_wraps_at_32_bits_and_hashes_surrogates() -> None:
    assert java_hash("polygenelubricants") == -(1 << 31)  # Integer.MIN_VALUE
    assert java_hash("😀") == 0xD83D * 31 + 0xDE00


def test_a_negative_hash_is_replaced_by_its_absolute_value_and_not_by_masking_its_sign() -> None:
    assert java_hash("lanes-ü-zz") < 0
    assert internal_partition("lanes-ü-zz", 5) == -java_hash("lanes-ü-zz") % 5
    assert internal_partition("polygenelubricants", 5) == 0
