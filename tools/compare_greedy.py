#!/usr/bin/env python3
"""Whether two backends say the same: N greedy tokens of a model on both, outside near-ties.

  compare_greedy.py ZINC MODEL.gguf BACKEND [N]

The CPU backend's tokens are the expectation. Where the other one chooses differently, both backends' logits at that place
are read; if the two best lie closer together than twice the largest difference between the backends' logits, it is a
near-tie, and the comparison goes on behind the CPU's choice. Exit code 1: they differ anywhere else.
"""
import json
import os
import subprocess
import sys
import tempfile
from array import array

PROMPT = [(i * 79 + 11) % 200 for i in range(48)]


def evaluate(zinc, model, backend, tokens, n_greedy):
    """The greedy tokens after `tokens`, and the logits right after them."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits.f32")
        command = [zinc, "debug", "eval", model, "--backend", backend, "--greedy", str(n_greedy), "--logits-out", out,
                   "--tokens", ",".join(map(str, tokens))]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        logits = array("f")
        with open(out, "rb") as file:
            logits.frombytes(file.read())
    return report["greedy"], logits


def main(zinc, model, backend, n="256"):
    n = int(n)
    expected, _ = evaluate(zinc, model, "cpu", PROMPT, n)
    done, ties = 0, 0
    while done < n:
        got, _ = evaluate(zinc, model, backend, PROMPT + expected[:done], n - done)
        equal = next((i for i, pair in enumerate(zip(got, expected[done:])) if pair[0] != pair[1]), n - done)
        done += equal
        if done == n:
            break
        here = PROMPT + expected[:done]
        ours, theirs = (evaluate(zinc, model, b, here, 1)[1] for b in (backend, "cpu"))
        difference = max(abs(a - b) for a, b in zip(ours, theirs))
        best = sorted(theirs, reverse=True)[:2]
        print(f"token {done}: {backend} says {got[equal]}, cpu {expected[done]}; the best two are {best[0] - best[1]:.5f} "
              f"apart, the backends {difference:.5f}")
        if best[0] - best[1] >= 2 * difference:
            print("this is no near-tie")
            return 1
        ties += 1
        done += 1
    print(f"{n} greedy tokens of {os.path.basename(model)}: {backend} equals cpu, {ties} near-ties aside")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
