"""Logins to a REST catalog: tokens of OAuth 2, a bearer token, signatures of AWS. Job and audit share it."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Any

import requests
from pyiceberg import exceptions
from pyiceberg.catalog.rest.auth import AuthManager

from ackwright_stream.secret_files import read_token

CONNECT_S = 10.0
_TOKEN_FOR_S = 300.0  # if its server does not say
_TOKEN_MARGIN_S = 30.0


class ClientCredentials(AuthManager):
    """Tokens of OAuth 2 for a client with an id and a secret (RFC 6749, 4.4)."""

    def __init__(self, login: tuple[str, str], uri: str, scope: str, ca: str | None, timeout_s: float) -> None:
        self._login, self._uri, self._scope, self._ca = login, uri, scope, ca
        self._timeout = (CONNECT_S, timeout_s)
        self._lock = threading.Lock()
        self._token, self._until = "", 0.0

    def auth_header(self) -> str:
        """As in AuthManager. Raises OAuthError if the login is refused."""
        with self._lock:
            if time.monotonic() > self._until:
                self._token, self._until = self._fetch()
            return f"Bearer {self._token}"

    def forget(self) -> None:
        """Makes the next request use a new token: this one was revoked."""
        with self._lock:
            self._until = 0.0

    def _fetch(self) -> tuple[str, float]:
        """A token, and until when it is used."""
        client, secret = self._login
        form = {"grant_type": "client_credentials", "client_id": client, "client_secret": secret, "scope": self._scope}
        answer = requests.post(self._uri, data=form, timeout=self._timeout, verify=self._ca or True)
        if answer.status_code in (400, 401, 403):
            raise exceptions.OAuthError(f"{self._uri} answers {answer.status_code}")
        answer.raise_for_status()
        token = answer.json()
        lifetime = float(token.get("expires_in") or _TOKEN_FOR_S)
        return str(token["access_token"]), time.monotonic() + max(0.0, lifetime - _TOKEN_MARGIN_S)


class BearerToken(AuthManager):
    """A token in a file, which somebody else renews."""

    def __init__(self, file: str) -> None:
        self._file = file

    def auth_header(self) -> str:
        """As in AuthManager. Raises JobError(SINK_LOGIN_REFUSED) without the file."""
        return f"Bearer {read_token(self._file, 'sink.iceberg.catalog')}"


class Signer:
    """Signs requests as AWS requires (Signature Version 4)."""

    def __init__(self, service: str, region: str, login: tuple[str, str] | None, timeout_s: float) -> None:
        """login: the access key's id and its secret; None: the identity of the pod, which is looked up."""
        from botocore.config import Config  # late: no other login needs it
        from botocore.session import Session

        self._service, self._region = service, region
        session = Session()
        # Of the requests for the identity's keys.
        session.set_default_client_config(
            Config(connect_timeout=CONNECT_S, read_timeout=timeout_s, retries={"max_attempts": 0})
        )
        if login is not None:
            session.set_credentials(*login)
        self._session = session

    def sign(self, request: requests.PreparedRequest) -> None:
        """Adds the headers of a signature, which holds for a few minutes.

        Raises UnauthorizedError if the pod has no identity.
        """
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        body: Any = request.body or b""  # pyiceberg sends no streams
        content = body.encode() if isinstance(body, str) else body
        # Only headers that no proxy changes; the signature adds the host and the time.
        headers: dict[str, Any] = {"X-Amz-Content-SHA256": hashlib.sha256(content).hexdigest()}
        if kind := request.headers.get("Content-Type"):
            headers["Content-Type"] = kind
        signed = AWSRequest(method=request.method, url=request.url, data=content, headers=headers)
        SigV4Auth(self._keys(), self._service, self._region).add_auth(signed)
        request.headers.update(dict(signed.headers))

    def _keys(self) -> Any:
        """The keys, which the session renews before they expire."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            keys = self._session.get_credentials()
            if keys is not None:
                return keys.get_frozen_credentials()
        except (BotoCoreError, ClientError) as e:
            raise exceptions.UnauthorizedError(f"the identity of the pod has no keys of AWS: {e}") from None
        raise exceptions.UnauthorizedError(
            "the pod has no identity of AWS; give its service account a role, or set credentialsSecret"
        )
