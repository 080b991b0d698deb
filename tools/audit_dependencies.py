"""Reports known vulnerabilities of the locked Python packages, by pip-audit (PyPA) and the OSV database (https://osv.dev).

    python tools/audit_dependencies.py [LOCK ...]

The exit code is 1 for a vulnerability that ACCEPTED does not list. `make check` asks a database only if
ACKWRIGHT_ADVISORIES names one (OSV's address, or a mirror's), because a build connects to nothing but the registry of
its packages. Without a database or an answer the audit is reported as not done. That fails only with --strict, which
asks OSV by default.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OSV = "https://api.osv.dev/v1/query"
ENVIRONMENT = "build/audit-environment"
# Vulnerabilities that do not affect Ackwright, each with the reason. Review them at every release.
ACCEPTED: dict[str, str] = {}
_PROBE_TIMEOUT_S = 5.0
_AUDIT_TIMEOUT_S = 300.0


class NotAuditedError(Exception):
    """The audit has no result; the message is the reason."""


def probe(url: str) -> None:
    """Returns if the database answers a query for a package that does not exist. Raises NotAuditedError."""
    query = json.dumps({"package": {"name": "ackwright", "ecosystem": "PyPI"}, "version": "0"}).encode()
    request = urllib.request.Request(url, query, {"Content-Type": "application/json"})  # noqa: S310 - ours, or a test's
    try:
        with urllib.request.urlopen(request, timeout=_PROBE_TIMEOUT_S) as response:  # noqa: S310
            json.load(response)
    except urllib.error.HTTPError as e:
        raise NotAuditedError(f"it answers with {e.code}") from e
    except (OSError, ValueError) as e:
        raise NotAuditedError(str(getattr(e, "reason", e))) from e


def install_pip_audit() -> Path:
    """The pip-audit program, in a separate environment with the locked version. Raises NotAuditedError."""
    try:
        subprocess.run(["make", "-s", f"{ENVIRONMENT}/.ready"], check=True, cwd=ROOT)
    except subprocess.CalledProcessError as e:
        raise NotAuditedError("pip-audit itself could not be installed") from e
    return ROOT / ENVIRONMENT / "bin" / "pip-audit"


def audit(program: Path, url: str, locks: Sequence[Path]) -> list[Any]:
    """Every locked package with its vulnerabilities, as pip-audit reports them. Raises NotAuditedError."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.json")
        requirements = [option for lock in locks for option in ("-r", str(lock))]
        argv = [
            *(str(program), "--require-hashes", "--disable-pip", "--progress-spinner", "off", "--timeout", "15"),
            *("--vulnerability-service", "osv", "--osv-url", url, "--format", "json", "--output", str(report)),
            *requirements,
        ]
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=_AUDIT_TIMEOUT_S, check=False, env=environment
            )
        except subprocess.TimeoutExpired as e:
            raise NotAuditedError(f"it took longer than {_AUDIT_TIMEOUT_S:.0f} s") from e
        if not report.exists():
            raise NotAuditedError((done.stderr.strip().splitlines() or ["pip-audit gave no reason"])[-1])
        packages: list[Any] = json.loads(report.read_text())["dependencies"]
        return packages


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the result; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="fail if the database does not answer")
    default = os.environ.get("ACKWRIGHT_ADVISORIES")
    url_help = f"the database; default: ACKWRIGHT_ADVISORIES, with --strict then {OSV}"
    parser.add_argument("--url", default=default, help=url_help)
    parser.add_argument("locks", nargs="*", type=Path, metavar="LOCK", help="default: requirements/*.lock")
    options = parser.parse_args(arguments)
    locks = options.locks or sorted((ROOT / "requirements").glob("*.lock"))
    url = options.url or (OSV if options.strict else None)
    if url is None:
        unset = f"NOT audited: ACKWRIGHT_ADVISORIES names no database ({OSV}, or a mirror); make audit-deps asks OSV"
        print(unset, file=sys.stderr)
        return 0
    try:
        probe(url)
        packages = audit(install_pip_audit(), url, locks)
    except NotAuditedError as e:
        reason = f"NOT audited: no answer from {url} ({e}); run make audit-deps where it is reachable"
        print(reason, file=sys.stderr)
        return 1 if options.strict else 0
    return report(packages, locks)


def report(packages: Sequence[Any], locks: Sequence[Path]) -> int:
    """Prints the vulnerabilities that are not accepted; returns the exit code."""
    vulnerabilities = [
        (package, v)
        for package in packages
        for v in package.get("vulns", ())
        if not {v["id"], *v["aliases"]} & ACCEPTED.keys()
    ]
    for package, v in vulnerabilities:
        fixed = ", ".join(v["fix_versions"]) or "no version yet"
        aliases = ", ".join(v["aliases"])
        print(f"{package['name']} {package['version']}: {v['id']} ({aliases}), fixed in {fixed}", file=sys.stderr)
    if vulnerabilities:
        remedy = "upgrade them (make lock), or add the reason why one does not affect us to ACCEPTED of"
        print(f"{remedy} tools/audit_dependencies.py", file=sys.stderr)
        return 1
    names = {p["name"] for p in packages}
    print(f"{len(names)} packages of {len(locks)} lock files: no known vulnerability but {len(ACCEPTED)} accepted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
