"""Tool loops of coding agents, recorded from their real requests (tests/data/agents, by record_agent.py), against a scripted
server (argument 1): every request is answered, the first with a tool call and the last with the text after it."""
import json
import pathlib
import sys
import urllib.request

RECORDED = pathlib.Path(__file__).resolve().parent.parent / "data" / "agents"


def events(path, body):
    request = urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode(),
                                     {"content-type": "application/json", "x-api-key": "test-key"})
    with urllib.request.urlopen(request) as response:
        lines = response.read().decode().splitlines()
    return [json.loads(line[len("data: "):]) for line in lines if line.startswith("data: ")]


def anthropic_blocks(stream):
    """The content blocks of a streamed message: [(type, name or text)]."""
    blocks = []
    for event in stream:
        if event["type"] == "content_block_start":
            blocks.append([event["content_block"]["type"], event["content_block"].get("name", "")])
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
            blocks[-1][1] += event["delta"]["text"]
    assert stream[-1]["type"] == "message_stop", stream[-1]
    return blocks


def response_items(stream):
    assert stream[-1]["type"] == "response.completed", stream[-1]
    return [[item["type"], item.get("name") or item["content"][0]["text"]] for item in stream[-1]["response"]["output"]
            if item["type"] != "reasoning"]


def replay(name, parse, call, text):
    requests = [r for r in json.loads((RECORDED / name).read_text()) if r["body"].get("stream")]
    answers = [parse(events(request["path"], request["body"])) for request in requests]
    assert any(call in answer for answer in answers), (name, answers)
    assert text in answers[-1], (name, answers)
    return len(requests)


n = replay("claude_code.json", anthropic_blocks, ["tool_use", "Bash"], ["text", "done"])
n += replay("codex.json", response_items, ["function_call", "exec_command"], ["message", "done"])
print(f"Claude Code 2.1.197 and Codex 0.166.0: {n} recorded requests")
