#!/usr/bin/env python3
"""Records importance matrices of tiny models with llama-imatrix: record.py LLAMA_BIN_FOLDER (llama-imatrix, llama-quantize)."""
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent / "oracle" / "models"
NAMES = ["llama-q8_0", "qwen2moe-f16", "qwen3moe-f16", "qwen3next-q8_0", "qwen35-f16", "gemma3-f16", "gemma4moe-q8_0",
         "gpt-oss-mxfp4"]
OPTIONS = ["-c", "96", "-b", "96", "--chunks", "4", "-t", "2", "--no-ppl", "-ctk", "f32", "-ctv", "f32", "-fa", "off"]


def record(tools, name, folder):
    exact = folder / "exact.gguf"  # weights as f32, so that llama.cpp does not round activations to 8 bits
    subprocess.run([tools / "llama-quantize", "--allow-requantize", MODELS / f"{name}.gguf", exact, "f32"], check=True)
    subprocess.run([tools / "llama-imatrix", "-m", exact, "-f", "text.txt", "-o", f"{name}.gguf", *OPTIONS], check=True,
                   cwd=HERE)


if __name__ == "__main__":
    for model in NAMES:
        with tempfile.TemporaryDirectory() as scratch:
            record(pathlib.Path(sys.argv[1]).resolve(), model, pathlib.Path(scratch))
