"""Client processes: what an operator and other namespaces notice when one ends. On loopback, without brokers."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ackwright.clients import kafka_processes, kafka_worker
from ackwright.clients.deadline import limited
from ackwright.clients.fence import clock
from ackwright.clients.isolated_kafka import IsolatedKafka
from ackwright.clients.kafka import Kafka
from ackwright.clients.kafka_processes import KafkaProcesses
from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.local.wait import wait_for
from ackwright_stream.jobspec import Cluster, Reason
from hostile_brokers import EndlessBroker, broker_that_ends_its_client

NOBODY = "127.0.0.1:1"


@pytest.fixture
def processes() -> Iterator[KafkaProcesses]:
    processes = KafkaProcesses()
    yield processes
    processes.close()


@contextmanager
def silent_broker() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def failure(call: Callable[[], object]) -> AckwrightError:
    with pytest.raises(AckwrightError) as caught:
        call()
    return caught.value


def kafka(processes: KafkaProcesses, address: str = NOBODY, namespace: str = "ops") -> IsolatedKafka:
    return IsolatedKafka(processes, Cluster(address), timeout=3).of(namespace)


def wait_until_started(processes: KafkaProcesses) -> int:
    wait_for(lambda: bool(processes.pids()), "a process runs", 60)
    return processes.pids()[0]


def test_every_call_of_kafka_is_made_by_a_client_process() -> None:
    public = {name for name, _ in inspect.getmembers(Kafka, inspect.isfunction) if not name.startswith("_")}
    assert public - vars(IsolatedKafka).keys() == {"brokers", "translate"}, "the first one calls racks()"


def test_an_error_is_as_without_client_processes(processes: KafkaProcesses) -> None:
    error = failure(kafka(processes).racks)
    assert error.reason is Reason.BROKERS_UNREACHABLE
    assert error.message == failure(Kafka(Cluster(NOBODY), timeout=3).racks).message


def wait_until_refused(client: IsolatedKafka) -> None:
    """Until the connection is refused within the time of a call, which takes some on a busy machine.

    No call may end for another reason than that nobody answers.
    """

    def refused() -> bool:
        message = failure(client.racks).message
        assert "was ended" not in message
        assert "no request of" not in message
        return "Connection refused" in message

    wait_for(refused, "the connection is refused", 60)


def test_brokers_that_end_the_client_are_named_and_other_namespaces_continue(processes: KafkaProcesses) -> None:
    with broker_that_ends_its_client() as address:
        hostile, other = kafka(processes, address, "hostile"), kafka(processes)
        wait_until_refused(other)
        for _ in range(3):
            error = failure(hostile.racks)
            assert error.reason is Reason.BROKERS_UNREACHABLE
            assert f"was ended by SIGABRT during a request to {address}" in error.message
            wait_until_refused(other)
        assert "no request of the namespace is sent for 60 s" in error.message


def test_control_without_client_processes_such_brokers_end_the_program() -> None:
    program = (
        "import sys; from ackwright.clients.kafka import Kafka; from ackwright_stream.jobspec import Cluster; "
        "Kafka(Cluster(sys.argv[1]), timeout=3).racks()"
    )
    with broker_that_ends_its_client() as address:
        ended = subprocess.run([sys.executable, "-c", program, address], check=False, capture_output=True, timeout=120)
    assert ended.returncode == -signal.SIGABRT


def test_a_write_under_way_when_the_process_ends_has_an_unknown_outcome(processes: KafkaProcesses) -> None:
    with silent_broker() as address, ThreadPoolExecutor(2) as threads:
        written = threads.submit(kafka(processes, address).create_topic, "t", 1, 1, {})
        os.kill(wait_until_started(processes), signal.SIGKILL)
        assert written.result(60) is Outcome.UNKNOWN


def test_an_end_between_two_calls_names_the_connected_cluster(processes: KafkaProcesses) -> None:
    client = kafka(processes)
    for _ in range(2):
        failure(client.racks)
        (pid,) = processes.pids()
        os.kill(pid, signal.SIGABRT)
        wait_for(lambda ended=pid: ended not in processes.pids(), "its end is noticed", 60)  # type: ignore[misc]
    assert f"was ended by SIGABRT while it was connected to {NOBODY}; no request of" in failure(client.racks).message


def test_a_read_under_way_when_the_process_ends_is_repeated(processes: KafkaProcesses) -> None:
    with ThreadPoolExecutor(1) as threads:
        read = threads.submit(failure, kafka(processes).racks)
        os.kill(wait_until_started(processes), signal.SIGKILL)
        assert "Connection refused" in read.result(60).message


def test_a_process_that_takes_too_much_memory_is_ended() -> None:
    ends = []
    processes = KafkaProcesses(memory=1, on_end=lambda: ends.append(1))
    with silent_broker() as address:
        error = failure(kafka(processes, address).racks)
    processes.close()
    assert f"was ended because it had more than 1 MiB of memory during a request to {address}" in error.message
    assert ends


def test_an_endless_answer_ends_the_client_process_alone(processes: KafkaProcesses) -> None:
    """kafka-python reads all that it gets before it parses the first answer."""
    broker = EndlessBroker(None)
    error = failure(kafka(processes, broker.address).moving)
    broker.close()
    assert error.reason is Reason.BROKERS_UNREACHABLE


def test_a_process_that_answers_nobody_is_ended(processes: KafkaProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_processes, "_MARGIN_S", 10.0)
    monkeypatch.setattr(kafka_processes, "_ALIVE_S", 1.0)
    failure(kafka(processes).racks)
    (pid,) = processes.pids()
    os.kill(pid, signal.SIGSTOP)
    assert failure(kafka(processes).racks).reason is Reason.BROKERS_UNREACHABLE
    wait_for(lambda: pid not in processes.pids(), "it has been replaced", 60)
    assert "Connection refused" in failure(kafka(processes).racks).message


def test_calls_share_a_deadline(processes: KafkaProcesses) -> None:
    with silent_broker() as address:
        client, started = IsolatedKafka(processes, Cluster(address), timeout=60.0).of("ops"), time.monotonic()
        with limited(1.0):
            failure(client.racks)
            error = failure(lambda: client.topics(["in"]))
        assert "all requests together may take 1 s" in error.message
        assert time.monotonic() - started < 30


def test_a_process_that_was_suspended_too_long_does_not_write() -> None:
    kafka_worker._write_until.set(clock() + 60)
    with kafka_worker._writing() as seconds:
        assert 50 < seconds <= 60
    kafka_worker._write_until.set(clock() - 0.1)
    with (
        pytest.raises(AckwrightError, match="the time in which the operator may write is over"),
        kafka_worker._writing(),
    ):
        pass


def test_a_connection_that_is_not_used_any_more_is_closed(processes: KafkaProcesses) -> None:
    failure(kafka(processes).racks)
    gc.collect()  # the error refers to the connection
    (pid,) = processes.pids()
    wait_for(lambda: _threads_of_librdkafka(pid) == 0, "it is closed", 60)
    client = kafka(processes)
    failure(client.racks)
    time.sleep(1.0)  # connections without a user are closed four times meanwhile
    assert _threads_of_librdkafka(pid) > 0, "the control"


def _threads_of_librdkafka(pid: int) -> int:
    names = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            names.append((task / "comm").read_text())
    return sum(name.startswith("rdk:") for name in names)


def test_a_process_ends_with_its_operator() -> None:
    program = (
        "import time; from ackwright.clients.isolated_kafka import *; "
        "processes = KafkaProcesses(); process = processes._process('ops'); "
        "process.answers(60); print(process.pid, flush=True); time.sleep(600)"
    )
    operator = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert operator.stdout is not None
    pid = int(operator.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    operator.kill()
    operator.wait()
    operator.stdout.close()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid), "the client process has ended", 60)


def _is_zombie(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].startswith("Z")
    return True


def test_close_ends_the_processes(processes: KafkaProcesses) -> None:
    failure(kafka(processes).racks)
    (pid,) = processes.pids()
    processes.close()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "it has ended", 60)
    assert "the operator stops" in failure(kafka(processes).racks).message
