"""The page at /."""
import base64
import hashlib
import html
import json
import os
import re
import subprocess

import pytest

from conftest import KEY, Server


def test_the_page_says_what_runs_and_loads_nothing(server):
    status, headers, page = server.ask("GET", "/", key="")
    assert status == 200 and headers["content-type"] == "text/html; charset=utf-8"
    version = json.loads(server.ask("GET", "/version")[2])["version"]
    model = json.loads(server.ask("GET", "/v1/models")[2])["data"][0]["id"]
    assert f"<dd>{model}</dd>" in page and f"<dd>{version}</dd>" in page and re.search(r"<dt>uptime</dt><dd>\d\d:\d\d:\d\d</dd>", page)
    assert re.search(r"<dt>sequences running</dt><dd>\d+</dd>", page)
    links = re.findall('href="([^"]*)"', page)
    assert links == ["/pool", "/metrics", "/health", "/ready", "/v1/models"] and "src=" not in page and "<script" not in page
    assert re.findall("[a-z]+://[^<' ]*", page) == [server.url + "/v1", server.url + "/v1/chat/completions"]
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
    assert got["base_url"] == server.url + "/v1" and {"/ready", "/v1/chat/completions", "/debug/requests"} < set(got["paths"])
    assert got["links"] == ["/pool", "/metrics", "/health", "/ready", "/v1/models"] and got["uptime_s"] >= 0 and got["running"] == got["waiting"] == 0
    assert got["model"] == json.loads(server.ask("GET", "/v1/models")[2])["data"][0]["id"]
    browser = server.ask("GET", "/", headers={"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"})
    assert browser[1]["content-type"].startswith("text/html")
    assert server.ask("POST", "/", {})[0] == 405
    assert server.ask("GET", "/favicon.ico", key="")[0] == 204


def test_the_models_name_is_text(quire):
    name = '<b>"x"&y'
    s = Server("builtin", "--served-model-name", name)
    page = s.ask("GET", "/")[2]
    assert "<dd>&lt;b&gt;&quot;x&quot;&amp;y</dd>" in page and name not in page
    assert json.loads(s.ask("GET", "/", headers={"accept": "application/json"})[2])["model"] == name
    assert s.stop() == 0


@pytest.mark.parametrize("flags", [(), ("--api-key", KEY)])
def test_the_request_that_it_shows_can_be_pasted_into_a_shell(quire, flags):
    s = Server("builtin", "--served-model-name", """it's "x" $HOME `id` \\ <b>""", *flags)
    page = s.ask("GET", "/")[2]
    command = html.unescape(re.search("<pre>(.*?)</pre>", page, re.S)[1])
    done = subprocess.run(["bash", "-c", command + " -sS -m 60"], env={**os.environ, "KEY": KEY}, capture_output=True, text=True)
    assert json.loads(done.stdout)["choices"], (command, done.stdout, done.stderr)
    assert s.stop() == 0


def test_the_base_url_has_the_name_that_the_client_uses(server):
    for host, url in [("localhost:1", "http://localhost:1/v1"), ("[::1]", "http://[::1]/v1"), ("a.example", "http://a.example/v1"),
                      ("<b>", server.url + "/v1"), ("a b", server.url + "/v1"), ("$(id)", server.url + "/v1")]:
        status, _, page = server.ask("GET", "/", headers={"host": host})
        assert status == 400 or f"<code>{url}</code>" in page and "<b>" not in page, (host, page)


# ---- in a browser ----

def open_home(browser, server):
    browser.complaints.clear()
    browser.open("about:blank#away")
    browser.open(server.url + "/")


def complaints(browser, server):
    """Those of this server's pages: a browser may still tell of one that has stopped."""
    return [c for c in browser.complaints if server.url in c or "http" not in c]


def test_a_browser_shows_it_and_its_links_lead_somewhere(browser, quire):
    s = Server("builtin", "--served-model-name", "a <b>model</b>", "--kv-pages", "64")
    open_home(browser, s)
    assert browser.js("document.title") == "Quire" and browser.js("getComputedStyle(document.body).maxWidth") == "640px"  # its style is allowed
    terms = browser.js("[...document.querySelectorAll('dt')].map(t => [t.textContent, t.nextElementSibling.textContent])")
    assert dict(terms)["model"] == "a <b>model</b>" and dict(terms)["sequences running"] == "0"
    assert "key" not in browser.js("document.body.textContent")
    shows = {"/pool": "document.querySelectorAll('.cell').length > 0", "/metrics": "document.body.textContent.includes('vllm:num_requests_running')",
             "/health": "true", "/ready": "true", "/v1/models": "document.body.textContent.includes('\"object\":\"list\"')"}
    paths = browser.js("[...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert paths == list(shows)
    for path in paths:
        open_home(browser, s)
        browser.follow(f'a[href="{path}"]')
        browser.wait(shows[path])
        assert complaints(browser, s) == [], path
    assert s.stop() == 0


def test_with_keys_a_browser_shows_what_to_do(browser, server):
    open_home(browser, server)
    text = browser.js("document.body.textContent")
    assert "Authorization: Bearer KEY" in text and "/v1" in text and KEY not in text
    assert complaints(browser, server) == []
    browser.follow('a[href="/v1/models"]')
    assert "Authorization: Bearer KEY" in browser.wait("document.body.textContent")
    open_home(browser, server)
    browser.follow('a[href="/pool"]')
    browser.wait("!document.getElementById('ask-key').hidden")
    assert json.loads(server.ask("GET", "/", headers={"accept": "application/json"})[2])["needs_key"] is True
