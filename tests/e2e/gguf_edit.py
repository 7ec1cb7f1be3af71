"""Writes a GGUF file again with other keys and tokens: what a test needs of a model that a converter made in its own way."""
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U32, I32, BOOL, STRING, ARRAY = 4, 5, 7, 8, 9
TOKENS, TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
CONTROL, USER_DEFINED = 3, 4


class Gguf:
    """keys: name -> (type, value); a string is bytes, an array (type of items, list of items). Tensors are copied as they are."""

    def __init__(self, path):
        self.b, self.at = path.read_bytes(), 4
        version, n_tensors, n_keys = self.take("<IQQ")
        assert self.b[:4] == b"GGUF" and version == 3
        self.keys = {}
        for _ in range(n_keys):
            name = self.text().decode()
            (kind,) = self.take("<I")
            self.keys[name] = (kind, self.value(kind))
        self.tensors = []
        for _ in range(n_tensors):
            name = self.text()
            (n_dims,) = self.take("<I")
            self.tensors.append((name, self.take(f"<{n_dims}Q"), self.take("<IQ")))
        self.data = self.b[self.at + -self.at % 32:]

    def take(self, form):
        values = struct.unpack_from(form, self.b, self.at)
        self.at += struct.calcsize(form)
        return values

    def text(self):
        (n,) = self.take("<Q")
        self.at += n
        return self.b[self.at - n:self.at]

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            item, n = self.take("<IQ")
            return item, [self.value(item) for _ in range(n)]
        self.at += SIZES[kind]
        return self.b[self.at - SIZES[kind]:self.at]

    def set(self, name, kind, value):
        if value is None:
            self.keys.pop(name, None)
        else:
            self.keys[name] = (kind, value.encode() if isinstance(value, str) else struct.pack("<?" if kind == BOOL else "<I", value))
        return self

    def rename(self, token, text, kind):
        """The token with this text has another one, and another type; its id."""
        tokens, types = self.keys[TOKENS][1][1], self.keys[TYPES][1][1]
        i = tokens.index(token.encode())
        if "tokenizer.ggml.merges" in self.keys:  # nothing may join to it, or with it
            merges = self.keys["tokenizer.ggml.merges"][1][1]
            merges[:] = [m for m in merges if token.encode() not in (m.replace(b" ", b""), *m.split(b" "))]
        tokens[i], types[i] = text.encode(), struct.pack("<i", kind)
        return i

    def put(self, kind, value):
        if kind == STRING:
            return struct.pack("<Q", len(value)) + value
        if kind == ARRAY:
            return struct.pack("<IQ", value[0], len(value[1])) + b"".join(self.put(value[0], v) for v in value[1])
        return value

    def write(self, path):
        out = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        for name, (kind, value) in self.keys.items():
            out += self.put(STRING, name.encode()) + struct.pack("<I", kind) + self.put(kind, value)
        for name, dims, (kind, at) in self.tensors:
            out += self.put(STRING, name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
        path.write_bytes(out + b"\0" * (-len(out) % 32) + self.data)
        return path
