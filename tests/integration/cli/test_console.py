"""`ackwright run --console`: a real run, its page and what the page reads while it happens and afterwards."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ackwright.local.kafka import EmbeddedKafka
from integration.support.produce import produce_pairs
from integration.support.run_cli import COMMAND, pipeline, write_document
from waiting import ANSWER, WAIT, wait_until


def read(url: str) -> Any:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=ANSWER) as answer:
        return json.loads(answer.read())


def test_a_run_is_shown_until_the_command_is_interrupted(
    kafka: EmbeddedKafka, tmp_path: Path, topic: Callable[..., str]
) -> None:
    document = pipeline(kafka.bootstrap_servers, trigger={"availableNow": True})
    source = topic(partitions=2, name="console-source")
    document["spec"]["source"]["topics"] = [source]
    produce_pairs(kafka.bootstrap_servers, source, ((b"%d" % i, b"v%d" % i) for i in range(20)))
    errors = tmp_path / "errors"
    with errors.open("w") as out:
        process = subprocess.Popen(
            [*COMMAND, "-f", str(write_document(tmp_path, document)), "--console"],
            stdout=subprocess.DEVNULL,
            stderr=out,
        )
    try:
        wait_until(lambda: "console: http" in errors.read_text(), "the page is served", WAIT)
        url = re.findall(r"console: (\S+)", errors.read_text())[0]
        assert read(f"{url}api/state")["kind"] == "local"
        wait_until(lambda: read(f"{url}api/activity?after=0")["results"] is not None, "the run has ended", WAIT)
        activity = read(f"{url}api/activity?after=0")
        name = document["metadata"]["name"]
        (stage,) = activity["stages"]
        assert (stage["pipeline"], stage["done"], stage["over"]) == (f"default/{name}", 20, True)
        shown = read(f"{url}api/pipeline?namespace=default&name={name}")
        assert shown["row"]["reason"] == "Completed"
        assert sum(lane["position"] for lane in shown["lanes"]) == 20
        assert {lane["lag"] for lane in shown["lanes"]} == {0}
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) == 0, errors.read_text()
    finally:
        process.kill()
        process.wait(ANSWER)
