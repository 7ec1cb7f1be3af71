"""GET /: a page for browsers, JSON for programs. test_chat_page.py drives the page."""
import base64
import hashlib
import json
import re

import pytest

from conftest import Server


def test_the_page_is_the_same_for_everybody_and_loads_nothing(server):
    status, headers, page = server.ask("GET", "/", key="")
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8" and headers["vary"] == "Accept"
    assert "src=" not in page and "@import" not in page and "url(" not in page and not re.findall("[a-z]+://", page)
    assert re.findall(' href="([^"]*)"', page) == ["data:,", "#settings", "pool", "pool", "metrics", "health", "ready", "v1/models"]
    assert server.ask("GET", "/", headers={"host": "localhost:1"})[2] == page
    for path in ("/pool", "/metrics", "/health", "/ready", "/v1/models"):
        assert server.ask("GET", path)[0] == 200
    assert len(page.splitlines()) < 1000


@pytest.mark.parametrize("path", ["/", "/pool"])
def test_its_policy_allows_its_own_script_and_style_and_no_other(server, path):
    _, headers, page = server.ask("GET", path)

    def digest(tag):
        text, = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.S)
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy == {"default-src": "'none'", "connect-src": "'self'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'",
                      "frame-ancestors": "'none'", "script-src": f"'sha256-{digest('script')}'", "style-src": f"'sha256-{digest('style')}'"}
    assert headers["x-content-type-options"] == "nosniff"


def test_the_page_writes_no_html(server):
    page = server.ask("GET", "/")[2]
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage", "document.cookie"):
        assert unsafe not in page


def test_programs_get_json(server):
    status, headers, text = server.ask("GET", "/", headers={"accept": "application/json"})
    got = json.loads(text)
    assert status == 200 and headers["content-type"] == "application/json" and headers["vary"] == "Accept"
    assert got["base_url"] == server.url + "/v1" and {"/ready", "/v1/chat/completions", "/debug/requests"} < set(got["paths"])
    assert got["links"] == ["/pool", "/metrics", "/health", "/ready", "/v1/models"] and got["uptime_s"] >= 0 and got["running"] == got["waiting"] == 0
    assert got["model"] == json.loads(server.ask("GET", "/v1/models")[2])["data"][0]["id"]
    assert got["version"] == json.loads(server.ask("GET", "/version")[2])["version"] and got["needs_key"] is True
    browser = server.ask("GET", "/", headers={"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"})
    assert browser[1]["content-type"].startswith("text/html")
    assert server.ask("POST", "/", {})[0] == 405
    assert server.ask("GET", "/favicon.ico", key="")[0] == 204


def test_the_models_name_is_text(quire):
    name = '<b>"x"&y'
    s = Server("builtin", "--served-model-name", name)
    assert json.loads(s.ask("GET", "/", headers={"accept": "application/json"})[2])["model"] == name
    assert s.stop() == 0


def test_the_base_url_has_the_name_that_the_client_uses(server):
    for host, url in [("localhost:1", "http://localhost:1/v1"), ("[::1]", "http://[::1]/v1"), ("a.example", "http://a.example/v1"),
                      ("<b>", server.url + "/v1"), ("a b", server.url + "/v1"), ("$(id)", server.url + "/v1")]:
        status, _, text = server.ask("GET", "/", headers={"host": host, "accept": "application/json"})
        assert status == 400 or json.loads(text)["base_url"] == url, (host, text)
