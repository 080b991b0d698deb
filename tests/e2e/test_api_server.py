"""The API server of the tests: it controls access by token, and leaves nothing behind."""

from __future__ import annotations

from e2e.api_server import ApiServer
from integration.support.processes import naming
from lab import binaries
from lab.cluster import print_progress


def test_the_server_controls_access_and_leaves_nothing_behind() -> None:
    with ApiServer(binaries.directory(print_progress)) as api:
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        assert api.request("POST", accounts, {"metadata": {"name": "nobody"}})[0] == 201
        code, answer = api.request("POST", f"{accounts}/nobody/token", {"spec": {}})
        assert code == 201, answer
        token = answer["status"]["token"]
        assert api.request("GET", "/version", token=token)[0] == 200
        assert api.request("GET", "/api/v1/namespaces/default/secrets", token=token)[0] == 403
        assert api.request("GET", "/api/v1/namespaces/default/secrets", token="wrong")[0] == 401
        assert api.kubectl("auth", "can-i", "*", "*").stdout.strip() == "yes"
        directory = api.directory
        assert len(naming(directory)) >= 2
    assert naming(directory) == []
    assert not directory.exists()
