"""The page at /pool in headless Chromium: the sandbox on the worked examples, the live view of running requests, and who may see texts."""
import concurrent.futures
import http.client
import json
import os
import socket
import threading
import time

import pytest

from conftest import KEY, Server

OPERATOR = "k-operator"
PROMPT = "The prince had been walking up and down the drawing room for a long time. " * 3


@pytest.fixture(scope="module")
def open_server(quire):
    """Nobody needs a key; only this machine can connect."""
    s = Server("builtin", "--threads", "1", "--kv-pages", "256")
    yield s
    assert s.stop() == 0


@pytest.fixture(scope="module")
def keyed_server(quire):
    s = Server("builtin", "--threads", "1", "--kv-pages", "256", "--api-key", KEY, "--operator-key", OPERATOR)
    yield s
    assert s.stop() == 0


# ---- the page from outside ----

COUNTERS = ("n-free", "n-total", "n-held", "n-cached", "n-shared", "n-unshared")


def counters(browser):
    texts = browser.js(f"{json.dumps(COUNTERS)}.map(id => document.getElementById(id).textContent)")
    return dict(zip((c[2:] for c in COUNTERS), (int(t.replace(",", "")) for t in texts)))


def cells(browser, state="held"):
    """{page: count} of the cells drawn in a state."""
    drawn = browser.js(f"[...document.querySelectorAll('.cell[data-state={state}]')].map(c => [Number(c.dataset.page), Number(c.dataset.count)])")
    return dict(drawn)


def open_page(browser, url):
    browser.complaints.clear()
    browser.js("location.protocol === 'about:' || sessionStorage.clear()")
    browser.open("about:blank#away")  # a page that is open already would not load again for another #part
    browser.open(url)


class Sandbox:
    def __init__(self, browser, server):
        self.browser = browser
        open_page(browser, server.url + "/pool#sandbox")
        browser.wait("document.querySelectorAll('.cell').length === 64")
        self.press("do-reset")

    def press(self, button, **fields):
        for name, value in fields.items():
            self.browser.js(f"document.getElementById('{name}'.replace('_', '-')).value = {value}")
        before = self.browser.js("Number(document.body.dataset.done || 0)")
        self.browser.js(f"document.getElementById('{button}').click()")
        self.browser.wait(f"Number(document.body.dataset.done || 0) > {before}")

    def choose(self, seq):
        which = "#choose-all" if seq == "all" else f"[data-seq='{seq}']"
        self.browser.js(f"document.querySelector(\"{which}\").click()")

    def expect(self, held, free, unshared, shared=None):
        c = counters(self.browser)
        assert (c["held"], c["free"], c["unshared"]) == (held, free, unshared)
        assert shared is None or c["shared"] == shared
        drawn = cells(self.browser)
        assert len(drawn) == held and sum(drawn.values()) == unshared
        assert sum(1 for n in drawn.values() if n > 1) == c["shared"]
        assert len(cells(self.browser, "free")) == free


@pytest.fixture
def sandbox(browser, open_server):
    s = Sandbox(browser, open_server)
    yield s
    assert browser.complaints == []


def four_of(sandbox, tokens):
    sandbox.press("do-new", new_tokens=tokens)
    sandbox.press("do-fork", fork_n=3)


def test_worked_examples_1_and_2(sandbox):
    four_of(sandbox, 64)
    sandbox.expect(held=4, free=60, unshared=16, shared=4)
    assert cells(sandbox.browser) == {0: 4, 1: 4, 2: 4, 3: 4}
    sandbox.choose("all")
    sandbox.press("do-append", append_tokens=10)
    sandbox.expect(held=8, free=56, unshared=20, shared=4)


def test_worked_examples_3_and_4(sandbox):
    four_of(sandbox, 64)
    sandbox.choose(2)
    sandbox.press("do-write")
    sandbox.expect(held=5, free=59, unshared=16)
    assert sorted(cells(sandbox.browser).values()) == [1, 3, 4, 4, 4]
    for seq in (3, 4):
        sandbox.choose(seq)
        sandbox.press("do-write")
    sandbox.expect(held=7, free=57, unshared=16, shared=3)
    sandbox.choose("all")
    sandbox.press("do-append", append_tokens=10)
    sandbox.expect(held=11, free=53, unshared=20)


def test_worked_example_5(sandbox):
    four_of(sandbox, 60)
    sandbox.choose("all")
    sandbox.press("do-append", append_tokens=10)
    sandbox.expect(held=11, free=53, unshared=20)
    said = sandbox.browser.js("document.getElementById('said').textContent")
    assert said.count("→") == 3  # the part-filled page is copied for all but the last


def test_finished_pages_turn_grey_and_evicted_ones_free(sandbox):
    sandbox.press("do-new", new_tokens=48)
    sandbox.press("do-finish")
    assert set(cells(sandbox.browser, "cached")) == {0, 1, 2}
    assert counters(sandbox.browser)["cached"] == 3
    sandbox.press("do-evict", evict_n=1)
    assert len(cells(sandbox.browser, "cached")) == 2
    assert sandbox.browser.js("document.querySelectorAll('#tree g.evicted').length") == 1
    assert sandbox.browser.js("document.querySelector('#events li').className") == "removed"


def states_as_drawn(browser):
    """The states of the cells, row by row as a person sees them, with their pages."""
    return browser.js("""[...document.querySelectorAll('.cell')].map(c => [c.getBoundingClientRect(), c]).sort((a, b) => a[0].top - b[0].top || a[0].left - b[0].left)
        .map(([, c]) => [c.dataset.state, Number(c.dataset.page)])""")


def test_used_pages_are_drawn_first_then_cached_ones(sandbox):
    sandbox.press("do-new", new_tokens=64, new_story=0)
    sandbox.press("do-new", new_tokens=64, new_story=1)
    sandbox.choose(1)
    sandbox.press("do-finish")
    expected = [("held", p) for p in range(4, 8)] + [("cached", p) for p in range(4)] + [("free", p) for p in range(8, 64)]
    assert [tuple(c) for c in states_as_drawn(sandbox.browser)] == expected


def test_the_tree_marks_what_is_new_and_what_was_touched(sandbox):
    def boxes(kind):
        return sandbox.browser.js(f"document.querySelectorAll('#tree g.{kind}').length")
    sandbox.press("do-new", new_tokens=64)
    assert boxes("new") == 1
    sandbox.press("do-new", new_tokens=64)
    assert (boxes("new"), boxes("touched")) == (0, 1)
    sandbox.choose("2")
    sandbox.press("do-append", append_tokens=16)
    sandbox.choose("1")
    sandbox.press("do-append", append_tokens=16)
    assert boxes("new") == 1


def test_a_refusal_is_said_and_changes_nothing(sandbox):
    sandbox.press("do-new", new_tokens=1024)
    sandbox.press("do-append", append_tokens=1)
    assert "no room" in sandbox.browser.js("document.querySelector('#said.refused').textContent")
    sandbox.expect(held=64, free=0, unshared=64)
    sandbox.browser.complaints[:] = [c for c in sandbox.browser.complaints if "409" not in c]  # the browser notes every refused request


def hover(browser, page):
    browser.mouse(2, 2)
    x, y = browser.js(f"(r => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector('[data-page=\"{page}\"]').getBoundingClientRect())")
    browser.mouse(x, y)
    browser.wait("!document.getElementById('tip').hidden")


def test_hovering_shows_the_words_of_a_page(sandbox):
    sandbox.press("do-new", new_tokens=64)
    hover(sandbox.browser, 0)
    text = sandbox.browser.wait("(document.querySelector('#tip q') || {}).textContent")
    assert text.startswith("You are a helpful librarian")


# ---- the live view ----

class Stream:
    """A completion in the background."""

    def __init__(self, server, key=None, tokens=1700):
        self.answer = None
        self.thread = threading.Thread(target=self._ask, args=(server, key, tokens))
        self.thread.start()

    def _ask(self, server, key, tokens):
        self.answer = server.ask("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}, key=key)

    def join(self):
        self.thread.join(120)
        assert self.answer[0] == 200, self.answer


def test_the_live_view_shows_a_running_stream_whose_pages_turn_grey(browser, open_server):
    open_page(browser, open_server.url + "/pool")
    browser.wait("document.querySelectorAll('.cell').length === 256")
    assert counters(browser)["total"] == 256
    stream = Stream(open_server)
    browser.wait("document.querySelectorAll('.cell[data-state=held]').length >= 4")
    browser.wait("document.querySelectorAll('.seq[data-seq]').length === 1")
    held = cells(browser)
    assert set(held.values()) == {1}
    stream.join()
    browser.wait("document.querySelectorAll('.cell[data-state=held]').length === 0")
    grey = cells(browser, "cached")
    assert set(held) <= set(grey) and counters(browser)["cached"] == len(grey)
    hover(browser, min(grey))
    assert "prince" in browser.wait("(document.querySelector('#tip q') || {}).textContent")
    assert browser.js("document.querySelectorAll('#tree rect').length") >= 1
    assert browser.js("document.querySelectorAll('#events .stored').length") >= 4
    assert browser.complaints == []


def test_two_streams_share_the_pages_of_their_prompt(browser, open_server):
    open_page(browser, open_server.url + "/pool")
    browser.wait("document.querySelectorAll('.cell').length === 256")
    first, second = Stream(open_server), Stream(open_server)
    shared = browser.wait("Math.max(0, ...[...document.querySelectorAll('.cell[data-state=held]')].map(c => Number(c.dataset.count)))  > 1")
    assert shared
    first.join()
    second.join()


def test_without_the_operators_key_no_text_is_shown(browser, keyed_server):
    def enter(key, page_is_open=False):
        if page_is_open:
            browser.js("document.getElementById('show-key').click()")
        else:
            open_page(browser, keyed_server.url + "/pool")
        browser.wait("!document.getElementById('ask-key').hidden")
        browser.js(f"document.getElementById('key-text').value = '{key}'")
        browser.js("document.getElementById('key').requestSubmit()")
    Stream(keyed_server, KEY, 40).join()
    enter(KEY)
    browser.wait("state && state.counts.cached > 0 && document.getElementById('cut').textContent.includes('own sequences')")
    assert browser.js("document.querySelectorAll('.cell').length") == 0
    assert "prince" not in browser.js("document.body.textContent")
    enter(OPERATOR, page_is_open=True)
    browser.wait("document.getElementById('show-key').hidden && state.shown.texts")
    browser.wait("document.querySelectorAll('.cell[data-state=cached]').length > 0")
    page = min(cells(browser, "cached"))
    hover(browser, page)
    assert "prince" in browser.wait("(document.querySelector('#tip q') || {}).textContent")
    enter("wrong")
    browser.wait("document.getElementById('status').textContent.includes('not known')")


def test_a_large_pool_is_drawn_as_dots(browser, quire):
    s = Server("builtin", "--threads", "1", "--kv-pages", "9000")
    try:
        open_page(browser, s.url + "/pool")
        browser.wait("document.getElementById('dots').dataset.cells === '9000'")
        assert browser.js("document.querySelectorAll('.cell').length") == 0 and browser.complaints == []
        Stream(s, tokens=20).join()
        browser.wait("state.counts.held === 0 && state.counts.cached > 0")
        cached = browser.js("[...pages.keys()].sort((a, b) => a - b)")
        assert browser.js(f"dot.pages.slice(0, {len(cached)})") == cached and browser.js("new Set(dot.pages).size") == 9000
        x, y = browser.js("(r => [r.x + 3, r.y + 3])(document.getElementById('dots').getBoundingClientRect())")
        browser.mouse(x, y)
        browser.wait("document.getElementById('tip').textContent.includes('cached')")
    finally:
        browser.open("about:blank#away")
        assert s.stop() == 0


def test_it_fits_a_thousand_pixels(browser, open_server):
    for part in ("", "#sandbox"):
        browser.size(1000, 800)
        open_page(browser, open_server.url + "/pool" + part)
        browser.wait("document.querySelectorAll('.cell').length > 0")
        outside = "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('#tree svg')).map(e => e.outerHTML.slice(0, 60))"
        assert browser.js("document.documentElement.scrollWidth") <= 1000 and browser.js(outside) == []
        assert len(browser.js("[...new Set([...document.querySelectorAll('#counters > div')].map(d => d.offsetTop))]")) == 1
        browser.js(f"for (const id of {json.dumps(COUNTERS)}) document.getElementById(id).textContent = '472,326'")  # of a large pool
        assert len(browser.js("[...new Set([...document.querySelectorAll('#counters b')].map(b => b.offsetHeight))]")) == 1
        assert browser.js("document.documentElement.scrollWidth") <= 1000 and browser.js(outside) == []
    browser.size(1440, 960)


def test_both_schemes_are_drawn(browser, sandbox):
    colours = []
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        colours.append(browser.js("getComputedStyle(document.body).backgroundColor"))
    browser.prefer("light")
    assert len(set(colours)) == 2
    pictures = os.environ.get("QUIRE_TEST_PICTURES")
    if pictures:
        browser.picture(os.path.join(pictures, "pool.png"))


# ---- over HTTP ----

def test_states_follow_each_other_at_most_five_a_second(open_server):
    stream = Stream(open_server)
    states = []
    connection = http.client.HTTPConnection(*open_server.address, timeout=60)
    began = time.monotonic()
    connection.request("GET", "/debug/pool")
    answer = connection.getresponse()
    assert answer.getheader("content-type").startswith("text/event-stream")
    while len(states) < 8 and stream.thread.is_alive() or len(states) < 2:
        line = answer.readline()
        if line.startswith(b"data: "):
            states.append(json.loads(line[6:]))
    assert len(states) - 1 <= 5 * (time.monotonic() - began) + 1
    connection.close()
    stream.join()
    for s in states:
        c = s["counts"]
        assert c["free"] + c["held"] + c["cached"] == c["pages"] == 256
        assert sum(1 for p in s["pages"] if p[1] > 0) == c["held"] and len(s["pages"]) == c["held"] + c["cached"]
        assert sum(p[1] for p in s["pages"]) == c["unshared"] == sum(q["pages"] for q in s["seqs"])
    numbers = [e["n"] for s in states for e in s["events"]["list"]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True  # none twice, none left out


def test_watchers_that_do_not_read_stop_nobody(open_server):
    deaf = []
    for _ in range(8):
        s = socket.create_connection(open_server.address, 30)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.sendall(b"GET /debug/pool HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        deaf.append(s)
    for _ in range(3):
        Stream(open_server, tokens=200).join()
    for s in deaf:
        s.close()


def test_hostile_commands_are_refused_one_by_one(open_server):
    ask = lambda body, **more: open_server.ask("POST", "/pool/sandbox", body, **more)
    name = json.loads(ask({"do": "open"})[2])["sandbox"]
    for body in ({"do": "new", "tokens": 10 ** 30, "story": 0}, {"do": "new", "tokens": -5, "story": 0}, {"do": "append", "seq": 10 ** 18, "tokens": 1},
                 {"do": "fork", "seq": 1, "n": 2 ** 31}, {"do": "page", "page": 10 ** 9}, {"do": None}, {}):
        status, _, text = ask({"sandbox": name, **body})
        assert status == 400 and json.loads(text)["error"]["message"]
    assert ask({"do": "state", "sandbox": "0" * 32})[0] == 404
    assert ask(None, raw="x" * 5000)[0] == 413
    assert ask(None, raw="[" * 900)[0] == 400
    assert ask({"do": "open"}, headers={"content-type": "text/plain"})[0] == 400
    with concurrent.futures.ThreadPoolExecutor(16) as pool:  # far more sandboxes than places
        assert all(r[0] == 200 for r in pool.map(lambda _: ask({"do": "open"}), range(300)))
    assert json.loads(ask({"do": "open"})[2])["counts"]["free"] == 64
