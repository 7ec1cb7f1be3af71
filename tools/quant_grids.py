#!/usr/bin/env python3
"""Writes the tables at the end of src/core/quant_grid.c: the grids of the IQ types, format constants, as the installed package gguf has them."""
import pathlib

from gguf import quants

HEAD = "/* Grids of the IQ types: format constants, written by tools/quant_grids.py. */"
GRIDS = [("iq2_xxs", quants.IQ2_XXS), ("iq2_xs", quants.IQ2_XS), ("iq2_s", quants.IQ2_S), ("iq3_xxs", quants.IQ3_XXS),
         ("iq3_s", quants.IQ3_S), ("iq1", quants.IQ1_S)]


def rows(kind):
    """Each row of the grid as one number: its elements' places in the map, 2 bits each, or 4 for the maps of 8."""
    kind.init_grid()
    bits = 2 if len(kind.grid_map) < 4 else 4
    place = {float(v): i for i, v in enumerate(kind.grid_map)}
    return [sum(place[float(v)] << bits * i for i, v in enumerate(row)) for row in kind.grid.reshape(kind.grid_shape)]


def main():
    path = pathlib.Path(__file__).resolve().parent.parent / "src/core/quant_grid.c"
    code, found, _ = path.read_text().partition(HEAD)
    assert found, f"{path} has no line \"{HEAD}\", after which the tables begin"
    out = [HEAD, ""]
    for name, kind in GRIDS:
        numbers = rows(kind)
        out += ["/* clang-format off */" if name == GRIDS[0][0] else "", f"const uint16_t quant_grid_{name}[{len(numbers)}] = {{"]
        out += ["    " + ", ".join(f"0x{n:04x}" for n in numbers[i:i + 12]) + "," for i in range(0, len(numbers), 12)] + ["};"]
    path.write_text(code + "\n".join(out) + "\n")


if __name__ == "__main__":
    main()
