#!/usr/bin/env python3
"""Lists files over 600 lines and functions over 70. Warns only: a long one needs a reader's second look, not a rule.

A file is exempt when its first line says that it is a data table or generated.
"""
import pathlib
import re
import subprocess
import sys

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
EXEMPT = re.compile(r"data table|generated", re.IGNORECASE)
# .clang-format puts a function's opening brace at the end of an unindented (or, in a class, indented) line that is no
# namespace, type or initializer, and its closing brace alone on a line at the same indentation.
OPENING = re.compile(r"^( *)(?!namespace|struct|class|union|enum|extern \"C\"|if|for|while|switch|else|do\b|try|catch)"
                     r"[^=]*\)[^=;]*\{$")


def function_lengths(lines):
    """Yields (first line number, name, number of lines) for each function definition."""
    i = 0
    while i < len(lines):
        match = OPENING.match(lines[i])
        if match:
            first = i
            while first > 0 and lines[first - 1].strip() and lines[first - 1].rstrip().endswith((",", "(")):
                first -= 1  # a signature over several lines
            indent = len(lines[first]) - len(lines[first].lstrip())  # the signature's, not its last line's
            if indent not in (0, 2):
                i += 1
                continue
            closing = " " * indent + "}"
            end = next((j for j in range(i + 1, len(lines)) if lines[j].startswith(closing)), len(lines) - 1)
            name = re.search(r"([\w:~]+)\(", " ".join(lines[first:i + 1]))
            yield first + 1, name[1] if name else "?", end - first + 1
            i = end
        i += 1


def findings(file):
    lines = pathlib.Path(file).read_text(errors="replace").splitlines()
    if lines and EXEMPT.search(lines[0]):
        return
    if len(lines) > MAX_FILE_LINES:
        yield f"{file}: {len(lines)} lines (aim 250, look twice above {MAX_FILE_LINES})"
    for number, name, n_lines in function_lengths(lines):
        if n_lines > MAX_FUNCTION_LINES:
            yield f"{file}:{number}: {name} has {n_lines} lines (aim 25, look twice above {MAX_FUNCTION_LINES})"


if __name__ == "__main__":
    tracked = subprocess.run(["git", "ls-files", "-z", "*.cc", "*.h"], check=True, capture_output=True, text=True)
    for name in filter(None, tracked.stdout.split("\0")):
        for finding in findings(name):
            print("look twice:", finding)
    sys.exit(0)
