"""ackwright completion: prints shell completion scripts."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ackwright_stream.jobspec import ExitCode

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(*, shell: str) -> int:
    """Print a script that completes commands, options and their values in a shell.

    \b
    bash:  source <(ackwright completion bash)              in ~/.bashrc
    zsh:   source <(ackwright completion zsh)               in ~/.zshrc, after compinit
    fish:  ackwright completion fish > ~/.config/fish/completions/ackwright.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None, shell  # noqa: S101  click supports all of _SHELLS
    root = click.get_current_context().find_root().command
    click.echo(completion_class(root, {}, "ackwright", "_ACKWRIGHT_COMPLETE").source())
    return ExitCode.OK
