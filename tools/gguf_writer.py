"""Writes GGUF version 3 files with numpy alone: keys first, then tensors one after the other, so that a large model needs little memory."""
import struct

ALIGNMENT = 32
U16, U32, I32, F32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9
# tensor types: number, elements a block, bytes a block
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
         "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144),
         "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "IQ4_NL": (20, 32, 18),
         "IQ4_XS": (23, 256, 136), "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36), "IQ3_S": (21, 256, 110), "IQ3_XXS": (18, 256, 98),
         "IQ2_S": (22, 256, 82), "IQ2_XS": (17, 256, 74), "IQ2_XXS": (16, 256, 66), "IQ1_M": (29, 256, 56), "IQ1_S": (19, 256, 50),
         "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66), "Q2_0": (42, 64, 18), "Q1_0": (41, 128, 18)}


SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def text(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def scalar(kind, v):
    if kind == STRING:
        return text(v)
    return struct.pack({U16: "<H", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def keys_of(path, prefix):
    """The keys of a GGUF file that begin with prefix: (name, their bytes as they are)."""
    with open(path, "rb") as f:
        b = f.read()

    def text_end(at):
        return at + 8 + struct.unpack_from("<Q", b, at)[0]

    def value_end(kind, at):
        if kind == STRING:
            return text_end(at)
        if kind != ARRAY:
            return at + SCALAR_BYTES[kind]
        item, n = struct.unpack_from("<IQ", b, at)
        at += 12
        for _ in range(n):
            at = value_end(item, at)
        return at

    if b[:4] != b"GGUF":
        raise ValueError(f"{path}: no GGUF file")
    found, at = [], 24
    for _ in range(struct.unpack_from("<Q", b, 16)[0]):
        name_end = text_end(at)
        end = value_end(struct.unpack_from("<I", b, name_end)[0], name_end + 4)
        name = b[at + 8:name_end].decode()
        if name.startswith(prefix):
            found.append((name, b[at:end]))
        at = end
    return found


class GgufWriter:
    """add_key and add_tensor declare; write() then asks for each tensor's bytes in the order of declaration."""

    def __init__(self):
        self.keys, self.tensors = [], []

    def add_key(self, name, kind, value):
        self.keys.append(text(name) + struct.pack("<I", kind) + scalar(kind, value))

    def add_array(self, name, kind, values):
        head = struct.pack("<IIQ", ARRAY, kind, len(values))
        self.keys.append(text(name) + head + b"".join(scalar(kind, v) for v in values))

    def add_tensor(self, name, shape, kind, make):
        """shape is row-major, as numpy has it; make() gives the bytes, or an iterator of pieces."""
        number, block, block_bytes = TYPES[kind]
        n = 1
        for d in shape:
            n *= d
        if shape[-1] % block:
            raise ValueError(f"{name}: rows of {shape[-1]} are no whole blocks of {kind}")
        self.tensors.append((name, shape, number, n // block * block_bytes, make))

    def write(self, path):
        with open(path, "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys)) + b"".join(self.keys))
            at = 0
            for name, shape, number, size, _ in self.tensors:
                f.write(text(name) + struct.pack("<I", len(shape)))
                f.write(b"".join(struct.pack("<Q", d) for d in reversed(shape)) + struct.pack("<IQ", number, at))
                at += -(-size // ALIGNMENT) * ALIGNMENT
            for name, _, _, size, make in self.tensors:
                f.write(b"\0" * (-f.tell() % ALIGNMENT))
                made = make()
                pieces = [made] if isinstance(made, (bytes, bytearray, memoryview)) else made
                written = sum(f.write(p) for p in pieces)
                if written != size:
                    raise ValueError(f"{name}: {written} bytes made, {size} declared")
