"""Which PostgreSQL and which account the local server uses, and the message if there is none."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from ackwright.errors import AckwrightError
from ackwright.local import postgres


def installed(directory: Path, *versions: str) -> None:
    for version in versions:
        (directory / version / "bin").mkdir(parents=True)
        (directory / version / "bin" / "initdb").touch(mode=0o755)


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Debian's directory, empty; PATH has no program either."""
    monkeypatch.setattr(postgres, "_DEBIAN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


def test_the_newest_version_is_used_and_not_the_last_name(debian: Path) -> None:
    installed(debian, "9.6", "15", "17")
    assert postgres.installed_programs() == debian / "17" / "bin"


def test_a_version_without_a_server_is_not_used(debian: Path) -> None:
    installed(debian, "15")
    (debian / "17" / "bin").mkdir(parents=True)
    (debian / "17" / "bin" / "psql").touch(mode=0o755)
    assert postgres.installed_programs() == debian / "15" / "bin"


def test_without_debians_package_it_is_that_of_the_path(debian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(debian / "elsewhere", "16")
    monkeypatch.setenv("PATH", str(debian / "elsewhere" / "16" / "bin"))
    assert postgres.installed_programs() == debian / "elsewhere" / "16" / "bin"


def test_if_it_is_not_installed_the_message_has_the_remedy(debian: Path) -> None:
    with pytest.raises(AckwrightError, match=r"PostgreSQL is not installed .*: apt-get install postgresql$"):
        postgres.installed_programs()


def test_root_runs_it_as_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    account = postgres.unprivileged_account()
    assert account is not None
    assert account.pw_uid != 0
    monkeypatch.setattr(pwd, "getpwnam", lambda name: {"nobody": account}[name])
    assert postgres.unprivileged_account() is account, "without the account postgres"
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert postgres.unprivileged_account() is None
