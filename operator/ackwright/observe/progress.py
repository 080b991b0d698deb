"""Reads the progress that drivers report over HTTP. Reads only.

A driver runs its author's code, so what it answers is limited: by time, by size, and to one request. A driver that is
slow or silent delays other such drivers only.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import aiohttp

from ackwright_stream.reports import ProgressReport

PROGRESS_MAX = 1 << 21  # bytes, enough for about 50,000 partitions
_TIMEOUT_S = 2.0  # of a whole request, connecting included
_PROMPT_S = 0.5  # a driver that takes longer, or gives no report, counts as slow
_REQUESTS, _REQUESTS_OF_SLOW = 64, 16  # at once
_KNOWN_SLOW = 10_000  # addresses that are remembered as slow


class ProgressReader:
    """Reads reports in one event loop."""

    def __init__(self, timeout: float = _TIMEOUT_S, clock: Callable[[], float] = time.monotonic) -> None:
        """timeout: seconds that a whole request may take."""
        self._timeout, self._clock = timeout, clock
        self._session: aiohttp.ClientSession | None = None
        self._prompt, self._slow = asyncio.Semaphore(_REQUESTS), asyncio.Semaphore(_REQUESTS_OF_SLOW)
        self._slow_addresses: dict[str, None] = {}  # in the order in which they became slow

    async def read(self, address: str) -> ProgressReport | None:
        """The progress that the driver at this address reports; None without a report in time.

        Waits while too many other requests are under way.
        """
        async with self._slow if address in self._slow_addresses else self._prompt:
            started = self._clock()
            report = await self._request(address)
        self._slow_addresses.pop(address, None)
        if report is None or self._clock() - started > _PROMPT_S:
            self._slow_addresses[address] = None
            if len(self._slow_addresses) > _KNOWN_SLOW:
                del self._slow_addresses[next(iter(self._slow_addresses))]
        return report

    async def close(self) -> None:
        """Closes all connections."""
        if self._session is not None:
            await self._session.close()

    async def _request(self, address: str) -> ProgressReport | None:
        if self._session is None:
            # No proxy, which could not reach pods; no cookies, no second connection, and nothing that is decompressed.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._session.get(f"http://{address}/progress", allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    return None
                return ProgressReport.of_json(json.loads(await _limited(answer.content)))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError, RecursionError):
            return None


async def _limited(content: aiohttp.StreamReader) -> bytes:
    """The body of an answer. Raises ValueError if it is too long."""
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > PROGRESS_MAX:
            raise ValueError("too long")
    return bytes(body)
