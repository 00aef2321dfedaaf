"""Randomly misbehaving clients:  chaos.py URL SECONDS [--key KEY] [--pid PID]
Disconnects at random points, resets, slow readers, malformed HTTP, JSON and UTF-8, oversized requests, many choices,
pipelined requests; and in between clients that know the right answer, with and without drafts (speculative decoding).
Every answer must be right. Afterwards the server must be alive, answer a valid request, have no running or queued request, hold
no KV page, and have finished as many requests as it accepted. With the server's PID (inside the caller's process tree or
not) the clients start again, a SIGTERM follows, and the process must end soon after."""
import argparse
import json
import os
import random
import re
import signal
import socket
import struct
import threading
import time
import urllib.request

arguments = argparse.ArgumentParser()
arguments.add_argument("url")
arguments.add_argument("seconds", type=float)
arguments.add_argument("--key", default="")
arguments.add_argument("--pid", type=int)
options = arguments.parse_args()
url, seconds, key = options.url, options.seconds, options.key
host, port = url.removeprefix("http://").split(":")
end = time.monotonic() + seconds
counts, lock = {}, threading.Lock()


def connect():
    s = socket.create_connection((host, int(port)))
    s.settimeout(90)  # responses may be late on a busy machine
    return s


def head(path, length, extra=""):
    auth = f"Authorization: Bearer {key}\r\n" if key else ""
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{auth}{extra}Content-Length: {length}\r\n\r\n".encode()


def body_of(rng, stream):
    text = rng.choice(["FLOOD[[abc]]", "WAIT[[w]]", "SAY[[hello]]", "FAIL[[x]]", "x" * rng.randrange(3000), "é" * 50])
    path = rng.choice(["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions"])
    fields = {"stream": stream}
    if path == "/v1/responses":
        fields |= {"input": text, "max_output_tokens": rng.randrange(1, 200)}
    elif path == "/v1/completions":
        fields |= {"prompt": text, "max_tokens": rng.randrange(1, 200), "n": rng.randrange(1, 5)}
    else:
        fields |= {"messages": [{"role": "user", "content": text}], "max_tokens": rng.randrange(1, 200)}
    return path, json.dumps(fields).encode()


def disconnects(rng):  # after reading a little, by FIN or RST
    path, body = body_of(rng, rng.random() < 0.7)
    s = connect()
    s.sendall(head(path, len(body)) + body)
    s.settimeout(rng.random() * 0.05 + 0.001)
    try:
        for _ in range(rng.randrange(4)):
            s.recv(rng.randrange(1, 3000))
    except TimeoutError:
        pass
    if rng.random() < 0.5:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def reads_slowly(rng):
    path, body = body_of(rng, True)
    s = connect()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    s.sendall(head(path, len(body)) + body)
    s.settimeout(0.5)
    stop = time.monotonic() + 0.5
    while time.monotonic() < stop and s.recv(64):
        time.sleep(0.02)
    s.close()


def sends_garbage(rng):
    s = connect()
    data = rng.choice([rng.randbytes(rng.randrange(1, 500)), b"GET / HTTP/1.1\r\nX: " + b"a" * 40000,
                       b"\x16\x03\x01" + rng.randbytes(50), b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
                       b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"])
    s.sendall(data)
    s.settimeout(0.2)
    try:
        s.recv(1000)
    except TimeoutError:
        pass
    s.close()


def sends_bad_bodies(rng):
    path, body = body_of(rng, rng.random() < 0.5)
    kind = rng.randrange(7)
    if kind == 0:
        body = bytearray(body)
        for _ in range(rng.randrange(1, 6)):
            body[rng.randrange(len(body))] = rng.randrange(256)
    elif kind == 1:
        body = body[:rng.randrange(len(body))]
    elif kind == 2:
        body = b"[" * 100000
    elif kind == 3:
        body = b'{"messages":[{"role":"user","content":"\xed\xa0\x80\xf0\x80\x80\x41"}]}'
    elif kind == 4:
        body = json.dumps({"messages": [{"role": "user", "content": "x"}], "n": 10**9, "max_tokens": 10**30}).encode()
    elif kind == 5:  # longer than any context
        body = json.dumps({"prompt": "word " * 200000, "input": "word " * 200000, "max_tokens": 5,
                           "messages": [{"role": "user", "content": "word " * 200000}]}).encode()
    else:
        body = json.dumps({"prompt": "x", "logit_bias": {str(i): 1 for i in range(5000)}, "max_tokens": 5,
                           "stop": ["s" * 300] * 40, "dry_sequence_breakers": ["ab"] * 200}).encode()
    s = connect()
    s.sendall(head(path, len(body)) + bytes(body))
    s.settimeout(1)
    try:
        s.recv(100)
    except TimeoutError:
        pass
    s.close()


def pipelines(rng):  # many requests at once; reads some of the responses or none
    path, body = body_of(rng, False)
    s = connect()
    s.settimeout(2)
    try:
        s.sendall(rng.choice([head(path, len(body)) + body, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"]) * 50)
        for _ in range(rng.randrange(5)):
            s.recv(100000)
    except TimeoutError:
        pass
    s.close()


def never_ends_a_chunk(rng):
    s = connect()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
              rng.choice([b"1;", b"0\r\nX: "]) + b"a" * 100000)
    s.settimeout(1)
    s.recv(1000)
    s.close()


def disconnects_in_the_body(rng):
    path, body = body_of(rng, True)
    s = connect()
    s.sendall(head(path, len(body)) + body[:rng.randrange(len(body))])
    s.close()


def disconnects_with_a_long_text(rng):  # while it waits for the worker thread, or is parsed
    body = json.dumps({"prompt": "word " * rng.randrange(4000, 40000), "max_tokens": 5, "stream": rng.random() < 0.5}).encode()
    s = connect()
    s.sendall(head("/v1/completions", len(body)) + body)
    time.sleep(rng.random() * 0.05)
    s.close()


def half_closes(rng):  # and reads on: immediate requests are answered
    s = connect()
    n = rng.randrange(1, 60)
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n"
    s.sendall((request + b"\r\n") * n + request + b"Connection: close\r\n\r\n")
    s.shutdown(socket.SHUT_WR)
    got = read_response(s)
    if got.count(b"HTTP/1.1 ") != n + 1 and not stopping.is_set():
        raise AssertionError(f"{got.count(b'HTTP/1.1 ')} responses to {n + 1} requests")


def read_response(s):
    got = b""
    while piece := s.recv(65536):
        got += piece
    s.close()
    return got


def asks_properly(rng):
    s = connect()
    body = json.dumps({"prompt": "SAY[[fine]]", "max_tokens": 20, "temperature": 0}).encode()
    s.sendall(head("/v1/completions", len(body), "Connection: close\r\n") + body)
    got = read_response(s)
    if not got:  # a stopping server closes connections that have not sent a request yet
        raise ConnectionResetError("closed without a response")
    assert got.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503")), got[:200]


QUESTIONS = [{"messages": [{"role": "user", "content": f"Question {i}: " + "one two three four " * i}], "max_tokens": 10 + 15 * i,
              "temperature": [0, 0, 0.7, 1][i % 4], "seed": i, "logprobs": i % 2 == 0, "stream": False} for i in range(8)]


def answer(question):
    """The choices of a completion, and its usage. None if the server was busy."""
    s = connect()
    body = json.dumps(question).encode()
    s.sendall(head("/v1/chat/completions", len(body), "Connection: close\r\n") + body)
    got = read_response(s)
    if not got:
        raise ConnectionResetError("closed without a response")
    if got.startswith((b"HTTP/1.1 429", b"HTTP/1.1 503")):
        return None
    assert got.startswith(b"HTTP/1.1 200"), got[:200]
    completion = json.loads(got.split(b"\r\n\r\n", 1)[1])
    return completion["choices"], completion["usage"]["completion_tokens_details"]


def checks_an_answer(rng):
    i = rng.randrange(len(QUESTIONS))
    text = answers[i][0][0]["message"]["content"] or ""
    cut = rng.randrange(len(text) + 1)
    more = rng.choice([{}, {"prediction": {"type": "content", "content": text}},
                       {"prediction": {"type": "content", "content": text[:cut] + "?" + text[cut:]}}])
    mode = rng.choice(["auto", "ngram", "off"])
    got = answer(QUESTIONS[i] | {"speculate": mode} | more)
    if got is None:
        return
    choices, usage = got
    n_accepted, n_rejected = usage["accepted_prediction_tokens"], usage["rejected_prediction_tokens"]
    with lock:
        counts["answers"] = counts.get("answers", 0) + 1
        counts["accepted"] = counts.get("accepted", 0) + n_accepted
    if choices != answers[i][0]:
        raise AssertionError(f"a wrong answer with {mode} and {more}: {choices} instead of {answers[i][0]}")
    assert mode != "off" or n_accepted == n_rejected == 0, usage


def run(seed):
    rng = random.Random(seed)
    acts = [disconnects, disconnects, disconnects, reads_slowly, sends_garbage, sends_bad_bodies, disconnects_in_the_body, pipelines,
            never_ends_a_chunk, disconnects_with_a_long_text, half_closes, asks_properly, checks_an_answer, checks_an_answer]
    while time.monotonic() < end and not stopping.is_set():
        act = rng.choice(acts)
        try:
            act(rng)
        except (ConnectionError, TimeoutError) as error:
            if act in (asks_properly, checks_an_answer) and not stopping.is_set():
                raise AssertionError(f"a proper request failed: {error}") from error
        with lock:
            counts[act.__name__] = counts.get(act.__name__, 0) + 1


def metrics():
    """The sum over models and labels of every number at /metrics."""
    sums = {}
    request = urllib.request.Request(url + "/metrics", headers={"Authorization": f"Bearer {key}"} if key else {})
    for line in urllib.request.urlopen(request).read().decode().splitlines():
        if found := re.match(r"([a-z:_A-Z]+)(?:\{.*\})? ([-+0-9.e]+)$", line):
            sums[found[1]] = sums.get(found[1], 0) + float(found[2])
    return sums


def run_all():
    threads = [threading.Thread(target=run, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    return threads


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


failures, stopping = [], threading.Event()
threading.excepthook = lambda args: failures.append(args.exc_value)
answers = [answer(question | {"speculate": "off"}) for question in QUESTIONS]
for thread in run_all():
    thread.join()
assert not failures, failures
asks_properly(random.Random(0))
for _ in range(1800):  # the last ones may be counted a moment after their responses
    health = json.load(urllib.request.urlopen(url + "/health"))
    numbers = metrics()
    taken, ended = numbers["zinc_requests_submitted_total"], numbers["vllm:request_success_total"]
    pages = numbers["zinc_cache_pages_in_use"]
    if health["active_requests"] == health["queued_requests"] == pages == 0 and taken == ended:
        break
    time.sleep(0.05)
assert health["active_requests"] == health["queued_requests"] == 0, health
assert pages == 0, f"{pages} KV pages are still held"
assert taken == ended, f"{taken} requests were accepted and {ended} finished"
n_answers, n_accepted = counts.pop("answers", 0), counts.pop("accepted", 0)
n_drafted = numbers["vllm:spec_decode_num_draft_tokens_total"]
print(f"chaos for {seconds:.0f} s: {sum(counts.values())} clients, {taken:.0f} requests accepted and finished, 0 KV pages held, "
      f"{n_answers} answers compared, 0 wrong, {n_drafted:.0f} tokens drafted, {n_accepted} accepted; {counts}")
assert n_answers > 0

if options.pid:
    end = time.monotonic() + 120
    threads = run_all()
    time.sleep(1)
    stopping.set()
    os.kill(options.pid, signal.SIGTERM)
    gone_by = time.monotonic() + 120  # the server drains for 30 s
    while is_running(options.pid):
        assert time.monotonic() < gone_by, "the server is still running two minutes after SIGTERM"
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert not failures, failures
    print("SIGTERM during requests: terminated")
