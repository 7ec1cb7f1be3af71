"""A golden model of 256 tokens as one that chats in ChatML: a token is a byte, or begins or ends a message."""
import json
import shutil

from conftest import SHARED

# In place of two bytes that no text has.
CONTROL = {3: "<|im_start|>", 4: "<|im_end|>"}
TEMPLATE = ("{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
            "{% for c in m.tool_calls or [] %}({{ c.function.name }}){% endfor %}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def byte_pieces():
    """The characters that stand for the bytes 0 to 255 in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def write(path, name, positions=32768):
    """Makes the model's directory; None: the vectors are not at hand."""
    golden = SHARED / "golden/models" / name
    if not golden.exists():
        return None
    path.mkdir()
    shutil.copyfile(golden / "model.safetensors", path / "model.safetensors")
    config = json.loads((golden / "config.json").read_text())
    assert config["vocab_size"] == 256
    (path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": positions}))
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": {piece: i for i, piece in enumerate(byte_pieces()) if i not in CONTROL}, "merges": []}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": text, **flags} for i, text in CONTROL.items()]
    (path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": byte_level,
                                                     "post_processor": None, "decoder": byte_level, "model": model}))
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}))
    return path
