"""The line on stderr while a command waits."""

from __future__ import annotations

import sys
import threading

import click
import pytest

from ackwright.cli.failures import Failures
from ackwright.cli.waiting import waiting
from waiting import wait_until


def test_a_line_is_printed_once_the_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ""
    with waiting("Reading topics", after=0):

        def is_shown() -> bool:
            nonlocal shown
            shown += capsys.readouterr().err
            return shown != ""

        wait_until(is_shown, "the line is shown")
    assert shown + capsys.readouterr().err == "Reading topics ...\n"


def test_what_is_fast_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("Reading topics", after=600):
        pass
    assert capsys.readouterr().err == ""
    assert all(t.name != "waiting" for t in threading.enumerate())


def test_an_error_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="boom"), waiting("Reading topics", after=600):
        raise ValueError("boom")
    assert all(t.name != "waiting" for t in threading.enumerate())


def test_on_a_terminal_the_line_disappears(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = ""
    with waiting("Reading topics", after=0):

        def is_shown() -> bool:
            nonlocal shown
            shown += capsys.readouterr().err
            return "Reading topics ... 0 s" in shown

        wait_until(is_shown, "the line is shown")
    assert capsys.readouterr().err.endswith("\r\x1b[K")


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_with_a_document_nothing_is_printed(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    with click.Context(click.Command("check"), obj=Failures(output=output)), waiting("Reading topics", after=0):
        assert all(t.name != "waiting" for t in threading.enumerate())
    assert capsys.readouterr().err == ""
