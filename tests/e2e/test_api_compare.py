"""Every recorded question of golden/api: an answer differs from the recorded one only where tests/e2e/api_differences.json has a reason."""
import importlib.util
import pathlib

import pytest

from conftest import SHARED

TOOL = pathlib.Path(__file__).parent.parent.parent / "tools/api_compare.py"
spec = importlib.util.spec_from_file_location("api_compare", TOOL)
api_compare = importlib.util.module_from_spec(spec)
spec.loader.exec_module(api_compare)
KNOWN = api_compare.reasons()


def records():
    if not (SHARED / "golden/api").exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"{SHARED / 'golden/api'} is not at hand"))]
    return [pytest.param(r, id=r["name"]) for r in api_compare.records(SHARED)]


@pytest.mark.parametrize("record", records())
def test_a_difference_has_a_reason(golden_server, record):
    differences = api_compare.compare(record, *api_compare.ask(golden_server.address, record))
    assert [d for d in differences if api_compare.reason_of(KNOWN, record["name"], d) is None] == []


def test_differences_are_seen():
    record = {"name": "x", "status": 200, "body": {"temperature": 0}, "json": {"usage": {"prompt_tokens": 2}, "choices": [{"text": "a", "more": {"b": 1}}]}}
    assert list(api_compare.compare(record, 400, "")) == ["status: 200; here 400"]
    assert list(api_compare.compare(record, 200, '{"usage": {"prompt_tokens": 3}, "choices": [{"text": "b", "more": {}}]}')) == [
        "missing: choices[].more.b", "usage: {'prompt_tokens': 2}; here {'prompt_tokens': 3}", "text: ['a']; here ['b']"]
    stream = {"name": "x", "status": 200, "body": {}, "events": ['data: {"choices":[{"text":"a","finish_reason":null}]}', "data: [DONE]"]}
    assert list(api_compare.compare(stream, 200, "\n\n".join(stream["events"]))) == []
    assert list(api_compare.compare(stream, 200, stream["events"][0])) == ["events: text [DONE]; here text"]
