"""tools/peer_bench.py: what it makes of times."""
import importlib
import pathlib
import subprocess
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def peer_bench(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("peer_bench")


class Program:
    def __init__(self, name, short, far):
        self.name, self.took = name, {128: iter(short), 8192: iter(far)}

    def token_seconds(self, _model, depth):
        return next(self.took[depth])


def test_attention_is_told_by_the_best_of_tokens_not_by_the_least_difference(peer_bench):
    o, figures, least = types.SimpleNamespace(models=".", depths="8192"), peer_bench.Figures(), {}
    programs = [Program("Quire", [1e-3, 9e-3, 1e-3], [3e-3, 4e-3, 5e-3]), Program("other", [1e-3, 2e-3, 2e-3], [6e-3, 5e-3, 5e-3])]
    for _ in range(3):
        peer_bench.measure_depths(o, programs, least)
    peer_bench.add_depths(least, figures)
    ((work, quires, others, ratio),) = figures.table(["Quire", "other"])
    assert (work, quires, others, ratio) == ("attention of a token at 8192, us/layer", "1,000.0", "2,000.0", "2.00")


def test_without_depths_no_token_is_timed(peer_bench):
    least = {}
    peer_bench.measure_depths(types.SimpleNamespace(models=".", depths=""), [Program("Quire", [], [])], least)
    assert least == {}


def test_first_and_second_starts_are_those_that_bench_start_times(quire, peer_bench, tmp_path):
    model = tmp_path / "m.gguf"
    subprocess.run([sys.executable, ROOT / "tools/make_llama.py", "--preset", "tiny-128k", "--layers", "2", "--vocab", "320", "--type", "Q4_0", "--out", model], check=True,
                   capture_output=True)
    first, second = peer_bench.Quire(str(pathlib.Path(quire).resolve()), 1, str(tmp_path)).first_tokens(str(model), runs=1)
    assert 0 < second and 0 < first
    assert list(tmp_path.iterdir()) == [model]  # what was kept for it is gone
