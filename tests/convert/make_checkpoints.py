#!/usr/bin/env python3
"""Makes the tiny checkpoints of tests/data/convert: random weights, saved by the package transformers, with its logits.

  make_checkpoints.py [NAME...]      all, or those named; needs torch, transformers, tokenizers, sentencepiece, safetensors

Each folder is as published: config.json, safetensors (of one model in shards), tokenizer, chat template,
generation_config.json. expected.json has the token ids of a prompt and the positions whose logits are in expected.f32
(little-endian float32, computed in float32 by the modeling code of transformers), and the ids of some texts by the
checkpoint's own tokenizer.
"""
import copy
import io
import json
import math
import pathlib
import shutil
import sys

import numpy as np
import safetensors.torch
import sentencepiece
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "convert"
TEXT = ["The quick brown fox jumps over the lazy dog. 12345 times, isn't it?", "pack my box with five dozen jugs",
        "int main() { return 0; }", "she sells sea shells by the sea shore", "naïve café, 中文 and 😀"]
N_TOKENS = 320  # rows of every token embedding: more than any of the tokenizers has
BASE = dict(vocab_size=N_TOKENS, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=1,
            eos_token_id=2, pad_token_id=0)
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
LETTERS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = (LETTERS + r"*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTION + "|" + LETTERS + r"+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTION
         + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LINEAR = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
              linear_conv_kernel_dim=4, layer_types=["linear_attention", "full_attention"])
MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True)
SHARED = dict(shared_expert_intermediate_size=32)


# ---- tokenizers ----

def byte_bpe(folder, pattern, bos=None):
    """tokenizer.json of a byte-level BPE whose words are those of `pattern` (None: GPT-2's own, digits alone)."""
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=bos is not None))
    if pattern:
        split = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    else:
        split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                  special_tokens=["<pad>", "<|begin_of_text|>", "<|im_end|>", "<|im_start|>"])
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_tokens([tokenizers.AddedToken("<tool_call>", normalized=False)])
    if bos:
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, 1)])])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<pad>",
                                                **({"bos_token": bos} if bos else {}))
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)


def sentence_pieces(folder, kind, gemma):
    """tokenizer.model with byte fallback, and the tokenizer_config.json that comes with it."""
    control = ["<start_of_turn>", "<end_of_turn>"] if gemma else []
    ids = dict(pad_id=0, eos_id=1, bos_id=2, unk_id=3) if gemma else dict(unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    model = io.BytesIO()  # a file's path would be kept in it
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(TEXT * 50), model_writer=model, vocab_size=312, model_type=kind, byte_fallback=True,
        character_coverage=0.98, user_defined_symbols=["\n\n"] if gemma else [], control_symbols=control,
        add_dummy_prefix=not gemma, split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        minloglevel=2, hard_vocab_limit=False, **ids)
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    names = {"bos_token": "<bos>" if gemma else "<s>", "eos_token": "<eos>" if gemma else "</s>", "unk_token": "<unk>"}
    if gemma:  # sentencepiece names them otherwise
        names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    added = {} if gemma else {"313": {"content": "[INST]", "special": True, "normalized": False, "lstrip": False, "rstrip": False,
                                      "single_word": False}}
    config = {**names, "add_bos_token": True, "add_eos_token": False, "added_tokens_decoder": added, "chat_template": TEMPLATE,
              "tokenizer_class": "GemmaTokenizer" if gemma else "LlamaTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))


def char_bpe(folder):
    """tokenizer.json of a BPE over characters with byte fallback, as Gemma 4 has it."""
    tokens = {t: i for i, t in enumerate(["<pad>", "<eos>", "<bos>", "<unk>"])}
    for i in range(256):
        tokens[f"<0x{i:02X}>"] = len(tokens)
    for c in sorted(set("".join(TEXT).replace(" ", "▁")) - set("中文😀")):
        tokens.setdefault(c, len(tokens))
    merges = []
    for pair in [("▁", "t"), ("h", "e"), ("▁t", "he")]:
        merges.append(pair)
        tokens[pair[0] + pair[1]] = len(tokens)
    tokenizer = tokenizers.Tokenizer(models.BPE(tokens, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>"])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>",
                                                unk_token="<unk>", pad_token="<pad>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)


# ---- models ----

def randomize(model, generator):
    """Weights that make every tensor matter: norms and biases are not left at one and zero."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if name.endswith("A_log"):
            p.data = noise * 0.5
        elif p.dim() == 1:
            p.data = p.data + 0.2 * noise
        elif "embed" in name or "lm_head" in name:
            p.data = noise * (0.3 if "per_layer" in name else 0.6)
        else:
            p.data = noise * (1.4 / math.sqrt(p.shape[-1]))
        p.data = p.data.bfloat16().float()  # as they are saved
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.data = (buffer.data * 0.8).bfloat16().float()


def with_mtp(tensors, generator, n_experts=0):
    """The draft block of Qwen's hybrid models, which the modeling code of transformers leaves out: layer 1, again."""
    own = {name.replace("model.layers.1.", "mtp.layers.0."): t for name, t in tensors.items() if "layers.1." in name}
    dim = 32
    own["mtp.fc.weight"] = torch.randn(dim, 2 * dim, generator=generator)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        own[f"mtp.{name}.weight"] = 0.1 * torch.randn(dim, generator=generator)
    return {**tensors, **{name: t.clone().bfloat16() for name, t in own.items()}}


def with_mxfp4(tensors, generator):
    """The experts of gpt-oss in MXFP4, as published: blocks of 32 four-bit values, and scales with an exponent each."""
    out = {}
    for name, t in tensors.items():
        if not name.endswith((".gate_up_proj", ".down_proj")):
            out[name] = t
            continue
        n_experts, n_in, n_out = t.shape
        out[name + "_blocks"] = torch.randint(0, 256, (n_experts, n_out, n_in // 32, 16), generator=generator, dtype=torch.uint8)
        out[name + "_scales"] = torch.randint(122, 126, (n_experts, n_out, n_in // 32), generator=generator, dtype=torch.uint8)
    return out


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def load_mxfp4(model, tensors):
    for name, p in model.named_parameters():
        if name + "_blocks" not in tensors:
            continue
        blocks, scales = tensors[name + "_blocks"], tensors[name + "_scales"]
        values = torch.stack([FP4[(blocks & 15).long()], FP4[(blocks >> 4).long()]], dim=-1).flatten(-2)  # [E, out, n, 32]
        values = values * torch.exp2(scales.float() - 127).unsqueeze(-1)
        p.data = values.flatten(-2).transpose(1, 2).contiguous()


def with_fp8(tensors, model, block):
    """Linear layers as FP8 E4M3 with one scale per block; sets the model's weights to what those say."""
    out = {}
    parameters = dict(model.named_parameters())
    for name, t in tensors.items():
        if "_proj.weight" not in name:
            out[name] = t
            continue
        rows, columns = t.shape
        padded = torch.zeros(-(-rows // block) * block, -(-columns // block) * block)
        padded[:rows, :columns] = t.float()
        tiles = padded.reshape(padded.shape[0] // block, block, -1, block)
        scale = tiles.abs().amax(dim=(1, 3)).clamp(min=1e-6) / 448
        quantized = (tiles / scale[:, None, :, None]).to(torch.float8_e4m3fn)
        value = (quantized.float() * scale[:, None, :, None]).reshape(padded.shape)[:rows, :columns]
        out[name] = quantized.reshape(padded.shape)[:rows, :columns].contiguous()
        out[name + "_scale_inv"] = scale
        parameters[name].data = value.contiguous()
    return out


def encoded_texts(folder):
    """Ids of TEXT, without special tokens, by the packages tokenizers or sentencepiece."""
    if (folder / "tokenizer.json").exists():
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        return [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in TEXT]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    return [[text, pieces.encode(text)] for text in TEXT]


# Published models have truncate false: YaRN's ramp begins and ends between dimensions. GGUF files cannot say that, and
# zinc, as llama.cpp, rounds to whole dimensions (docs/convert.md).
def gpt_oss_rope():
    return dict(rope_type="yarn", rope_theta=150000.0, factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=True,
                original_max_position_embeddings=64)


def gemma4(**more):
    return dict(BASE, num_hidden_layers=3, layer_types=["sliding_attention", "sliding_attention", "full_attention"], sliding_window=8,
                global_head_dim=32, hidden_size_per_layer_input=0, num_kv_shared_layers=0, bos_token_id=2, eos_token_id=1,
                rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                 "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
                                                    "partial_rotary_factor": 0.25}}, **more)


# name: (class of the config, class of the model, config, tokenizer, options)
MODELS = {
    "llama": ("LlamaConfig", "LlamaForCausalLM",
              dict(BASE, head_dim=8, rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                                                          high_freq_factor=4.0, original_max_position_embeddings=64)),
              lambda f: byte_bpe(f, LLAMA3, "<|begin_of_text|>"), {"shards": True}),
    "mistral": ("MistralConfig", "MistralForCausalLM", dict(BASE, sliding_window=None, rope_theta=10000.0),
                lambda f: sentence_pieces(f, "bpe", False), {"dtype": torch.float32}),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", dict(BASE, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
                lambda f: sentence_pieces(f, "bpe", False), {}),
    "arcee": ("ArceeConfig", "ArceeForCausalLM", dict(BASE), lambda f: byte_bpe(f, LLAMA3), {}),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM",
                dict(BASE, num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0], tie_word_embeddings=True, rope_theta=2000000.0),
                lambda f: byte_bpe(f, LLAMA3), {}),
    "smollm2": ("LlamaConfig", "LlamaForCausalLM", dict(BASE, tie_word_embeddings=True, rope_theta=100000.0),
                lambda f: byte_bpe(f, None), {}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", dict(BASE, tie_word_embeddings=True), lambda f: byte_bpe(f, QWEN2), {}),
    "qwen2moe": ("Qwen2MoeConfig", "Qwen2MoeForCausalLM",
                 dict(BASE, **{**MOE, **SHARED, "norm_topk_prob": False}), lambda f: byte_bpe(f, QWEN2), {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", dict(BASE), lambda f: byte_bpe(f, QWEN2), {"dtype": torch.float16}),
    "qwen3-fp8": ("Qwen3Config", "Qwen3ForCausalLM", dict(BASE), lambda f: byte_bpe(f, QWEN2), {"fp8": 24}),
    "qwen3moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", dict(BASE, **MOE), lambda f: byte_bpe(f, QWEN2), {}),
    "qwen3next": ("Qwen3NextConfig", "Qwen3NextForCausalLM", dict(BASE, **MOE, **SHARED, **LINEAR, partial_rotary_factor=0.5),
                  lambda f: byte_bpe(f, QWEN2), {"mtp": True}),
    "qwen35": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM",
               dict(BASE, **LINEAR, mtp_num_hidden_layers=1,
                    rope_parameters=dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.5,
                                         mrope_section=[2, 1, 1], mrope_interleaved=True)),
               lambda f: byte_bpe(f, QWEN35), {"mtp": True}),
    "qwen35moe": ("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM",
                  dict(BASE, **MOE, **SHARED, **LINEAR, mtp_num_hidden_layers=0,
                       rope_parameters=dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.5,
                                            mrope_section=[2, 1, 1], mrope_interleaved=True)),
                  lambda f: byte_bpe(f, QWEN35), {}),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM",
               dict(BASE, num_hidden_layers=3, layer_types=["sliding_attention", "sliding_attention", "full_attention"], sliding_window=8,
                    query_pre_attn_scalar=16, bos_token_id=2, eos_token_id=1, sliding_window_pattern=3,
                    rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                     "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0}}),
               lambda f: sentence_pieces(f, "bpe", True), {}),
    "gemma4": ("Gemma4TextConfig", "Gemma4ForCausalLM", gemma4(), char_bpe, {}),
    "gemma4-ple": ("Gemma4TextConfig", "Gemma4ForCausalLM",
                   {**gemma4(), "num_hidden_layers": 4, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 2,
                    "vocab_size_per_layer_input": N_TOKENS, "use_double_wide_mlp": True,
                    "layer_types": ["sliding_attention", "full_attention"] * 2}, char_bpe, {}),
    "gemma4-moe": ("Gemma4TextConfig", "Gemma4ForCausalLM",
                   gemma4(enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=32, attention_k_eq_v=True,
                          num_global_key_value_heads=1), char_bpe, {}),
    "gpt-oss": ("GptOssConfig", "GptOssForCausalLM",
                dict(BASE, num_local_experts=4, num_experts_per_tok=2, sliding_window=8, rope_parameters=gpt_oss_rope(),
                     initial_context_length=64, layer_types=["sliding_attention", "full_attention"]),
                lambda f: byte_bpe(f, GPT4O), {"mxfp4": True}),
    "gpt-oss-bf16": ("GptOssConfig", "GptOssForCausalLM",
                     dict(BASE, num_local_experts=4, num_experts_per_tok=2, sliding_window=8, rope_parameters=gpt_oss_rope(),
                          initial_context_length=64, layer_types=["sliding_attention", "full_attention"]),
                     lambda f: byte_bpe(f, GPT4O), {}),
}


def save_tensors(folder, tensors, shards):
    tensors = {name: t.contiguous() for name, t in tensors.items()}
    for old in folder.glob("model*.safetensors*"):
        old.unlink()
    if not shards:
        safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return
    names = sorted(tensors)
    half = len(names) // 2
    weight_map = {}
    for i, part in enumerate((names[:half], names[half:])):
        file = f"model-{i + 1:05}-of-00002.safetensors"
        safetensors.torch.save_file({n: tensors[n] for n in part}, folder / file, {"format": "pt"})
        weight_map.update({n: file for n in part})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}, indent=1))


def make(name):
    config_class, model_class, values, make_tokenizer, options = MODELS[name]
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    torch.manual_seed(1)
    config = getattr(transformers, config_class)(**values)
    config._attn_implementation = "eager"
    model = getattr(transformers, model_class)(config).float().eval()
    randomize(model, generator)
    # Of a copy: the buffers of RoPE would be rounded too.
    copy.deepcopy(model).to(options.get("dtype", torch.bfloat16)).save_pretrained(folder)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    if options.get("mtp"):
        tensors = with_mtp(tensors, generator)
    config_json = json.loads((folder / "config.json").read_text())
    if options.get("mxfp4"):
        tensors = with_mxfp4(tensors, generator)
        load_mxfp4(model, tensors)
        config_json["quantization_config"] = {"quant_method": "mxfp4"}
    if block := options.get("fp8"):
        tensors = with_fp8(tensors, model, block)
        config_json["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [block, block],
                                              "activation_scheme": "dynamic", "fmt": "e4m3"}
    (folder / "config.json").write_text(json.dumps(config_json, indent=1) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(
        {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "bos_token_id": config.bos_token_id,
         "eos_token_id": [config.eos_token_id, 3]}) + "\n")
    save_tensors(folder, tensors, options.get("shards"))
    make_tokenizer(folder)
    tokens = torch.randint(4, 256, (1, 24), generator=generator)
    with torch.no_grad():
        logits = model(input_ids=tokens, use_cache=False).logits[0].float()
    positions = [0, 11, 23]
    logits[positions].numpy().astype(np.float32).tofile(folder / "expected.f32")
    (folder / "expected.json").write_text(json.dumps({"tokens": tokens[0].tolist(), "positions": positions,
                                                      "transformers": transformers.__version__,
                                                      "encoded": encoded_texts(folder)}, ensure_ascii=False) + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size / 1024:.0f} KB, std of logits {logits.std():.3f}", {f.name: f.stat().st_size for f in folder.iterdir()})


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name)
