"""ackwright completion: what makes a shell complete commands, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ackwright_stream.jobspec import ExitCode

_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(*, shell: str) -> int:
    """Print what makes a shell complete commands, options and their values.

    \b
    bash:  source <(ackwright completion bash)              in ~/.bashrc
    zsh:   source <(ackwright completion zsh)               in ~/.zshrc, after compinit
    fish:  ackwright completion fish > ~/.config/fish/completions/ackwright.fish
    """
    found = get_completion_class(shell)
    assert found is not None, shell  # noqa: S101  it is one of click's own
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "ackwright", "_ACKWRIGHT_COMPLETE").source())
    return ExitCode.OK
