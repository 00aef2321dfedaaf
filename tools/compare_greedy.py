#!/usr/bin/env python3
"""Whether two backends say the same: N greedy tokens of a model on both, outside near-ties.

  compare_greedy.py ZINC MODEL.gguf BACKEND [N]

The CPU backend's tokens are the expectation. The other backend is led along them, one step of one token each, and at every
step both backends' logits are compared: they may differ by 15 % of the logits' own spread (L2, means removed), which is
what the oracle allows for 8-bit activations. Where the other backend would choose differently, the CPU's lead of its choice
over the other's must be within four standard deviations of that step's differences: a near-tie. A lead that noise of this
size does not explain, or a larger difference anywhere: exit code 1.
"""
import json
import math
import operator
import os
import subprocess
import sys
import tempfile
from array import array

MOST_RELATIVE = 0.15
MOST_DEVIATIONS = 4
PROMPT = [(i * 79 + 11) % 200 for i in range(48)]


def evaluate(zinc, model, backend, *decode):
    """The greedy choices behind the prompt, and the logits before each (one row unless the choices are given)."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits.f32")
        command = [zinc, "debug", "eval", model, "--backend", backend, *decode, "--logits-out", out,
                   "--tokens", ",".join(map(str, PROMPT))]
        report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        logits = array("f")
        with open(out, "rb") as file:
            logits.frombytes(file.read())
    return report["greedy"], logits


def spread(values):
    """The root of the mean square around the mean."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((x - mean) ** 2 for x in values) / len(values))


def main(zinc, model, backend, n="256"):
    n = int(n)
    expected, _ = evaluate(zinc, model, "cpu", "--greedy", str(n))
    path = ",".join(map(str, expected))
    ours, theirs = (evaluate(zinc, model, b, "--follow", path) for b in (backend, "cpu"))
    assert theirs[0] == expected, "the CPU backend does not repeat itself"
    vocabulary = len(ours[1]) // n
    largest, ties = 0.0, []
    for i, (got, want) in enumerate(zip(ours[0], expected)):
        row = slice(i * vocabulary, (i + 1) * vocabulary)
        our_row, their_row = ours[1][row], theirs[1][row]
        difference = spread(array("f", map(operator.sub, our_row, their_row)))
        relative = difference / spread(their_row)
        largest = max(largest, relative)
        if not relative < MOST_RELATIVE:
            print(f"token {i}: the logits differ by {relative:.4f} of their spread")
            return 1
        if got == want:
            continue
        lead = (their_row[want] - their_row[got]) / (difference * math.sqrt(2))  # of two logits that each are off
        print(f"token {i}: {backend} says {got}, cpu {want}, {lead:.2f} standard deviations ahead")
        if lead > MOST_DEVIATIONS:
            print("this is no near-tie")
            return 1
        ties.append(lead)
    print(f"{n} greedy tokens of {os.path.basename(model)}: {backend} equals cpu but for {len(ties)} near-ties "
          f"(up to {max(ties, default=0):.2f} standard deviations); logits within {largest:.4f} of their spread")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
