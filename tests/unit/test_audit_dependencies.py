"""make audit-deps: a known vulnerability fails; an audit without a result is reported, and fails only with --strict."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import audit_dependencies
from ackwright.local.ports import free_ports

PACKAGES = [
    {"name": "fine", "version": "1.0", "vulns": []},
    {"name": "bad", "version": "2.0", "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.1"]}]},
    {"name": "elsewhere", "skip_reason": "not of this platform"},
]
# Replaces pip-audit: it writes the report that version 2.10 writes, or exits without one.
PROGRAM = """#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = --output ] && out=$2; shift; done
[ -n "$REPORT" ] && echo "$REPORT" > "$out" || echo "ERROR: service unavailable" >&2
exit 1
"""


@pytest.fixture
def database() -> Iterator[str]:
    class Empty(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/query"
    server.shutdown()
    server.server_close()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The packages that pip-audit reports; an empty list means no report."""
    program, reported = tmp_path / "pip-audit", list(PACKAGES)
    program.write_text(PROGRAM)
    program.chmod(0o755)

    def install() -> Path:
        monkeypatch.setenv("REPORT", json.dumps({"dependencies": reported}) if reported else "")
        return program

    monkeypatch.setattr(audit_dependencies, "install_pip_audit", install)
    return reported


def test_a_known_vulnerability_fails_and_is_named(
    database: str, packages: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit_dependencies.main(["--url", database]) == 1
    assert "bad 2.0: PYSEC-1 (CVE-1), fixed in 2.1" in capsys.readouterr().err


def test_an_accepted_vulnerability_does_not_fail(
    database: str, packages: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit_dependencies, "ACCEPTED", {"CVE-1": "the function is not called"})
    assert audit_dependencies.main(["--url", database]) == 0
    assert "3 packages of 5 lock files: no known vulnerability but 1 accepted" in capsys.readouterr().out


@pytest.mark.parametrize("cause", ["connection refused", "no report"])
def test_without_an_answer_the_audit_is_reported_as_not_done_and_fails_only_if_strict(
    database: str, packages: list[Any], capsys: pytest.CaptureFixture[str], cause: str
) -> None:
    packages.clear()
    url = f"http://127.0.0.1:{free_ports(1)[0]}/" if cause == "connection refused" else database
    for strict in ([], ["--strict"]):
        assert audit_dependencies.main([*strict, "--url", url]) == len(strict)
        output = capsys.readouterr()
        assert output.err.startswith(f"NOT audited: no answer from {url} (")
        assert output.out == ""


def test_without_a_configured_database_no_one_is_asked(
    database: str, packages: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ACKWRIGHT_ADVISORIES", raising=False)
    monkeypatch.setattr(audit_dependencies, "probe", lambda url: pytest.fail(f"{url} was asked"))
    assert audit_dependencies.main([]) == 0
    assert capsys.readouterr().err.startswith("NOT audited: ACKWRIGHT_ADVISORIES names no database")


def test_it_asks_the_database_that_is_named(
    database: str, packages: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACKWRIGHT_ADVISORIES", database)
    assert audit_dependencies.main([]) == 1


def test_every_exception_has_a_reason() -> None:
    assert all(len(reason) > 20 for reason in audit_dependencies.ACCEPTED.values())
