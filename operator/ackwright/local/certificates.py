"""A certificate authority and a server's certificate, created with openssl, for the TLS of embedded servers.

For tests and trials only: the keys have no passphrase, and the certificates expire after 30 days.
"""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason

_DAYS = "30"


def create(directory: Path, hosts: Sequence[str] = ("127.0.0.1", "localhost")) -> None:
    """Writes ca.crt, broker.key, broker.crt, and broker.pem (both, for Kafka's PEM key store) to the directory.

    hosts: addresses or names. All brokers share one certificate, which is valid for each of them.
    """
    key, request, certificate, extensions = (
        directory / name for name in ("broker.key", "broker.csr", "broker.crt", "broker.ext")
    )
    ca, ca_key = directory / "ca.crt", directory / "ca.key"
    new_key: list[str | Path] = ["-newkey", "rsa:2048", "-nodes"]
    _openssl(
        "req", "-x509", *new_key, "-keyout", ca_key, "-out", ca, "-days", _DAYS, "-subj", "/CN=ackwright embedded CA"
    )
    _openssl("req", *new_key, "-keyout", key, "-out", request, "-subj", f"/CN={hosts[0]}")
    extensions.write_text(f"subjectAltName={','.join(_alternative_name(host) for host in hosts)}\n")
    signed_by: list[str | Path] = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial"]
    _openssl("x509", "-req", "-in", request, *signed_by, "-out", certificate, "-days", _DAYS, "-extfile", extensions)
    pem = directory / "broker.pem"
    pem.touch(mode=0o600)
    pem.write_text(key.read_text() + certificate.read_text() + ca.read_text())


def _alternative_name(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def _openssl(*arguments: str | Path) -> None:
    argv: Sequence[str] = ["openssl", *(str(a) for a in arguments)]
    try:
        completed = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        raise AckwrightError(
            Reason.UNEXPECTED, "openssl is not installed, and TLS of the embedded servers needs it; install openssl"
        ) from None
    if completed.returncode:
        lines = completed.stderr.strip().splitlines() or ["no output"]
        raise AckwrightError(Reason.UNEXPECTED, f"openssl {arguments[0]} failed: {lines[-1]}")
