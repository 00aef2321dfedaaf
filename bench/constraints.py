#!/usr/bin/env python3
"""Constrained decoding beside llguidance: time per token mask, schemas accepted, documents judged rightly.

    bench/constraints.py build/constraint_bench VOCABULARY.gguf TESTS_FOLDER

TESTS_FOLDER holds files of the JSON-Schema-Test-Suite ([{"schema", "tests": [{"data", "valid"}]}]), for example its
tests/draft2020-12. Needs the Python packages llguidance and numpy. Both sides get the same vocabulary and the same tokens;
documents are written by json.dumps. Times are CPU time of one thread, so that other work on the machine counts little.
"""
import json
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

# Documents are sampled, not parsed: a keyword about other drafts' files or the network is not part of the comparison.
LEFT_OUT = ("refRemote", "vocabulary", "dynamicRef", "anchor", "id", "infinite-loop-detection", "unknownKeyword")


def read_cases(folder):
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        if path.stem in LEFT_OUT:
            continue
        for group in json.loads(path.read_text()):
            texts = {True: [], False: []}
            for test in group["tests"]:
                texts[test["valid"]].append(json.dumps(test["data"], ensure_ascii=False))
            yield {"file": path.stem, "schema": group["schema"], "valid": texts[True], "invalid": texts[False]}


def read_vocabulary(path):
    """The tokens of a byte-level BPE vocabulary and their types, from the metadata of a GGUF file."""
    data = pathlib.Path(path).read_bytes()
    at = 8
    n_tensors, n_fields = struct.unpack_from("<QQ", data, at)
    at += 16
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def read_string(at):
        (n,) = struct.unpack_from("<Q", data, at)
        return data[at + 8:at + 8 + n].decode(), at + 8 + n

    def read_value(kind, at):
        if kind == 8:
            return read_string(at)
        if kind == 9:
            kind, n = struct.unpack_from("<IQ", data, at)
            at += 12
            out = []
            for _ in range(n):
                value, at = read_value(kind, at)
                out.append(value)
            return out, at
        return int.from_bytes(data[at:at + sizes[kind]], "little"), at + sizes[kind]

    fields = {}
    for _ in range(n_fields):
        name, at = read_string(at)
        (kind,) = struct.unpack_from("<I", data, at)
        fields[name], at = read_value(kind, at + 4)
    return fields


def byte_alphabet():
    """GPT-2's printable characters for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    out, n = {chr(b): b for b in plain}, 0
    for b in range(256):
        if b not in plain:
            out[chr(256 + n)] = b
            n += 1
    return out


class Vocabulary:
    """What llguidance's TokenizerWrapper asks for."""

    def __init__(self, path):
        fields = read_vocabulary(path)
        alphabet = byte_alphabet()
        types = fields["tokenizer.ggml.token_type"]
        self.tokens = []
        self.special_token_ids = []
        for i, text in enumerate(fields["tokenizer.ggml.tokens"]):
            is_special = types[i] == 3
            if is_special:
                self.special_token_ids.append(i)
            known = not is_special and all(c in alphabet for c in text)
            self.tokens.append(bytes(alphabet[c] for c in text) if known else text.encode())
        self.eos_token_id = fields["tokenizer.ggml.eos_token_id"]
        self.bos_token_id = None
        self.ids = {}
        for i, token in enumerate(self.tokens):
            self.ids.setdefault(token, i)
        self.longest = max(map(len, self.tokens))

    def __call__(self, text):  # longest match first: near the tokens of BPE, and the same for every mask
        data = text.encode() if isinstance(text, str) else text
        out = []
        while data:
            n = next(n for n in range(min(len(data), self.longest), 0, -1) if data[:n] in self.ids)
            out.append(self.ids[data[:n]])
            data = data[n:]
        return out


def run_llguidance(cases, vocabulary):
    import llguidance
    import llguidance.numpy
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary))
    mask = llguidance.numpy.allocate_token_bitmask(1, len(vocabulary.tokens))
    for case in cases:
        schema = case["schema"]
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
            matcher = llguidance.LLMatcher(tokenizer, grammar)
            error = matcher.get_error()
        except Exception as caught:  # noqa: BLE001: any failure is "not accepted"
            error = str(caught)
        if error:
            yield {"accepted": False, "error": error}
            continue
        out = {"accepted": True, "mask_us": []}
        for kind in ("valid", "invalid"):
            out[kind] = []
            for text in case[kind]:
                matcher = llguidance.LLMatcher(tokenizer, grammar)
                ok = True
                for token in [*vocabulary(text), vocabulary.eos_token_id]:
                    start = time.thread_time_ns()
                    llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
                    out["mask_us"].append((time.thread_time_ns() - start) / 1e3)
                    ok = bool(mask[0, token // 32] >> (token % 32) & 1) and matcher.consume_token(token)
                    if not ok:
                        break
                out[kind].append(ok)
        yield out


def summary(name, results):
    accepted = [r for r in results if r["accepted"]]
    times = sorted(t for r in accepted for t in r["mask_us"])
    n_valid = sum(len(r["valid"]) for r in accepted)
    n_invalid = sum(len(r["invalid"]) for r in accepted)
    right = sum(all(r["valid"]) and not any(r["invalid"]) for r in accepted)
    safe = sum(not any(r["invalid"]) for r in accepted)
    return (f"| {name} | {len(accepted)} of {len(results)} | {safe} | {right} | "
            f"{sum(sum(r['valid']) for r in accepted)} of {n_valid} | "
            f"{sum(sum(r['invalid']) for r in accepted)} of {n_invalid} | {statistics.median(times):.1f} | "
            f"{times[int(len(times) * 0.99)]:.0f} | {times[-1]:.0f} |")


def main():
    program, path, folder = sys.argv[1:]
    cases = list(read_cases(folder))
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(case, ensure_ascii=False) + "\n" for case in cases)
        file.flush()
        lines = subprocess.run([program, path, file.name], check=True, capture_output=True, text=True).stdout
    ours = [json.loads(line) for line in lines.splitlines()]
    theirs = list(run_llguidance(cases, Vocabulary(path)))
    print("| | schemas accepted | no invalid document allowed | all documents right | valid allowed | invalid allowed "
          "| median us | p99 us | max us |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    print(summary("zinc", ours))
    print(summary("llguidance", theirs))


if __name__ == "__main__":
    main()
