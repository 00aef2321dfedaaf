#!/usr/bin/env python3
"""Runs tests of a build folder with ctest and fails where one failed, or was skipped without being allowed to be.

  run_tests.py BUILD [--ring RING,...] [--label LABEL] [--jobs N] [--allowed FILE]

RING is a ctest label: unit (every folder's own tests), e2e (whole models and the program), maintainer (compilers, emulated
GPUs), exhaustive (all cases on all emulated GPUs, too long for CI). Without --ring every test runs; --label narrows further
(sanitized, threaded).

A skip is a test that ctest reports as skipped, or a case that a program of gtest or of Python's unittest skips while the program
passes. Each must match a line of tools/allowed_skips.txt:   PATTERN  REASON   where PATTERN is a glob over `test` or
`test/Suite.case`.

Ends with a table: ring, tests, cases, seconds, skipped; below it each skip with its reason.
"""
import argparse
import collections
import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from pathlib import Path

RINGS = ("unit", "e2e", "maintainer", "exhaustive")
SKIPPED_CASE = re.compile(r"^\[  SKIPPED \] ([^\s,]+)(?:, where .*)? \(\d+ ms\)$", re.MULTILINE)
SKIP_REASON = re.compile(r"^\S+:\d+: Skipped\n(.*?)\n\n?\[  SKIPPED \] ([^\s,]+)(?:, where .*)? \(\d+ ms\)$",
                         re.MULTILINE | re.DOTALL)
UNITTEST_CASE = re.compile(r"^(\w+) \((?:__main__\.)?(\w+)[^)\n]*\)(?:\n[^\n]*)?? \.\.\. skipped (['\"])(.*)\3$", re.MULTILINE)
UNITTEST_SKIPS = re.compile(r"^(?:OK|FAILED) \([^)\n]*\bskipped=(\d+)", re.MULTILINE)
CASES = re.compile(r"^\[==========\] (\d+) tests? from .* ran\.", re.MULTILINE)


def read_allowed(path):
    """[(pattern, reason)] of the list of allowed skips."""
    allowed = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        pattern, _, reason = line.partition("  ")
        if not reason.strip():
            sys.exit(f"{path}:{number}: a pattern needs a reason, two spaces behind it")
        allowed.append((pattern, reason.strip()))
    return allowed


def labels_of_tests(build):
    """{ctest name: set of labels}"""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
    labels = {}
    for test in json.loads(shown.stdout)["tests"]:
        found = [p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"]
        labels[test["name"]] = set(found[0]) if found else set()
    return labels


def run_ctest(build, rings, label, jobs):
    """(exit code, [junit testcase elements])"""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = ["ctest", "--test-dir", build, "--output-on-failure", "-j", str(jobs), "--no-tests=error",
                   "--output-junit", report, "--test-output-size-passed", "100000000"]
        if rings:
            command += ["-L", f"^({'|'.join(rings)})$"]
        if label:
            command += ["-L", f"^{label}$"]
        code = subprocess.run(command).returncode
        cases = list(xml.etree.ElementTree.parse(report).getroot().iter("testcase")) if report.exists() else []
    return code, cases


def unittest_skips(output):
    r'''[(Class.case, why)] of what a program of Python's unittest skipped.

    >>> unittest_skips("""test_a (__main__.Dist.test_a)
    ... Its description. ... skipped 'no qemu'
    ... test_b (__main__.Dist.test_b) ... ok
    ... test_c (__main__.Dist) ... skipped "it's late"
    ...
    ... OK (skipped=2)""")
    [('Dist.test_a', 'no qemu'), ('Dist.test_c', "it's late")]
    >>> unittest_skips("..s\nRan 3 tests in 0.1s\n\nOK (skipped=1)\n")
    [('1 cases', 'unittest does not name them: run it with verbosity=2')]
    '''
    found = [(f"{suite}.{case}", why) for case, suite, _, why in UNITTEST_CASE.findall(output)]
    n_unnamed = sum(int(n) for n in UNITTEST_SKIPS.findall(output)) - len(found)
    return found + ([(f"{n_unnamed} cases", "unittest does not name them: run it with verbosity=2")] if n_unnamed > 0 else [])


def skips_of(case):
    """[(name, why)] of what this ctest entry skipped: itself, or cases of its program."""
    name, output = case.get("name"), (case.findtext("system-out") or "")
    skipped = case.find("skipped")
    if skipped is not None or case.get("status") in ("notrun", "disabled"):
        lines = [line for line in output.strip().splitlines() if line.strip()]
        return [(name, lines[-1].strip() if lines else (skipped.get("message") if skipped is not None else "not run"))]
    reasons = {suite_case: " ".join(why.split()) for why, suite_case in SKIP_REASON.findall(output)}
    skips = [(c, reasons.get(c, "skipped without a reason")) for c in dict.fromkeys(SKIPPED_CASE.findall(output))]
    return [(f"{name}/{c}", why) for c, why in skips + unittest_skips(output)]


def ring_of(labels):
    return next((ring for ring in RINGS if ring in labels), "none")


def print_table(cases, labels, skips_by_test):
    rows = collections.defaultdict(lambda: [0, 0, 0.0, 0])
    for case in cases:
        row = rows[ring_of(labels.get(case.get("name"), set()))]
        row[0] += 1
        row[1] += sum(int(n) for n in CASES.findall(case.findtext("system-out") or ""))
        row[2] += float(case.get("time") or 0)
        row[3] += len(skips_by_test.get(case.get("name"), []))
    print(f"\n{'ring':<12}{'tests':>7}{'cases':>8}{'seconds':>10}{'skipped':>9}")
    for ring in (*RINGS, "none"):
        if ring in rows:
            n, n_cases, seconds, n_skipped = rows[ring]
            print(f"{ring:<12}{n:>7}{n_cases:>8}{seconds:>10.1f}{n_skipped:>9}")


def print_skips(skips, allowed):
    """Prints skips grouped by reason; returns how many are not allowed."""
    n_refused = 0
    groups = collections.defaultdict(list)
    for name, why in skips:
        reason = next((r for pattern, r in allowed if fnmatch.fnmatchcase(name, pattern)), None)
        groups[(reason is not None, reason or why)].append((name, why))
    for (is_allowed, reason), members in sorted(groups.items(), reverse=True):
        print(f"{'skipped' if is_allowed else 'SKIPPED, NOT ALLOWED'}: {len(members)} x {reason}")
        shown = members[:3] if is_allowed else members
        for name, why in shown:
            print(f"    {name}: {why}")
        if len(members) > len(shown):
            print(f"    and {len(members) - len(shown)} more")
        n_refused += 0 if is_allowed else len(members)
    return n_refused


def main():
    root = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--ring", type=lambda text: text.split(","), default=[])
    parser.add_argument("--label")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--allowed", type=Path, default=root / "allowed_skips.txt")
    options = parser.parse_args()
    allowed = read_allowed(options.allowed)
    labels = labels_of_tests(options.build)
    without_ring = sorted(name for name, its in labels.items() if ring_of(its) == "none")
    begin = time.monotonic()
    code, cases = run_ctest(options.build, options.ring, options.label, options.jobs)
    skips_by_test = {case.get("name"): found for case in cases if (found := skips_of(case))}
    print_table(cases, labels, skips_by_test)
    n_refused = print_skips([skip for found in skips_by_test.values() for skip in found], allowed)
    print(f"wall clock: {time.monotonic() - begin:.0f} s on {options.jobs} jobs")
    failed = sorted(case.get("name") for case in cases if case.find("failure") is not None)
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    if n_refused:
        print(f"FAILED: {n_refused} skips that tools/allowed_skips.txt does not allow")
    if without_ring:
        print(f"FAILED: tests without a ring's label: {', '.join(without_ring)}")
    return 1 if code or n_refused or without_ring else 0


if __name__ == "__main__":
    sys.exit(main())
