#!/usr/bin/env python3
"""Checks every #include under src/ against the table of rooms. Prints file:line of each that breaks it; exits 1 then."""
import pathlib
import re
import sys

ALL = "base core json file text grammar kv backend backend/cpu backend/cuda model sched sample spec engine api server cli lab public"

# room: (what it may include besides itself, libraries besides libc). "backend" is backend/backend.h, "public" the headers of include/.
ROOMS = {
    "base": ("", ""),
    "core": ("base", ""),
    "json": ("base", "jansson"),
    "text": ("json core base", "pcre2 utf8proc"),
    "file": ("json core base", "curl openssl"),
    "grammar": ("json core base", ""),
    "kv": ("core base quire_kv.h", "xxhash hiredis liburing"),
    "backend": ("core base", ""),
    "backend/cpu": ("backend core base", "simd"),
    "backend/cuda": ("backend core base", "cuda"),
    "model": ("backend file core base", ""),
    "sched": ("kv core base", ""),
    "sample": ("grammar core base", "simd"),
    "spec": ("sample kv model backend core base", ""),
    "engine": ("sched sample spec kv model grammar backend core base quire_explain.h", ""),
    "api": ("engine sched sample spec text model kv file grammar backend backend/cpu backend/cuda json core base public", ""),
    "server": ("public json base", "libevent http-parser openssl libzmq msgpack libyaml"),
    "cli": ("public json base server/server.h", "libedit"),
    "lab": (ALL, "simd"),
}

LIBRARIES = [
    ("jansson", r"jansson\.h"), ("pcre2", r"pcre2\.h"), ("utf8proc", r"utf8proc\.h"), ("curl", r"curl/.*"), ("openssl", r"openssl/.*"),
    ("xxhash", r"xxhash\.h"), ("hiredis", r"hiredis/.*"), ("liburing", r"liburing\.h"), ("libevent", r"event2/.*"),
    ("http-parser", r"http_parser\.h"), ("libzmq", r"zmq\.h"), ("msgpack", r"msgpack.*"), ("libyaml", r"yaml\.h"),
    ("libedit", r"(histedit|editline/readline)\.h"), ("simd", r"(immintrin|cpuid|arm_neon|simde/.*)(\.h)?"), ("cuda", r"(cuda|cublas|nvrtc).*"),
]

# ISO C, POSIX and Linux, and the compiler's header of the floating-point control word.
LIBC = re.compile(
    r"(assert|ctype|errno|fenv|float|inttypes|iso646|malloc|limits|locale|math|setjmp|signal|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|"
    r"stdlib|stdnoreturn|string|strings|time|wchar|dirent|dlfcn|fcntl|glob|libgen|netdb|poll|pthread|sched|semaphore|spawn|termios|unistd|"
    r"arpa/inet|netinet/(in|tcp)|sys/[a-z_]+|linux/[a-z_]+|xmmintrin)\.h"
)

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    """The room of a path below src/, or of an include's spelling."""
    if path == "backend/backend.h":
        return "backend"
    parts = path.split("/")
    if len(parts) == 1:
        return "public" if path in ("quire.h", "quire_err.h", "quire_kv.h", "quire_explain.h") else None
    room = "/".join(parts[:2]) if parts[0] == "backend" and len(parts) > 2 else parts[0]
    return room if room in ROOMS else None


def fault(room, bracket, name):
    """Why `room` may not include `name`, or None."""
    rooms, libraries = (words.split() for words in ROOMS[room])
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


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    faults = n_files = 0
    for path in sorted(root.glob("src/**/*.[ch]")):
        n_files += 1
        below = path.relative_to(root / "src").as_posix()
        room = room_of(below)
        if room not in ROOMS:
            print(f"src/{below}:1: no room is called that; tools/layers.py has the table")
            faults += 1
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            why = found and fault(room, *found.groups())
            if why:
                print(f"src/{below}:{number}: {line.strip()}: {why}")
                faults += 1
    print(f"layers: {n_files} files, {faults} includes that break the table")
    return 1 if faults or not n_files else 0


if __name__ == "__main__":
    sys.exit(main())
