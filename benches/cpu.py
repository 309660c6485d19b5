"""Training steps on the CPU beside PyTorch's, each side in turn: prints a table, and JSON with --out.

usage: python benches/cpu.py [--trainer target/release/trainer] [--threads 2] [--rounds 3] [--only REGEX] [--out FILE]

Both sides train on one batch with SGD in fp32. Milliseconds are the median step of the best round. Beside them is the
CPU time of all threads for a step, which says what a step costs where other programs have the cores too: ours is the
difference between a process of many steps and one of few. Memory: what `trainer bench` measures in use at most, weights
and batch included, and by how much PyTorch's process grows from before the model is made; PyTorch runs once with maps
in its own order (NCHW) and once with channels_last.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
# Model, configuration, its settings, batch, side.
CASES = [
    ("densenet121", "benches/configs/densenet121.toml", ["model.densenet.depth=121"], 8, 224),
    ("densenet121", "benches/configs/densenet121.toml", ["model.densenet.depth=121"], 4, 64),
    ("resnet18", "benches/configs/resnet50.toml", ["model.resnet.depth=18"], 32, 64),
    ("quickstart", "configs/quickstart.toml", [], 32, 64),
]


def run(command, threads):
    """The last line's JSON object, and the CPU seconds of the process."""
    environment = os.environ | {"RAYON_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{command}: {done.stderr}")
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return json.loads(done.stdout.strip().splitlines()[-1]), seconds


def ours(args, config, settings, batch, size):
    settings = [*settings, 'device.use="cpu"', 'memory.precision="fp32"', f"train.batch_size={batch}"]
    settings += [f"data.image.size=[{size}, {size}]"]
    command = [args.trainer, "bench", config, *(part for key in settings for part in ("--set", key))]
    (_, few), (found, many) = (run([*command, "--steps", str(steps)], args.threads) for steps in (2, 2 + args.steps))
    found = found["ours"]
    return {"ms": found["ms"], "cpu_ms": (many - few) / args.steps * 1e3, "peak": found["peak"]}


def peer(args, model, batch, size, mode):
    command = [sys.executable, str(HERE / "peers/torch_steps.py"), "--device", "cpu", "--model", model, "--modes", mode]
    command += ["--batch", str(batch), "--size", str(size), "--iters", str(2 + args.steps), "--threads", str(args.threads)]
    found, _ = run(command, args.threads)
    return {key: found[key] for key in ("ms", "cpu_ms", "peak")}


def best(rounds):
    """The least of each figure over the rounds; of memory, the most."""
    return {key: (max if key == "peak" else min)(one[key] for one in rounds) for key in rounds[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name this regular expression is found in")
    parser.add_argument("--out")
    args = parser.parse_args()
    print("| model, batch | side | images/s | CPU ms a step | MiB |\n|---|---|---|---|---|", flush=True)
    rows = []
    for model, config, settings, batch, size in CASES:
        name = f"{model}, {batch} × {size}²"
        if not re.search(args.only, name):
            continue
        sides = {"trainer": [], "PyTorch f32": [], "PyTorch f32-cl": []}
        for _ in range(args.rounds):
            sides["trainer"].append(ours(args, config, settings, batch, size))
            for mode in ("f32", "f32-cl"):
                sides[f"PyTorch {mode}"].append(peer(args, model, batch, size, mode))
        for side, rounds in sides.items():
            row = best(rounds)
            rows.append({"case": name, "side": side, "threads": args.threads, **row})
            rate = batch / row["ms"] * 1e3
            print(f"| {name} | {side} | {rate:.1f} | {row['cpu_ms']:,.0f} | {row['peak'] / 2**20:,.0f} |", flush=True)
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
