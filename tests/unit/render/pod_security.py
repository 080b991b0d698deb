"""A check of a pod's spec for the Pod Security Standard "restricted", which includes "baseline", from its description.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Pod = Mapping[str, Any]

_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
_SECCOMP = ("RuntimeDefault", "Localhost")


def violations(pod: Pod) -> list[str]:
    """The violations of the standard in the spec of a pod."""
    return [
        *_of_pod(pod),
        *(f"{c['name']}: {v}" for c in _containers(pod) for v in _of_container(c, pod.get("securityContext", {}))),
    ]


def _containers(pod: Pod) -> list[Pod]:
    return [c for kind in ("containers", "initContainers", "ephemeralContainers") for c in pod.get(kind, ())]


def _of_pod(pod: Pod) -> Iterator[str]:
    yield from (name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name))
    yield from (
        f"volume {v['name']}"
        for v in pod.get("volumes", ())
        if len(set(v) - {"name"}) != 1 or not set(v) - {"name"} <= _VOLUMES
    )
    context = pod.get("securityContext", {})
    if context.get("runAsUser") == 0:
        yield "runs as root"
    if context.get("sysctls"):
        yield "sysctls"
    yield from _of_any(context)


def _of_container(container: Pod, of_pod: Mapping[str, Any]) -> Iterator[str]:
    context = container.get("securityContext", {})
    capabilities = context.get("capabilities", {})
    if context.get("privileged"):
        yield "privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "may escalate"
    if "ALL" not in capabilities.get("drop", ()) or not set(capabilities.get("add", ())) <= {"NET_BIND_SERVICE"}:
        yield "capabilities"
    if context.get("runAsNonRoot", of_pod.get("runAsNonRoot")) is not True:
        yield "may run as root"
    if context.get("runAsUser") == 0:
        yield "runs as root"
    if context.get("seccompProfile", of_pod.get("seccompProfile", {})).get("type") not in _SECCOMP:
        yield "seccomp"
    if context.get("procMount", "Default") != "Default":
        yield "procMount"
    if any(p.get("hostPort") for p in container.get("ports", ())):
        yield "host port"
    yield from _of_any(context)


def _of_any(context: Mapping[str, Any]) -> Iterator[str]:
    if context.get("windowsOptions", {}).get("hostProcess"):
        yield "host process"
    if context.get("appArmorProfile", {}).get("type", "RuntimeDefault") not in _SECCOMP:
        yield "AppArmor"
    options = context.get("seLinuxOptions", {})
    if (
        options.get("user")
        or options.get("role")
        or options.get("type", "container_t") not in ("", "container_t", "container_init_t", "container_kvm_t")
    ):
        yield "SELinux"
