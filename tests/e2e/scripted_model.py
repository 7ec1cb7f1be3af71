"""A model that calls one tool and then answers, whatever it is asked: its next token hangs on the last one alone, and its template ends a prompt with one of
two tokens, before and after a tool's result. So programs whose requests cannot force a call take a whole turn with it."""
import json

import numpy

from marked_model import with_marks
from test_embed_modules import write_tensors

WIDTH = 64
ANSWER = "It is done."
# Whole conversations of a client have a system message and tools; others, such as one for a title, are answered at once.
TEMPLATE = ("{# <tool_call> #}{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}"
            "{% for c in m.tool_calls or [] %}<tool_call>\n{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>{% endfor %}\n"
            "{% endfor %}{{ '<|call|>' if tools and messages[-1].role != 'tool' else '<|answer|>' }}")


def write(path, name, arguments):
    """Makes the directory of a model that calls this tool."""
    call = "\n" + json.dumps({"name": name, "arguments": arguments}) + "\n"
    texts = [call, ANSWER]  # plain tokens, since a rule forbids added ones inside a call
    marks = {"<|call|>": True, "<|answer|>": True, "<tool_call>": False, "</tool_call>": False}
    path, first = with_marks(path, marks, TEMPLATE)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    vocab = tokenizer["model"]
    vocab["vocab"] = {piece: i for piece, i in vocab["vocab"].items() if i < first - len(texts)}
    vocab["vocab"] |= {text.replace(" ", "Ġ").replace("\n", "Ċ"): first - len(texts) + i for i, text in enumerate(texts)}
    del vocab["merges"][-len(texts):]
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((path / "config.json").read_text())
    end, n = config["eos_token_id"], config["vocab_size"]
    config |= {"hidden_size": WIDTH, "intermediate_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
               "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "float32", "dtype": "float32"}
    (path / "config.json").write_text(json.dumps(config))
    rows, head = numpy.zeros((n, WIDTH)), numpy.zeros((n, WIDTH))
    inner, text, begin, answer, opening, closing = range(first - len(texts), first + len(marks))
    for i, (token, following) in enumerate([(begin, opening), (opening, inner), (inner, closing), (closing, end), (answer, text), (text, end)]):
        rows[token, i], head[following, i] = 1, 100
    layer = "model.layers.0."
    shapes = {"self_attn.q_proj": (2 * 32, WIDTH), "self_attn.k_proj": (32, WIDTH), "self_attn.v_proj": (32, WIDTH), "self_attn.o_proj": (WIDTH, 2 * 32),
              "mlp.gate_proj": (WIDTH, WIDTH), "mlp.up_proj": (WIDTH, WIDTH), "mlp.down_proj": (WIDTH, WIDTH)}
    ones = {name: numpy.ones(WIDTH) for name in (layer + "input_layernorm.weight", layer + "post_attention_layernorm.weight", "model.norm.weight")}
    zeros = {f"{layer}{name}.weight": numpy.zeros(shape) for name, shape in shapes.items()}
    write_tensors(path / "model.safetensors", {"model.embed_tokens.weight": rows, "lm_head.weight": head, **ones, **zeros})
    return path
