"""The operator's settings from the environment: each can be set, and all errors are reported at once."""

from __future__ import annotations

import pytest

from ackwright.errors import AckwrightError
from ackwright.settings import OperatorSettings, from_environment
from ackwright.shards import Shard


def test_defaults() -> None:
    assert from_environment({}) == OperatorSettings()
    assert from_environment({"PATH": "/bin", "RESYNC": "5", "OTHER_RESYNC": "5"}) == OperatorSettings()


def test_every_setting_can_be_configured() -> None:
    variables = {
        name: {tuple: "a, b,", str: "text", int: "7", float: "7.5", bool: "true", Shard: "2/3"}[type(default)]
        for name, default in vars(OperatorSettings()).items()
    }
    settings = vars(from_environment({f"ACKWRIGHT_{name.upper()}": text for name, text in variables.items()}))
    expected = {tuple: ("a", "b"), str: "text", int: 7, float: 7.5, bool: True, Shard: Shard(2, 3)}
    assert settings == {name: expected[type(default)] for name, default in vars(OperatorSettings()).items()}


def test_a_list_names_each_once() -> None:
    assert from_environment({"ACKWRIGHT_IMAGE_PULL_SECRETS": " b ,a,,b"}).image_pull_secrets == ("b", "a")
    assert from_environment({"ACKWRIGHT_IMAGE_PULL_SECRETS": ""}).image_pull_secrets == ()


def test_a_whole_number_of_seconds_will_do() -> None:
    assert from_environment({"ACKWRIGHT_RESYNC": "30"}).resync == 30.0


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1e999", "five", "1 m", "0x10"])
@pytest.mark.parametrize("name", ["RESYNC", "WORKERS"])
def test_what_is_no_positive_number_is_refused(name: str, text: str) -> None:
    with pytest.raises(AckwrightError, match=f"ACKWRIGHT_{name} = .*must be a positive number; write for instance"):
        from_environment({f"ACKWRIGHT_{name}": text})


def test_part_of_a_worker_is_refused() -> None:
    with pytest.raises(AckwrightError, match=r"ACKWRIGHT_WORKERS = '1\.5'"):
        from_environment({"ACKWRIGHT_WORKERS": "1.5"})


def test_every_error_of_a_file_is_reported_at_once() -> None:
    with pytest.raises(AckwrightError) as caught:
        from_environment({"ACKWRIGHT_DRAIN": "x", "ACKWRIGHT_SETTLE": "-1", "ACKWRIGHT_WORKERS": "2"})
    assert [line.split()[0] for line in caught.value.message.splitlines()] == ["ACKWRIGHT_SETTLE", "ACKWRIGHT_DRAIN"]


@pytest.mark.parametrize("text", ["", "1", "yes", "True"])
def test_a_switch_is_true_or_false(text: str) -> None:
    assert from_environment({"ACKWRIGHT_ALLOW_ANY_GROUP": "false"}).allow_any_group is False
    with pytest.raises(
        AckwrightError, match=r"ACKWRIGHT_ALLOW_ANY_GROUP = .*: must be true or false; write for instance true"
    ):
        from_environment({"ACKWRIGHT_ALLOW_ANY_GROUP": text})


@pytest.mark.parametrize("text", ["", "1", "0/1", "3/2", "1/17", "-1/2", "a/b", "1/2/3"])
def test_a_shard_is_one_of_at_most_sixteen(text: str) -> None:
    with pytest.raises(AckwrightError, match=r"must be number/shards, with at most 16 shards; write for instance 1/2"):
        from_environment({"ACKWRIGHT_SHARD": text})
