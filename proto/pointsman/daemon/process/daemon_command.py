"""Common parts of the daemons' command lines: ``--config``, ``config``, ``certs``, ``token``, exit codes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import click

from pointsman.clock import SystemClock
from pointsman.config import ConfigError
from pointsman.daemon.access.token_file import add_line, new_token
from pointsman.daemon.entry_file import EntryFileError
from pointsman.daemon.process.daemon_process import EXIT_BAD_CONFIGURATION, EXIT_FAILED, EXIT_FORCED, EXIT_OK, LOOPS

ConfigT = TypeVar("ConfigT")

CONTEXT: Mapping[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 80}
LOOP = click.Choice(LOOPS)

NEW_IDENTITY_HELP = """\
Create a token for NAME, an identity in [[access.grants]].

Prints the token, which is stored nowhere, and the line for the file access.tokens. With --add-to the line is
added to that file (created if it is missing), and only the token is printed.

\b
Example:
  {name} token ops --add-to tokens > ops.token
"""

config_option = click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Configuration, TOML.")


def version_option(name: str, version: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--version``."""
    return click.version_option(version, prog_name=name, message="%(prog)s %(version)s")


@dataclass(frozen=True, slots=True)
class Given:
    """The command line as it was given."""

    file: Path | None
    flags: Mapping[str, object]
    """Value, or None, by ``section.key``, as for :func:`pointsman.config.load`."""
    others: Mapping[str, Any]
    """Options that are not settings."""


@dataclass(frozen=True, slots=True)
class Daemon(Generic[ConfigT]):
    """A program that runs with a configuration until it is stopped."""

    name: str
    version: str
    help: str
    epilog: str
    options: Sequence[click.Option]
    """Options. One named ``section__key`` overrides that setting."""
    load: Callable[[Path | None, Mapping[str, str], Mapping[str, object]], ConfigT]
    """Loads from a file, the environment and flags. Raises ConfigError."""
    to_toml: Callable[[ConfigT], str]
    prepare: Callable[[ConfigT, Given], Callable[[], int]]
    """Returns the function that runs the program; opens nothing yet. Raises ConfigError."""
    needs_file: bool = False
    has_tokens: bool = True
    """Whether callers can authenticate with tokens, so that there is the command ``token``."""

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command line and return its exit code."""
        return run(self.command(), arguments)

    def command(self) -> click.Group:
        """Build the command line."""

        @click.group(
            self.name, help=self.help, epilog=self.epilog, invoke_without_command=True, context_settings=CONTEXT
        )
        @config_option
        @version_option(self.name, self.version)
        @click.pass_context
        def root(ctx: click.Context, /, config: Path | None, **options: object) -> int:
            flags = {name.replace("__", "."): value for name, value in options.items() if "__" in name}
            ctx.obj = Given(config, flags, {name: value for name, value in options.items() if "__" not in name})
            return EXIT_OK if ctx.invoked_subcommand else self._prepared(ctx.obj)[1]()

        @root.group("config", no_args_is_help=False)
        def config_commands() -> None:
            """Check or print the configuration."""

        @config_commands.command
        @config_option
        @click.pass_obj
        def check(given: Given, config: Path | None) -> None:
            """Report all configuration errors; exit 2 if any."""
            self._prepared(given, config)
            click.echo(f"{config or given.file or 'configuration'}: ok")

        @config_commands.command("print")
        @config_option
        @click.pass_obj
        def print_(given: Given, config: Path | None) -> None:
            """Print every setting with the value that applies, as TOML."""
            click.echo(self.to_toml(self._prepared(given, config)[0]).rstrip())

        @root.group("certs", no_args_is_help=False)
        def certs_commands() -> None:
            """Check the certificates."""

        @certs_commands.command("check")
        @config_option
        @click.option("--days", type=click.FloatRange(0), default=14, show_default=True, help="Minimum days left.")
        @click.option("--ca", type=click.Path(path_type=Path), metavar="FILE", help="CA that must have issued them.")
        @click.option("--output", "-o", type=click.Choice(("table", "json")), default="table", show_default=True)
        @click.pass_obj
        def check_certificates(given: Given, config: Path | None, days: float, ca: Path | None, output: str) -> int:
            """Check the TLS files of the configuration: readable, matching, names, days left.

            Exit 1 if any cannot be used or expires within --days.
            """
            given = self._with_file(given, config)
            return _check_certificates(self.load(given.file, os.environ, given.flags), days, ca, output)

        @click.command(help=NEW_IDENTITY_HELP.format(name=self.name))
        @click.argument("name")
        @click.option(
            "--add-to", type=click.Path(path_type=Path), metavar="FILE", help="Add the line to this file of tokens."
        )
        def token(name: str, add_to: Path | None) -> None:
            _print_new_token(name, add_to)

        if self.has_tokens:
            root.add_command(token)
        root.params[1:1] = self.options
        return root

    def _prepared(self, given: Given, file: Path | None = None) -> tuple[ConfigT, Callable[[], int]]:
        given = self._with_file(given, file)
        config = self.load(given.file, os.environ, given.flags)
        return config, self.prepare(config, given)

    def _with_file(self, given: Given, file: Path | None) -> Given:
        given = replace(given, file=file or given.file)
        if self.needs_file and given.file is None:
            raise click.UsageError("--config FILE is required")
        return given


def _check_certificates(config: object, days: float, ca: Path | None, output: str) -> int:
    # `cryptography` is slow to import, and most commands do not need it.
    from pointsman.daemon.tls.certificate_files import BadCertificate  # noqa: PLC0415
    from pointsman.daemon.tls.certificate_report import check_files, table  # noqa: PLC0415

    try:
        rows = check_files(config, now=SystemClock().utc_now(), days=days, ca=ca)
    except BadCertificate as error:
        raise click.UsageError(f"--{error}") from error
    ok = not any(row.problems for row in rows)
    if output == "json":
        click.echo(json.dumps({"ok": ok, "files": [row.as_json() for row in rows]}, indent=2))
    else:
        click.echo(table(rows) if rows else "the configuration names no certificates: listeners use plaintext")
    return EXIT_OK if ok else EXIT_FAILED


def _print_new_token(name: str, add_to: Path | None) -> None:
    try:
        made = new_token(name)
        if add_to is not None:
            add_line(add_to, made.line)
    except (ValueError, EntryFileError) as error:
        raise click.ClickException(str(error)) from error
    if add_to is not None:
        click.echo(made.token)
    else:
        click.echo(f"token (shown this once): {made.token}\nline for the file:       {made.line}")


def run(command: click.Command, arguments: Sequence[str] | None) -> int:
    """Run a command line and return its exit code; an error of usage or configuration is on standard error."""
    try:
        code = command.main(args=arguments, prog_name=command.name, standalone_mode=False)
    except click.ClickException as error:
        ctx = error.ctx if isinstance(error, click.UsageError) else None
        path = ctx.command_path if ctx else command.name
        message = error.format_message()
        end = "" if message.endswith((".", "?")) else "."
        click.echo(f"{command.name}: {message}{end} See `{path} --help`.", err=True)
        return EXIT_BAD_CONFIGURATION
    except ConfigError as error:
        click.echo("\n".join(error.problems), err=True)
        return EXIT_BAD_CONFIGURATION
    except click.Abort:
        return EXIT_FORCED
    return code if isinstance(code, int) else EXIT_OK
