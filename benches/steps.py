"""Whole training steps beside PyTorch's, in one run: writes benches/results/<date>-<device>.json and prints a table.

usage: python benches/steps.py [--models densenet121,resnet50] [--trainer target/release/trainer] [--steps 30] [--out FILE]

Both sides train on one batch that stays on the device, with SGD and 14 binary labels. Ours is
`trainer bench benches/configs/<model>.toml`; `peak` is the most memory in use in a step (PyTorch: allocated).
"""
import argparse
import datetime
import itertools
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
# The side of the images of each model.
SIZES = {"densenet121": 320, "resnet50": 224}
# precision, dense_layers, the peer's mode and arguments, the peer's name
CASES = [
    ("bf16", "keep", "amp-cl", [], "AMP bf16 channels_last"),
    ("bf16", "share", "amp-cl", ["--memory-efficient"], "AMP bf16 channels_last memory_efficient"),
    ("tf32", "keep", "tf32-cl", [], "TF32 channels_last"),
    ("fp32", "keep", "f32", [], "fp32"),
]


def ours(args, model, precision, layers):
    command = [args.trainer, "bench", str(HERE / f"configs/{model}.toml"), "--steps", str(args.steps)]
    command += ["--set", f'memory.precision="{precision}"', "--set", f'memory.dense_layers="{layers}"']
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def peer(args, model, mode, extra, name):
    command = [sys.executable, str(HERE / "peers/torch_densenet.py"), "--modes", mode, "--iters", str(args.steps), *extra]
    command += ["--model", model, "--size", str(SIZES[model])]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"torch (\S+) .*: ([\d.]+) ms ([\d.]+) img/s peak (\d+) MiB", done.stdout)
    if not found:
        return {"name": name, "ms": None, "images_per_second": None, "peak": None}
    version, ms, images, peak = found.groups()
    return {
        "name": f"PyTorch {version} {name}",
        "ms": float(ms),
        "images_per_second": float(images),
        "peak": int(peak) * 2**20,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(SIZES))
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out")
    args = parser.parse_args()
    results = []
    print("| case | ours, images/s | MiB | PyTorch, images/s | MiB |\n|---|---|---|---|---|")
    for model, (precision, layers, mode, extra, name) in itertools.product(args.models.split(","), CASES):
        shares = model.startswith("densenet")
        if layers == "share" and not shares:
            continue
        result = ours(args, model, precision, layers)
        if shares:
            result["case"] = result["case"].replace("-train", f"-{layers}-train")
        result["peer"] = peer(args, model, mode, extra, name)
        results.append(result)
        mine, theirs = result["ours"], result["peer"]
        cells = [f"{side['images_per_second'] or 0:.0f} | {(side['peak'] or 0) / 2**20:.0f}" for side in (mine, theirs)]
        print(f"| {result['case']} | {cells[0]} | {cells[1]} |", flush=True)
    device = re.sub(r"[^a-z0-9]+", "-", results[0]["device"].split(", ")[1].lower()).strip("-")
    out = args.out or HERE / "results" / f"{datetime.date.today()}-{device}-steps.json"
    pathlib.Path(out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
