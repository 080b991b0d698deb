"""The quickstart as its reader goes through it: every command of docs/quickstart.md, taken from the page and run in its order in a fresh
clone, and what is printed compared with what the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ackwright_stream.admin_client import AdminClient
from e2e.page import Block, blocks, missing
from e2e.pipelines import NAMESPACE, SYSTEM, Installation, delete_topics, wait_until
from lab.cluster import Cluster
from lab.netns import NetnsCluster

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER = "## In a cluster"  # what is above it needs none
CRD = "deliverypipelines.ackwright.io"
# What a reader writes otherwise than the page has it.
OTHERWISE = {
    "/tmp/slow-orders": "{directory}",  # noqa: S108  the page's
    "127.0.0.1:PORT": "{address}",
    "make cluster-down": "true",  # other tests go on in this cluster; tests/lab takes one down
}
_FIRST_RECORD_S = 600  # from helm's start to the first record that was delivered and read
_READING_S = 2400.0
_MARK = re.compile(r"^@@ (\d+)$", re.MULTILINE)


def test_what_is_not_shown_is_missed() -> None:
    """The control of the comparison."""
    output = "exactly-once \x1b[1mheld\x1b[0m\nsent      1,000  source records\nlost  0  gone\n"
    assert missing(["exactly-once held", "sent 1,000 …", "lost 0 …"], output) == []
    assert missing(["sent 1,000 …", "exactly-once held"], output) == ["exactly-once held"]
    assert missing(["lost 1 …"], output) == ["lost 1 …"]
    assert missing(["exactly-once … 1,000 …"], output) == ["exactly-once … 1,000 …"], "that is of two lines"


def test_blocks_that_are_run_are_those_of_the_page() -> None:
    page = "as `a.yaml`:\n\n```yaml\nkind: A\n```\n\n```sh\nackwright plan -f a.yaml\nackwright diff -f a.yaml\n```\n\n```text\nmet\n```\n"
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
    """Somebody at a machine with a fresh clone. directory: where a run keeps its files."""

    def __init__(self, clone: Path, directory: Path) -> None:
        self._clone = clone
        self._meant = {"{directory}": str(directory)}

    def learns(self, name: str, value: str) -> None:
        self._meant[f"{{{name}}}"] = value

    def start(self, todo: Sequence[Block], log: Path) -> subprocess.Popen[bytes]:
        """A shell that goes through the blocks, as leader of its own process group, so that it can be interrupted as by Ctrl-C."""
        script = "".join(f"echo @@ $EPOCHSECONDS\n{block.script}" for block in todo) + "echo @@ $EPOCHSECONDS\n"
        for written, meant in OTHERWISE.items():
            script = script.replace(written, self._meant.get(meant, meant))
        known = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH", "KUBECONFIG", "KAFKA")}
        with log.open("wb") as out:
            argv = ["bash", "-e", "-c", script]
            return subprocess.Popen(
                argv,
                cwd=self._clone,
                env=known,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def goes_through(self, todo: Sequence[Block], log: Path) -> list[int]:
        """Returns when each block began, and when the last one ended (seconds). Fails unless every command ends and prints as the page
        says."""
        shell = self.start(todo, log)
        try:
            code = shell.wait(_READING_S)
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
        said = log.read_text(errors="replace")
        assert code == 0, f"exit code {code}\n{said[-8000:]}"
        check(todo, said)
        return [int(second) for second in _MARK.findall(said)]


def check(todo: Sequence[Block], said: str) -> None:
    outputs = _MARK.split(said)[2::2]
    for block, output in zip(todo, outputs, strict=False):
        assert missing(block.shown, output) == [], f"of:\n{block.text}\nwhich printed:\n{output[-6000:]}"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is committed, with the environment that each target of make begins with."""
    directory = tmp_path_factory.mktemp("reader") / "ackwright"
    subprocess.run(["git", "clone", "--quiet", REPOSITORY, directory], check=True)
    subprocess.run(["make", "setup"], cwd=directory, check=True, timeout=_READING_S)
    return directory


@pytest.fixture
def bare(installed: Installation) -> Iterator[Cluster]:
    """The cluster as it is before anything of ours comes into it; afterwards with its operator again."""
    cluster = installed.cluster
    if not isinstance(cluster, NetnsCluster):
        pytest.skip("the page's cluster is the lab's own")
    installed.uninstall()
    _sweep(cluster)
    yield cluster
    cluster.helm("uninstall", "ackwright", "--namespace", NAMESPACE, "--ignore-not-found")
    _sweep(cluster)
    for name in (SYSTEM, NAMESPACE):
        installed.namespace(name)
    installed.install()


def _sweep(cluster: Cluster) -> None:
    """What outlives a release, in the cluster and at the brokers."""
    cluster.kubectl("delete", "crd", CRD, "--ignore-not-found", "--timeout=60s", timeout=90)
    cluster.kubectl("delete", "namespace", NAMESPACE, SYSTEM, "--ignore-not-found", "--timeout=120s", timeout=150)
    brokers = cluster.brokers.bootstrap_servers
    delete_topics(brokers, ["orders", "slow-orders", "ackwright-lanes"])
    admin = AdminClient({"bootstrap.servers": brokers})
    if f"{NAMESPACE}.slow-orders" in {group.group_id for group in admin.list_consumer_groups().result().valid}:
        admin.delete_consumer_groups([f"{NAMESPACE}.slow-orders"])[f"{NAMESPACE}.slow-orders"].result(30)


def test_without_kubernetes(clone: Path, tmp_path: Path) -> None:
    todo = blocks((clone / "docs" / "quickstart.md").read_text().partition(CLUSTER)[0])
    there = next(n for n, block in enumerate(todo) if "--embedded" in block.text)
    reader = Reader(clone, tmp_path / "slow-orders")
    reader.goes_through(todo[:there], tmp_path / "before.log")

    log = tmp_path / "run.log"
    activation = next(block for block in todo if "activate" in block.text)
    running = reader.start([activation, todo[there]], log)
    try:
        wait_until(lambda: "running " in log.read_text() or running.poll() is not None, "the pipeline runs")
        address = re.search(r"three brokers at (127\.0\.0\.1:\d+)", log.read_text())
        assert address, log.read_text()
        reader.learns("address", address[1])
        reader.goes_through(todo[there + 1 :], tmp_path / "after.log")
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(120) == 0, log.read_text()
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    check([activation, todo[there]], log.read_text())
    assert "stopping: the running batch ends first" in log.read_text()


def test_in_a_cluster(bare: Cluster, clone: Path, tmp_path: Path) -> None:
    above, _, below = (clone / "docs" / "quickstart.md").read_text().partition(CLUSTER)
    known = [block for block in blocks(above) if block.file or "completion" in block.text]
    todo = [*known, *blocks(below)]
    began = Reader(clone, tmp_path).goes_through(todo, tmp_path / "cluster.log")
    installing = next(n for n, block in enumerate(todo) if "helm install" in block.text)
    read = next(n for n, block in enumerate(todo) if "orders.py read" in block.text)
    assert [block.text.count("kubectl apply") for block in todo[installing : read + 1]].count(1) == 1, (
        "no more is needed than one"
    )
    took = began[read + 1] - began[installing]
    print(f"from helm's start to the records {took} s")
    assert took < _FIRST_RECORD_S
    assert bare.kubectl("get", "crd", CRD, "--output", "name"), "the definition outlives the release"
