"""Runs every command of docs/quickstart.md in order in a new clone, and compares the output with the page."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from ackwright_stream.admin_client import AdminClient
from e2e.page import Block, blocks, missing
from e2e.pipelines import NAMESPACE, SYSTEM, Installation, delete_topics, wait_until
from lab.cluster import Cluster
from lab.netns import NetnsCluster

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER = "## In a cluster"  # the commands above this heading need no cluster
CRD = "deliverypipelines.ackwright.io"
# Text of the page → the test's replacement.
REPLACEMENTS = {
    "/tmp/slow-orders": "{directory}",  # noqa: S108 - a path on the page
    "127.0.0.1:PORT": "{address}",
    "make cluster-down": "true",  # other tests still use this cluster
}
_FIRST_RECORD_SECONDS = 600  # from the start of helm until the first delivered record is read
_TIMEOUT = 2400.0  # seconds
_MARK = re.compile(r"^@@ (\d+)$", re.MULTILINE)


def test_missing_lines_of_output_are_detected() -> None:
    """The control of the comparison."""
    output = "exactly-once \x1b[1mheld\x1b[0m\nsent      1,000  source records\nlost  0  gone\n"
    assert missing(["exactly-once held", "sent 1,000 …", "lost 0 …"], output) == []
    assert missing(["sent 1,000 …", "exactly-once held"], output) == ["exactly-once held"]
    assert missing(["lost 1 …"], output) == ["lost 1 …"]
    assert missing(["exactly-once … 1,000 …"], output) == ["exactly-once … 1,000 …"], "`…` does not cross lines"


def test_blocks_of_a_page_become_scripts() -> None:
    page = (
        "as `a.yaml`:\n\n```yaml\nkind: A\n```\n\n"
        "```sh\nackwright plan -f a.yaml\nackwright diff -f a.yaml\n```\n\n```text\nmet\n```\n"
    )
    written, commands = blocks(page)
    assert (written.file, commands.shown) == ("a.yaml", ("met",))
    assert written.script == "cat > a.yaml <<'EOF'\nkind: A\nEOF\n"
    assert commands.script.splitlines() == [
        "ackwright plan -f a.yaml",
        "code=0",
        "ackwright diff -f a.yaml || code=$?",
        "test $code = 1",
    ]


class Reader:
    """A reader of the page with a new clone. directory: for the files of a run."""

    def __init__(self, clone: Path, directory: Path) -> None:
        self._clone = clone
        self._values = {"{directory}": str(directory)}

    def set_value(self, name: str, value: str) -> None:
        """Sets the value of a placeholder of REPLACEMENTS."""
        self._values[f"{{{name}}}"] = value

    def start(self, todo: Sequence[Block], log: Path) -> subprocess.Popen[bytes]:
        """A shell that runs the blocks, as leader of a process group, so that it can be interrupted like by Ctrl-C."""
        script = "".join(f"echo @@ $EPOCHSECONDS\n{block.script}" for block in todo) + "echo @@ $EPOCHSECONDS\n"
        for text, replacement in REPLACEMENTS.items():
            script = script.replace(text, self._values.get(replacement, replacement))
        # Variables of `make e2e ARGS=…` would reach the make of the page.
        excluded = ("VIRTUAL_ENV", "PYTHONPATH", "KUBECONFIG", "KAFKA", "ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")
        environment = {k: v for k, v in os.environ.items() if k not in excluded}
        with log.open("wb") as out:
            argv = ["bash", "-e", "-c", script]
            return subprocess.Popen(
                argv,
                cwd=self._clone,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, todo: Sequence[Block], log: Path) -> list[int]:
        """Runs the blocks; returns the start time of each block and the end time of the last one (seconds).

        Fails unless every command has the expected exit code and output.
        """
        shell = self.start(todo, log)
        try:
            code = shell.wait(_TIMEOUT)
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
        output = log.read_text(errors="replace")
        assert code == 0, f"exit code {code}\n{output[-8000:]}"
        check(todo, output)
        return [int(second) for second in _MARK.findall(output)]


def check(todo: Sequence[Block], log: str) -> None:
    """Fails unless the output of each block contains the lines that the page shows."""
    outputs = _MARK.split(log)[2::2]
    for block, output in zip(todo, outputs, strict=False):
        assert missing(block.shown, output) == [], f"of:\n{block.text}\nwhich printed:\n{output[-6000:]}"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the committed state, after `make setup`."""
    directory = tmp_path_factory.mktemp("reader") / "ackwright"
    subprocess.run(["git", "clone", "--quiet", REPOSITORY, directory], check=True)
    subprocess.run(["make", "setup"], cwd=directory, check=True, timeout=_TIMEOUT)
    return directory


@pytest.fixture
def bare(installed: Installation) -> Iterator[Cluster]:
    """The cluster without the operator and its objects; afterwards the operator is installed again."""
    cluster = installed.cluster
    if not isinstance(cluster, NetnsCluster):
        pytest.skip("the page creates a cluster of the lab, and this is another one")
    installed.uninstall()
    _sweep(cluster)
    yield cluster
    cluster.helm("uninstall", "ackwright", "--namespace", SYSTEM, "--ignore-not-found")
    _sweep(cluster)
    for name in (SYSTEM, NAMESPACE):
        installed.create_namespace(name)
    installed.install()


def _sweep(cluster: Cluster) -> None:
    """Deletes the objects, topics and groups that outlive a release."""
    cluster.kubectl("delete", "crd", CRD, "--ignore-not-found", "--timeout=60s", timeout=90)
    cluster.kubectl("delete", "namespace", NAMESPACE, SYSTEM, "--ignore-not-found", "--timeout=120s", timeout=150)
    brokers = cluster.brokers.bootstrap_servers
    delete_topics(brokers, ["orders", "slow-orders", "ackwright-lanes"])
    admin = AdminClient({"bootstrap.servers": brokers})
    group = f"{NAMESPACE}.slow-orders"

    def is_deleted() -> bool:
        # The static member of a killed driver stays in the group until its session expires (KIP-345).
        try:
            admin.delete_consumer_groups([group])[group].result(30)
        except KafkaException as e:
            if e.args[0].code() not in (KafkaError.NON_EMPTY_GROUP, KafkaError.GROUP_ID_NOT_FOUND):
                raise
            return bool(e.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)
        return True

    wait_until(is_deleted, f"group {group} is deleted", 120)


def test_without_kubernetes(clone: Path, tmp_path: Path) -> None:
    todo = blocks((clone / "docs" / "quickstart.md").read_text().partition(CLUSTER)[0])
    embedded = next(n for n, block in enumerate(todo) if "--embedded" in block.text)
    reader = Reader(clone, tmp_path / "slow-orders")
    reader.run(todo[:embedded], tmp_path / "before.log")

    log = tmp_path / "run.log"
    activation = next(block for block in todo if "activate" in block.text)
    running = reader.start([activation, todo[embedded]], log)
    try:
        wait_until(lambda: "running " in log.read_text() or running.poll() is not None, "the pipeline runs")
        address = re.search(r"three brokers at (127\.0\.0\.1:\d+)", log.read_text())
        assert address, log.read_text()
        reader.set_value("address", address[1])
        reader.run(todo[embedded + 1 :], tmp_path / "after.log")
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(120) == 0, log.read_text()
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    check([activation, todo[embedded]], log.read_text())
    assert "stopping: the running batch ends first" in log.read_text()


def test_in_a_cluster(bare: Cluster, clone: Path, tmp_path: Path) -> None:
    above, _, below = (clone / "docs" / "quickstart.md").read_text().partition(CLUSTER)
    prerequisites = [block for block in blocks(above) if block.file or "completion" in block.text]
    todo = [*prerequisites, *blocks(below)]
    times = Reader(clone, tmp_path).run(todo, tmp_path / "cluster.log")
    install = next(n for n, block in enumerate(todo) if "helm install" in block.text)
    read = next(n for n, block in enumerate(todo) if "orders.py read" in block.text)
    assert [block.text.count("kubectl apply") for block in todo[install : read + 1]].count(1) == 1, (
        "one kubectl apply is enough"
    )
    seconds = times[read + 1] - times[install]
    print(f"from the start of helm to the records: {seconds} s")
    assert seconds < _FIRST_RECORD_SECONDS
    assert bare.kubectl("get", "crd", CRD, "--output", "name"), "the CRD outlives the release"
