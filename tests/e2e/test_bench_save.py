"""tools/bench_save.py: the table that it makes of a bench's lines."""
import importlib
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def line(name, value, fraction=None, **params):
    return {"bench": "speed", "name": name, "params": params, "value": value, "unit": "", "limit": None, "fraction": fraction}


def test_the_table_has_a_row_a_type_and_the_limits_of_the_run(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    bench_save = importlib.import_module("bench_save")
    rates = [line("roofline", value, type=kind) for kind, value in (("read", 33.4), ("int8", 1533.2), ("int8 by 4 bits", 1533.2), ("bf16", 358))]
    lines = [*rates, line("prefill", 360.2, 0.46, type="q4_0"), line("decode", 43.6, 0.81, type="q4_0", batch=1), line("decode", 9, 0.1, type="q4_0", batch=2)]
    text = "".join(bench_save.summary({"machine": {"processor": "P", "cores": 2, "load_before": 0.5}, "runs": {"speed": {"lines": lines}}}))
    assert "| Q4_0 | 360 (46%) | 44 (81%) |  |  |  |" in text
    assert "P, 2 cores, load 0.5 before the run; limits found in it: 33.4 GB/s, 1,533 GOP/s in int8" in text
