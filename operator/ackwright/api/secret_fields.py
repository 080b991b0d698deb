"""References to Secrets, for every part of the spec that connects to a server, and the connections to Kafka and S3."""

from __future__ import annotations

from typing import Annotated, Literal

from ackwright.api.fields import About, Model
from ackwright.api.quantities import BootstrapServers, Region, S3Endpoint, SecretKey, SecretName

LOGIN_KEYS = ("username", "password")


class CredentialsSecret(Model):
    """A reference to a Secret with the keys username and password."""

    name: Annotated[SecretName, About("The name of the Secret.")]


class CaSecret(Model):
    """A reference to a certificate in a Secret."""

    name: Annotated[SecretName, About("The name of the Secret.")]
    key: Annotated[SecretKey, About("The key of the Secret.")] = "ca.crt"


class TokenSecret(Model):
    """A reference to a token in a Secret."""

    name: Annotated[SecretName, About("The name of the Secret.")]
    key: Annotated[SecretKey, About("The key of the Secret.")] = "token"


class S3(Model):
    """How to reach a bucket of S3."""

    endpoint: Annotated[S3Endpoint | None, About("The server's address. Default: that of AWS.")] = None
    region: Annotated[Region | None, About("The region of the bucket.")] = None
    credentials_secret: Annotated[
        CredentialsSecret | None,
        About(
            "A Secret of the same namespace with the keys username (the access key's id) and password (the secret "
            "access key). Without it the identity of the job's pods is used, or what the sink's catalog hands out."
        ),
    ] = None


class Auth(Model):
    """spec.kafka.auth."""

    mechanism: Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], About("The SASL mechanism.")]
    credentials_secret: Annotated[
        CredentialsSecret, About("A Secret of the same namespace with the keys username and password.")
    ]


class Tls(Model):
    """spec.kafka.tls."""

    ca_secret: Annotated[
        CaSecret | None,
        About("A Secret of the same namespace with the CA certificate that signed the brokers' certificates, in PEM."),
    ] = None


class Kafka(Model):
    """spec.kafka."""

    bootstrap_servers: Annotated[BootstrapServers, About("host:port, several separated by commas.")]
    auth: Annotated[Auth | None, About("SASL authentication. Default: none.")] = None
    tls: Annotated[
        Tls | None, About("Encrypted connections. Without caSecret the CAs that the image trusts are trusted.")
    ] = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of its Secrets."""
        return tuple(self.secret_keys)

    @property
    def secret_keys(self) -> dict[str, tuple[str, ...]]:
        """The keys that it needs, by the name of their Secret."""
        keys: dict[str, tuple[str, ...]] = {}
        if self.auth:
            keys[self.auth.credentials_secret.name] = LOGIN_KEYS
        if ca := self.tls.ca_secret if self.tls else None:
            keys[ca.name] = (*keys.get(ca.name, ()), ca.key)
        return keys
