"""The wheel and the sdist: built, installed into a new environment, and run outside of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
UV = str(Path(sys.executable).parent / "uv")
CHECKOUT = ("PYTHONPATH", "VIRTUAL_ENV")  # variables that would lead back to it


def run(*argv: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in CHECKOUT}
    done = subprocess.run(
        [str(a) for a in argv], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the directory of both. The wheel is built from the sdist, so the sdist is complete."""
    place = tmp_path_factory.mktemp("dist")
    run(UV, "build", "--quiet", "--out-dir", place, ROOT, cwd=place)
    return place


def test_both_are_of_this_version_and_hold_no_tests(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob("*.tar.gz")
    assert (wheel.name, sdist.name) == (f"ackwright-{VERSION}-py3-none-any.whl", f"ackwright-{VERSION}.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"ackwright/py.typed", "ackwright_stream/py.typed", "ackwright/console/delivery-simulator.html"} <= names
    top = {name.split("/")[0] for name in names}
    assert top == {"ackwright", "ackwright_stream", f"ackwright-{VERSION}.dist-info"}
    with tarfile.open(sdist) as archive:
        inside = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
    assert not {name.split("/")[0] for name in inside} & {"tests", "bench", "charts"}
    assert [name for name in inside if name.startswith("docs")] == ["docs/delivery-simulator.html"]


def test_the_wheel_runs_outside_of_the_checkout(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    run(UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv", cwd=tmp_path)
    programs = tmp_path / "venv" / "bin"
    run(UV, "pip", "install", "--quiet", "--python", programs / "python", f"{wheel}[operator]", cwd=tmp_path)
    where = run(
        programs / "python",
        "-c",
        "import ackwright, ackwright_stream as s; print(ackwright.__file__, s.__file__)",
        cwd=tmp_path,
    )
    assert all(path.startswith(str(tmp_path)) for path in where.split())

    assert run(programs / "ackwright", "--version", cwd=tmp_path) == f"ackwright, version {VERSION}\n"
    assert run(programs / "kubectl-ackwright", "--version", cwd=tmp_path).endswith(f"{VERSION}\n")
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text((ROOT / "examples" / "delayed-flights-exactly-once.yaml").read_text())
    plan = yaml.safe_load(run(programs / "ackwright", "plan", "-f", pipeline, "-o", "yaml", cwd=tmp_path))
    assert plan["guarantee"] == "exactly-once"
    assert "Weakest link" in run(programs / "ackwright", "explain", "-f", pipeline, cwd=tmp_path)
    listed = run(programs / "ackwright", "--help", cwd=tmp_path)
    for command in (
        "run",
        "operator",
        "diff",
        "support-bundle",
        "audit",
        "status",
        "demo",
        "console",
    ):  # imports all that each needs
        assert command in listed
        assert "Usage" in run(programs / "ackwright", command, "--help", cwd=tmp_path)
    for kind in ("kafka", "spark"):
        pom = run(
            programs / "python", "-c", f"from ackwright.local.jars import pom; print(pom({kind!r}))", cwd=tmp_path
        ).strip()
        assert pom.startswith(str(tmp_path))
    pages = "from ackwright.console.server import Server; from ackwright.console.activity import Activity, LocalSource"
    serve = "Server(LocalSource(Activity('')), 'token').close(); print('served')"
    assert run(programs / "python", "-c", f"{pages}; {serve}", cwd=tmp_path).strip() == "served"
