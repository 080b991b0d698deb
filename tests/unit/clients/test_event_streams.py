"""Watches by TLS: which server they trust, and that thousands of them take little memory."""

from __future__ import annotations

import asyncio
import json
import ssl
from asyncio import sslproto
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ackwright.clients.event_streams import EventStreams
from ackwright.clients.kubernetes import ApiError, connect
from ackwright.local import certificates
from unit.clients.kubeconfig import kubeconfig

_EVENT = b'{"type": "ADDED", "object": {"metadata": {"name": "c"}}}\n'
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(_EVENT), _EVENT)
ADDED = ("ADDED", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c"}})


@asynccontextmanager
async def server(directory: Path) -> AsyncIterator[str]:
    """Yields the address of a server that returns one event to each watch."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "broker.crt", directory / "broker.key")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_ANSWER)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as listening:
        yield f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def streams(directory: Path, url: str, ca_file: Path) -> EventStreams:
    file = Path(kubeconfig(directory, url))
    config = json.loads(file.read_text())
    config["clusters"][0]["cluster"]["certificate-authority"] = str(ca_file)
    file.write_text(json.dumps(config))
    return EventStreams(connect(str(file)))


async def watched(watches: EventStreams) -> list[object]:
    try:
        return [event async for event in watches.events("v1", "Pod", "ops", version="7", seconds=9)]
    finally:
        await watches.close()


@pytest.mark.parametrize("authority", ["own", "other"])
def test_only_a_server_of_the_trusted_authority_is_read(tmp_path: Path, authority: str) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        certificates.create(tmp_path / name)

    async def main() -> list[object]:
        async with server(tmp_path / "own") as url:
            return await watched(streams(tmp_path, url, tmp_path / authority / "ca.crt"))

    if authority == "own":
        assert asyncio.run(main()) == [ADDED]
    else:
        with pytest.raises(ApiError, match="certificate verify failed"):
            asyncio.run(main())


def test_the_buffer_of_a_watch_holds_one_tls_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default asyncio allocates 256 KiB for each connection."""
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", 256 * 1024)
    certificates.create(tmp_path)

    async def main() -> int:
        async with server(tmp_path) as url:
            await watched(streams(tmp_path, url, tmp_path / "ca.crt"))
        return sslproto.SSLProtocol.max_size

    assert asyncio.run(main()) == 16 * 1024
