"""Two `zinc serve` behind HAProxy with deploy/haproxy.cfg, on the loopback, and requests to them."""
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "deploy/haproxy.cfg"
MODEL = ROOT / "tests/data/oracle/models/qwen3-q8_0.gguf"
SLOWSTART = "slowstart 30s"  # of a replica that comes back: shorter in the test
HAPROXY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin") or "haproxy"
DEADLINE_S = 60  # of every wait


def wait_until(what, condition):
    end = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"after {DEADLINE_S} s still not: {what}")
        time.sleep(0.02)
    return value


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclasses.dataclass
class Reply:
    """`error`: the response was cut. `events`: of a stream."""
    status: int = 0
    replica: str = ""
    body: str = ""
    error: str = ""
    headers: dict = dataclasses.field(default_factory=dict)

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def is_complete(self):
        return self.status == 200 and not self.error

    @property
    def events(self):
        return re.findall(r"(?m)^data: (.*)$", self.body)


class Stream:
    """A request whose response is read step by step."""

    def __init__(self, port, path, body, headers=None, method="POST"):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        data = None if body is None else json.dumps(body)
        self.connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        self.reply = Reply()

    def begin(self):
        """Reads the headers and, of a stream, the first event."""
        self.response = self.connection.getresponse()
        self.reply.status, self.reply.replica = self.response.status, self.response.getheader("x-zinc-replica", "")
        self.reply.headers = {name.lower(): value for name, value in self.response.getheaders()}
        if "event-stream" in self.reply.headers.get("content-type", ""):
            self.reply.body = self.response.readline().decode()
        return self

    def finish(self):
        parts = [self.reply.body]
        try:
            while part := self.response.read1(65536):
                parts.append(part.decode())
        except (http.client.HTTPException, OSError) as error:
            self.reply.error = repr(error)
        self.reply.body = "".join(parts)
        self.connection.close()
        return self.reply


class Replica:
    def __init__(self, zinc, name, folder, options):
        self.command = [zinc, "serve", f"tiny={MODEL}", "--threads", "1", "--replica", name, *options]
        self.name, self.folder, self.port, self.process = name, folder, 0, None

    def start(self):
        out = self.folder / f"{self.name}.out"
        with out.open("w") as stdout, (self.folder / f"{self.name}.err").open("a") as stderr:
            self.process = subprocess.Popen([*self.command, "--port", str(self.port)], stdout=stdout, stderr=stderr)
        url = wait_until(f"{self.name} listens", lambda: re.match(r"listening on http://127.0.0.1:(\d+)\n", out.read_text()))
        self.port = int(url[1])

    def end(self, with_signal):
        self.process.send_signal(with_signal)
        return self.process.wait(DEADLINE_S)

    def ask(self, path):
        return json.loads(Stream(self.port, path, None, method="GET").begin().finish().body)


class Fleet:
    """REQUIRES: with Fleet(...) as fleet. `options`: of every `zinc serve`."""

    def __init__(self, zinc, folder, options=(), names=("zinc-0", "zinc-1")):
        self.replicas = {name: Replica(zinc, name, folder, options) for name in names}
        self.folder, self.port = folder, free_port()

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            for replica in self.replicas.values():
                replica.start()
            self.start_haproxy()
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.stop()

    def start_haproxy(self):
        text = CONFIG.read_text()
        assert text.count(SLOWSTART) == 1, SLOWSTART
        config = self.folder / "haproxy.cfg"
        config.write_text(text.replace(SLOWSTART, "slowstart 1s"))
        environment = {**os.environ, "ZINC_LISTEN": f"127.0.0.1:{self.port}",
                       **{name.upper().replace("-", "_"): f"127.0.0.1:{replica.port}" for name, replica in self.replicas.items()}}
        log = (self.folder / "haproxy.log").open("w")
        self.haproxy = subprocess.Popen([HAPROXY, "-db", "-f", config], env=environment, stdout=log, stderr=log)
        log.close()
        wait_until("HAProxy listens", self.is_ready)

    def is_ready(self):
        assert self.haproxy.poll() is None, (self.folder / "haproxy.log").read_text()
        with contextlib.suppress(OSError):
            return self.ask("/ready", None, method="GET").status == 200

    def stop(self):
        if hasattr(self, "haproxy"):
            self.haproxy.kill()
            self.haproxy.wait()
        for replica in self.replicas.values():
            if replica.process and replica.process.poll() is None:
                replica.end(signal.SIGKILL)

    def begin(self, path, body, headers=None, method="POST"):
        return Stream(self.port, path, body, headers, method).begin()

    def ask(self, path, body, headers=None, method="POST"):
        return self.begin(path, body, headers, method).finish()

    def chat(self, messages, headers=None, **fields):
        return self.ask("/v1/chat/completions", {"messages": messages, "temperature": 0, **fields}, headers)

    def owners(self):
        """The replicas of some keys."""
        return [self.ask("/tokenize", {"content": "x"}, {"X-Session-ID": f"key {i}"}).replica for i in range(12)]

    def restart(self, replica, owners):
        """Until it has its keys again: those of owners()."""
        replica.start()
        wait_until(f"{replica.name} has its keys again", lambda: self.owners() == owners)
