"""The catalog of an Iceberg table, and the errors of its clients as JobErrors. Job and audit share it.

A catalog names the latest metadata of each table, and replaces that name in one atomic step.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT
from requests.adapters import HTTPAdapter
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ackwright_stream import storage_errors
from ackwright_stream.durable_files import make_directory, make_durable
from ackwright_stream.errors import JobError
from ackwright_stream.iceberg_logins import CONNECT_S, BearerToken, ClientCredentials, Signer
from ackwright_stream.jobspec import IcebergSink, Reason, s3_region
from ackwright_stream.reasons import REASONS
from ackwright_stream.secret_files import read_login

REST, SQL = "rest", "sql"
SQLITE = "sqlite:///"
_CATALOG = "default"  # the name that pyiceberg uses by default, which is part of a SQL catalog's keys
_S3_ATTEMPTS = 3  # of one request: Arrow's client repeats it
_NO_LOGIN = (exceptions.UnauthorizedError, exceptions.OAuthError, exceptions.AuthorizationExpiredError)
# AWS answers a wrong secret, an unknown key and an expired token with 403, as it does without a permission.
_NO_SIGNATURE = (
    "The request signature we calculated does not match",
    "The security token included in the request is",
    "does not exist in our records",
)


class CatalogClient:
    """A client of the catalog of a sink's table. Creating one connects to nothing."""

    def __init__(self, sink: IcebergSink) -> None:
        self._sink = sink
        self._identifier = tuple(sink.table.split("."))
        self._catalog: Catalog | None = None
        self._login: tuple[object, ...] | None = None  # with which it was opened

    def load(self) -> Table | None:
        """The table, as it is now; None if there is none. Raises JobError."""
        with translating(f"reading the table {self._sink.table} from {self._sink.uri}"):
            if self._sink.catalog == SQL and not Path(self._sink.uri.removeprefix(SQLITE)).exists():
                return None
            try:
                return self._open().load_table(self._identifier)
            except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError):
                return None

    def create(self, **of_table: Any) -> None:
        """Creates the table, and its namespace if there is none. If it exists already, it stays. Raises JobError."""
        with translating(f"creating the table {self._sink.table} in {self._sink.uri}"):
            if self._sink.catalog == SQL:
                Path(self._sink.uri.removeprefix(SQLITE)).parent.mkdir(parents=True, exist_ok=True)
            catalog = self._open()
            try:
                try:
                    catalog.create_table(self._identifier, **of_table)
                except exceptions.NoSuchNamespaceError:
                    catalog.create_namespace_if_not_exists(self._identifier[:-1])
                    catalog.create_table(self._identifier, **of_table)
            except exceptions.TableAlreadyExistsError:
                return

    def _open(self) -> Catalog:
        """The catalog with the logins as they are now: a Secret may have changed."""
        sink = self._sink
        of_catalog = sink.catalog_credentials and read_login(sink.catalog_credentials, "sink.iceberg.catalog")
        of_storage = sink.credentials and read_login(sink.credentials, "sink.iceberg.s3")
        login = (of_catalog, of_storage)
        if self._catalog is None or login != self._login:
            properties = self._properties(of_storage or None)
            if sink.catalog == SQL:
                opened: _OwnStorage = _SqlCatalog(_CATALOG, **properties)
            else:
                opened = _RestCatalog(_CATALOG, **properties, **self._authentication(of_catalog or None))
            opened.own = _own_storage(properties, sink)
            self._catalog = opened
            self._login = login
        return self._catalog

    def _properties(self, login: tuple[str, str] | None) -> dict[str, str]:
        sink = self._sink
        timeout_s = sink.transaction_timeout_ms / 1000
        key, secret = login or (None, None)
        properties = {
            "uri": f"{sink.uri}?timeout={timeout_s:.0f}" if sink.catalog == SQL else sink.uri,
            "warehouse": sink.warehouse,
            "py-io-impl": f"{DurableFileIO.__module__}.{DurableFileIO.__qualname__}",
            "s3.endpoint": sink.endpoint,
            "s3.region": s3_region(sink.region, sink.endpoint),
            "s3.access-key-id": key,
            "s3.secret-access-key": secret,
            "s3.connect-timeout": f"{CONNECT_S}",
            "s3.request-timeout": f"{timeout_s / _S3_ATTEMPTS:.1f}",
        }
        return {name: value for name, value in properties.items() if value is not None}

    def _authentication(self, login: tuple[str, str] | None) -> dict[str, Any]:
        sink = self._sink
        timeout_s = sink.transaction_timeout_ms / 1000
        auth: dict[str, Any] = {"type": "noop"}
        signer = None
        if sink.signing_service and sink.signing_region:
            signer = Signer(sink.signing_service, sink.signing_region, login, timeout_s)
        elif sink.token is not None:
            auth = _custom(BearerToken, {"file": sink.token})
        elif login is not None:
            settings = {
                "login": login,
                "uri": sink.token_uri or f"{sink.uri.rstrip('/')}/v1/oauth/tokens",
                "scope": sink.scope or "catalog",
                "ca": sink.ca,
                "timeout_s": timeout_s,
            }
            auth = _custom(ClientCredentials, settings)
        return {
            "auth": auth,
            "ackwright.timeout-s": f"{timeout_s}",
            "ackwright.ca": sink.ca,
            "ackwright.signer": signer,
            # Of the table's files, too: without a login for S3 the job asks for credentials.
            **({"header.X-Iceberg-Access-Delegation": ""} if sink.credentials else {}),
        }


def _custom(login: type[AuthManager], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "custom", "custom": settings, "impl": f"{login.__module__}.{login.__qualname__}"}


def _own_storage(properties: Mapping[str, str], sink: IcebergSink) -> Mapping[str, str]:
    """What counts whatever the catalog or the table says: limits of time, and what is declared."""
    own = {"py-io-impl", "s3.connect-timeout", "s3.request-timeout", "s3.access-key-id", "s3.secret-access-key"}
    own |= {"s3.endpoint", *(("s3.region",) if sink.region else ())}
    # The catalog's token belongs to the key that it hands out.
    return {
        **{k: v for k, v in properties.items() if k in own},
        **({"s3.session-token": ""} if sink.credentials else {}),
    }


class _OwnStorage(Catalog):
    """A catalog whose tables are opened with settings of our own."""

    own: Mapping[str, str] = {}

    def _load_file_io(self, properties: Mapping[str, Any] = EMPTY_DICT, location: str | None = None) -> FileIO:
        return super()._load_file_io({**properties, **self.own}, location)


class _SqlCatalog(_OwnStorage, SqlCatalog):
    """pyiceberg's client."""


class _RestCatalog(_OwnStorage, RestCatalog):
    """pyiceberg's client, with a limit for the time that an answer takes."""

    def _create_session(self) -> requests.Session:
        session = super()._create_session()
        properties: Mapping[str, Any] = self.properties
        adapter = _Limited(
            float(properties["ackwright.timeout-s"]), properties["ackwright.ca"], properties["ackwright.signer"]
        )
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        return session

    def _refresh_token(self) -> None:
        """Called before a request is sent again that the catalog has refused with 401, and so has not carried out."""
        if isinstance(self._auth_manager, ClientCredentials):
            self._auth_manager.forget()


class _Limited(HTTPAdapter):
    """Without repetitions: a commit whose answer is lost must not be sent again."""

    def __init__(self, timeout_s: float, ca: str | None, signer: Signer | None) -> None:
        super().__init__(max_retries=0)
        self._timeout, self._ca, self._signer = (CONNECT_S, timeout_s), ca, signer

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]
        # Here, because REQUESTS_CA_BUNDLE of the environment takes precedence over the session's CA.
        ca = {"verify": self._ca} if self._ca else {}
        if self._signer:
            self._signer.sign(request)
        return super().send(request, **{**options, **ca, "timeout": self._timeout})


class DurableFileIO(PyArrowFileIO):
    """pyiceberg's files; those in a directory survive the loss of power as soon as they are closed."""

    def new_output(self, location: str) -> PyArrowFile:
        """As in FileIO."""
        output = super().new_output(location)
        path = local_path(location)
        return output if path is None else _DurableFile(output, path)


class _DurableFile(PyArrowFile):
    def __init__(self, output: PyArrowFile, path: Path) -> None:
        super().__init__(location=output.location, path=str(path), fs=output._filesystem)
        self._place = path

    def create(self, overwrite: bool = False) -> Any:
        """As in OutputFile."""
        make_directory(self._place.parent)
        return _DurableStream(io.FileIO(self._place, "w" if overwrite else "x"))


class _DurableStream(io.BufferedWriter):
    """A file that close() makes durable."""

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        make_durable(Path(str(self.name)).parent)


def local_path(location: str) -> Path | None:
    """The path of a file in a directory; None if it is elsewhere."""
    scheme, _, path = PyArrowFileIO.parse_location(location)
    return Path(path) if scheme == "file" else None


@contextmanager
def translating(what: str) -> Iterator[None]:
    """Raises JobError in place of the errors of catalogs, files and their clients. what: what is being done."""
    try:
        yield
    except JobError:
        raise
    except Exception as e:
        raise translate(e, what) from None  # a log of the error would have the request with its headers


def translate(error: Exception, what: str) -> JobError:
    """An error of a catalog or of a client of files as a JobError. what: as for translating()."""
    text = storage_errors.one_line(str(error))
    match error:
        case DBAPIError():
            text = storage_errors.one_line(str(error.orig))
            reason = Reason.AUTHORIZATION_FAILED if "readonly" in text else Reason.SINK_UNREACHABLE
        case exceptions.ForbiddenError():
            is_of_login = any(sign in text for sign in _NO_SIGNATURE)
            reason = Reason.SINK_LOGIN_REFUSED if is_of_login else Reason.AUTHORIZATION_FAILED
        case exceptions.RESTError() if isinstance(error, _NO_LOGIN):
            reason = Reason.SINK_LOGIN_REFUSED
        case exceptions.RESTError() | requests.RequestException() | SQLAlchemyError():
            reason = Reason.SINK_UNREACHABLE
        case _ if type(error).__module__ == exceptions.__name__:
            reason = Reason.SINK_UNREACHABLE
        case _:
            return storage_errors.translate(error, what)
    return JobError(reason, f"{what}: {storage_errors.shortened(text)}", REASONS[reason].remedy)
