"""`quire run` on a terminal: a chat, or completions where there is no template; Ctrl-C stops an answer, Ctrl-D ends. What a model, a prompt or a file says
is no command to the terminal."""
import json
import os
import pathlib
import pty
import select
import shutil
import subprocess
import termios
import time

import pytest

from conftest import QUIRE

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(self, *arguments):
        master, slave = pty.openpty()
        self.process = subprocess.Popen([QUIRE, *arguments], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: __import__("fcntl").ioctl(0, 0x540E, 0), env={**os.environ, "TERM": "dumb"})  # TIOCSCTTY
        os.close(slave)
        self.master, self.text = master, ""

    def read_until(self, words, seconds=60):
        end, start = time.monotonic() + seconds, len(self.text)
        while words not in self.text[start:]:
            ready = select.select([self.master], [], [], max(0, end - time.monotonic()))[0]
            assert ready, f"no {words!r} in {self.text[start:]!r}"
            try:
                self.text += os.read(self.master, 4096).decode("utf-8", "replace")
            except OSError:  # the other side is closed
                break
        return self.text[start:]

    def type(self, text, seconds=60):
        """To the line editor: what comes while it turns the terminal round is echoed twice or lost."""
        end = time.monotonic() + seconds
        while termios.tcgetattr(self.master)[3] & termios.ICANON:
            assert time.monotonic() < end, "nobody edits a line"
            time.sleep(0.001)
        os.write(self.master, text.encode())

    def end(self):
        """Ctrl-D; the exit status."""
        self.type("\x04")
        try:
            return self.process.wait(20)
        finally:
            self.process.kill()
            os.close(self.master)


def test_without_a_chat_each_line_is_completed(quire):
    terminal = Terminal("run", "builtin", "--complete", "-n", "12", "--temp", "0")
    assert "goes on from what you type" in terminal.read_until("> ")
    terminal.type("The prince\n")
    wanted = subprocess.run([QUIRE, "run", "-p", "The prince", "-n", "12", "--temp", "0"], capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    said = terminal.read_until("\n> ").replace("\r", "")
    assert wanted in said, said
    assert terminal.end() == 0


def test_a_chat_takes_turns_and_forgets(quire):
    terminal = Terminal("run", "builtin", "--chat-template", TEMPLATE, "-n", "8", "--temp", "0")
    assert "/clear" in terminal.read_until("> ")
    answers = []
    for line in ("hello", "again", "/clear", "hello"):
        terminal.type(line + "\n")
        said = terminal.read_until("\n> ").replace("\r", "")
        answers.append(said.split("\n", 1)[1])
    assert answers[0] == answers[3] != answers[1]
    assert terminal.end() == 0


def test_an_interrupt_stops_the_answer_and_not_the_program(quire):
    terminal = Terminal("run", "builtin", "--ignore-eos", "--temp", "0")
    terminal.read_until("> ")
    terminal.type("The prince\n")
    terminal.read_until("prince\r\n")
    terminal.read_until(" ")  # it answers
    os.write(terminal.master, b"\x03")
    terminal.read_until("\n> ")
    terminal.type("/exit\n")
    assert terminal.process.wait(20) == 0
    os.close(terminal.master)


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
    return shown.replace(b"\r\n", b"\n"), process.wait(20)  # the terminal's own line ends


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


def test_a_chat_s_answer_is_no_command_to_the_terminal(quire, hostile_model):
    terminal = Terminal("run", hostile_model, "--chat-template", TEMPLATE, "-n", "300", "--ignore-eos", "--temp", "0.9", "--seed", "1")
    terminal.read_until("> ")
    terminal.type("hello\n")
    said = terminal.read_until("\n> ")
    assert "\\x1b" in said and "\x1b" not in said
    assert terminal.end() == 0


def test_tokens_and_errors_are_no_commands_to_the_terminal(quire, hostile_model, tmp_path):
    for arguments in (("tokenize", hostile_model, "--decode", "216,11,190,202"), ("tokenize", "builtin", "-p", HOSTILE), ("run", "-p", "x", "--temp", "\x1b[31m"),
                      ("run", str(tmp_path / "no\x1b[31mmodel"), "-p", "x")):
        shown, _ = on_terminal(*arguments)
        assert shown and controls(shown) == [], shown
