"""A client of a Confluent-compatible schema registry, as the job uses it: HTTP by the standard library.

It does not follow redirects, because the login would go with them. Transient failures are repeated until the time of
one operation is over. An answer that a registry would not give, such as a proxy's page, is never taken for "there is no
such schema": records would be dropped for it.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, SchemaRegistry
from ackwright_stream.reasons import REASONS

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_ONE_TRY_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA, _INVALID_SCHEMA = 40401, 40402, 40403, 42201
_INCOMPATIBLE = 409
_LARGEST_ID = 2**31 - 1  # of Confluent's registry, for which a path with a larger one does not exist
_CONTEXT = ":."  # the beginning of a subject that is not in the default context
AVRO = "AVRO"  # the kind of a schema that names none


@dataclass(frozen=True)
class Schema:
    """A registered schema."""

    text: str
    type: str  # AVRO, JSON, PROTOBUF
    id: int
    version: int | None = None  # in its subject; None: not known
    references: int = 0  # how many other schemas it refers to


@dataclass(frozen=True)
class _Answer:
    status: int
    body: Any  # parsed JSON; None: it is none

    @property
    def error_code(self) -> int | None:
        """The registry's own code of an error; None: another server answered, or it is no error."""
        code = self.body.get("error_code") if isinstance(self.body, dict) else None
        return code if isinstance(code, int) else None

    @property
    def is_other_path(self) -> bool:
        """Whether the registry has no such path."""
        return self.status == 404 and self.error_code is not None

    @property
    def message(self) -> str:
        text = self.body.get("message") if isinstance(self.body, dict) else None
        return " ".join(str(text or f"HTTP status {self.status}").split())[:400]


class RegistryClient:
    """One registry. Every method raises JobError: RegistryUnreachable, RegistryLoginRefused, or as it says."""

    def __init__(self, registry: SchemaRegistry, pause: Callable[[float], object] = time.sleep) -> None:
        self._registry, self._pause = registry, pause
        self._address = urlsplit(registry.url)
        self.name = f"the schema registry {registry.url}"

    def by_id(self, schema_id: int, subject: str | None = None) -> Schema | None:
        """The schema with an id, which never changes; None if the registry has none.

        subject: one in whose context the id counts; None: the default context.
        """
        in_context = f"?subject={quote(subject, safe='')}" if subject and subject.startswith(_CONTEXT) else ""
        answer = self._request("GET", f"/schemas/ids/{schema_id}{in_context}")
        if answer.error_code == _NO_SCHEMA or (schema_id > _LARGEST_ID and answer.is_other_path):
            return None
        body = self._body(answer, f"reading schema {schema_id}")
        return _schema(body, schema_id)

    def version(self, subject: str, version: int | None) -> Schema:
        """A version of a subject, None for the latest. Raises JobError(SCHEMA_NOT_FOUND)."""
        name = "latest" if version is None else str(version)
        answer = self._request("GET", f"/subjects/{quote(subject, safe='')}/versions/{name}")
        if answer.error_code in (_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA):
            missing = f"no version {version} of subject {subject}" if version else f"no subject {subject}"
            raise _error(Reason.SCHEMA_NOT_FOUND, f"{self.name} has {missing}")
        body = self._body(answer, f"reading subject {subject}")
        return _schema(body, int(body["id"]))

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject; none if there is no such subject."""
        answer = self._request("GET", f"/subjects/{quote(subject, safe='')}/versions")
        if answer.error_code == _NO_SUBJECT:
            return []
        body = self._body(answer, f"reading the versions of subject {subject}", list)
        return [int(n) for n in body]

    def registered_id(self, subject: str, schema: str, kind: str = AVRO) -> int | None:
        """The id of this schema in a subject; None if it is not registered there.

        kind: as Schema.type, here and below.
        """
        answer = self._request("POST", f"/subjects/{quote(subject, safe='')}", _described(schema, kind))
        if answer.error_code in (_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA, _INVALID_SCHEMA):
            return None  # register() has the registry's reason for an invalid one
        return int(self._body(answer, f"looking up a schema of subject {subject}")["id"])

    def require_compatible(self, subject: str, schema: str, kind: str = AVRO) -> None:
        """Raises JobError(SCHEMA_INCOMPATIBLE) if the schema is invalid, or the subject's compatibility refuses it.

        A transitive compatibility is one with all versions. It is asked for alone: Apicurio compares with all of them
        then, whatever the level is.
        """
        versions = "versions" if self._is_transitive(subject) else "versions/latest"
        path = f"/compatibility/subjects/{quote(subject, safe='')}/{versions}?verbose=true"
        answer = self._request("POST", path, _described(schema, kind))
        if answer.error_code in (_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA):
            return  # the first version
        self._require_accepted(answer, subject)
        body = self._body(answer, f"comparing a schema with subject {subject}")
        if not body["is_compatible"]:
            reasons = "; ".join(" ".join(str(m).split()) for m in body.get("messages") or ())[:600]
            raise _error(
                Reason.SCHEMA_INCOMPATIBLE,
                f"the output does not fit the versions of subject {subject} in {self.name}: "
                f"{reasons or 'the compatibility level of the subject refuses it'}",
            )

    def _is_transitive(self, subject: str) -> bool:
        """Whether the subject's compatibility is one with all versions; False if its level may not be read."""
        try:
            answer = self._request("GET", f"/config/{quote(subject, safe='')}?defaultToGlobal=true")
        except JobError:
            return False  # a registry or its gateway may answer other requests alone
        level = answer.body.get("compatibilityLevel") if isinstance(answer.body, dict) else None
        return isinstance(level, str) and level.endswith("_TRANSITIVE")

    def register(self, subject: str, schema: str, kind: str = AVRO) -> int:
        """Registers a schema, unless the subject has it; returns its id. Raises JobError(SCHEMA_INCOMPATIBLE)."""
        answer = self._request("POST", f"/subjects/{quote(subject, safe='')}/versions", _described(schema, kind))
        self._require_accepted(answer, subject)
        return int(self._body(answer, f"registering a schema in subject {subject}")["id"])

    def _require_accepted(self, answer: _Answer, subject: str) -> None:
        """Raises JobError(SCHEMA_INCOMPATIBLE) if the answer is the registry's refusal of the schema in the request."""
        if answer.status in (_INCOMPATIBLE, 422) and answer.error_code is not None:
            text = f"{self.name} refuses the schema of the output for subject {subject}: {answer.message}"
            raise _error(Reason.SCHEMA_INCOMPATIBLE, text)

    def _body(self, answer: _Answer, what: str, kind: type = dict) -> Any:
        if answer.status == 200 and isinstance(answer.body, kind):
            return answer.body
        raise _error(
            Reason.REGISTRY_UNREACHABLE,
            f"{what}: {self.name} answers as no registry does ({answer.message}); check that its url is that of "
            "a Confluent-compatible API",
        )

    def _request(self, method: str, path: str, body: object = None) -> _Answer:
        """The answer to a request, which is repeated as long as the server is absent or busy."""
        deadline = time.monotonic() + self._registry.timeout_ms / 1000
        pause = _FIRST_PAUSE_S
        while True:
            try:
                answer = self._once(method, path, body)
                if answer.status < 500 and answer.status != 429:
                    break
                problem = answer.message
            except ssl.SSLCertVerificationError as e:
                raise _error(
                    Reason.REGISTRY_LOGIN_REFUSED,
                    f"{self.name} has a certificate that is not trusted: {e.verify_message}",
                ) from None
            except (OSError, http.client.HTTPException) as e:
                problem = str(e) or type(e).__name__
            if time.monotonic() + pause > deadline:
                raise _error(Reason.REGISTRY_UNREACHABLE, f"{self.name} does not answer: {problem}"[:500])
            self._pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        if answer.status in (401, 403):
            user = "the user of its credentials" if self._registry.credentials else "a client without credentials"
            raise _error(
                Reason.REGISTRY_LOGIN_REFUSED,
                f"{self.name} refuses {user} ({method} {path.partition('?')[0]}: {answer.message})",
            )
        return answer

    def _once(self, method: str, path: str, body: object) -> _Answer:
        headers = {"Accept": _ACCEPT, **self._login()}
        if body is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        limit = min(_ONE_TRY_S, self._registry.timeout_ms / 1000)
        host, port = self._address.hostname or "", self._address.port
        connection = (
            http.client.HTTPSConnection(host, port, timeout=limit, context=self._tls())
            if self._address.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=limit)
        )
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, self._address.path.rstrip("/") + path, payload, headers)
            response = connection.getresponse()
            return _Answer(response.status, _json(response.read()))
        finally:
            connection.close()

    def _login(self) -> dict[str, str]:
        """The header of the login. The files are read each time, because a Secret may change."""
        if self._registry.credentials is None:
            return {}
        user, password = (self._file(Path(self._registry.credentials, name)) for name in ("username", "password"))
        return {"Authorization": f"Basic {base64.b64encode(user + b':' + password).decode()}"}

    def _tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._registry.ca)
        except (OSError, ssl.SSLError) as e:
            raise _error(
                Reason.REGISTRY_LOGIN_REFUSED,
                f"the CA certificate of {self.name} cannot be used from {self._registry.ca}: {e}",
            ) from None

    def _file(self, file: Path) -> bytes:
        try:
            return file.read_bytes().strip(b"\r\n")  # an editor adds a line break
        except OSError as e:
            raise _error(
                Reason.REGISTRY_LOGIN_REFUSED,
                f"the {file.name} of {self.name} cannot be read from {file}: {e.strerror or e}; put it there, one file "
                "per key, as in a mounted Secret",
            ) from None


def _schema(body: dict[str, Any], schema_id: int) -> Schema:
    return Schema(
        text=str(body["schema"]),
        type=str(body.get("schemaType") or "AVRO"),
        id=schema_id,
        version=int(body["version"]) if "version" in body else None,
        references=len(body.get("references") or ()),
    )


def _described(schema: str, kind: str) -> dict[str, str]:
    """A schema in a request. Registries older than the field take every schema for Avro."""
    return {"schema": schema} if kind == AVRO else {"schema": schema, "schemaType": kind}


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _error(reason: Reason, cause: str) -> JobError:
    return JobError(reason, cause, REASONS[reason].remedy)
