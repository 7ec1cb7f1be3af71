#!/usr/bin/env python3
"""Types what README.md's quick start says, as it stands, and compares what comes with what it shows.

    tools/readme_check.py                 in a clone of HEAD, everything, `make test` included
    tools/readme_check.py --here          in this checkout, as it is built; files go into a directory that is removed
    tools/readme_check.py ... --skip RE   without the commands that match
    tools/readme_check.py ... --apart     in a network of its own, where no other server has the port; as root

A command begins with "$ ", and the lines below it are what it shows. There `...` stands for anything, and numbers of the machine, ids and
times may be others; the rest must be the same. A server is waited for, and ends with its block. Files that the text names
(model.gguf, in.jsonl) are made of the built-in model. What needs the network ("Serve a model") is not typed. Exit status 1 where something is
not as shown.
"""
import argparse
import ctypes
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECTIONS = ("Quick start", "Other commands", "Check the promise yourself")
SECONDS = 3600
START_SECONDS = 120


def blocks(text, sections):
    """The console blocks of the sections: of each a list of [command, what it shows]. A block without a command is what that shows which the
    text before it names: "`make run` prints:"."""
    found = []
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        if section.split("\n")[0] not in sections:
            continue
        for before, block in re.findall(r"([^\n]*)\n\n```console\n(.*?)^```", section, re.M | re.S):
            commands = []
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                lines = part.split("\n")
                n = next(i for i, line in enumerate(lines) if not line.endswith("\\")) + 1
                shown = [line for line in lines[n:] if line and not re.match(r"\s+#", line)]
                commands.append([re.sub(r"\s+# .*", "", "\n".join(lines[:n])), "\n".join(shown)])
            if not commands:
                name = re.search(r"`([^`]+)` prints:$", before)[1]
                next(entry for commands in found for entry in commands if entry[0] == name)[1] = block.strip()
            found.append(commands)
    return found


def pattern(shown):
    """A regular expression for what a command shows."""
    found = []
    for line in shown.split("\n"):
        line = re.escape(line.strip())
        line = line.replace(re.escape("..."), ".*?").replace(r"\ ", r"\s+")
        line = re.sub(r"cmpl\\-[0-9a-f]+", "cmpl-[0-9a-f]+", line)
        line = re.sub(r'"created":\d+', r'"created":\\d+', line)
        line = re.sub(r"\d+\\\.\d+(?=\\s\+[MG]B)", r"[\\d.]+", line)
        if line.startswith("quire:"):
            line = re.sub(r"(?<=\\s\+)\d+(\\\.\d+)?", r"[\\d.]+", re.sub(r"avx\d+", r"\\w+", line))
            line = re.sub(r"threads", "threads?", line)
        found.append(line)
    return re.compile(r"\s*".join(found) + r"\s*$", re.S)


def make_files(folder, repository):
    shutil.copy(repository / "models/builtin.gguf", folder / "model.gguf")
    (folder / "in.jsonl").write_text("".join(json.dumps({"prompt": prompt, "max_tokens": 8}) + "\n" for prompt in ("The prince", "And then")))


class Typist:
    """Types commands in a folder. A server among them runs on until the end of its block."""

    def __init__(self, folder, repository):
        self.folder, self.repository, self.servers, self.failures = folder, repository, [], 0

    def fail(self, command, why, said):
        self.failures += 1
        print(f"README.md: $ {command}\n  {why}; it says:\n{said[-3000:]}", file=sys.stderr)

    def start(self, command):
        log = open(self.folder / f"server-{len(self.servers)}.log", "w+")
        server = subprocess.Popen(["bash", "-c", "exec " + command.rstrip("& ")], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.servers.append(server)
        until = time.monotonic() + START_SECONDS
        while server.poll() is None and time.monotonic() < until:
            if "listening on" in pathlib.Path(log.name).read_text():
                return
            time.sleep(0.02)
        self.fail(command, "it does not listen", pathlib.Path(log.name).read_text())

    def end_servers(self):
        for server in self.servers:
            if server.poll() is None:
                server.send_signal(signal.SIGINT)
                if server.wait(START_SECONDS) != 0:
                    self.fail(" ".join(server.args), f"it ends with status {server.returncode}", "")
        self.servers = []

    def chat(self, command):
        """On a terminal: a line, and the end of input. What is shown is a conversation, so it is not compared."""
        person, terminal = os.openpty()
        chat = subprocess.Popen(["bash", "-c", command], cwd=self.folder, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        os.write(person, b"The prince\n\x04")
        said = chat.communicate(timeout=START_SECONDS)[0].decode()
        os.close(person)
        os.close(terminal)
        if chat.returncode != 0:
            self.fail(command, f"it ends with status {chat.returncode}", said)

    def type(self, command, shown):
        print(f"$ {command}", flush=True)
        if re.match(r"build/quire serve ", command):
            return self.start(command)
        if re.fullmatch(r"build/quire run \S+", command):
            return self.chat(command)
        folder = self.repository if command.startswith("make ") else self.folder
        done = subprocess.run(["bash", "-c", command], cwd=folder, input="", text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
        if done.returncode != 0:
            self.fail(command, f"it ends with status {done.returncode}", done.stdout)
        elif shown and not pattern(shown).search(done.stdout):
            self.fail(command, f"it does not show\n{shown}\n ", done.stdout)

    def run(self, text, skip):
        n = 0
        for commands in blocks(text, SECTIONS):
            for command, shown in commands:
                if not skip or not re.search(skip, command):
                    self.type(command, shown)
                    n += 1
            self.end_servers()
        return n


def own_network():
    """Moves this process into a network namespace with a loopback device; says why it cannot."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000) != 0:  # CLONE_NEWNET
        sys.exit(f"no network of its own: {os.strerror(ctypes.get_errno())}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS: IFF_UP


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--here", action="store_true")
    p.add_argument("--skip", help="a regular expression")
    p.add_argument("--apart", action="store_true")
    a = p.parse_args()
    if a.apart:
        own_network()
    with tempfile.TemporaryDirectory() as folder:
        folder, repository = pathlib.Path(folder), ROOT
        if a.here:
            (folder / "build").symlink_to(pathlib.Path(os.environ.get("QUIRE_BIN", ROOT / "build/quire")).resolve().parent)
        else:
            subprocess.run(["git", "clone", "-q", str(ROOT), str(folder / "clone")], check=True)
            folder = repository = folder / "clone"
        make_files(folder, repository)
        typist = Typist(folder, repository)
        n = typist.run((repository / "README.md").read_text(), a.skip)
    print(f"{n} commands, {typist.failures} not as README.md shows")
    sys.exit(typist.failures > 0)


if __name__ == "__main__":
    main()
