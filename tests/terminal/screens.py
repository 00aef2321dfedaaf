#!/usr/bin/env python3
"""The chat as a person sees it: a real terminal (tmux) types keys and reads the screen.

    screens.py ZINC MODEL [REAL_MODEL_FOLDER]

MODEL is a tiny model whose answers mean nothing and never end by themselves. Ends with 77 where tmux is not there.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ZINC, MODEL = sys.argv[1], sys.argv[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
DEFAULT_MODEL = CACHE / "zinc" / "models" / "smollm2-135m-instruct"
PATIENCE_S = 30


class Terminal:
    """A tmux window of its own server that runs one program."""

    n_opened = 0

    def __init__(self, folder, command, width=80, height=24, environment=()):
        Terminal.n_opened += 1
        self.socket = str(pathlib.Path(folder) / f"tmux{Terminal.n_opened}")
        words = ["env", f"XDG_STATE_HOME={folder}/state", "TERM=screen-256color", "LANG=C", *environment, *command]
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), "-s", "chat",
                  " ".join(f"'{word}'" for word in words) + "; echo \"exit code $?\"; exec cat")

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

    def screen(self, colours=False):
        return self.tmux("capture-pane", "-t", "chat", "-p", *(["-e"] if colours else []))

    def lines(self):
        return [line.rstrip() for line in self.screen().splitlines() if line.strip()]

    def wait(self, holds, what):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if holds(self.lines()):
                return self.lines()
            time.sleep(0.05)
        raise AssertionError(f"{what} did not come; the screen is:\n{self.screen()}")

    def wait_for(self, text):
        return self.wait(lambda lines: any(text in line for line in lines), repr(text))

    def wait_for_prompt(self):
        return self.wait(lambda lines: lines and lines[-1] == ">", "the prompt")

    def close(self):
        self.tmux("kill-server")


class Chat(unittest.TestCase):
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

    def test_a_question_gets_an_answer_figures_and_a_new_prompt(self):
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
        chat = self.open("-c", "100000", "--temp", "0")
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

    def test_ctrl_c_drops_a_line_and_twice_leaves(self):
        chat = self.open()
        chat.wait_for_prompt()
        chat.type("unfinished")
        chat.keys("C-c")
        chat.wait_for("again, or Ctrl-D, leaves")
        chat.enter("/set")  # something else in between
        chat.wait_for("repeat_penalty")
        chat.wait_for_prompt()
        chat.keys("C-c")
        chat.wait(lambda lines: lines[-1] == ">" and "again" in lines[-2], "a second warning")
        chat.keys("C-c")
        chat.wait_for("exit code 0")

    def test_ctrl_d_leaves(self):
        chat = self.open()
        chat.wait_for_prompt()
        chat.keys("C-d")
        chat.wait_for("exit code 0")

    def test_arrow_up_brings_back_what_was_typed_even_in_an_earlier_chat(self):
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
        second.keys("BSpace")  # a wide character: both its columns go
        second.type("x")
        second.wait_for("> first größe 大x")
        self.assertEqual((pathlib.Path(self.folder) / "state" / "zinc" / "chat_history").stat().st_mode & 0o777, 0o600)

    def test_several_lines_by_backslash_quotes_and_paste_are_one_message(self):
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
        for name in ["/model", "/system", "/set", "/retry", "/undo", "/save", "/load", "/stats", "/clear"]:
            self.assertTrue(any(line.startswith(name) for line in lines), name)
        self.assertLessEqual(max(len(line) for line in lines), 80)
        chat.enter("/sats")
        self.assertIn("did you mean /stats?", " ".join(chat.wait_for("is no command")))
        chat.enter("/set temp hot")
        chat.wait_for("'hot' is no value for temp")
        chat.enter("/set temp 0.5")
        chat.wait_for("temp set")

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
        chat.wait_for("1 turns saved")
        self.assertFalse(list(pathlib.Path(self.folder).glob("*.part-*")))
        chat.enter("/undo")
        chat.wait_for("taken back: first")
        chat.enter(f"/load {saved}")
        chat.wait_for("1 turns loaded")
        chat.enter("/clear")
        chat.wait_for("all turns forgotten")
        chat.enter("/load /nowhere/at/all")
        chat.wait_for("/nowhere/at/all: ")
        chat.enter("/quit")
        chat.wait_for("exit code 0")

    def test_a_second_turn_reads_only_what_is_new(self):
        chat = self.open("-n", "4")
        chat.wait_for_prompt()
        for n in (1, 2):
            chat.enter("word " * 20)
            chat.wait(lambda lines: sum("4 tokens, " in line for line in lines) == n, f"answer {n}")
        chat.enter("/stats")
        line = next(line for line in chat.wait_for("last answer") if line.startswith("last prompt"))
        n_prompt, n_known = int(line.split()[2]), int(line.split()[4])
        self.assertGreater(n_known, n_prompt // 3)

    def test_a_full_context_says_what_to_do(self):
        chat = self.open("-c", "64")
        chat.wait_for_prompt()
        chat.enter("hello")
        chat.wait_for("the context is full: the answer was cut at position 64")
        chat.enter("word " * 40)
        self.assertIn("/undo takes back the last turn", "".join(chat.wait_for("the context is full: the prompt has")))
        chat.enter("/stats")
        self.assertIn("turns           1", chat.wait_for("last answer"))

    def test_a_resized_window_shows_the_line_whole(self):
        chat = self.open(width=80)
        chat.wait_for_prompt()
        chat.type("a line that is longer than forty columns are, and then some")
        chat.wait_for("and then some")
        chat.resize(40, 24)
        chat.wait(lambda lines: "a line that is longer" in "".join(lines[-2:]) and "then some" in "".join(lines[-2:]),
                  "the line in two")
        chat.type("!")
        chat.wait(lambda lines: "".join(lines[-2:]).replace(" ", "").endswith("andthensome!"), "one more letter")

    def test_colours_are_shown_unless_nobody_wants_them(self):
        for words, wanted in (([], True), (["NO_COLOR=1"], False), (["TERM=dumb"], False)):
            chat = self.open("-n", "2", environment=words)
            chat.wait_for_prompt()
            chat.enter("/hlp")
            chat.wait_for("is no command")
            self.assertEqual("\x1b[3" in chat.screen(colours=True), wanted, words)
            chat.close()
            self.terminals.clear()

    @unittest.skipUnless(DEFAULT_MODEL.exists(), "the default model is not here; `zinc run hi` fetches it")
    def test_the_default_model_answers_sensibly(self):
        chat = self.open(model="smollm2-135m-instruct")
        chat.wait_for_prompt()
        chat.enter("Name three primary colors.")
        self.assertIn("blue", " ".join(chat.wait_for(" tok/s; context")).lower())


if __name__ == "__main__":
    if not shutil.which("tmux"):
        print("tmux is not here")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
