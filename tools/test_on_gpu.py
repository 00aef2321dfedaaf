#!/usr/bin/env python3
"""Runs all tests that need a real GPU, in parallel:

  test_on_gpu.py BUILD BACKEND [--model MODEL.gguf] [--sanitizer PROGRAM] [--jobs N] [--only PART,...]

BUILD is a build folder, BACKEND `cuda` or `vulkan`. Parts:

  cases    op by op against the reference backend (backend_conformance_test)
  steps    batches, prefill chunks, rollbacks, drafts (step_test)
  oracle   recorded logits of every available model (oracle_test)
  serving  the engine: batches, forks of a conversation, cancellations (device_serving_test)
  sampling device sampling, and steps that run ahead of the host
  checks   compute-sanitizer's memcheck and racecheck over tiny models (cuda, with --sanitizer); racecheck needs 10 to 75
           GB of memory per process (gemma3) and is killed silently if there is less: use --jobs 1
  greedy   256 greedy tokens against the CPU backend (with --model; tools/compare_greedy.py)
  memory   the device memory of an engine is what it planned, within 1 % (with --model: of 2 GB or more, since the driver
           rounds up each allocation). Runs before the others and alone: it measures the free memory of the GPU

Kernels are compiled once, into a folder shared by all processes. A test program that ran no test counts as failed; one
of its shards may be empty. Exit code 1: a process failed, or a program ran no test. The failures that a process reports
are printed, and the end of its output.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "tests/data/oracle/models"
# Racecheck warns about a router's mbarriers in shared memory, which lane 0 of a warp initializes and uses: only errors count.
SUMMARIES = {"memcheck": r"ERROR SUMMARY: 0 errors", "racecheck": r"RACECHECK SUMMARY: \d+ hazards displayed \(0 errors"}
PROMPT = ",".join(str((i * 37 + 5) % 250) for i in range(70))  # more than 64: whole scan chunks of the gated delta rule


class Job:
    def __init__(self, part, name, command, proof, **environment):
        self.part, self.name, self.command, self.proof = part, name, [str(word) for word in command], proof
        self.environment = environment
        self.counts_tests = re.compile(proof).groups > 0  # the proof captures the number of tests

    def run(self, shared):
        begin = time.monotonic()
        done = subprocess.run(self.command, env={**os.environ, **shared, **self.environment}, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        found = re.findall(self.proof, done.stdout)
        passed = done.returncode == 0 and found and "SKIPPED" not in done.stdout
        count = sum(int(n) for n in found if n.isdigit())
        return self, passed, count, time.monotonic() - begin, done.stdout


def shards(part, program, filter, n):
    for i in range(n):
        yield Job(part, f"{program.name} {i + 1}/{n}", [program, f"--gtest_filter={filter}"], r"PASSED  . (\d+)",
                  GTEST_TOTAL_SHARDS=str(n), GTEST_SHARD_INDEX=str(i))


def jobs_of(parts, options):
    build, backend = options.build, options.backend
    cases = f"All/Conformance.*/{backend}_*"
    if backend == "cuda":
        cases += ":GpuTest.*:Device*:*GemmSmall*:*DeltaLayerTest*:*MoeKernels*"
    else:
        cases += f":All/VulkanFewRows.*/{backend}_*:All/VulkanDeltaLayer.*/{backend}_*"
    others = f"-*{backend}_llvmpipe*:*{backend}_emulated*"
    all_jobs = [
        *shards("steps", build / "step_test", f"*/{backend}_*{others}", 6),
        *shards("oracle", build / "oracle_test", f"*/{backend}_*{others}", 4),
        *shards("cases", build / "backend_conformance_test", cases + others, 4),
        *shards("serving", build / "device_serving_test", f"*/{backend}_*{others}", 1),
    ]
    for name in ("device_sampling_test", "device_sampling_engine_test"):
        all_jobs += shards("sampling", build / name, f"*/{backend}*{others}", 1)
    if backend == "cuda" and options.sanitizer:
        for model in sorted(MODELS.glob("*.gguf")):
            for tool, proof in SUMMARIES.items():
                command = [options.sanitizer, "--tool", tool, build / "zinc", "debug", "eval", model,
                           "--backend", "cuda", "--tokens", PROMPT, "--greedy", "4"]
                all_jobs.append(Job("checks", f"{tool} {model.stem}", command, proof))
    if options.model:
        command = [sys.executable, ROOT / "tools/compare_greedy.py", build / "zinc", options.model, backend]
        all_jobs.append(Job("greedy", options.model.stem, command, r".+"))
    return [job for job in all_jobs if not parts or job.part in parts]


def lone_jobs_of(parts, options):
    """Jobs that no other process may disturb."""
    if not options.model or (parts and "memory" not in parts):
        return []
    command = [options.build / "model_memory_test", "--gtest_filter=Real/GpuMemoryTest.*"]
    return [Job("memory", options.model.stem, command, r"PASSED  . (\d+)", ZINC_TEST_MODEL=str(options.model.resolve()),
                ZINC_TEST_BACKEND=options.backend)]


def failures_of(output, n_end=40):
    """gtest's failure messages, the list of failed tests, and the last lines, which say more if the process crashed."""
    lines = output.splitlines()
    chosen, in_message = [], False
    for i, line in enumerate(lines):
        if re.search(r": Failure$", line):
            in_message = True
        elif re.match(r"\[ +(RUN|OK) +\]|\[[-=]{10}\]", line):
            in_message = False
        if in_message or line.startswith("[  FAILED  ]") or i >= len(lines) - n_end:
            chosen.append(line)
        elif chosen and chosen[-1] != "...":
            chosen.append("...")
    return "\n".join(chosen)


def results_of(jobs, lone_jobs, shared, pool):
    """As they end: first the lone jobs, one after the other, then the others in parallel."""
    for job in lone_jobs:
        yield job.run(shared)
    for done in concurrent.futures.as_completed([pool.submit(job.run, shared) for job in jobs]):
        yield done.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda path: Path(path).resolve())
    parser.add_argument("backend", choices=["cuda", "vulkan"])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--sanitizer")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    options = parser.parse_args()
    jobs, lone_jobs = jobs_of(options.only, options), lone_jobs_of(options.only, options)
    n_failed = 0
    totals, program_tests = {}, {}
    with tempfile.TemporaryDirectory() as cache, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        shared = {"ZINC_TEST_CACHE": cache, "XDG_CACHE_HOME": cache}
        for job, passed, count, seconds, output in results_of(jobs, lone_jobs, shared, pool):
            print(f"{'ok    ' if passed else 'FAILED'} {job.part:8} {job.name}: {count or ''} {seconds:.0f} s", flush=True)
            part = totals.setdefault(job.part, [0, 0, 0])
            part[0] += 1
            part[1] += passed
            part[2] += count
            if job.counts_tests:
                program = Path(job.command[0]).name
                program_tests[program] = program_tests.get(program, 0) + count
            if not passed:
                n_failed += 1
                print(failures_of(output), flush=True)
            elif job.part == "greedy":
                print(output, flush=True)
    for name, (n, n_passed, count) in sorted(totals.items()):
        print(f"{name}: {n_passed} of {n} processes passed" + (f", {count} tests passed" if count else ""))
    for program in sorted(program for program, count in program_tests.items() if count == 0):
        n_failed += 1
        print(f"FAILED {program}: no test passed")
    if not jobs and not lone_jobs:
        print("nothing to run")
    return 1 if n_failed or not (jobs or lone_jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
