"""`quire demo radix`: nine states of the real tree, against what a reader computes by hand."""
import json
import subprocess

import pytest

from conftest import QUIRE

# One word a page, 40 pages. The instructions have 5 words; chat A's turns 2 + 3, 4 + 3, 4 + 3; chat B's 5 + 3, 4 + 4; the examples 8; each
# question 2, its answer 2; the puzzle 11, its answers 5, 3 and 6. A prompt finds all but its last word at most.
#     prompt, found, generated, new, touched, evicted, cached, nodes
HAND = [(0, 0, 0, 0, 0, 0, 0, 0),
        (7, 0, 3, 10, 0, 0, 10, 1),
        (14, 10, 3, 7, 10, 0, 17, 1),       # the whole first turn
        (10, 6, 3, 7, 6, 0, 24, 3),         # the instructions and "User:"; the node splits behind them
        (17, 13, 4, 8, 13, 0, 32, 3),
        (10, 0, 2, 12, 0, 4, 40, 4),        # 44 words in all: the last four of chat A go
        (20, 18, 4, 6, 9, 6, 40, 7),        # two prompts of 10 find 9 each: the examples and "Q:"
        (21, 7, 3, 17, 7, 17, 40, 5),       # chat A found up to "Hello!"; chat B's 15 own words go, and 2 of the first question's answer
        (11, 0, 14, 25, 0, 25, 40, 5)]      # 11 + 14 words: the examples go (9 + 1 + 3 + 3), and 9 more of chat A


@pytest.fixture(scope="module")
def states(quire):
    text = subprocess.run([QUIRE, "demo", "radix", "--json"], capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def test_the_nine_states_have_the_counts_computed_by_hand(states):
    keys = ("prompt_tokens", "found", "generated", "new", "touched", "evicted", "cached", "nodes")
    assert [tuple(s[k] for k in keys) for s in states] == HAND
    for s in states:
        assert s["computed"] == s["prompt_tokens"] - s["found"]
        assert s["free"] + s["cached"] == s["pages"] == 40 and s["held"] == 0


def shape(state):
    return [(line["depth"], *((p["mark"], p["text"]) for p in line["parts"])) for line in state["tree"]]


def test_a_node_splits_where_two_chats_part(states):
    assert shape(states[3]) == [
        (0, ("touched", "You are a helpful assistant. User:")),
        (1, ("kept", "Hello! Assistant: Hi there! User: Plan my trip. Assistant: Where to?")),
        (1, ("new", "What is a quire? Assistant: Twenty-four sheets."))]


def test_what_was_evicted_is_shown_where_it_hung(states):
    assert shape(states[7]) == [
        (0, ("touched", "You are a helpful assistant. User:")),
        (1, ("touched", "Hello!"), ("new", "Assistant: Hi there! User: Plan my trip. Assistant: Where to? User: To the sea. Assistant: Pack light.")),
        (1, ("evicted", "What is a quire? Assistant: Twenty-four sheets. User: Why so few? Assistant: They fold well.")),
        (0, ("kept", "Q: 2+2? A: 4. Q: 3+5? A: 8. Q:")),
        (1, ("kept", "7+1?"), ("evicted", "A: 8.")),
        (1, ("kept", "9+4? A: 13.")),
        (1, ("kept", "6+6? A: 12."))]


def test_every_state_continues_the_one_before(states):
    tokens = 0
    for s in states:
        tokens += s["new"] - s["evicted"]
        assert tokens == s["cached"]
        drawn = {mark: sum(p["tokens"] for line in s["tree"] for p in line["parts"] if p["mark"] == mark) for mark in ("kept", "new", "touched", "evicted")}
        assert (drawn["new"], drawn["touched"], drawn["evicted"]) == (s["new"], s["touched"], s["evicted"])
        assert drawn["kept"] + drawn["new"] + drawn["touched"] == tokens


def test_marks_are_plain_where_there_is_no_terminal_and_coloured_where_there_is(quire):
    plain = subprocess.run([QUIRE, "demo", "radix"], capture_output=True, text=True, check=True).stdout
    assert "\033" not in plain and "+ You are a helpful assistant." in plain
    on_terminal = subprocess.run(["script", "-qec", f"{QUIRE} demo radix", "/dev/null"], capture_output=True, text=True, check=True).stdout
    assert "\033[32m+ You are a helpful assistant." in on_terminal


@pytest.mark.parametrize("page_tokens", [2, 4])
def test_larger_pages_find_the_same_or_less(quire, states, page_tokens):
    text = subprocess.run([QUIRE, "demo", "radix", "--json", "--page-size", str(page_tokens)], capture_output=True, text=True, check=True).stdout
    larger = [json.loads(line) for line in text.splitlines()]
    assert len(larger) == 9
    for big, small in zip(larger, states):
        assert big["prompt_tokens"] == small["prompt_tokens"] and big["found"] <= small["found"]
        assert big["free"] + big["cached"] == big["pages"] == 40 // page_tokens


def test_an_unknown_demonstration_is_refused(quire):
    assert subprocess.run([QUIRE, "demo", "nothing"], capture_output=True).returncode == 2
