"""Models for tests of the terminal. One with a fixed output: a GGUF file with one no-op layer, in which each token has one
successor."""
import struct

TEMPLATE = "{# <tool_call> arguments <think> #}{% for m in messages %}{{ m.content }}{% endfor %}<go>"
UNKNOWN, END, GO, FIRST_BYTE = 0, 1, 2, 3
KIND_NORMAL, KIND_UNKNOWN, KIND_CONTROL, KIND_BYTE = 1, 2, 3, 6
TYPE_U32, TYPE_I32, TYPE_F32, TYPE_TEXT, TYPE_LIST = 4, 5, 6, 8, 9


def text_bytes(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    head = text_bytes(key)
    if isinstance(value, list):
        pack = {TYPE_TEXT: text_bytes, TYPE_I32: lambda v: struct.pack("<i", v), TYPE_F32: lambda v: struct.pack("<f", v)}
        return head + struct.pack("<IIQ", TYPE_LIST, kind, len(value)) + b"".join(pack[kind](v) for v in value)
    pack = {TYPE_TEXT: text_bytes, TYPE_U32: lambda v: struct.pack("<I", v), TYPE_F32: lambda v: struct.pack("<f", v)}
    return head + struct.pack("<I", kind) + pack[kind](value)


def write(path, pieces, template=TEMPLATE):
    """Writes a model to `path` that outputs the pieces after any prompt, one per token."""
    words = ["<unk>", "<end>", "<go>", *(f"<0x{i:02X}>" for i in range(256)), *(p.replace(" ", "\u2581") for p in pieces)]
    n = len(words)
    dim = (n + 63) // 64 * 64
    follows = {GO: n - len(pieces), n - 1: END}
    follows.update({i: i + 1 for i in range(n - len(pieces), n - 1)})

    def matrix(n_rows, n_columns, ones):
        rows = [bytearray(4 * n_columns) for _ in range(n_rows)]
        for row, column in ones:
            rows[row][4 * column:4 * column + 4] = struct.pack("<f", 1)
        return b"".join(rows)

    tensors = {
        "token_embd.weight": ([dim, n], matrix(n, dim, [(i, i) for i in range(n)])),
        "output.weight": ([dim, n], matrix(n, dim, [(b, a) for a, b in follows.items()])),
        "output_norm.weight": ([dim], struct.pack("<f", 1) * dim),
        "blk.0.attn_norm.weight": ([dim], struct.pack("<f", 1) * dim),
        "blk.0.ffn_norm.weight": ([dim], struct.pack("<f", 1) * dim),
    }
    for name in ["attn_q", "attn_k", "attn_v"]:
        tensors[f"blk.0.{name}.weight"] = ([dim, 64], bytes(4 * dim * 64))
    tensors["blk.0.attn_output.weight"] = ([64, dim], bytes(4 * dim * 64))
    for name in ["ffn_gate", "ffn_up"]:
        tensors[f"blk.0.{name}.weight"] = ([dim, 64], bytes(4 * dim * 64))
    tensors["blk.0.ffn_down.weight"] = ([64, dim], bytes(4 * dim * 64))

    kinds = [KIND_UNKNOWN, KIND_CONTROL, KIND_CONTROL] + [KIND_BYTE] * 256 + [KIND_NORMAL] * len(pieces)
    metadata = [
        entry("general.architecture", TYPE_TEXT, "llama"),
        entry("llama.context_length", TYPE_U32, 4096),
        entry("llama.embedding_length", TYPE_U32, dim),
        entry("llama.block_count", TYPE_U32, 1),
        entry("llama.feed_forward_length", TYPE_U32, 64),
        entry("llama.attention.head_count", TYPE_U32, 1),
        entry("llama.attention.head_count_kv", TYPE_U32, 1),
        entry("llama.attention.key_length", TYPE_U32, 64),
        entry("llama.attention.value_length", TYPE_U32, 64),
        entry("llama.rope.dimension_count", TYPE_U32, 64),
        entry("llama.attention.layer_norm_rms_epsilon", TYPE_F32, 1e-5),
        entry("tokenizer.ggml.model", TYPE_TEXT, "llama"),
        entry("tokenizer.ggml.tokens", TYPE_TEXT, words),
        entry("tokenizer.ggml.scores", TYPE_F32, [0.0] * n),
        entry("tokenizer.ggml.token_type", TYPE_I32, kinds),
        entry("tokenizer.ggml.unknown_token_id", TYPE_U32, UNKNOWN),
        entry("tokenizer.ggml.bos_token_id", TYPE_U32, END),
        entry("tokenizer.ggml.eos_token_id", TYPE_U32, END),
        entry("tokenizer.chat_template", TYPE_TEXT, template),
    ]
    head = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(metadata)) + b"".join(metadata)
    offset = 0
    for name, (shape, data) in tensors.items():
        head += text_bytes(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", 0, offset)
        offset += (len(data) + 31) // 32 * 32
    body = b"".join(data + bytes(-len(data) % 32) for _, data in tensors.values())
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + body)


def copy_with_context(model, architecture, n_tokens, path):
    """Copies the file `model` to `path` as one that was trained for a context of n_tokens: its answers can be long."""
    with open(model, "rb") as file:
        data = file.read()
    key = f"{architecture}.context_length".encode() + struct.pack("<I", TYPE_U32)
    at = data.index(key) + len(key)
    with open(path, "wb") as file:
        file.write(data[:at] + struct.pack("<I", n_tokens) + data[at + 4:])
    return str(path)
