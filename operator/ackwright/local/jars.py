"""Kafka's and Spark's jars, resolved by Maven from the two poms and cached outside of the tree, keyed by the pom's content."""

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

KINDS = ("kafka", "spark")

_MAVEN_S = 900


def cache_directory() -> Path:
    """ACKWRIGHT_CACHE, else the user's cache directory (XDG base directory specification)."""
    base = os.environ.get("ACKWRIGHT_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ackwright"
    )
    return Path(base)


def pom(kind: str) -> Path:
    """The pom of one kind of jars: from the checkout, or from the installed package."""
    here = Path(__file__).resolve().parent
    for candidate in (here.parents[2] / "jars" / kind / "pom.xml", here / "poms" / f"{kind}.xml"):
        if candidate.is_file():
            return candidate
    raise AckwrightError(
        Reason.UNEXPECTED, f"the pom of the {kind} jars is missing from this installation; install ackwright again"
    )


def directory(kind: str) -> Path:
    """The directory that holds the jars of one kind ("kafka": brokers and tools, "spark": Spark's Kafka connector); resolves them if
    they are not there yet. Raises AckwrightError if Maven is missing or fails."""
    source = pom(kind)
    target = cache_directory() / f"jars-{kind}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if target.is_dir():
        return target
    if shutil.which("mvn") is None:
        raise AckwrightError(
            Reason.UNEXPECTED, f"Maven is needed to resolve the {kind} jars: install it (Debian: apt-get install maven)"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=target.name, dir=target.parent))
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
    argv = ["mvn", "-q", "-B", "-f", str(source), *goal]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_MAVEN_S, check=False)
        if done.returncode:
            lines = (done.stdout + done.stderr).strip().splitlines()
            raise AckwrightError(
                Reason.UNEXPECTED, f"Maven could not resolve the {kind} jars: {lines[0] if lines else 'no output'}"
            )
        fresh.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was faster
            fresh.rename(target)  # the only step that makes them visible: an interrupted run leaves nothing half-filled
    except subprocess.TimeoutExpired:
        late = f"Maven has not resolved the {kind} jars in {_MAVEN_S} s; check the network, then run again"
        raise AckwrightError(Reason.UNEXPECTED, late) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # not there any more if all went well
    return target


def main() -> int:
    for kind in KINDS:
        sys.stderr.write(f"  {kind}: {len(list(directory(kind).glob('*.jar')))} jars\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
