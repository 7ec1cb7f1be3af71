"""The page at /."""
import base64
import hashlib
import json
import re

from conftest import Server


def test_the_page_says_what_runs_and_loads_nothing(server):
    status, headers, page = server.ask("GET", "/", key="")
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    version = json.loads(server.ask("GET", "/version")[2])["version"]
    model = json.loads(server.ask("GET", "/v1/models")[2])["data"][0]["id"]
    assert f"<dd>{model}</dd>" in page and f"<dd>{version}</dd>" in page and re.search(r"<dt>uptime</dt><dd>\d\d:\d\d:\d\d</dd>", page)
    assert re.search(r"<dt>sequences running</dt><dd>\d+</dd>", page)
    links = re.findall('href="([^"]*)"', page)
    assert links == ["/pool", "/metrics", "/health", "/v1/models"] and "src=" not in page and "://" not in page and "<script" not in page
    for link in links:
        assert server.ask("GET", link)[0] == 200


def test_its_policy_allows_its_style_and_no_script(server):
    _, headers, page = server.ask("GET", "/")
    policy = headers["content-security-policy"]
    style = re.search("<style>(.*?)</style>", page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert "default-src 'none'" in policy and f"style-src 'sha256-{digest}'" in policy and "script-src" not in policy
    assert "frame-ancestors 'none'" in policy and headers["x-content-type-options"] == "nosniff"
    pool = server.ask("GET", "/pool")[1]["content-security-policy"]
    assert re.search("; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'$", pool)


def test_programs_get_json(server):
    status, headers, text = server.ask("GET", "/", headers={"accept": "application/json"})
    got = json.loads(text)
    assert status == 200 and headers["content-type"] == "application/json"
    assert got["links"] == ["/pool", "/metrics", "/health", "/v1/models"] and got["uptime_s"] >= 0 and got["running"] == got["waiting"] == 0
    assert got["model"] == json.loads(server.ask("GET", "/v1/models")[2])["data"][0]["id"]
    browser = server.ask("GET", "/", headers={"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"})
    assert browser[1]["content-type"].startswith("text/html")
    assert server.ask("POST", "/", {})[0] == 405


def test_the_models_name_is_text(quire):
    name = '<b>"x"&y'
    s = Server("builtin", "--served-model-name", name)
    page = s.ask("GET", "/")[2]
    assert "<dd>&lt;b&gt;&quot;x&quot;&amp;y</dd>" in page and name not in page
    assert json.loads(s.ask("GET", "/", headers={"accept": "application/json"})[2])["model"] == name
    assert s.stop() == 0
