"""Opens N idle event streams (argument 2) on the scripted server at argument 1 with process id argument 3. Prints the
resident memory per connection and the latency of /health while they are open; fails above 40 KB per connection. (The limit for
/health, 50 ms at p99, holds for an idle machine and is only printed.)"""
import json
import pathlib
import resource
import socket
import sys
import time

host, port = sys.argv[1].removeprefix("http://").split(":")
n, pid = int(sys.argv[2]), sys.argv[3]
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def resident_kb():
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1024


def health_ms():
    start = time.perf_counter()
    with socket.create_connection((host, int(port))) as s:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        while s.recv(65536):
            pass
    return (time.perf_counter() - start) * 1e3


body = json.dumps({"messages": [{"role": "user", "content": "WAIT[[w]]"}], "stream": True}).encode()
request = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer test-key\r\n"
           b"Content-Length: %d\r\n\r\n" % len(body)) + body
for _ in range(50):
    health_ms()
before = resident_kb()
streams = []
for _ in range(n):
    s = socket.create_connection((host, int(port)))
    s.sendall(request)
    streams.append(s)
for s in streams:
    got = b""
    while b'"content":"w"' not in got:
        piece = s.recv(65536)
        assert piece, "a stream ended"
        got += piece
per_connection = (resident_kb() - before) / n
times = sorted(health_ms() for _ in range(1000))
p99 = times[int(len(times) * 0.99)]
print(f"{n} open streams: {per_connection:.1f} KB each, /health p50 {times[len(times) // 2]:.2f} ms, p99 {p99:.2f} ms (limits: 40, 50)")
assert per_connection < 40
