#!/usr/bin/env python3
"""Tests output for other programs: JSON against its schema, completions in their shells, the man page.

    cli_output.py ZINC SOURCE_FOLDER

The shells and man must be installed (tools/install_deps.sh test).
"""
import fcntl
import functools
import http.server
import itertools
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest
import urllib.request

import jsonschema

import script_model

ZINC, SOURCE = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
MODELS = SOURCE / "tests" / "data" / "oracle" / "models"
SCHEMA = json.loads((SOURCE / "docs" / "check.schema.json").read_text())
MODELS_SCHEMA = json.loads((SOURCE / "docs" / "models.schema.json").read_text())
TIMEOUT_S = 120  # reached only if something never happens, even on a busy machine


def run(*words, **environment):
    return subprocess.run(words, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                          env={**os.environ, **environment})


class TerminalRun:
    """A program on a pseudo terminal of `columns` columns."""

    def __init__(self, words, columns, environment):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.program = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                                        env={**os.environ, "TERM": "xterm", "LANG": "C", **environment},
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        self.seen = ""

    def read_until(self, done, seconds=TIMEOUT_S):
        """What was printed, once `done` (of the text so far) holds or the program has ended."""
        end = time.monotonic() + seconds
        while not done(self.seen):
            if time.monotonic() > end:
                raise AssertionError(f"still waiting after {seconds} s; printed so far: {self.seen!r}")
            if not select.select([self.ours], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(self.ours, 65536)
            except OSError:  # the program has ended
                break
            self.seen += piece.decode(errors="replace").replace("\r\n", "\n")
        return self.seen

    def finish(self):
        text = self.read_until(lambda text: False)
        self.program.wait(timeout=TIMEOUT_S)
        os.close(self.ours)
        return text

    def type(self, text):
        os.write(self.ours, text.encode())


def plain(text):
    """The text without style sequences and the progress line."""
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)


class CliOutput(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="zinc-cli-output-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.clean = {"HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder),
                      "FORCE_COLOR": "", "NO_COLOR": ""}

    def terminal(self, *words, columns=80):
        """What a command prints on a terminal."""
        return TerminalRun([ZINC, *words], columns, {**self.clean, "NO_COLOR": ""}).finish()

    def scripted(self, *pieces, template=script_model.TEMPLATE):
        """A model that outputs these pieces."""
        path = self.folder / "scripted.gguf"
        script_model.write(path, pieces, template)
        return str(path)

    def report(self, model, *more):
        """The JSON of one answer."""
        end = run(ZINC, "run", model, "2+2?", "-t", "1", "--json", *more, **self.clean)
        self.assertEqual(end.returncode, 0, end.stderr)
        return json.loads(end.stdout)

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
            self.assertLess(model["weight_bytes"], 2 * file.stat().st_size)
            self.assertGreater(model["weight_bytes"], file.stat().st_size / 10)

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

    def test_check_of_a_catalog_model_answers_from_the_catalog(self):
        report = self.check("smollm2-135m-instruct")
        self.assertNotEqual(report["verdict"], "fail", "not installed is not a failure")
        lines = {line["name"]: line["message"] for line in report["checks"] if line["section"] == "model"}
        self.assertRegex(lines["memory"], r"about \d+ MB for 4096 tokens of context; .* is free")
        self.assertRegex(lines["disk"], r"the download has 98 MB; .* is free")
        self.assertRegex(lines["speed"], r"at most about [\d.]+ tok/s")
        self.assertEqual(self.check("qwen3-next-80b")["model"], None)

    def test_check_and_chat_report_the_same_bytes(self):
        for name in ["llama-q8_0", "gemma3-f16", "qwen35-f16"]:
            file = str(MODELS / f"{name}.gguf")
            model = self.check(file, "-c", "96")["model"]
            end = subprocess.run([ZINC, "chat", file, "-c", "96", "-t", "1"], input="/stats\n", capture_output=True,
                                 text=True, env={**os.environ, **self.clean}, timeout=240)
            weights, cache = (f"{model[key] / 1000:.0f} kB" for key in ("weight_bytes", "cache_bytes"))
            self.assertIn(f"{weights} of weights, {cache} of KV cache", end.stderr)

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
        self.assertTrue(all(model["release_date"] for model in listed))
        self.assertLessEqual(sum(model["recommended_for_chat"] for model in listed), 3)
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
                          "--version", "bash zsh fish man", "f32 f16 q8_0 q4_0 fp8", "cpu"])

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
        """The screen of a zsh after Tab, once it shows `wanted`, or after two minutes."""
        (self.folder / "_zinc").write_text(run(ZINC, "completion", "zsh").stdout)
        script = r"""
zmodload zsh/zpty
zpty shell 'TERM=vt100 zsh -f'
zpty -w shell 'fpath=(FOLDER $fpath); autoload -Uz compinit; compinit -u -d FOLDER/dump; LISTMAX=1000; print rea""dy'
zpty -r -m shell x '*ready*'
zpty -w -n shell $'LINE\t\t'
text=; wanted=(WANTED)
for try in {1..600}; do
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
        commands = re.findall(r"(?m)^  ([a-z]+)  ", run(ZINC, "--help").stdout.split("Start:")[1].split("Examples:")[0])
        self.assertEqual({"run", "chat", "serve", "list", "ps", "stop", "help", "version", "debug"} - set(commands), set())
        for shell in ["bash", "zsh", "fish"]:
            page = run(ZINC, "completion", shell).stdout
            for command in commands:
                self.assertRegex(page, rf"\b{command}\b")

    def test_man_page_is_well_formed_and_complete(self):
        page = run(ZINC, "completion", "man").stdout
        for word in ["SS zinc run", "SS zinc chat", "SS zinc check", "\\-\\-temp", "EXIT STATUS"]:
            self.assertIn(word, page)
        self.assertLess(page.index(".SH EXAMPLES"), page.index(".SH COMMANDS"))
        self.assertNotIn("\\fB\\fR \\fI", page, "a blank before an argument")
        self.assertTrue(shutil.which("man"), "man is not installed; see tools/install_deps.sh test")
        file = self.folder / "zinc.1"
        file.write_text(page)
        end = run("man", "--warnings", "-l", str(file), MANWIDTH="100", LC_ALL="C.UTF-8", PAGER="cat", MANPAGER="cat")
        self.assertEqual(end.stderr, "")
        self.assertIn("--temperature", end.stdout)

    def test_origin_of_the_sampling_is_reported(self):
        file = str(MODELS / "qwen2-f16.gguf")
        end = run(ZINC, "run", file, "hello", "-n", "2", "-t", "1", "--verbose", **self.clean)
        self.assertRegex(end.stderr, r"temp 0.8, top-k 40, .* \(zinc's own\)")
        out = json.loads(run(ZINC, "run", file, "hello", "-n", "2", "-t", "1", "--json", **self.clean).stdout)
        self.assertEqual(out["sampling_origin"], "zinc's own")
        server = subprocess.Popen([ZINC, "serve", file, "--port", "0", "-t", "1", "-c", "128"], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, env={**os.environ, **self.clean})
        try:
            address = server.stdout.readline().split()[-1]
            model = json.load(urllib.request.urlopen(f"{address}/props", timeout=TIMEOUT_S))
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

    def test_chat_template_of_a_file_replaces_the_models_own(self):
        file = str(MODELS / "qwen3-q8_0.gguf")
        with tempfile.TemporaryDirectory() as folder:
            template = pathlib.Path(folder, "template.jinja")

            def n_tokens(*more):
                end = run(ZINC, "run", file, "hi", "-n", "1", "-t", "1", "--json", *more, **self.clean)
                return json.loads(end.stdout)["prompt_tokens"]
            template.write_text("{{ messages[0].content }}" + "x y z " * 20)
            self.assertGreater(n_tokens("--chat-template", str(template)), n_tokens() + 20)
            template.write_text("{% if %}")
            end = run(ZINC, "run", file, "hi", "--chat-template", str(template), **self.clean)
            self.assertNotEqual(end.returncode, 0)
            self.assertIn("template.jinja: template:1:", end.stderr)

    def test_run_separates_reasoning_from_the_answer(self):
        model = self.scripted("<think>", "\n", "Two and two.", "\n", "</think>", "\n\n", "Four", ".")
        end = run(ZINC, "run", model, "2+2?", "-t", "1", **self.clean)
        self.assertEqual((end.stdout, end.stderr), ("Four.\n", ""))
        out = json.loads(run(ZINC, "run", model, "2+2?", "-t", "1", "--json", **self.clean).stdout)
        self.assertEqual((out["text"], out["reasoning"].strip()), ("Four.", "Two and two."))
        screen = self.terminal("run", model, "2+2?", "-t", "1")
        self.assertRegex(screen, r"\x1b\[2m\s*Two and two\.\s*\x1b\[0m\s*Four\.")
        cut = run(ZINC, "run", model, "2+2?", "-t", "1", "-n", "3", **self.clean)
        self.assertEqual(cut.stdout, "\n")
        self.assertIn("cut off before the answer at the limit of 3 tokens", cut.stderr)

    def test_think_and_no_think_render_the_template_of_their_mode(self):
        model = self.scripted("ok", template="{{ messages[0].content }}{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}<go>")
        on, off, default = (self.report(model, *more)["prompt_tokens"] for more in (["--think"], ["--no-think"], []))
        self.assertGreater(off, on)
        self.assertEqual(default, on)

    def test_no_think_closes_a_thought_that_the_template_opens(self):
        model = self.scripted("\n", "Two and two.", "</think>", "\n\n", "Four", ".", template="{{ messages[0].content }}<think>{{ '\n' }}")
        for more, reasoning in ((["--think"], "Two and two."), (["--no-think"], "")):
            out = self.report(model, *more)
            self.assertEqual((out["reasoning"].strip(), out["text"]), (reasoning, "Four."))

    def test_run_sends_the_model_what_the_server_sends_it(self):
        no_system = ("{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
                     "{% for m in messages %}{{ m.content }}{% endfor %}")
        thinks = "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking is false %}<think></think>{% endif %}"
        for template in [no_system + "<go>", no_system + "<think>\n<go>", thinks + "<go>"]:
            model = self.scripted("Four", ".", template=template)
            _, address = self.serve(model)
            for options, fields in {(): {}, ("--no-think",): {"chat_template_kwargs": {"enable_thinking": False}},
                                    ("--system", "Be brief."): {}}.items():
                messages = [{"role": "system", "content": options[1]}] if "--system" in options else []
                body = {"messages": [*messages, {"role": "user", "content": "2+2?"}], "max_tokens": 3, **fields}
                request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode(),
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                    served = json.load(response)
                report = self.report(model, "-n", "3", *options)
                self.assertEqual(report["prompt_tokens"], served["usage"]["prompt_tokens"], (template, options))
                self.assertEqual(report["text"], served["choices"][0]["message"]["content"] or "", (template, options))

    def test_run_and_a_server_with_one_user_give_the_same_output(self):
        modes = {(): {}, ("--no-think",): {"enable_thinking": False},
                 ("--think", "--think-budget", "9"): {"enable_thinking": True, "thinking_budget": 9}}
        samplings = {("--temp", "0"): {"temperature": 0}, ("--temp", "1.3", "--seed", "7"): {"temperature": 1.3, "seed": 7}}
        outputs = set()
        for model, family in (("qwen35-f16", "qwen3"), ("qwen3-q8_0", "gpt-oss")):
            words = [str(MODELS / f"{model}.gguf"), "--chat-template",
                     str(SOURCE / "tests" / "data" / "templates" / family / "template.jinja")]
            _, address = self.serve(*words, "--parallel", "1")
            for (mode, mode_fields), (sampling, fields) in itertools.product(modes.items(), samplings.items()):
                out = self.report(*words, "-c", "512", "-n", "40", *mode, *sampling)
                body = {"messages": [{"role": "user", "content": "2+2?"}], "max_tokens": 40, **mode_fields, **fields}
                request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode(),
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                    served = json.load(response)
                message = served["choices"][0]["message"]
                self.assertEqual((out["text"], out["reasoning"], out["prompt_tokens"], len(out["tokens"])),
                                 (message["content"] or "", message.get("reasoning_content") or "",
                                  served["usage"]["prompt_tokens"], served["usage"]["completion_tokens"]), (family, mode, sampling))
                outputs.add((out["text"], out["reasoning"]))
        self.assertGreater(len(outputs), 6, "the settings have an effect")

    def test_think_budget_ends_the_thought_as_the_family_does_and_leads_into_the_answer(self):
        model = self.scripted("<think>", "\n", "One, ", "two, ", "three, ", "four, ", "five.", "</think>", "\n\n", "Four", ".")
        out = self.report(model, "--think-budget", "2")
        self.assertRegex(out["reasoning"], r"^One, +Considering the limited time by the user")
        self.assertNotIn("two", out["reasoning"])
        self.assertEqual((out["text"], out["finish_reason"]), ("Four.", "end_token"))
        self.assertEqual(self.report(model)["reasoning"], "One, two, three, four, five.")

    def test_answer_wraps_at_blanks_on_a_terminal(self):
        words = ["Words ", "of ", "an ", "answer ", "wrap ", "at ", "blanks, ", "never ", "inside."]
        model = self.scripted(*words)
        screen = plain(self.terminal("run", model, "Hi there", "-t", "1", columns=20)).strip()
        self.assertEqual(screen.split("\n"), ["Words of an answer", "wrap at blanks,", "never inside."])
        self.assertEqual(run(ZINC, "run", model, "Hi there", "-t", "1", **self.clean).stdout, "".join(words) + "\n")

    def test_run_shows_progress_while_it_reads_a_long_prompt(self):
        model = self.scripted("ok")
        text = self.folder / "long.txt"
        text.write_text("word " * 700)
        screen = self.terminal("run", model, "-f", str(text), "-c", "4096", "-t", "1")
        self.assertRegex(screen, r"processing the prompt: \d+ of \d+ tokens")
        self.assertRegex(screen, r"\x1b\[Kok")

    def test_run_without_a_prompt_on_a_terminal_opens_the_chat(self):
        model, state = self.scripted("Hello", "!"), self.folder / "state"
        for options, is_kept in (["--no-history"], False), ([], True):
            chat = TerminalRun([ZINC, "run", model, "-t", "1", *options], 80, {**self.clean, "XDG_STATE_HOME": str(state)})
            greeting = plain(chat.read_until(lambda text: "> " in plain(text)))
            self.assertIn("/help lists commands", greeting)
            self.assertEqual("The conversation will be kept; --no-history keeps nothing." in greeting, is_kept)
            chat.type("Hi\r")
            text = chat.read_until(lambda text: "> " in plain(text).partition("Hello!")[2])  # the next prompt reads Ctrl-D
            self.assertIn("Hello!", plain(text))
            self.assertFalse(termios.tcgetattr(chat.ours)[3] & termios.ICANON, "a prompt is printed in raw mode")
            chat.type("\x04")
            self.assertEqual("The conversation is kept: `zinc chat --continue 1`" in plain(chat.finish()), is_kept)
            self.assertEqual(state.exists(), is_kept, options)
            self.assertEqual(chat.program.returncode, 0)

    def test_text_wraps_to_the_terminal(self):
        for columns in (60, 80):
            for words in ([], ["run", "--help"], ["serve", "--help"], ["--help"], ["check"], ["list"], ["frobnicate"],
                          ["run", "mistral"]):
                if words == ["list"] and columns < 80:
                    continue  # a table
                for line in plain(self.terminal(*words, columns=columns)).split("\n"):
                    self.assertLessEqual(len(line), columns, (words, line))

    def test_help_groups_commands_and_has_examples(self):
        text = run(ZINC, "--help").stdout
        titles = re.findall(r"(?m)^([A-Z][a-z ]+):$", text)
        self.assertEqual(titles, ["Options", "Start", "Models", "Running server", "This machine", "Help",
                                  "For developers", "Examples"])
        self.assertLess(text.index("  chat "), text.index("  bench "))
        self.assertIn("zinc run 'Why is the sky blue?'", text)

    def install(self, name):
        """Puts a model into the cache as if it had been downloaded; gives its file."""
        folder = self.folder / "zinc" / "models" / name
        folder.mkdir(parents=True)
        file = folder / f"{name}.gguf"
        shutil.move(self.scripted("x"), file)
        (folder / "manifest.json").write_text(json.dumps({
            "format": 1, "id": name, "source": f"https://host/{name}.gguf",
            "files": [{"name": file.name, "bytes": file.stat().st_size, "sha256": "0" * 64, "changed_ns": 0}]}))
        return file

    def test_rm_of_a_beginning_names_the_model_and_removes_nothing(self):
        file = self.install("mine-2b")
        end = run(ZINC, "rm", "mine", **self.clean)
        self.assertEqual(end.returncode, 1)
        self.assertIn("zinc rm mine-2b", end.stderr)
        self.assertTrue(file.exists())
        self.assertEqual(run(ZINC, "rm", "mine-2b", **self.clean).returncode, 0)
        self.assertFalse(file.exists())

    def test_list_shows_installed_models_first(self):
        empty = run(ZINC, "list", "--installed", **self.clean).stdout
        self.assertIn("No models installed yet; `zinc pull smollm2-135m-instruct`", empty)
        self.assertNotIn("NAME", empty)
        text = run(ZINC, "list", **self.clean).stdout
        self.assertRegex(text, r"(?m)^Available.*\n  NAME +SIZE +PARAMS +MEMORY +FIT$")
        self.assertRegex(text, r"(?m)^  qwen3-8b +5\.03 GB +8B +~")
        self.assertRegex(text, r"(?m)^\* smollm2-135m-instruct ")
        self.install("mine")
        text = run(ZINC, "list", **self.clean).stdout
        self.assertLess(text.index("Installed\n"), text.index("Available"), text)
        self.assertRegex(text.split("Available")[0], r"(?m)^  mine ")

    def test_list_takes_a_part_of_the_names(self):
        self.install("Mine-2b")
        text = run(ZINC, "list", "mine", **self.clean).stdout
        self.assertRegex(text, r"(?m)^  Mine-2b ")
        self.assertNotIn("qwen3", text)
        names = run(ZINC, "list", "QWEN3-8", "--names", **self.clean).stdout.split()
        self.assertEqual(names, ["qwen3-8b"])
        end = run(ZINC, "list", "nothing-like-it", **self.clean)
        self.assertEqual((end.returncode, end.stdout), (1, ""))
        self.assertIn("no model has 'nothing-like-it' in its name", end.stderr)

    def test_show_explains_the_status(self):
        self.assertIn("experimental (zinc's tests run this architecture", run(ZINC, "show", "qwen3-8b", **self.clean).stdout)
        self.assertNotIn("experimental", run(ZINC, "show", "smollm2-135m-instruct", **self.clean).stdout)

    def serve(self, *words, context=512, **more):
        server = TerminalRun([ZINC, "serve", *words, "--port", "0", "-t", "1", "-c", str(context)], 200, {**self.clean, **more})
        self.addCleanup(lambda: (server.program.kill(), server.program.wait()))
        text = server.read_until(lambda text: "Ctrl-C stops" in text)
        return server, re.search(r"Chat: +(http://\S+)", text).group(1)

    def test_serve_greets_and_logs_readable_lines_on_a_terminal(self):
        server, address = self.serve(str(MODELS / "qwen2-f16.gguf"))
        self.assertIn(f"Model: qwen2-f16\nChat:  {address}\nAPI:   {address}/v1\nCtrl-C stops", server.seen)
        self.assertNotIn("{", server.seen)
        for path in ("/props", "/v1/models", "/health"):
            urllib.request.urlopen(f"{address}{path}", timeout=TIMEOUT_S).read()
        text = server.read_until(lambda text: re.search(r"/health.*\n", text))
        self.assertRegex(text, r"(?m)^\d\d:\d\d:\d\d GET /health 200 in \d+\.\d s$")
        self.assertNotIn("/props", text, "the page repeats these requests")
        server.type("\x03")
        server.finish()
        self.assertEqual(server.program.returncode, 0)

    def test_serve_without_a_browser_says_so(self):
        server, address = self.serve(str(MODELS / "qwen2-f16.gguf"), "--open", PATH=str(self.clean["HOME"]))
        server.read_until(lambda text: f"no browser could be opened; open {address}" in text)

    def test_serve_logs_json_on_request(self):
        server, address = self.serve(str(MODELS / "qwen2-f16.gguf"), "--log", "json")
        urllib.request.urlopen(f"{address}/health", timeout=TIMEOUT_S).read()
        line = next(line for line in server.read_until(lambda text: re.search(r"/health.*\n", text)).split("\n") if "/health" in line)
        self.assertEqual(json.loads(line)["status"], 200)

    def test_ctrl_c_during_an_answer_says_what_the_server_waits_for(self):
        model = script_model.copy_with_context(MODELS / "qwen2-f16.gguf", "qwen2", 60000, f"{self.clean['HOME']}/long.gguf")
        server, address = self.serve(model, "--drain-seconds", "7", context=60000)
        request = urllib.request.Request(f"{address}/v1/chat/completions", method="POST", data=json.dumps({
            "stream": True, "ignore_eos": True, "messages": [{"role": "user", "content": "hi"}]}).encode())
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_S)
        answer.readline()
        server.type("\x03")
        text = server.read_until(lambda text: "finishing" in text)
        self.assertIn("finishing 1 answer, 7 s at most; Ctrl-C again ends now", text)
        server.type("\x03")
        server.finish()

    def test_port_in_use_names_another_port_and_zinc(self):
        server, address = self.serve(str(MODELS / "qwen2-f16.gguf"))
        port = address.rsplit(":", 1)[1]
        end = run(ZINC, "serve", str(MODELS / "qwen2-f16.gguf"), "--port", port, **self.clean)
        self.assertEqual(end.returncode, 1)
        self.assertIn(f"port {port} of 127.0.0.1 is already in use by another `zinc serve`", end.stderr)
        self.assertIn(f"--port {int(port) + 1}", end.stderr)
        end = run(ZINC, "serve", str(MODELS / "qwen2-f16.gguf"), "--host", "nosuchhost", **self.clean)
        self.assertIn("'nosuchhost' is not an IP address", end.stderr)

    def test_ps_and_stop_act_on_a_running_server(self):
        server, address = self.serve(str(MODELS / "qwen2-f16.gguf"))
        end = run(ZINC, "ps", "--server", address, **self.clean)
        self.assertRegex(end.stdout, r"(?m)^NAME +WEIGHTS +CACHE +CONTEXT +RUNNING +WAITING\nqwen2-f16 .* 512 +0 +0$")
        self.assertEqual([m["id"] for m in json.loads(run(ZINC, "ps", "--json", "--server", address).stdout)],
                         ["qwen2-f16"])
        end = run(ZINC, "stop", "qwen2", "--server", address, **self.clean)
        self.assertEqual((end.returncode, end.stderr), (0, "qwen2-f16 is unloaded\n"))
        self.assertIn("no model loaded", run(ZINC, "ps", "--server", address, **self.clean).stderr)
        end = run(ZINC, "stop", "qwen2", "--server", address, **self.clean)
        self.assertEqual((end.returncode, end.stderr), (1, "zinc: 'qwen2' is not loaded\n"))
        server.program.send_signal(signal.SIGTERM)
        server.finish()
        end = run(ZINC, "ps", "--server", address, **self.clean)
        self.assertEqual(end.returncode, 1)
        self.assertIn("`zinc serve`", end.stderr)

    def test_help_is_readable(self):
        for command in ["run", "chat", "serve", "check", "bench"]:
            text = run(ZINC, command, "--help").stdout
            self.assertNotRegex(text, r"\[\d+ - \d+\]|1073741824|--help TEXT|--json TEXT", command)

    def test_reports_use_words_and_decimal_units(self):
        shown = run(ZINC, "show", "qwen3-8b", **self.clean).stdout
        self.assertRegex(shown, r"(?m)^  web page +https://")
        self.assertRegex(shown, r"(?m)^  size +5\.03 GB$")
        for command in ["show", "inspect", "check"]:
            text = run(ZINC, command, str(MODELS / "qwen2-f16.gguf"), **self.clean).stdout
            self.assertNotRegex(text, r"(?m)[KMG]iB|^ *[a-z]+_[a-z_]+ {2,}", command)

    def test_bench_aligns_its_columns_on_a_terminal(self):
        screen = plain(self.terminal("bench", str(MODELS / "qwen2-f16.gguf"), "-p", "4", "-n", "2", "-r", "1", columns=160))
        self.assertRegex(screen, r"(?m)^ *qwen2-f16\.gguf +cpu ")
        self.assertNotRegex(screen, r"(?m)^\||--:", "Markdown")
        self.assertNotIn(str(MODELS), screen, "the whole path")

    def test_help_names_files_and_folders(self):
        for command, options in {"run": ["--grammar FILE", "--json-schema FILE", "--file FILE", "--chat-template FILE"],
                                 "serve": ["--tls-cert FILE", "--tls-key FILE", "--api-keys FILE", "--cache-folder DIR"],
                                 "perplexity": ["--save-baseline FILE", "--baseline FILE"]}.items():
            text = run(ZINC, command, "--help").stdout
            for option in options:
                self.assertIn(option, text, command)

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
