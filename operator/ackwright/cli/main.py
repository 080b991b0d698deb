"""The command line: loads commands, and turns failures into one sentence and an exit code (docs/exit-codes.md)."""

from __future__ import annotations

import difflib
import gc
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from ackwright.cli.examples import epilog
from ackwright.cli.failures import (
    INTERRUPTED,
    UNSET_VARIABLE,
    Error,
    Failures,
    colors,
    emit_errors,
    errors_of,
    print_errors,
)
from ackwright.errors import AckwrightError
from ackwright_stream.reasons import ExitCode, Reason

# By command: its module and one line of help. Modules are imported on demand: `plan` does not wait for Kafka clients.
COMMANDS = {
    "plan": ("ackwright.cli.plan", "Show what a pipeline compiles to, each setting with its reason."),
    "explain": ("ackwright.cli.explain", "Show, link by link, what keeps the guarantee, and the weakest link."),
    "check": ("ackwright.cli.check", "Check whether brokers are ready for pipelines, with a remedy for each problem."),
    "diff": ("ackwright.cli.diff", "Show what applying a file would change: the resource in the cluster, and topics."),
    "run": ("ackwright.cli.run", "Run one pipeline on this machine."),
    "audit": ("ackwright.cli.audit", "Count lost and duplicated records, independently of the job."),
    "status": ("ackwright.cli.status", "Show the state of a pipeline in a cluster."),
    "top": ("ackwright.cli.top", "Show the pipelines of all namespaces; those that need attention come first."),
    "console": ("ackwright.cli.console", "Show the pipelines of a cluster in the browser, read only."),
    "logs": ("ackwright.cli.lifecycle", "Show the log of a pipeline's driver."),
    "suspend": ("ackwright.cli.lifecycle", "Stop a pipeline in a cluster: it drains and keeps its positions."),
    "resume": ("ackwright.cli.lifecycle", "Resume a suspended pipeline."),
    "accept-topic": (
        "ackwright.cli.accept_topic",
        "Accept the loss of a deleted topic, and continue with the new topic of that name.",
    ),
    "accept-positions": (
        "ackwright.cli.accept_positions",
        "Accept offsets that another program has set, and continue from them.",
    ),
    "accept-state-loss": (
        "ackwright.cli.accept_state_loss",
        "Accept that the state of a stateful pipeline is lost, and continue with an empty one.",
    ),
    "support-bundle": (
        "ackwright.cli.support_bundle",
        "Collect what a supporter needs to see, without secrets.",
    ),
    "operator": ("ackwright.cli.operator", "Run the operator."),
    "demo": ("ackwright.cli.demo", "Deliver real records under each guarantee while brokers and processes are killed."),
    "completion": ("ackwright.cli.completion", "Print the shell code that completes commands and options."),
}

# New objects before the garbage collector runs. With Python's 700 it runs hundreds of times while modules are imported,
# which create no garbage: a fifteenth of the time of `plan`.
_ALLOCATIONS = 50_000
_NO_VALUE = "requires an argument."  # the end of click's message for an option whose value is missing


def _be_verbose(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.find_root().ensure_object(Failures).verbose = True


def _verbose_option() -> click.Option:
    return click.Option(
        ["-v", "--verbose"],
        is_flag=True,
        expose_value=False,
        callback=_be_verbose,
        is_eager=True,
        help="Show stack traces of failures.",
    )


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command. Raises UsageError with the command that a misspelt name resembles."""
        name = click.utils.make_str(args[0])
        nearest = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.5)
        if name not in COMMANDS and not name.startswith("-") and nearest:
            ctx.fail(f"No such command '{name}'; did you mean {nearest[0]}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), cmd_name.replace("-", "_"))
        if all("--verbose" not in p.opts for p in command.params):
            command.params.append(_verbose_option())
        command.epilog = epilog(cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands' names and help lines, without importing a command."""
        items = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return items or super(click.Group, self).shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _print_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version  # takes as long as click itself

    try:
        number = version("ackwright")
    except PackageNotFoundError:
        number = "unknown"
    click.echo(f"ackwright, version {number}")
    context.exit()


def _version_option() -> click.Option:
    return click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        callback=_print_version,
        is_eager=True,
        help="Show the version and exit.",
    )


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[_verbose_option(), _version_option()],
    epilog="\b\nExample:\n  ackwright plan -f pipeline.yaml",
)
def cli() -> None:
    """From Kafka through Spark to a sink, with a declared delivery guarantee that is enforced and proven."""


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Failures are printed on stderr, with a stack trace only after -v."""
    failures = Failures()
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments),
            prog_name="ackwright",
            standalone_mode=False,
            obj=failures,
            color=colors(),
        )
        sys.stdout.flush()
        return int(result) if isinstance(result, int) else ExitCode.OK
    except click.ClickException as e:
        error = _with_remedy(e, sys.argv[1:] if arguments is None else arguments)
        if failures.output == "table":
            error.show()
        else:
            emit_errors([{"reason": "Usage", "message": error.format_message()}], failures.output)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has ended; the interpreter must not flush it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except AckwrightError as e:
        return _report(failures, errors_of(e), e.exit_code)
    except Exception as e:
        message = f"{type(e).__name__}: {e}; run again with -v for the stack trace"
        return _report(failures, [{"reason": Reason.UNEXPECTED.value, "message": message}], ExitCode.FAILED)


def _with_remedy(error: click.ClickException, arguments: Sequence[str]) -> click.ClickException:
    """The error; if an option has no value with the likely cause, and if a file was named without -f with that file."""
    if isinstance(error, click.BadOptionUsage) and error.message.endswith(_NO_VALUE):
        return click.BadOptionUsage(error.option_name, f"{error.message[:-1]}; {UNSET_VARIABLE}", error.ctx)
    files = [argument for argument in arguments if argument.endswith((".yaml", ".yml"))]
    if (
        not isinstance(error, click.MissingParameter)
        or error.param is None
        or "-f" not in error.param.opts
        or not files
    ):
        return error
    return click.MissingParameter(f"Write -f {files[0]}.", error.ctx, error.param)


def _report(failures: Failures, errors: Sequence[Error], code: ExitCode) -> int:
    if failures.verbose:
        traceback.print_exc(file=sys.stderr)
    if failures.output == "table":
        print_errors(errors)
    else:
        emit_errors(errors, failures.output)
    return failures.exit_code if code is ExitCode.FAILED else code


def main() -> None:
    """The console entry point."""
    gc.set_threshold(_ALLOCATIONS)
    sys.exit(invoke())
