"""Builds the project's images with buildah, on a base of Debian packages, without an image registry.

Images are cached by content: an unchanged one is neither built nor loaded again. The settings with which this machine
reaches its package registries (certificates, pip, Maven) are mounted during the build, and are not part of the image.
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
_SUITE = "bookworm"
_BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv", "openjdk-17-jre-headless", "tini")
_MAX_BASE_AGE = 30 * 24 * 3600.0  # seconds, after which a new base is built with Debian's current packages
_MAX_ARCHIVES = 3  # per target
_TIMEOUT = 1800.0  # seconds
_FILE_TIME = 946684800  # 2000-01-01 for all files, so that the time of the checkout does not change the image
# Path on this machine → path during the build. Files that do not exist are left out.
_MOUNTS = (
    ("/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-certificates.crt"),
    ("/etc/ssl/certs/java/cacerts", "/etc/ssl/certs/java/cacerts"),
    ("/etc/pip.conf", "/etc/pip.conf"),
    ("~/.config/pip/pip.conf", "/root/.config/pip/pip.conf"),
    ("~/.m2/settings.xml", "/root/.m2/settings.xml"),
)


@dataclass(frozen=True)
class Image:
    """A built image."""

    reference: str  # the name in pods
    archive: Path  # the file that is loaded on nodes


def build(target: str, report: Callable[[str], None], root: Path = REPOSITORY) -> Image:
    """The image of one target of the Dockerfile: "operator" or "spark". Raises LabError if the build is not possible.

    Its tag is derived from its content: changed files that are not part of the target do not change the tag.
    root: of a clone of this repository.
    """
    packages.install_missing(packages.IMAGES, report)
    with _build_lock():
        base = _base(report)
        files = _tracked_files(root)
        identity = hashlib.sha256(f"{base} {target}".encode())
        for file in files:
            identity.update(f"{file.relative_to(root)} {file.stat().st_mode:o} {file.stat().st_size}\n".encode())
            identity.update(file.read_bytes())
        tag_file = _archives() / f"{target}-{identity.hexdigest()[:16]}.built"
        if not tag_file.exists() or not _image(target, tag_file.read_text()).archive.exists():
            started_at = time.monotonic()
            report(f"building the image {target}")
            tag_file.write_text(_build(target, base, root, files))
            report(f"built the image {target} in {time.monotonic() - started_at:.0f} s")
        image = _image(target, tag_file.read_text())
        os.utime(image.archive)
        _remove_old_archives(target)
    return image


def _image(target: str, tag: str) -> Image:
    return Image(f"localhost/ackwright-{target}:{tag}", _archives() / f"{target}-{tag}.tar")


def _build(target: str, base: str, root: Path, files: list[Path]) -> str:
    """Builds the image, writes its archive if it does not exist, and returns the image's tag."""
    id_file = _archives() / f"{target}.iid"
    with tempfile.TemporaryDirectory(prefix="ackwright-context-") as directory:
        context = Path(directory)
        for file in files:
            copy = context / file.relative_to(root)
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
        _buildah("bud", *options, "--iidfile", str(id_file), str(context))
    image_id = id_file.read_text().strip().removeprefix("sha256:")
    image = _image(target, image_id[:16])
    if not image.archive.exists():
        _buildah("tag", image_id, image.reference)
        unfinished = image.archive.with_suffix(".new")
        unfinished.unlink(missing_ok=True)
        # Uncompressed, because every node decompresses it on the same cores.
        destination = f"oci-archive:{unfinished}:{image.reference}"
        _buildah("push", "--quiet", "--disable-compression", image.reference, destination)
        unfinished.rename(image.archive)
    return image_id[:16]


def _base(report: Callable[[str], None]) -> str:
    """The reference, in buildah's storage, of the base image: Debian with the packages that both images need.

    Builds the base if it is missing or too old.
    """
    key = hashlib.sha256(repr((_SUITE, _BASE_PACKAGES)).encode()).hexdigest()[:16]
    root = _archives() / f"base-{key}.tar"
    if not root.exists() or time.time() - root.stat().st_mtime > _MAX_BASE_AGE:
        report(f"building a base image of Debian {_SUITE} with {', '.join(_BASE_PACKAGES)}")
        unfinished = root.with_suffix(".new.tar")  # mmdebstrap derives the format from the file's ending
        sources = (
            [str(path) for path in sorted(Path("/etc/apt/sources.list.d").glob("*.sources"))]
            if _this_machine_runs_suite()
            else []
        )
        run(
            "mmdebstrap",
            "--variant=minbase",
            f"--include={','.join(_BASE_PACKAGES)}",
            _SUITE,
            unfinished,
            *sources,
            timeout=_TIMEOUT,
        )
        unfinished.rename(root)
    reference = f"localhost/ackwright-lab-base:{key}-{int(root.stat().st_mtime)}"
    if reference not in _buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
        container = _buildah("from", "scratch").strip()
        try:
            _buildah("add", "--quiet", container, str(root), "/")
            _buildah("commit", "--quiet", container, reference)
        finally:
            _buildah("rm", container)
    return reference


def _this_machine_runs_suite() -> bool:
    """Whether this machine's package sources fit the base; they may be faster, or the only ones that are reachable."""
    with contextlib.suppress(OSError):
        return f"VERSION_CODENAME={_SUITE}" in Path("/etc/os-release").read_text().splitlines()
    return False


def _tracked_files(root: Path) -> list[Path]:
    """The build context: the files that git tracks below the paths which .dockerignore lets into a build."""
    ignore = root / ".dockerignore"
    included = [line[1:] for line in ignore.read_text().splitlines() if line.startswith("!")]
    names = run("git", "-C", root, "ls-files", "-z", "--", "Dockerfile", ignore.name, *included).split("\0")
    files = sorted(root / name for name in names if name)
    if root / "Dockerfile" not in files:
        raise LabError(f"git tracks no Dockerfile in {root}; images are built only from files that git tracks")
    return [file for file in files if file.is_file()]


def _remove_old_archives(target: str) -> None:
    archives = sorted(_archives().glob(f"{target}-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for archive in archives[_MAX_ARCHIVES:]:
        archive.unlink()
        with contextlib.suppress(LabError):  # buildah may have removed the image
            _buildah("rmi", f"localhost/ackwright-{target}:{archive.stem.removeprefix(f'{target}-')}")


def _archives() -> Path:
    path = lab_cache() / "images"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _buildah(*arguments: str) -> str:
    """The output of buildah, run on a separate storage, so that other images stay untouched."""
    storage = lab_cache() / "buildah"
    argv = ["buildah", "--root", str(storage / "root"), "--runroot", str(storage / "run"), *arguments]
    completed = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT, check=False, cwd=REPOSITORY)
    if completed.returncode:
        lines = (completed.stderr.strip() or completed.stdout.strip() or "no output").splitlines()
        raise LabError(f"buildah {arguments[0]} failed: {' | '.join(lines[-8:])}")
    return completed.stdout


@contextlib.contextmanager
def _build_lock() -> Iterator[None]:
    """Allows one build at a time on this machine."""
    with (_archives() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
