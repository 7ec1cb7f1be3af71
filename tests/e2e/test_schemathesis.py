"""/openapi.json against schemathesis, in an environment of its own: no 5xx, no answer that breaks its schema, no accepted request that the schema forbids.
Under QUIRE_TEST_LONG=1; test_openapi.py does the same with requests of its own."""
import os
import re
import subprocess

import pytest

import client_venv
from conftest import Server

pytestmark = pytest.mark.skipif(os.environ.get("QUIRE_TEST_LONG") != "1", reason="of make test-long")
PINS = ["schemathesis==4.32.5", "hypothesis==6.170.17", "jsonschema_rs==0.60.3"]
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection"


@pytest.fixture
def server(quire):
    s = Server("builtin", "--served-model-name", "story", "other", "--max-model-len", "96")
    yield s
    assert s.stop() == 0


def test_ten_thousand_requests_are_answered_as_the_document_says(server, tmp_path):
    program = client_venv.python("schemathesis", *PINS).parent / "st"
    done = subprocess.run([program.resolve(), "run", server.url + "/openapi.json", "--checks", CHECKS, "--phases", "examples,coverage,fuzzing",
                           "--exclude-path", "/debug/pool",  # a stream that does not end
                           "--max-examples", "20", "--request-timeout", "600", "--continue-on-failure", "--no-color", "--no-shrink"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20000:]
    assert int(re.search(r"(\d+) generated", done.stdout)[1]) >= 10000, done.stdout[-3000:]
