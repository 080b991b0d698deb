"""Calls to the Kubernetes API, each with a timeout. An error is a refusal, a conflict, or an unknown outcome.

Objects are JSON values of any kind, addressed by paths instead of one class per kind. Existing objects are changed by
server-side apply with a fixed field manager, so that applying twice changes nothing and fields of others are left
alone.
https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import urllib3
import yaml
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION

from ackwright.clients.compact import Object, compact
from ackwright.clients.fence import Writing, unfenced
from ackwright.clients.nesting import parse
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason

FIELD_MANAGER = "ackwright"
GROUP, VERSION, PLURAL = "ackwright.io", "v1alpha1", "deliverypipelines"
_TIMEOUT = (3.05, 15.0)  # seconds to connect, and between two reads
_CONNECTIONS = 64  # in the pool: each watch and each worker uses one
_CHUNK = 1 << 16  # bytes read at once, at most
_PAGE = 500  # objects in one page of a list, at most
_PLURALS = {
    "ConfigMap": "configmaps",
    "DeliveryPipeline": PLURAL,
    "Event": "events",
    "Job": "jobs",
    "Lease": "leases",
    "Namespace": "namespaces",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Secret": "secrets",
    "ServiceAccount": "serviceaccounts",
    "StatefulSet": "statefulsets",
}
_CONFLICT, _GONE, _UNPROCESSABLE, _TOO_MANY = 409, 410, 422, 429


class ApiError(AckwrightError):
    """A call that failed."""

    def __init__(self, status: int | None, message: str, retry_after: float | None = None) -> None:
        """status: HTTP's; None: no answer came, so the outcome is unknown. retry_after: seconds, as the server sets."""
        refused = status is not None and status < 500 and status not in (_CONFLICT, _GONE, _TOO_MANY)
        super().__init__(Reason.KUBERNETES_REFUSED if refused else Reason.KUBERNETES_UNREACHABLE, message)
        self.status = status
        self.retry_after = retry_after

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later. A refusal (403, 422 …) stays one until something changes."""
        return self.reason is Reason.KUBERNETES_UNREACHABLE


class _Once(urllib3.Retry):
    """No second attempt after a time-out, which would double the time that a call may take."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: urllib3.BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: Any = None,
        _stacktrace: Any = None,
    ) -> Self:
        if isinstance(error, urllib3.exceptions.TimeoutError):
            raise error
        return super().increment(method, url, response, error, _pool, _stacktrace)


class NoCluster(AckwrightError):
    """No cluster is configured: this process runs in no pod, and there is no kubeconfig."""


def connect(kubeconfig: str | None = None, context: str | None = None, *, agent: str | None = None) -> Kubernetes:
    """A connection to the cluster of this pod, else to that of the kubeconfig.

    agent: the name by which audit logs of the API server show its requests. Raises AckwrightError; NoCluster if there
    is neither.
    """
    settings = Configuration()
    # Retry-After is for the caller, and not obeyed here. The one retry is for a pooled connection that was closed.
    settings.retries = _Once(1, respect_retry_after_header=False)
    settings.connection_pool_maxsize = _CONNECTIONS
    try:
        try:
            if kubeconfig or context:
                raise config.ConfigException
            config.load_incluster_config(settings)
        except config.ConfigException:
            config.load_kube_config(kubeconfig, context, settings)
    except (
        config.ConfigException,
        OSError,
        yaml.YAMLError,
        TypeError,
        AttributeError,
        ValueError,
    ) as e:
        # The last four: of a malformed file.
        configured = (
            kubeconfig
            or context
            or any(Path(f).expanduser().exists() for f in KUBE_CONFIG_DEFAULT_LOCATION.split(os.pathsep))
        )
        raise (AckwrightError if configured else NoCluster)(
            Reason.KUBERNETES_UNREACHABLE,
            f"no connection to a Kubernetes cluster: {e}; set KUBECONFIG, or check that kubectl works here",
        ) from e
    client = ApiClient(settings)
    if agent:
        client.user_agent = agent
    return Kubernetes(client)


def default_namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace that kubectl would use."""
    try:
        contexts, active = config.list_kube_config_contexts(kubeconfig)
    except config.ConfigException:
        return "default"
    selected = next((c for c in contexts if c["name"] == context), active)
    namespace: str = (selected or {}).get("context", {}).get("namespace") or "default"
    return namespace


class Kubernetes:
    """One connection. Safe for threads."""

    def __init__(self, api: ApiClient, *, writing: Writing = unfenced, timeout: tuple[float, float] = _TIMEOUT) -> None:
        """writing: the context of each write. timeout: seconds to connect, and between two reads."""
        self._api, self._writing, self._timeout = api, writing, timeout

    def fenced(self, writing: Writing) -> Kubernetes:
        """The same connection, whose writes begin and end within this context."""
        return Kubernetes(self._api, writing=writing, timeout=self._timeout)

    def with_timeout(self, timeout: tuple[float, float]) -> Kubernetes:
        """The same connection, each of whose calls may take these seconds to connect, and between two reads."""
        return Kubernetes(self._api, writing=self._writing, timeout=timeout)

    @property
    def settings(self) -> Configuration:
        """The address of the API server, TLS and proxy, for another client."""
        return self._api.configuration

    def authorized(self, url: str, query: list[tuple[str, str]]) -> tuple[str, dict[str, str]]:
        """The complete address of a read, and its headers with the present login, for another client."""
        headers = {"Accept": "application/json"}
        call = self._api.param_serialize(
            method="GET", resource_path=url, query_params=query, header_params=headers, auth_settings=["BearerToken"]
        )
        return call[1], call[2]

    # -- reads -----------------------------------------------------------------------------------------------------

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        """The object; None if it does not exist."""
        try:
            return self._call("GET", path(api_version, kind, namespace, name))
        except ApiError as e:
            if e.status == 404:
                return None
            raise

    def objects(
        self, api_version: str, kind: str, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """The objects of a kind. namespace None: of every namespace."""
        return self.listing(api_version, kind, namespace, labels)[0]

    def listing(
        self, api_version: str, kind: str, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> tuple[list[Object], str]:
        """The objects of a kind, and the version of this list, after which a watch continues.

        It is read in pages, as by kubectl, so that only one page of unfiltered objects is in memory. Raises ApiError
        with status 410 if that takes so long that the API server has forgotten the rest.
        """
        objects: list[Object] = []
        more: list[tuple[str, str]] = []
        while True:
            answer = self._call(
                "GET", path(api_version, kind, namespace), query=[*selected(labels), ("limit", str(_PAGE)), *more]
            )
            objects += [compact({"apiVersion": api_version, "kind": kind, **item}) for item in answer.get("items", [])]
            meta = answer.get("metadata", {})
            if not meta.get("continue"):
                return objects, str(meta.get("resourceVersion", ""))
            more = [("continue", meta["continue"])]

    def watch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        labels: Mapping[str, str] | None = None,
        *,
        version: str,
        seconds: float,
    ) -> Iterator[tuple[str, Object]]:
        """The events after that version, for so many seconds: ADDED, MODIFIED, DELETED or BOOKMARK, each with the
        object as it is then.

        Raises ApiError if the connection breaks; with status 410 if the API server has forgotten the events since that
        version.
        """
        url = path(api_version, kind, namespace)
        query = [*selected(labels), *watch_query(version, seconds)]
        answer = self._request("GET", url, query=query, timeout=(_TIMEOUT[0], seconds + _TIMEOUT[1])).response
        rest = b""
        try:
            for chunk in answer.stream(_CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield watch_event(api_version, kind, url, line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError, LookupError, TypeError) as e:
            raise ApiError(None, f"watching {url} broke off: {e}") from e
        finally:
            answer.close()

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API server serves this kind of a custom resource."""
        try:
            resources = self._call("GET", f"/apis/{api_version}")
        except ApiError as e:
            if e.status == 404:
                return False
            raise
        return any(r["kind"] == kind for r in resources.get("resources", ()))

    def events(self, namespace: str, name: str) -> list[Object]:
        """The Events about the objects of this name; of very many only a page."""
        query = [("fieldSelector", f"involvedObject.name={name}"), ("limit", str(_PAGE))]
        events: list[Object] = self._call("GET", path("v1", "Event", namespace), query=query).get("items", [])
        return events

    def logs(self, namespace: str, pod: str, *, container: str, follow: bool, tail: int | None, previous: bool) -> Any:
        """A container's output as a stream of bytes (urllib3's response)."""
        query = [("container", container), ("follow", str(follow).lower()), ("previous", str(previous).lower())]
        query += [("tailLines", str(tail))] if tail is not None else []
        return self._request(
            "GET", path("v1", "Pod", namespace, pod) + "/log", query=query, timeout=(3.05, None) if follow else None
        )

    def through_pod(self, namespace: str, pod: str, port: int, route: str, *, seconds: float, limit: int) -> bytes:
        """What an HTTP server in a pod answers, through the API server: for a client that does not reach pods itself.

        seconds: for the answer as a whole. limit: bytes; raises ApiError for a longer answer, or if none comes in time.
        https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/
        """
        url = f"{path('v1', 'Pod', namespace, f'{pod}:{port}')}/proxy/{route}"
        deadline = time.monotonic() + seconds
        answer = self._request("GET", url, timeout=(_TIMEOUT[0], seconds)).response
        body = b""
        try:
            for chunk in answer.stream(_CHUNK):
                body += chunk
                if len(body) > limit or time.monotonic() > deadline:
                    raise ApiError(None, f"GET {url}: the answer is longer than {limit:,} bytes or {seconds:.0f} s")
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise ApiError(None, f"GET {url} broke off: {e}") from e
        finally:
            answer.close()
        return body

    def version(self) -> str:
        """The version of the API server."""
        return str(self._call("GET", "/version").get("gitVersion", "unknown"))

    # -- writes ----------------------------------------------------------------------------------------------------

    def apply(self, desired: Object) -> Object:
        """Creates the object, or sets its fields to the desired ones, also those that another field manager has set.

        Returns it.
        """
        meta = desired["metadata"]
        url = path(desired["apiVersion"], desired["kind"], meta["namespace"], meta["name"])
        query = [("fieldManager", FIELD_MANAGER), ("force", "true")]
        return self._write("PATCH", url, query=query, body=desired, content="application/apply-patch+yaml")

    def create(self, desired: Object, *, dry_run: bool = False) -> Object:
        """Creates the object and returns it.

        Raises ApiError with status 409 if it exists. dry_run: the API server only validates it.
        """
        url = path(desired["apiVersion"], desired["kind"], desired["metadata"]["namespace"])
        return self._write("POST", url, query=_write_options(dry_run), body=desired)

    def merge(
        self, api_version: str, kind: str, namespace: str, name: str, change: Object, *, dry_run: bool = False
    ) -> Object:
        """Changes some fields (JSON merge patch). Returns the object as it is then, or would be after a dry run.

        A change with metadata.resourceVersion is refused with status 409 if the object has changed since.
        """
        return self._write(
            "PATCH",
            path(api_version, kind, namespace, name),
            query=_write_options(dry_run),
            body=change,
            content="application/merge-patch+json",
        )

    def put_status(self, changed: Object) -> Object:
        """Replaces the status. Raises ApiError with status 409 if the object has changed since it was read."""
        meta = changed["metadata"]
        url = path(changed["apiVersion"], changed["kind"], meta["namespace"], meta["name"]) + "/status"
        return self._write("PUT", url, query=[("fieldManager", FIELD_MANAGER)], body=changed)

    def delete(
        self,
        api_version: str,
        kind: str,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        """Deletes an object, if it exists.

        It stays until what it owns is gone. uid: only if the object still has this one.
        """
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if kind != "Pod":  # a pod's name has to be free as soon as it has ended, and its executors end by themselves
            options["propagationPolicy"] = "Foreground"
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self._write("DELETE", path(api_version, kind, namespace, name), body=options)
        except ApiError as e:
            if e.status != 404:
                raise

    # -- the call itself -------------------------------------------------------------------------------------------

    def _write(
        self,
        method: str,
        url: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Object | None = None,
        content: str = "application/json",
    ) -> Object:
        with self._writing() as seconds:
            connect = min(self._timeout[0], seconds / 3)
            read = min(self._timeout[1], seconds - connect)
            # The API server stops then as well, so that it does not complete the request later.
            limit = [] if seconds == float("inf") else [("timeout", f"{read:.3f}s")]
            query = [*(query or []), *limit]
            return self._call(method, url, query=query, body=body, content=content, timeout=(connect, read))

    def _call(
        self,
        method: str,
        url: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Object | None = None,
        content: str = "application/json",
        timeout: tuple[float, float] | None = None,
    ) -> Object:
        answer = self._request(method, url, query=query, body=body, content=content, timeout=timeout)
        try:
            value = parse(answer.read() or b"{}")
        except (
            urllib3.exceptions.HTTPError,
            OSError,
            ValueError,
        ) as e:
            # The connection broke, or a proxy has answered.
            raise ApiError(None, f"{method} {url} got an unreadable answer: {e}; its outcome is unknown") from e
        if not isinstance(value, dict):
            raise ApiError(None, f"{method} {url} got an answer that is no JSON object; its outcome is unknown")
        return value

    def _request(
        self,
        method: str,
        url: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Object | None = None,
        content: str = "application/json",
        timeout: tuple[float, float | None] | None = None,
    ) -> Any:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content
        call = self._api.param_serialize(
            method=method,
            resource_path=url,
            query_params=query or [],
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        action = f"{method} {url}"
        try:
            answer = self._api.call_api(*call, _request_timeout=timeout or self._timeout)
            if answer.status >= 400:
                after = answer.headers.get("Retry-After", "")
                raise ApiError(
                    answer.status,
                    f"{action} failed: {error_message(answer.response.data)}",
                    float(after) if after.isdigit() else None,
                )
        except ApiException as e:  # raised for some kinds of missing answers
            raise ApiError(e.status or None, f"{action} failed: {error_message(e.body) or e.reason}") from e
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise ApiError(None, f"{action} got no answer: {e}; its outcome is unknown") from e
        return answer


def path(api_version: str, kind: str, namespace: str | None, name: str | None = None) -> str:
    """The path of an object, or of the list of a kind."""
    parts = ["apis" if "/" in api_version else "api", *api_version.split("/")]
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(_PLURALS[kind])
    if name:
        parts.append(name)
    return "/" + "/".join(quote(p, safe="") for p in parts)


def selected(labels: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """The part of the query that selects objects with these labels."""
    return [("labelSelector", ",".join(f"{k}={v}" for k, v in labels.items()))] if labels else []


def watch_query(version: str, seconds: float) -> list[tuple[str, str]]:
    """The part of the query that makes a list a watch after this version, for so many seconds."""
    query = [("watch", "true"), ("allowWatchBookmarks", "true")]
    return [*query, ("resourceVersion", version), ("timeoutSeconds", str(int(seconds)))]


def watch_event(api_version: str, kind: str, url: str, line: bytes) -> tuple[str, Object]:
    """An event of a watch of this URL, with the object. Raises ApiError if it is an error, ValueError if unreadable."""
    event = parse(line)
    if event["type"] == "ERROR":
        raise ApiError(event["object"].get("code"), f"watching {url}: {event['object'].get('message')}")
    return event["type"], compact({"apiVersion": api_version, "kind": kind, **event["object"]})


def _write_options(dry_run: bool) -> list[tuple[str, str]]:
    return [("fieldManager", FIELD_MANAGER), *([("dryRun", "All")] if dry_run else [])]


def error_message(body: bytes | str | None) -> str:
    """The message of an answer that is a Status, else the beginning of the answer."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text[:300]
