"""Watches of the API server, thousands at a time in one event loop.

Each is a connection, and a blocking client would need a thread for each.
"""

from __future__ import annotations

import ssl
from asyncio import sslproto
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
from kubernetes.client import Configuration
from kubernetes.client.rest import should_bypass_proxies
from yarl import URL

from ackwright.clients.compact import Object
from ackwright.clients.kubernetes import (
    ApiError,
    Kubernetes,
    error_message,
    path,
    selected,
    watch_event,
    watch_query,
)

# Bytes of the buffer that asyncio gives to each TLS connection, by default 256 KiB: 2,000 watches would take half a GiB
# for it. A TLS record has no more than this.
_TLS_BUFFER = 16 * 1024
_CONNECT_S = 3.05
_SILENT_S = 20.0  # after the end of its time a watch is broken off
_ERROR_MAX = 1 << 20  # bytes of an error's text that are read


class EventStreams:
    """The watches of one API server. For one event loop."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        """kubernetes: the connection whose address and login the watches use."""
        self._kubernetes = kubernetes
        self._session: aiohttp.ClientSession | None = None
        self._tls: dict[str, Any] = {}

    async def events(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        labels: Mapping[str, str] | None = None,
        *,
        version: str,
        seconds: float,
    ) -> AsyncGenerator[tuple[str, Object], None]:
        """The events after that version, as of Kubernetes.watch(), which raises the same."""
        url = path(api_version, kind, namespace)
        query = [*selected(labels), *watch_query(version, seconds)]
        limit = aiohttp.ClientTimeout(total=seconds + _SILENT_S, sock_connect=_CONNECT_S)
        address, headers = self._kubernetes.authorized(url, query)
        session = self._open()
        try:
            async with session.get(URL(address, encoded=True), headers=headers, timeout=limit, **self._tls) as answer:
                if answer.status >= 400:
                    text = error_message(await answer.content.read(_ERROR_MAX))
                    after = answer.headers.get("Retry-After", "")
                    wait = float(after) if after.isdigit() else None
                    raise ApiError(answer.status, f"watching {url} failed: {text}", wait)
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield watch_event(api_version, kind, url, line)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, LookupError, TypeError) as e:
            raise ApiError(None, f"watching {url} broke off: {e or type(e).__name__}") from e

    async def close(self) -> None:
        """Closes all connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            settings = self._kubernetes.settings
            sslproto.SSLProtocol.max_size = _TLS_BUFFER  # of the process; asyncio has no other setting for it
            connector = aiohttp.TCPConnector(limit=0)  # one connection for each watch
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
            self._tls = _connection_options(settings)
        return self._session


def _connection_options(settings: Configuration) -> dict[str, Any]:
    """TLS and proxy, as the settings of the blocking client have them."""
    options: dict[str, Any] = {}
    if settings.host.startswith("https:"):
        context = ssl.create_default_context(
            cafile=settings.ssl_ca_cert, cadata=getattr(settings, "ca_cert_data", None)
        )
        if not settings.verify_ssl:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if settings.assert_hostname is False:
            context.check_hostname = False
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        options["ssl"] = context
    if settings.tls_server_name:
        options["server_hostname"] = settings.tls_server_name
    if settings.proxy and not should_bypass_proxies(settings.host, settings.no_proxy or ""):
        options["proxy"] = settings.proxy
        options["proxy_headers"] = settings.proxy_headers
    return options
