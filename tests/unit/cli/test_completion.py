"""Shell completion: the scripts, and the completions that shells receive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from ackwright.cli import main
from ackwright_stream.jobspec import ExitCode


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_can_parse_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["completion", shell]) == ExitCode.OK
    script = capsys.readouterr().out
    assert "_ACKWRIGHT_COMPLETE" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=20)


def complete(*words: str) -> set[str]:
    """The completions of the last word."""
    items = ShellComplete(main.cli, {}, "ackwright", "_ACKWRIGHT_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return {item.value for item in items}


def test_completing_commands_imports_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert complete("su") == {"suspend", "support-bundle"}
    assert complete("") == set(main.COMMANDS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--ver",), {"--verbose", "--version"}),
        (("plan", "--ag"), {"--against"}),
        (("plan", "-o", "j"), {"json"}),
        (("completion", "z"), {"zsh"}),
    ],
)
def test_options_and_their_values_are_completed(words: tuple[str, ...], expected: set[str]) -> None:
    assert complete(*words) == expected


def test_bash_receives_completions_in_its_format() -> None:
    environment = {
        **os.environ,
        "_ACKWRIGHT_COMPLETE": "bash_complete",
        "COMP_WORDS": "ackwright sta",
        "COMP_CWORD": "1",
    }
    argv = [sys.executable, "-c", "from ackwright.cli.main import main; main()"]
    completed = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert completed.stdout.split() == ["plain,status"]
