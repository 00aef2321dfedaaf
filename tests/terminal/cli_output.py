#!/usr/bin/env python3
"""Tests output for other programs: JSON against its schema, completions in their shells, the man page.

    cli_output.py ZINC SOURCE_FOLDER

The shells and man must be installed (tools/install_deps.sh test).
"""
import functools
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

import jsonschema

ZINC, SOURCE = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
MODELS = SOURCE / "tests" / "data" / "oracle" / "models"
SCHEMA = json.loads((SOURCE / "docs" / "check.schema.json").read_text())
MODELS_SCHEMA = json.loads((SOURCE / "docs" / "models.schema.json").read_text())


def run(*words, **environment):
    return subprocess.run(words, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})


class CliOutput(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="zinc-cli-output-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.clean = {"HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder),
                      "FORCE_COLOR": "", "NO_COLOR": ""}

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
            self.assertEqual(file.stat().st_size, model["weight_bytes"])

    def test_cache_bytes_grow_by_cache_bytes_per_token(self):
        file = str(MODELS / "llama-q8_0.gguf")
        small, large = self.check(file, "-c", "32")["model"], self.check(file, "-c", "96")["model"]
        self.assertEqual(large["cache_bytes"] - small["cache_bytes"], 64 * small["cache_bytes_per_token"])

    def test_check_without_a_model_warns_and_says_what_to_do(self):
        report = self.check()
        self.assertIsNone(report["model"])
        self.assertEqual(report["verdict"], "warn")
        self.assertIn("zinc pull smollm2-135m-instruct", [line["hint"] for line in report["checks"]])

    def hint(self, *words):
        return next(line for line in self.check(*words)["checks"] if line["section"] == "model")["hint"]

    def test_check_of_an_invalid_model_fails_with_a_hint(self):
        bad = self.folder / "bad.gguf"
        bad.write_text("no model")
        self.assertEqual(self.check(str(bad))["verdict"], "fail")
        self.assertIsNone(self.hint(str(bad)))
        self.assertEqual(self.check("no-such-model")["verdict"], "fail")
        self.assertTrue(self.hint("smolm2-135m-instruct").startswith("zinc list"))
        self.assertEqual(self.hint("smollm2-135m-instruct"), "zinc pull smollm2-135m-instruct")
        self.assertEqual(self.hint("hf:some/repo:My file.gguf"), "zinc pull 'hf:some/repo:My file.gguf'")

    def test_check_and_chat_report_the_same_bytes(self):
        for name in ["llama-q8_0", "gemma3-f16", "qwen35-f16"]:
            file = str(MODELS / f"{name}.gguf")
            model = self.check(file, "-c", "96")["model"]
            end = subprocess.run([ZINC, "chat", file, "-c", "96", "-t", "1"], input="/stats\n", capture_output=True,
                                 text=True, env={**os.environ, **self.clean}, timeout=240)
            self.assertIn(f"{model['weight_bytes']} bytes of weights, {model['cache_bytes']} bytes of KV cache", end.stderr)

    def test_check_reports_the_context_a_chat_gets(self):
        file = str(MODELS / "qwen2-f16.gguf")
        model = self.check(file)["model"]
        self.assertEqual(model["fit"], "fits")
        end = subprocess.run([ZINC, "chat", file, "-t", "1"], input="/model\n", capture_output=True, text=True,
                             env={**os.environ, **self.clean}, timeout=240)
        self.assertIn(f"context {model['largest_context']}", end.stderr)

    def test_check_lists_the_devices_of_each_backend(self):
        for backend in self.check()["backends"]:
            if backend["usable"]:
                self.assertTrue(backend["devices"], backend["name"])

    def test_colors_can_be_forced_and_forbidden(self):
        clean = {**self.clean, "FORCE_COLOR": "1"}
        self.assertIn("\x1b[3", run(ZINC, "check", **clean).stdout)
        self.assertNotIn("\x1b", run(ZINC, "check", **{**clean, "NO_COLOR": "1"}).stdout)

    def test_model_commands_match_their_schema(self):
        def validated(*words):
            end = run(ZINC, *words, "--json", **self.clean)
            self.assertEqual(end.returncode, 0, end.stderr)
            out = json.loads(end.stdout)
            jsonschema.validate(out, MODELS_SCHEMA)
            return out

        listed = validated("list")
        self.assertTrue(all(model["release_date"] and model["recommended_for_chat"] for model in listed))
        self.assertEqual([model["id"] for model in listed if model["tested_profiles"]], ["smollm2-135m-instruct"])
        validated("show", "qwen3-8b")
        validated("show", str(MODELS / "qwen2-f16.gguf"))
        self.assertFalse(validated("use", "qwen3-8b")["installed"])
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *words):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=MODELS))
        server.handle_error = lambda *words: None  # the probe closes the connection after a byte
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            pulled = validated("pull", f"http://127.0.0.1:{server.server_port}/qwen2-f16.gguf")
        finally:
            server.shutdown()
            server.server_close()
        self.assertTrue(validated("show", pulled[0]["id"])["installed"])
        validated("rm", pulled[0]["id"])

    def test_check_has_a_line_for_each_finding(self):
        end = run(ZINC, "check", str(MODELS / "qwen2-f16.gguf"), **self.clean)
        self.assertRegex(end.stdout, r"(?m)^  OK   memory +\d+ .B: \d+ .B of weights, \d+ .B of KV cache for \d+ tokens")
        self.assertRegex(end.stdout, r"(?m)^(OK  |WARN) ready.*: \d+ ok, (1 warning|\d+ warnings), 0 failed, \d+ skipped$")
        self.assertRegex(end.stdout, r"(?m)^  SKIP installed +no models installed; they are stored in ", "a model was named, so none is missing")
        self.assertEqual(end.stdout.count("qwen2-f16.gguf"), 1)
        self.assertNotRegex(end.stdout, r"\d{7}|\?")
        self.assertNotIn("\x1b", end.stdout)

    def shell_words(self, shell, script):
        self.assertTrue(shutil.which(shell), f"{shell} is not installed; see tools/install_deps.sh test")
        page = self.folder / f"zinc.{shell}"
        page.write_text(run(ZINC, "completion", shell).stdout)
        path = os.path.dirname(ZINC) + ":" + os.environ["PATH"]
        end = run(shell, *(["-f"] if shell == "zsh" else []), "-c", script.replace("PAGE", str(page)), **self.clean, PATH=path)
        self.assertEqual(end.stderr, "")
        return end.stdout.split("\n")

    def test_bash_completes_commands_options_values_and_models(self):
        lines = ["zinc ch", "zinc run --te", "zinc debug ev", "zinc chat smollm2-1", "zinc --vers", "zinc completion ",
                 "zinc run --kv ", "zinc chat --backend cp"]
        script = "source PAGE; while IFS= read -r COMP_LINE; do COMP_POINT=${#COMP_LINE}; _zinc; echo \"${COMPREPLY[*]}\"; " \
                 "done <<'END'\n" + "\n".join(lines) + "\nEND"
        self.assertEqual(self.shell_words("bash", script)[:len(lines)],
                         ["chat check", "--temp --temperature", "eval", "smollm2-1.7b-instruct smollm2-135m-instruct",
                          "--version", "bash zsh fish man", "f32 f16 q8_0 fp8", "cpu"])

    def test_bash_completes_names_with_blanks_and_colons(self):
        (self.folder / "My file.gguf").write_text("")
        (self.folder / "hf:some").mkdir()
        script = f"cd {self.folder}; source PAGE; for COMP_LINE in 'zinc run My' 'zinc run hf:so'; do " \
                 "COMP_POINT=${#COMP_LINE}; _zinc; printf '<%s>' \"${COMPREPLY[@]}\"; echo; done"
        self.assertEqual(self.shell_words("bash", script)[:2], ["<My file.gguf>", "<some>"])

    def test_fish_completes_commands_options_values_and_models(self):
        def words(line):
            return [word.split("\t")[0] for word in self.shell_words("fish", f"source PAGE; complete -C '{line}'")]

        self.assertEqual({"chat", "check"} - set(words("zinc ch")), set())
        self.assertEqual({"--temp", "--temperature"} - set(words("zinc run --temp")), set())
        self.assertIn("eval", words("zinc debug ev"))
        self.assertIn("smollm2-135m-instruct", words("zinc chat smollm2-135"))
        self.assertEqual(set(words("zinc completion ")) - {""}, {"bash", "zsh", "fish", "man"})
        self.assertIn("q8_0", words("zinc run --kv "))
        self.assertIn("--requests", words("zinc bench serve --"))
        self.assertNotIn("--tls-cert", words("zinc bench serve --"), "an option of `zinc serve`")

    def zsh_screen(self, line, wanted):
        """The screen of a zsh after Tab, once it shows `wanted`, or after a minute."""
        (self.folder / "_zinc").write_text(run(ZINC, "completion", "zsh").stdout)
        script = r"""
zmodload zsh/zpty
zpty shell 'TERM=vt100 zsh -f'
zpty -w shell 'fpath=(FOLDER $fpath); autoload -Uz compinit; compinit -u -d FOLDER/dump; LISTMAX=1000; print rea""dy'
zpty -r -m shell x '*ready*'
zpty -w -n shell $'LINE\t\t'
text=; wanted=(WANTED)
for try in {1..300}; do
  sleep 0.2
  while zpty -rt shell piece; do text+=$piece; done
  missing=(); for word in $wanted; do [[ $text == *$word* ]] || missing+=$word; done
  (( $#missing )) || break
done
print -r -- $text
zpty -d shell
""".replace("FOLDER", str(self.folder)).replace("LINE", line).replace("WANTED", " ".join(wanted))
        path = os.path.dirname(ZINC) + ":" + os.environ["PATH"]
        return run("zsh", "-f", "-c", script, **self.clean, PATH=path).stdout

    def test_zsh_itself_completes_commands_options_values_and_models(self):
        self.assertTrue(shutil.which("zsh"), "zsh is not installed; see tools/install_deps.sh test")
        for line, wanted in (("zinc ch", ["chat", "check"]), ("zinc run --temp", ["--temp", "--temperature"]),
                             ("zinc debug ", ["eval", "tokenize"]), ("zinc run --kv ", ["f32", "f16", "q8_0"]),
                             ("zinc completion ", ["bash", "fish", "man"]), ("zinc chat smollm2-135", ["smollm2-135m-instruct"])):
            screen = self.zsh_screen(line, wanted)
            for word in wanted:
                self.assertIn(word, screen, line)

    def test_completions_contain_every_command(self):
        commands = re.findall(r"(?m)^  ([a-z]+) ", run(ZINC, "--help").stdout.split("Subcommands:")[1])
        self.assertIn("chat", commands)
        for shell in ["bash", "zsh", "fish"]:
            page = run(ZINC, "completion", shell).stdout
            for command in commands:
                self.assertRegex(page, rf"\b{command}\b")

    def test_man_page_is_well_formed_and_complete(self):
        page = run(ZINC, "completion", "man").stdout
        for word in ["SS zinc run", "SS zinc chat", "SS zinc check", "\\-\\-temp", "EXIT STATUS"]:
            self.assertIn(word, page)
        self.assertTrue(shutil.which("man"), "man is not installed; see tools/install_deps.sh test")
        file = self.folder / "zinc.1"
        file.write_text(page)
        end = run("man", "--warnings", "-l", str(file), MANWIDTH="100", LC_ALL="C.UTF-8", PAGER="cat", MANPAGER="cat")
        self.assertEqual(end.stderr, "")
        self.assertIn("--temperature", end.stdout)

    def test_origin_of_the_sampling_is_reported(self):
        file = str(MODELS / "qwen2-f16.gguf")
        end = run(ZINC, "run", file, "hello", "-n", "2", "-t", "1", **self.clean)
        self.assertRegex(end.stderr, r"temp 0.8, top-k 40, .* \(zinc's own\)")
        out = json.loads(run(ZINC, "run", file, "hello", "-n", "2", "-t", "1", "--json", **self.clean).stdout)
        self.assertEqual(out["sampling_origin"], "zinc's own")
        server = subprocess.Popen([ZINC, "serve", file, "--port", "0", "-t", "1", "-c", "128"], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, env={**os.environ, **self.clean})
        try:
            address = server.stdout.readline().split()[-1]
            model = json.load(urllib.request.urlopen(f"{address}/props", timeout=30))
        finally:
            server.terminate()
            server.wait()
            server.stdout.close()
        self.assertIn("recommended_sampling", json.dumps(model))

    def test_sampling_origin_depends_on_the_thinking_mode(self):
        file = str(MODELS / "qwen3-q8_0.gguf")

        def origin(*more):
            out = run(ZINC, "run", file, "hi", "-n", "1", "-t", "1", "--json", *more, **self.clean).stdout
            return json.loads(out)["sampling_origin"]
        self.assertEqual(origin("--no-think"), "Qwen3's model card, no thinking")
        self.assertEqual(origin("--think", "off"), "Qwen3's model card, no thinking")
        self.assertEqual(origin("--think"), "Qwen3's model card")
        self.assertEqual(origin("--think", "low"), "Qwen3's model card")
        self.assertEqual(origin(), "Qwen3's model card")

    def test_help_is_readable(self):
        for command in ["run", "chat", "serve", "check", "bench"]:
            text = run(ZINC, command, "--help").stdout
            self.assertNotRegex(text, r"\[\d+ - \d+\]|1073741824|--help TEXT|--json TEXT", command)

    def test_typos_get_a_suggestion(self):
        for words, meant in ((["chta"], "chat"), (["run", "--tmp", "0"], "--temp"), (["--versoin"], "--version"),
                             (["debug", "evl"], "eval"), (["show", "smolm2-135m-instruct"], "smollm2-135m-instruct")):
            end = run(ZINC, *words, **self.clean)
            self.assertNotEqual(end.returncode, 0)
            self.assertIn(meant, end.stderr)
            self.assertEqual(len(end.stderr.splitlines()), 1)

    def test_version_names_commit_and_backends(self):
        self.assertRegex(run(ZINC, "--version").stdout,
                         r"^zinc \d+\.\d+\.\d+ \([0-9a-z]+\)\nbackends: (\w+, )*cpu\b.* \(default: \w+\)\n$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
