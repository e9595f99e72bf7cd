"""The coordinator's records of tokens: committed, without private keys, and deleted when they have expired."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from support.immediate_commit import CommitsAtOnce

from peacefs.coordinator.authentication.delegation import delegation_token_renewal_s
from peacefs.coordinator.authentication.key_file import NAME
from peacefs.coordinator.authentication.oauth import OAuthFault, wrong_secrets_max, wrong_secrets_memory_s
from peacefs.coordinator.authentication.service import WhoIsWho, who_is_who
from peacefs.coordinator.authentication.tokens import bearer_token_max_s
from peacefs.coordinator.limits import delegation_token_max_s
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.protocol.callers.caller import Caller, Via
from peacefs.protocol.errors import AccessDenied, BadRequest, FileNotFound, StartupError, Unauthenticated
from peacefs.protocol.tokens import Signer

DAY_S = 86_400.0


class World:
    """A coordinator's credentials on a real store. Time moves only on request."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_s = 1_800_000_000.0
        self.who: WhoIsWho

    async def __aenter__(self) -> World:
        self.metadata = open_store(self.directory / "metadata.sqlite", owner="hdfs")
        self.metadata.begin_epoch()
        self.who = who_is_who(
            self.metadata.reader(),
            CommitsAtOnce(self.metadata),
            self.directory,
            "c1",
            Callers("hdfs"),
            Signer(b"s" * 32),
            wall_clock=lambda: self.now_s,
            monotonic=lambda: self.now_s,
        )
        await self.who.tokens.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.metadata.close()

    def user(self, token: str) -> str:
        return self.who.verifier.bearer(token, self.now_s).caller.user


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_token_is_good_over_a_restart_and_until_it_is_revoked(world):
    async def story() -> None:
        async with world:
            made = await world.who.tokens.create("alice", 3600, is_administrator=False)
            assert world.user(made.token) == "alice"
        async with world:
            assert world.user(made.token) == "alice"
            await world.who.tokens.revoke(made.id)
        async with world:
            with pytest.raises(Unauthenticated, match="revoked"):
                world.user(made.token)
            with pytest.raises(FileNotFound):
                await world.who.tokens.revoke("unknown")

    asyncio.run(story())


def test_keys_change_without_a_break_and_old_ones_are_forgotten(world):
    async def story() -> None:
        async with world:
            tokens = world.who.tokens
            old = await tokens.create("alice", 30 * DAY_S, is_administrator=False)
            await tokens.rotate(end_all=False)
            new = await tokens.create("bob", 3600, is_administrator=False)
            assert (world.user(old.token), world.user(new.token)) == ("alice", "bob")
        async with world:
            world.now_s += 30 * DAY_S - 1
            await world.who.tokens.tidy()
            assert world.user(old.token) == "alice"
            world.now_s += 1
            await world.who.tokens.tidy()
            assert len(world.who.tokens.book.keys) == 1
            assert world.who.tokens.book.issued == {}

    asyncio.run(story())


def test_rotation_ends_all_tokens_where_it_is_told_to(world):
    async def story() -> None:
        async with world:
            old = await world.who.tokens.create("alice", DAY_S, is_administrator=False)
            await world.who.tokens.rotate(end_all=True)
            with pytest.raises(Unauthenticated):
                world.user(old.token)
            new = await world.who.tokens.create("alice", DAY_S, is_administrator=False)
            assert world.user(new.token) == "alice"

    asyncio.run(story())


def test_key_file_that_is_lost_costs_no_token(world):
    async def story() -> None:
        async with world:
            old = await world.who.tokens.create("alice", DAY_S, is_administrator=False)
        (world.directory / NAME).unlink()
        async with world:
            assert world.user(old.token) == "alice"
            assert len(world.who.tokens.book.keys) == 2

    asyncio.run(story())


def test_key_file_that_others_can_read_is_refused(world):
    async def story() -> None:
        async with world:
            pass
        assert (world.directory / NAME).stat().st_mode & 0o777 == 0o600
        (world.directory / NAME).chmod(0o640)
        with pytest.raises(StartupError, match="others than its owner may read"):
            await world.__aenter__()
        world.metadata.close()
        (world.directory / NAME).chmod(0o600)
        (world.directory / NAME).write_text("nonsense")
        with pytest.raises(StartupError, match="holds no key"):
            await world.__aenter__()
        world.metadata.close()

    asyncio.run(story())


def test_metadata_holds_neither_private_keys_nor_tokens_nor_secrets(world):
    async def story() -> None:
        async with world:
            made = await world.who.tokens.create("alice", DAY_S, is_administrator=False)
            client = await world.who.clients.create("spark", 60)
            world.metadata.catch_up()
            copy = sqlite3.connect(world.directory / "metadata.sqlite")
            said = "\n".join(copy.iterdump())
            copy.close()
            pem = (world.directory / NAME).read_text()
            assert made.id in said and client.client.id in said
            for secret in (made.token.split(".")[2], client.secret, *pem.split("\n")[1:-2]):
                assert secret not in said
                assert secret.encode().hex().upper() not in said.upper()

    asyncio.run(story())


def test_administrators_token_is_for_superusers_alone(world):
    async def story() -> None:
        async with world:
            with pytest.raises(BadRequest, match="alice is no superuser"):
                await world.who.tokens.create("alice", DAY_S, is_administrator=True)
            made = await world.who.tokens.create("hdfs", DAY_S, is_administrator=True)
            assert world.who.verifier.bearer(made.token, world.now_s).caller.is_administrator
            for lifetime_s in (0, bearer_token_max_s + 1):
                with pytest.raises(BadRequest, match="the lifetime of a token must be from"):
                    await world.who.tokens.create("alice", lifetime_s, is_administrator=False)

    asyncio.run(story())


def test_client_is_granted_tokens_for_its_secret_until_it_is_deleted(world):
    async def story() -> None:
        async with world:
            made = await world.who.clients.create("spark", 60)
            granted = await world.who.clients.by_secret(made.client.id, made.secret, "10.0.0.1")
            assert (world.user(granted.token), granted.expires_in) == ("spark", 60)
        async with world:
            again = await world.who.clients.by_secret(made.client.id, made.secret, "10.0.0.1")
            await world.who.clients.delete(made.client.id)
            for token in (granted.token, again.token):
                with pytest.raises(Unauthenticated, match="revoked"):
                    world.user(token)
            with pytest.raises(OAuthFault):
                await world.who.clients.by_secret(made.client.id, made.secret, "10.0.0.1")

    asyncio.run(story())


def test_client_whose_secret_is_guessed_is_not_locked_out(world):
    async def story() -> None:
        async with world:
            clients = world.who.clients
            made = await clients.create("spark", 60)
            await clients.by_secret(made.client.id, made.secret, "10.0.0.1")
            for _ in range(wrong_secrets_max):
                with pytest.raises(OAuthFault) as wrong:
                    await clients.by_secret(made.client.id, "a guess", "10.6.6.6")
                assert (wrong.value.status, wrong.value.error) == (401, "invalid_client")
            with pytest.raises(OAuthFault) as told_to_wait:
                await clients.by_secret("another", "a guess", "10.6.6.6")
            assert told_to_wait.value.status == 429
            # Refused from elsewhere, and, once it has shown its secret, also from the same address.
            for address in ("10.0.0.1", "10.6.6.6"):
                assert (await clients.by_secret(made.client.id, made.secret, address)).token
            world.now_s += wrong_secrets_memory_s
            with pytest.raises(OAuthFault) as may_guess_again:
                await clients.by_secret("another", "a guess", "10.6.6.6")
            assert may_guess_again.value.status == 401

    asyncio.run(story())


def test_token_is_granted_again_no_longer_than_it_lives(world):
    async def story() -> None:
        async with world:
            made = await world.who.tokens.create("alice", 100, is_administrator=False)
            world.now_s += 40
            granted = world.who.clients.by_token(made.token)
            assert (granted.token, granted.expires_in) == (made.token, 60)
            world.now_s += 60
            with pytest.raises(OAuthFault, match="expired"):
                world.who.clients.by_token(made.token)

    asyncio.run(story())


def test_delegation_token_is_renewed_by_its_renewer_and_no_longer_than_it_may(world):
    async def story() -> None:
        async with world:
            delegation, alice = world.who.delegation, Caller("alice", Via.BEARER)
            token = await delegation.give(alice, "alice", "yarn", "")
            assert delegation.caller(token).user == "alice"
            with pytest.raises(AccessDenied, match="alice tries to renew a token with renewer yarn"):
                await delegation.renew("alice", token)
            ends_ms = int((world.now_s + delegation_token_max_s) * 1000)
            while await delegation.renew("yarn", token) < ends_ms:
                world.now_s += delegation_token_renewal_s / 2
            world.now_s = ends_ms / 1000
            with pytest.raises(Unauthenticated):
                delegation.caller(token)

    asyncio.run(story())


def test_delegation_token_that_nobody_renews_ends(world):
    async def story() -> None:
        async with world:
            token = await world.who.delegation.give(Caller("alice", Via.BEARER), "alice", "", "")
            world.now_s += delegation_token_renewal_s
            with pytest.raises(Unauthenticated, match="not renewed in time"):
                world.who.delegation.caller(token)
            await world.who.tokens.tidy()
            assert world.who.tokens.book.delegations == {}

    asyncio.run(story())


def test_delegation_token_is_cancelled_by_those_who_may_and_outlives_a_restart(world):
    async def story() -> None:
        async with world:
            token = await world.who.delegation.give(Caller("alice", Via.BEARER), "alice", "yarn", "")
            with pytest.raises(AccessDenied, match="only with a bearer token"):
                await world.who.delegation.give(world.who.delegation.caller(token), "alice", "yarn", "")
        async with world:
            assert world.who.delegation.caller(token).user == "alice"
            with pytest.raises(AccessDenied, match="bob is not authorized"):
                await world.who.delegation.cancel("bob", token)
            await world.who.delegation.cancel("yarn", token)
            with pytest.raises(Unauthenticated, match="revoked"):
                world.who.delegation.caller(token)

    asyncio.run(story())
