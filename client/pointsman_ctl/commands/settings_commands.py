"""The command ``settings``: what operators set at name servers, as a file and from one name server to others."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import click
from rich.text import Text

from pointsman.wire.operator_texts import counted
from pointsman_ctl.commands.settings_copy import (
    KINDS,
    MAX_FILE_BYTES,
    copy_settings,
    read_file,
    settings_of,
    stored,
    to_file,
)
from pointsman_ctl.options.command_options import CommandGroup, Consent, change_options, read_addr
from pointsman_ctl.options.invocation import Invocation, pass_invocation
from pointsman_ctl.output.error_report import EXIT_FAILED, EXIT_OK, ErrorReport, nodes_failed
from pointsman_ctl.output.node_difference import setting_differences
from pointsman_ctl.servers.name_servers import PointsmanNameServer


@click.group(cls=CommandGroup)
def settings() -> None:
    """Copy operators' settings to a file or to name servers.

    \b
    Examples:
      pointsmanctl settings dump settings.json
      pointsmanctl --namesrv ns3:9876 settings restore --from ns1:9876
    """


@settings.command("dump")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@pass_invocation
def settings_dump(invocation: Invocation, file: Path) -> int:
    """Write the settings of a name server to FILE.

    These are KV configuration with order topics, guard modes, maintenance windows, wiped write permissions and hidden
    topics. FILE is replaced as a whole; - is standard output. From the first server that responds; exits 1 if another
    one differs or did not respond, after FILE is written.

    \b
    JSON: {file, source, settingCount, differing[]}

    \b
    Examples:
      pointsmanctl settings dump settings.json
      pointsmanctl --namesrv ns1:9876 settings dump - | jq '.settings[].kind'
    """
    nodes = invocation.query_every(PointsmanNameServer.settings)
    found = {node.addr: node.response for node in nodes if node.response is not None}
    if not found:
        return invocation.finish(nodes, {}, [])
    source, ours = next(iter(found.items()))
    now = datetime.now(UTC)
    text = to_file(stored(ours, now=now), source=source, now=now)
    differing = [each.label for each in setting_differences(found)]
    if str(file) == "-":
        click.echo(text, nl=False)
    else:
        try:
            _replace(file, text)
        except OSError as error:
            report = ErrorReport("FILE_NOT_WRITTEN", f"{file} cannot be written: {error.strerror}")
            return invocation.fail(report)
        document = {"file": str(file), "source": source, "settingCount": len(ours), "differing": differing}
        invocation.show(document, [Text(f"{counted(len(ours), 'setting')} of {source} written to {file}")])
    if differing:
        where = ", ".join(found)
        hint = f"compare them with `pointsmanctl diff`, or make them equal: `settings restore --from {source}`"
        invocation.warn("NODES_DIFFER", f"{counted(len(differing), 'setting')} differ between {where}", hint)
    failures = {node.addr: node.failure for node in nodes if node.failure is not None}
    if failures:
        return invocation.fail(nodes_failed(failures, of=[node.addr for node in nodes], is_change=False))
    return EXIT_FAILED if differing else EXIT_OK


def _replace(file: Path, text: str) -> None:
    """Write a file that is whole or not there. Raises OSError."""
    partial = file.with_name(f"{file.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def read_source(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Read the address of --from; empty: not given."""
    return "" if value is None else read_addr(ctx, param, value)


@settings.command("restore")
@click.argument("file", type=click.File("rb"), required=False)
@click.option("--from", "source", callback=read_source, metavar="HOST:PORT", help="Copy from this name server.")
@click.option("--diff", is_flag=True, help="As --dry-run.")
@change_options
@pass_invocation
def settings_restore(invocation: Invocation, file: BinaryIO | None, source: str, diff: bool, consent: Consent) -> int:
    """Set what FILE, or another name server, has.

    For a new name server, or one that lost its disk. Shows what differs at each server listed, and you must confirm
    (without a terminal: --yes). Sets KV configuration with order topics, guard modes, maintenance windows and wiped
    write permissions, the last three with their remaining time. A server rejects guards of clusters and permissions of
    brokers that have not registered there yet: run the command again when they have. Settings that only the server
    itself has are listed and kept. Hidden topics are not copied. Sent to all servers listed; exits 1 if one failed or
    rejected a setting. Repeating it is safe.

    \b
    JSON: {dryRun, plan[], notCopied[], servers[]}
          plan[]: {addr, changes[].{kind, name[], before, after}, ended[],
          kept[]} or {addr, error}; before, after: {value, remainingSeconds}
          servers[]: {addr, changed, set, failed[].{setting, message}} or
          {addr, error}

    \b
    Examples:
      pointsmanctl --namesrv ns3:9876 settings restore --from ns1:9876
      pointsmanctl --namesrv ns3:9876 settings restore --from ns1:9876 --dry-run

    \b
    From a file of `settings dump`:
      pointsmanctl --namesrv ns3:9876 settings restore settings.json --diff
    """
    if (file is None) == (not source):
        raise click.UsageError("give FILE or --from HOST:PORT")
    if diff:
        consent = Consent(consent.by, consent.yes, dry_run=True)
    if file is None:
        return copy_settings(invocation, settings_of(invocation, source), KINDS, consent, source=source)
    content = file.read(MAX_FILE_BYTES + 1)
    return copy_settings(invocation, read_file(content, source=file.name), KINDS, consent)
