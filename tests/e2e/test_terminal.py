"""`quire run` without a prompt on a terminal: a chat, or completions where there is no template; Ctrl-C stops an answer, Ctrl-D ends."""
import os
import pty
import select
import subprocess
import time

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

    def read_until(self, words, seconds=30):
        end, start = time.monotonic() + seconds, len(self.text)
        while words not in self.text[start:]:
            ready = select.select([self.master], [], [], max(0, end - time.monotonic()))[0]
            assert ready, f"no {words!r} in {self.text[start:]!r}"
            try:
                self.text += os.read(self.master, 4096).decode("utf-8", "replace")
            except OSError:  # the other side is closed
                break
        return self.text[start:]

    def type(self, text):
        time.sleep(0.3)  # as a person would: what comes while the line editor turns the terminal round is echoed twice or lost
        os.write(self.master, text.encode())

    def end(self):
        """Ctrl-D; the exit status."""
        self.type("\x04")
        try:
            return self.process.wait(20)
        finally:
            self.process.kill()
            os.close(self.master)


def test_a_model_without_a_template_completes_each_line(quire):
    terminal = Terminal("run", "builtin", "-n", "12", "--temp", "0")
    assert "no chat template" in terminal.read_until("> ")
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
    time.sleep(0.2)
    terminal.type("\x03")
    terminal.read_until("\n> ", 10)
    terminal.type("/exit\n")
    assert terminal.process.wait(20) == 0
    os.close(terminal.master)
