#!/usr/bin/env python3
"""record_blocks.py LIBGGML - record what llama.cpp's quantizer makes of a few rows.

LIBGGML is a built libggml-base.so of llama.cpp. Writes rows.f32, importance.f32, TYPE.bin and TYPE-importance.bin next to
itself; README.md describes them. Only the standard library is needed."""
import array
import ctypes
import math
import pathlib
import random
import sys

COLUMNS = 512
TYPES = {  # ggml_type, elements and bytes of a block
    "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22), "q5_1": (7, 32, 24), "q8_0": (8, 32, 34),
    "q2_k": (10, 256, 84), "q3_k": (11, 256, 110), "q4_k": (12, 256, 144), "q5_k": (13, 256, 176), "q6_k": (14, 256, 210),
    "tq1_0": (34, 256, 54), "tq2_0": (35, 256, 66), "mxfp4": (39, 32, 17), "nvfp4": (40, 64, 36),
    "q1_0": (41, 128, 18), "q2_0": (42, 64, 18),
    "iq1_s": (19, 256, 50), "iq1_m": (29, 256, 56), "iq2_xxs": (16, 256, 66), "iq2_xs": (17, 256, 74), "iq2_s": (22, 256, 82),
    "iq3_xxs": (18, 256, 98), "iq3_s": (21, 256, 110), "iq4_nl": (20, 32, 18), "iq4_xs": (23, 256, 136),
}


def make_rows(rng):
    def heavy_tailed():  # Student's t with four degrees of freedom
        return rng.gauss(0, 1) / math.sqrt(sum(rng.gauss(0, 1) ** 2 for _ in range(4)) / 4)

    rows = [[rng.gauss(0, 0.03) for _ in range(COLUMNS)],
            [0.02 * heavy_tailed() for _ in range(COLUMNS)],
            [rng.gauss(0.01, 0.02) for _ in range(COLUMNS)],  # off center
            [rng.choice((-1, 1)) * 0.25 * rng.random() ** 3 for _ in range(COLUMNS)]]
    # Equal magnitudes of both signs, a block of zeros, one of positive values and one with a single outlier.
    for i in range(32):
        rows[3][i] = (i % 9 - 4) / 16
        rows[3][32 + i] = 0.0
        rows[3][64 + i] = 0.5 + i / 128
        rows[3][96 + i] = 3.0 if i == 5 else 0.01
    return rows


def main():
    here = pathlib.Path(__file__).parent
    quantize = ctypes.CDLL(sys.argv[1]).ggml_quantize_chunk
    quantize.restype = ctypes.c_size_t
    quantize.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
                         ctypes.c_void_p]
    rng = random.Random(26)
    rows = make_rows(rng)
    values = array.array("f", [x for row in rows for x in row])
    importance = array.array("f", [math.exp(rng.gauss(0, 1)) for _ in range(COLUMNS)])
    (here / "rows.f32").write_bytes(values.tobytes())
    (here / "importance.f32").write_bytes(importance.tobytes())
    for name, (number, elements, size) in TYPES.items():
        for suffix, weights in (("", None), ("-importance", importance.buffer_info()[0])):
            if name.startswith("iq") and weights is None:
                continue  # llama.cpp refuses some of them
            blocks = ctypes.create_string_buffer(len(values) // elements * size)
            written = quantize(number, values.buffer_info()[0], blocks, 0, len(rows), COLUMNS, weights)
            assert written == len(blocks), name
            (here / f"{name}{suffix}.bin").write_bytes(blocks.raw)


if __name__ == "__main__":
    main()
