#!/usr/bin/env python3
"""A proxy that records the requests of a coding agent:  record_agent.py URL KEY FILE [PORT]

Forwards every POST to the server at URL with KEY, and writes the requests as JSON to FILE when it is stopped. Long texts
are cut (only their presence matters to the server), identifiers and paths of this machine are replaced. For tests/data/agents:
  scripted_server &
  record_agent.py http://127.0.0.1:PORT test-key claude_code.json 8765 &
  ANTHROPIC_BASE_URL=http://127.0.0.1:8765 claude -p "$(cat prompt)" --allowedTools Bash
"""
import http.server
import json
import os
import re
import signal
import sys
import urllib.error
import urllib.request

MAX_TEXT = 160  # characters of a text; scripts for the scripted engine are kept whole
IDENTIFIER = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32,}")
url, key, file = sys.argv[1:4]
recorded = []


def scrub(value):
    if isinstance(value, dict):
        return {name: scrub(member) for name, member in value.items()}
    if isinstance(value, list):
        return [scrub(member) for member in value]
    if not isinstance(value, str):
        return value
    value = IDENTIFIER.sub("00000000-0000-0000-0000-000000000000", value).replace(os.getcwd(), "/project")
    if len(value) <= MAX_TEXT or "[[" in value:
        return value
    return value[:MAX_TEXT // 2] + f" ... ({len(value)} characters)"


class Proxy(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        recorded.append({"path": self.path, "body": scrub(json.loads(body))})
        request = urllib.request.Request(url + self.path, body, {
            "content-type": "application/json", "authorization": f"Bearer {key}", "connection": "close"})
        try:
            response = urllib.request.urlopen(request, timeout=60)
        except urllib.error.HTTPError as error:
            response = error
        answer = response.read()
        self.send_response(response.status)
        self.send_header("content-type", response.headers["content-type"])
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def stop(*_):
    with open(file, "w", encoding="utf-8") as out:
        json.dump(recorded, out, indent=1, ensure_ascii=False)
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[4]) if len(sys.argv) > 4 else 8765), Proxy).serve_forever()
