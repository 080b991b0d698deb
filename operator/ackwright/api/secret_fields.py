"""References to Secrets, for every part of the spec that connects to a server."""

from __future__ import annotations

from typing import Annotated

from ackwright.api.fields import About, Model
from ackwright.api.quantities import SecretKey, SecretName


class CredentialsSecret(Model):
    """A reference to a Secret with the keys username and password."""

    name: Annotated[SecretName, About("The name of the Secret.")]


class CaSecret(Model):
    """A reference to a certificate in a Secret."""

    name: Annotated[SecretName, About("The name of the Secret.")]
    key: Annotated[SecretKey, About("The key of the Secret.")] = "ca.crt"
