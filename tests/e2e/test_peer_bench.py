"""tools/peer_bench.py: what it makes of times."""
import importlib
import pathlib
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
