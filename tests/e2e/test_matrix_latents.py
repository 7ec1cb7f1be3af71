"""The pairs of settings of test_matrix.py on a model whose layers keep latents, as test_matrix_windows.py has them."""
import pytest
from conftest import SHARED
from test_matrix import SETTINGS, all_pairs
from test_matrix_windows import check_row, plain_answers

MODEL = SHARED / "golden/models/deepseek_v3"
ROWS = all_pairs(SETTINGS, 2)


@pytest.fixture(scope="module")
def expected(quire):
    return plain_answers(quire, MODEL)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row.values()))
def test_every_answer_is_the_plain_one(quire, expected, row):
    check_row(quire, expected(row["kv"]), row, MODEL)
