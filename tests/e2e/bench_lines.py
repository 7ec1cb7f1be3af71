"""The lines that `quire bench ... --json` prints: their one form, and the rows of a table that they come from."""
import json

FORM = ["bench", "name", "params", "value", "unit", "limit", "fraction"]


def is_number(x):
    return isinstance(x, (int, float)) and not isinstance(x, bool)


def checked(text):
    """Every line of stdout as an object of the form."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert list(line) == FORM, line
        assert all(isinstance(line[key], str) and line[key] for key in ("bench", "name", "unit")), line
        assert isinstance(line["params"], dict) and is_number(line["value"]), line
        assert all(line[key] is None or is_number(line[key]) for key in ("limit", "fraction")), line
        assert (line["limit"] is None) == (line["fraction"] is None), line
        assert all(value is None or isinstance(value, (str, int, float)) for value in line["params"].values()), line
    return lines


def rows(text):
    """Figures of the same bench and params in one dictionary: the params, and each value by its name."""
    found = {}
    for line in checked(text):
        row = found.setdefault((line["bench"], json.dumps(line["params"])), {"bench": line["bench"], **line["params"]})
        assert line["name"] not in row, line
        row[line["name"]] = line["value"]
    return list(found.values())
