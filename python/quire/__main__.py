"""Runs the program quire: `python -m quire`."""
from ._program import main

main()
