"""The option --console: the page is served during the block, and after it until an interrupt."""

from __future__ import annotations

import re
import threading
import urllib.request

import pytest

from ackwright.cli.foreground import Interrupts
from ackwright.cli.local_console import served
from ackwright.console.activity import Activity
from waiting import wait_until


def interrupt(interrupted: Interrupts) -> None:
    interrupted.count += 1
    interrupted._new.set()


def test_the_page_stays_until_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    interrupted, urls = Interrupts(), list[str]()
    is_over = threading.Event()

    def command() -> None:
        with served(Activity("a command"), interrupted):
            urls.extend(re.findall(r"console: (\S+)", capsys.readouterr().err))
        is_over.set()

    thread = threading.Thread(target=command)
    thread.start()
    wait_until(lambda: "the console stays" in capsys.readouterr().err, "the block has ended")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{urls[0]}api/state", timeout=30) as answer:
        assert b'"title":"a command"' in answer.read()
    assert not is_over.is_set()
    interrupt(interrupted)
    wait_until(is_over.is_set, "the command has ended")
    with pytest.raises(OSError, match="refused"):
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(urls[0], timeout=30)


def test_an_interrupt_that_ends_the_block_ends_the_page() -> None:
    interrupted = Interrupts()
    with served(Activity("a command"), interrupted):
        interrupt(interrupted)


def test_without_the_option_nothing_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    with served(None, Interrupts()):
        pass
    assert capsys.readouterr().err == ""
