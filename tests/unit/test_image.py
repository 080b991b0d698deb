"""The text of the Dockerfile keeps its promises, and the Spark image's entrypoint starts the right programs.

The end-to-end tests build and run the images.
"""

from __future__ import annotations

import ast
import fnmatch
import importlib.metadata
import importlib.util
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRYPOINT = ROOT / "spark_app" / "entrypoint.sh"
POD = {  # the environment that Spark sets in the pod of an executor
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "EXECID",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_EXECUTOR_POD_NAME": "flights-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


def _stages() -> dict[str, list[str]]:
    """The Dockerfile's instructions, each on one line, by stage; those before the first stage have the key ""."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    stages: dict[str, list[str]] = {"": []}
    name = ""
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        if line.startswith("FROM "):
            name = line.rpartition(" AS ")[2]
            stages[name] = []
        if line.strip():
            stages[name].append(line)
    return stages


STAGES = _stages()
RUNS = [line for lines in STAGES.values() for line in lines if line.startswith("RUN ")]


@pytest.mark.parametrize(
    ("target", "entrypoint"),
    [
        ("operator", 'ENTRYPOINT ["tini", "--", "ackwright"]'),
        ("spark", 'ENTRYPOINT ["tini", "--", "/opt/ackwright/entrypoint"]'),
    ],
)
def test_both_images_run_as_an_ordinary_user_under_tini(target: str, entrypoint: str) -> None:
    lines = STAGES[target]
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001:10001"]
    assert lines.index("USER 10001:10001") > max(
        i for i, line in enumerate(lines) if not line.startswith(("USER", "ENTRYPOINT", "CMD"))
    )
    assert entrypoint in lines


def test_every_stage_starts_from_the_configurable_base() -> None:
    assert [line for line in STAGES[""] if line.startswith("ARG")] == ["ARG BASE_IMAGE=python:3.11-slim-bookworm"]
    bases = {lines[0].split()[1] for name, lines in STAGES.items() if name}
    assert bases - set(STAGES) == {"${BASE_IMAGE}"}


def test_every_package_from_an_index_is_pinned() -> None:
    commands = [c for run in RUNS for c in re.findall(r"pip (?:--python \S+ )?(?:install|wheel) ([^;&]*)", run)]
    assert len(commands) > 3
    for words in (c.split() for c in commands if "--no-index" not in c):
        named = [w for w in words if not w.startswith("-")]
        assert "--require-hashes" in words or all("==" in w for w in named), words


@pytest.mark.parametrize("lock", ["requirements/operator.lock", "requirements/spark.lock"])
def test_every_locked_requirement_is_exact_and_has_hashes(lock: str) -> None:
    entries = re.split(r"\n(?=[a-zA-Z])", re.sub(r"^#.*\n", "", (ROOT / lock).read_text(), flags=re.MULTILINE).strip())
    assert len(entries) > 10
    assert [
        e.splitlines()[0] for e in entries if not re.match(r"[\w.-]+==[\w.]+", e) or "--hash=sha256:" not in e
    ] == []


@pytest.mark.parametrize(
    ("package", "lock"),
    [("spark_app/ackwright_stream", "requirements/spark.lock"), ("operator/ackwright", "requirements/operator.lock")],
)
def test_every_import_of_an_images_code_is_locked(package: str, lock: str) -> None:
    """Also imports in functions, such as those of the client of one sink. The demo runs in no image."""
    locked = {_canonical(name) for name in re.findall(r"^([\w.-]+)==", (ROOT / lock).read_text(), re.MULTILINE)}
    providers = importlib.metadata.packages_distributions()
    files = [file for file in (ROOT / package).rglob("*.py") if "demo" not in file.parts]
    imports = {(name, file.name) for file in files for name in _imported_packages(file.read_text())}
    outside = {(name, file) for name, file in imports if name in providers and not name.startswith("ackwright")}
    assert len({name for name, _ in outside}) > 5
    assert [(name, file) for name, file in outside if not {*map(_canonical, providers[name])} & locked] == []
    unknown = {name for name, _ in imports - outside if not name.startswith("ackwright")}
    assert unknown - sys.stdlib_module_names == set()


def _imported_packages(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _canonical(distribution: str) -> str:
    """The name of a distribution as in a lock file (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


@pytest.mark.parametrize("module", ["spark-sql-kafka", "spark-avro"])
def test_the_jars_of_spark_and_pyspark_have_the_same_version(module: str) -> None:
    pyspark = re.search(r"^pyspark==(\S+)", (ROOT / "requirements/spark.lock").read_text(), re.MULTILINE)
    pom = (ROOT / "jars/spark/pom.xml").read_text()
    jar = re.search(rf"<artifactId>{module}.*?<version>(.*?)<", pom, re.DOTALL)
    assert pyspark
    assert jar
    assert pyspark[1] == jar[1]


def test_the_jars_of_s3a_fit_pyspark() -> None:
    """Classes of Hadoop and Spark have the versions of those that they call; nothing of pyspark is there twice."""
    spec = importlib.util.find_spec("pyspark")
    assert spec
    assert spec.submodule_search_locations
    of_pyspark = {p.name for p in Path(spec.submodule_search_locations[0], "jars").iterdir()}
    pom = (ROOT / "jars/s3/pom.xml").read_text()
    versions = dict(re.findall(r"<artifactId>([\w.-]+)</artifactId>\s*<version>([\d.]+)</version>", pom))
    assert f"hadoop-client-api-{versions['hadoop-aws']}.jar" in of_pyspark
    assert f"spark-sql_2.13-{versions['spark-hadoop-cloud_2.13']}.jar" in of_pyspark
    for group in ("io.netty", "org.apache.httpcomponents", "commons-codec", "org.slf4j"):
        assert pom.count(f"<groupId>{group}</groupId>") == pom.count("<groupId>software.amazon.awssdk</groupId>") > 0


def test_pods_with_state_in_a_bucket_have_the_jars_of_s3a_where_the_image_has_them() -> None:
    from ackwright.render import pods

    [copied] = [line.split()[-1] for line in STAGES["spark-runtime"] if line.startswith("COPY") and "s3" in line]
    assert f"{copied}/*" == pods._S3A_CLASSES
    assert not [line for line in STAGES["spark-runtime"] if line.startswith("RUN") and "s3" in line], (
        "no other has them"
    )


def test_every_copied_file_exists_and_is_not_ignored() -> None:
    sources = {
        word
        for lines in STAGES.values()
        for line in lines
        if line.startswith("COPY") and "--from" not in line
        for word in line.split()[1:-1]
    }
    included = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert len(sources) > 8
    assert {s for s in sources if not (ROOT / s).exists()} == set()
    assert {s for s in sources if not {s, *map(str, Path(s).parents)} & included} == set()


def test_the_removed_jars_of_pyspark_exist_and_are_not_needed() -> None:
    run = next(line for line in STAGES["spark-requirements"] if "cd jars" in line)
    patterns = re.search(r"cd jars; rm -rf ([^;]*);", run)
    assert patterns
    spec = importlib.util.find_spec("pyspark")
    assert spec
    assert spec.submodule_search_locations
    jars = {p.name for p in Path(spec.submodule_search_locations[0], "jars").iterdir()}
    removed = {pattern: set(fnmatch.filter(jars, pattern)) for pattern in patterns[1].split()}
    assert [pattern for pattern, names in removed.items() if not names] == []
    remaining = jars - set().union(*removed.values())
    needed = "spark-kubernetes_* kubernetes-client-* kubernetes-model-core-* kubernetes-httpclient-*"
    needed += " spark-sql_* spark-core_* spark-mllib_* rocksdbjni-*"
    needed += " scala-library-* scala-reflect-* hive-storage-api-* hadoop-client-* netty-all-* snappy-java-*"
    assert [pattern for pattern in needed.split() if not fnmatch.filter(remaining, pattern)] == []


def test_the_class_archive_comes_from_the_program_of_local_runs() -> None:
    from ackwright.local import spark_start

    copied = [line.split()[1] for line in STAGES["spark-archive"] if line.startswith("COPY")]
    assert [ROOT / name for name in copied] == [spark_start.archive_program()]
    run = next(line for line in STAGES["spark-archive"] if line.startswith("RUN"))
    assert f"python {spark_start.archive_program().name} " in run


def test_the_program_of_the_class_archive_needs_no_package_but_pyspark() -> None:
    from ackwright.local import spark_start

    code = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); print([m for m in sys.modules if m.startswith('ackwright')])"
    )
    argv = [sys.executable, "-P", "-c", code, str(spark_start.archive_program())]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A directory like the image's, where `java` and Python print their arguments and two environment variables."""
    place = tmp_path / "opt"
    place.mkdir()
    shutil.copy(ENTRYPOINT, place / "entrypoint")
    (place / "classpath").write_text("/spark/jars/a.jar:/spark/jars/b.jar\n")
    for name in ("java", "python"):
        program = tmp_path / name
        program.write_text(
            """#!/bin/sh\nprintf '%s\\n' "$@"\nenv | grep -E '^(SPARK_SUBMIT_OPTS|PYSPARK_SUBMIT_ARGS)=' || true\n"""
        )
        program.chmod(0o755)
    return tmp_path


def _start(image: Path, *arguments: str, env: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
    own = {"PATH": f"{image}:/usr/bin:/bin", "SPARK_HOME": "/spark", "PYSPARK_PYTHON": str(image / "python")}
    return subprocess.run(
        [image / "opt/entrypoint", *arguments], env={**own, **env}, capture_output=True, text=True, check=False
    )


def test_the_entrypoint_is_an_executable_shell_script() -> None:
    assert ENTRYPOINT.stat().st_mode & stat.S_IXUSR
    assert subprocess.run(["sh", "-n", ENTRYPOINT], check=False).returncode == 0


def test_an_executor_starts_with_the_environment_of_its_pod(image: Path) -> None:
    options = {
        f"SPARK_JAVA_OPT_{n}": o
        for n, o in enumerate(["--add-opens=java.base/java.lang=ALL-UNNAMED", "-Da=b c", *["-Dx"] * 9, "-Dlast"])
    }
    done = _start(image, "executor", env={**POD, **options, "SPARK_CONF_DIR": "/opt/spark/conf"})
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[: lines.index("--add-opens=java.base/java.lang=ALL-UNNAMED")] == [
        f"-XX:SharedArchiveFile={image}/opt/spark.jsa", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr",
    ]  # fmt: skip
    assert lines[lines.index("--add-opens=java.base/java.lang=ALL-UNNAMED") :] == [
        *options.values(),
        "-Xms1024m", "-Xmx1024m",
        "-cp", "/spark/jars/a.jar:/spark/jars/b.jar:/spark/jars/*:/opt/spark/conf",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url", "spark://CoarseGrainedScheduler@10.0.0.1:7078",
        "--executor-id", "EXECID",
        "--cores", "2",
        "--app-id", "spark-1",
        "--hostname", "10.0.0.2",
        "--podName", "flights-exec-1",
        "--resourceProfileId", "0",
    ]  # fmt: skip


def test_an_executor_needs_neither_java_options_nor_a_configuration_directory(image: Path) -> None:
    lines = _start(image, "executor", env=POD).stdout.splitlines()
    assert lines[lines.index("-cp") + 1] == "/spark/jars/a.jar:/spark/jars/b.jar:/spark/jars/*"


def test_an_executor_has_further_classes_behind_those_of_the_archive(image: Path) -> None:
    lines = _start(image, "executor", env={**POD, "SPARK_DIST_CLASSPATH": "/s3/*"}).stdout.splitlines()
    assert lines[lines.index("-cp") + 1] == "/spark/jars/a.jar:/spark/jars/b.jar:/spark/jars/*:/s3/*"


@pytest.mark.parametrize("name", POD)
def test_an_executor_outside_of_a_pod_names_the_missing_variable(image: Path, name: str) -> None:
    done = _start(image, "executor", env={k: v for k, v in POD.items() if k != name})
    assert (done.returncode, done.stdout) == (2, "")
    assert name in done.stderr


@pytest.mark.parametrize(("command", "module"), [("driver", "ackwright_stream"), ("audit", "ackwright_stream.audit")])
def test_driver_and_audit_pass_their_arguments_on_and_have_the_jars(image: Path, command: str, module: str) -> None:
    done = _start(image, command, "--jobspec", "/a b/job.json", "-v")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[:5] == ["-m", module, "--jobspec", "/a b/job.json", "-v"]
    assert "PYSPARK_SUBMIT_ARGS=--driver-class-path /spark/jars/a.jar:/spark/jars/b.jar pyspark-shell" in lines
    assert any(line.startswith(f"SPARK_SUBMIT_OPTS=-XX:SharedArchiveFile={image}/opt/spark.jsa ") for line in lines)


@pytest.mark.parametrize("arguments", [(), ("bash",), ("executor", "more"), ("--help",)])
def test_another_command_is_refused_with_the_usage(image: Path, arguments: tuple[str, ...]) -> None:
    done = _start(image, *arguments, env=POD)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: driver")
