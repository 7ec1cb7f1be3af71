"""tools/experiments.py: the pages hold what was kept, by the commands that are named, and no published figure is left out."""
import importlib
import pathlib
import subprocess
import sys

import pytest

from conftest import SHARED

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHEET = """Decoding, by batch
batch  pass a seq   shared  shared  busy %
    1        2650       18       9    12.5
   16        2811       20       8       -
way, padded   3.5        1       2       -
best: 16 (of 3 runs); page 16, 1 thread
"""
NO_FIGURE = "<!-- table: not-reproduced -->\n<!-- end of table -->\n"


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("experiments")


@pytest.fixture
def one(tool, monkeypatch):
    """A single experiment, kept, and the page that shows it."""
    held = next(h for e in tool.EXPERIMENTS for h in e.held)
    experiment = type(tool.EXPERIMENTS[0])("one", "quire bench pages -t 1 --runs 3", [type(held)("B8", "at 16", 1405.5, lambda o: o.value("16", "pass a seq"), "a test")])
    monkeypatch.setattr(tool, "EXPERIMENTS", [experiment])
    kept = {"one": {"command": experiment.command, "before": [], "date": "2026-01-01", "machine": {"processor": "P", "family": "1", "cores": 2}, "output": SHEET}}
    return experiment, kept, tool.written(f"before\n<!-- table: one -->\n<!-- end of table -->\n{NO_FIGURE}behind\n", kept)


def test_the_pages_are_what_was_kept_and_no_published_figure_is_left_out():
    published = SHARED / "golden/published.md"
    named = ["--published", str(published)] if published.exists() else []
    done = subprocess.run([sys.executable, str(ROOT / "tools/experiments.py"), "--check", *named], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if not named:
        pytest.skip("published.md is not at hand: only pages and results were checked")


def test_cells_are_found_by_row_and_title(tool):
    out = tool.Output(SHEET)
    assert (out.value("1", "pass a seq"), out.value("16", "shared", 2), out.value("1", "busy %"), out.value("way, padded", "shared")) == (2650, 8, 12.5, 1)
    for row, title in (("2", "shared"), ("1", "nothing")):
        with pytest.raises(LookupError):
            out.value(row, title)


def test_ratios_are_to_the_nearer_end_of_a_range(tool):
    assert [tool.ratio((2, 4), x) for x in (1, 3, 8)] == ["0.50", "inside", "2.00"] and tool.ratio(10, 5) == "0.50" and tool.ratio("words", 5) == "-"
    assert [tool.ratio((2, 4), x) for x in ((1, 3), (1, 8), (2, 3))] == ["0.50 to inside", "0.50 to 2.00", "inside"] and tool.ratio(1000, 3) == "0.003"


def test_a_word_is_no_number(tool):
    with pytest.raises(LookupError):
        tool.Output(SHEET.replace("12.5", "busy")).value("1", "busy %")


def test_a_quick_run_says_what_it_is_and_what_failed(tool, one, monkeypatch, tmp_path, capsys):
    experiment, kept, _ = one
    monkeypatch.setattr(tool, "QUICK", tmp_path / "build" / "quick.md")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    kept["one"]["seconds"] = 2.0
    tool.write_quick(kept, ["two"])
    text = tool.QUICK.read_text()
    assert text.startswith("# A quick run") and "no figures to cite" in text and text.endswith("two failed.\n") and "1 failed" in capsys.readouterr().out


def test_a_table_has_its_command_the_published_figure_and_the_ratio(tool, one):
    _, kept, page = one
    assert "`quire bench pages -t 1 --runs 3`" in page and "| B8 | at 16 | 1,406 | 2,811 | 2.00 | a test |" in page
    assert page.startswith("before\n") and page.endswith("behind\n") and tool.written(page, kept) == page
    assert not list(tool.wrong_results(kept)) and not list(tool.wrong_pages(kept, {"page": page}))


def test_a_table_of_another_command_is_found(tool, one):
    experiment, kept, page = one
    experiment.command = "quire bench pages -t 2 --runs 3"
    assert "tools/experiments.py one" in "".join(tool.wrong_results(kept))


def test_a_table_that_was_never_run_stays_and_is_named(tool, one):
    _, _, page = one
    assert tool.written(page, {}) == page and "one: was never run" in "".join(tool.wrong_results({}))


def test_a_figure_that_nothing_prints_is_found(tool, monkeypatch, tmp_path, capsys):
    page, rest = tmp_path / "page.md", tool.written(NO_FIGURE, {})
    page.write_text("# A\n\nIt takes 12.5 ms.\n" + rest)
    for name, value in (("ROOT", tmp_path), ("PAGES", [page]), ("EXPERIMENTS", []), ("KEPT", tmp_path / "none")):
        monkeypatch.setattr(tool, name, value)
    assert tool.check(tmp_path / "none") == 1 and "no command is named that prints '12.5 ms'" in capsys.readouterr().err
    page.write_text("# A\n\nIt takes a while.\n" + rest)
    assert tool.check(tmp_path / "none") == 0


def test_a_figure_changed_by_hand_is_found(tool, one):
    _, kept, page = one
    assert "not what was kept" in "".join(tool.wrong_pages(kept, {"page": page.replace("2811", "2812")}))


def test_a_table_that_says_other_flags_than_its_command_is_found(tool, one):
    _, kept, _ = one
    kept["one"]["output"] = SHEET.replace("3 runs", "1 runs").replace("1 thread", "2 threads")
    said = "".join(tool.wrong_results(kept))
    assert "runs: the command has 3, the table says 1" in said and "threads: the command has 1, the table says 2" in said


def test_published_ids_are_beside_figures_or_in_the_list(tool, one, monkeypatch):
    monkeypatch.setattr(tool, "NOT_REPRODUCED", [("F1 B8", "a reason")])
    said = "\n".join(tool.wrong_ids("| F1 S | x |\n| F2 M | y |\nB8 M. A table\n"))
    assert "F2 of published.md is neither" in said and "B8 is beside a figure and among" in said and "F1" not in said.replace("F1 S", "")


PUBLISHED = """## 1
| id | what | figures |
|---|---|---|
| F1 S | x | 1,405.5 |
| **F2** M | y | 3-5% of 1.5 GB |

B8 M. A table
| batch | ms |
|---|---|
| 1 | 20 |
| 4 | 50 |

Ours: 281 in all, half of it used.

## 2
Not 77.
"""


def test_published_rows_are_found_however_they_stand(tool):
    rows = tool.published_rows(PUBLISHED)
    assert list(rows) == ["F1", "F2", "B8"] and tool.numbers(rows["B8"]) == {8, 1, 20, 4, 50, 281, 0.5}


@pytest.mark.parametrize("value, is_there", [(50, True), (51, False), (281, True), (77, False), (0.5, True), (2.5, True), (2.4, False), (0, True), (1024, True)])
def test_a_figure_stands_in_its_published_row_or_follows_from_two_numbers_of_it(tool, value, is_there):
    assert tool.stands_there(value, tool.numbers(tool.published_rows(PUBLISHED)["B8"])) == is_there


def test_a_percentage_and_gigabytes_stand_there_as_factor_and_megabytes(tool):
    there = tool.numbers(tool.published_rows(PUBLISHED)["F2"])
    assert all(tool.stands_there(x, there) for x in (1.03, 1.05, 97, 1536, 1500)) and not tool.stands_there(1.06, there)


def test_a_published_figure_that_changed_is_found(tool, one):
    rows = tool.published_rows("B8 M. A table\n| 16 | 1405.5 |\n")
    assert not list(tool.wrong_published(rows))
    assert "one: 1,406 is not in B8 of published.md: at 16" in "".join(tool.wrong_published(tool.published_rows("B8 M. A table\n| 16 | 1415.5 |\n")))


def test_a_page_shows_the_figures_that_are_chosen_for_it(tool, one, monkeypatch):
    _, kept, _ = one
    monkeypatch.setattr(tool, "ON_PAGES", {"some": [("one", "B8", 0)]})
    page = tool.written("<!-- table: published-some -->\n<!-- end of table -->\n", kept)
    assert "| at 16 | 1,406 (B8) | 2,811 | a test | `one` |" in page and SHEET not in page
    assert not list(tool.wrong_pages(kept, {"page": page})) and not list(tool.wrong_choice())
    assert "not what was kept" in "".join(tool.wrong_pages(kept, {"page": page.replace("2,811", "2,812")}))
    monkeypatch.setattr(tool, "ON_PAGES", {"some": [("one", "B8", 0)] * 13})
    assert "at most 12" in "".join(tool.wrong_choice())


def test_a_figure_that_a_kept_output_lacks_is_found(tool, one):
    _, kept, _ = one
    kept["one"]["output"] = SHEET.replace("pass a seq", "other title")
    assert "one: no row '16' below a column 'pass a seq'" in "".join(tool.wrong_results(kept))


def test_figures_of_prose_may_come_from_an_experiment_that_the_page_names(tool, one):
    _, kept, _ = one
    assert SHEET in tool.with_outputs("As `one` prints.\n", kept) and SHEET not in tool.with_outputs("As one prints.\n", kept)


def test_a_published_file_that_is_named_must_be_there(tmp_path):
    done = subprocess.run([sys.executable, str(ROOT / "tools/experiments.py"), "--check", "--published", str(tmp_path / "none.md")], capture_output=True, text=True)
    assert done.returncode == 1 and "there is no such file" in done.stderr
