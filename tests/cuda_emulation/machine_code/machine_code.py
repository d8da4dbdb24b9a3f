#!/usr/bin/env python3
"""Looks into the machine code of the CUDA kernels, without a GPU.

    machine_code.py TOOLS_FOLDER OBJECT...

Every kernel must be there for each architecture, keep its registers out of memory (no LDL, no STL), and read and write 16 bytes
at a time (LDG.E.128, STG.E.128) unless NARROW says why not. The disassembler comes from PyPI into a virtual environment in
TOOLS_FOLDER. Exit status: 0 good, 1 not, 77 the disassembler cannot be had.
"""

import glob
import os
import re
import subprocess
import sys

ARCHITECTURES = ("sm_80", "sm_90")
PACKAGES = ("nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm")
WATCHED = ("LDG.E.128", "STG.E.128", "LDG.E.64", "STG.E.64", "LDL", "STL")

# Kernels that need not read (r) or write (w) 16 bytes at a time: a pattern of the name, which, and why.
NARROW = (
    (r"layernorm_weight_parts<", "w", "writes one partial sum a column"),
    (r"layernorm_weight_sum$", "rw", "adds a few partial sums"),
    (r"sum_blocks<", "w", "writes one partial sum a column"),
    (r"sum_partials$", "rw", "adds a few partial sums"),
    (r"convert_elements<", "rw", "a bias of one row"),
    (r"add_elements$", "rw", "a bias gradient of one row"),
    (r"(find|fill|order)_places$|count_tokens$|clear_lengths$", "rw", "works on token numbers, one a row"),
    (r"(exp_sum|row_max)_kernel<", "w", "writes one number a row"),
    (r"accumulate_kernel$|loss_kernel$", "rw", "one number a row"),
    (r"random_kernel<", "rw", "runs once, at the start"),
    (r"store_key_gradient_kernel<.*, false>", "rw", "rows of one head, wherever they start"),
    (r"squares_kernel<true>", "w", "writes one sum a block"),
    (r"squares_kernel<false>|flat_kernel<.*, false>", "rw", "the variant for operands that are not aligned"),
    (r"nothing$", "rw", "is only looked up"),
    (r"verdict_kernel$|add_partial_kernel$", "rw", "a few numbers in all"),
)
# Kernels that read or write FP32 beside a 16-bit type, without saying so in their name. A pack is 16 bytes of the wider one.
MIXED = r"(store_key_)?gradient_kernel<|softmax_(forward|backward)_kernel<"


def disassembler(folder):
    """The path of cuobjdump, installed where it is not yet."""
    found = glob.glob(f"{folder}/lib/python3*/site-packages/nvidia/*/bin/cuobjdump")
    if not found:
        commands = ([sys.executable, "-m", "venv", folder], [f"{folder}/bin/pip", "install", "-q", *PACKAGES])
        for command in commands:
            try:
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
                failed = done.stdout.strip().splitlines()[-1:] or [f"status {done.returncode}"] if done.returncode else None
            except (OSError, subprocess.TimeoutExpired) as error:
                failed = [str(error)]
            if failed:
                print(f"SKIPPED: {' '.join(command)}: {failed[0]}")
                sys.exit(77)
        found = glob.glob(f"{folder}/lib/python3*/site-packages/nvidia/*/bin/cuobjdump")
    if not found:
        print(f"SKIPPED: {' and '.join(PACKAGES)} hold no cuobjdump below {folder}")
        sys.exit(77)
    return found[0]


def count_instructions(cuobjdump, path):
    """{(architecture, mangled name): {instruction: how often}} of an object file."""
    environment = dict(os.environ, PATH=os.path.dirname(cuobjdump) + os.pathsep + os.environ["PATH"])
    text = subprocess.run([cuobjdump, "-sass", path], env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    kernels, architecture, counts = {}, None, None
    for line in text.splitlines():
        if match := re.match(r"\s*code for (sm_\w+)", line):
            architecture = match[1]
        elif match := re.match(r"\s*Function : (\S+)", line):
            counts = kernels.setdefault((architecture, match[1]), dict.fromkeys(WATCHED, 0))
        elif match := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", line):
            for name in WATCHED:
                # LDG.E.128 may carry words in between, as LDG.E.128.CONSTANT or LDG.E.EF.128; LDL and STL end in widths.
                wanted = name.split(".")
                words = match[1].split(".")
                if words[0] == wanted[0] and all(word in words for word in wanted):
                    counts[name] += 1
    return kernels


def demangled(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), check=True, stdout=subprocess.PIPE, text=True).stdout
    return text.splitlines()


def short(name):
    """layernorm_forward<float, 32, 4> of a demangled signature."""
    name = name.replace("(anonymous namespace)::", "").replace("espalier::kernels_fused::cuda::", "")
    match = re.match(r"(?:void )?(\w+(?:<.*?>)?)\(", name)
    return match[1] if match else name


def is_mixed(name):
    sixteen = re.search(r"__half|__nv_bfloat16", name)
    return sixteen and (re.search(r"\bfloat\b", name) or re.match(MIXED, name))


def complaints(name, counts, used):
    """What is wrong with one kernel; the entries of NARROW that were of use join `used`."""
    if counts["LDL"] or counts["STL"]:
        yield f"local memory, {counts['LDL']} LDL and {counts['STL']} STL"
    narrow = ""
    for pattern, letters, _ in NARROW:
        if re.match(pattern, name):
            narrow = letters
            used.add(pattern)
    for letter, instruction in (("r", "LDG.E"), ("w", "STG.E")):
        wide = counts[instruction + ".128"] or (is_mixed(name) and counts[instruction + ".64"])
        if letter not in narrow and not wide:
            yield f"no {instruction}.128"


def main():
    tools = sys.argv[1]
    objects = [path for argument in sys.argv[2:] for path in argument.split(";")]  # as CMake writes lists
    cuobjdump = disassembler(tools)
    failures, seen, used = [], {}, set()
    for path in objects:
        kernels = count_instructions(cuobjdump, path)
        names = [short(name) for name in demangled([key[1] for key in kernels])]
        for (architecture, _), name, counts in zip(kernels, names, kernels.values()):
            seen.setdefault(name, set()).add(architecture)
            failures += [f"{architecture} {name}: {text}" for text in complaints(name, counts, used)]
    for name, architectures in seen.items():
        if missing := set(ARCHITECTURES) - architectures:
            failures.append(f"{name}: not compiled for {', '.join(sorted(missing))}")
    failures += [f"{pattern}: in the list of narrow kernels, and no such kernel is there"
                 for pattern, _, _ in NARROW if pattern not in used]
    if not seen:
        failures.append("no kernel found in " + " ".join(objects))
    print(f"{len(seen)} kernels for {' and '.join(ARCHITECTURES)}")
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
