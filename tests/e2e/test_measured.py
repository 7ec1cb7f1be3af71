"""tools/measured.py: a measured figure in a page stands in a table that a tool wrote, or its paragraph says what prints it."""
import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = "<!-- table: one -->\n\n```\nspeed  12.5\n```\n\n<!-- end of table -->\n"
BY_HAND = "| batch | tokens/s |\n|---|---|\n| 1 | 20 |\n| 4 | 50 |\n"


@pytest.fixture
def wrong(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    measured = importlib.import_module("measured")
    return lambda text, **others: list(measured.wrong_figures({"docs/page.md": text, **{f"docs/{name}.md": other for name, other in others.items()}}))


@pytest.mark.parametrize("figure", ["12.5 ms", "12.5 us a token", "12.5%", "1,250 tokens/s", "12.5 GB/s", "12.5 GOP/s", "2 times as fast", "1.8 times", "12.5 percent"])
def test_a_figure_that_nothing_prints_is_found(wrong, figure):
    found = wrong(f"# A\n\nIt takes {figure} here.\n")
    assert len(found) == 1 and "docs/page.md, 'A'" in found[0] and figure.split()[0] in found[0]
    assert len(wrong(f"# A\n\nThe goal is 3 ms. It takes {figure} here. At most 4 are published.\n")) == 1


@pytest.mark.parametrize("text", [
    "It takes 12.5 ms, as `quire bench speed` prints.", "It takes 12.5 ms (`tests/kv/test_pool.c`).", "Kept in `bench/results/a.json`: 12.5 ms.",
    "Published are 12.5 ms.", "The goal is 12.5 ms.", f"It takes 12.5 ms.\n\n{TABLE}", "```\n12.5 ms\n```", "Text:\n\n    12.5 ms\n", "Ten ms, and 3 times in a row."])
def test_figures_that_something_prints_pass(wrong, text):
    assert wrong(f"# A\n\n{text}\n") == []


@pytest.mark.parametrize("claim", [
    "twice as fast", "three times as large", "a third less memory", "half the time", "two thirds of the memory", "seven times faster", "a tenth of what it took",
    "half of\nits time", "a twentieth of the other's time", "twelve times\nthe tokens", "Halves the step's time", "a tenfold", "half as long", "three quarters as many",
    "a half of that", "one sixth more"])
def test_a_comparison_in_words_that_nothing_prints_is_found(wrong, claim):
    found = wrong(f"# A\n\nAll at once: {claim}. At most 4 are published.\n")
    assert len(found) == 1 and "docs/page.md, 'A'" in found[0] and " ".join(claim.split()[:2]) in found[0]


@pytest.mark.parametrize("text", [
    "It is twice as fast, as `quire bench speed` prints.", "Kept in `bench/results/a.json`: half the time.", "The paper has half the time.", "It takes at most half the time.",
    f"It takes half the time.\n\n{TABLE}", "```\nhalf the time\n```", "A name never comes twice.", "Half a pair is refused.", "It has two halves.", "Tried three times in a row.",
    "Once or twice a day.", "Read as a double.", "a third token", "four times a second"])
def test_comparisons_that_something_prints_and_other_words_pass(wrong, text):
    assert wrong(f"# A\n\n{text}\n") == []


def test_a_comparison_in_words_needs_its_table_in_its_section_or_behind_its_link(wrong):
    claim = "It takes half the time"
    assert len(wrong(f"# A\n\n{claim}.\n\n## B\n\n{TABLE}")) == 1
    assert wrong(f"# A\n\n{claim} ([there](other.md#a)).\n", other=TABLE) == [] and len(wrong(f"# A\n\n{claim} ([there](other.md)).\n", other="none\n")) == 1
    assert len(wrong(f"# A\n\n{claim}.\n\n    quire run\n")) == 1


def test_comparisons_that_follow_from_a_count_are_few_and_stand_in_a_page(wrong):
    measured = importlib.import_module("measured")
    pages = " ".join(" ".join(p.read_text().split()) for p in [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")])
    assert len(measured.COUNTED) < 10 and all(phrase in pages and reason for phrase, reason in measured.COUNTED.items())
    for phrase in measured.COUNTED:
        assert wrong(f"# A\n\nThere are {phrase}.\n") == [] and len(wrong(f"# A\n\nThere are {phrase.split(' as ')[0]} as many bytes.\n")) == 1


def test_a_table_shows_its_own_numbers_only(wrong):
    for number in ("2.5", "12", "12.51", "112.5"):
        assert len(wrong(f"# A\n\nIt takes {number} ms.\n\n{TABLE}")) == 1, number


def test_a_figure_may_stand_on_the_page_that_its_paragraph_links_to(wrong):
    text = "# A\n\nIt takes 12.5 ms ([there](other.md#a)).\n"
    assert wrong(text, other=TABLE) == [] and len(wrong(text, other="12.5 ms, says `quire bench speed`\n")) == 1
    assert len(wrong("# A\n\n[There](other.md).\n\nIt takes 12.5 ms.\n", other=TABLE)) == 1


def test_a_table_of_measurements_by_hand_names_where_its_run_is_kept(wrong):
    assert "'tokens/s'" in wrong(f"# A\n\n`quire bench speed`:\n\n{BY_HAND}")[0]
    assert wrong(f"# A\n\n{BY_HAND}\nKept in `bench/results/a.json`.\n") == []
    assert len(wrong(f"# A\n\nKept in `bench/results/a.json`.\n\n## B\n\n{BY_HAND}")) == 1
    assert wrong("# A\n\n| flag | ms |\n|---|---|\n| `--wait` | how long |\n") == []
