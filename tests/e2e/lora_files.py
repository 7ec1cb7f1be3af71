"""LoRA adapters of random numbers, as PEFT writes them."""
import json
import random
import re
import struct


def read_header(model):
    with open(model / "model.safetensors", "rb") as f:
        return json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))


def matrices(model, modules):
    """{module: (rows, columns)} of a safetensors directory's linears whose names match."""
    found = {name.removesuffix(".weight"): tensor["shape"] for name, tensor in read_header(model).items() if name.endswith(".weight")}
    found = {name: tuple(shape) for name, shape in found.items() if len(shape) == 2 and re.search(modules, name)}
    assert found, modules
    return found


def write(path, shapes, seed, rank=4, scale=0.5, **config):
    """Makes the directory, or replaces its files. shapes: as matrices() gives them."""
    draw = random.Random(seed)
    path.mkdir(parents=True, exist_ok=True)
    tensors, header, at = [], {}, 0
    for module, (n_out, n_in) in shapes.items():
        for part, shape in (("A", [rank, n_in]), ("B", [n_out, rank])):
            data = struct.pack(f"<{shape[0] * shape[1]}f", *(draw.gauss(0, scale) for _ in range(shape[0] * shape[1])))
            header[f"base_model.model.{module}.lora_{part}.weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
            tensors.append(data)
            at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (path / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors))
    targets = sorted({module.rsplit(".", 1)[-1] for module in shapes})
    (path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": targets, "bias": "none",
                                                          "base_model_name_or_path": "base", **config}))
    return path
