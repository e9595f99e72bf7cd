"""The OAuth2 token endpoint (RFC 6749), where programs, such as Hadoop's client, fetch their access tokens."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import parse_qsl, unquote_plus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from peacefs.coordinator.authentication.oauth import GrantedToken, OAuthClients, OAuthFault

TOKEN_PATH = "/v1/oauth2/token"
_FIELDS_MAX = 16
_HEADERS = {"Cache-Control": "no-store", "Pragma": "no-cache"}


def add_token_endpoint(app: FastAPI, clients: OAuthClients) -> None:
    """Add `POST /v1/oauth2/token`. Its errors have the form of the RFC and are not RemoteExceptions."""

    @app.post(
        TOKEN_PATH,
        responses={200: {"description": "`access_token`, `token_type` and `expires_in`."}},
        openapi_extra={"requestBody": {"content": {"application/x-www-form-urlencoded": {}}}},
    )
    async def token(request: Request) -> JSONResponse:
        """Grant an access token for `grant_type=client_credentials`, or `refresh_token` with a bearer token."""
        try:
            granted = await _grant(clients, request)
        except OAuthFault as fault:
            headers = dict(_HEADERS)
            if fault.status == 401:
                headers["WWW-Authenticate"] = 'Basic realm="peacefs"'
            body = {"error": fault.error, "error_description": fault.description}
            return JSONResponse(body, fault.status, headers)
        answer = {"access_token": granted.token, "token_type": "Bearer", "expires_in": granted.expires_in}
        return JSONResponse(answer, headers=_HEADERS)


async def _grant(clients: OAuthClients, request: Request) -> GrantedToken:
    form = _form(await request.body(), request.headers.get("content-type", ""))
    address = request.client.host if request.client else "the local socket"
    grant = form.get("grant_type")
    if grant == "client_credentials":
        client_id, secret = _credentials(form, request.headers.get("authorization"))
        return await clients.by_secret(client_id, secret, address)
    if grant == "refresh_token":
        return clients.by_token(_wanted(form, "refresh_token"))
    _wanted(form, "grant_type")
    raise OAuthFault("unsupported_grant_type", "grant_type must be client_credentials or refresh_token")


def _form(body: bytes, content_type: str) -> dict[str, str]:
    if content_type.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise OAuthFault("invalid_request", "the body must be application/x-www-form-urlencoded")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True, max_num_fields=_FIELDS_MAX)
    except ValueError:
        raise OAuthFault("invalid_request", "the body is no form") from None
    form = dict(fields)
    if len(form) != len(fields):
        raise OAuthFault("invalid_request", "a field appears twice")
    return form


def _credentials(form: dict[str, str], authorization: str | None) -> tuple[str, str]:
    """Return a client's id and secret, from the form or from the header (RFC 6749, 2.3.1)."""
    if authorization is not None and authorization[:6].lower() == "basic ":
        try:
            name, _, secret = base64.b64decode(authorization[6:], validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise OAuthFault("invalid_request", "the header Authorization cannot be read") from None
        return unquote_plus(name), unquote_plus(secret)
    return _wanted(form, "client_id"), _wanted(form, "client_secret")


def _wanted(form: dict[str, str], name: str) -> str:
    value = form.get(name)
    if not value:
        raise OAuthFault("invalid_request", f"{name} is missing")
    return value
