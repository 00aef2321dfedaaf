#!/usr/bin/env python3
"""What zinc writes for other programs: `check --json` against its schema, completions in their shells, the man page.

    pages.py ZINC SOURCE_FOLDER

A shell that is not installed is named as skipped.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import jsonschema

ZINC, SOURCE = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
MODELS = SOURCE / "tests" / "data" / "oracle" / "models"
SCHEMA = json.loads((SOURCE / "docs" / "check.schema.json").read_text())


def run(*words, **environment):
    return subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


class Pages(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="zinc-pages-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.clean = {"HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)}

    def check(self, *words):
        end = run(ZINC, "check", "--json", *words, **self.clean)
        report = json.loads(end.stdout)
        jsonschema.validate(report, SCHEMA)
        self.assertEqual(end.returncode, 1 if report["verdict"] == "fail" else 0)
        return report

    def test_check_describes_models_of_every_kind(self):
        for file in sorted(MODELS.glob("*.gguf"))[::4]:
            model = self.check(str(file))["model"]
            self.assertEqual(model["path"], str(file))
            self.assertGreaterEqual(file.stat().st_size, model["weight_bytes"])

    def test_memory_of_the_context_grows_by_the_bytes_of_a_position(self):
        file = str(MODELS / "llama-q8_0.gguf")
        small, large = self.check(file, "-c", "32")["model"], self.check(file, "-c", "96")["model"]
        self.assertEqual(large["cache_bytes"] - small["cache_bytes"], 64 * small["cache_bytes_per_token"])

    def test_check_without_a_model_warns_and_says_what_to_do(self):
        report = self.check()
        self.assertIsNone(report["model"])
        self.assertEqual(report["verdict"], "warn")
        self.assertIn("zinc pull smollm2-135m-instruct", [line["hint"] for line in report["checks"]])

    def test_check_of_what_is_no_model_fails(self):
        bad = self.folder / "bad.gguf"
        bad.write_text("no model")
        self.assertEqual(self.check(str(bad))["verdict"], "fail")
        self.assertEqual(self.check("no-such-model")["verdict"], "fail")

    def test_check_has_a_line_for_each_finding(self):
        end = run(ZINC, "check", str(MODELS / "qwen2-f16.gguf"), **self.clean)
        self.assertRegex(end.stdout, r"(?m)^  OK   memory +\d+ bytes: \d+ weights, \d+ for \d+ positions")
        self.assertRegex(end.stdout, r"(?m)^(OK  |WARN) ready")
        self.assertNotIn("\x1b", end.stdout)

    def shell_words(self, shell, script):
        if not shutil.which(shell):
            self.skipTest(f"{shell} is not here")
        page = self.folder / f"zinc.{shell}"
        page.write_text(run(ZINC, "completion", shell).stdout)
        path = os.path.dirname(ZINC) + ":" + os.environ["PATH"]
        end = run(shell, *(["-f"] if shell == "zsh" else []), "-c", script.format(page=page), **self.clean, PATH=path)
        self.assertEqual(end.stderr, "")
        return end.stdout.split("\n")

    def test_bash_completes_commands_options_and_models(self):
        script = "source {page}; for line in 'zinc ch' 'zinc run --te' 'zinc debug ev' 'zinc chat smollm2-1' " \
                 "'zinc --vers'; do COMP_WORDS=($line); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _zinc; " \
                 "echo \"${{COMPREPLY[*]}}\"; done"
        self.assertEqual(self.shell_words("bash", script)[:5],
                         ["chat check", "--temp --temperature", "eval",
                          "smollm2-1.7b-instruct smollm2-135m-instruct", "--version"])

    def test_fish_completes_commands_options_and_models(self):
        script = "source {page}; complete -C 'zinc ch'; complete -C 'zinc run --temp'; complete -C 'zinc debug ev'; " \
                 "complete -C 'zinc chat smollm2-135'"
        words = [line.split("\t")[0] for line in self.shell_words("fish", script)]
        for word in ["chat", "check", "--temp", "--temperature", "eval", "smollm2-135m-instruct"]:
            self.assertIn(word, words)

    def test_zsh_completes_commands_and_options(self):
        script = "function compdef {{ }}; function _describe {{ print -l -- $entries }}; function compadd {{ print -l -- $models }};" \
                 " function _files {{ }}; source {page}; for line in 'zinc x' 'zinc run x' 'zinc debug x'; do " \
                 "words=(${{=line}}); CURRENT=$#words; _zinc; done"
        words = [line.split(":")[0] for line in self.shell_words("zsh", script)]
        for word in ["chat", "--temp", "--version", "eval", "smollm2-135m-instruct"]:
            self.assertIn(word, words)

    def test_completions_know_every_command_of_the_help(self):
        commands = re.findall(r"(?m)^  ([a-z]+) ", run(ZINC, "--help").stdout.split("Subcommands:")[1])
        self.assertIn("chat", commands)
        for shell in ["bash", "zsh", "fish"]:
            page = run(ZINC, "completion", shell).stdout
            for command in commands:
                self.assertRegex(page, rf"\b{command}\b")

    def test_the_man_page_is_well_formed_and_whole(self):
        page = run(ZINC, "completion", "man").stdout
        for word in ["SS zinc run", "SS zinc chat", "SS zinc check", "\\-\\-temp", "EXIT STATUS"]:
            self.assertIn(word, page)
        if not shutil.which("man"):
            self.skipTest("man is not here")
        file = self.folder / "zinc.1"
        file.write_text(page)
        end = run("man", "--warnings", "-l", str(file), MANWIDTH="100", LC_ALL="C.UTF-8", PAGER="cat", MANPAGER="cat")
        self.assertEqual(end.stderr, "")
        self.assertIn("--temperature", end.stdout)

    def test_help_is_readable(self):
        for command in ["run", "chat", "serve", "check", "bench"]:
            text = run(ZINC, command, "--help").stdout
            self.assertNotRegex(text, r"\[\d+ - \d+\]|1073741824", command)

    def test_what_was_mistyped_is_guessed(self):
        for words, meant in ((["chta"], "chat"), (["run", "--tmp", "0"], "--temp"), (["--versoin"], "--version"),
                             (["debug", "evl"], "eval"), (["show", "smolm2-135m-instruct"], "smollm2-135m-instruct")):
            end = run(ZINC, *words, **self.clean)
            self.assertNotEqual(end.returncode, 0)
            self.assertIn(meant, end.stderr)
            self.assertEqual(len(end.stderr.splitlines()), 1)

    def test_the_version_names_commit_and_backends(self):
        self.assertRegex(run(ZINC, "--version").stdout,
                         r"^zinc \d+\.\d+\.\d+ \([0-9a-z]+\)\nbackends: (\w+, )*cpu\b.* \(here: \w+\)\n$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
