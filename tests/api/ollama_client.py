"""Clients of Ollama, unmodified, against a scripted server (argument 1), a tiny model (2) and one with a model folder of its
own (3): the ollama package and LangChain's ChatOllama. litellm's are in older_openai_clients.py."""
import http.server
import json
import os
import sys
import threading
import time

import langchain_ollama
import ollama

SCRIPTED, TINY, PULLS = sys.argv[1:4]
HEADERS = {"Authorization": "Bearer test-key"}
scripted = ollama.Client(host=SCRIPTED, headers=HEADERS)
model = ollama.Client(host=TINY)
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
CALL = 'SAY[[<think>hm</think>Look.<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>]]'


def user(text):
    return [{"role": "user", "content": text}]


def check_chat():
    answer = scripted.chat("scripted", user("SAY[[<think>hm</think>Grüße, 世界]]"))
    assert (answer.message.content, answer.message.thinking) == ("Grüße, 世界", "hm")
    assert answer.done and answer.done_reason == "stop"
    assert answer.eval_count > 0 and answer.prompt_eval_count > 0 and answer.total_duration >= 0
    parts = list(scripted.chat("scripted:latest", user("SAY[[one two three]]"), stream=True))
    assert "".join(part.message.content for part in parts) == "one two three"
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].done_reason == "stop" and parts[-1].eval_count > 0
    cut = scripted.chat("scripted", user("SAY[[one two three]]"), options={"num_predict": 1, "temperature": 0})
    assert cut.done_reason == "length"


def check_tools():
    def weather(city: str) -> str:
        """Weather of a city

        Args:
          city: its name
        """
        return city
    answer = scripted.chat("scripted", user(CALL), tools=[weather])
    call = answer.message.tool_calls[0].function
    assert (call.name, call.arguments) == ("weather", {"city": "Köln"})
    follow = scripted.chat("scripted", user("weather?") + [
        answer.message, {"role": "tool", "content": "SAY[[rain]]", "tool_name": "weather"}], tools=TOOLS)
    assert follow.message.content == "rain"
    calls = [part.message.tool_calls for part in scripted.chat("scripted", user(CALL), tools=TOOLS, stream=True)
             if part.message.tool_calls]
    assert len(calls) == 1 and calls[0][0].function.arguments == {"city": "Köln"}


def check_generate():
    assert scripted.generate("scripted", "SAY[[hello]]", system="Be brief.").response == "hello"
    assert scripted.generate("scripted", "SAY[[hello]]", raw=True).response == "hello"
    parts = list(scripted.generate("scripted", "SAY[[<think>hm</think>one two]]", stream=True))
    assert "".join(part.response for part in parts) == "one two"
    assert "".join(part.thinking or "" for part in parts) == "hm"
    try:
        scripted.generate("scripted", "a", images=[b"\x89PNG"])
        raise AssertionError("images are accepted")
    except ollama.ResponseError as error:
        assert error.status_code == 400 and "text only" in error.error


def check_models():
    assert [entry.model for entry in scripted.list().models] == ["scripted"]
    assert [entry.model for entry in scripted.ps().models] == ["scripted"]
    shown = scripted.show("scripted")
    assert "tools" in shown.capabilities and shown.details.format == "gguf" and shown.template
    assert model.show("tiny").modelinfo["general.architecture"] == "qwen3"
    try:
        scripted.chat("other", user("x"))
        raise AssertionError("an unknown model is accepted")
    except ollama.ResponseError as error:
        assert error.status_code == 404 and "not found" in error.error
    try:
        list(model.pull("no-such-model", stream=True))
        raise AssertionError("an unknown model is downloaded")
    except ollama.ResponseError as error:
        assert "no-such-model" in error.error
    for refused in (lambda: model.copy("tiny", "other"), lambda: model.push("tiny")):
        try:
            refused()
            raise AssertionError("accepted")
        except ollama.ResponseError as error:
            assert error.status_code == 501


def check_pull_and_delete():
    """The second half of the file is sent when the client has seen the first half's progress."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/oracle/models")
    has_seen_progress = threading.Event()

    class Hub(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            with open(os.path.join(folder, os.path.basename(self.path)), "rb") as file:
                content = file.read()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:len(content) // 2])
            self.wfile.flush()
            has_seen_progress.wait(60)
            self.wfile.write(content[len(content) // 2:])

        def log_message(self, *_):
            pass

    client = ollama.Client(host=PULLS)
    names = lambda: {entry.model for entry in client.list().models}
    assert names() == {"tiny"}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{hub.server_port}/llama-q8_0.gguf"
        parts = []
        for part in client.pull(url, stream=True):
            parts.append(part)
            if part.completed:
                has_seen_progress.set()
        assert has_seen_progress.is_set() and parts[-1].status == "success", parts
        assert any(0 < part.completed < part.total for part in parts if part.completed), parts
        assert client.pull(url).status == "success", "installed before"
        hub.shutdown()
    assert names() == {"tiny", "llama-q8_0"}
    assert client.generate("llama-q8_0", "hi", options={"num_predict": 2}).done
    client.delete("llama-q8_0")
    assert names() == {"tiny"}


def check_embed():
    answer = model.embed("tiny", ["one", "two"])
    assert len(answer.embeddings) == 2 and len(answer.embeddings[0]) > 16
    assert len(model.embeddings("tiny", "one").embedding) == len(answer.embeddings[0])


def check_structured():
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    answer = model.chat("tiny", user("hi"), format=schema, think=False, options={"num_predict": 64})
    assert json.loads(answer.message.content) in ({"n": 1}, {"n": 2}), answer.message


def check_keep_alive():
    assert model.generate("tiny", "", keep_alive=-1).done_reason == "load"
    assert [entry.model for entry in model.ps().models] == ["tiny"]
    assert model.generate("tiny", "", keep_alive=0).done_reason == "unload"
    assert model.ps().models == []
    assert model.generate("tiny", "hi", options={"num_predict": 2}, keep_alive="100ms").load_duration > 0, "loaded again"
    deadline = time.monotonic() + 120
    while model.ps().models and time.monotonic() < deadline:
        time.sleep(0.1)
    assert model.ps().models == [], "idle for 100 ms"
    model.generate("tiny", "", keep_alive=-1)


def check_langchain():
    chat = langchain_ollama.ChatOllama(model="scripted", base_url=SCRIPTED, client_kwargs={"headers": HEADERS})
    answer = chat.invoke("SAY[[Grüße]]")
    assert answer.content == "Grüße" and answer.response_metadata["done_reason"] == "stop"
    assert answer.usage_metadata["output_tokens"] > 0
    assert "".join(part.content for part in chat.stream("SAY[[one two]]")) == "one two"
    call = chat.bind_tools(TOOLS).invoke(CALL).tool_calls[0]
    assert (call["name"], call["args"]) == ("weather", {"city": "Köln"})
    embeddings = langchain_ollama.OllamaEmbeddings(model="tiny", base_url=TINY)
    assert len(embeddings.embed_documents(["one", "two"])) == 2


for name, check in list(globals().items()):
    if name.startswith("check_"):
        check()
        print(f"ok: {name}")
