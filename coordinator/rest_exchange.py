"""REST for what WebHDFS has no word for: names that trade what they name, all at once."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI
from pydantic import BaseModel, Field

from peacefs.protocol.limits import exchange_pairs_max

from .names import Names


class ExchangeBody(BaseModel):
    """Pairs of names, each of one directory. With a request id it is done once."""

    pairs: Annotated[list[tuple[str, str]], Field(min_length=1, max_length=exchange_pairs_max)]
    user: str
    request_id: str = ""


def add_exchange_route(app: FastAPI, names: Names) -> None:
    """Adds `POST /v1/exchanges` to the application."""

    @app.post("/v1/exchanges")
    async def exchange(body: ExchangeBody) -> dict[str, str]:
        """Each name then names what the other of its pair did, files or trees; one commit."""
        await names.exchange(body.pairs, body.user, body.request_id)
        return {}
