"""Jars of programs that run on this machine, resolved by Maven from one pom each and cached per content of the pom."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason

KINDS = ("kafka", "spark")  # that the tests need

_MAVEN_TIMEOUT = 900  # seconds


def cache_directory() -> Path:
    """$ACKWRIGHT_CACHE, or `ackwright` in the user's cache directory (XDG base directory specification)."""
    base = os.environ.get("ACKWRIGHT_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ackwright"
    )
    return Path(base)


def pom(kind: str) -> Path:
    """The path of the pom for one kind of jars, in the checkout or in the installed package."""
    here = Path(__file__).resolve().parent
    for candidate in (here.parents[2] / "jars" / kind / "pom.xml", here / "poms" / f"{kind}.xml"):
        if candidate.is_file():
            return candidate
    raise AckwrightError(
        Reason.UNEXPECTED,
        f"this installation of ackwright is incomplete: the pom of the {kind} jars is missing; reinstall ackwright",
    )


def is_cached(kind: str) -> bool:
    """Whether the jars of one kind are in the cache."""
    return _target(kind).is_dir()


def _target(kind: str) -> Path:
    return cache_directory() / f"jars-{kind}-{hashlib.sha256(pom(kind).read_bytes()).hexdigest()[:16]}"


def directory(kind: str) -> Path:
    """The directory of the jars of one kind; resolves them with Maven if they are not in the cache.

    kind: "kafka" for brokers and tools, "spark" for Spark's Kafka connector, "s3" for state in a bucket; in a checkout
    also the other directories of jars/, for benchmarks and tests. Raises AckwrightError if Maven is missing or fails.
    """
    source, target = pom(kind), _target(kind)
    if target.is_dir():
        return target
    if shutil.which("mvn") is None:
        raise AckwrightError(
            Reason.UNEXPECTED,
            f"Maven is not installed, and the {kind} jars are resolved with it; install it "
            "(Debian: apt-get install maven)",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    download = Path(tempfile.mkdtemp(prefix=target.name, dir=target.parent))
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={download}", "-DincludeScope=runtime"]
    argv = ["mvn", "-q", "-B", "-f", str(source), *goal]
    try:
        completed = subprocess.run(argv, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT, check=False)
        if completed.returncode:
            lines = (completed.stdout + completed.stderr).strip().splitlines()
            raise AckwrightError(
                Reason.UNEXPECTED, f"Maven could not resolve the {kind} jars: {lines[0] if lines else 'no output'}"
            )
        download.chmod(0o755)
        with contextlib.suppress(OSError):  # another process has created the target in the meantime
            download.rename(target)  # atomic: an interrupted run never leaves an incomplete target
    except subprocess.TimeoutExpired:
        message = f"Maven has not resolved the {kind} jars in {_MAVEN_TIMEOUT} s; check the network, then run again"
        raise AckwrightError(Reason.UNEXPECTED, message) from None
    finally:
        shutil.rmtree(download, ignore_errors=True)  # after a successful rename it no longer exists
    return target


def main() -> int:
    for kind in KINDS:
        sys.stderr.write(f"  {kind}: {len(list(directory(kind).glob('*.jar')))} jars\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
