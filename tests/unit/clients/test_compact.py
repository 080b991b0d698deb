"""Objects in little memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwright.clients import compact as module
from ackwright.clients.compact import compact
from ackwright.clients.nesting import DEEPEST, TOO_DEEP, parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, 1.5]) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
)
OBJECTS = st.dictionaries(st.sampled_from(["spec", "data", "kind"]), VALUES)


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_parts", module._Parts(100))


@given(st.lists(OBJECTS, max_size=8))
def test_copies_are_equal_to_the_byte(bodies: list[dict[str, Any]]) -> None:
    """Also those that Python takes for equal: 1, 1.0 and true."""
    module._parts = module._Parts(5)  # parts are forgotten amid the objects
    copies = [compact(json.loads(json.dumps(body))) for body in bodies]
    assert [json.dumps(copy) for copy in copies] == [json.dumps(body) for body in bodies]


def test_equal_parts_and_strings_are_one_object() -> None:
    text = json.dumps(
        {"kind": "A", "metadata": {"labels": {"a": "b"}, "uid": "1"}, "spec": {"odd": ["a text", 1, None]}}
    )
    one, two = compact(json.loads(text)), compact(json.loads(text.replace('"1"', '"2"')))
    assert one["spec"] is two["spec"]
    assert one["metadata"]["labels"] is two["metadata"]["labels"]
    assert (one["metadata"]["uid"], two["metadata"]["uid"]) == ("1", "2")


def test_managed_fields_are_left_out() -> None:
    body = {"metadata": {"name": "a", "managedFields": [{}]}, "spec": {}}
    assert compact(body) == {"metadata": {"name": "a"}, "spec": {}}
    assert "managedFields" in body["metadata"], "the original stays as it is"


def test_no_more_parts_are_remembered_than_the_limit() -> None:
    for i in range(300):
        compact({"metadata": {}, "spec": {"number": i}})
    assert len(module._parts._known) == 100


def _nested(levels: int, inner: str = "1") -> str:
    return '{"a": [' * (levels // 2) + inner + "]}" * (levels // 2)


def test_parts_that_are_nested_too_deeply_are_replaced() -> None:
    deepest = json.loads(_nested(DEEPEST))
    assert compact({"spec": deepest})["spec"] == deepest
    text = json.dumps(compact({"spec": json.loads(_nested(DEEPEST + 2)), "kind": "A"}))
    assert json.loads(text) == {"spec": json.loads(_nested(DEEPEST, json.dumps(TOO_DEEP))), "kind": "A"}


def test_a_text_beyond_the_depth_of_python_keeps_everything_else() -> None:
    names = [1, 'a "]}', {"b\\": None}, "ü\n"]
    text = json.dumps(names)[:-1] + ", " + _nested(5_000) + ", " + _nested(40) + ', "z"]'
    value = parse(text.encode())
    assert value[:4] == names
    assert value[5:] == [json.loads(_nested(40)), "z"]
    assert TOO_DEEP in json.dumps(value[4])


@pytest.mark.parametrize("text", ["[" * 5_000, "{" * 5_000, _nested(5_000)[:-1], "]", ""])
def test_a_text_that_is_no_json_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"line|column|char"):
        parse(text.encode())
