"""Declares the commands for tokens, `peacefs token ...`, for administrators."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from peacefs.protocol.limits import bearer_token_default_s, granted_token_default_s

from .options import DEFAULT_COORDINATOR, Coordinator
from .presentation import printable

if TYPE_CHECKING:
    pass

tokens = typer.Typer(
    help="Create, list and revoke bearer tokens.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
clients = typer.Typer(
    help="Manage OAuth2 clients: programs that fetch their own tokens.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
tokens.add_typer(clients, name="client")

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]+(?:[.][0-9]+)?)([smhd]?)")


def _seconds(text: str | float) -> float:
    if isinstance(text, float):
        # The default value.
        return text
    found = _DURATION.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no duration such as 90s, 30m, 12h or 7d")
    return float(found[1]) * _UNITS_S[found[2] or "s"]


_User = Annotated[
    str, typer.Option("--user", "-u", metavar="USER", help="The user as whom the bearer of the token acts.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@tokens.command()
def create(
    user: _User,
    lifetime: Annotated[
        float,
        typer.Option("--ttl", metavar="DURATION", parser=_seconds, help="Lifetime: 30m, 12h, 7d."),
    ] = bearer_token_default_s,
    administrator: Annotated[
        bool,
        typer.Option(
            "--administrator",
            help="Let the token administer the cluster and act for other users. For superusers only.",
        ),
    ] = False,
    as_json: _Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Create a token and show it. It cannot be shown again.

    Keep it in a file that only you can read, and name that file with PEACEFS_TOKEN_FILE or --token-file.
    """
    from peacefs.client.control.token_administration import TokenAdministration

    with TokenAdministration(coordinator) as administration:
        made = administration.create(user, lifetime, administrator=administrator)
    if as_json:
        _print_json(made)
        return
    sys.stdout.write(f"{made.token}\n")
    sys.stdout.flush()
    sys.stderr.write(f"{made.id}: {printable(made.user)} until {_when(made.ends_ms)}\n")


@tokens.command("list")
def list_tokens(as_json: _Json = False, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """List valid tokens and signing keys. Tokens of OAuth2 clients are not listed."""
    from peacefs.client.control.token_administration import TokenAdministration

    with TokenAdministration(coordinator) as administration:
        listed = administration.listed()
    if as_json:
        _print_json(listed)
        return
    rows = [
        (each.id, each.user, each.kind + (", administrator" if each.administrator else ""), _when(each.ends_ms))
        for each in listed.tokens
    ]
    _print_table(("ID", "USER", "KIND", "GOOD UNTIL"), rows)
    sys.stdout.write("\n")
    keys = [
        (key.id, "signs" if key.ends_ms is None else f"verifies until {_when(key.ends_ms)}") for key in listed.keys
    ]
    _print_table(("KEY", ""), keys)
    if listed.revoked:
        sys.stdout.write(f"\nrevoked: {printable(', '.join(listed.revoked))}\n")


@tokens.command()
def revoke(
    token_id: Annotated[
        str, typer.Argument(metavar="ID", show_default=False, help="Token id, as `list` shows it.")
    ],
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Revoke a token.

    The coordinator refuses it at once, datanodes after a second or two.
    """
    from peacefs.client.control.token_administration import TokenAdministration

    with TokenAdministration(coordinator) as administration:
        administration.revoke(token_id)


@tokens.command("rotate-keys")
def rotate_keys(
    end_all: Annotated[
        bool, typer.Option("--end-all", help="Invalidate all tokens signed before, for example after a theft.")
    ] = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Start to sign with a new key.

    Tokens signed with earlier keys stay valid until they expire.
    """
    from peacefs.client.control.token_administration import TokenAdministration

    with TokenAdministration(coordinator) as administration:
        administration.rotate_keys(end_all=end_all)


@clients.command("create")
def create_client(
    user: _User,
    lifetime: Annotated[
        float,
        typer.Option("--token-ttl", metavar="DURATION", parser=_seconds, help="Lifetime of each token."),
    ] = granted_token_default_s,
    as_json: _Json = False,
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Create an OAuth2 client id and secret. The secret cannot be shown again."""
    from peacefs.client.control.token_administration import TokenAdministration

    with TokenAdministration(coordinator) as administration:
        made = administration.create_client(user, lifetime)
    if as_json:
        _print_json(made)
    else:
        sys.stdout.write(f"client id:     {made.id}\nclient secret: {made.secret}\n")


@clients.command("list")
def list_clients(as_json: _Json = False, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """List OAuth2 clients."""
    from peacefs.client.control.token_administration import TokenAdministration

    with TokenAdministration(coordinator) as administration:
        found = administration.clients()
    if as_json:
        _print_json(found)
        return
    rows = [(each.id, each.user, f"{each.token_seconds:g} s", _when(each.made_ms)) for each in found]
    _print_table(("CLIENT", "USER", "TOKENS LIVE", "SINCE"), rows)


@clients.command("delete")
def delete_client(
    client_id: Annotated[str, typer.Argument(metavar="CLIENT", show_default=False)],
    coordinator: Coordinator = DEFAULT_COORDINATOR,
) -> None:
    """Delete an OAuth2 client and revoke its tokens."""
    from peacefs.client.control.token_administration import TokenAdministration

    with TokenAdministration(coordinator) as administration:
        administration.delete_client(client_id)


def _when(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1000))


def _print_json(content: object) -> None:
    import msgspec

    from .listing import print_line

    print_line(msgspec.json.encode(content).decode())


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from .listing import print_line
    from .report import table

    for line in table([head, *rows], words=len(head)):
        print_line(line)
