#!/usr/bin/env python3
"""Tests `zinc ... --split-hosts` under mpirun on this machine: outputs, errors, lost processes (docs/adr/0059).

    split_hosts.py ZINC MODEL [--kills N]

MODEL: the default model. Every wait is bounded; a process that is left fails the test.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

parser = argparse.ArgumentParser()
parser.add_argument("zinc")
parser.add_argument("model")
parser.add_argument("--kills", type=int, default=4, help="lost processes of a server, at random moments")
ARGUMENTS = parser.parse_args()
ZINC, SMOLLM2 = (str(pathlib.Path(path).resolve()) for path in (ARGUMENTS.zinc, ARGUMENTS.model))
MODELS = pathlib.Path(__file__).resolve().parents[2] / "tests/data/oracle/models"
HYBRID = str(MODELS / "qwen35-f16.gguf")
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
DEADLINE_S = 90
MANY_KILLS = 20  # with so many, also the slow tests
END_S = 15  # from the loss of a process until none is left


def run(*command, **more):
    return subprocess.run(command, env=ENVIRONMENT, timeout=DEADLINE_S, stdin=subprocess.DEVNULL, capture_output=True, text=True, **more)


def on_ranks(n, *arguments):
    return run(*MPIRUN, "-n", str(n), ZINC, *arguments, "--split-hosts")


def wait_until(what, condition, seconds=DEADLINE_S):
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds} s still not: {what}")
        time.sleep(0.02)
    return value


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Outputs(unittest.TestCase):
    def greedy(self, model, n_tokens, n_ranks, *options):
        """Greedy tokens and logits of random tokens; n_ranks 0: without mpirun."""
        tokens = ",".join(str(random.Random(1).randrange(200)) for _ in range(150))
        with tempfile.NamedTemporaryFile() as logits:
            command = ["debug", "eval", model, "--tokens", tokens, "--greedy", str(n_tokens), "-t", "1", "--logits-out", logits.name,
                       *options]
            result = on_ranks(n_ranks, *command) if n_ranks else run(ZINC, *command)
            self.assertEqual(result.returncode, 0, result.stderr)
            output = json.loads(result.stdout)
            self.assertEqual(len(output["greedy"]), n_tokens)
            self.assertEqual(output["backend"].count("@"), n_ranks)
            return output["greedy"], logits.read()

    def test_tokens_and_logits_are_those_of_one_process(self):
        for model, ranks in ((SMOLLM2, (2, 3)), (HYBRID, (2, 3))):
            alone = self.greedy(model, 32, 0, "--device", "cpu")
            for n in ranks:
                with self.subTest(model=model, processes=n):
                    self.assertEqual(self.greedy(model, 32, n, "--device", "cpu"), alone)

    def test_text_of_the_default_model(self):
        question = ["run", SMOLLM2, "Why is the sky blue?", "-n", "32", "--temp", "0", "--device", "cpu", "-t", "1"]
        alone, split = run(ZINC, *question), on_ranks(2, *question)
        self.assertEqual((alone.returncode, split.returncode), (0, 0), alone.stderr + split.stderr)
        self.assertGreater(len(alone.stdout), 50)
        self.assertEqual(split.stdout, alone.stdout)

    def test_a_device_and_a_share_of_layers_for_each_process(self):
        self.greedy(HYBRID, 8, 2, "--device", "cpu,reference", "--split", "1,2")
        table = on_ranks(2, "run", HYBRID, "hi", "-n", "1", "--device", "cpu,reference", "--split", "2,1").stderr
        self.assertRegex(table, r"reference@1 +layers 0-0 ")
        self.assertRegex(table, r"cpu@0 +layers 1-2 ")


class Errors(unittest.TestCase):
    def check(self, result, *parts):
        self.assertNotEqual(result.returncode, 0)
        for part in parts:
            self.assertIn(part, result.stderr)

    def test_without_mpirun(self):
        self.check(run(ZINC, "run", HYBRID, "hi", "--split-hosts"), "mpirun -n 2 zinc")

    def test_one_process(self):
        self.check(on_ranks(1, "run", HYBRID, "hi"), "this is the only process", "mpirun -n 2 zinc")

    def test_without_open_mpi(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libmpi.so.40").write_text("not a library")
            environment = {**ENVIRONMENT, "LD_LIBRARY_PATH": folder, "OMPI_COMM_WORLD_SIZE": "2"}
            result = subprocess.run([ZINC, "run", HYBRID, "hi", "--split-hosts"], env=environment, capture_output=True, text=True,
                                    timeout=DEADLINE_S, check=False)
            self.check(result, "needs Open MPI", "apt install openmpi-bin")

    def test_another_file_on_the_other_host(self):
        with tempfile.TemporaryDirectory() as folder:
            hosts = [pathlib.Path(folder, name) for name in "ab"]
            for host, model in zip(hosts, ("qwen35-f16.gguf", "llama-q8_0.gguf")):
                host.mkdir()
                shutil.copy(MODELS / model, host / "model.gguf")
            command = [ZINC, "run", "/proc/self/cwd/model.gguf", "hi", "--split-hosts"]
            result = run(*MPIRUN, "-n", "1", "--wdir", str(hosts[0]), *command, ":", "-n", "1", "--wdir", str(hosts[1]), *command)
            self.check(result, "is another file than that of rank 0", "the same file at the same path")
            (hosts[1] / "model.gguf").unlink()
            result = run(*MPIRUN, "-n", "1", "--wdir", str(hosts[0]), *command, ":", "-n", "1", "--wdir", str(hosts[1]), *command)
            self.check(result, "rank 1", "model.gguf", "the same file at the same path")

    def test_another_build_on_the_other_host(self):
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder, "zinc")
            shutil.copy(ZINC, other)
            with other.open("ab") as file:
                file.write(b"another build")
            command = ["run", HYBRID, "hi", "--split-hosts"]
            result = run(*MPIRUN, "-n", "1", ZINC, *command, ":", "-n", "1", str(other), *command)
            self.check(result, "another build of zinc")

    def test_devices_and_ratios_that_do_not_match_the_processes(self):
        self.check(on_ranks(2, "run", HYBRID, "hi", "--device", "cpu,cpu,cpu"), "3 devices", "2 processes")
        self.check(on_ranks(2, "run", HYBRID, "hi", "--split", "1,1,1"), "3 ratios for 2 processes")
        self.check(on_ranks(2, "run", HYBRID, "hi", "--split", "tensor"), "leave out --split tensor")


class Server:
    """`zinc serve` over two processes. REQUIRES: with Server(...) as server."""

    def __init__(self, *options):
        self.command = [*MPIRUN, "-n", "2", ZINC, "serve", f"model={SMOLLM2}", "--split-hosts", "--device", "cpu", "-t", "1", "--port", "0",
                        *options]

    def __enter__(self):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)
        self.url = self.find_url()
        self.ranks = self.find_ranks()
        return self

    def __exit__(self, *_):
        for pid in (self.process.pid, *self.ranks):
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()

    def find_url(self):
        for line in self.process.stdout:  # mpirun gives rank 0 a terminal: it has a greeting there
            if found := re.search(r"http://[0-9.]+:\d+", line):
                return found[0]
        raise AssertionError(self.read_errors())

    def find_ranks(self):
        ranks = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if folder.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1] != str(self.process.pid):
                    continue
                rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)\0", folder.joinpath("environ").read_bytes())
            except OSError:
                continue
            if rank:
                ranks[int(rank[1])] = int(folder.name)
        return [ranks[0], ranks[1]]

    def ask(self, path, body=None):
        """Status and text; status 0: no connection, or it was cut."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (OSError, ValueError, http.client.HTTPException) as error:
            return 0, repr(error)

    def chat(self, question, n_tokens, stream):
        return self.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": question}], "max_tokens": n_tokens,
                                                 "ignore_eos": True, "stream": stream, "temperature": 0})

    def read_errors(self):
        self.errors.seek(0)
        return self.errors.read()


def wait_for_the_end(server, since):
    code = server.process.wait(END_S)
    wait_until("no process is left", lambda: not any(map(is_running, server.ranks)), END_S)
    return code, time.monotonic() - since


class LostProcesses(unittest.TestCase):
    def lose_worker(self, moment_s):
        """Five clients, two of which wait for the others: each one gets an error."""
        with Server("--parallel", "3", "-c", "8192") as server, concurrent.futures.ThreadPoolExecutor(6) as threads:
            clients = [threads.submit(server.chat, f"Question {i}: " + "tell me a story. " * 40, 7000, stream=i % 2 == 0) for i in range(5)]
            time.sleep(moment_s)
            self.assertEqual(server.ask("/health")[0], 200)
            os.kill(server.ranks[1], signal.SIGKILL)
            killed = time.monotonic()
            healths = []

            def poll():
                while (health := server.ask("/health"))[0]:
                    healths.append(health)
                    time.sleep(0.02)

            threads.submit(poll).result()
            replies = [client.result() for client in clients]
            code, seconds = wait_for_the_end(server, killed)
            for status, text in replies:
                self.assertIn(status, (200, 500, 503), text[-300:])  # 200: a stream that had begun
                self.assertIn('"error"', text[-600:])
                self.assertIn("rank 1", text[-600:])
            self.assertNotEqual(code, 0)
            self.assertEqual(healths[-1][0], 503, healths[-1])
            self.assertIn("rank 1", json.loads(healths[-1][1])["error"])
            return seconds

    def test_a_lost_worker_ends_every_request_with_an_error(self):
        moments = random.Random(25)
        times = [self.lose_worker(moments.uniform(0, 3)) for _ in range(ARGUMENTS.kills)]
        print("seconds from the loss to the end:", " ".join(f"{seconds:.1f}" for seconds in times))

    def test_a_lost_worker_of_an_idle_server(self):
        with Server() as server:
            os.kill(server.ranks[1], signal.SIGKILL)
            code, _ = wait_for_the_end(server, time.monotonic())
            self.assertNotEqual(code, 0)
            self.assertIn("is lost", server.read_errors())

    def test_without_rank_0_the_worker_ends(self):
        with Server() as server:
            client = threading.Thread(target=server.chat, args=("hi", 7000, True))
            client.start()
            time.sleep(0.3)
            os.kill(server.ranks[0], signal.SIGKILL)
            code, _ = wait_for_the_end(server, time.monotonic())
            self.assertNotEqual(code, 0)
            client.join()

    def test_sigterm_to_rank_0_drains(self):
        with Server() as server, concurrent.futures.ThreadPoolExecutor() as threads:
            client = threads.submit(server.chat, "Tell me a story.", 60, True)
            time.sleep(0.5)
            os.kill(server.ranks[0], signal.SIGTERM)
            status, text = client.result()
            self.assertEqual(status, 200)
            self.assertTrue(text.endswith("data: [DONE]\n\n"), text[-200:])
            code, _ = wait_for_the_end(server, time.monotonic())
            self.assertEqual(code, 0, server.read_errors())


class SilentProcesses(unittest.TestCase if ARGUMENTS.kills >= MANY_KILLS else object):
    """As after a broken cable: mpirun sees nothing, and only heartbeats tell. Takes 20 s."""

    def test_a_worker_that_falls_silent(self):
        with Server("-c", "8192") as server:
            os.kill(server.ranks[1], signal.SIGSTOP)
            stopped = time.monotonic()
            status, text = server.chat("Tell me a story.", 7000, True)
            self.assertEqual(status, 200)
            self.assertIn("no heartbeat for 15", text[-600:])
            self.assertEqual(server.ask("/health")[0], 503)
            code, seconds = wait_for_the_end(server, stopped)
            self.assertNotEqual(code, 0)
            self.assertLess(seconds, 25)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
