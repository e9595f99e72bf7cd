"""Put together the parts that authenticate callers, for one coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peacefs.coordinator.metadata.group_commit import Commit
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.protocol.callers.verifier import Verifier
from peacefs.protocol.tokens import Signer

from .book import CredentialBook
from .delegation import DelegationTokens
from .key_file import KeyFile
from .oauth import OAuthClients
from .tokens import Tokens


@dataclass(frozen=True)
class WhoIsWho:
    """The parts that authenticate callers. Use them from one event loop only; call `tokens.begin` first."""

    verifier: Verifier
    tokens: Tokens
    clients: OAuthClients
    delegation: DelegationTokens


def who_is_who(
    reader: Reader,
    commit: Commit,
    directory: Path,
    cluster: str,
    callers: Callers,
    signer: Signer,
    *,
    wall_clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> WhoIsWho:
    """Build the parts from the records in the metadata. `directory` is the coordinator's, with the key file."""
    verifier = Verifier(cluster)
    book = CredentialBook(reader.token_records(), commit, verifier)
    tokens = Tokens(book, KeyFile(directory), cluster, callers, wall_clock)
    return WhoIsWho(
        verifier,
        tokens,
        OAuthClients(tokens, monotonic, wall_clock),
        DelegationTokens(tokens, cluster, callers, signer, wall_clock),
    )
