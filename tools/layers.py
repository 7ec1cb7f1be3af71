#!/usr/bin/env python3
"""Checks every #include under src/ and lab/ against the table of rooms in ARCHITECTURE.md, the units of each room for circles of includes and
of calls, and file names for uniqueness; and that rooms whose code runs within steps call nothing that may allocate unseen. Prints what breaks a
rule (file:line of an include; the units of a circle and a shortest one), and exits 1 then. A unit is a file: foo.c with foo.h, and the headers
foo_bar.h that have no file of their own.

    tools/layers.py --cycles    prints the circles that ALLOWED_CIRCLES still permits too
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

# Rooms whose units still form circles: how many units do, by includes and by calls. A number may only fall; a room that has none leaves the table.
ALLOWED_CIRCLES = {
    "includes": {"backend/cpu": 2, "engine": 4, "jinja": 3},
    "calls": {"engine": 7, "file": 6, "grammar": 22, "jinja": 19, "kv": 2, "model": 2, "spec": 2, "text": 2},
}

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
        return "include" if path in ("quire.h", "quire_err.h", "quire_kv.h", "quire_explain.h", "quire_stats.h", "quire_hub.h", "quire_program.h") else None
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


def units_of(files):
    """{file: unit}, a unit being a path without its ending: that of foo.c for foo.c, foo.h and each foo_bar.h without a foo_bar.c."""
    bodies = {f.removesuffix(".c") for f in files if f.endswith(".c")}
    unit = {}
    for f in files:
        own = re.sub(r"(\.inc)?\.[ch]$", "", f)
        families = [own[:m.start()] for m in re.finditer("_", own) if m.start() > own.rfind("/")]
        unit[f] = own if own in bodies else next((x for x in reversed(families) if x in bodies), own)
    return unit


COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
FUNCTION = re.compile(r"^(?!static\b|typedef\b|TEST\b)[A-Za-z_][\w \t*]*?\b(\w+)\([^;{}]*\)\s*\{", re.M)
STATIC = re.compile(r"^static\b[\w \t*]*?\b(\w+)\([^;{}]*\)\s*[{;]", re.M)


def calls_of(texts):
    """{file: files whose functions its body uses}, for .c files. A name that several files define counts for none of them."""
    plain = {f: COMMENT_OR_TEXT.sub(" ", text) for f, text in texts.items() if f.endswith(".c")}
    homes = {}
    for f, text in plain.items():
        for name in FUNCTION.findall(text):
            homes.setdefault(name, set()).add(f)
    calls = {}
    for f, text in plain.items():
        names = set(re.findall(r"\b([a-z]\w+)\(", text)) - set(STATIC.findall(text))
        calls[f] = {min(homes[n]) for n in names if len(homes.get(n, ())) == 1}
    return calls


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


def circle_faults(files, uses, what):
    """Prints every circle of includes or calls between the units of a room, and counts the rooms that have more than they may."""
    faults, unit = 0, units_of(files)
    for room in ROOMS:
        inside = [f for f in files if room_of(f) == room]
        edges = {unit[f]: set() for f in inside}
        for f in inside:
            edges[unit[f]] |= {unit[g] for g in uses.get(f, ()) if g in unit and room_of(g) == room} - {unit[f]}
        parts = circles(edges)
        size, allowed = sum(map(len, parts)), ALLOWED_CIRCLES[what].get(room, 0)
        if size > allowed or "--cycles" in sys.argv[1:]:
            for part in parts:
                print(f"{place(room)}: {len(part)} of {len(edges)} files form circles of {what}: {' '.join(map(stem_of, part))}")
                print(f"    the shortest: {' -> '.join(map(stem_of, shortest(edges, part)))}")
        if size != allowed:
            print(f"{place(room)}: {size} files in circles of {what}; ALLOWED_CIRCLES has {allowed}")
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


def stem_of(path):
    return pathlib.PurePosixPath(path).name


def place(below):
    """The path in the repository of a file by its include's spelling."""
    return below if below.split("/")[0] == "lab" else f"src/{below}"


def main():
    faults = n_files = 0
    includes, texts = {}, {}  # of files by their includes' spelling
    for path in sorted([*ROOT.glob("src/**/*.[ch]"), *ROOT.glob("lab/**/*.[ch]")]):
        n_files += 1
        below = path.relative_to(ROOT).as_posix().removeprefix("src/")
        room = room_of(below)
        if room not in ROOMS:
            print(f"{place(below)}:1: no room is called that; ARCHITECTURE.md has the table")
            faults += 1
            continue
        includes[below], texts[below] = set(), path.read_text()
        for number, line in enumerate(texts[below].splitlines(), 1):
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
    n_circles = circle_faults(files, includes, "includes") + circle_faults(files, calls_of(texts), "calls")
    n_twins = twin_faults(files)
    print(f"layers: {n_files} files, {faults} lines that break the tables, {n_circles} rooms with other circles and {n_twins} names with other twins than allowed")
    return 1 if faults or n_circles or n_twins or not n_files else 0


if __name__ == "__main__":
    sys.exit(main())
