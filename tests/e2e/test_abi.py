"""The C API only grows: tools/abi.py refuses what would break a program that was built with an earlier header, and takes additions."""
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def abi(*arguments):
    done = subprocess.run([sys.executable, ROOT / "tools/abi.py", *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def changed(tmp_path):
    """A function that changes a header of a copy: (status, text) of abi.py on it, by the record as it is."""
    shutil.copytree(ROOT / "include", tmp_path / "include")
    shutil.copy(ROOT / "tests/library/abi.txt", tmp_path / "abi.txt")

    def change(header, old, new, *more):
        path = tmp_path / "include" / header
        text = path.read_text()
        assert text.count(old) == 1, old
        path.write_text(text.replace(old, new))
        return abi("--include", tmp_path / "include", "--record", tmp_path / "abi.txt", *more)

    return change


def test_the_headers_have_what_the_record_has():
    """After an addition to the API, tools/abi.py --update adds it to the record; a removal or a move is refused."""
    status, said = abi(*(["--library", ROOT / "build/libquire.so"] if (ROOT / "build/libquire.so").exists() else []))
    assert status == 0, said


BROKEN = [
    ("a function is gone", "quire.h", "const char *quire_version(void);", "", ["function quire_version is gone"]),
    ("a function has other arguments", "quire.h", "bool quire_engine_healthy(const quire_engine *e);",
     "bool quire_engine_healthy(const quire_engine *e, int n);", ["function quire_engine_healthy was"]),
    ("a function has another result", "quire.h", "int quire_queue_fd(", "int64_t quire_queue_fd(", ["function quire_queue_fd was"]),
    ("a member is gone", "quire.h", "    double beam_score;  ", "    // ", ["member quire_event.beam_score is gone", "member quire_event.prompt_tokens was"]),
    ("a member is in the middle of a sized struct", "quire.h", "    const char *chat_template; ", "    int32_t more;\n    const char *chat_template; ",
     ["member quire_options.more is new and lies before the end", "member quire_options.chat_template was"]),
    ("two members change places", "quire_hub.h", "    int64_t bytes;\n    int64_t used_unix_s; /* last time", "    int64_t used_unix_s;\n    int64_t bytes; /* last time",
     ["member quire_hub_model.bytes was", "member quire_hub_model.used_unix_s was"]),
    ("a member changes its type", "quire.h", "    int32_t max_seqs;           /*", "    uint32_t max_seqs;           /*", ["member quire_options.max_seqs was"]),
    ("an unsized struct grows", "quire.h", "    int32_t token, rank;\n", "    int32_t token, rank, more;\n", ["struct quire_logprob was 12, and is 16"]),
    ("an unsized struct grows at its end", "quire.h", "    const quire_part *parts;\n    int32_t n_parts;\n",
     "    const quire_part *parts;\n    int32_t n_parts;\n    int64_t more;\n", ["struct quire_event was"]),
    ("an enumerator is inserted", "quire.h", "    QUIRE_FINISH_STOP,\n", "    QUIRE_FINISH_EARLY,\n    QUIRE_FINISH_STOP,\n", ["constant QUIRE_FINISH_STOP was 1, and is 2"]),
    ("an error is inserted", "quire_err.h", "    X(NO_MEMORY, ", "    X(EARLY, \"early\") X(NO_MEMORY, ", ["constant QUIRE_NO_MEMORY was 1, and is 2"]),
    ("an enumerator is gone", "quire.h", "typedef enum quire_jump_forward { QUIRE_JUMP_FORWARD_ON, QUIRE_JUMP_FORWARD_OFF }",
     "typedef enum quire_jump_forward { QUIRE_JUMP_FORWARD_ON }", ["constant QUIRE_JUMP_FORWARD_OFF is gone"]),
    ("a limit changes", "quire.h", "#define QUIRE_TENANT_BYTES 128", "#define QUIRE_TENANT_BYTES 64", ["constant QUIRE_TENANT_BYTES was 128, and is 64"]),
]


@pytest.mark.parametrize("what,header,old,new,words", BROKEN, ids=[b[0] for b in BROKEN])
def test_what_breaks_programs_is_refused(changed, what, header, old, new, words):
    status, said = changed(header, old, new)
    assert status == 1 and all(w in said for w in words), said


def test_a_break_is_refused_by_update_too(changed, tmp_path):
    before = (tmp_path / "abi.txt").read_text()
    status, said = changed("quire.h", "#define QUIRE_TENANT_BYTES 128", "#define QUIRE_TENANT_BYTES 64", "--update")
    assert status == 1 and (tmp_path / "abi.txt").read_text() == before, said


@pytest.mark.parametrize("header,old,new", [
    ("quire.h", "const char *quire_version(void);", "const char *quire_version(void);\nint quire_new(const char *text);"),
    ("quire.h", "} quire_options;", "    int32_t more;\n    const char *and_more;\n} quire_options;"),
    ("quire.h", "    QUIRE_EVENT_PROGRESS\n", "    QUIRE_EVENT_PROGRESS,\n    QUIRE_EVENT_MORE\n"),
    ("quire_err.h", "#define QUIRE_ERR_LIST(X)", "#define QUIRE_LIMIT 7\n#define QUIRE_ERR_LIST(X)"),
    ("quire.h", "typedef struct quire_message {", "typedef struct quire_more {\n    size_t size;\n} quire_more;\ntypedef struct quire_message {"),
])
def test_an_addition_is_taken_once_the_record_has_it(changed, tmp_path, header, old, new):
    status, said = changed(header, old, new)
    assert status == 0 and "is not in the record" in said and "--update" in said, said
    assert abi("--include", tmp_path / "include", "--record", tmp_path / "abi.txt", "--update")[0] == 0
    status, said = abi("--include", tmp_path / "include", "--record", tmp_path / "abi.txt")
    assert (status, said) == (0, ""), said


def test_a_library_without_a_function_is_refused(tmp_path):
    if not (ROOT / "build/libquire.so").exists():
        pytest.skip("there is no release tree in build/ (make)")
    (tmp_path / "abi.txt").write_text((ROOT / "tests/library/abi.txt").read_text() + "function\tquire_gone\tvoid (void)\n")
    status, said = abi("--library", ROOT / "build/libquire.so", "--record", tmp_path / "abi.txt")
    assert status == 1 and re.search(r"function quire_gone is not exported by .*libquire\.so", said), said
