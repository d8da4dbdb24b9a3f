#!/usr/bin/env python3
"""Index arrays of 2 million documents x 5 epochs: ours against numpy and the compiled helper of PyPI's megatron-core, one
thread each, built and written without fsync, in turns. The arrays of both must have the hashes of
tests/fixtures/data/gpt_bigscience/digest_recipe.

usage: data_indices.py DATA_BENCH [--work DIR] [--rounds 7] [--large]
"""
import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys

PINS = ["numpy==2.4.6", "megatron-core==0.16.1"]  # the helper alone is used: no dependency of megatron-core is installed
HERE = os.path.dirname(os.path.abspath(__file__))
RECIPE = os.path.join(HERE, "..", "tests", "fixtures", "data", "gpt_bigscience", "digest_recipe", "case.json")


def run(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def python_with_pins(work):
    python = os.path.join(work, "venv", "bin", "python")
    marker = os.path.join(work, "venv", "pins")
    if not os.path.exists(marker) or open(marker).read() != "\n".join(PINS):
        run(sys.executable, "-m", "venv", os.path.join(work, "venv"))
        run(python, "-m", "pip", "install", "-q", "--no-deps", *PINS)
        with open(marker, "w") as file:
            file.write("\n".join(PINS))
    return python


def header_bytes(path):
    with open(path, "rb") as file:
        return 10 + int.from_bytes(file.read(10)[8:], "little")


def check(out):
    arrays = json.load(open(RECIPE))["arrays"]
    for name, truth in arrays.items():
        path = os.path.join(out, name + ".npy")
        with open(path, "rb") as file:
            file.seek(header_bytes(path))
            if hashlib.sha256(file.read()).hexdigest() != truth["sha256"]:
                sys.exit(f"{path}: not the array of the recipe")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("--work", default="work/bench_data")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large", action="store_true", help="also open a cache of 100 million samples (1.7 GB of disk)")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    python = python_with_pins(args.work)
    prefix = os.path.join(args.work, "recipe")
    if not os.path.exists(prefix + ".bin"):
        run(args.bench, "make", prefix)
    results = {"ours": [], "peer": []}
    for round in range(args.rounds + 1):  # the first one warms the disk cache up
        for name in results:
            out = os.path.join(args.work, name)
            os.makedirs(out, exist_ok=True)
            if name == "ours":
                line = run(args.bench, "indices", prefix, out)
            else:
                line = run(python, os.path.join(HERE, "peers", "index_arrays.py"), prefix, out)
            if round == 0:
                check(out)
            else:
                results[name].append(json.loads(line))
    for name, rows in results.items():
        seconds = [row["seconds"] for row in rows]
        print(f"{name}: best {min(seconds):.3f} s, median {statistics.median(seconds):.3f} s, "
              f"peak {max(row['peak_mib'] for row in rows):.0f} MiB"
              + (f", sample index {min(row['sample_index'] for row in rows):.3f} s" if name == "peer" else ""))
    best = {name: min(row["seconds"] for row in rows) for name, rows in results.items()}
    middle = {name: statistics.median(row["seconds"] for row in rows) for name, rows in results.items()}
    print(f"ratio: best {best['ours'] / best['peer']:.3f}, median {middle['ours'] / middle['peer']:.3f} (to reach: 0.55)")
    if args.large:
        large = os.path.join(args.work, "large")
        if not os.path.exists(large + "_pair.check"):
            run(args.bench, "large", large)
        for _ in range(3):
            print("open, nothing in the page cache:", run(args.bench, "open", large, "cold").strip())
            print("open:", run(args.bench, "open", large).strip())
    print("read:", run(args.bench, "read", os.path.join(args.work, "read")).strip())
    print("write:", run(args.bench, "write", os.path.join(args.work, "write")).strip())


main()
