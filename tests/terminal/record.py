#!/usr/bin/env python3
"""Records docs/images/terminal.svg again, with the real default model:

    record.py ZINC

Types the commands below into a shell on a pseudo terminal, keeps what appears with its times (an asciicast) and renders it with
termtosvg, which is installed into a temporary environment. Nothing is edited. Run it on an idle machine, once the default model is
installed.
"""
import fcntl
import json
import os
import pathlib
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERMTOSVG = "termtosvg==1.1.0"
COLUMNS, ROWS = 96, 22
KEY_S, PAUSE_S, LIMIT_S, LAST_S, FRAME_MS = 0.03, 1.2, 120, 4, 80
PROMPT = "\x1b[32m$\x1b[0m "
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "country": {"type": "string"}},
          "required": ["name", "country"]}
COMMANDS = [
    "zinc run 'Explain in two sentences why the sky is blue.' --seed 7",
    "cat note.txt | zinc run 'Answer in one sentence: what arrived, and where?' --seed 1",
    "zinc run --json-schema city.json 'The capital of France, as JSON.' --seed 1",
    "clear; zinc list --installed",
    "zinc check qwen3-8b | tail -7",
]


class Recording:
    """A shell on a pseudo terminal; `events` are those of an asciicast of version 2."""

    def __init__(self, folder, zinc):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "PS1": r"\[\e[32m\]$\[\e[0m\] ",
                       "PATH": f"{pathlib.Path(zinc).resolve().parent}:{os.environ['PATH']}"}
        self.shell = subprocess.Popen(["bash", "--norc", "--noprofile", "-i"], stdin=theirs, stdout=theirs, stderr=theirs,
                                      cwd=folder, env=environment, start_new_session=True,
                                      preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        self.events, self.start = [], time.monotonic()

    def read(self, until, limit_s):
        """Reads for `limit_s`, or until the output ends with `until`."""
        end, seen = time.monotonic() + limit_s, ""
        while time.monotonic() < end and not (until and seen.endswith(until)):
            if not select.select([self.ours], [], [], 0.02)[0]:
                continue
            piece = os.read(self.ours, 65536).decode(errors="replace")
            self.events.append([time.monotonic() - self.start, "o", piece])
            seen += piece
        if until and not seen.endswith(until):
            sys.exit(f"no prompt after {limit_s} s:\n{seen}")

    def type(self, command):
        for key in command:
            os.write(self.ours, key.encode())
            self.read("", KEY_S)
        os.write(self.ours, b"\r")
        self.read(PROMPT, LIMIT_S)
        self.read("", PAUSE_S)


def record(folder, zinc):
    (folder / "note.txt").write_text("The ship arrived in Hamburg this morning with 400 containers of bananas.\n")
    (folder / "city.json").write_text(json.dumps(SCHEMA))
    recording = Recording(folder, zinc)
    recording.read(PROMPT, LIMIT_S)
    for command in COMMANDS:
        recording.type(command)
    recording.shell.kill()
    header = {"version": 2, "width": COLUMNS, "height": ROWS}
    cast = folder / "terminal.cast"
    cast.write_text("\n".join(json.dumps(line) for line in [header, *recording.events]) + "\n")
    return cast


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    venv.create(folder / "venv", with_pip=True)
    subprocess.run([folder / "venv/bin/pip", "install", "-q", "setuptools<81", TERMTOSVG], check=True)
    cast = record(folder, sys.argv[1])
    subprocess.run([folder / "venv/bin/termtosvg", "render", cast, ROOT / "docs/images/terminal.svg", "-t", "window_frame",
                    "-m", str(FRAME_MS), "-D", str(LAST_S * 1000)], check=True)
