"""The page at / in headless Chromium, as a person uses it: chats, branches, tools, keys, narrow screens, hostile answers."""
import json
import os
import re
import subprocess

import pytest

from conftest import KEY, Server
from marked_model import with_marks

# The prompt ends in a closed block of reasoning, so that a regex binds the answer from its first token; with `think` it ends inside one.
TEMPLATE = ("{# <tool_call> <think> #}{% if tools %}tools: {% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}"
            "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
            "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments }}){% endfor %}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% if think %}<think>\n{% else %}<think></think>{% endif %}{% endif %}")
MARKS = {"<think>": True, "</think>": True, "<tool_call>": False, "</tool_call>": False}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
LONG = {"max_tokens": 1900, "ignore_eos": "true", "temperature": 1}
TRIES = 60  # of what must be done while an answer comes: it may be complete before the browser has had its turn


@pytest.fixture(scope="module")
def talker(quire, tmp_path_factory):
    path, _ = with_marks(tmp_path_factory.mktemp("chat-page") / "model", MARKS, TEMPLATE)
    s = Server(path, "--served-model-name", "marked", "--threads", "1", "--kv-pages", "2048")
    yield s
    assert s.stop() == 0


class Page:
    """What a person sees, and does."""

    def __init__(self, browser, server, key=None, **fields):
        self.browser = browser
        browser.open("about:blank#away")
        browser.complaints.clear()
        browser.size(1280, 900)
        browser.open(server.url + "/")
        browser.js("sessionStorage.clear()")
        if key:
            browser.js(f"sessionStorage.setItem('key', {json.dumps(key)})")
        browser.open("about:blank#away")
        browser.open(server.url + "/")
        browser.wait("document.getElementById('server-model').textContent && document.getElementById('model').value")
        self.fill(**fields)

    def fill(self, **fields):
        for name, value in fields.items():
            text = value if isinstance(value, str) else json.dumps(value)
            self.browser.js(f"{{ const f = document.getElementById('f-{name}'); f.value = {json.dumps(text)}; "
                            "f.dispatchEvent(new Event('input', {bubbles: true})); }")

    def say(self, text):
        """Sends a message by the keyboard."""
        self.browser.js("document.getElementById('message').focus()")
        self.browser.type(text)
        self.browser.press("Enter")

    def ask(self, text):
        """Sends a message, and waits for the end of its answer."""
        n = len(self.turns())
        self.say(text)
        self.browser.wait(f"shown().length === {n + 2}")
        return self.idle()[-1]

    def idle(self):
        self.browser.wait("!document.querySelector('.turn[aria-busy=true]') && document.getElementById('stop').hidden && !toPaint.size")
        return self.turns()

    def turns(self):
        """The turns that are shown, as they are drawn."""
        return self.browser.js("""[...document.querySelectorAll('.turn')].map(t => {
            const text = s => [...t.querySelectorAll(s)].map(e => e.textContent).join('');
            return {role: t.classList[1], text: text('.content'), reasoning: text('.reasoning .text'), folded: !t.querySelector('.reasoning')?.open,
                    about: text('.about'), error: text('.error'), calls: text('.call'), which: text('.which'), busy: t.ariaBusy === 'true'}})""")

    def click(self, turn, name):
        """Presses a button of the n-th turn by its name."""
        assert self.browser.js(f"""(b => b ? (b.click(), true) : false)([...[...document.querySelectorAll('.turn')].at({turn}).querySelectorAll('button')]
            .find(b => [b.textContent, b.ariaLabel].includes({json.dumps(name)})))"""), (turn, name)

    def until_running(self, act):
        """Begins long answers until `act` was done while one came: it returns what is true then."""
        for i in range(TRIES):
            self.browser.js("document.getElementById('new-chat').click()")
            self.fill(seed=i)
            self.say("Once upon a time the old prince")
            self.browser.wait("document.querySelector('.turn.assistant .content')?.textContent.length > 40")
            done = act()
            if done:
                return done
        raise AssertionError("no answer was still running")

    def status(self):
        return self.browser.js("document.getElementById('status').textContent")

    def curl(self):
        return self.browser.js("document.getElementById('curl').textContent")

    def requests(self, what):
        """Statuses of the page's requests to paths with this text."""
        return self.browser.js(f"performance.getEntriesByType('resource').filter(e => e.name.includes({json.dumps(what)})).map(e => e.responseStatus)")


# ---- sending ----

def test_a_message_is_answered_and_the_next_one_reuses_its_pages(browser, talker):
    page = Page(browser, talker, max_tokens=60, ignore_eos="true", seed=3)
    first = page.ask("Once upon a time the old prince had been walking up and down the room")
    assert first["text"] and "60 tokens" in first["about"] and "length" in first["about"] and not first["error"]
    second = page.ask("And then?")
    cached = int(re.search(r"(\d+) of them cached", second["about"])[1])
    assert cached >= 16 and [t["role"] for t in page.turns()] == ["user", "assistant", "user", "assistant"]
    assert browser.js("document.getElementById('message').value") == "" and page.status() == "The answer is complete."
    assert browser.complaints == []


def test_text_appears_while_the_answer_comes(browser, talker):
    page = Page(browser, talker, **LONG)
    browser.js("""window.lengths = new Set(); new MutationObserver(() => {
        const t = document.querySelector('.turn[aria-busy=true] .content'); if (t) lengths.add(t.textContent.length);
    }).observe(document.getElementById('turns'), {childList: true, subtree: true, characterData: true})""")

    def grows():
        page.idle()
        n = browser.js("{ const n = lengths.size; lengths.clear(); n }")
        return n > 3
    page.until_running(grows)


def test_shift_and_enter_begin_a_line_and_enter_sends(browser, talker):
    page = Page(browser, talker, max_tokens=5)
    browser.js("document.getElementById('message').focus()")
    browser.type("one")
    browser.press("Enter", shift=True)
    browser.type("two")
    assert browser.js("document.getElementById('message').value") == "one\ntwo" and page.turns() == []
    browser.press("Enter")
    browser.wait("shown().length === 2")
    assert page.idle()[0]["text"] == "one\ntwo"
    page.say("   ")  # nothing
    assert len(page.turns()) == 2


def test_escape_and_the_button_stop_an_answer(browser, talker):
    page = Page(browser, talker, **LONG)
    for stop in (lambda: browser.press("Escape"), lambda: browser.js("document.getElementById('stop').click()")):
        def stopped():
            stop()
            turn = page.idle()[-1]
            return turn if "stopped" in turn["about"] else None
        turn = page.until_running(stopped)
        assert turn["text"] and not turn["error"] and page.status() == "Stopped."
        assert browser.js("document.activeElement.id") == "message"
    text = page.turns()[-1]["text"]
    page.fill(max_tokens=5)
    page.ask("go on")
    assert page.turns()[1]["text"] == text


def test_the_model_is_chosen_from_those_that_are_served(browser, quire):
    s = Server("builtin", "--served-model-name", "first", "second <b>", "--threads", "1")
    page = Page(browser, s, max_tokens=3)
    browser.wait("document.getElementById('model').options.length === 2")
    browser.js("document.getElementById('model').value = 'second <b>'")
    assert not page.ask("Hi")["error"]
    assert '"model":"second <b>"' in page.curl()
    assert s.stop() == 0


# ---- branches ----

def test_an_edited_message_begins_a_branch(browser, talker):
    page = Page(browser, talker, max_tokens=12, seed=1)
    page.ask("first")
    page.ask("second")
    old = [t["text"] for t in page.turns()]
    page.click(0, "Edit")
    assert browser.js("document.activeElement.value") == "first"
    browser.js("document.activeElement.select()")
    browser.type("another")
    browser.press("Enter")
    browser.wait("shown().length === 2")
    new = page.idle()
    assert new[0]["text"] == "another" and new[0]["which"] == "2 of 2" and len(new) == 2
    page.click(0, "Branch before")
    assert [t["text"] for t in page.turns()] == old and page.turns()[0]["which"] == "1 of 2"
    assert browser.js("document.activeElement.ariaLabel") == "Branch after"  # the other one leads nowhere
    browser.press("Enter")
    browser.wait("document.querySelector('.turn .content').textContent === 'another'")


def test_an_answer_is_made_again_and_edited(browser, talker):
    page = Page(browser, talker, max_tokens=12)
    page.ask("Tell me")
    page.click(1, "Again")
    browser.wait("root.kids[0].kids.length === 2")
    assert page.idle()[1]["which"] == "2 of 2"
    page.click(1, "Edit")
    browser.js("document.activeElement.value = 'My own words,'")
    page.click(1, "Keep as a branch")
    assert (page.turns()[1]["text"], page.turns()[1]["which"]) == ("My own words,", "3 of 3")
    page.click(1, "Edit")
    page.click(1, "Continue from this")
    browser.wait("root.kids[0].kids.length === 4")
    turn = page.idle()[1]
    assert turn["text"].startswith("My own words,") and len(turn["text"]) > len("My own words,") and not turn["error"]
    page.click(1, "Edit")
    browser.press("Escape")
    assert page.turns()[1]["text"] == turn["text"]


def test_a_branch_begins_inside_an_answer(browser, talker):
    page = Page(browser, talker, max_tokens=40, ignore_eos="true", temperature=1)
    whole = page.ask("Once upon a time the old prince had been walking up and down the room for a long time")["text"]
    page.click(1, "Branch")
    for _ in range(20):
        browser.press("ArrowLeft")
    kept = browser.js("shown()[1].content.slice(0, shown()[1].cut.content)")
    assert whole.startswith(kept) and 0 < len(kept) < len(whole)
    assert browser.js("document.querySelector('.dropped:not(.reasoning *)').textContent") == whole[len(kept):]
    browser.js("{ const real = fetch; window.fetch = (u, o) => { window.sent = JSON.parse(o.body); return real(u, o); } }")
    page.click(1, "New branch")
    browser.wait("root.kids[0].kids.length === 2")
    turn = page.idle()[1]
    sent = browser.js("sent")
    assert sent["continue_final_message"] is True and sent["messages"][1:] == [{"role": "assistant", "content": kept}]
    assert turn["text"].startswith(kept) and turn["text"] != whole and turn["which"] == "2 of 2" and not turn["error"]
    assert int(re.search(r"(\d+) of them cached", turn["about"])[1]) > 16
    page.click(1, "Branch before")
    assert page.turns()[1]["text"] == whole


def cut_while_it_comes(page, button):
    """Keeps the beginning of an answer that is still coming: that beginning, and what had come."""
    page.click(1, "Branch")
    page.browser.js("""{ const r = document.querySelector('.branch input'); r.value = 8; r.dispatchEvent(new Event('input')); }""")
    kept, whole = page.browser.js("[shown()[1].content.slice(0, shown()[1].cut.content), shown()[1].content]")
    if not page.browser.js("!!shown()[1].running"):
        return None, None
    page.click(1, button)
    return kept, whole


def test_a_running_answer_is_forked_and_both_go_on(browser, talker):
    page = Page(browser, talker, **LONG)

    def forked():
        kept, _ = cut_while_it_comes(page, "New branch")
        if not kept:
            return None
        browser.wait("root.kids[0].kids.length === 2")
        browser.wait("root.kids[0].kids.every(k => !k.running)")
        return kept if 200 in page.requests("/fork") else None
    kept = page.until_running(forked)
    new, = [t for t in page.idle() if t["role"] == "assistant"]
    page.click(1, "Branch before")
    old = page.turns()[1]
    assert not new["error"] and new["text"].startswith(kept) and old["text"].startswith(kept) and new["text"] != old["text"]
    assert "length" in old["about"] and new["which"] == "2 of 2"


def test_a_running_answer_is_rolled_back(browser, talker):
    page = Page(browser, talker, **LONG)

    def rolled_back():
        before = len(page.requests("/rollback"))
        kept, old = cut_while_it_comes(page, "Replace the rest")
        if not kept:
            return None
        browser.wait(f"performance.getEntriesByType('resource').filter(e => e.name.includes('/rollback')).length > {before}")
        page.idle()
        return (kept, old) if page.requests("/rollback")[-1] == 200 and old != kept else None
    kept, old = page.until_running(rolled_back)
    turn = page.turns()[1]
    assert turn["text"].startswith(kept) and not turn["text"].startswith(old) and turn["which"] == "" and not turn["error"]


def test_a_running_answer_is_steered_by_an_edit(browser, talker):
    page = Page(browser, talker, **LONG)
    text = ""

    def steered():
        nonlocal text
        page.click(1, "Edit")
        text = browser.js("document.activeElement.value = document.activeElement.value.slice(0, 20) + ' Suddenly the door was opened, and'")
        page.click(1, "Continue from this")
        page.idle()
        return 200 in page.requests("/steer")
    page.until_running(steered)
    browser.wait(f"document.querySelector('.turn.assistant .content').textContent.startsWith({json.dumps(text)})")
    assert len(page.turns()[1]["text"]) > len(text) and not page.turns()[1]["error"]


# ---- reasoning and tools ----

def test_reasoning_is_folded_and_can_be_opened(browser, talker):
    page = Page(browser, talker, max_tokens=60, ignore_eos="true", thinking_token_budget=12, seed=4, chat_template_kwargs={"think": True})
    turn = page.ask("Why?")
    assert turn["reasoning"] and turn["folded"] and turn["text"] and turn["reasoning"] not in turn["text"]
    assert browser.js("document.querySelector('.reasoning .text').checkVisibility()") is False
    browser.js("document.querySelector('.reasoning summary').click()")
    browser.wait("document.querySelector('.reasoning .text').checkVisibility()")
    assert page.ask("And?")["reasoning"] and page.turns()[1]["folded"] is False
    page.click(-1, "Branch")  # from its first token on: a new answer, with reasoning of its own
    browser.js("{ const r = document.querySelector('.branch input'); r.value = 0; r.dispatchEvent(new Event('input')); }")
    page.click(-1, "New branch")
    browser.wait("shown()[2].kids.length === 2")
    assert page.idle()[-1]["reasoning"] and page.turns()[-1]["text"]


def test_without_reasoning_none_is_drawn(browser, talker):
    page = Page(browser, talker, max_tokens=5)
    page.ask("Hi")
    assert browser.js("document.querySelector('.turn.assistant .reasoning').hidden")


def test_a_call_is_shown_and_its_result_is_sent(browser, talker):
    page = Page(browser, talker, tools=TOOLS, regex=re.escape(CALL), max_tokens=200)
    turn = page.ask("What is the weather in Rome?")
    assert turn["calls"].startswith('Call of get_weather{"city": "Rome"}') and turn["text"] == "" and "tool_calls" in turn["about"]
    page.fill(regex="The sun shines")
    browser.js("document.querySelector('.call textarea').focus()")
    browser.type('{"sky": "blue"}')
    browser.press("Enter")
    browser.wait("shown().length === 4")
    turns = page.idle()
    assert (turns[2]["role"], turns[3]["text"]) == ("tool", "The sun shines") and '{"sky": "blue"}' in turns[2]["calls"]
    request = json.loads(re.search(r" -d '(.*)'$", page.curl(), re.S)[1])
    call, = request["messages"][1]["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Rome"}'}
    assert request["messages"][2] == {"role": "tool", "tool_call_id": call["id"], "content": '{"sky": "blue"}'}


# ---- settings ----

SAMPLES = {"int": "1", "number": "0.5", "ints": "1, 2", "lines": "ab\ncd", "bool": "true", "area": "root ::= \"a\"", "text": "low", "name": "none"}
OWN = {"logit_bias": {"42": -5}, "response_format": {"type": "json_object"}, "json_schema": {"type": "integer"}, "chat_template_kwargs": {"a": 1},
       "tools": TOOLS, "regex": "a+", "allowed_token_ids": "[5, 6]", "mirostat": 2}


def test_the_server_takes_every_field(browser, talker):
    page = Page(browser, talker)
    types = browser.js("[...fieldTypes]")
    assert len(types) > 45
    for name, kind in types:
        value = OWN.get(name, kind[0] if isinstance(kind, list) else SAMPLES.get(kind.replace("!", "")))
        if name == "allowed_token_ids":
            value = "5, 6"
        page.fill(**{name: value})
        fields = browser.js("settings()")
        assert set(fields) == {name}
        page.fill(**{name: ""})
        more = {"tools": TOOLS} if name in ("tool_choice", "parallel_tool_calls", "max_tool_calls") else {}
        body = {"model": "marked", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}], **more, **fields}
        status, headers, text = talker.ask("POST", "/v1/chat/completions", body)
        assert status == 200 and "warning" not in headers, (fields, text)
    assert browser.js("settings()") == {}


def test_wrong_settings_are_named(browser, talker):
    page = Page(browser, talker, tools="[{")
    page.say("Hi")
    browser.wait("document.getElementById('status').textContent.startsWith('tools: not JSON')")
    assert page.turns() == [] and browser.js("document.getElementById('f-tools').ariaInvalid") == "true"
    page.fill(tools="", top_p=7, max_tokens=3)
    turn = page.ask("Hi")
    assert turn["error"] == "top_p is 7; it must be over 0 and at most 1" and browser.js("document.getElementById('f-top_p').ariaInvalid") == "true"
    assert browser.js("document.getElementById('f-top_p').checkVisibility()")  # its groups are open
    page.fill(top_p="")
    page.click(1, "Again")
    browser.wait("root.kids[0].kids.length === 2")
    assert not page.idle()[1]["error"] and browser.js("document.getElementById('f-top_p').ariaInvalid") is None
    page.fill(other={"top_k": 3})
    assert browser.js("settings()") == {"max_tokens": 3, "top_k": 3}


@pytest.mark.parametrize("flags", [(), ("--api-key", KEY)])
def test_the_request_that_it_shows_can_be_pasted_into_a_shell(browser, quire, flags):
    s = Server("builtin", "--threads", "1", "--served-model-name", """it's "x" $HOME `id` \\ <b>""", *flags)
    page = Page(browser, s, key=KEY if flags else None, max_tokens=4, system="Don't $(shout)")
    assert browser.js("document.getElementById('base-url').textContent") == s.url + "/v1"
    for text in ("Hello!", "it's `mine`\n$HOME"):
        browser.js(f"document.getElementById('message').value = {json.dumps(text)}; document.getElementById('message').dispatchEvent(new Event('input', {{bubbles: true}}))")
        command = page.curl()
        assert json.dumps(text)[1:-1] in command.replace("'\\''", "'") and KEY not in command
        done = subprocess.run(["bash", "-c", command + " -sS -m 300"], env={**os.environ, "KEY": KEY}, capture_output=True, text=True)
        assert json.loads(done.stdout)["choices"], (command, done.stdout, done.stderr)
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.js("document.getElementById('copy-curl').click()")
    browser.wait("document.getElementById('status').textContent === 'The command is copied.'")
    assert s.stop() == 0


# ---- who may ----

def refused(complaint):
    return "401" in complaint or "403" in complaint  # the browser notes every refused request


def test_a_key_is_asked_for_and_kept_in_the_tab_alone(browser, server):
    page = Page(browser, server, max_tokens=4)
    assert page.status() == "This server needs an API key." and browser.js("document.getElementById('ask-key').checkVisibility()")
    assert browser.js("!document.getElementById('needs-key').hidden && document.getElementById('live').hidden")
    assert "needs an API key" in page.status() and "missing or wrong API key" in page.ask("Hi")["error"]
    for key, told in (("k-wrong", "The server does not know that API key."), (KEY, "")):
        browser.js(f"document.getElementById('key-text').value = '{key}'; document.getElementById('ask-key').requestSubmit()")
        browser.wait(f"document.getElementById('status').textContent === {json.dumps(told)} && document.getElementById('ask-key').hidden === {json.dumps(not told)}")
    page.click(1, "Again")
    browser.wait("root.kids[0].kids.length === 2")
    assert page.idle()[1]["text"] and not page.turns()[1]["error"]
    browser.wait("!document.getElementById('live').hidden")
    assert browser.js("[sessionStorage.getItem('key'), localStorage.length, document.cookie]") == [KEY, 0, ""]
    assert KEY not in browser.js("document.documentElement.outerHTML") and [c for c in browser.complaints if not refused(c)] == []


def test_what_runs_is_drawn(browser, talker):
    page = Page(browser, talker, **LONG)
    browser.wait("!document.getElementById('live').hidden")
    assert browser.js("document.getElementById('live-about').textContent").startswith("0 running")
    page.until_running(lambda: browser.wait("document.querySelector('#live-seqs li')?.textContent.includes('decode') || !shown()[1].running")
                       and browser.js("document.querySelectorAll('#live-seqs li').length"))
    page.idle()
    browser.wait("document.getElementById('live-about').textContent.startsWith('0 running')")
    assert browser.js("document.querySelectorAll('#live-seqs li').length") == 0


def test_where_it_may_not_be_seen_nothing_is_drawn(browser, talker):
    page = Page(browser, talker, max_tokens=4)
    browser.wait("!document.getElementById('live').hidden")
    state = json.dumps({"counts": {"held": 3, "cached": 0, "pages": 9}, "seqs": [], "waiting": 0})
    browser.js(f"""{{ const real = fetch; window.fetch = (u, o) => u !== 'debug/pool' ? real(u, o) :
        Promise.resolve(new Response('data: ' + {json.dumps(state)} + '\\n\\n', {{status: 403}})); window.watching = watch(); }}""")
    browser.js("watching")
    assert browser.js("document.getElementById('live').hidden && document.getElementById('live-about').textContent").startswith("0 running · 0")
    assert page.ask("Hi")["text"] and "403" not in browser.js("document.body.textContent")


def test_the_server_is_described_and_its_links_lead_somewhere(browser, talker):
    Page(browser, talker)
    browser.js("document.getElementById('server').open = true")
    browser.wait("document.getElementById('paths').textContent.includes('/debug/requests/..')")
    terms = browser.js("Object.fromEntries([...document.querySelectorAll('#server dl:first-of-type dt')].map(t => [t.textContent, t.nextElementSibling.textContent]))")
    version = json.loads(talker.ask("GET", "/version")[2])["version"]
    assert terms["model"] == "marked" and terms["version"] == version and re.fullmatch(r"\d\d:\d\d:\d\d", terms["uptime"])
    shows = {"/pool": "document.querySelectorAll('.cell').length > 0", "/metrics": "document.body.textContent.includes('vllm:num_requests_running')",
             "/health": "true", "/ready": "true", "/v1/models": "document.body.textContent.includes('\"object\":\"list\"')"}
    assert browser.js("[...document.querySelectorAll('#links a')].map(a => a.pathname)") == list(shows)
    for path in shows:
        Page(browser, talker)
        browser.follow(f'#links a[href="{path[1:]}"]')
        browser.wait(shows[path])


# ---- hostile text ----

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\n```html\n<b id=\"owned\">bold</b>\n```\n&lt; [a](javascript:hacked)"


def test_what_a_model_writes_is_text(browser, talker):
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "<img src=x onerror=hacked()>"}}\n</tool_call>'
    page = Page(browser, talker, regex=re.escape(HOSTILE), max_tokens=400)
    turn = page.ask(HOSTILE)
    drawn = browser.js("[...document.querySelector('.turn.assistant .content').children].map(e => [e.tagName, e.textContent])")
    assert [d[0] for d in drawn] == ["DIV", "PRE", "DIV"] and drawn[1][1] == '<b id="owned">bold</b>\n' and drawn[0][1].startswith("<script>")
    assert "javascript:hacked" in turn["text"]
    page.fill(regex=re.escape(call), tools=TOOLS)
    assert "<img src=x onerror=hacked()>" in page.ask("again")["calls"]
    assert browser.js("[typeof window.hacked, document.querySelectorAll('#turns :is(script, img, b, a)').length, document.getElementById('owned')]") == ["undefined", 0, None]
    assert browser.complaints == []


# ---- keyboard, screens, schemes ----

def test_tab_goes_through_the_controls_in_order(browser, talker):
    page = Page(browser, talker, max_tokens=3)
    page.ask("Hi")
    browser.js("document.getElementById('model').focus()")
    seen = []
    for _ in range(13):
        seen.append(browser.js("(e => e.id || e.textContent)(document.activeElement)"))
        browser.press("Tab")
    assert seen == ["model", "new-chat", "show-key", "Settings", "Edit", "Copy", "Edit", "Branch", "Again", "Copy", "message", "send", "all pages"]


def test_the_conversation_is_a_live_region_that_waits_for_the_end(browser, talker):
    page = Page(browser, talker, **LONG)
    assert browser.js("[turns.role, turns.ariaLive, document.getElementById('status').role].join()") == "log,polite,status"
    page.until_running(lambda: browser.js("shown()[1].running ? shown()[1].view.ariaBusy : null") == "true")
    assert browser.js("[...document.querySelectorAll('input, select, textarea')].every(e => e.labels.length || e.ariaLabel)")


def test_a_narrow_screen_has_no_horizontal_scrolling(browser, talker):
    long = "a" * 300 + " " + "word " * 40 + "\n```\n" + "b" * 200 + "\n```"
    page = Page(browser, talker, regex=re.escape(CALL), tools=TOOLS, max_tokens=200)
    browser.size(360, 740)
    wide = "[...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"

    def fits():
        assert browser.js("document.documentElement.scrollWidth") <= 360 and browser.js(wide) == []
    fits()
    page.ask(long)
    fits()
    page.fill(regex=re.escape(long[:250]), tools="")
    page.click(1, "Again")
    browser.wait("root.kids[0].kids.length === 2")
    page.idle()
    page.click(1, "Branch")
    page.click(0, "Edit")
    fits()
    browser.js("for (const d of document.querySelectorAll('details')) d.open = true; document.getElementById('show-key').click()")
    browser.wait("document.getElementById('paths').textContent.includes('/debug')")
    fits()
    for width in (600, 900, 1000):
        browser.size(width, 740)
        assert browser.js("document.documentElement.scrollWidth") <= width and browser.js(wide) == []


CONTRAST = """(() => {
    const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                         return .2126 * r + .7152 * g + .0722 * b; };
    const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (c !== 'rgba(0, 0, 0, 0)') return c; } };
    const own = [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
    return own.map(e => { const a = light(getComputedStyle(e).color), b = light(behind(e)); return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), e.outerHTML.slice(0, 60)]; });
})()"""


def test_both_colour_schemes_can_be_read(browser, talker):
    page = Page(browser, talker, max_tokens=20, temperature=7)
    page.ask("Hi")
    page.fill(temperature=1)
    page.ask("Hi")
    browser.js("for (const d of document.querySelectorAll('aside details')) d.open = true")
    backs = []
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        backs.append(browser.js("getComputedStyle(document.body).backgroundColor"))
        low = [c for c in browser.js(CONTRAST) if c[0] < 4.5]
        assert low == [], scheme
        if os.environ.get("QUIRE_TEST_PICTURES"):
            browser.picture(os.path.join(os.environ["QUIRE_TEST_PICTURES"], f"chat-{scheme}.png"))
    browser.prefer("light")
    assert backs[0] != backs[1]
