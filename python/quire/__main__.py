"""python -m quire: the program."""
from ._program import main

main()
