#!/usr/bin/env python3
"""Compares two backends: N greedy tokens of a model must be equal except for near-ties.

  compare_greedy.py ZINC MODEL.gguf BACKEND [N]

The CPU backend's tokens are the reference. The other backend is teacher-forced with them, one decode step per token, and the
logits of both are compared at every step: they may differ by 15 % of the logits' standard deviation (L2, means removed), the
oracle's tolerance for 8-bit activations. If the argmax differs, the margin of the CPU's token must be within four standard
deviations of that step's differences (a near-tie). Exit code 1 for a larger margin or a larger difference.
"""
import json
import math
import operator
import os
import subprocess
import sys
import tempfile
from array import array

MAX_RELATIVE = 0.15
MAX_DEVIATIONS = 4
PROMPT = [(i * 79 + 11) % 200 for i in range(48)]


def evaluate(zinc, model, backend, *decode):
    """The greedy tokens after the prompt, and the logits of each step (one row unless the tokens are given)."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits.f32")
        command = [zinc, "debug", "eval", model, "--backend", backend, *decode, "--logits-out", out,
                   "--tokens", ",".join(map(str, PROMPT))]
        report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        logits = array("f")
        with open(out, "rb") as file:
            logits.frombytes(file.read())
    return report["greedy"], logits


def std(values):
    """Standard deviation."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((x - mean) ** 2 for x in values) / len(values))


def main(zinc, model, backend, n="256"):
    n = int(n)
    expected, _ = evaluate(zinc, model, "cpu", "--greedy", str(n))
    path = ",".join(map(str, expected))
    ours, theirs = (evaluate(zinc, model, b, "--follow", path) for b in (backend, "cpu"))
    assert theirs[0] == expected, "the CPU backend is not deterministic"
    vocabulary = len(ours[1]) // n
    largest, ties = 0.0, []
    for i, (got, want) in enumerate(zip(ours[0], expected)):
        row = slice(i * vocabulary, (i + 1) * vocabulary)
        our_row, their_row = ours[1][row], theirs[1][row]
        difference = std(array("f", map(operator.sub, our_row, their_row)))
        relative = difference / std(their_row)
        largest = max(largest, relative)
        if not relative < MAX_RELATIVE:
            print(f"token {i}: the logits differ by {relative:.4f} of their standard deviation")
            return 1
        if got == want:
            continue
        margin = (their_row[want] - their_row[got]) / (difference * math.sqrt(2))  # two logits, each with an error
        print(f"token {i}: {backend} chose {got}, cpu {want}, with a margin of {margin:.2f} standard deviations")
        if margin > MAX_DEVIATIONS:
            print("this is not a near-tie")
            return 1
        ties.append(margin)
    print(f"{n} greedy tokens of {os.path.basename(model)}: {backend} equals cpu except for {len(ties)} near-ties "
          f"(up to {max(ties, default=0):.2f} standard deviations); logits within {largest:.4f} of their standard deviation")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
