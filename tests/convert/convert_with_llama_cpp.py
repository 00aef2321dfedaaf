#!/usr/bin/env python3
"""Runs llama.cpp's converter on the checkpoints of tests/data/convert, for compare_gguf.py.

  convert_with_llama_cpp.py LLAMA_CPP OUT [TYPE...]      writes OUT/NAME.TYPE.gguf; TYPE: f32, bf16, q8_0 (default: all)

LLAMA_CPP: a checkout with conversion/ and gguf-py/. Its pre-tokenizer check hashes the tokens of a text, which no tiny vocabulary
passes; it gets the name that zinc finds.
"""
import json
import logging
import pathlib
import sys

root, out = map(pathlib.Path, sys.argv[1:3])
sys.path[:0] = [str(root), str(root / "gguf-py")]
import gguf  # noqa: E402
import torch  # noqa: E402
from conversion import base, get_model_class  # noqa: E402

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "convert"
TYPES = {"f32": gguf.LlamaFileType.ALL_F32, "bf16": gguf.LlamaFileType.MOSTLY_BF16, "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
PRETOKENIZERS = {"llama": "llama-bpe", "smollm2": "smollm", "smollm3": "dbrx", "arcee": "dbrx", "qwen35": "qwen35",
                 "qwen35moe": "qwen35", "gpt-oss": "gpt-4o", "gpt-oss-bf16": "gpt-4o"}

logging.disable(logging.WARNING)
for folder in sorted(DATA.iterdir()):
    config = json.loads((folder / "config.json").read_text())
    base.ModelBase.no_mtp = config.get("mtp_num_hidden_layers") == 0
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer, name=folder.name: PRETOKENIZERS.get(name, "qwen2")
    for name in sys.argv[3:] or TYPES:
        with torch.inference_mode():
            get_model_class(config["architectures"][0])(folder, TYPES[name], out / f"{folder.name}.{name}.gguf").write()
