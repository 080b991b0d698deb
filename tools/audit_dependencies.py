"""Looks up known vulnerabilities of every locked Python package, by pip-audit (PyPA) and the OSV database (https://osv.dev).

    python tools/audit_dependencies.py [LOCK ...]

Ends with 1 if there are any that ACCEPTED does not name. A build talks to nobody but the registry of its packages, so `make check` asks a
database only if ACKWRIGHT_ADVISORIES names one: OSV's address, or a mirror's. Without one, or without its answer, nothing is known: that is
said, and is no failure; with --strict, which asks OSV itself, it is. The registry is not asked of vulnerabilities: any will do.
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
# Vulnerabilities that do not touch us, each with the reason; look at them again at every release.
ACCEPTED: dict[str, str] = {}
_ANSWERS_WITHIN_S = 5.0
_AUDIT_S = 300.0


def unreachable(url: str) -> str | None:
    """Why the database does not answer, None if it does. It is asked of a package that there is none of."""
    question = json.dumps({"package": {"name": "ackwright", "ecosystem": "PyPI"}, "version": "0"}).encode()
    request = urllib.request.Request(url, question, {"Content-Type": "application/json"})  # noqa: S310 - ours, or a test's
    try:
        with urllib.request.urlopen(request, timeout=_ANSWERS_WITHIN_S) as answer:  # noqa: S310
            json.load(answer)
    except urllib.error.HTTPError as e:
        return f"it answers with {e.code}"
    except (OSError, ValueError) as e:
        return str(getattr(e, "reason", e))
    return None


def prepared() -> Path:
    """pip-audit, in an environment of its own as locked. Raises CalledProcessError if that cannot be made."""
    subprocess.run(["make", "-s", f"{ENVIRONMENT}/.ready"], check=True, cwd=ROOT)
    return ROOT / ENVIRONMENT / "bin" / "pip-audit"


def audited(program: Path, url: str, locks: Sequence[Path]) -> list[Any] | str:
    """Every package with its vulnerabilities, as pip-audit has them; or why there is no answer."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "found.json")
        given = [option for lock in locks for option in ("-r", str(lock))]
        service = ["--vulnerability-service", "osv", "--osv-url", url, "--progress-spinner", "off", "--timeout", "15"]
        argv = [
            str(program),
            "--require-hashes",
            "--disable-pip",
            *service,
            "--format",
            "json",
            "--output",
            str(out),
            *given,
        ]
        try:
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                timeout=_AUDIT_S,
                check=False,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
            )
        except subprocess.TimeoutExpired:
            return f"it took longer than {_AUDIT_S:.0f} s"
        if not out.exists():
            return (done.stderr.strip().splitlines() or ["pip-audit gave no reason"])[-1]
        found: list[Any] = json.loads(out.read_text())["dependencies"]
        return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="no answer is a failure")
    named = os.environ.get("ACKWRIGHT_ADVISORIES")
    parser.add_argument(
        "--url", default=named, help=f"the database; default: ACKWRIGHT_ADVISORIES, with --strict then {OSV}"
    )
    parser.add_argument("locks", nargs="*", type=Path, metavar="LOCK", help="default: requirements/*.lock")
    given = parser.parse_args(arguments)
    locks = given.locks or sorted((ROOT / "requirements").glob("*.lock"))
    url = given.url or (OSV if given.strict else None)
    if url is None:
        print(
            f"NOT audited: ACKWRIGHT_ADVISORIES names no database ({OSV}, or a mirror); make audit-deps asks OSV",
            file=sys.stderr,
        )
        return 0
    found: list[Any] | str | None = unreachable(url)
    if found is None:
        try:
            found = audited(prepared(), url, locks)
        except subprocess.CalledProcessError:
            found = "pip-audit itself could not be installed"
    if isinstance(found, str):
        print(
            f"NOT audited: no answer from {url} ({found}); run make audit-deps where it can be reached", file=sys.stderr
        )
        return 1 if given.strict else 0
    wrong = [
        (package, v)
        for package in found
        for v in package.get("vulns", ())
        if not {v["id"], *v["aliases"]} & ACCEPTED.keys()
    ]
    for package, v in wrong:
        fixed = ", ".join(v["fix_versions"]) or "no version yet"
        print(
            f"{package['name']} {package['version']}: {v['id']} ({', '.join(v['aliases'])}), mended in {fixed}",
            file=sys.stderr,
        )
    if wrong:
        print(
            "raise them (make lock), or say in ACCEPTED of tools/audit_dependencies.py why one does not touch us",
            file=sys.stderr,
        )
        return 1
    print(
        f"{len({p['name'] for p in found})} packages of {len(locks)} lock files: no known vulnerability but {len(ACCEPTED)} accepted"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
