"""Shards: each namespace belongs to one, and about as many to each."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwright.shards import LEASE_NAMES, MAX_SHARDS, THE_ONLY_ONE, Shard, parse_shard


@given(st.text(), st.integers(1, MAX_SHARDS))
def test_a_namespace_belongs_to_one_shard(namespace: str, of: int) -> None:
    assert sum(Shard(number, of).owns(namespace) for number in range(1, of + 1)) == 1


@given(st.text())
def test_the_only_shard_has_all_namespaces(namespace: str) -> None:
    assert THE_ONLY_ONE.owns(namespace)


@pytest.mark.parametrize("of", [2, 3, 16])
def test_shards_have_about_as_many_namespaces(of: int) -> None:
    names = [f"team-{i}" for i in range(1600)]
    numbers = Counter(n for name in names for n in range(1, of + 1) if Shard(n, of).owns(name))
    assert min(numbers.values()) > 0.7 * len(names) / of
    assert max(numbers.values()) < 1.3 * len(names) / of


def test_each_shard_has_its_own_lease() -> None:
    assert [Shard(n, MAX_SHARDS).lease for n in range(1, MAX_SHARDS + 1)] == list(LEASE_NAMES)
    assert len(set(LEASE_NAMES)) == MAX_SHARDS
    assert THE_ONLY_ONE.lease == "ackwright-operator"


@given(st.integers(1, MAX_SHARDS), st.integers(1, MAX_SHARDS))
def test_a_shard_is_read_as_it_is_written(number: int, of: int) -> None:
    if number <= of:
        assert parse_shard(str(Shard(number, of))) == Shard(number, of)
    else:
        with pytest.raises(ValueError, match="shard"):
            parse_shard(f"{number}/{of}")
