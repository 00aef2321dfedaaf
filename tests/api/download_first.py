"""`zinc serve URL` refuses connections while it downloads the model, and then answers:  download_first.py ZINC FOLDER"""
import functools
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request

zinc, folder = sys.argv[1], os.path.join(sys.argv[2], "download")
shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
os.makedirs(folder)
models = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/oracle/models")
is_asked, may_answer = threading.Event(), threading.Event()


class SlowHub(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        is_asked.set()
        may_answer.wait(60)
        super().do_GET()

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(SlowHub, directory=models)) as hub:
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    port = free_port()
    home = {name: folder for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME")}
    server = subprocess.Popen(
        [zinc, "serve", f"tiny=http://127.0.0.1:{hub.server_port}/qwen3-q8_0.gguf", "--port", str(port)],
        env={**os.environ, **home}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert is_asked.wait(60), server.communicate()
        with socket.socket() as early:
            assert early.connect_ex(("127.0.0.1", port)) != 0, "a connection waits for the download"
        may_answer.set()
        assert server.stdout.readline().startswith("listening on"), server.communicate()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
            assert json.load(answer)["status"] == "ok"
    finally:
        may_answer.set()
        server.terminate()
        server.communicate(timeout=120)
    assert server.returncode == 0, server.returncode
    hub.shutdown()
print("zinc serve that downloads first: 3 checks")
