"""The built-in model with marks of reasoning and calls among its tokens."""
import json
import shutil


def with_marks(path, marks, template):
    """The built-in model with marks as tokens, in place of its last ones; the first mark's id."""
    shutil.copytree("models/builtin-hf", path)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    vocab = tokenizer["model"]
    first = len(vocab["vocab"]) - len(marks)
    vocab["vocab"] = {piece: i for piece, i in vocab["vocab"].items() if i < first}
    del vocab["merges"][-len(marks):]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer["added_tokens"] += [{"id": first + i, "content": mark, "special": special, **flags} for i, (mark, special) in enumerate(marks.items())]
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (path / "chat_template.jinja").write_text(template)
    return path, first
