#!/usr/bin/env python3
"""Records the format of every tensor that llama.cpp's quantizer chooses, as the golden data of choose_formats_test.

  record_formats.py LLAMA_QUANTIZE tests/data/oracle/models tests/data/quantize_formats

The tiny models are quantized as they are; of published models only names, shapes and metadata are made, in sparse files.
Only --dry-run is used, so no weight is read. A file has the model, then for each type what differs from its main format:
  file qwen3-q8_0.gguf                        a tiny model; or, for a published one, its facts and tensors:
  model llama layers=32 heads=32 kv_heads=8 experts=0
  tensor blk.0-31.attn_v.weight 1024,4096
  keep blk.0-31.attn_norm.weight              never quantized
  type q4_k_m                                 with and without an importance matrix; or "with", "without"
  q6_k blk.0-3,6,9.attn_v.weight
"""
import collections
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

TYPES = """q8_0 q6_k q5_1 q5_k_m q5_0 q5_k_s q4_1 q4_k_m q4_k_s q4_0 iq4_nl mxfp4_moe iq4_xs q3_k_l q3_k_m q3_k_s iq3_m iq3_s
iq3_xs iq3_xxs q2_k q2_k_s iq2_m iq2_s iq2_xs q2_0 iq2_xxs tq2_0 iq1_m tq1_0 iq1_s q1_0 f16 bf16 f32""".split()
MAIN_FORMATS = {"iq2_m": "iq2_s", "iq2_s": "iq2_xs", "iq3_m": "iq3_s", "iq3_xs": "iq3_s", "mxfp4_moe": "q8_0"}
F32, F16 = 0, 1
LINE = re.compile(r"^\[ *\d+/ *\d+\] +(\S+) +- \[.*?\], type = +(\S+), size = .*?(?:\((\S+)\))?\s*$")


def main_format(name):
    return MAIN_FORMATS.get(name) or re.sub(r"_k_[sml]$", "_k", name)


# A GGUF file without data: metadata of u32, f32 and strings, and tensors {name: (dims, type)}, dims outermost first.
def write_gguf(path, metadata, tensors):
    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()

    def value(item):
        if isinstance(item, str):
            return struct.pack("<I", 8) + string(item)
        if isinstance(item, list):
            return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(string, item))
        return struct.pack("<II", 4, item) if isinstance(item, int) else struct.pack("<If", 6, item)

    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, item in metadata.items():
        out += string(key) + value(item)
    offset = 0
    for name, (dims, kind) in tensors.items():
        out += string(name) + struct.pack("<I", len(dims))
        n = 1
        for dim in reversed(dims):
            out += struct.pack("<Q", dim)
            n *= dim
        out += struct.pack("<IQ", kind, offset)
        offset += (n * (4 if kind == F32 else 2) + 31) // 32 * 32
    with open(path, "wb") as file:
        file.write(out)
        file.truncate((len(out) + 31) // 32 * 32 + offset)


# Layers of a transformer with `experts` experts of width `ffn`.
def transformer(arch, layers, width, ffn, heads, kv_heads, head_dim, vocab, tied=False, experts=0, **more):
    metadata = {"general.architecture": arch, f"{arch}.block_count": layers, f"{arch}.context_length": 4096,
                f"{arch}.embedding_length": width, f"{arch}.feed_forward_length": ffn,
                f"{arch}.attention.head_count": heads, f"{arch}.attention.head_count_kv": kv_heads,
                f"{arch}.attention.key_length": head_dim, f"{arch}.attention.value_length": head_dim,
                f"{arch}.attention.layer_norm_rms_epsilon": 1e-5, f"{arch}.vocab_size": vocab}
    if experts:
        metadata |= {f"{arch}.expert_count": experts, f"{arch}.expert_used_count": 2,
                     f"{arch}.expert_feed_forward_length": ffn}
    metadata |= {f"{arch}.{key}": item for key, item in more.items()}
    tensors = {"token_embd.weight": ((vocab, width), F16), "output_norm.weight": ((width,), F32)}
    if not tied:
        tensors["output.weight"] = ((vocab, width), F16)
    for i in range(layers):
        matrices = {"attn_q": (heads * head_dim, width), "attn_k": (kv_heads * head_dim, width),
                    "attn_v": (kv_heads * head_dim, width), "attn_output": (width, heads * head_dim)}
        if experts:
            matrices |= {"ffn_gate_exps": (experts, ffn, width), "ffn_up_exps": (experts, ffn, width),
                         "ffn_down_exps": (experts, width, ffn)}
            tensors[f"blk.{i}.ffn_gate_inp.weight"] = ((experts, width), F32)
        else:
            matrices |= {"ffn_gate": (ffn, width), "ffn_up": (ffn, width), "ffn_down": (width, ffn)}
        for name, dims in matrices.items():
            tensors[f"blk.{i}.{name}.weight"] = (dims, F16)
        tensors[f"blk.{i}.attn_norm.weight"] = ((width,), F32)
    return metadata, tensors


PUBLISHED = {
    "llama-8b": transformer("llama", 32, 4096, 14336, 32, 8, 128, 128256),
    "llama-70b": transformer("llama", 80, 8192, 28672, 64, 8, 128, 128256),
    "llama-65b": transformer("llama", 80, 8192, 22016, 64, 64, 128, 32000),
    "mixtral-8x7b": transformer("llama", 32, 4096, 14336, 32, 8, 128, 32000, experts=8),
    "smollm2-135m": transformer("llama", 30, 576, 1536, 9, 3, 64, 49152, tied=True),
    "qwen2-72b": transformer("qwen2", 80, 8192, 29568, 64, 8, 128, 152064),
    "qwen3-1.7b": transformer("qwen3", 28, 2048, 6144, 16, 8, 128, 151936, tied=True),
    "qwen3moe-30b": transformer("qwen3moe", 48, 2048, 768, 32, 4, 128, 151936, experts=128),
    "gemma3-1b": transformer("gemma3", 26, 1152, 6912, 4, 1, 256, 262144, tied=True, **{"attention.sliding_window": 512}),
    "gpt-oss-20b": transformer("gpt-oss", 24, 2880, 2880, 64, 8, 64, 201088, experts=32,
                               **{"attention.sliding_window": 128}),
}


# {tensor: format, or None for one that stays as it is}
def formats_of(program, model, kind, imatrix):
    with_matrix = ["--imatrix", imatrix] if imatrix else []
    run = subprocess.run([program, "--dry-run", *with_matrix, model, kind.upper()], capture_output=True, text=True)
    found = {}
    for line in (run.stdout + run.stderr).splitlines():
        if match := LINE.match(line):
            found[match[1]] = match[3].lower() if match[3] else None
            if match[3] is None:
                found[match[1]] = "=" + match[2].lower()
    if run.returncode != 0 or not found:
        if "no tensor type fallback" in run.stderr + run.stdout:
            return None
        raise SystemExit(f"{program} {model} {kind}: {run.stdout[-500:]}{run.stderr[-2000:]}")
    return found


# blk.0.x, blk.1.x, blk.3.x as blk.0-1,3.x
def grouped(names):
    layers = collections.defaultdict(list)
    for name in names:
        match = re.match(r"blk\.(\d+)\.(.*)", name)
        layers[match[2] if match else name].append(int(match[1]) if match else None)
    for suffix, numbers in sorted(layers.items()):
        if numbers == [None]:
            yield suffix
            continue
        ranges = []
        for number in sorted(numbers):
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
        yield f"blk.{text}.{suffix}"


def lines_of_type(kind, formats, kept):
    by_format = collections.defaultdict(list)
    for name, found in formats.items():
        found = found.removeprefix("=")
        if name not in kept and found != main_format(kind):
            by_format[found].append(name)
    for found, names in sorted(by_format.items()):
        for group in grouped(names):
            yield f"{found} {group}"


def record(program, model, description, imatrix, out):
    lines = list(description)
    f32 = formats_of(program, model, "f32", None)
    bf16 = formats_of(program, model, "bf16", None)
    # What neither changes to f32 nor to bf16 never changes.
    kept = {name for name in f32 if f32[name].startswith("=") and bf16[name].startswith("=")}
    lines += [f"keep {group}" for group in grouped(kept)]
    for kind in TYPES:
        both = [formats_of(program, model, kind, matrix) for matrix in (None, imatrix)]
        if both[0] is None or both[1] is None:  # llama.cpp refuses it
            continue
        texts = [list(lines_of_type(kind, formats, kept)) for formats in both]
        if texts[0] == texts[1]:
            lines += [f"type {kind}", *texts[0]]
        else:
            lines += [f"type {kind} without", *texts[0], f"type {kind} with", *texts[1]]
    out.write_text("\n".join(lines) + "\n")


def main():
    program, tiny, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        imatrix = pathlib.Path(folder) / "imatrix.gguf"
        write_gguf(imatrix, {"general.type": "imatrix", "imatrix.datasets": ["text"], "imatrix.chunk_count": 1,
                             "imatrix.chunk_size": 512}, {"x.in_sum2": ((1, 32), F32), "x.counts": ((1, 1), F32)})
        for path in sorted(tiny.glob("*.gguf")):
            record(program, path, [f"file {path.name}"], imatrix, out / f"{path.stem}.txt")
        for name, (metadata, tensors) in PUBLISHED.items():
            arch = metadata["general.architecture"]
            model = pathlib.Path(folder) / "model.gguf"
            write_gguf(model, metadata, tensors)
            facts = [f"model {arch} layers={metadata[f'{arch}.block_count']}"
                     f" heads={metadata[f'{arch}.attention.head_count']}"
                     f" kv_heads={metadata[f'{arch}.attention.head_count_kv']}"
                     f" experts={metadata.get(f'{arch}.expert_count', 0)}"]
            shapes = collections.defaultdict(list)
            for tensor, (dims, _) in tensors.items():
                shapes[",".join(map(str, dims))].append(tensor)
            facts += [f"tensor {group} {dims}" for dims, names in shapes.items() for group in grouped(names)]
            record(program, model, facts, imatrix, out / f"{name}.txt")
            model.unlink()


if __name__ == "__main__":
    main()
