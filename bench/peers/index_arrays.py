#!/usr/bin/env python3
"""The three index arrays of one pair as Megatron-LM core builds and writes them: numpy, and the compiled helper of the
wheel megatron-core, loaded without the package around it (which needs torch). Prints what bench/data_bench prints.

usage: index_arrays.py PREFIX OUT
"""
import glob
import importlib.util
import json
import os
import resource
import sys
import sysconfig
import time

import numpy

SAMPLES, LENGTH, SEED = 3227572, 2048, 1234


def helper():
    folder = os.path.join(sysconfig.get_paths()["platlib"], "megatron", "core", "datasets")
    [path] = glob.glob(os.path.join(folder, "helpers_cpp*.so"))
    spec = importlib.util.spec_from_file_location("helpers_cpp", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    prefix, out = sys.argv[1:]
    helpers = helper()
    count = int(numpy.fromfile(prefix + ".idx", numpy.uint64, 1, offset=18)[0])
    sizes = numpy.fromfile(prefix + ".idx", numpy.int32, count, offset=34)
    tokens = int(sizes.sum(dtype=numpy.int64))
    epochs = 1
    while epochs * tokens < SAMPLES * LENGTH + 1:
        epochs += 1
    start = time.perf_counter()
    random = numpy.random.RandomState(SEED)
    documents = numpy.mgrid[0:epochs, 0:count][1]
    documents[:] = numpy.arange(count, dtype=numpy.int32)
    documents = documents.reshape(-1).astype(numpy.int32)
    random.shuffle(documents)
    before = time.perf_counter()
    samples = helpers.build_sample_idx_int32(sizes, documents, LENGTH, epochs, tokens, True, True)
    sample_seconds = time.perf_counter() - before
    shuffle = numpy.arange(start=0, stop=samples.shape[0] - 1, step=1, dtype=numpy.uint32)
    random.shuffle(shuffle)
    for name, array in (("doc", documents), ("sample", samples), ("shuffle", shuffle)):
        numpy.save(os.path.join(out, name + "_idx.npy"), array, allow_pickle=True)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": round(seconds, 4), "sample_index": round(sample_seconds, 4), "peak_mib": round(peak, 1)}))


main()
