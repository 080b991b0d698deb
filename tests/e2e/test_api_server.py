"""The API server of the tests: what stands on it is told apart by its token, and nothing of it is left."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from e2e.api_server import ApiServer
from lab import binaries


def running(directory: Path) -> list[int]:
    """Processes whose command line names the directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(directory).encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def test_it_serves_controls_access_and_is_gone_afterwards() -> None:
    with ApiServer(binaries.directory(lambda line: print(line, file=sys.stderr))) as api:
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        assert api.request("POST", accounts, {"metadata": {"name": "nobody"}})[0] == 201
        code, answer = api.request("POST", f"{accounts}/nobody/token", {"spec": {}})
        assert code == 201, answer
        token = answer["status"]["token"]
        assert api.request("GET", "/version", token=token)[0] == 200
        assert api.request("GET", "/api/v1/namespaces/default/secrets", token=token)[0] == 403
        assert api.request("GET", "/api/v1/namespaces/default/secrets", token="wrong")[0] == 401
        assert api.kubectl("auth", "can-i", "*", "*").stdout.strip() == "yes"
        directory = api.directory
        assert len(running(directory)) >= 2
    assert running(directory) == []
    assert not directory.exists()
