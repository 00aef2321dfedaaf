#!/usr/bin/env python3
"""Fails if a file under src/ includes a folder that LAYERS does not allow, or if LAYERS has a cycle."""
import pathlib
import re
import sys

LAYERS = {  # folder: folders it may include (itself is always allowed)
    "base": "",
    "tensor": "base",
    "gguf": "base tensor",
    "quantize": "base tensor gguf",
    "text": "base gguf",
    "graph": "base tensor",
    "model": "base tensor gguf graph",
    "backend": "base tensor graph",
    "backend/reference": "base tensor graph backend",
    "backend/cpu": "base tensor graph backend",
    "backend/split": "base tensor graph backend",
    "backend/mpi": "base tensor graph backend",
    "backend/gpu/params": "",  # declarations that kernels share with their hosts
    "backend/simt": "backend/gpu/params",  # device code: includes nothing else of ours
    "backend/gpu": "base tensor graph backend backend/gpu/params",
    "backend/simt/host": "base tensor graph backend backend/gpu backend/gpu/params backend/simt",
    "backend/cuda": "base tensor graph backend backend/gpu backend/gpu/params backend/simt backend/simt/host",
    "backend/vulkan": "base tensor graph backend backend/gpu backend/gpu/params",
    "cache": "base graph backend",
    "sample": "base graph text",
    "constrain": "base text sample",
    "engine": "base tensor gguf quantize text graph model backend backend/split backend/mpi cache sample constrain",
    "hub": "base tensor gguf graph model",
    "convert": "base tensor gguf text model",
    "chat": "base gguf text graph sample constrain engine",
    "server": "base text graph constrain engine chat hub",
    "cli": "base tensor gguf text graph model backend backend/mpi sample constrain engine chat hub server convert quantize",
}
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".mm", ".metal"}


def layer_of(path):
    """The longest LAYERS key that prefixes this path; None if there is none."""
    parts = path.split("/")[:-1]
    for n in range(len(parts), 0, -1):
        if "/".join(parts[:n]) in LAYERS:
            return "/".join(parts[:n])
    return None


def has_cycle():
    done, on_path = set(), set()

    def visit(layer):
        if layer in on_path:
            return True
        if layer in done:
            return False
        on_path.add(layer)
        bad = any(visit(below) for below in LAYERS[layer].split())
        on_path.discard(layer)
        done.add(layer)
        return bad

    return any(visit(layer) for layer in LAYERS)


def violations(src):
    for file in sorted(src.rglob("*")):
        if file.suffix not in SUFFIXES or file == src / "main.cc":
            continue
        here = layer_of(file.relative_to(src).as_posix())
        if here is None:
            yield f"{file}: folder not in LAYERS"
            continue
        allowed = {here, *LAYERS[here].split()}
        if file.name.endswith("_test.cc"):
            allowed |= set(LAYERS)
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match:
                continue
            if "../" in match[1]:
                yield f"{file}:{number}: include from the src root, not '../'"
                continue
            if match[1].startswith("tests/") and file.name.endswith("_test.cc"):
                continue
            there = layer_of(match[1])
            if there is None:
                yield f"{file}:{number}: '{match[1]}' is in no layer"
            elif there not in allowed:
                yield f"{file}:{number}: {here} may not include {there} ({match[1]})"


if __name__ == "__main__":
    if has_cycle():
        sys.exit("LAYERS has a cycle")
    found = list(violations(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "src")))
    if found:
        print("\n".join(found))
    sys.exit(bool(found))
