"""A commit's subject has 1 to 72 characters, in a message's file and in a range of commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import check_subjects


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Fence drivers by group membership\n\n" + "why " * 30, 0),
        ("# a comment of git's\n\n" + "é" * 72, 0),
        ("x" * 73, 1),
        ("\n# nothing but comments\n", 1),
    ],
)
def test_the_subject_of_a_message_has_72_characters_at_most(message: str, code: int, tmp_path: Path) -> None:
    file = tmp_path / "message"
    file.write_text(message)
    assert check_subjects.main(["--message", str(file)]) == code


def test_every_commit_of_a_range_is_checked_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    identity = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "init", "-q"], check=True)
    for subject in ("Add a", "B" * 80, "Add c"):
        subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", subject], check=True)
    assert check_subjects.main(["HEAD~2..HEAD"]) == 1
    assert f"80 characters instead of 1 to 72: '{'B' * 80}'" in capsys.readouterr().err
    assert check_subjects.main(["HEAD~1..HEAD"]) == 0
