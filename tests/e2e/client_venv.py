"""Environments of Python packages of other people, pinned, each below build/."""
import pathlib
import subprocess
import sys

import pytest


def python(name, *pins, alone=()):
    """The interpreter of build/venv-NAME, which has these packages and what they depend on, and `alone` without that; it is made where it is missing or
    has others. Skips the test where they cannot be installed."""
    home = pathlib.Path("build") / f"venv-{name}"
    program, stamp = home / "bin/python", home / "pins"
    if stamp.exists() and stamp.read_text().split() == [*pins, *alone]:
        return program
    install = [program, "-m", "pip", "install", "-q", "--no-input", "--disable-pip-version-check"]
    commands = [[sys.executable, "-m", "venv", "--clear", home], [*install, *pins]] + [[*install, "--no-deps", *alone]] * bool(alone)
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
        if done.returncode != 0:
            pytest.skip(f"{name}: {' '.join([*pins, *alone])} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    stamp.write_text("\n".join([*pins, *alone]))
    return program
