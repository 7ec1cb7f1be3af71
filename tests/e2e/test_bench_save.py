"""tools/bench_save.py: the rows that it makes of a bench's lines."""
import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def bench_save(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("bench_save")


def line(bench, name, value, unit, limit=None, fraction=None, **params):
    return {"bench": bench, "name": name, "params": params, "value": value, "unit": unit, "limit": limit, "fraction": fraction}


def test_a_row_of_speed_has_spread_limit_and_goal(bench_save):
    asked = {"batch": 4, "context": 128, "type": "q4_0", "limit_by": "bytes", "goal": 0.7}
    lines = [line("speed", "decode", 150, "tokens/s", 200, 0.75, **asked), line("speed", "decode spread", 2.5, "tokens/s", **asked),
             line("speed", "memory", 65, "MB", type="q4_0", at_most=64), line("speed", "cascade gain", 3.5, "x", type="int8", at_least=3),
             line("speed", "roofline", 33.4, "GB/s", type="read")]
    assert list(bench_save.goal_rows(lines)) == [
        ("decode q4_0 batch 4 context 128", "150.00 tokens/s", "2.50", "200.0 (bytes)", "75%", "70%, met"),
        ("memory q4_0", "65.00 MB", "0.00", "", "", "64, missed"),
        ("cascade gain int8", "3.50 x", "0.00", "", "", "3, met"),
        ("roofline read", "33.40 GB/s", "0.00", "", "", ""),
    ]


def test_a_row_of_a_profile_is_a_stage(bench_save):
    lines = [line("profile", "time", 100, "us", 80, 0.8, phase="decode", stage="down"), line("profile", "share", 25, "%", phase="decode", stage="down"),
             line("profile", "read_rate", 20.04, "GB/s", phase="decode", stage="down"), line("profile", "time", 7, "us", phase="prefill", stage="down"),
             line("profile", "time", 2, "us", phase="decode", stage="plan"), line("profile", "all", 9, "us", layer=3)]
    assert list(bench_save.stage_rows(lines, "decode")) == [("down", "100.0", "25.0", "20.0", "", "80%"), ("plan", "2.0", "", "", "", "")]
