#!/usr/bin/env python3
"""Speculative decoding against plain decoding: two servers of one model, asked in turns.

    bench/speculation.py ZINC MODEL [--rounds 5] [--speculate auto]

Tasks: an edit (a text of about 400 tokens is repeated with small changes: prompt lookup finds most of it) and free chat
(nothing to look up: speculation must not cost anything). Prints decode tokens per second of both servers and the ratio
of their medians. Greedy decoding; the outputs are compared.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request

TEXT = """The harbour of Ostrava Bay was built in 1872 by the engineer Johann Keller. It has three piers, two lighthouses and a dry
dock. Every morning the fishing boats leave at five o'clock, and they return before noon with cod, herring and mackerel. The market hall
stands next to the northern pier. It was painted green in 1931 and has not changed since. On Saturdays the hall is full of visitors who
buy smoked fish, dark bread and honey. In winter the wind comes from the east, and the boats stay in the harbour for weeks. Then the
fishermen repair their nets in the old customs house and tell stories about the great storm of 1904. In that storm the southern lighthouse
lost its lamp, and eleven boats did not return. A stone with the names of the crews stands on the hill above the bay. Each year, on the
first Sunday of October, the whole town walks up the hill with lanterns. The school children sing two songs, and the mayor reads the names
aloud. After that there is soup for everybody in the market hall. The railway came to the bay in 1899. It carried ice and salt to the
harbour and fish to the capital. The station was closed in 1968, but the building is now a small museum with photographs, maps and a model
of the first steam crane. The crane itself still stands on the middle pier, and it is moved once a year, on the day of the harbour."""
TASKS = {
    "edit": [f"Repeat the following text exactly, but write Karel instead of Johann.\n\n{TEXT}",
             f"Copy this text word for word, but replace the year 1931 by 1941.\n\n{TEXT}"],
    "chat": ["Write a short story about a clockmaker who moves to the sea.",
             "Explain to a child why the sky is blue and why sunsets are red.",
             "What should I consider when I plan a vegetable garden?"],
}


def serve(zinc, model, speculate, threads):
    process = subprocess.Popen([zinc, "serve", model, "--port", "0", "--parallel", "1", "-c", "2048", "--threads", str(threads),
                                "--speculate", speculate], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in process.stdout:
        found = re.search(r"https?://\S+", line)
        if found:
            return process, found.group(0)
    sys.exit(f"zinc serve {model} did not start")


def ask(url, prompt, max_tokens):
    """Text and decode tokens per second of one streamed completion, from the first token on."""
    body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": max_tokens, "stream": True,
            "stream_options": {"include_usage": True}}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    text, first, last, n_tokens = "", None, None, 0
    with urllib.request.urlopen(request) as reply:
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event.get("usage"):
                n_tokens = event["usage"]["completion_tokens"]
            for choice in event.get("choices", []):
                piece = choice.get("delta", {}).get("content")
                if piece:
                    text += piece
                    last = time.monotonic()
                    first = first or last
    return text, (n_tokens - 1) / (last - first)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("zinc")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--speculate", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--max-tokens", type=int, default=400)
    args = parser.parse_args()
    servers = [serve(args.zinc, args.model, mode, args.threads) for mode in ("off", args.speculate)]
    try:
        for task, prompts in TASKS.items():
            speeds = ([], [])
            for round_number in range(args.rounds):
                for prompt in prompts:
                    texts = []
                    for i, (_, url) in enumerate(servers):
                        text, speed = ask(url, prompt, args.max_tokens)
                        texts.append(text)
                        if round_number > 0:  # the first round warms up
                            speeds[i].append(speed)
                    if texts[0] != texts[1]:
                        sys.exit(f"{task}: the outputs differ:\n{texts[0]!r}\n{texts[1]!r}")
            plain, drafted = (statistics.median(values) for values in speeds)
            ratio = statistics.median(b / a for a, b in zip(*speeds))
            print(f"{task}: {plain:.1f} tok/s plain, {drafted:.1f} tok/s with --speculate {args.speculate}: {ratio:.2f} x")
        with urllib.request.urlopen(servers[1][1] + "/metrics") as reply:
            for line in reply.read().decode().splitlines():
                if "spec" in line and not line.startswith("#"):
                    print("  " + line)
    finally:
        for process, _ in servers:
            process.terminate()


if __name__ == "__main__":
    main()
