"""`quire run --prompts IN --out OUT` loses nothing: answers are kept as they come, however the process ends, and another run goes on with them."""
import array
import fcntl
import json
import os
import pty
import re
import resource
import select
import shlex
import signal
import stat
import subprocess
import termios
import time

import pytest

from conftest import QUIRE

BINARY = os.path.abspath(QUIRE)
N = 1500
SECONDS = 120  # for what takes a few


def prompts_of(n, tokens=24):
    return "".join(json.dumps({"prompt": f"Chapter {i}: the", "max_tokens": 4 + i % tokens, "id": i}) + "\n" for i in range(n))


def command(*more, prompts="in.jsonl", out="out.jsonl"):
    return [BINARY, "run", "builtin-small", "--prompts", prompts, "--out", out, "--temp", "0", "--kv-pages", "4096", *more]


def run(folder, *more, **names):
    return subprocess.run(command(*more, **names), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)


def test_a_byte_order_mark_is_skipped_and_lines_count_as_an_editor_shows_them(tmp_path):
    lines = ['{"prompt": "one", "max_tokens": 2, "id": 1}', "", "   ", "{broken"]
    (tmp_path / "in.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    done = run(tmp_path)
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert "text" in answers[0] and answers[0]["id"] == 1 and "line 4 " in answers[1]["error"]["message"], done.stderr
    (tmp_path / "in.jsonl").write_bytes(b"\xef\xbb\xbf\n" + lines[0].encode())
    (tmp_path / "out.jsonl").unlink()
    assert run(tmp_path).returncode == 0 and json.loads((tmp_path / "out.jsonl").read_text())["id"] == 1


def test_a_custom_id_that_occurs_twice_is_refused_with_both_lines(tmp_path):
    body = {"url": "/v1/completions", "body": {"prompt": "x", "max_tokens": 1}}
    lines = [json.dumps({"custom_id": f"c{i}", **body}) for i in range(200)]
    lines[3], lines[150] = "", '{"body": {"prompt": "x", "max_tokens": 1}, "url": "/v1/completions", "custom_id": "\\u006375"}'
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    done = run(tmp_path)
    assert done.returncode != 0 and "line 151" in done.stderr and "line 76" in done.stderr and "c75" in done.stderr, done.stderr
    assert not list(tmp_path.glob("out*"))
    lines = [json.dumps({"custom_id": i, **body}) for i in (5, "5", None, None, [5])]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    done = run(tmp_path)
    assert done.returncode != 0 and "line 2 " in done.stderr, done.stderr
    (tmp_path / "in.jsonl").write_text("\n".join(lines[1:]))
    assert run(tmp_path).returncode == 0


def start(folder, *more, **names):
    return subprocess.Popen(command(*more, **names), cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def lines_of(path):
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []


def interrupted(folder, *more, by=signal.SIGINT, after=50):
    """A run that gets a signal once so many answers are kept: (process, what it said). On a busy machine the signal may come when all is done: then once more."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for _ in range(20):
        process = start(folder, "--max-num-seqs", "4", *more)
        while process.poll() is None and len(lines_of(folder / "out.jsonl.part")) < after:
            time.sleep(0.002)
        process.send_signal(by)
        if by == signal.SIGSTOP and (folder / "out.jsonl.part").exists():
            return process, ""
        process.send_signal(signal.SIGCONT)
        said = process.communicate(timeout=SECONDS)[1]
        if process.returncode != 0:
            return process, said
        for path in folder.iterdir():
            path.unlink()
        for path, content in before.items():
            path.write_bytes(content)
    raise AssertionError("it always ended first")


@pytest.fixture(scope="module")
def whole(quire, tmp_path_factory):
    """What a run that nobody stops answers."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "in.jsonl").write_text(prompts_of(N))
    done = run(folder)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(folder)) == ["in.jsonl", "out.jsonl"]
    return (folder / "out.jsonl").read_bytes()


@pytest.fixture
def folder(quire, tmp_path):
    (tmp_path / "in.jsonl").write_text(prompts_of(N))
    return tmp_path


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_what_runs_and_the_printed_command_goes_on(whole, folder, by):
    (folder / "out.jsonl").write_text("of another day\n")
    process, said = interrupted(folder, by=by)
    assert process.returncode == 1
    assert (folder / "out.jsonl").read_text() == "of another day\n"
    kept = lines_of(folder / "out.jsonl.part")
    assert (folder / "out.jsonl.part").read_bytes().endswith(b"\n") and f"{len(kept)} of {N} answers are in out.jsonl.part" in said
    assert set(kept) < set(whole.split(b"\n")) and len(set(kept)) == len(kept)
    assert "cancelled" not in (folder / "out.jsonl.part").read_text()
    printed = shlex.split(said.strip().split("continue with: ")[1])
    assert printed[:2] == ["quire", "run"] and printed[-1] == "--resume"
    done = subprocess.run([BINARY, *printed[1:]], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert f"{len(kept)} of {N} are answered" in done.stderr
    assert (folder / "out.jsonl").read_bytes() == whole
    assert sorted(os.listdir(folder)) == ["in.jsonl", "out.jsonl"]


def test_answers_that_have_begun_are_finished_and_others_are_not_begun(folder):
    (folder / "in.jsonl").write_text("".join(json.dumps({"prompt": f"{i} the", "max_tokens": 300 + 7 * i % 100, "ignore_eos": True}) + "\n" for i in range(N)))
    begun = 0
    for _ in range(20):  # a signal may come when all that had begun have just ended
        for path in folder.glob("out.*"):
            path.unlink()
        _, said = interrupted(folder, after=5)
        answered, begun = map(int, re.search(rf"(\d+) of {N} are answered; (\d+) more have begun", said).groups())
        if begun > 0:
            break
    assert 1 <= begun <= 4 and len(lines_of(folder / "out.jsonl.part")) == answered + begun
    assert all(json.loads(line)["finish_reason"] == "length" for line in lines_of(folder / "out.jsonl.part"))


def test_signals_and_kills_in_a_row_lose_nothing(whole, folder):
    n_kept, more = 0, []
    for by in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        interrupted(folder, *more, by=by, after=n_kept + 50)
        now = len(lines_of(folder / "out.jsonl.part"))
        assert now >= n_kept + 50
        n_kept, more = now, ["--resume"]
    assert run(folder, "--resume").returncode == 0
    assert (folder / "out.jsonl").read_bytes() == whole


def test_another_signal_stops_at_once(folder):
    (folder / "in.jsonl").write_text(prompts_of(60, tokens=1) + '{"prompt": "The", "max_tokens": 1900, "ignore_eos": true}\n' * 256)
    process = start(folder, "-t", "1")
    while process.poll() is None and len(lines_of(folder / "out.jsonl.part")) < 60:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    assert any("another Ctrl-C stops at once" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) == -signal.SIGINT
    assert len(lines_of(folder / "out.jsonl.part")) >= 60


def test_a_long_answer_at_the_front_holds_back_no_other(folder):
    """Only what is in the file survives a kill."""
    (folder / "in.jsonl").write_text('{"prompt": "The", "n": 16, "max_tokens": 1900, "ignore_eos": true}\n' + prompts_of(100, tokens=1))
    interrupted(folder, "--max-num-seqs", "32", by=signal.SIGKILL, after=100)
    kept = [json.loads(line)["index"] for line in lines_of(folder / "out.jsonl.part")]
    assert 0 not in kept
    assert run(folder, "--resume").returncode == 0
    assert [json.loads(line)["index"] for line in lines_of(folder / "out.jsonl")] == list(range(101))


@pytest.mark.parametrize("cut", ["a part of a line", "a newline"])
def test_a_cut_last_line_does_not_count(whole, folder, cut):
    lines = whole.split(b"\n")[:-1]
    interrupted(folder)
    kept = lines_of(folder / "out.jsonl.part")
    rest = next(line for line in lines if line not in kept)
    (folder / "out.jsonl.part").write_bytes(b"\n".join(kept) + b"\n" + (rest if cut == "a newline" else rest[:-20]))
    done = run(folder, "--resume")
    assert done.returncode == 0, done.stderr
    assert f"{len(kept)} of {N} are answered" in done.stderr
    assert (folder / "out.jsonl").read_bytes() == whole


def test_openais_lines_go_on_too(folder):
    body = {"prompt": "The prince", "max_tokens": 3, "temperature": 0}
    lines = [{"custom_id": f"c{i}", "method": "POST", "url": "/v1/completions", "body": {**body, "top_p": 7 if i % 9 == 0 else 1}} for i in range(N)]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    interrupted(folder)
    done = run(folder, "--resume")
    assert done.returncode == 0 and f"{N} requests, {(N + 8) // 9} failed" in done.stderr, done.stderr
    answers = [json.loads(line) for line in lines_of(folder / "out.jsonl")]
    assert [a["custom_id"] for a in answers] == [line["custom_id"] for line in lines]
    assert [a["response"]["status_code"] for a in answers] == [400 if i % 9 == 0 else 200 for i in range(N)]


def test_a_part_is_gone_on_with_only_for_the_same_prompts_and_flags(whole, folder):
    interrupted(folder)
    part = (folder / "out.jsonl.part").read_bytes()

    def refused(words, *more, status=2, **names):
        done = run(folder, *more, **names)
        assert done.returncode == status and all(word in done.stderr for word in words), done.stderr
        assert (folder / "out.jsonl.part").read_bytes() == part

    refused(["out.jsonl.part", "--resume"])
    refused(["a different request", "out.jsonl.part.info"], "--resume", "-n", "7")
    refused(["a different compute"], "--resume", "--compute", "f32")
    refused(["--resume", "/dev/null"], "--resume", out="/dev/null")
    (folder / "other.jsonl").write_text(prompts_of(N).replace("Chapter 1499", "Chapter 1500"))
    refused(["other prompts", "in.jsonl"], "--resume", prompts="other.jsonl")
    about = (folder / "out.jsonl.part.info").read_text()
    (folder / "out.jsonl.part.info").unlink()
    refused(["out.jsonl.part.info"], "--resume", status=1)
    (folder / "out.jsonl.part.info").write_text(about)
    (folder / "moved.jsonl").write_bytes((folder / "in.jsonl").read_bytes())
    assert run(folder, "--resume", prompts="moved.jsonl").returncode == 0
    assert (folder / "out.jsonl").read_bytes() == whole


@pytest.mark.parametrize("damage", ["no JSON", "no answer", "twice", "far ahead"])
def test_a_damaged_part_is_refused_with_the_line(folder, damage):
    (folder / "in.jsonl").write_text(prompts_of(6000, tokens=1))
    interrupted(folder, after=3)
    part = lines_of(folder / "out.jsonl.part")
    part[1] = {"no JSON": b"\0\0\0", "no answer": b"[1]", "twice": part[0], "far ahead": b'{"index":5999,"text":""}'}[damage]
    (folder / "out.jsonl.part").write_bytes(b"\n".join(part) + b"\n")
    done = run(folder, "--resume")
    assert done.returncode == 1 and "line 2" in done.stderr and "damaged" in done.stderr, done.stderr
    assert lines_of(folder / "out.jsonl.part") == part


def test_resume_begins_where_there_is_nothing_and_refuses_where_all_is_done(whole, folder):
    assert run(folder, "--resume").returncode == 0
    assert (folder / "out.jsonl").read_bytes() == whole
    done = run(folder, "--resume")
    assert done.returncode == 2 and "no out.jsonl.part" in done.stderr
    alone = subprocess.run([BINARY, "run", "builtin-small", "-p", "x", "--resume"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert alone.returncode == 2 and "--resume" in alone.stderr and "--prompts" in alone.stderr


def test_a_disk_that_becomes_full_keeps_what_is_written(whole, folder):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    done = subprocess.run(command(), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=limit, timeout=SECONDS)
    kept = lines_of(folder / "out.jsonl.part")
    assert done.returncode == 1 and "out.jsonl.part: could not be written" in done.stderr and f"keeps {len(kept)} answers" in done.stderr, done.stderr
    assert "--resume" in done.stderr and len(kept) > 20 and not (folder / "out.jsonl").exists()
    assert run(folder, "--resume").returncode == 0
    assert (folder / "out.jsonl").read_bytes() == whole


def test_two_processes_do_not_write_one_part(folder):
    first, _ = interrupted(folder, by=signal.SIGSTOP, after=1)
    done = run(folder, "--resume")
    assert done.returncode == 1 and "another process" in done.stderr, done.stderr
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=SECONDS)
    assert first.returncode == 0 and len(lines_of(folder / "out.jsonl")) == N


def test_an_out_that_is_a_link_stays_one_and_keeps_its_mode(whole, folder):
    (folder / "real").mkdir()
    target = folder / "real" / "answers"
    target.write_text("old")
    target.chmod(0o640)
    (folder / "out.jsonl").symlink_to(target)
    assert run(folder).returncode == 0
    assert (folder / "out.jsonl").is_symlink() and target.read_bytes() == whole
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert os.listdir(folder / "real") == ["answers"]


def test_pipes_in_and_out_get_all_in_order(whole, folder):
    for arguments in (["--out", "-"], ["--out", "/dev/stdout"]):
        done = subprocess.run(command(prompts="-")[:5] + [*arguments, *command()[7:], "-q"], cwd=folder, input=prompts_of(N).encode(), capture_output=True, timeout=SECONDS)
        assert done.returncode == 0 and done.stdout == whole, done.stderr
    assert os.listdir(folder) == ["in.jsonl"]
    done = subprocess.run(command(prompts="-"), cwd=folder, input=prompts_of(N).encode(), capture_output=True, timeout=SECONDS)
    assert done.returncode == 0 and (folder / "out.jsonl").read_bytes() == whole
    assert sorted(os.listdir(folder)) == ["in.jsonl", "out.jsonl"]


def test_a_stopped_run_into_a_full_pipe_gives_what_it_has(folder):
    (folder / "in.jsonl").write_text(prompts_of(4 * N))
    process = subprocess.Popen(command(out="-"), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    waiting = array.array("i", [0])
    while waiting[0] < 60000:
        assert process.poll() is None
        fcntl.ioctl(process.stdout, termios.FIONREAD, waiting)
        time.sleep(0.01)
    time.sleep(0.2)  # most likely it waits in write() then, where the signal must do no harm
    process.send_signal(signal.SIGINT)
    text, said = process.communicate(timeout=SECONDS)
    answers = [json.loads(line)["index"] for line in text.splitlines()]
    assert process.returncode == 1 and f"stopped: {len(answers)} of {4 * N}".encode() in said, said
    assert answers == sorted(set(answers)) and len(answers) > 100


def test_a_line_whose_deadline_cannot_be_kept_alone_has_its_error(folder):
    """Nothing else ends that it could wait for. What a step costs is known by then: the lines before it are many, in whatever order they are read."""
    lines = [{"prompt": "The", "max_tokens": 40, "ignore_eos": True}] * 12 + [{"prompt": "The prince " * 500, "max_tokens": 1, "ttft_deadline_ms": 1, "id": "late"}]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(folder, "--max-num-seqs", "1").returncode == 0
    *slow, late = (json.loads(line) for line in lines_of(folder / "out.jsonl"))
    assert [len(line["token_ids"]) for line in slow] == [40] * 12
    assert late["error"]["code"] == 429 and "ttft_deadline_ms" in late["error"]["message"]


def test_a_line_with_a_schema_that_is_too_large_has_its_error(folder):
    schema = {"enum": [f"word {i}" for i in range(900_000)]}
    lines = [{"prompt": "x", "max_tokens": 2, "id": {"a": [1]}}, {"prompt": "x", "json_schema": schema, "id": "b"},
             {"custom_id": "c", "url": "/v1/completions", "body": {"prompt": "x", "guided_json": schema}}, {"prompt": "x", "max_tokens": 2, "custom_id": None, "body": None}]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run(folder)
    plain, large, openai, last = map(json.loads, lines_of(folder / "out.jsonl"))
    assert "2 failed" in done.stderr and plain["id"] == {"a": [1]} and large["id"] == "b" and openai["custom_id"] == "c"
    assert plain["finish_reason"] == last["finish_reason"] == "length" and "id" not in last
    for field, error in [("json_schema", large["error"]), ("guided_json", openai["response"]["body"]["error"])]:
        assert error["param"] == field and error["message"].startswith(f"{field} has more than the allowed 1048576 bytes"), error


def test_an_empty_file_of_prompts_has_an_empty_file_of_answers(folder):
    (folder / "in.jsonl").write_text("\n \n")
    assert run(folder).returncode == 0
    assert (folder / "out.jsonl").read_bytes() == b"" and sorted(os.listdir(folder)) == ["in.jsonl", "out.jsonl"]


def peak_of(folder, n):
    """Most memory of a run over n lines of 2 KB that cost nothing to answer, and their number of answers."""
    with open(folder / "many.jsonl", "w") as f:
        for _ in range(n):
            f.write('["' + "x" * 2000 + '"]\n')
    process = subprocess.Popen(command("-q", prompts="many.jsonl"), cwd=folder, stdin=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    with open(folder / "out.jsonl", "rb") as f:
        assert sum(1 for _ in f) == n
    return usage.ru_maxrss * 1024


def test_memory_does_not_grow_with_the_number_of_prompts(folder):
    few, many = peak_of(folder, 100), peak_of(folder, 60000)
    assert many < few + 32e6, (few, many)


def test_progress_and_rate_are_for_a_terminal_only(folder):
    (folder / "in.jsonl").write_text(prompts_of(40))
    assert "\r" not in run(folder).stderr
    master, slave = pty.openpty()
    process = subprocess.Popen(command(), cwd=folder, stdin=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    said = b""
    while select.select([master], [], [], SECONDS)[0]:
        try:
            said += os.read(master, 4096)
        except OSError:  # its other side is closed
            break
    os.close(master)
    assert process.wait(SECONDS) == 0
    assert b"40 of 40, " in said and b" a second, " in said and b" tokens/s" in said
