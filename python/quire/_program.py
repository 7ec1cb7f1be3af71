"""Runs the program quire, which is installed with this package."""
from __future__ import annotations

import os
import sys


def main() -> None:
    """Replaces this process by the program, with the same arguments."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "quire")
    try:
        os.execv(path, ["quire", *sys.argv[1:]])
    except OSError as e:
        sys.exit(f"{path}: {e.strerror}; install the wheel that `make wheel` builds")
