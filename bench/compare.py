#!/usr/bin/env python3
"""Compares programs that take turns, so that a temporary slowdown of the machine affects all of them:

  compare.py PROGRAM [PROGRAM...] -- MODEL [MODEL...] -- [option of zinc bench...]

Each round runs `zinc bench --json -r 1` of every program for every model; the first program is the baseline. Prints the median
of ROUNDS (environment, default 3) rounds in tokens per second, the spread, the ratio, and in how many rounds the program was faster
than the baseline. A ratio within the spreads is noise; the same program given twice (A/A) shows how much. Below the table: the hash
and the commit of each program, and the clocks its runs had.
Within a round the programs run one after the other for each model, so that its file is in the page cache for all of them.
"""
import hashlib
import json
import os
import shutil
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


def hash_of(program):
    with open(shutil.which(program) or program, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:12]


def rates(program, model, options):
    """(prompt, generated, depth) -> tokens per second, fraction of the device's bandwidth, commit and clocks, of one run."""
    run = subprocess.run([program, "bench", model, "--json", "-r", "1", *options], stdout=subprocess.PIPE, text=True)
    if run.returncode != 0:
        return {}
    return {(row["n_prompt"], row["n_gen"], row["depth"]): row for row in json.loads(run.stdout)}


def name_of(test):
    n_prompt, n_gen, depth = test
    return (f"pp{n_prompt}" if n_prompt else f"tg{n_gen}") + (f" at {depth}" if depth else "")


def main(words):
    programs, models, options = (split(words) + [[], []])[:3]
    if not programs or not models:
        sys.exit(__doc__)
    seen = defaultdict(list)  # (model, test, index of the program) -> rows of zinc bench
    n_failed = 0
    for _ in range(int(os.environ.get("ROUNDS", "3"))):
        for model in models:
            for i, program in enumerate(programs):
                found = rates(program, model, options)
                n_failed += not found
                for test, row in found.items():
                    seen[model, test, i].append(row)
    print("| model | test | program | tok/s | spread | of bandwidth | ratio | rounds won |\n|---|---|---|--:|--:|--:|--:|--:|")
    for model, test in dict.fromkeys((model, test) for model, test, _ in seen):
        first = None
        for i, program in enumerate(programs):
            samples = seen.get((model, test, i))
            if not samples:
                continue
            values = [row["tokens_per_second"] for row in samples]
            middle = median(values)
            first = first or values
            won = "" if i == 0 else f"{sum(a > b for a, b in zip(values, first))} of {len(values)}"
            share = samples[0]["bandwidth_share"]
            print(f"| {Path(model).stem} | {name_of(test)} | {program} | {middle:,.1f} | {(max(values) - min(values)) / middle:.1%} "
                  f"| {'' if share is None else f'{share:.0%}'} | {middle / median(first):.3f} | {won} |", flush=True)
    for i, program in enumerate(programs):
        rows = [row for (_, _, index), samples in seen.items() if index == i for row in samples]
        clocks = [mhz for row in rows for mhz in row.get("clock_mhz", [])]
        print(f"{program}: sha256 {hash_of(program)}, commit {rows[0]['commit'] if rows else '?'}, clocks "
              + (f"{min(clocks):.0f} to {max(clocks):.0f} MHz" if clocks else "unknown"))
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
