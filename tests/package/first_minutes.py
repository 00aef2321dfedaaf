#!/usr/bin/env python3
"""A newcomer's first minutes, scripted: the wheel in a bare Debian 11, then every way to ask a model.

    first_minutes.py BUILD_FOLDER

The browser and the clients `openai` and `ollama` run on this machine, against the server in the bare system.
"""
import functools
import http.server
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from bare_system import BareSystem, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()
MODELS = ROOT / "tests/data/oracle/models"
BROWSER_TESTS = BUILD / "first-minutes"  # packages of web/tests; not the folder of the test web_page, which may run at this moment
CLIENTS = ["openai==3.49.0", "ollama==0.6.3"]
ZINC = "/venv/bin/zinc"
TIMEOUT_S = 120
PROMPT = r">(\x1b\[[\d;]*m)* $"  # of `zinc chat`, waiting for a line
ASK = """
import sys
from {package} import {client}
{body}
"""


class Terminal:
    """A program on a terminal of its own, to type into."""

    def __init__(self, command, environment):
        self.seen = b""
        self.screen, side = pty.openpty()
        self.process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=environment, start_new_session=True)
        os.close(side)

    def type(self, text):
        os.write(self.screen, text.encode())

    def wait_for(self, pattern, start=0):
        """Waits until what was printed from `start` on matches; gives the end of the match."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (match := re.compile(pattern.encode()).search(self.seen, start)):
            if time.monotonic() > deadline or not self.read():
                raise AssertionError(f"{pattern!r} is not in {self.seen!r}")
        return match.end()

    def read(self):
        if not select.select([self.screen], [], [], 1)[0]:
            return True
        try:
            self.seen += os.read(self.screen, 65536)
            return True
        except OSError:  # the program closed the terminal
            return False

    def close(self):
        code = self.process.wait(timeout=TIMEOUT_S)
        os.close(self.screen)
        return code


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class FirstMinutes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="zinc-first-minutes-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run("cmake", "--build", BUILD, "--target", "pages", "portable")
        run(ROOT / "tools/make_dist.py", BUILD, cls.folder / "dist")
        wheel = next((cls.folder / "dist").glob("*.whl"))
        processor = os.uname().machine
        cls.system = BareSystem.debian_11(cls.folder, BUILD / f"portable/debian-11-{processor}.tar", processor)
        shutil.copy(wheel, cls.system.root / wheel.name)
        cls.system.run("python3", "-m", "venv", "/venv")
        cls.system.run("/venv/bin/pip", "install", "--no-index", f"/{wheel.name}")
        for model in ["qwen3-q8_0", "llama-q8_0"]:
            shutil.copy(MODELS / f"{model}.gguf", cls.system.root / f"home/user/{model}.gguf")
        run("python3", "-m", "venv", cls.folder / "clients")
        run(cls.folder / "clients/bin/pip", "install", "-q", *CLIENTS)
        run(ROOT / "web/fetch_packages.sh", "npm", ROOT / "web/tests", BROWSER_TESTS, "the browser of this test needs them")

    def prompt_tokens(self, *words, **options):
        end = subprocess.run(self.system.command(ZINC, "run", "/home/user/qwen3-q8_0.gguf", *words, "-n", "4", "-v"), capture_output=True,
                             env=self.system.environment(), timeout=TIMEOUT_S, **options)
        said = end.stderr.decode(errors="replace")
        self.assertEqual(end.returncode, 0, said)
        self.assertTrue(end.stdout)
        return int(re.search(r"prompt (\d+) tokens", said)[1])

    def test_run_answers_and_joins_a_piped_file_with_the_question(self):
        text = b"Zinc is a chemical element with the symbol Zn and atomic number 30."
        question = self.prompt_tokens("What is this about?", stdin=subprocess.DEVNULL)
        both = self.prompt_tokens("What is this about?", input=text)
        self.assertGreater(both, question + 10)

    def test_chat_answers_on_a_terminal(self):
        terminal = Terminal(self.system.command(ZINC, "chat", "/home/user/qwen3-q8_0.gguf", "-n", "8"),
                            self.system.environment(TERM="xterm-256color", LANG="C.UTF-8"))
        self.addCleanup(terminal.process.kill)
        start = terminal.wait_for(PROMPT)
        terminal.type("Hi\r")
        answered = terminal.wait_for(r"tok/s", start)
        terminal.wait_for(PROMPT, answered)
        terminal.type("/quit\r")
        self.assertEqual(terminal.close(), 0, terminal.seen)

    def test_page_switches_models_and_the_server_answers_openai_and_ollama(self):
        self.pull("llama-q8_0")
        with self.system.serve(ZINC, "serve", "qwen=/home/user/qwen3-q8_0.gguf") as server:
            self.assertEqual(self.models(server), {"qwen": True, "llama-q8_0": False})
            self.switch_on_the_page(server, "llama-q8_0")
            self.assertEqual(self.models(server), {"qwen": False, "llama-q8_0": True})
            for model in ["qwen", "llama-q8_0"]:
                self.ask("openai", "OpenAI", f"""
answer = OpenAI(base_url="{server.address}/v1", api_key="none").chat.completions.create(
    model="{model}", messages=[{{"role": "user", "content": "Hi"}}], max_tokens=4, temperature=0)
assert answer.model == "{model}" and answer.usage.completion_tokens == 4, answer""")
                self.ask("ollama", "Client", f"""
answer = Client("{server.address}").chat("{model}", [{{"role": "user", "content": "Hi"}}],
    options={{"num_predict": 4, "temperature": 0}})
assert answer.model == "{model}" and answer.eval_count == 4 and answer.done, answer""")

    def pull(self, model):
        """Downloads a file of the user's folder, from a server on this machine."""
        folder = self.system.root / "home/user"
        files = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=folder))
        files.handle_error = lambda *_: None  # the probe closes the connection after a byte
        threading.Thread(target=files.serve_forever, daemon=True).start()
        try:
            self.system.run(ZINC, "pull", f"http://127.0.0.1:{files.server_port}/{model}.gguf")
        finally:
            files.shutdown()
            files.server_close()

    def models(self, server):
        """Every installed model, and whether it is loaded."""
        return {model["id"]: model["active"] for model in json.loads(server.get("/v1/models"))["data"]}

    def switch_on_the_page(self, server, model):
        for script in ["harness.mjs", "switch_model.mjs"]:
            shutil.copy(ROOT / "web/tests" / script, BROWSER_TESTS)
        run("node", BROWSER_TESTS / "switch_model.mjs", server.address, model, env={
            **os.environ, "ZINC_CHROMIUM": run(ROOT / "tools/find_browser.sh").strip(), "ZINC_TEST_OUT": self.folder / "screenshots"})

    def ask(self, package, client, body):
        run(self.folder / "clients/bin/python", "-c", ASK.format(package=package, client=client, body=body))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
