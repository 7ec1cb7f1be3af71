"""`quire run` on a terminal: a chat, or with --complete completions; its commands, keys, pasted text, history and the context's end. What a
model, a prompt or a file says is no command to the terminal."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import termios
import time

import pytest

from conftest import QUIRE

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
OPENING = TEMPLATE + "{% if add_generation_prompt %}assistant: {% endif %}"  # the next prompt begins with what was answered
CHAT = ("run", "builtin", "--chat-template", TEMPLATE)
PASTE, MARKED, UNMARKED = "\x1b[200~%s\x1b[201~", "\x1b[?2004h", "\x1b[?2004l"
UP, DOWN, CTRL_C, CTRL_D = "\x1b[A", "\x1b[B", "\x03", "\x04"


class Terminal:
    """A program on a pseudo-terminal, whose state lies in a directory of its own."""

    def __init__(self, command, state, term="dumb", ignored=None, **environment):
        def enter():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests under nohup ignores it
            if ignored is not None:
                signal.signal(ignored, signal.SIG_IGN)

        master, slave = pty.openpty()
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=enter,
                                        env={**os.environ, "XDG_STATE_HOME": str(state), "TERM": term, **environment})
        self.name = os.ttyname(slave)
        os.close(slave)
        self.master, self.text, self.n_read = master, "", 0

    def _read(self):
        """More of what is shown; False when the program has ended."""
        try:
            piece = os.read(self.master, 4096)
        except OSError:  # the other side is closed
            piece = b""
        self.text += piece.decode("utf-8", "replace")
        return len(piece) > 0

    def shown(self):
        """What is shown, without the marks that have pasted text marked."""
        return self.text.replace(MARKED, "").replace(UNMARKED, "")

    def read_until(self, words, seconds=300):
        """What is shown behind what was read before, up to these words."""
        end = time.monotonic() + seconds
        while words not in self.shown()[self.n_read:]:
            ready = select.select([self.master], [], [], max(0, end - time.monotonic()))[0]
            assert ready, f"no {words!r} in {self.shown()[self.n_read:]!r}"
            assert self._read(), f"ended, and no {words!r} in {self.shown()[self.n_read:]!r}"
        start = self.n_read
        self.n_read = self.shown().index(words, start) + len(words)
        return self.shown()[start:self.n_read]

    def read_all(self):
        """All that was ever shown, once the program has ended."""
        while self._read():
            pass
        return self.text

    def lines_are_edited(self):
        return not termios.tcgetattr(self.master)[3] & termios.ICANON

    def type(self, text, seconds=300):
        """To the line editor: what comes while it turns the terminal round is echoed twice or lost."""
        end = time.monotonic() + seconds
        while not self.lines_are_edited():
            assert time.monotonic() < end, "nobody edits a line"
            time.sleep(0.001)
        os.write(self.master, text.encode())

    def interrupt(self, seconds=300):
        """Ctrl-C at a line, once what was typed before is read: the key discards the rest."""
        slave, end = os.open(self.name, os.O_RDWR | os.O_NOCTTY), time.monotonic() + seconds
        while struct.unpack("i", fcntl.ioctl(slave, termios.FIONREAD, b"\0\0\0\0"))[0] > 0:
            assert time.monotonic() < end, "what was typed is not read"
            time.sleep(0.001)
        os.close(slave)
        self.type(CTRL_C)

    def ask(self, line):
        """Types a line; what is said until the next prompt."""
        self.type(line + "\n")
        return self.read_until("\n> ").replace("\r", "")

    def answer(self, line):
        """The answer alone."""
        said = self.ask(line)
        return said.split("\n", line.count("\n") + 1)[-1].split("\nquire: prompt ")[0]

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def messages(self, path):
        """The conversation, as /save writes it to a new file."""
        assert "saved to" in self.ask(f"/save {path}")
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["messages"]

    def end(self):
        """Ctrl-D; the exit status."""
        self.type(CTRL_D)
        return self.process.wait(300)


@pytest.fixture
def start(quire, tmp_path):
    """start(*arguments): quire with them on a terminal."""
    started = []

    def run(*arguments, command=None, **environment):
        started.append(Terminal(command or [QUIRE, *arguments], tmp_path / "state", **environment))
        return started[-1]

    yield run
    for terminal in started:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)


@pytest.fixture
def chat(start):
    """chat(*flags): a chat at its first prompt. The built-in model answers with eight tokens."""
    def run(*flags, template=OPENING, **environment):
        terminal = start("run", "builtin", "--chat-template", template, "-n", "8", "--temp", "0", *flags, **environment)
        terminal.read_until("> ")
        return terminal

    return run


def said(*texts):
    """Messages of user and model in turns."""
    return [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(texts)]


# ---- turns ----


def test_without_a_chat_each_line_is_completed(start):
    terminal = start("run", "builtin", "--complete", "-n", "12", "--temp", "0")
    assert "continues what you type" in terminal.read_until("> ")
    wanted = subprocess.run([QUIRE, "run", "-p", "The prince", "-n", "12", "--temp", "0"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    assert wanted in terminal.ask("The prince")
    assert "no conversation" in terminal.ask("/clear")
    assert "no such command" in terminal.ask("/The prince")
    assert terminal.end() == 0


@pytest.mark.parametrize("flags,words", [
    (["--echo"], "--echo: without effect in a chat"),
    (["-o", "/dev/null"], "--out: without effect in a chat"),
    (["--complete", "--system", "S"], "--system: without effect where --complete"),
    (["--complete", "--chat-template", TEMPLATE], "--chat-template: without effect where --complete"),
])
def test_a_chat_refuses_flags_that_it_does_not_read(start, flags, words):
    terminal = start("run", "builtin", *flags)
    assert words in terminal.read_all()
    assert terminal.process.wait(300) == 2


def test_a_model_without_a_template_chats_in_plain_turns(start, chat, tmp_path):
    terminal = start("run", "builtin", "-n", "8", "--temp", "0")
    assert "no chat template" in terminal.read_until("\n> ")
    answer = terminal.answer("hello")
    assert terminal.messages(tmp_path / "a") == said("hello", answer)
    assert "no chat template" not in chat().text


def test_a_chat_takes_turns_and_forgets(chat):
    terminal = chat()
    answers = [terminal.answer(line) for line in ("hello", "The prince looked at her and")]
    assert "empty" in terminal.ask("/clear")
    assert answers[0] == terminal.answer("hello") != answers[1]
    assert terminal.end() == 0


def test_each_turn_reuses_the_one_before_and_says_how_fast_it_was(chat):
    terminal = chat()
    terminal.ask("hello")
    spoken = terminal.ask("again")
    found = re.search(r"prompt (\d+) tokens \((\d+) cached\), answer 8 tokens, [\d.]+ tokens/s, first after [\d.]+ s\n", spoken)
    assert found, spoken
    assert int(found[1]) - int(found[2]) <= len("\nuser: again\nassistant: ")  # all but what is new


def test_an_interrupt_stops_the_answer_and_keeps_what_was_said(start, tmp_path):
    terminal = start("run", "builtin", "--chat-template", OPENING, "--ignore-eos", "--temp", "0")
    terminal.read_until("> ")
    terminal.type("The prince\n")
    terminal.read_until("prince\r\n")
    beginning = terminal.read_until(" ")  # it answers
    os.write(terminal.master, CTRL_C.encode())  # upon which the terminal discards what is not shown yet
    assert "quire: prompt" in terminal.read_until("\n> ")
    kept = terminal.messages(tmp_path / "kept")
    assert [m["role"] for m in kept] == ["user", "assistant"] and kept[1]["content"].startswith(beginning)
    terminal.type("/exit\n")
    assert terminal.process.wait(300) == 0


def test_an_interrupt_before_the_answer_begins_changes_nothing(start, tmp_path):
    terminal = start("run", "builtin", "--chat-template", OPENING, "-n", "4", "--chunk", "1", "--prefix-cache", "none")
    terminal.read_until("> ")
    for line, words, n in (("x " * 900, "the message is forgotten", 0), ("/regen", "the previous one is kept", 2)):
        if n > 0:
            terminal.ask("y " * 900)
        terminal.type(line + "\n")
        until = time.monotonic() + 300
        while terminal.lines_are_edited():  # until it computes the prompt, token by token
            assert time.monotonic() < until, "the answer came before it was seen to begin"
            time.sleep(0.001)
        os.write(terminal.master, CTRL_C.encode())
        terminal.read_until(words)
        terminal.read_until("\n> ")
        assert len(terminal.messages(tmp_path / str(n))) == n


# ---- keys ----


def test_ctrl_c_clears_the_line_and_twice_ends(chat, tmp_path):
    terminal = chat()
    terminal.type("no message")
    terminal.read_until("message")
    terminal.interrupt()
    terminal.read_until("\n> ")
    assert terminal.messages(tmp_path / "a") == []  # so the command stood alone
    for keys in ("", "x"):  # the first at an empty line, and one at a line that is not
        terminal.type(keys)
        terminal.read_until(keys)
        terminal.interrupt()
        assert "press Ctrl-C again" in terminal.read_until("\n> ")
    terminal.interrupt()
    assert terminal.process.wait(300) == 0


def test_a_command_between_two_interrupts_keeps_the_chat(chat):
    terminal = chat()
    for _ in range(2):
        terminal.interrupt()
        terminal.read_until("\n> ")
        terminal.ask("/help")
    assert terminal.end() == 0


def test_several_lines_go_between_quotes(chat, tmp_path):
    terminal = chat()
    terminal.type('"""\n')
    terminal.read_until("... ")
    terminal.type("first\n")
    terminal.read_until("... ")
    terminal.type('/second"""\n')
    terminal.read_until("\n> ")
    terminal.ask('"""/one"""')
    assert [m["content"] for m in terminal.messages(tmp_path / "a") if m["role"] == "user"] == ["\nfirst\n/second", "/one"]


def test_an_interrupt_or_an_end_drops_a_text_of_several_lines(chat, tmp_path):
    terminal = chat()
    for key in (CTRL_C, CTRL_D):
        terminal.type('"""first\n')
        terminal.read_until("... ")
        terminal.type(key)
        terminal.read_until("\n> ")
    assert terminal.messages(tmp_path / "a") == []
    assert terminal.end() == 0


def test_pasted_lines_are_one_message(chat, tmp_path):
    terminal = chat(term="xterm")
    terminal.type(PASTE % "one\rtwo\r\n\tthree\n" + "four")
    terminal.read_until("four")
    terminal.ask("")
    assert terminal.messages(tmp_path / "a")[0]["content"] == "one\ntwo\n\tthree\nfour"


def test_pastes_are_marked_only_while_a_line_is_edited(chat):
    terminal = chat(term="xterm")
    assert terminal.text.endswith(MARKED + "> ")
    terminal.ask("hello")
    shown = terminal.text[terminal.text.index("hello"):]
    assert shown.index(UNMARKED) < shown.index("quire: prompt") < shown.index(MARKED)
    terminal.type(CTRL_D)
    shown = terminal.read_all()
    assert shown.rindex(UNMARKED) > shown.rindex(MARKED)


def test_a_plain_terminal_gets_no_control_sequences(chat):
    for term in ("dumb", ""):
        terminal = chat(term=term)
        terminal.ask("hello")
        terminal.end()
        assert "\x1b" not in terminal.text


def test_a_paste_that_does_not_end_is_interrupted(chat):
    terminal = chat(term="xterm")
    terminal.type("zero\x1b[200~one\r")
    terminal.read_until("zero")
    terminal.interrupt()
    terminal.read_until("press Ctrl-C again")
    terminal.read_until("> ")
    assert terminal.end() == 0


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_what_is_typed_is_utf_8(chat, tmp_path, locale):
    terminal = chat(LC_ALL=locale)
    text = "Grüße, 你好 \U0001f600"
    assert text in terminal.ask(text)
    assert terminal.messages(tmp_path / "a")[0]["content"] == text


def test_a_new_size_breaks_neither_line_nor_answer(chat, start, tmp_path):
    terminal = chat(term="xterm")
    terminal.resize(24, 80)
    terminal.type("The quick brown fox")
    terminal.read_until("fox")
    terminal.resize(24, 40)
    terminal.read_until("> The quick brown fox")  # shown anew
    terminal.ask(" jumps")
    assert terminal.messages(tmp_path / "a")[0]["content"] == "The quick brown fox jumps"

    terminal = start("run", "builtin", "--complete", "--temp", "0", "-n", "400", "--ignore-eos")
    wanted = subprocess.run([QUIRE, "run", "-p", "The prince", "--temp", "0", "-n", "400", "--ignore-eos"], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL).stdout
    terminal.read_until("> ")
    terminal.type("The prince\n")
    terminal.read_until("prince\r\n")
    for columns in range(40, 100):
        terminal.read_until(" ")
        terminal.resize(24, columns)
    terminal.read_until("\n> ")
    assert wanted in terminal.text.replace("\r", "")


# ---- commands ----


def test_an_unknown_command_stays_here(chat, tmp_path):
    terminal = chat()
    assert "/hlep: no such command; did you mean /help? /help lists them" in terminal.ask("/hlep")
    assert "/usr/bin/env: no such command; /help lists them; a text that begins with / goes between \"\"\"" in terminal.ask("/usr/bin/env what is this?")
    assert "takes no argument" in terminal.ask("/clear all")
    assert terminal.messages(tmp_path / "a") == []


def test_help_names_the_commands(chat):
    page = chat().ask("/help")
    for name in ("/help", "/clear", "/regen", "/set", "/system", "/save FILE", "/load FILE", "/exit", '"""', "Ctrl-C"):
        assert f"  {name}" in page


def test_settings_are_shown_checked_and_used(chat):
    terminal = chat()
    fields = {line.split()[0]: line.split()[1] for line in terminal.ask("/set").split("\n")[1:-1]}
    assert fields["temperature"] == "0.0" and fields["max_tokens"] == "8" and fields["seed"] == "default"
    for name in json.loads(subprocess.run([QUIRE, "help", "--json"], capture_output=True, text=True).stdout)["commands"][0]["flags"]:
        if name["names"][0] in ("--temp", "--top-k", "--top-p", "--min-p", "--seed", "--stop", "--ignore-eos"):
            assert {"temp": "temperature"}.get(name["names"][0].strip("-"), name["names"][0].strip("-").replace("-", "_")) in fields
    assert "temprature: no such setting; did you mean temperature?" in terminal.ask("/set temprature 1")
    assert "temperature is 5; it must be from 0 to 2" in terminal.ask("/set temperature 5")
    assert 'top_k is "many"; it must be' in terminal.ask("/set top-k many")
    assert "needs a name and a value" in terminal.ask("/set temperature")
    whole = terminal.answer("hello")
    terminal.ask("/set max-tokens 3")
    terminal.ask("/clear")
    assert whole.startswith(terminal.answer("hello")) and "answer 3 tokens" in terminal.text
    for line, name, value in (("/set temp 0.5", "temperature", "0.5"), ("/set stop END", "stop", '"END"'), ("/set ignore_eos on", "ignore_eos", "true"),
                              ("/set max_tokens default", "max_tokens", "default"), ("/set seed=7", "seed", "7")):
        terminal.ask(line)
        assert re.search(rf"\n  {name} +{re.escape(value)} ", terminal.ask("/set")), line


def test_regen_replaces_the_last_answer(chat, tmp_path):
    terminal = chat("--temp", "1")
    assert "no answer yet" in terminal.ask("/regen")
    first = terminal.answer("hello")
    second = terminal.answer("/regen")
    assert first != second
    assert [m["content"] for m in terminal.messages(tmp_path / "a")] == ["hello", second]
    terminal.ask("/set seed 5")
    third = terminal.answer("/regen").split("each time\n")[-1]
    assert "the seed is set" in terminal.ask("/regen")
    assert [m["content"] for m in terminal.messages(tmp_path / "b")] == ["hello", third]


def test_the_system_message_is_replaced_shown_and_removed(chat, tmp_path):
    terminal = chat("--system", "Be brief.")
    assert "Be brief." in terminal.ask("/system")
    brief = terminal.answer("hello")
    terminal.ask("/system Speak as a sailor.")
    terminal.ask("/clear")
    assert terminal.answer("hello") != brief
    assert terminal.messages(tmp_path / "a")[0] == {"role": "system", "content": "Speak as a sailor."}
    terminal.type('/system """two\n')
    terminal.read_until("... ")
    terminal.ask('lines"""')
    assert "\ntwo\nlines\n" in terminal.ask("/system")
    terminal.ask('/system ""')
    assert "no system message" in terminal.ask("/system")
    assert terminal.messages(tmp_path / "b")[0]["role"] == "user"


def test_a_conversation_is_saved_loaded_and_never_replaced_by_itself(chat, tmp_path):
    terminal = chat("--system", "Be brief.")
    answers = [terminal.answer("hello")]
    path = tmp_path / "chat.json"
    kept = terminal.messages(path)
    assert kept == [{"role": "system", "content": "Be brief."}, *said("hello", answers[0])]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    answers.append(terminal.answer("again"))
    assert "exists" in terminal.ask(f"/save {path}") and json.loads(path.read_text())["messages"] == kept
    assert "saved" in terminal.ask(f"/save! {path}") and json.loads(path.read_text())["messages"][3]["content"] == "again"
    assert "No such file" in terminal.ask(f"/save {tmp_path}/none/chat.json")

    other = chat()
    assert "5 messages loaded" in other.ask(f"/load {path}")
    assert other.answer("/regen") == answers[1]
    for text, why in (("[1", "not JSON"), ("7", "no list of messages"), ('[{"role": "tool", "content": "x"}]', "message 0 must have"),
                      ('[{"role": "user", "content": 1}]', "message 0 must have"), ('[{"role": "assistant", "content": "x"}]', "must be the user's")):
        path.write_text(text)
        assert why in other.ask(f"/load {path}")
    assert len(other.messages(tmp_path / "after")) == 5  # what is no conversation changes nothing


# ---- the context's end ----


def test_the_oldest_turns_are_left_out_where_the_context_ends(chat, tmp_path):
    terminal = chat("-c", "128", "--system", "S", template="{% if messages[0].role != 'system' or messages[1].role != 'user' %}{{ raise_exception('the system message "
                    "and a turn come first') }}{% endif %}" + OPENING)
    n, spoken = 0, ""
    while "left out" not in spoken:
        assert n < 20, spoken
        spoken = terminal.ask(f"message number {n} of this long conversation")
        assert re.search(r"\nquire: prompt \d+ tokens", spoken), spoken  # it is answered
        n += 1
    assert n > 2 and re.search(r"its oldest \d turns? (is|are) left out from here on\n", spoken)
    assert spoken.index("left out") < spoken.index("quire: prompt")
    tokens = int(re.search(r"prompt (\d+) tokens", spoken)[1])
    assert tokens <= 96  # a quarter is free again
    assert "left out" not in terminal.ask("ok")
    kept = terminal.messages(tmp_path / "a")
    assert len(kept) == 1 + 2 * (n + 1)  # nothing is lost to /save


def test_of_a_long_conversation_the_newest_turns_are_sent(chat, tmp_path):
    texts = [f"message number {i} of a very long conversation" for i in range(400)]
    (tmp_path / "long").write_text(json.dumps(said(*texts)))
    terminal = chat("-c", "256")
    assert "400 messages loaded" in terminal.ask(f"/load {tmp_path}/long")
    spoken = terminal.ask("hello")
    n_out, tokens = int(re.search(r"its oldest (\d+) turns", spoken)[1]), int(re.search(r"prompt (\d+) tokens", spoken)[1])
    (tmp_path / "newest").write_text(json.dumps(said(*texts[2 * n_out:])))
    (tmp_path / "more").write_text(json.dumps(said(*texts[2 * n_out - 2:])))
    other = chat()
    sizes = []
    for name in ("newest", "more"):
        other.ask(f"/load {tmp_path}/{name}")
        sizes.append(int(re.search(r"prompt (\d+) tokens", other.ask("hello"))[1]))
    assert sizes[0] == tokens <= 192 < sizes[1]  # a turn more, and no quarter of the context is free


def test_a_message_that_has_no_room_is_refused_and_the_conversation_stays(chat, tmp_path):
    terminal = chat("-c", "64")
    terminal.ask("hello")
    before = terminal.messages(tmp_path / "a")
    assert "maximum context length of 64 tokens" in terminal.ask("word " * 100)
    assert "left out" not in terminal.text
    assert terminal.messages(tmp_path / "b") == before
    assert "answer 8 tokens" in terminal.ask("again")


def test_a_message_may_fill_the_context(chat):
    terminal, n, most, spoken = chat("-c", "64"), 10, 0, ""
    while "maximum context length" not in spoken:
        terminal.ask("/clear")
        spoken = terminal.ask("x " * n)
        most = max([most, *(int(tokens) for tokens in re.findall(r"quire: prompt (\d+) tokens", spoken))])
        n += 1
    assert 64 - 3 <= most < 64


def test_an_answer_that_fills_the_context_says_so(start):
    terminal = start(*CHAT, "-c", "64", "--temp", "0", "--ignore-eos")
    terminal.read_until("> ")
    assert "the context of 64 tokens is full" in terminal.ask("hello")
    assert "max_tokens" not in terminal.text
    terminal.ask("/set max_tokens 4")
    spoken = terminal.ask("again")
    assert "left out" in spoken and "cut at max_tokens" in spoken


# ---- history ----


def test_lines_come_back_in_the_next_chat(chat, tmp_path):
    terminal = chat()
    terminal.type('"""one\n')
    terminal.read_until("... ")
    terminal.ask('t\\wo"""')
    terminal.ask("last")
    terminal.end()
    history = tmp_path / "state/quire/history"
    assert history.read_text() == '"""one\\nt\\\\wo"""\nlast\n'
    assert stat.S_IMODE(history.stat().st_mode) == 0o600 and stat.S_IMODE(history.parent.stat().st_mode) == 0o700

    terminal = chat(term="xterm")
    terminal.type(UP + UP)
    terminal.read_until('wo"""')
    terminal.ask("")
    assert terminal.messages(tmp_path / "a")[0]["content"] == "one\nt\\wo"


def test_a_long_line_survives_a_look_at_the_history(chat, tmp_path):
    terminal = chat("-c", "0", term="xterm")
    terminal.ask("first")
    terminal.ask("second")
    text = "y" * 2000
    terminal.type(PASTE % text)
    terminal.read_until("y" * 70)
    terminal.type(UP + UP + UP)  # one more than there are
    terminal.read_until("first")
    terminal.type(DOWN)
    terminal.read_until("second")
    terminal.type(DOWN + "end")
    terminal.read_until("end")
    terminal.ask("")
    assert terminal.messages(tmp_path / "a")[4]["content"] == text + "end"


def test_no_history_is_kept_where_it_is_not_wanted(chat, tmp_path):
    terminal = chat("--no-history")
    terminal.ask("hello")
    assert terminal.end() == 0
    subprocess.run([QUIRE, "run", "-n", "1"], input="hello", text=True, capture_output=True, env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}, check=True)
    assert not (tmp_path / "state").exists()


def test_a_history_that_cannot_be_written_is_named_once(chat, tmp_path):
    (tmp_path / "state").write_text("no directory")
    terminal = chat()
    spoken = terminal.text + terminal.ask("hello") + terminal.ask("again")
    assert spoken.count("the history of lines is not kept") == 1 and str(tmp_path / "state/quire/history") in spoken
    assert terminal.end() == 0


# ---- signals ----


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_at_the_prompt_gives_the_terminal_back(chat, number):
    terminal = chat(term="xterm")
    terminal.type("half a line")
    terminal.read_until("line")
    terminal.process.send_signal(number)
    assert terminal.process.wait(300) == -number
    assert not terminal.lines_are_edited()
    assert termios.tcgetattr(terminal.master)[3] & termios.ECHO
    shown = terminal.read_all()
    assert shown.rindex(UNMARKED) > shown.rindex(MARKED)


def test_a_signal_that_was_ignored_before_stays_ignored(chat):
    terminal = chat(ignored=signal.SIGHUP)
    terminal.process.send_signal(signal.SIGHUP)
    terminal.ask("hello")
    assert terminal.end() == 0


def test_a_signal_ends_an_answer_and_the_program(start):
    terminal = start("run", "builtin", "--complete", "--ignore-eos", "--temp", "0")
    terminal.read_until("> ")
    terminal.type("The prince\n")
    terminal.read_until("prince\r\n")
    terminal.read_until(" ")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.process.wait(300) == -signal.SIGTERM


SHELL = """
import os, signal, sys, termios
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    print("stopped,", "as found" if termios.tcgetattr(0)[3] & termios.ICANON else "still edited", flush=True)
    os.kill(pid, signal.SIGCONT)
"""


def test_ctrl_z_gives_the_terminal_back_until_the_chat_goes_on(start, tmp_path):
    terminal = start(command=[sys.executable, "-c", SHELL, QUIRE, *CHAT, "-n", "8", "--temp", "0"], term="xterm")
    terminal.read_until("> ")
    terminal.type("hello")
    terminal.read_until("hello")
    terminal.type("\x1a")
    terminal.read_until("stopped, as found")
    before = terminal.text[:terminal.text.index("stopped")]
    assert before.count(MARKED) == before.count(UNMARKED) == 1
    terminal.read_until("> hello")  # shown anew
    assert terminal.text.count(MARKED) == 2
    terminal.ask(" you")
    assert terminal.messages(tmp_path / "a")[0]["content"] == "hello you"
    assert terminal.end() == 0


def test_answers_may_go_to_a_file(start, tmp_path):
    terminal = start(command=["sh", "-c", f'"$0" "$@" > {tmp_path}/out', QUIRE, *CHAT, "-n", "8", "--temp", "0"])
    terminal.read_until("> ")
    assert "quire: prompt" in terminal.ask("hello")
    assert terminal.end() == 0
    text = (tmp_path / "out").read_text()
    assert text and "> " not in text and text.strip() not in terminal.text.replace("\r", "")


# ---- what is no command to the terminal ----


def on_terminal(*arguments, cwd=None):
    """What a program without input shows on a terminal, and its exit status."""
    master, slave = pty.openpty()
    process = subprocess.Popen([os.path.abspath(QUIRE), *arguments], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, cwd=cwd)
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    return shown.replace(b"\r\n", b"\n"), process.wait(300)  # the terminal's own line ends


def into_pipe(*arguments):
    return subprocess.run([QUIRE, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=120)


def controls(shown):
    return [c for c in shown.decode("utf-8") if (ord(c) < 0x20 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2066"]


HOSTILE = "\x1b[2J\x1b]0;owned\x07 \u009b31m \u202edrow\u202c \x7f Napol\u00e9on"


def test_an_echoed_prompt_is_no_command_to_the_terminal(quire):
    arguments = ("run", "-p", HOSTILE, "--echo", "-n", "4", "--temp", "0", "-q")
    shown, status = on_terminal(*arguments)
    assert status == 0 and controls(shown) == []
    assert rb"\x1b[2J\x1b]0;owned\x07 \u009b31m \u202edrow\u202c \x7f Napol" in shown and "Napol\u00e9on".encode() in shown
    assert into_pipe(*arguments).stdout.startswith(HOSTILE.encode())


@pytest.fixture
def hostile_model(tmp_path):
    """The built-in model with a vocabulary in which its commonest tokens are control characters and halves of one."""
    model = tmp_path / "model"
    shutil.copytree("models/builtin-hf", model)
    text = (model / "tokenizer.json").read_text(encoding="utf-8")
    tokenizer = json.loads(text)
    vocabulary = tokenizer["model"]["vocab"]
    for common, byte in ((",", "\u011b"), ("\u0120the", "\u00c2"), ("\u0120and", "\u013d")):  # ESC, and C2 9B: a control sequence's start in UTF-8
        vocabulary[common], vocabulary[byte] = vocabulary[byte], vocabulary[common]
    (model / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return str(model)


def test_a_model_s_answer_is_no_command_to_the_terminal(quire, hostile_model):
    arguments = ("run", hostile_model, "-p", "The prince", "-n", "300", "--ignore-eos", "--temp", "0.9", "--seed", "1", "-q")
    raw = into_pipe(*arguments).stdout
    assert b"\x1b" in raw
    shown, status = on_terminal(*arguments)
    assert status == 0 and controls(shown) == []
    assert shown.count(rb"\x1b") == raw.count(b"\x1b")


def test_a_chat_s_answer_is_no_command_to_the_terminal(start, hostile_model):
    terminal = start("run", hostile_model, "--chat-template", TEMPLATE, "-n", "300", "--ignore-eos", "--temp", "0.9", "--seed", "1")
    terminal.read_until("> ")
    shown = terminal.ask("hello")
    assert "\\x1b" in shown and "\x1b" not in shown
    assert terminal.end() == 0


def test_tokens_and_errors_are_no_commands_to_the_terminal(quire, hostile_model, tmp_path):
    for arguments in (("tokenize", hostile_model, "--decode", "216,11,190,202"), ("tokenize", "builtin", "-p", HOSTILE), ("run", "-p", "x", "--temp", "\x1b[31m"),
                      ("run", str(tmp_path / "no\x1b[31mmodel"), "-p", "x")):
        shown, _ = on_terminal(*arguments)
        assert shown and controls(shown) == [], shown
