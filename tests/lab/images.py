"""The project's images, built by buildah from the repository's Dockerfile on a base made of Debian packages: no image registry is asked.

Everything is cached by content: nothing is built again, or brought to a node again, that has not changed. What this machine needs to
reach its package registries (its authorities' certificates, settings of pip and Maven) is mounted while an image is built, and does
not stay in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import packages
from .binaries import lab_cache
from .processes import LabError, run

REPOSITORY = Path(__file__).resolve().parents[2]
_CONTEXT = (  # what may go into an image, as far as git tracks it
    "Dockerfile", ".dockerignore", "pyproject.toml", "requirements", "README.md", "LICENSE", "jars", "operator", "spark_app",
)  # fmt: skip
_SUITE = "bookworm"
_BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv", "openjdk-17-jre-headless", "tini")
_BASE_AGE = 30 * 24 * 3600.0  # seconds; then a new base is made, with what Debian has mended since
_KEPT = 3  # archives per target
_TIMEOUT = 1800.0
_FILE_TIME = 946684800  # 2000-01-01: when files were checked out is no difference between images
# On this machine → in the image. Files that are not here are left out.
_MOUNTS = (
    ("/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-certificates.crt"),
    ("/etc/ssl/certs/java/cacerts", "/etc/ssl/certs/java/cacerts"),
    ("/etc/pip.conf", "/etc/pip.conf"),
    ("~/.config/pip/pip.conf", "/root/.config/pip/pip.conf"),
    ("~/.m2/settings.xml", "/root/.m2/settings.xml"),
)


@dataclass(frozen=True)
class Image:
    """An image as pods name it, and the archive that brings it to a node."""

    reference: str
    archive: Path


def build(target: str, say: Callable[[str], None]) -> Image:
    """The image of one target of the Dockerfile: "operator" or "spark". Raises LabError if a tool is missing or the build fails.

    Its tag is of the image itself: a change of files that do not get into it, or not into this target, leaves it as it is.
    """
    packages.need(packages.IMAGES, say)
    with _one_at_a_time():
        base = _base(say)
        files = _tracked_files()
        identity = hashlib.sha256(f"{base} {target}".encode())
        for file in files:
            identity.update(f"{file.relative_to(REPOSITORY)} {file.stat().st_mode:o} {file.stat().st_size}\n".encode())
            identity.update(file.read_bytes())
        known = _archives() / f"{target}-{identity.hexdigest()[:16]}.built"  # holds the image's tag
        if not known.exists() or not _image(target, known.read_text()).archive.exists():
            started = time.monotonic()
            say(f"building the image of {target}")
            known.write_text(_build(target, base, files))
            say(f"built it in {time.monotonic() - started:.0f} s")
        image = _image(target, known.read_text())
        os.utime(image.archive)
        _forget_old(target)
    return image


def _image(target: str, tag: str) -> Image:
    return Image(f"localhost/ackwright-{target}:{tag}", _archives() / f"{target}-{tag}.tar")


def _build(target: str, base: str, files: list[Path]) -> str:
    """Builds it, writes its archive if there is none, and returns its tag."""
    identity = _archives() / f"{target}.iid"
    with tempfile.TemporaryDirectory(prefix="ackwright-context-") as directory:
        context = Path(directory)
        for file in files:
            copy = context / file.relative_to(REPOSITORY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)
            os.utime(copy, (_FILE_TIME, _FILE_TIME))
        options = [
            "--layers",
            "--isolation",
            "chroot",
            "--network",
            "host",
            "--build-arg",
            f"BASE_IMAGE={base}",
            "--target",
            target,
        ]
        for here, there in _MOUNTS:
            if (path := Path(here).expanduser()).is_file():
                options += ["--volume", f"{path}:{there}:ro"]
        _buildah("bud", *options, "--iidfile", str(identity), str(context))
    found = identity.read_text().strip().removeprefix("sha256:")
    image = _image(target, found[:16])
    if not image.archive.exists():
        _buildah("tag", found, image.reference)
        fresh = image.archive.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        # Every node would have to decompress it, on the same cores.
        _buildah("push", "--quiet", "--disable-compression", image.reference, f"oci-archive:{fresh}:{image.reference}")
        fresh.rename(image.archive)
    return found[:16]


def _base(say: Callable[[str], None]) -> str:
    """The reference, in buildah's storage, of a Debian with the packages that both images have; makes it if it is missing or old."""
    key = hashlib.sha256(repr((_SUITE, _BASE_PACKAGES)).encode()).hexdigest()[:16]
    root = _archives() / f"base-{key}.tar"
    if not root.exists() or time.time() - root.stat().st_mtime > _BASE_AGE:
        say(f"making a base image of Debian {_SUITE} with {', '.join(_BASE_PACKAGES)}")
        fresh = root.with_suffix(".new.tar")  # mmdebstrap goes by the ending
        sources = (
            [str(path) for path in sorted(Path("/etc/apt/sources.list.d").glob("*.sources"))]
            if _here_is_suite()
            else []
        )
        run(
            "mmdebstrap",
            "--variant=minbase",
            f"--include={','.join(_BASE_PACKAGES)}",
            _SUITE,
            fresh,
            *sources,
            timeout=_TIMEOUT,
        )
        fresh.rename(root)
    reference = f"localhost/ackwright-lab-base:{key}-{int(root.stat().st_mtime)}"
    if reference not in _buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
        container = _buildah("from", "scratch").strip()
        try:
            _buildah("add", "--quiet", container, str(root), "/")
            _buildah("commit", "--quiet", container, reference)
        finally:
            _buildah("rm", container)
    return reference


def _here_is_suite() -> bool:
    """Whether this machine's package sources fit the base; they may be nearer, or the only ones in reach."""
    with contextlib.suppress(OSError):
        return f"VERSION_CODENAME={_SUITE}" in Path("/etc/os-release").read_text().splitlines()
    return False


def _tracked_files() -> list[Path]:
    names = run("git", "-C", REPOSITORY, "ls-files", "-z", "--", *_CONTEXT).split("\0")
    found = sorted(REPOSITORY / name for name in names if name)
    if REPOSITORY / "Dockerfile" not in found:
        raise LabError(f"git tracks no Dockerfile in {REPOSITORY}; images are built from what git tracks")
    return [file for file in found if file.is_file()]


def _forget_old(target: str) -> None:
    archives = sorted(_archives().glob(f"{target}-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for archive in archives[_KEPT:]:
        archive.unlink()
        with contextlib.suppress(LabError):  # it may be gone from there already
            _buildah("rmi", f"localhost/ackwright-{target}:{archive.stem.removeprefix(f'{target}-')}")


def _archives() -> Path:
    path = lab_cache() / "images"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _buildah(*arguments: str) -> str:
    """Runs it on a storage of its own, so that nobody's images are touched."""
    storage = lab_cache() / "buildah"
    argv = ["buildah", "--root", str(storage / "root"), "--runroot", str(storage / "run"), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT, check=False, cwd=REPOSITORY)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise LabError(f"buildah {arguments[0]} failed: {' | '.join(lines[-8:])}")
    return done.stdout


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    with (_archives() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
