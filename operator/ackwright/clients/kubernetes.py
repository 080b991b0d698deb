"""Calls to the Kubernetes API: each with a timeout, and with errors in three kinds: refused, gone elsewhere (conflict), unknown.

Paths instead of one class per kind: the operator reads, makes, applies and deletes objects, whatever they are. What exists is changed by
server-side apply with a fixed field manager, so that applying twice changes nothing and others' fields are left alone.
https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import urllib3
import yaml
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION

from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason

Object = dict[str, Any]

FIELD_MANAGER = "ackwright"
GROUP, VERSION, PLURAL = "ackwright.io", "v1alpha1", "deliverypipelines"
_TIMEOUT = (3.05, 15.0)  # seconds to connect, and between two reads
_CONNECTIONS = 64  # that are kept: each watch has one, and each worker
_PIECE = 1 << 16  # bytes read at once, at most
_PAGE = 500  # objects that one answer to a list holds, at most
_SHARED_UP_TO = 128  # characters
_PLURALS = {
    "ConfigMap": "configmaps",
    "DeliveryPipeline": PLURAL,
    "Event": "events",
    "Job": "jobs",
    "Lease": "leases",
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
    """A call that failed. status: HTTP's; None: no answer came, and the outcome is unknown. retry_after: seconds, as the server asks."""

    def __init__(self, status: int | None, message: str, retry_after: float | None = None) -> None:
        refused = status is not None and status < 500 and status not in (_CONFLICT, _GONE, _TOO_MANY)
        super().__init__(Reason.KUBERNETES_REFUSED if refused else Reason.KUBERNETES_UNREACHABLE, message)
        self.status = status
        self.retry_after = retry_after

    @property
    def passing(self) -> bool:
        """Whether the same call may succeed later. What is refused (403, 422 …) is not asked again until something changes."""
        return self.reason is Reason.KUBERNETES_UNREACHABLE


class NoCluster(AckwrightError):
    """Nothing tells of a cluster: this is no pod, and there is no kubeconfig."""


def connect(kubeconfig: str | None = None, context: str | None = None) -> Kubernetes:
    """A connection from inside of a cluster, else by kubeconfig. Raises AckwrightError if neither works, NoCluster if there is neither."""
    settings = Configuration()
    # A server that asks to be left alone is told of, not waited for. One more try is for a kept connection that was closed meanwhile.
    settings.retries = urllib3.Retry(1, respect_retry_after_header=False)
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
    ) as e:  # of a file that is none
        known = (
            kubeconfig
            or context
            or any(Path(f).expanduser().exists() for f in KUBE_CONFIG_DEFAULT_LOCATION.split(os.pathsep))
        )
        raise (AckwrightError if known else NoCluster)(
            Reason.KUBERNETES_UNREACHABLE,
            f"no way to a Kubernetes cluster: {e}; set KUBECONFIG, or check that kubectl works here",
        ) from e
    return Kubernetes(ApiClient(settings))


def default_namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace that kubectl would take."""
    try:
        contexts, active = config.list_kube_config_contexts(kubeconfig)
    except config.ConfigException:
        return "default"
    chosen = next((c for c in contexts if c["name"] == context), active)
    namespace: str = (chosen or {}).get("context", {}).get("namespace") or "default"
    return namespace


class Kubernetes:
    """One connection, safe for threads."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    # -- reads -----------------------------------------------------------------------------------------------------------------

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        """The object; None if there is none."""
        try:
            return self._call("GET", path(api_version, kind, namespace, name))
        except ApiError as e:
            if e.status == 404:
                return None
            raise

    def objects(
        self, api_version: str, kind: str, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """The objects of a kind, all of them at once. namespace None: of every namespace."""
        return self.listing(api_version, kind, namespace, labels)[0]

    def listing(
        self, api_version: str, kind: str, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> tuple[list[Object], str]:
        """The objects of a kind, and the version of this list, after which a watch goes on. Asked for in pieces, as kubectl does: what is
        only read to be thrown away stays small. Raises ApiError with status 410 if that took so long that the rest is no longer known."""
        found: list[Object] = []
        more: list[tuple[str, str]] = []
        while True:
            answer = self._call(
                "GET", path(api_version, kind, namespace), query=[*_selected(labels), ("limit", str(_PAGE)), *more]
            )
            found += [compact({"apiVersion": api_version, "kind": kind, **item}) for item in answer.get("items", [])]
            meta = answer.get("metadata", {})
            if not meta.get("continue"):
                return found, str(meta.get("resourceVersion", ""))
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
        """What happens after that version, for so many seconds: ADDED, MODIFIED, DELETED or BOOKMARK, and the object as it is then.

        Raises ApiError if it breaks off; with status 410 if what happened since that version is no longer known.
        """
        where = path(api_version, kind, namespace)
        query = [*_selected(labels), ("watch", "true"), ("allowWatchBookmarks", "true")]
        query += [("resourceVersion", version), ("timeoutSeconds", str(int(seconds)))]
        answer = self._request("GET", where, query=query, timeout=(_TIMEOUT[0], seconds + _TIMEOUT[1])).response
        rest = b""
        try:
            for piece in answer.stream(_PIECE):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiError(
                            event["object"].get("code"), f"watching {where}: {event['object'].get('message')}"
                        )
                    yield event["type"], compact({"apiVersion": api_version, "kind": kind, **event["object"]})
        except (urllib3.exceptions.HTTPError, OSError, ValueError, LookupError, TypeError) as e:
            raise ApiError(None, f"watching {where} broke off: {e}") from e
        finally:
            answer.close()

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API server knows the kind, which is not one of Kubernetes' own."""
        try:
            found = self._call("GET", f"/apis/{api_version}")
        except ApiError as e:
            if e.status == 404:
                return False
            raise
        return any(r["kind"] == kind for r in found.get("resources", ()))

    def logs(self, namespace: str, pod: str, *, container: str, follow: bool, tail: int | None, previous: bool) -> Any:
        """A container's output as a stream of bytes (urllib3's response)."""
        query = [("container", container), ("follow", str(follow).lower()), ("previous", str(previous).lower())]
        query += [("tailLines", str(tail))] if tail is not None else []
        return self._request(
            "GET", path("v1", "Pod", namespace, pod) + "/log", query=query, timeout=(3.05, None) if follow else _TIMEOUT
        )

    def version(self) -> str:
        """The API server's own."""
        return str(self._call("GET", "/version").get("gitVersion", "unknown"))

    # -- writes ----------------------------------------------------------------------------------------------------------------

    def apply(self, wanted: Object) -> Object:
        """Makes the object, or brings what we say of it to what is wanted; takes over fields that somebody else has set."""
        meta = wanted["metadata"]
        where = path(wanted["apiVersion"], wanted["kind"], meta["namespace"], meta["name"])
        query = [("fieldManager", FIELD_MANAGER), ("force", "true")]
        return self._call("PATCH", where, query=query, body=wanted, content="application/apply-patch+yaml")

    def create(self, wanted: Object, *, try_only: bool = False) -> Object:
        """Raises ApiError with status 409 if it exists. try_only: the server judges it and makes nothing."""
        where = path(wanted["apiVersion"], wanted["kind"], wanted["metadata"]["namespace"])
        return self._call("POST", where, query=_written_by(try_only), body=wanted)

    def merge(
        self, api_version: str, kind: str, namespace: str, name: str, change: Object, *, try_only: bool = False
    ) -> Object:
        """Changes some fields (JSON merge patch). With metadata.resourceVersion in it: only if nobody else changed the object. try_only:
        the server judges it and changes nothing. Returns the object as it is, or would be."""
        return self._call(
            "PATCH",
            path(api_version, kind, namespace, name),
            query=_written_by(try_only),
            body=change,
            content="application/merge-patch+json",
        )

    def put_status(self, changed: Object) -> Object:
        """Replaces the status. Raises ApiError with status 409 if the object has changed since it was read."""
        meta = changed["metadata"]
        where = path(changed["apiVersion"], changed["kind"], meta["namespace"], meta["name"]) + "/status"
        return self._call("PUT", where, query=[("fieldManager", FIELD_MANAGER)], body=changed)

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
        """Asks for an object to go, in the foreground: it is there until what it owns is gone. uid: only if it is still that one; a missing
        object is fine."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
        if kind == "Pod":
            options.pop(
                "propagationPolicy"
            )  # a pod's name must be free as soon as it has ended, and its executors go by themselves
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self._call("DELETE", path(api_version, kind, namespace, name), body=options)
        except ApiError as e:
            if e.status != 404:
                raise

    # -- the call itself -------------------------------------------------------------------------------------------------------

    def _call(
        self,
        method: str,
        where: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Object | None = None,
        content: str = "application/json",
    ) -> Object:
        answer = self._request(method, where, query=query, body=body, content=content)
        try:
            found = json.loads(answer.read() or b"{}")
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as e:  # it broke off, or a proxy has answered
            raise ApiError(None, f"{method} {where} got no answer that can be read: {e}; its outcome is unknown") from e
        if not isinstance(found, dict):
            raise ApiError(None, f"{method} {where} got an answer that is no object; its outcome is unknown")
        return found

    def _request(
        self,
        method: str,
        where: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Object | None = None,
        content: str = "application/json",
        timeout: tuple[float, float | None] = _TIMEOUT,
    ) -> Any:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content
        call = self._api.param_serialize(
            method=method,
            resource_path=where,
            query_params=query or [],
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        what = f"{method} {where}"
        try:
            answer = self._api.call_api(*call, _request_timeout=timeout)
            if answer.status >= 400:
                after = answer.headers.get("Retry-After", "")
                raise ApiError(
                    answer.status,
                    f"{what} failed: {_said(answer.response.data)}",
                    float(after) if after.isdigit() else None,
                )
        except ApiException as e:  # raised for some ways in which no answer came
            raise ApiError(e.status or None, f"{what} failed: {_said(e.body) or e.reason}") from e
        except (urllib3.exceptions.HTTPError, OSError) as e:
            raise ApiError(None, f"{what} got no answer: {e}; its outcome is unknown") from e
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


def compact(body: Mapping[str, Any]) -> Object:
    """A copy to keep: without what nobody reads and takes most of the memory, and with one copy of each text that many objects share."""
    return {
        k: _shared({n: v for n, v in body[k].items() if n != "managedFields"} if k == "metadata" else body[k])
        for k in body
    }


def _shared(value: Any) -> Any:
    if type(value) is str:
        return sys.intern(value) if len(value) <= _SHARED_UP_TO else value
    if isinstance(value, Mapping):
        return {sys.intern(k): _shared(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_shared(v) for v in value]
    return value


def _selected(labels: Mapping[str, str] | None) -> list[tuple[str, str]]:
    return [("labelSelector", ",".join(f"{k}={v}" for k, v in labels.items()))] if labels else []


def _written_by(try_only: bool) -> list[tuple[str, str]]:
    return [("fieldManager", FIELD_MANAGER), *([("dryRun", "All")] if try_only else [])]


def _said(body: bytes | str | None) -> str:
    """The message of an answer that is a Status, else its beginning."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    try:
        found = json.loads(text)
        return str(found["message"])
    except (ValueError, KeyError, TypeError):
        return text[:300]
