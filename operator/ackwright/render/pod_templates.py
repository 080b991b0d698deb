"""Merges a pod template of the spec into the pods of driver and executors. Pure.

What the operator sets stays: a template adds to it. Without a template nothing changes, so that the pods of pipelines
that have none are not replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from ackwright.api.pod_fields import PodTemplate, Sidecar
from ackwright.api.quantities import canonical
from ackwright.render.names import Object
from ackwright.render.pods import container_security

# Where Kubernetes mounts the token of the pod's service account. A container that mounts a volume there gets none.
# https://github.com/kubernetes/kubernetes/blob/master/plugin/pkg/admission/serviceaccount/admission.go
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 (a path)
_NO_TOKEN = "no-token"  # noqa: S105 (the name of a volume)
# Values that mean something although they are empty: a volume with defaults, a selector of all pods.
_MAY_BE_EMPTY = frozenset({"emptyDir", "labelSelector", "podAffinity", "podAntiAffinity", "nodeAffinity", "preference"})
_AMOUNTS = frozenset({"limits", "requests"})
# Maps of text, in which an empty value means something.
_TEXTS = frozenset({"matchLabels", "volumeAttributes"})


def merged(pod: Object, template: PodTemplate, same_role: Mapping[str, str]) -> Object:
    """The pod, with metadata and spec, with what the template adds.

    same_role: the labels of the pods of this role, which a topologySpreadConstraint counts by default.
    """
    meta, spec = pod["metadata"], pod["spec"]
    containers = [_container(spec["containers"][0], template), *spec["containers"][1:]]
    return {
        **pod,
        "metadata": {
            **meta,
            **_united(meta, "labels", dict(template.labels)),
            **_united(meta, "annotations", dict(template.annotations)),
        },
        "spec": {
            **spec,
            "containers": containers,
            "volumes": [*spec["volumes"], *map(plain, template.volumes), *_token_volume(template.sidecars)],
            # Of several tolerations of a taint the first one counts.
            "tolerations": [*spec["tolerations"], *map(plain, template.tolerations)],
            "securityContext": {**spec["securityContext"], **plain(template.security_context)},
            **_affinity(spec, template),
            **_spread(template, same_role),
            **({"nodeSelector": dict(template.node_selector)} if template.node_selector else {}),
            **({"priorityClassName": template.priority_class_name} if template.priority_class_name else {}),
            **({"schedulerName": template.scheduler_name} if template.scheduler_name else {}),
            **({"initContainers": [_sidecar(s) for s in template.sidecars]} if template.sidecars else {}),
        },
    }


def plain(model: BaseModel) -> Object:
    """A model as the API server returns it: without absent and empty fields, with canonical quantities."""
    return _plain(model.model_dump(mode="json", by_alias=True, exclude_none=True))


def _plain(fields: Mapping[str, Any]) -> Object:
    result: Object = {}
    for name, value in fields.items():
        entry = _value(name, value)
        if entry not in ("", [], {}) or (entry == {} and name in _MAY_BE_EMPTY):
            result[name] = entry
    return {name: value for name, value in result.items() if value is not False or name == "readOnlyRootFilesystem"}


def _value(name: str, value: Any) -> Any:
    if name in _AMOUNTS and isinstance(value, Mapping):
        return {resource: canonical(amount) for resource, amount in value.items()}
    if name in _TEXTS:
        return dict(value)
    if name == "sizeLimit":
        return canonical(value)
    if isinstance(value, Mapping):
        return _plain(value)
    if isinstance(value, list | tuple):
        return [_plain(entry) if isinstance(entry, Mapping) else entry for entry in value]
    return value


def _united(holder: Object, name: str, more: Mapping[str, str]) -> Object:
    """A map of the holder with more entries; absent if it is absent there and none are added."""
    return {name: {**more, **holder.get(name, {})}} if more or name in holder else {}


def _container(container: Object, template: PodTemplate) -> Object:
    env = [*container.get("env", ()), *map(plain, template.env)]
    resources = {
        kind: {**container.get("resources", {}).get(kind, {}), **amounts}
        for kind, amounts in {**container.get("resources", {}), **plain(template.resources)}.items()
    }
    return {
        **container,
        "volumeMounts": [*container["volumeMounts"], *map(plain, template.volume_mounts)],
        **({"env": env} if env else {}),
        **({"envFrom": [plain(source) for source in template.env_from]} if template.env_from else {}),
        **({"resources": resources} if resources else {}),
    }


def _affinity(spec: Object, template: PodTemplate) -> Object:
    """The template's affinity, and that of the operator: a standby on another node."""
    own = spec.get("affinity", {})
    chosen = plain(template.affinity) if template.affinity else {}
    if not own or not chosen:
        affinity = own or chosen
        return {"affinity": affinity} if affinity else {}
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    apart = chosen.get("podAntiAffinity", {})
    both = {**apart, preferred: [*own["podAntiAffinity"][preferred], *apart.get(preferred, ())]}
    return {"affinity": {**chosen, "podAntiAffinity": both}}


def _spread(template: PodTemplate, same_role: Mapping[str, str]) -> Object:
    """The template's constraints, which replace those of the operator; absent without any."""
    constraints = [
        {**plain(spread), **({} if spread.label_selector else {"labelSelector": {"matchLabels": dict(same_role)}})}
        for spread in template.topology_spread_constraints
    ]
    return {"topologySpreadConstraints": constraints} if constraints else {}


def _token_volume(sidecars: Sequence[Sidecar]) -> list[Object]:
    return [{"name": _NO_TOKEN, "emptyDir": {"sizeLimit": "1Mi"}}] if sidecars else []


def _sidecar(sidecar: Sidecar) -> Object:
    """A container that Kubernetes restarts, and that keeps no pod from completing.

    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
    """
    container = plain(sidecar)
    return {
        **container,
        "restartPolicy": "Always",
        "securityContext": {**container_security(), **container["securityContext"]},
        "volumeMounts": [
            *container.get("volumeMounts", ()),
            {"name": _NO_TOKEN, "mountPath": _TOKEN_PATH, "readOnly": True},
        ],
    }
