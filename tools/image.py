#!/usr/bin/env python3
"""Runs a Dockerfile's steps in bare Debian roots, and then its server as a container would: as its user, the root read-only but for its volumes.
   image.py DOCKERFILE DEBIAN CONTEXT ROOT...     ROOT: a fresh root of debian:DEBIAN-slim for each stage; CONTEXT: the directory of the build
To be called by `tools/bare.sh 13 --image`, as root in a mount namespace of its own. Knows the instructions below; any other one is an error. The
server gets no network but a loopback of its own, so that it can have the port that the Dockerfile names."""
import ctypes
import fcntl
import glob
import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8914, 1
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSED_ON = re.compile(r"(https?|ftp|all|no)_proxy", re.I)  # as docker does for RUN


def die(text):
    sys.exit(f"image: {text}")


def instructions(text):
    """(NAME, the rest) of each, continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


class Stage:
    def __init__(self, root, name):
        self.root, self.name, self.workdir, self.user = pathlib.Path(root), name, "/", "0:0"
        self.env, self.volumes, self.ports, self.entrypoint, self.command, self.health = {"PATH": PATH}, [], [], [], [], None

    def inside(self, path):
        """The path on this machine of one of the stage's, which may be relative to WORKDIR."""
        return self.root / os.path.join(self.workdir, path).lstrip("/")

    def argv(self, command, extra=None):
        """The command line that runs a command inside, as the stage's user, in its WORKDIR, with its ENV alone."""
        env = {**(extra or {}), **self.env}
        return ["chroot", f"--userspec={self.user}", "--groups=", str(self.root), "/usr/bin/env", "-i", f"--chdir={self.workdir}",
                *(f"{k}={v}" for k, v in env.items()), *command]


def copy(stage, rest, stages, context):
    *sources, to = [word for word in rest.split() if not word.startswith("--")]
    source = re.search(r"--from=(\S+)", rest)
    base = next(s.root for s in stages if s.name == source[1]) if source else pathlib.Path(context)
    target = stage.inside(to)
    if to.endswith("/") or len(sources) > 1:
        target.mkdir(parents=True, exist_ok=True)
    for pattern in sources:
        found = glob.glob(str(base / pattern.lstrip("/")))
        if not found:
            die(f"COPY {rest}: nothing is at {pattern}")
        for at in found:
            if os.path.isdir(at):
                shutil.copytree(at, target, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(at, target)


def step(stage, name, rest, stages, context):
    if name == "RUN":
        extra = {"HOME": "/root", **{k: v for k, v in os.environ.items() if PASSED_ON.fullmatch(k)}}
        if subprocess.run(stage.argv(["/bin/sh", "-c", rest], extra), stdin=subprocess.DEVNULL).returncode:
            die(f"RUN {rest}: failed")
    elif name == "COPY":
        copy(stage, rest, stages, context)
    elif name == "ENV":
        stage.env.update(pair.split("=", 1) for pair in shlex.split(rest))
    elif name == "WORKDIR":
        stage.workdir = os.path.join(stage.workdir, rest)
        stage.inside(".").mkdir(parents=True, exist_ok=True)
    elif name == "USER":
        stage.user = rest
    elif name == "VOLUME":
        stage.volumes += rest.split()
    elif name == "EXPOSE":
        stage.ports += map(int, rest.split())
    elif name == "ENTRYPOINT":
        stage.entrypoint = json.loads(rest)
    elif name == "CMD":
        stage.command = json.loads(rest)
    elif name == "HEALTHCHECK":
        stage.health = json.loads(rest.partition("CMD ")[2])
    else:
        die(f"{name}: this instruction is not known here")


def build(dockerfile, debian, context, roots):
    stages = []
    for name, rest in instructions(pathlib.Path(dockerfile).read_text()):
        print(f"== {name} {rest}", flush=True)
        if name == "FROM":
            image, *label = rest.split()
            if image != f"debian:{debian}-slim":
                die(f"FROM {rest}: not debian:{debian}-slim")
            stages.append(Stage(roots[len(stages)], label[-1] if label else ""))
        else:
            step(stages[-1], name, rest, stages, context)
    return stages[-1]


# ---- the container ----


def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)


def seal(stage):
    """Makes the root read-only, with each volume a writable copy of what the image has there, as docker makes it."""
    mount("--rbind", stage.root, stage.root)
    for volume in stage.volumes:
        own = stage.root.parent / ("volume" + volume.replace("/", "-"))
        shutil.rmtree(own, ignore_errors=True)
        subprocess.run(["cp", "-a", stage.inside(volume), own], check=True)
        mount("--bind", own, stage.inside(volume))
    mount("-o", "remount,bind,ro", stage.root)


def own_network():
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        die("no network namespace is allowed here")
    with socket.socket() as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def check(holds, what):
    print(f"== {'ok' if holds else 'FAILED'}: {what}", flush=True)
    if not holds:
        die(what)


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def serve(stage):
    def run(*command):
        return subprocess.run(stage.argv(command), stdin=subprocess.DEVNULL, capture_output=True, text=True)

    check(re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", stage.user), "the user is a number, and not root's")
    check(all(run("sh", "-c", f"command -v {p}").returncode for p in ("gcc", "make", "git", "cmake")), "no tool of the build is in the image")
    check("libcurl.so.4" in run("/sbin/ldconfig", "-p").stdout, "libcurl, which is opened at run time, is there")
    places = [stage.env[name] for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "HF_HOME")]
    check(all(any(f"{place}/".startswith(f"{v}/") for v in stage.volumes) for place in places), "what is kept lies in a volume")
    seal(stage)
    check(run("sh", "-c", "echo x >/tmp/x || echo x >/x || echo x >/usr/local/bin/quire").returncode != 0, "the root is read-only")
    check(all(run("sh", "-c", f"echo x >{v}/x && rm {v}/x").returncode == 0 for v in stage.volumes), "the volumes are writable")
    own_network()
    check(run(*stage.health).returncode != 0, "unhealthy before it serves")
    server = subprocess.Popen(stage.argv(stage.entrypoint + stage.command), stdin=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            if server.poll() is not None or run(*stage.health).returncode == 0:
                break
            time.sleep(.05)
        check(run(*stage.health).returncode == 0, "healthy once it serves")
        body = {"prompt": "The prince looked", "max_tokens": 16, "temperature": 0, "ignore_eos": True}
        status, text = ask(stage.ports[0], "POST", "/v1/completions", body)
        check(status == 200 and json.loads(text)["choices"][0]["text"], f"a completion at port {stage.ports[0]}: {text}")
        user = re.search(r"Uid:\t(\d+)\t(\d+)\t", stage.inside(f"/proc/{server.pid}/status").read_text())
        check(user[1] == user[2] == stage.user.split(":")[0], f"it runs as {stage.user}")
    finally:
        server.send_signal(signal.SIGTERM)
        status = server.wait(60)
    check(status == 0, "it ends by SIGTERM with status 0")


if __name__ == "__main__":
    serve(build(*sys.argv[1:4], sys.argv[4:]))
