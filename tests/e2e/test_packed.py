"""Packed models: the very logits and texts of what they were packed from, whatever that was, and refusals that say what to do."""
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

import pytest
import bench_lines
from conftest import Server

MAKE = pathlib.Path(__file__).parents[2] / "tools/make_llama.py"
SHAPE = ["--preset", "tiny-128k", "--layers", "2", "--d-model", "256", "--heads", "4", "--kv-heads", "2", "--d-ff", "512", "--vocab", "320", "--positions", "256"]
IDS = ",".join(str(i * 7 % 320) for i in range(40))


def run(quire, command, *arguments):
    return subprocess.run([quire, command, *map(str, arguments)], capture_output=True, text=True)


def pack(quire, model, out, *flags):
    done = run(quire, "pack", model, "-o", out, *flags)
    assert done.returncode == 0, done.stderr
    return out


def logits(quire, model, out, *flags):
    done = run(quire, "logits", model, "--ids", IDS, "--out", out, *flags)
    assert done.returncode == 0, done.stderr
    return out.read_bytes()


@pytest.mark.parametrize("kind, compute", [("F32", "f32"), ("F32", "int8"), ("F16", "f32"), ("F16", "int8"), ("BF16", "bf16"), ("BF16", "int8"),
                                           ("Q4_0", "int8"), ("Q4_0", "bf16"), ("Q8_0", "int8"), ("Q4_K", "int8"), ("Q6_K", "int8"), ("Q4_K", "f32")])
def test_a_packed_model_computes_what_its_source_does(quire, tmp_path, kind, compute):
    subprocess.run([sys.executable, MAKE, *SHAPE, "--type", kind, "--out", tmp_path / "m.gguf"], check=True, capture_output=True)
    packed = pack(quire, tmp_path / "m.gguf", tmp_path / "m.quire", "--compute", compute)
    assert logits(quire, packed, tmp_path / "a.npy") == logits(quire, tmp_path / "m.gguf", tmp_path / "b.npy", "--compute", compute)


@pytest.mark.parametrize("tied", [[], ["--tied"]])
def test_a_packed_directory_computes_what_it_was_packed_from(quire, tmp_path, tied):
    subprocess.run([sys.executable, MAKE, *SHAPE, "--type", "BF16", *tied, "--out", tmp_path / "m"], check=True, capture_output=True)
    packed = pack(quire, tmp_path / "m", tmp_path / "m.quire", "--compute", "int8")
    assert logits(quire, packed, tmp_path / "a.npy") == logits(quire, tmp_path / "m", tmp_path / "b.npy", "--compute", "int8")


@pytest.mark.parametrize("model", ["builtin", "models/builtin-hf"])
def test_a_packed_model_writes_what_its_source_does(quire, tmp_path, model):
    packed = pack(quire, model, tmp_path / "m.quire")
    text = "Once upon a time, <s> \u00e9t\u00e9 \u65e5\u672c 12345"
    for arguments in (["tokenize", "-p", text], ["run", "-p", text, "-n", "40", "--seed", "3"], ["tokenize", "--decode", "1,2,3,600,700"]):
        was, now = (run(quire, arguments[0], m, *arguments[1:]) for m in (model, packed))
        assert was.returncode == now.returncode == 0 and was.stdout and was.stdout == now.stdout


@pytest.mark.parametrize("file", [None, "chat_template.json", "chat_template.jinja"])
def test_a_packed_directory_carries_its_chat_template(quire, tmp_path, file):
    source = pathlib.Path(shutil.copytree("tests/golden/models/llama", tmp_path / "source"))
    if file is not None:
        (source / file).write_text(json.dumps({"chat_template": "{{ messages[0].content }}"}) if file.endswith("json") else "{{ messages[0].content }}")
    for model in source, pack(quire, source, tmp_path / "m.quire"):
        told = run(quire, "inspect", model).stdout
        assert re.search(rf"^chat template +{'none' if file is None else 'yes'}$", told, re.M), told


def test_a_packed_model_has_one_compute_mode(quire, tmp_path):
    packed = pack(quire, "builtin", tmp_path / "m.quire", "--compute", "int8")
    done = run(quire, "run", packed, "-p", "a", "-n", "1", "--compute", "bf16")
    assert done.returncode == 2 and "packed for int8" in done.stderr
    assert run(quire, "run", packed, "-p", "a", "-n", "1", "--compute", "int8").returncode == 0


def test_refusals_leave_what_was_there(quire, tmp_path):
    packed = pack(quire, "builtin", tmp_path / "m.quire")
    whole = packed.read_bytes()
    assert "packed already" in run(quire, "pack", packed, "-o", packed).stderr
    assert "needs -o" in run(quire, "pack", "builtin").stderr
    assert run(quire, "pack", tmp_path / "none.gguf", "-o", packed).returncode == 1
    assert packed.read_bytes() == whole and list(tmp_path.iterdir()) == [packed]
    packed.write_bytes(whole[:-100])
    assert "cut short" in run(quire, "inspect", packed).stderr


def test_processes_map_a_packed_model_and_copy_nothing(quire, tmp_path):
    server = Server(pack(quire, "builtin", tmp_path / "m.quire"), "--kv-pages", "64")
    try:
        maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
        assert re.search(r"r--s \S+ \S+ \S+ +" + re.escape(str(tmp_path / "m.quire")), maps)
    finally:
        assert server.stop() == 0


def test_mlock_keeps_everything_in_memory(quire, tmp_path):
    server = Server(pack(quire, "builtin", tmp_path / "m.quire"), "--kv-pages", "64", "--mlock")
    try:
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        assert int(re.search(r"VmLck:\s+(\d+) kB", status)[1]) * 1024 > (tmp_path / "m.quire").stat().st_size
    finally:
        assert server.stop() == 0


def test_mlock_leaves_models_the_memory_that_they_share(quire):
    """The pools have addresses for all of it, and lock what they use."""
    server = Server("models/builtin-small.gguf", "models/builtin.gguf", "--mlock", "--operator-key", "boss")
    try:
        first = json.loads(server.ask("GET", "/debug/pool/state", key="boss")[2])["memory"]
        for model in ("builtin.gguf", "builtin-small.gguf"):
            body = {"model": model, "prompt": "a", "max_tokens": 4, "temperature": 0}
            assert server.ask("POST", "/v1/completions", body)[0] == 200
        memory = json.loads(server.ask("GET", "/debug/pool/state", key="boss")[2])["memory"]
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        locked, resident = (int(re.search(name + r":\s+(\d+) kB", status)[1]) * 1024 for name in ("VmLck", "VmRSS"))
        assert locked > first["max_bytes"] > resident
        for m in memory["models"]:
            assert m["free"] + m["held"] + m["cached"] + m["absent"] > 1.5 * m["sure"] > 0
        assert server.ask("POST", "/reset_prefix_cache", key="boss")[0] == 200
        end = time.time() + 60
        while json.loads(server.ask("GET", "/debug/pool/state", key="boss")[2])["memory"]["bytes"] > 0:
            assert time.time() < end
    finally:
        assert server.stop() == 0


def test_mlock_says_what_to_do_when_it_may_not(quire):
    if os.getuid() != 0:
        pytest.skip("needs to give up root to be refused")

    def give_up():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
        os.setuid(65534)

    done = subprocess.run([os.path.abspath(quire), "run", "builtin", "-p", "a", "-n", "1", "--kv-pages", "64", "--mlock"], capture_output=True, text=True, preexec_fn=give_up, cwd="/")
    assert done.returncode == 1 and "--mlock: " in done.stderr and "ulimit -l: 64 KiB" in done.stderr


def bench_start(quire, model, *flags):
    done = subprocess.run([quire, "bench", "start", model, "--runs", "3", "--threads", "2", *flags], check=True, capture_output=True, text=True)
    return done.stdout


def test_bench_start_times_the_program_from_its_start(quire, tmp_path):
    packed, model = pack(quire, "builtin", tmp_path / "m.quire"), tmp_path / "m.gguf"
    subprocess.run([sys.executable, MAKE, *SHAPE, "--type", "Q4_0", "--out", model], check=True, capture_output=True)
    (row,) = bench_lines.rows(bench_start(quire, packed, "--json"))
    assert (row["bench"], row["model"], row["runs"]) == ("start", str(packed), 3)
    assert row["token"] > 0 and 0 < row["first_token"] <= row["first_token_median"]
    assert row["start"] == pytest.approx(row["first_token"] - row["token"]) and 0 < row["beside"] <= row["beside_median"]
    (row,) = bench_lines.rows(bench_start(quire, model, "--json"))
    assert (row["bench"], row["model"], row["runs"]) == ("start", str(model), 3)
    assert row["token"] > 0 and 0 < row["first"] <= row["first_median"] and 0 < row["second"] <= row["second_median"] and row["beside"] > 0
    assert "first token ms" in bench_start(quire, packed) and "second" in bench_start(quire, model)
    broken = subprocess.run([quire, "bench", "start", tmp_path / "none"], capture_output=True, text=True)
    assert broken.returncode == 1 and "none" in broken.stderr
