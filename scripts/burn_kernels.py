"""Collects the CUDA kernels that Burn generates while it trains, without a GPU, for compile_kernels.py to compile.

    cargo build --release
    python3 scripts/burn_kernels.py target/release/trainer [ARCH…]    # writes target/tmp/burn-kernels

ARCH as in compile_kernels.py. The program takes a few steps of many configurations on a driver without a card
(benches/stub_cuda.c), whose NVRTC gives back the text that it should compile. What CubeCL has kept then says everything
of a kernel: a hash of its text, the text, the name of its entry, its shared memory and what it does with its arguments.
Names of entries differ from one set of dependencies, compiler or cargo profile to another, so the program must be built as
the release will be.
"""

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(ROOT, "target", "tmp", "burn-kernels")

DENSENET, RESNET, CIFAR = (f"benches/configs/{name}.toml" for name in ("densenet121", "resnet50", "resnet110"))
TABLE = "configs/layouts/table.toml"


def head(task, labels, **settings):
    """One head of so many labels in the place of those of TABLE. Their number decides how many values a thread reads at once."""
    names = [f"label {number}" for number in range(labels)]
    small = ["data.image={size=[64,64],channels=1}", "train.batch_size=8"]
    return [*small, 'data.csv={table="none",image="file"}', 'train.early_stopping={metric="val/loss"}', "heads=[" + inline({"name": "one", "task": task, "labels": names, **settings}) + "]"]


def inline(value):
    """A value as TOML writes it on one line."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}={inline(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def optimizer(name, **settings):
    return "train.optimizer=" + inline({name: settings})


# What users write: models, precisions, losses and optimizers, and heads of which a thread reads four values, two or one at once.
CASES = [
    *((config, [f'memory.precision="{precision}"']) for config in (DENSENET, RESNET) for precision in ("bf16", "fp16", "tf32", "fp32")),
    (CIFAR, []),
    ("configs/quickstart.toml", []),
    ("configs/quickstart.toml", ['memory.precision="bf16"']),
    (DENSENET, ['memory.precision="half"']),
    (DENSENET, ['model.densenet.norm="group"']),
    (DENSENET, ["model.densenet.dropout=0.2"]),
    (DENSENET, ["train.batch_size=8", "memory.micro_batch=4"]),
    (DENSENET, ["data.image={size=[320,320],channels=1}"]),
    (RESNET, ["model.resnet.depth=18"]),
    (RESNET, ['model.resnet.norm="group"']),
    *(
        (TABLE, head(task, labels, loss=loss))
        for labels in (14, 12, 5)
        for task, losses in {
            "multilabel": ("bce", {"bce": {"pos_weight": [2.0] * labels, "label_smoothing": 0.1}}, "focal", "asymmetric", "auc_margin"),
            "multiclass": ("cross_entropy", {"cross_entropy": {"class_weights": [2.0] * labels, "label_smoothing": 0.1}}),
            "regression": ("mse", "l1", "huber"),
        }.items()
        for loss in losses
    ),
    (TABLE, head("multiclass", 2)),
    (TABLE, head("binary", 1)),
    (TABLE, head("regression", 1)),
    (TABLE, head("multilabel", 14, hidden=[256])),
    *(
        (DENSENET, ["train.batch_size=8", "train.clip_norm=1.0", "train.ema={decay=0.999}", optimizer(name, **settings)])
        for name, settings in {
            "sgd": {"momentum": 0.9, "weight_decay": 1e-4}, "adam": {}, "adamw": {}, "rmsprop": {}, "adagrad": {}, "lion": {},
        }.items()
    ),
    (TABLE, [*head("multilabel", 14, loss="auc_margin"), optimizer("pesg")]),
]


def records(path):
    """What CubeCL keeps, by namespace and key (vendor/turso/src/store.rs): the newest record counts."""
    with open(path, "rb") as file:
        data = file.read()
    found, at = {}, 16
    while at < len(data):
        _, namespace, key, value, origin = struct.unpack_from("<5I", data, at)
        ends = [at + 20, at + 20 + namespace, at + 20 + namespace + key, at + 20 + namespace + key + value]
        name, key, value = (data[begin:end] for begin, end in zip(ends, ends[1:]))
        of_name, at = found.setdefault(name.decode(), {}), ends[-1]
        if origin < 2:
            of_name[key] = value
        else:
            of_name.pop(key, None)
    return found


def decoded(data, at=0):
    """A value in CBOR, and where it ends."""
    kind, length = data[at] >> 5, data[at] & 31
    at += 1
    if 24 <= length < 28:
        size = 1 << (length - 24)
        length, at = int.from_bytes(data[at : at + size], "big"), at + size
    if kind == 0:
        return length, at
    if kind == 1:
        return -1 - length, at
    if kind in (2, 3):
        part = data[at : at + length]
        return (part if kind == 2 else part.decode()), at + length
    if kind == 4:
        values = []
        for _ in range(length):
            value, at = decoded(data, at)
            values.append(value)
        return values, at
    if kind == 5:
        pairs = {}
        for _ in range(length):
            key, at = decoded(data, at)
            pairs[key], at = decoded(data, at)
        return pairs, at
    if kind == 6 and length == 2:
        value, at = decoded(data, at)
        return int.from_bytes(value, "big"), at
    if kind == 7 and length in (20, 21, 22):
        return {20: False, 21: True, 22: None}[length], at
    raise ValueError(f"CBOR of kind {kind} with {length}")


def kernels_in(path):
    """Kernels that CubeCL found no code for and had compiled, each by the name under which the program looks for it."""
    kept, found = records(path), {}
    for namespace, hashes in kept.items():
        name, _, rest = namespace.partition("/")
        codes = kept.get(f"cuda/{rest}", {})
        for text_hash, key in hashes.items() if name == "cuda-second-line" else ():
            entry, _ = decoded(codes[key])
            text = bytes(byte & 255 for byte in entry["ptx"]).rstrip(b"\0").decode()
            found[f"{namespace}/{decoded(text_hash)[0]:032x}"] = {
                "entry": entry["entrypoint_name"], "shared": entry["shared_mem_bytes"], "io": entry["io"], "text": text,
            }
    return found


def stub(folder):
    """Builds the driver without a card."""
    library = os.path.join(folder, "libcuda.so")
    source = os.path.join(ROOT, "benches", "stub_cuda.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so", "-o", library, source], check=True)
    os.symlink("libcuda.so", os.path.join(folder, "libnvrtc.so"))
    os.makedirs(os.path.join(folder, "include"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("archs", nargs="*", default=["sm_80", "sm_89", "sm_90a"])
    given = parser.parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    index, failed = [], 0
    for arch in given.archs:
        # One cache for all cases, so that each shows what those before it did not need.
        with tempfile.TemporaryDirectory() as folder:
            stub(folder)
            kept = os.path.join(folder, "cubecl", "default.db.records")
            environment = {
                **os.environ,
                "LD_LIBRARY_PATH": folder, "CUDA_PATH": folder, "XDG_CACHE_HOME": folder, "HOME": folder,
                "STUB_ECHO": "1", "STUB_CAPABILITY": re.sub(r"\D", "", arch),
            }
            known = 0
            for config, changes in CASES:
                sets = [word for change in ['device.use="cuda"', *changes] for word in ("--set", change)]
                command = [given.program, "bench", config, "--steps", "2", *sets]
                ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
                failed += bool(ran.returncode)
                count = len(kernels_in(kept)) if os.path.exists(kept) else 0
                words = "" if ran.returncode == 0 else ran.stderr.strip()[-1000:]
                print(f"{arch} {config} {' '.join(changes)}: {count - known} more {words}", flush=True)
                known = count
            for name, kernel in sorted(kernels_in(kept).items()):
                file = f"{len(index)}.cu"
                with open(os.path.join(OUT, file), "w", encoding="utf-8") as text:
                    text.write(kernel.pop("text"))
                index.append({"name": name, "arch": arch, "file": file, **kernel})
    with open(os.path.join(OUT, "index.json"), "w", encoding="utf-8") as file:
        json.dump(index, file, indent=1)
    print(f"{len(index)} kernels of Burn, {failed} of {len(given.archs) * len(CASES)} configurations failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
