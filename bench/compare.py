#!/usr/bin/env python3
"""Compares programs that take turns, so that a temporary slowdown of the machine affects all of them:

  compare.py PROGRAM [PROGRAM...] -- MODEL [MODEL...] -- [option of zinc bench...]

Each round runs `zinc bench --json -r 1` of every program for every model; the first program is the baseline. Prints the median
of ROUNDS (environment, default 3) rounds in tokens per second, the spread, and the ratio. A ratio within the spreads is noise.
Within a round the programs run one after the other for each model, so that its file is in the page cache for all of them.
"""
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median


def split(words):
    """The three lists separated by --."""
    lists = [[]]
    for word in words:
        if word == "--" and len(lists) < 3:
            lists.append([])
        else:
            lists[-1].append(word)
    return lists


def rates(program, model, options):
    """(prompt, generated, depth) -> tokens per second and fraction of the device's bandwidth, of one run."""
    run = subprocess.run([program, "bench", model, "--json", "-r", "1", *options], stdout=subprocess.PIPE, text=True)
    if run.returncode != 0:
        return {}
    return {(row["n_prompt"], row["n_gen"], row["depth"]): (row["tokens_per_second"], row["bandwidth_share"])
            for row in json.loads(run.stdout)}


def name_of(test):
    n_prompt, n_gen, depth = test
    return (f"pp{n_prompt}" if n_prompt else f"tg{n_gen}") + (f" at {depth}" if depth else "")


def main(words):
    programs, models, options = (split(words) + [[], []])[:3]
    if not programs or not models:
        sys.exit(__doc__)
    seen = defaultdict(list)  # (model, test, program) -> samples
    n_failed = 0
    for _ in range(int(os.environ.get("ROUNDS", "3"))):
        for model in models:
            for program in programs:
                found = rates(program, model, options)
                n_failed += not found
                for test, sample in found.items():
                    seen[model, test, program].append(sample)
    print("| model | test | program | tok/s | spread | of bandwidth | ratio |\n|---|---|---|--:|--:|--:|--:|")
    for model, test in dict.fromkeys((model, test) for model, test, _ in seen):
        first = None
        for program in programs:
            samples = seen.get((model, test, program))
            if not samples:
                continue
            values = [value for value, _ in samples]
            middle = median(values)
            first = first or middle
            share = samples[0][1]
            print(f"| {Path(model).stem} | {name_of(test)} | {program} | {middle:,.1f} | {(max(values) - min(values)) / middle:.1%} "
                  f"| {'' if share is None else f'{share:.0%}'} | {middle / first:.3f} |", flush=True)
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
