"""The pipelines of a cluster, read with the user's kubeconfig: nothing that `kubectl` could not read with it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ackwright.api.spec import API_VERSION, KIND
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.console.source import JSON, Listing, key
from ackwright.console.views import Details, Object
from ackwright.errors import AckwrightError
from ackwright.render.audit import CONTAINER
from ackwright.render.names import PIPELINE_LABEL, ROLE_LABEL
from ackwright.render.workload import PROGRESS_PORT
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import Reason
from ackwright_stream.reports import Ending, Verdict

_WATCH_S = 60.0  # of one request
_PAUSE_S = 5.0  # after an error
_RELIST_S = 10.0  # between two lists, if the user may not watch
_PROGRESS_TIMEOUT_S = 5.0
_PROGRESS_MAX = 1 << 21  # bytes
_LOG_LINES = 5  # of an audit; its report is the last one
_FORBIDDEN, _GONE = 403, 410
_COUNTS = ("sent", "expected", "delivered", "lost", "missing", "duplicated", "unexpected", "misplaced", "outOfOrder")


class ClusterSource:
    """The pipelines of a namespace, or of all. A thread watches them; details are read when they are requested."""

    kind = "cluster"
    at = None

    def __init__(self, kubernetes: Kubernetes, namespace: str | None, title: str) -> None:
        """namespace None: all. Lists the pipelines once. Raises AckwrightError if that fails."""
        self._kubernetes, self._namespace, self.title = kubernetes, namespace, title
        self._lock = threading.Lock()
        self._problem: str | None = None
        self._reports: dict[str, JSON] = {}  # of audits that have ended, by the uid of the pod
        self._resources: dict[str, Object] = {}
        self._list()

    def watch(self) -> None:
        """Starts the thread that keeps the list current. It ends with the process."""
        threading.Thread(target=self._run, name="watch-pipelines", daemon=True).start()

    def pipelines(self) -> Listing:
        with self._lock:
            return Listing(list(self._resources.values()), self._problem)

    def details(self, namespace: str, name: str) -> tuple[Object, Details] | None:
        resource = self._kubernetes.get(API_VERSION, KIND, namespace, name)
        if resource is None:
            return None
        missing: list[str] = []
        pods = self._read(missing, "pods", lambda: self._pods(namespace, name)) or []
        driver = resource.get("status", {}).get("driver", {}).get("pod")
        names = [name, driver] if driver else [name]
        events = self._read(missing, "Events", lambda: self._events(namespace, names)) or []
        progress = None
        if driver:
            progress = self._read(missing, "the driver's progress", lambda: self._progress(namespace, driver))
        audits = [self._audit(namespace, pod, missing) for pod in pods if _role(pod) == "audit"]
        latest_first = sorted(audits, key=lambda a: str(a["at"]), reverse=True)
        running = [p for p in pods if _role(p) != "audit"]
        return {"apiVersion": API_VERSION, "kind": KIND, **resource}, Details(
            pods=running, events=events, progress=progress, audits=latest_first, missing=missing
        )

    def activity(self, after: int) -> JSON | None:
        return None

    # -- the list --------------------------------------------------------------------------------------------------

    def _list(self) -> str:
        """Reads all pipelines. Returns the version of the list."""
        resources, version = self._kubernetes.listing(API_VERSION, KIND, self._namespace)
        with self._lock:
            self._resources, self._problem = {key(r): r for r in resources}, None
        return version

    def _run(self) -> None:
        while True:
            try:
                self._follow(self._list())
            except ApiError as e:
                if e.status == _GONE:  # the API server has forgotten the changes since the list
                    continue
                with self._lock:
                    self._problem = f"{e.reason}: {e.message}"
                time.sleep(e.retry_after or _PAUSE_S)

    def _follow(self, version: str) -> None:
        """Applies the changes of one watch. Without the right to watch it waits until the next list is due."""
        try:
            for event, changed in self._kubernetes.watch(
                API_VERSION, KIND, self._namespace, version=version, seconds=_WATCH_S
            ):
                if event != "BOOKMARK":
                    self._apply(event, changed)
        except ApiError as e:
            if e.status != _FORBIDDEN:
                raise
            time.sleep(_RELIST_S)

    def _apply(self, event: str, changed: Object) -> None:
        with self._lock:
            if event == "DELETED":
                self._resources.pop(key(changed), None)
            else:
                self._resources[key(changed)] = changed

    # -- one pipeline ----------------------------------------------------------------------------------------------

    def _read(self, missing: list[str], what: str, read: Callable[[], Any]) -> Any:
        """The result of a read; None, and a line in `missing`, if the cluster refuses it or does not answer."""
        try:
            return read()
        except AckwrightError as e:
            missing.append(f"{what}: {e.reason}: {e.message}")
            return None

    def _pods(self, namespace: str, name: str) -> list[Object]:
        return list(self._kubernetes.objects("v1", "Pod", namespace, {PIPELINE_LABEL: name}))

    def _events(self, namespace: str, names: Sequence[str]) -> list[Object]:
        return [event for name in names for event in self._kubernetes.events(namespace, name)]

    def _progress(self, namespace: str, pod: str) -> Object:
        """The driver's report, through the API server: the user's machine does not reach pods."""
        body = self._kubernetes.through_pod(
            namespace, pod, PROGRESS_PORT, "progress", seconds=_PROGRESS_TIMEOUT_S, limit=_PROGRESS_MAX
        )
        try:
            value = json.loads(body)
        except ValueError as e:
            raise AckwrightError(Reason.UNEXPECTED, f"pod {pod} answers with something else than its progress") from e
        return value if isinstance(value, Mapping) else {}

    def _audit(self, namespace: str, pod: Object, missing: list[str]) -> JSON:
        """An audit's pod as a view: running, failed, or with a verdict and counts."""
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if uid in self._reports:
            return self._reports[uid]
        containers: Sequence[Object] = pod.get("status", {}).get("containerStatuses") or ()
        ended = next((c["state"]["terminated"] for c in containers if c.get("state", {}).get("terminated")), None)
        view: JSON = {"name": name, "at": pod["metadata"].get("creationTimestamp", ""), "verdict": "running"}
        if ended is None:
            return view
        view["at"] = ended.get("finishedAt", view["at"])
        text = self._read(missing, f"the log of {name}", lambda: self._last_line(namespace, name))
        report = _report(text)
        if report is not None:
            view |= {"verdict": report["verdict"], **{c: report[c] for c in _COUNTS}, "notes": report["notes"]}
        else:
            verdicts = {int(v.exit_code): v.value for v in Verdict}
            ending = Ending.from_json(ended.get("message", ""))
            failure = ending.failure if ending else None
            view["verdict"] = "failed" if failure else verdicts.get(ended.get("exitCode"), "failed")
            view["why"] = str(failure) if failure else ""
        if text is not None:  # a log that could not be read is read again
            self._reports[uid] = view
        return view

    def _last_line(self, namespace: str, pod: str) -> str:
        log = self._kubernetes.logs(namespace, pod, container=CONTAINER, follow=False, tail=_LOG_LINES, previous=False)
        lines = log.read().decode(errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.startswith("{")), "")


def _role(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get(ROLE_LABEL, ""))


def _report(text: str | None) -> JSON | None:
    try:
        return Report.of_document(json.loads(text or "")).document()
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
