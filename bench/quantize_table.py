#!/usr/bin/env python3
"""Quantizes a model to every type and measures what each loses: KL divergence from the original on a text.

  bench/quantize_table.py ORIGINAL.gguf TEXT.txt --imatrix imatrix.gguf --llama-quantize llama-quantize \\
    --json table.json --svg docs/images/quantize.svg > table.md
  bench/quantize_table.py --from table.json --svg docs/images/quantize.svg > table.md   draws it again

Prints a Markdown table, and draws bits per weight against KL divergence. With --llama-quantize each type is also made by
that program, with the same importance matrix. The scores of both files are those of `zinc perplexity`.
"""
import argparse
import html
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("original", nargs="?", help="GGUF file, f32, f16 or bf16")
    parser.add_argument("text", nargs="?")
    parser.add_argument("--zinc", default="build/zinc")
    parser.add_argument("--llama-quantize", help="llama.cpp's quantizer, to compare with")
    parser.add_argument("--imatrix", help="importance matrix for both")
    parser.add_argument("--types", help="a list with commas; default: all")
    parser.add_argument("--windows", default="8", help="windows of 512 tokens")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--from", dest="recorded", help="figures of an earlier run")
    parser.add_argument("--svg")
    return parser.parse_args()


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    return done.stdout + done.stderr


# Every name that `zinc help quantize` lists, largest first.
def all_types(zinc):
    text = " ".join(run(zinc, "help", "quantize").split())
    listed = text[text.index("main format:"):text.index(", copy")]
    return re.findall(r"(\w+) \([\d.]+\)", listed)


class Measurement:
    def __init__(self, arguments, folder):
        self.arguments, self.baseline = arguments, folder / "baseline"
        run(arguments.zinc, "perplexity", arguments.original, arguments.text, "--windows", arguments.windows,
            "--save-baseline", self.baseline)

    def score(self, model):
        out = run(self.arguments.zinc, "perplexity", model, self.arguments.text, "--windows", self.arguments.windows,
                  "--baseline", self.baseline, "--json")
        report = json.loads(out[out.index("{"):out.rindex("}") + 1])
        return {key: report[key] for key in ("perplexity", "kl_mean", "kl_p99", "top1_agreement")}

    def ours(self, kind, model):
        begin = time.monotonic()
        matrix = ["--imatrix", self.arguments.imatrix] if self.arguments.imatrix else []
        out = run(self.arguments.zinc, "quantize", self.arguments.original, model, kind, "--force", *matrix)
        seconds = time.monotonic() - begin
        bits = float(re.search(r"([\d.]+) bits per weight", out.split("tensors, ")[-1])[1])
        return {"bits": bits, "bytes": model.stat().st_size, "seconds": seconds, **self.score(model)}

    def llama(self, kind, model):
        begin = time.monotonic()
        matrix = ["--imatrix", self.arguments.imatrix] if self.arguments.imatrix else []
        run(self.arguments.llama_quantize, *matrix, self.arguments.original, model, kind.upper())
        seconds = time.monotonic() - begin
        return {"bytes": model.stat().st_size, "seconds": seconds, **self.score(model)}


def measure(arguments):
    rows = []
    types = arguments.types.split(",") if arguments.types else all_types(arguments.zinc)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        measurement = Measurement(arguments, folder)
        for kind in types:
            row = {"type": kind}
            for who, make in (("zinc", measurement.ours), ("llama.cpp", measurement.llama)):
                if who == "llama.cpp" and not arguments.llama_quantize:
                    continue
                try:
                    row[who] = make(kind, folder / "model.gguf")
                except RuntimeError as error:
                    print(f"{kind}: {error}", file=sys.stderr)
            if "zinc" in row:
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def markdown(rows):
    compares = any("llama.cpp" in row for row in rows)
    columns = ["type", "bits per weight", "MB", "KL divergence", "p99", "top-1 agreement", "perplexity"]
    if compares:
        columns += ["llama.cpp: KL divergence", "p99", "top-1 agreement"]
    lines = ["| " + " | ".join(columns) + " |", "|---" + "|--:" * (len(columns) - 1) + "|"]
    for row in rows:
        own, other = row["zinc"], row.get("llama.cpp")
        cells = [row["type"], f"{own['bits']:.2f}", f"{own['bytes'] / 1e6:.0f}", f"{own['kl_mean']:.5f}",
                 f"{own['kl_p99']:.4f}", f"{100 * own['top1_agreement']:.1f} %", f"{own['perplexity']:.2f}"]
        if compares and other:
            cells += [f"{other['kl_mean']:.5f}", f"{other['kl_p99']:.4f}", f"{100 * other['top1_agreement']:.1f} %"]
        elif compares:
            cells += ["-", "-", "-"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 480, 70, 20, 44, 50


# KL divergence, logarithmic, over bits per weight. A line joins both programs' points of a type.
def svg(rows):
    rows = [row for row in rows if row["zinc"]["kl_mean"] > 0 and row["zinc"]["bits"] < 12]
    values = [row[who]["kl_mean"] for row in rows for who in ("zinc", "llama.cpp") if who in row]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    bits = [row["zinc"]["bits"] for row in rows]
    first, last = math.floor(min(bits)), math.ceil(max(bits))

    def x(at):
        return LEFT + (at - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y(value):
        return TOP + (high - math.log10(value)) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    for power in range(low, high + 1):
        at = y(10.0 ** power)
        out.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end" fill="#444">{10.0 ** power:g}</text>')
    for bit in range(first, last + 1):
        out.append(f'<path d="M{x(bit):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eee"/>')
        out.append(f'<text x="{x(bit):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#444">{bit}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">bits per weight</text>')
    out.append(f'<text transform="translate(16 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">'
               "mean KL divergence from the original</text>")
    for row in rows:
        at, own = x(row["zinc"]["bits"]), y(row["zinc"]["kl_mean"])
        if "llama.cpp" in row:
            other = y(row["llama.cpp"]["kl_mean"])
            out.append(f'<path d="M{at:.1f} {own:.1f}V{other:.1f}" stroke="#999"/>')
            out.append(f'<circle cx="{at:.1f}" cy="{other:.1f}" r="3.5" fill="#fff" stroke="#c0392b"/>')
        out.append(f'<circle cx="{at:.1f}" cy="{own:.1f}" r="3.5" fill="#1f5fbf"><title>{html.escape(row["type"])}</title></circle>')
        out.append(f'<text x="{at + 6:.1f}" y="{own - 5:.1f}" fill="#1f5fbf" font-size="10">{html.escape(row["type"])}</text>')
    out.append(f'<circle cx="{LEFT + 12}" cy="20" r="3.5" fill="#1f5fbf"/><text x="{LEFT + 22}" y="24">zinc</text>')
    if any("llama.cpp" in row for row in rows):
        out.append(f'<circle cx="{LEFT + 72}" cy="20" r="3.5" fill="#fff" stroke="#c0392b"/>'
                   f'<text x="{LEFT + 82}" y="24">llama.cpp</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    arguments = parse_arguments()
    if arguments.recorded:
        rows = json.loads(pathlib.Path(arguments.recorded).read_text())
    elif arguments.original and arguments.text:
        rows = measure(arguments)
    else:
        raise SystemExit("give ORIGINAL and TEXT, or --from FILE; see --help")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")
    if arguments.svg:
        pathlib.Path(arguments.svg).write_text(svg(rows))
    print(markdown(rows))


if __name__ == "__main__":
    main()
