"""The fields of the resource that describe the schema registry."""

from __future__ import annotations

from typing import Annotated, Any

from ackwright.api.checks import Check
from ackwright.api.fields import About, Model
from ackwright.api.quantities import RegistryUrl
from ackwright.api.secret_fields import CaSecret, CredentialsSecret


class RegistryTls(Model):
    """spec.schemaRegistry.tls."""

    ca_secret: Annotated[
        CaSecret | None,
        About("A Secret of the same namespace with the CA certificate that signed the registry's certificate, in PEM."),
    ] = None


class SchemaRegistry(Model):
    """spec.schemaRegistry."""

    url: Annotated[RegistryUrl, About("The address of its Confluent-compatible API; with https it is verified.")]
    credentials_secret: Annotated[
        CredentialsSecret | None,
        About("A Secret of the same namespace with the keys username and password. Default: no login."),
    ] = None
    tls: Annotated[
        RegistryTls | None, About("For https. Without caSecret the CAs that the image trusts are trusted.")
    ] = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of its Secrets."""
        login, ca = self.credentials_secret, self.tls.ca_secret if self.tls else None
        return (*((login.name,) if login else ()), *((ca.name,) if ca else ()))

    @classmethod
    def checks(cls) -> tuple[Check[Any], ...]:
        return (_TLS_NEEDS_HTTPS,)


_TLS_NEEDS_HTTPS = Check[SchemaRegistry](
    lambda registry: registry.tls is None or registry.url.startswith("https://"),
    "tls is for an address that begins with https://",
    "write https:// in url, or remove tls",
    cel="!has(self.tls) || self.url.startsWith('https://')",
    field="tls",
)
