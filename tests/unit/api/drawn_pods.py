"""Pod templates for property tests: any that the spec accepts, with every field."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_KEYS = st.sampled_from(["pool", "example.com/zone", "app.kubernetes.io/component", "a.b/c_d"])
_TEXT = st.sampled_from(["", "a", "x.y_z-1"])
_NAMES = st.sampled_from(["a", "b-1", "data"])
_LABELS = st.dictionaries(_KEYS, _TEXT, max_size=2)
_AMOUNTS = st.sampled_from(["1", "500m", "1000m", "1024Mi", "2Gi", "1000k", "1000M"])


def _fields(
    required: dict[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


def _few(entries: st.SearchStrategy[Any], *, by: str | None = None) -> st.SearchStrategy[list[Any]]:
    unique = (lambda entry: entry[by]) if by else None
    return st.lists(entries, min_size=1, max_size=2, unique_by=unique)


def _requirements(more: tuple[str, ...] = ()) -> st.SearchStrategy[list[Any]]:
    with_values = st.fixed_dictionaries(
        {"key": _KEYS, "operator": st.sampled_from(["In", "NotIn"]), "values": st.just(["a", "b"])}
    )
    without = st.fixed_dictionaries({"key": _KEYS, "operator": st.sampled_from(["Exists", "DoesNotExist"])})
    bounds = st.fixed_dictionaries(
        {"key": _KEYS, "operator": st.sampled_from(more or ("In",)), "values": st.just(["3"])}
    )
    return _few(with_values | without | bounds)


_SELECTOR = _fields({}, matchLabels=_LABELS, matchExpressions=_requirements())
_NODES = st.builds(lambda rules: {"matchExpressions": rules}, _requirements(("Gt", "Lt")))
_POD_TERM = _fields({"topologyKey": _KEYS}, labelSelector=_SELECTOR)
_WEIGHT = st.sampled_from([1, 100])
_POD_AFFINITY = _fields(
    {},
    requiredDuringSchedulingIgnoredDuringExecution=_few(_POD_TERM),
    preferredDuringSchedulingIgnoredDuringExecution=_few(_fields({"weight": _WEIGHT, "podAffinityTerm": _POD_TERM})),
)
_AFFINITY = _fields(
    {},
    nodeAffinity=_fields(
        {},
        requiredDuringSchedulingIgnoredDuringExecution=_fields({"nodeSelectorTerms": _few(_NODES)}),
        preferredDuringSchedulingIgnoredDuringExecution=_few(_fields({"weight": _WEIGHT, "preference": _NODES})),
    ),
    podAffinity=_POD_AFFINITY,
    podAntiAffinity=_POD_AFFINITY,
)
_TOLERATION = st.sampled_from(
    [
        {"operator": "Exists"},
        {"key": "dedicated", "operator": "Equal", "value": "spark", "effect": "NoSchedule"},
        {"key": "dedicated", "value": "spark"},
        {"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
    ]
)
_SPREAD = _fields(
    {
        "maxSkew": st.sampled_from([1, 3]),
        "topologyKey": _KEYS,
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    },
    labelSelector=_SELECTOR,
    nodeAffinityPolicy=st.sampled_from(["Honor", "Ignore"]),
    nodeTaintsPolicy=st.sampled_from(["Honor", "Ignore"]),
)
_KEY_REF = _fields({"name": _NAMES, "key": st.just("k")}, optional=st.booleans())
_VALUE_FROM = st.one_of(
    _KEY_REF.map(lambda ref: {"secretKeyRef": ref}),
    _KEY_REF.map(lambda ref: {"configMapKeyRef": ref}),
    st.just({"fieldRef": {"fieldPath": "spec.nodeName"}}),
)
_VARIABLE_NAMES = st.sampled_from(["APP_MODE", "AWS_REGION", "_x"])
_VARIABLE = _fields({"name": _VARIABLE_NAMES}, value=_TEXT | st.just("$(POD_IP)")) | _fields(
    {"name": _VARIABLE_NAMES, "valueFrom": _VALUE_FROM}
)
_ENV_FROM = st.one_of(
    st.just({"prefix": "APP_", "secretRef": {"name": "login"}}),
    st.just({"prefix": "CONF_", "configMapRef": {"name": "conf"}}),
)
_OF_KEYS: dict[str, st.SearchStrategy[Any]] = {
    "items": st.just([{"key": "a", "path": "dir/a"}]),
    "defaultMode": st.sampled_from([0, 0o440]),
    "optional": st.booleans(),
}
_KINDS = st.one_of(
    _fields({"name": _NAMES}, **_OF_KEYS).map(lambda v: {"configMap": v}),
    _fields({"secretName": _NAMES}, **_OF_KEYS).map(lambda v: {"secret": v}),
    _fields({}, medium=st.just("Memory"), sizeLimit=st.sampled_from(["1024Mi", "1Gi"])).map(lambda v: {"emptyDir": v}),
    _fields({"claimName": _NAMES}, readOnly=st.booleans()).map(lambda v: {"persistentVolumeClaim": v}),
    st.just(
        {
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Gi"}}}
                }
            }
        }
    ),
    st.just({"csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True, "volumeAttributes": {"x": ""}}}),
)
# The names are those that mounts refer to.
_VOLUMES = st.tuples(_KINDS, _KINDS).map(lambda kinds: [{"name": f"v{i}", **kind} for i, kind in enumerate(kinds)])
_MOUNT = _fields(
    {"name": st.sampled_from(["v0", "v1"]), "mountPath": st.sampled_from(["/mnt/a", "/data/b.c", "/opt/x", "/srv/y"])},
    subPath=st.just("a/b"),
    readOnly=st.booleans(),
)
_SIDECAR = _fields(
    {"name": _NAMES, "image": st.just("log:1")},
    imagePullPolicy=st.sampled_from(["Always", "Never"]),
    command=st.just(["tail", ""]),
    args=st.just(["-f"]),
    env=_few(_fields({"name": st.sampled_from(["PATH", "X"])}, value=_TEXT), by="name"),
    ports=st.just([{"containerPort": 9000}, {"name": "b", "containerPort": 9001}]),
    resources=_fields(
        {}, limits=st.dictionaries(st.just("memory"), st.sampled_from(["1024Mi", "2Gi"])), requests=st.just({})
    ),
    securityContext=_fields({}, runAsUser=st.just(1000), readOnlyRootFilesystem=st.booleans()),
    volumeMounts=_few(_MOUNT, by="mountPath"),
)


def _referring(template: dict[str, Any]) -> dict[str, Any]:
    """The template with the volumes that its mounts refer to."""
    mounts = "volumeMounts" in template or any("volumeMounts" in s for s in template.get("sidecars", ()))
    return (
        {"volumes": [{"name": "v0", "emptyDir": {}}, {"name": "v1", "emptyDir": {}}], **template}
        if mounts
        else template
    )


def pod_templates() -> st.SearchStrategy[dict[str, Any]]:
    return _fields(
        {},
        labels=_LABELS | st.just({"kueue.x-k8s.io/queue-name": "team"}),
        annotations=st.dictionaries(
            st.sampled_from(["example.com/note", "note", "scheduling.volcano.sh/queue-name"]), _TEXT, max_size=2
        ),
        nodeSelector=_LABELS,
        affinity=_AFFINITY,
        tolerations=_few(_TOLERATION),
        topologySpreadConstraints=st.lists(
            _SPREAD, min_size=1, max_size=2, unique_by=lambda s: (s["topologyKey"], s["whenUnsatisfiable"])
        ),
        priorityClassName=st.just("jobs"),
        schedulerName=st.just("volcano"),
        env=_few(_VARIABLE, by="name"),
        envFrom=_few(_ENV_FROM),
        resources=_fields(
            {},
            limits=st.fixed_dictionaries(
                {}, optional={"cpu": st.just("4000m"), "ephemeral-storage": _AMOUNTS, "nvidia.com/gpu": st.just("1000")}
            ),
        ),
        securityContext=_fields(
            {}, fsGroup=st.just(2000), fsGroupChangePolicy=st.just("OnRootMismatch"), supplementalGroups=st.just([7])
        ),
        volumes=_VOLUMES,
        volumeMounts=_few(_MOUNT, by="mountPath"),
        sidecars=_few(_SIDECAR, by="name"),
    ).map(_referring)
