"""Validations of the pod templates of driver and executors, and of what depends on their volumes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ackwright.api.checks import Broken, Cel, Validation
from ackwright.api.pod_fields import PodTemplate
from ackwright.api.spec import DeliveryPipeline

_ROLES = ("driver", "executor")
_READS = tuple(f"spec.spark.{role}.podTemplate" for role in _ROLES)


def templates(pipeline: DeliveryPipeline) -> tuple[tuple[str, PodTemplate], ...]:
    """The pod templates, each with its path."""
    spark = pipeline.spec.spark
    return tuple(zip(_READS, (spark.driver.pod_template, spark.executor.pod_template), strict=True))


def _each_template(
    find: Callable[[str, PodTemplate], Iterator[Broken]],
) -> Callable[[DeliveryPipeline], Iterator[Broken]]:
    return lambda pipeline: (broken for path, template in templates(pipeline) for broken in find(path, template))


def _twice(path: str, names: Iterable[str]) -> Iterator[Broken]:
    known: set[str] = set()
    for i, name in enumerate(names):
        if name in known:
            yield Broken(f"{path}[{i}]", name)
        known.add(name)


def _repeated(path: str, template: PodTemplate) -> Iterator[Broken]:
    yield from _twice(f"{path}.volumes", (volume.name for volume in template.volumes))
    yield from _twice(f"{path}.volumeMounts", (mount.mount_path for mount in template.volume_mounts))
    yield from _twice(f"{path}.env", (variable.name for variable in template.env))
    yield from _twice(f"{path}.sidecars", (sidecar.name for sidecar in template.sidecars))
    yield from _twice(
        f"{path}.topologySpreadConstraints",
        (f"{s.topology_key} {s.when_unsatisfiable}" for s in template.topology_spread_constraints),
    )
    for i, sidecar in enumerate(template.sidecars):
        yield from _twice(f"{path}.sidecars[{i}].env", (variable.name for variable in sidecar.env))
        yield from _twice(f"{path}.sidecars[{i}].volumeMounts", (mount.mount_path for mount in sidecar.volume_mounts))


def _repeated_pull_secrets(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    return _twice("spec.spark.imagePullSecrets", (secret.name for secret in pipeline.spec.spark.image_pull_secrets))


def _without_volume(path: str, template: PodTemplate) -> Iterator[Broken]:
    names = {volume.name for volume in template.volumes}
    holders = [(path, template.volume_mounts)]
    holders += [(f"{path}.sidecars[{i}]", sidecar.volume_mounts) for i, sidecar in enumerate(template.sidecars)]
    for place, mounts in holders:
        for i, mount in enumerate(mounts):
            if mount.name not in names:
                yield Broken(f"{place}.volumeMounts[{i}].name", mount.name)


def _event_log_outside_mounts(pipeline: DeliveryPipeline) -> Iterator[Broken]:
    declared = pipeline.spec.spark.event_log
    if declared is None or not declared.directory.startswith(_FILE):
        return
    mounts = pipeline.spec.spark.driver.pod_template.volume_mounts
    if not any(f"{declared.directory}/".startswith(f"{_FILE}{m.mount_path}/") and not m.read_only for m in mounts):
        yield Broken("spec.spark.eventLog.directory", declared.directory)


_FILE = "file://"
_NO_VOLUME = "(!has(self.volumes) || !self.volumes.exists(volume, volume.name == mount.name))"
_MOUNTS = f"!has(self.volumeMounts) || self.volumeMounts.all(mount, !{_NO_VOLUME})"
_OF_SIDECARS = (
    "!has(self.sidecars) || self.sidecars.all(sidecar, !has(sidecar.volumeMounts) || "
    f"sidecar.volumeMounts.all(mount, !{_NO_VOLUME}))"
)
_EVENT_LOG_MOUNTED = (
    f"!has(self.eventLog) || !self.eventLog.directory.startsWith('{_FILE}') || "
    "(has(self.driver.podTemplate) && has(self.driver.podTemplate.volumeMounts) && "
    "self.driver.podTemplate.volumeMounts.exists(mount, !(has(mount.readOnly) && mount.readOnly) && "
    f"(self.eventLog.directory + '/').startsWith('{_FILE}' + mount.mountPath + '/')))"
)

POD_VALIDATIONS: tuple[Validation[DeliveryPipeline], ...] = (
    Validation(
        "is there twice",
        "remove one of them",
        _READS,
        _each_template(_repeated),
        not_in_cel="the schema refuses it: lists of maps with keys",
    ),
    Validation(
        "names a Secret twice",
        "remove one of them",
        ("spec.spark.imagePullSecrets",),
        _repeated_pull_secrets,
        not_in_cel="the schema refuses it: a list of maps with a key",
    ),
    Validation(
        "must be the name of a volume of this template",
        "add it to volumes of the same podTemplate, or correct the name",
        _READS,
        _each_template(_without_volume),
        cel=tuple(
            cel
            for path in _READS
            for cel in (
                Cel(_MOUNTS, on=path, at=".volumeMounts"),
                Cel(_OF_SIDECARS, on=path, at=".sidecars"),
            )
        ),
    ),
    Validation(
        "must be below a writable volumeMount of the driver: the files of its container end with it",
        "mount a volume with driver.podTemplate.volumes and volumeMounts, or write s3a://bucket/prefix",
        ("spec.spark.eventLog", "spec.spark.driver.podTemplate"),
        _event_log_outside_mounts,
        cel=(Cel(_EVENT_LOG_MOUNTED, on="spec.spark", at=".eventLog.directory"),),
    ),
)
