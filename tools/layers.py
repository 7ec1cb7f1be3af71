#!/usr/bin/env python3
"""Checks every #include under src/ and lab/ against the table of rooms in ARCHITECTURE.md, the units of each room for circles of includes, and file names for uniqueness;
and that rooms whose code runs within steps call nothing that may allocate unseen. Prints what breaks a rule (file:line of an include; the units of a circle and a shortest one), and exits 1 then.

    tools/layers.py --cycles    prints the circles that ALLOWED_CYCLES still permits too
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

LIBRARIES = [
    ("jansson", r"jansson\.h"), ("pcre2", r"pcre2\.h"), ("utf8proc", r"utf8proc\.h"), ("curl", r"curl/.*"), ("openssl", r"openssl/.*"),
    ("xxhash", r"xxhash\.h"), ("hiredis", r"hiredis/.*"), ("liburing", r"liburing\.h"), ("libevent", r"event2/.*"),
    ("http-parser", r"http_parser\.h"), ("libzmq", r"zmq\.h"), ("msgpack", r"msgpack.*"), ("libyaml", r"yaml\.h"),
    ("libedit", r"(histedit|editline/readline)\.h"), ("simd", r"(immintrin|cpuid|arm_neon|simde/.*)(\.h)?"),
]

# ISO C, POSIX and Linux, and the compiler's header of the floating-point control word.
LIBC = re.compile(
    r"(assert|ctype|errno|fenv|float|inttypes|iso646|malloc|limits|locale|math|setjmp|signal|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|"
    r"stdlib|stdnoreturn|string|strings|time|wchar|dirent|dlfcn|fcntl|glob|libgen|netdb|poll|pthread|sched|semaphore|spawn|termios|unistd|"
    r"arpa/inet|netinet/(in|tcp)|sys/[a-z_]+|linux/([a-z_]+|sched/types)|xmmintrin)\.h"
)

# Rooms whose units still include each other in a circle: how many units their circles hold. A number may only fall; a room that has none leaves the table.
ALLOWED_CYCLES = {}

# Base names that src/ has more than once, and how often. A number may only fall. Rooms of one file a format may repeat names.
ALLOWED_TWINS = {}
ROOMS_OF_FORMATS = ()

# Rooms whose code runs within steps, where nothing may allocate, and what allocates in some C libraries without saying so (qsort: glibc's).
ROOMS_OF_STEPS = ("backend", "backend/cpu", "sched", "sample", "spec", "engine")
ALLOCATES = re.compile(r"\b(qsort|qsort_r)\s*\(")


def table_of_rooms():
    """{room: (what it may include besides itself, libraries besides libc)}, from the rows of ARCHITECTURE.md; lab, which looks inside every room, may include all."""
    rows = re.findall(r"^\| (src/[\w/]+|lab) \|[^|]*\|([^|]*)\|([^|]*)\|$", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    rooms = {room.removeprefix("src/"): (set(re.findall(r"[\w/.]+", includes)), set(re.findall(r"[\w-]+", libraries))) for room, includes, libraries in rows}
    rooms["lab"] = (set(rooms) | {"include"}, rooms["lab"][1])
    return rooms


ROOMS = table_of_rooms()

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    """The room of an include's spelling, which is a path below src/, or one that begins with lab/."""
    if path == "backend/backend.h":
        return "backend"
    parts = path.split("/")
    if len(parts) == 1:
        return "include" if path in ("quire.h", "quire_err.h", "quire_kv.h", "quire_explain.h", "quire_stats.h", "quire_hub.h") else None
    room = "/".join(parts[:2]) if parts[0] == "backend" and len(parts) > 2 else parts[0]
    return room if room in ROOMS else None


def fault(room, bracket, name):
    """Why `room` may not include `name`, or None."""
    rooms, libraries = ROOMS[room]
    if bracket == "<":
        if LIBC.fullmatch(name):
            return None
        for library, pattern in LIBRARIES:
            if re.fullmatch(pattern, name):
                return None if library in libraries else f"{room} may not use {library}"
        return "a header of no known library; tools/layers.py lists them"
    if name == "quire_err.h" or name in rooms:
        return None
    other = room_of(name)
    if other is None:
        return "not in a room; includes are spelt from src/ (\"room/file.h\")"
    return None if other == room or other in rooms else f"{room} may not include {other}"


def stem_of(path):
    return pathlib.PurePosixPath(path).name.split(".")[0]


def room_units(files, includes, room):
    """{file: unit} of a room: foo.h with foo.c and with every foo_*.c that has no header of its own. A header that one unit alone includes counts to it, and
    foo_bar that includes foo counts to it where only foo and other foo_* include that; every other file is a unit of its own."""
    inside = {f for f in files if room_of(f) == room}
    stems = {stem_of(f) for f in inside if f.endswith(".h")}
    unit = {}
    for f in inside:
        words = stem_of(f).split("_")
        prefixes = ["_".join(words[:n]) for n in range(len(words), 0, -1)]
        unit[f] = next((p for p in prefixes if p in stems), stem_of(f))
    moved = True
    while moved:
        moved = False
        for name in sorted(set(unit.values())):
            own = {f for f in inside if unit[f] == name}
            users = {unit.get(f, f) for f in files if f not in own and includes[f] & own}  # of another room: the file itself, which is no unit
            words = name.split("_")
            families = ["_".join(words[:n]) for n in range(len(words) - 1, 0, -1)]
            family = next((x for x in families if x in unit.values()), None)
            needs_family = any(unit.get(g) == family for f in own for g in includes[f])
            if family and needs_family and users and all(u == family or u.startswith(family + "_") for u in users):
                user = family
            elif len(users) == 1 and users <= set(unit.values()) and (name.startswith(min(users) + "_") or all(f.endswith(".h") for f in own)):
                user = users.pop()
            else:
                continue
            for f in own:
                unit[f] = user
            moved = True
    return unit


def circles(edges):
    """Tarjan's strongly connected components of more than one node, of {node: set of nodes}."""
    index, low, on, stack, found = {}, {}, set(), [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        on.add(v)
        for w in sorted(edges[v]):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            part = []
            while not part or part[-1] != v:
                part.append(stack.pop())
                on.discard(part[-1])
            if len(part) > 1:
                found.append(sorted(part))

    for v in sorted(edges):
        if v not in index:
            visit(v)
    return found


def shortest(edges, part):
    """A shortest circle inside a component, as the list of its nodes, the first one again at the end."""
    best = None
    for start in part:
        before, queue = {start: None}, [start]
        for v in queue:
            if start in edges[v]:
                path = [start]
                while v is not None:
                    path.append(v)
                    v = before[v]
                path.reverse()
                if best is None or len(path) < len(best):
                    best = path
                break
            for w in sorted(edges[v]):
                if w in part and w not in before:
                    before[w] = v
                    queue.append(w)
    return best


def cycle_faults(files, includes):
    """Prints every circle of includes between the units of a room, and counts the rooms that have more than they may."""
    faults = 0
    for room in ROOMS:
        unit = room_units(files, includes, room)
        edges = {u: set() for u in unit.values()}
        for f, u in unit.items():
            edges[u] |= {unit[g] for g in includes[f] if g in unit} - {u}
        parts = circles(edges)
        size, allowed = sum(map(len, parts)), ALLOWED_CYCLES.get(room, 0)
        if size > allowed or "--cycles" in sys.argv[1:]:
            for part in parts:
                print(f"src/{room}: {len(part)} of {len(edges)} units include each other in circles: {' '.join(part)}")
                path = shortest(edges, part)
                print(f"    the shortest: {' -> '.join(path)}")
                for a, b in zip(path, path[1:]):
                    f, g = min((f, g) for f in unit if unit[f] == a for g in includes[f] if unit.get(g) == b)
                    print(f"        {place(f)} includes {g}")
        if size > allowed:
            print(f"src/{room}: {size} units in circles, {allowed} allowed (ALLOWED_CYCLES)")
            faults += 1
        elif size < allowed:
            print(f"src/{room}: {size} units in circles; ALLOWED_CYCLES still says {allowed}")
            faults += 1
    return faults


def twin_faults(files):
    """Counts base names that occur more often in src/ than they may."""
    places = {}
    for f in files:
        if room_of(f) not in ROOMS_OF_FORMATS:
            places.setdefault(pathlib.PurePosixPath(f).name, []).append(f)
    faults = 0
    for name, where in sorted(places.items()):
        if len(where) > ALLOWED_TWINS.get(name, 1):
            print(f"{name}: {' '.join(map(place, where))}: file names are unique")
            faults += 1
    for name, n in sorted(ALLOWED_TWINS.items()):
        if len(places.get(name, [])) < n:
            print(f"{name}: {len(places.get(name, []))} in src/; ALLOWED_TWINS still says {n}")
            faults += 1
    return faults


def place(below):
    """The path in the repository of a file by its include's spelling."""
    return below if below.startswith("lab/") else f"src/{below}"


def main():
    faults = n_files = 0
    includes = {}  # of files by their includes' spelling
    for path in sorted([*ROOT.glob("src/**/*.[ch]"), *ROOT.glob("lab/**/*.[ch]")]):
        n_files += 1
        below = path.relative_to(ROOT).as_posix().removeprefix("src/")
        room = room_of(below)
        if room not in ROOMS:
            print(f"{place(below)}:1: no room is called that; ARCHITECTURE.md has the table")
            faults += 1
            continue
        includes[below] = set()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            why = found and fault(room, *found.groups())
            if not why and room in ROOMS_OF_STEPS and ALLOCATES.search(line):
                why = "it may allocate, and a step allocates nothing"
            if why:
                print(f"{place(below)}:{number}: {line.strip()}: {why}")
                faults += 1
            if found and found.group(1) == '"':
                includes[below].add(found.group(2))
    files = sorted(includes)
    n_circles, n_twins = cycle_faults(files, includes), twin_faults(files)
    print(f"layers: {n_files} files, {faults} lines that break the tables, {n_circles} rooms with other circles and {n_twins} names with other twins than allowed")
    return 1 if faults or n_circles or n_twins or not n_files else 0


if __name__ == "__main__":
    sys.exit(main())
