#!/usr/bin/env python3
"""Compares GGUF files in pairs: every tensor (type, shape, bytes) and every metadata key.

  compare_gguf.py OURS THEIRS [OURS THEIRS...]     needs the package gguf; exit code 1 if a tensor differs

`OURS` is what `zinc convert --type TYPE` wrote, `THEIRS` what llama.cpp's convert_hf_to_gguf.py --outtype TYPE did.
"""
import sys

import gguf
import numpy as np


def read(path):
    reader = gguf.GGUFReader(path)
    tensors = {t.name: (t.tensor_type.name, list(map(int, t.shape)), bytes(t.data)) for t in reader.tensors}
    keys = {name: (field.types[0].name, field.contents()) for name, field in reader.fields.items()
            if not name.startswith("GGUF.")}
    return tensors, keys


def describe(value):
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."


def difference(ours, theirs):
    if ours[:2] != theirs[:2]:
        return f"{ours[0]} {ours[1]}, theirs {theirs[0]} {theirs[1]}"
    if ours[0] in ("F32", "F16") and len(ours[2]) == len(theirs[2]):
        kind = np.float32 if ours[0] == "F32" else np.float16
        a, b = (np.frombuffer(t[2], kind).astype(np.float64) for t in (ours, theirs))
        return f"{ours[0]}: largest difference {np.max(np.abs(a - b)):.3g}, of {np.max(np.abs(b)):.3g}"
    return f"{ours[0]}: other bytes"


def first_difference(a, b):
    if isinstance(a, list) and isinstance(b, list):
        different = [i for i, (x, y) in enumerate(zip(a, b)) if x != y]
        n = f"{len(different)} of {len(a)}, {len(b)} entries differ"
        return n + (f", first {different[0]}: {a[different[0]]!r}, theirs {b[different[0]]!r}" if different else "")
    return f"{describe(a)}, theirs {describe(b)}"


def compare(ours, theirs):
    (our_tensors, our_keys), (their_tensors, their_keys) = read(ours), read(theirs)
    print(f"{ours}: {len(our_tensors)} tensors, {len(our_keys)} keys; theirs {len(their_tensors)}, {len(their_keys)}")
    n_bad = 0
    for name in sorted(our_tensors.keys() | their_tensors.keys()):
        if name not in our_tensors or name not in their_tensors:
            print(f"  tensor {name}: only {'theirs' if name in their_tensors else 'ours'}")
        elif our_tensors[name] != their_tensors[name]:
            print(f"  tensor {name}: {difference(our_tensors[name], their_tensors[name])}")
        else:
            continue
        n_bad += 1
    for name in sorted(our_keys.keys() | their_keys.keys()):
        if name not in our_keys or name not in their_keys:
            keys = our_keys if name in our_keys else their_keys
            print(f"  key {name}: only {'ours' if name in our_keys else 'theirs'}, {describe(keys[name][1])}")
        elif our_keys[name][1] != their_keys[name][1]:
            print(f"  key {name}: {first_difference(our_keys[name][1], their_keys[name][1])}")
        elif our_keys[name][0] != their_keys[name][0]:
            print(f"  key {name}: type {our_keys[name][0]}, theirs {their_keys[name][0]}")
    return n_bad


if __name__ == "__main__":
    paths = sys.argv[1:]
    sys.exit(sum(compare(paths[i], paths[i + 1]) for i in range(0, len(paths), 2)) > 0)
