"""The pack cache: the first start keeps a model's packed form, later ones load that, and nothing that is wrong with it is ever computed with."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

import pytest
from conftest import Server

MAKE = pathlib.Path(__file__).parents[2] / "tools/make_llama.py"
SHAPE = ["--preset", "tiny-128k", "--layers", "2", "--d-model", "256", "--heads", "4", "--kv-heads", "2", "--d-ff", "512", "--vocab", "320", "--positions", "256"]
IDS = ",".join(str(i * 7 % 320) for i in range(40))
HIT, MISS = "using its packed form", "its packed form is kept in"


def settle(*paths):
    """Waits until a change of the files would show in their times."""
    while any(time.time() - max(os.stat(p).st_ctime, os.stat(p).st_mtime) < 0.1 for p in paths):
        time.sleep(0.01)


def make(path, kind="Q4_0", *more):
    subprocess.run([sys.executable, MAKE, *SHAPE, "--type", kind, *more, "--out", path], check=True, capture_output=True)
    settle(*(path.iterdir() if path.is_dir() else [path]))
    return path


KEEP_ALL = ("--pack-cache-least-ms", "0")  # these models load faster than what is kept by default


def start(quire, model, out, *flags, **how):
    """(logits, stderr) of a start."""
    done = subprocess.run([os.path.abspath(quire), "logits", model, "--ids", IDS, "--out", out, *KEEP_ALL, *map(str, flags)], capture_output=True, text=True, **how)
    assert done.returncode == 0, done.stderr
    return out.read_bytes(), done.stderr


def entries(cache):
    return sorted(cache.glob("*.quire"))


@pytest.fixture
def model(tmp_path):
    return make(tmp_path / "m.gguf")


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.mark.parametrize("kind, compute", [("Q4_0", "auto"), ("Q4_K", "int8"), ("F16", "f32"), ("BF16", "auto")])
def test_the_second_start_computes_the_same_from_the_packed_form(quire, tmp_path, cache, kind, compute):
    model = make(tmp_path / "m.gguf", kind)
    wanted, said = start(quire, model, tmp_path / "a.npy", "--compute", compute)
    assert HIT not in said and MISS not in said and not cache.exists()  # logits keeps nothing unless it is asked to
    for n, line in enumerate([MISS, HIT, HIT]):
        got, said = start(quire, model, tmp_path / "a.npy", "--compute", compute, "--pack-cache", cache)
        assert got == wanted and line in said, (n, said)
    (entry,) = entries(cache)
    assert [cache.stat().st_mode & 0o777, entry.stat().st_mode & 0o777] == [0o700, 0o600]


def test_each_compute_mode_has_its_entry(quire, tmp_path, model, cache):
    wanted = {c: start(quire, model, tmp_path / "a.npy", "--compute", c, "--pack-cache", "none")[0] for c in ("int8", "bf16", "f32")}
    for _ in range(2):
        assert {c: start(quire, model, tmp_path / "a.npy", "--compute", c, "--pack-cache", cache)[0] for c in wanted} == wanted
    assert len(entries(cache)) == 3 and len(set(wanted.values())) == 3


def test_a_directory_is_kept_as_a_whole(quire, tmp_path, cache):
    model = make(tmp_path / "m", "BF16")
    wanted, _ = start(quire, model, tmp_path / "a.npy", "--pack-cache", cache)
    assert start(quire, model, tmp_path / "a.npy", "--pack-cache", cache)[0] == wanted
    config = model / "config.json"
    config.write_text(config.read_text().replace('"rope_theta": 500000.0', '"rope_theta": 400000.0'))
    assert "400000" in config.read_text()
    settle(config)
    changed, said = start(quire, model, tmp_path / "a.npy", "--pack-cache", cache)
    assert HIT not in said and changed != wanted


@pytest.mark.parametrize("how", ["weights", "end of weights", "directory", "header", "cut", "empty", "another model"])
def test_a_damaged_entry_is_refused_and_made_again(quire, tmp_path, model, cache, how):
    wanted, _ = start(quire, model, tmp_path / "a.npy", "--pack-cache", cache)
    (entry,) = entries(cache)
    whole = entry.read_bytes()
    directory = int.from_bytes(whole[24:32], "little")
    bad = bytearray(whole)
    if how == "another model":
        start(quire, make(tmp_path / "n.gguf", "Q4_K"), tmp_path / "b.npy", "--pack-cache", tmp_path / "other")
        bad = entries(tmp_path / "other")[0].read_bytes()[:len(whole)]
    elif how in ("cut", "empty"):
        bad = bad[:len(bad) // 2 if how == "cut" else 0]
    else:
        bad[{"weights": len(bad) // 2, "end of weights": directory - 2 * 4096 - 1, "directory": directory + 20, "header": 20}[how]] ^= 4
        if how == "end of weights":
            bad[4096 + 300000] ^= 1
    entry.write_bytes(bad)
    got, said = start(quire, model, tmp_path / "a.npy", "--pack-cache", cache)
    assert got == wanted and HIT not in said and "made again" in said
    assert entry.read_bytes() == whole
    assert HIT in start(quire, model, tmp_path / "a.npy", "--pack-cache", cache)[1]


def test_another_models_bytes_in_the_same_place_are_not_taken_for_the_old_ones(quire, tmp_path, model, cache):
    before = model.stat()
    wanted, _ = start(quire, model, tmp_path / "a.npy", "--pack-cache", cache)
    changed = bytearray(model.read_bytes())
    for at in range(len(changed) // 2, len(changed) - 1000, 18):
        changed[at] ^= 1
    with open(model, "r+b") as f:  # in place: the same inode and size
        f.write(changed)
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    settle(model)
    got, said = start(quire, model, tmp_path / "a.npy", "--pack-cache", cache)
    assert HIT not in said and got != wanted and got == start(quire, model, tmp_path / "b.npy", "--pack-cache", "none")[0]
    assert len(entries(cache)) == 2


def test_what_cannot_be_kept_is_said_and_the_model_starts(quire, tmp_path, model):
    wanted, _ = start(quire, model, tmp_path / "a.npy", "--pack-cache", "none")
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)

    def no_large_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200000, 200000))  # a full disk, as a write sees it

    for flags, reason, how in [([tmp_path / "file"], "not a directory", {}), ([tmp_path / "file/x"], "Not a directory", {}), (["/proc/x"], "/proc/x", {}),
                               ([tmp_path / "open"], "other users may write there", {}),
                               ([tmp_path / "small", "--pack-cache-bytes", "100K"], "--pack-cache-bytes", {}),
                               ([tmp_path / "full"], "could not be written: File too large", {"preexec_fn": no_large_files})]:
        got, said = start(quire, model, tmp_path / "a.npy", "--quiet", "--pack-cache", *flags, **how)
        assert got == wanted and reason in said and len(said.splitlines()) == 1, said
    assert not any((tmp_path / "small").iterdir()) and not any((tmp_path / "full").iterdir()) and not any((tmp_path / "open").iterdir())


def test_the_environment_names_the_directory(quire, tmp_path, model):
    def run(**environment):
        done = subprocess.run([os.path.abspath(quire), "logits", model, "--ids", "1", "--out", tmp_path / "a.npy", "--pack-cache", "auto", *KEEP_ALL], capture_output=True, text=True, env=environment)
        return done.stderr

    assert f"{MISS} {tmp_path}/xdg/quire " in run(HOME=str(tmp_path / "home"), XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert f"{MISS} {tmp_path}/home/.cache/quire " in run(HOME=str(tmp_path / "home"), XDG_CACHE_HOME="relative")
    assert entries(tmp_path / "xdg/quire") and entries(tmp_path / "home/.cache/quire")
    assert HIT in run(HOME=str(tmp_path / "home"))
    said = run()
    assert "neither XDG_CACHE_HOME nor HOME" in said and HIT not in said and MISS not in said


def test_what_needs_no_packing_is_not_kept(quire, tmp_path, model, cache):
    packed = tmp_path / "m.quire"
    subprocess.run([quire, "pack", model, "-o", packed], check=True, capture_output=True)
    for what in (packed, "builtin"):
        assert MISS not in start(quire, what, tmp_path / "a.npy", "--pack-cache", cache)[1]
    assert not cache.exists() or not entries(cache)


def test_processes_that_start_at_once_make_one_entry(quire, tmp_path, model, cache):
    wanted, _ = start(quire, model, tmp_path / "a.npy")
    command = [os.path.abspath(quire), "logits", model, "--ids", IDS, "--pack-cache", cache, *KEEP_ALL, "--out"]
    running = [subprocess.Popen([*command, tmp_path / f"{i}.npy"], stderr=subprocess.PIPE, text=True) for i in range(5)]
    assert [(p.communicate()[1], p.returncode)[1] for p in running] == [0] * 5
    assert {(tmp_path / f"{i}.npy").read_bytes() for i in range(5)} == {wanted}
    assert len(entries(cache)) == 1 and len(list(cache.iterdir())) == 1
    got, said = start(quire, model, tmp_path / "a.npy", "--pack-cache", cache)
    assert got == wanted and HIT in said


def test_the_least_recently_used_model_goes_first(quire, tmp_path, cache):
    models = [make(tmp_path / f"{kind}.gguf", kind) for kind in ("Q4_0", "Q4_1", "Q5_0")]
    limit = ["--pack-cache", cache, "--pack-cache-bytes", str(2 * models[2].stat().st_size + 200000)]
    for m in (models[0], models[1], models[0], models[2]):
        start(quire, m, tmp_path / "a.npy", *limit)
    assert len(entries(cache)) == 2
    assert [HIT in start(quire, m, tmp_path / "a.npy", *limit)[1] for m in (models[0], models[2], models[1])] == [True, True, False]


def test_a_server_keeps_the_packed_form_while_it_serves(quire, tmp_path, model):
    server = Server(model, "--pack-cache", str(tmp_path / "cache"), *KEEP_ALL, "--kv-pages", "64")
    try:
        deadline = time.time() + 60
        while not entries(tmp_path / "cache") and time.time() < deadline:
            assert server.ask("GET", "/health")[0] == 200
            time.sleep(0.02)
        assert entries(tmp_path / "cache")
    finally:
        assert server.stop() == 0
    again = Server(model, "--pack-cache", str(tmp_path / "cache"), *KEEP_ALL, "--kv-pages", "64")
    assert again.stop() == 0 and HIT in "".join(again.said)


def test_a_killed_writer_leaves_nothing_that_counts(quire, tmp_path, cache):
    model = make(tmp_path / "m.gguf", "Q8_0", "--d-model", "1024", "--d-ff", "4096", "--layers", "6")
    wanted, _ = start(quire, model, tmp_path / "a.npy")
    for _ in range(20):
        process = subprocess.Popen([os.path.abspath(quire), "logits", model, "--ids", IDS, "--out", tmp_path / "b.npy", "--pack-cache", cache, *KEEP_ALL], stderr=subprocess.DEVNULL)
        while process.poll() is None and not any(p.stat().st_size > 0 for p in cache.glob("*.part")):
            pass
        process.kill()
        process.wait()
        if list(cache.glob("*.part")):
            break
        for entry in entries(cache):
            entry.unlink()
    (part,) = cache.iterdir()
    assert part.name.endswith(".part") and 0 < part.stat().st_size
    got, said = start(quire, model, tmp_path / "a.npy", "--pack-cache", cache)
    assert got == wanted and HIT not in said
    (entry,) = cache.iterdir()
    assert entry.suffix == ".quire"
    got, said = start(quire, model, tmp_path / "a.npy", "--pack-cache", cache)
    assert got == wanted and HIT in said


def packed(quire, *arguments):
    return subprocess.run([os.path.abspath(quire), *map(str, arguments)], capture_output=True, text=True)


def test_a_model_that_loads_at_once_is_not_kept_and_the_log_says_so(quire, tmp_path, model, cache):
    done = packed(quire, "logits", model, "--ids", IDS, "--out", tmp_path / "a.npy", "--pack-cache", cache, "--pack-cache-least-ms", "1000000")
    assert done.returncode == 0 and "so no packed form of it is kept (--pack-cache-least-ms)" in done.stderr and not entries(cache)


def test_list_and_rm_know_packed_forms(quire, tmp_path, model, cache):
    hub = tmp_path / "hub"
    (hub / "models--org--name").mkdir(parents=True)
    shown = ["--download-dir", hub, "--pack-cache", cache]
    assert "PACKED FORM" not in packed(quire, "list", *shown).stdout and not cache.exists()
    start(quire, model, tmp_path / "a.npy", "--pack-cache", cache, "--compute", "int8")
    start(quire, model, tmp_path / "a.npy", "--pack-cache", cache, "--compute", "f32")
    rows = json.loads(packed(quire, "list", "--json", *shown).stdout)
    assert sorted((r["quantisation"], r["packed_from"], r["whole"]) for r in rows) == [("f32", str(model), True), ("int8", str(model), True)]
    table = packed(quire, "list", *shown).stdout
    assert str(model) in table and all(r["name"][:19] in table for r in rows)
    name = rows[0]["name"]
    assert packed(quire, "rm", name, *shown).returncode == 0 and len(entries(cache)) == 1
    gone = packed(quire, "rm", name, *shown)
    assert gone.returncode == 1 and "there is no such packed form" in gone.stderr
    assert packed(quire, "rm", "packed", *shown).returncode == 0 and not entries(cache)


def test_the_packed_forms_of_a_removed_model_go_with_it(quire, tmp_path, cache):
    """Of a model of the hub; others stay."""
    hub, commit = tmp_path / "hub", "0" * 40
    models = []
    for org in ("org", "other"):
        repo = hub / f"models--{org}--name"
        (repo / "snapshots" / commit).mkdir(parents=True)
        (repo / "blobs").mkdir()
        (repo / "refs").mkdir()
        (repo / "refs/main").write_text(commit)
        blob = make(tmp_path / f"{org}.gguf").rename(repo / "blobs" / ("a" * 64))
        models.append(repo / "snapshots" / commit / "name-Q4_0.gguf")
        models[-1].symlink_to(f"../../blobs/{'a' * 64}")
        settle(blob)
        start(quire, models[-1], tmp_path / "a.npy", "--pack-cache", cache)
    assert len(entries(cache)) == 2
    done = packed(quire, "rm", "org/name", "--download-dir", hub, "--pack-cache", cache)
    assert done.returncode == 0, done.stderr
    rows = json.loads(packed(quire, "list", "--json", "--download-dir", hub, "--pack-cache", cache).stdout)
    assert [r["packed_from"] for r in rows if "packed_from" in r] == [str(models[1])] and len(entries(cache)) == 1
