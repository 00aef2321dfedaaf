"""Requests that name an installed model which is not loaded:  model_swap.py ZINC FOLDER"""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

zinc, folder = sys.argv[1], os.path.join(sys.argv[2], "swap")
shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
os.makedirs(folder)
models = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/oracle/models")
named = [f"tiny={models}/qwen3-q8_0.gguf", f"other={models}/llama-q8_0.gguf"]


class Server:
    def __init__(self, *options):
        home = {name: folder for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME")}
        self.process = subprocess.Popen(
            [zinc, "serve", *named, "--port", "0", "-c", "2048", *options],
            env={**os.environ, **home}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = re.match(r"listening on (\S+)", self.process.stdout.readline())[1].replace("0.0.0.0", "127.0.0.1")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(120) == 0

    def ask(self, path, body=None, key="k"):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Authorization": f"Bearer {key}"})
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def complete(self, model, n_tokens=4, **more):
        body = {"prompt": "once", "max_tokens": n_tokens, "ignore_eos": True, **more}
        return self.ask("/v1/completions", {**body, "model": model} if model is not None else body)

    def active(self):
        return {entry["id"]: entry["active"] for entry in json.loads(self.ask("/v1/models")[1])["data"]}


def answered_by(answer):
    assert answer[0] == 200, answer
    return json.loads(answer[1])["model"]


with Server() as server, concurrent.futures.ThreadPoolExecutor(24) as pool:
    assert server.active() == {"tiny": True, "other": True}
    assert answered_by(server.complete("other")) == "other", "a loaded model does not unload others"
    assert server.active() == {"tiny": True, "other": True}
    assert server.ask("/v1/models/activate", {"model": "tiny"})[0] == 200
    assert server.active() == {"tiny": True, "other": False}, server.ask("/v1/models")

    # Unloading frees a model, and a request that names it loads it again.
    assert server.ask("/v1/models/unload", {"model": "other"})[0] == 404, "not loaded"
    assert server.ask("/v1/models/unload", {"model": "tiny"})[0] == 200
    assert server.active() == {"tiny": False, "other": False}, server.ask("/v1/models")
    for path in ("/api/generate", "/api/chat"):  # as Ollama's clients unload
        assert server.ask(path, {"model": "other", "keep_alive": 0})[0] == 200, "installed, but not loaded"
        assert server.ask(path, {"model": "nowhere", "keep_alive": 0})[0] == 404
    assert answered_by(server.complete("tiny")) == "tiny"

    # Names mean what they mean in the CLI: case and separators do not matter, an unambiguous beginning is enough.
    assert server.complete("OTHER")[0] == 200 and server.active() == {"tiny": False, "other": True}
    assert server.complete("othe")[0] == 200 and server.active() == {"tiny": False, "other": True}, "no second copy"
    assert server.ask("/v1/models/activate", {"model": "Ti-ny"})[0] == 200
    assert server.active() == {"tiny": True, "other": False}, "under its own name"
    status, text = server.complete("qwen3:8b")
    assert status == 404 and "'qwen3-8b' is not installed; pull it first" in text, text
    assert server.complete("oth")[0] == 404, "too short"

    # A running stream is finished; a request for the other model waits for it.
    stream = pool.submit(server.complete, "tiny", 1500, stream=True)
    while json.loads(server.ask("/health")[1])["active_requests"] == 0 and not stream.done():
        time.sleep(0.002)
    assert answered_by(server.complete("other")) == "other"
    status, text = stream.result()
    assert status == 200 and "length" in text and text.endswith("data: [DONE]\n\n"), text[-300:]
    assert server.active() == {"other": True, "tiny": False}
    assert [answered_by(server.complete(name)) for name in (None, "default", "local-model")] == ["other"] * 3

    # Many concurrent requests for both: each is answered by the model it names.
    wanted = ["tiny", "other"] * 10
    assert [answered_by(answer) for answer in pool.map(server.complete, wanted)] == wanted

    for path, body in (("/v1/completions", {"prompt": "x"}), ("/v1/embeddings", {"input": "x"}), ("/tokenize", {"content": "x"})):
        status, text = server.ask(path, {**body, "model": "nowhere"})
        assert status == 404 and json.loads(text)["error"]["code"] == "model_not_found", (status, text)
    assert server.ask("/v1/completions", {"prompt": "x", "model": "qwen3-8b"})[0] == 404, "in the catalog, but not installed"

for options, swaps in (("--no-swap",), False), (("--host", "0.0.0.0", "--api-key", "k"), False), \
        (("--host", "0.0.0.0", "--api-key", "k", "--swap"), True):
    with Server(*options) as server:
        assert json.loads(server.ask("/props")[1])["swaps_models"] is swaps, options
        assert server.ask("/v1/models/activate", {"model": "tiny"})[0] == 200
        assert server.complete("other")[0] == (200 if swaps else 404), options
        if not swaps:
            assert server.active() == {"tiny": True}

# Names with slashes: models in the Hugging Face cache.
repository, commit = os.path.join(folder, "hub/models--org--repo"), "0" * 40
for path, text in (("refs/main", commit.encode()), (f"snapshots/{commit}/tiny.gguf", open(named[0][5:], "rb").read())):
    os.makedirs(os.path.dirname(os.path.join(repository, path)), exist_ok=True)
    with open(os.path.join(repository, path), "wb") as file:
        file.write(text)
with Server("--cache-folder", folder) as server:
    assert answered_by(server.complete("hf:org/repo:tiny.gguf")) == "hf:org/repo:tiny.gguf"
assert os.path.exists(os.path.join(folder, "hf:org%2Frepo:tiny.gguf.cache")), os.listdir(folder)
print("requests load the model they name")
