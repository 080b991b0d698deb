"""References of a pod template to Secrets, ConfigMaps and volumes: variables, volumes and their mounts.

https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/volume/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ackwright.api.checks import Check
from ackwright.api.fields import About, Model, exactly_one_of
from ackwright.api.pod_values import (
    Argument,
    DnsName,
    EnvName,
    EnvPrefix,
    FileMode,
    MountPath,
    RelativePath,
    SidecarPath,
    VolumeName,
)
from ackwright.api.quantities import SecretKey, SecretName, Size, Switch

_DEFAULT_MODE = About("The files' permissions, as a decimal number. Default: 420 (0644).")
_MAY_LACK = About("Whether the pod starts without it.")


class ObjectName(Model):
    """The name of an object in the pipeline's namespace."""

    name: Annotated[SecretName, About("The name.")]


class KeyOfObject(Model):
    """A key of a Secret or ConfigMap."""

    name: Annotated[SecretName, About("The name of the object.")]
    key: Annotated[SecretKey, About("The key.")]
    optional: Annotated[Switch, _MAY_LACK] = False


class FieldOfPod(Model):
    """A field of the pod."""

    field_path: Annotated[
        Literal[
            "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "status.hostIP", "status.podIP"
        ],
        About("The field."),
    ]


class EnvSource(Model):
    """Where the value of a variable is."""

    secret_key_ref: Annotated[KeyOfObject | None, About("A key of a Secret.")] = None
    config_map_key_ref: Annotated[KeyOfObject | None, About("A key of a ConfigMap.")] = None
    field_ref: Annotated[FieldOfPod | None, About("A field of the pod.")] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (exactly_one_of(cls),)


class EnvVar(Model):
    """A variable of the environment."""

    name: Annotated[EnvName, About("The name. Names that Ackwright, Spark, Java or Python read are refused.")]
    value: Annotated[Argument | None, About("The value. Credentials belong into a Secret.")] = None
    value_from: Annotated[EnvSource | None, About("Where the value is.")] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (ONE_VALUE,)


ONE_VALUE = Check[EnvVar](
    lambda variable: variable.value is None or variable.value_from is None,
    "must have at most one of value, valueFrom, and has value and valueFrom",
    "remove one of them",
    cel="!has(self.value) || !has(self.valueFrom)",
)


class EnvFrom(Model):
    """All keys of a Secret or ConfigMap as variables."""

    prefix: Annotated[EnvPrefix, About("Comes before each key, so that no key becomes a variable of the job's own.")]
    secret_ref: Annotated[ObjectName | None, About("The Secret.")] = None
    config_map_ref: Annotated[ObjectName | None, About("The ConfigMap.")] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (_ONE_OBJECT,)


_ONE_OBJECT = Check[EnvFrom](
    lambda source: (source.secret_ref is None) != (source.config_map_ref is None),
    "must have exactly one of secretRef, configMapRef",
    "name a Secret or a ConfigMap",
    cel="has(self.secretRef) != has(self.configMapRef)",
)


class KeyAsFile(Model):
    """A key as a file."""

    key: Annotated[SecretKey, About("The key.")]
    path: Annotated[RelativePath, About("The file, below the mount path.")]


_Items = Annotated[tuple[KeyAsFile, ...], Field(max_length=32)]
_ITEMS = About("The keys that become files. Default: all.")


class ConfigMapVolume(Model):
    """The keys of a ConfigMap as files."""

    name: Annotated[SecretName, About("The ConfigMap.")]
    items: Annotated[_Items, _ITEMS] = ()
    default_mode: Annotated[FileMode | None, _DEFAULT_MODE] = None
    optional: Annotated[Switch, _MAY_LACK] = False


class SecretVolume(Model):
    """The keys of a Secret as files."""

    secret_name: Annotated[SecretName, About("The Secret.")]
    items: Annotated[_Items, _ITEMS] = ()
    default_mode: Annotated[FileMode | None, _DEFAULT_MODE] = None
    optional: Annotated[Switch, _MAY_LACK] = False


class EmptyDir(Model):
    """A directory that lives as long as the pod."""

    medium: Annotated[Literal["Memory"] | None, About("Memory: in memory. Default: on the node's disk.")] = None
    size_limit: Annotated[Size | None, About("The size above which the pod is evicted. Default: none.")] = None


class Claim(Model):
    """A PersistentVolumeClaim."""

    claim_name: Annotated[DnsName, About("The claim.")]
    read_only: Annotated[Switch, About("Whether it is mounted for reading only.")] = False


class ClaimRequests(Model):
    """What a claim requests."""

    storage: Annotated[Size, About("The size: 10Gi.")]


class ClaimResources(Model):
    """The resources of a claim."""

    requests: Annotated[ClaimRequests, About("What it requests.")]


AccessMode = Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]


class ClaimSpec(Model):
    """The spec of a claim."""

    access_modes: Annotated[
        Annotated[tuple[AccessMode, ...], Field(min_length=1, max_length=4)], About("How many nodes may mount it.")
    ]
    resources: Annotated[ClaimResources, About("Its size.")]
    storage_class_name: Annotated[DnsName | None, About("The storage class. Default: that of the cluster.")] = None


class ClaimTemplate(Model):
    """The claim of each pod."""

    spec: Annotated[ClaimSpec, About("Its spec.")]


class Ephemeral(Model):
    """A volume that is created and deleted with the pod."""

    volume_claim_template: Annotated[ClaimTemplate, About("The claim that is created for each pod.")]


class Csi(Model):
    """An inline volume of a CSI driver."""

    driver: Annotated[DnsName, About("The driver, for instance secrets-store.csi.k8s.io.")]
    read_only: Annotated[Switch, About("Whether it is mounted for reading only.")] = False
    volume_attributes: Annotated[
        Annotated[Mapping[str, Argument], Field(max_length=32)], About("Attributes, which the driver describes.")
    ] = Field(default_factory=dict)
    node_publish_secret_ref: Annotated[ObjectName | None, About("A Secret for the driver.")] = None


class PodVolume(Model):
    """A volume of the pod."""

    name: Annotated[VolumeName, About("The name.")]
    config_map: Annotated[ConfigMapVolume | None, About("A ConfigMap.")] = None
    secret: Annotated[SecretVolume | None, About("A Secret.")] = None
    empty_dir: Annotated[EmptyDir | None, About("A directory that lives as long as the pod.")] = None
    persistent_volume_claim: Annotated[Claim | None, About("A claim that exists.")] = None
    ephemeral: Annotated[Ephemeral | None, About("A claim that is created and deleted with the pod.")] = None
    csi: Annotated[Csi | None, About("An inline volume of a CSI driver.")] = None

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (_ONE_KIND,)


_KINDS = ("configMap", "secret", "emptyDir", "persistentVolumeClaim", "ephemeral", "csi")
_ONE_KIND = Check[PodVolume](
    lambda volume: len(volume.model_dump(exclude_none=True)) == 2,
    f"must have exactly one of {', '.join(_KINDS)}",
    "remove all but one, or add one of them",
    cel=f"[{', '.join(f'has(self.{kind})' for kind in _KINDS)}].filter(present, present).size() == 1",
)


class VolumeMount(Model):
    """Where a volume of the template is mounted."""

    name: Annotated[VolumeName, About("The volume.")]
    mount_path: Annotated[MountPath, About("The path, below /data, /mnt, /opt or /srv.")]
    sub_path: Annotated[RelativePath | None, About("The directory of the volume. Default: all of it.")] = None
    read_only: Annotated[Switch, About("Whether it is mounted for reading only.")] = False


class SidecarMount(VolumeMount):
    """Where a volume of the template is mounted in a sidecar."""

    mount_path: Annotated[SidecarPath, About("The path.")]
