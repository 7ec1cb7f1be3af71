"""Environments of Python packages of other people, pinned, each below build/."""
import pathlib
import subprocess
import sys

import pytest


def python(name, *pins):
    """The interpreter of build/venv-NAME, which has these packages (and what they depend on); it is made where it is missing or has others. Skips the test where they cannot be installed."""
    home = pathlib.Path("build") / f"venv-{name}"
    program, stamp = home / "bin/python", home / "pins"
    if stamp.exists() and stamp.read_text().split() == list(pins):
        return program
    commands = [[sys.executable, "-m", "venv", "--clear", home], [program, "-m", "pip", "install", "-q", "--no-input", "--disable-pip-version-check", *pins]]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
        if done.returncode != 0:
            pytest.skip(f"{name}: {' '.join(pins)} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    stamp.write_text("\n".join(pins))
    return program
