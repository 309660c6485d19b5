"""The memory predicted for training steps beside that which they take on a GPU.

usage: python benches/estimates.py [--trainer target/release/trainer] [--steps 3] [--out FILE]

Each line is a process of `trainer bench`, which says both: `predicted_peak` follows from the
configuration alone, `peak` is the most bytes in use in a step. Beside them, what was held: `reserved` by the
allocator, estimated as `predicted_held`, and `smi` by the whole process, as NVML has it. Prints a table and writes
benches/results/<date>-<device>-estimates.json. Exits with 1 if an estimate is off by more than 10%.
The CPU's table: cargo test --no-default-features --features cpu --test estimates -- --nocapture
"""
import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
# configuration, settings
CASES = [
    ("densenet121", {"precision": "bf16"}, {}),
    ("densenet121", {"precision": "bf16", "dense_layers": "share"}, {}),
    ("densenet121", {"precision": "fp32"}, {"train.batch_size": 32}),
    ("densenet121", {"precision": "tf32", "checkpointing": "sqrt"}, {"train.batch_size": 32}),
    ("densenet121", {"precision": "bf16", "checkpointing": "every"}, {}),
    ("densenet121", {"precision": "bf16", "micro_batch": 16}, {}),
    ("densenet121", {"precision": "bf16", "dense_layers": "share"}, {"train.batch_size": 4, "data.image.size": [2000, 2000]}),
    ("densenet121", {"precision": "fp32"}, {"train.batch_size": 4, "data.image.size": [128, 128], "model.densenet.norm": "group"}),
    ("resnet50", {"precision": "bf16"}, {}),
    ("resnet50", {"precision": "fp32"}, {}),
    ("resnet50", {"precision": "bf16", "checkpointing": "sqrt"}, {}),
    ("resnet50", {"precision": "tf32", "checkpointing": {"sequential": {"segments": 3}}}, {}),
    ("resnet50", {"precision": "bf16", "checkpointing": "every"}, {"data.image.size": [512, 512], "train.batch_size": 32}),
    ("resnet110", {"precision": "bf16"}, {}),
    ("resnet110", {"precision": "bf16", "checkpointing": "sqrt"}, {}),
    ("resnet110", {"precision": "fp32", "checkpointing": "every", "micro_batch": 128}, {}),
]


def toml(value):
    """`value` as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


def mib(number):
    """`number` of bytes in MiB."""
    return "unknown" if number is None else f"{number / 2**20:.0f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--out")
    args = parser.parse_args()
    results, wrong = [], []
    columns = ["predicted, MiB", "measured, MiB", "off by", "predicted held, MiB", "held, MiB", "held over measured", "NVML, MiB"]
    print(f"| configuration | settings | {' | '.join(columns)} |\n|{'---|' * (2 + len(columns))}", flush=True)
    for name, memory, other in CASES:
        settings = {f"memory.{key}": value for key, value in memory.items()} | other
        shown = ", ".join(f"`{key} = {toml(value)}`" for key, value in settings.items())
        command = [args.trainer, "bench", str(HERE / f"configs/{name}.toml"), "--steps", str(args.steps)]
        for key, value in settings.items():
            command += ["--set", f"{key}={toml(value)}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["nothing was said"]
            print(f"| {name} | {shown} | | {lines[-1]} | | | | | |", flush=True)
            wrong.append(shown)
            continue
        result = json.loads(done.stdout)
        predicted, measured = result["ours"]["predicted_peak"], result["ours"]["peak"]
        off = predicted / measured - 1 if measured else float("nan")
        if not abs(off) <= 0.10:
            wrong.append(shown)
        held = result["ours"]["reserved"]
        over = f"{held / measured:.3f}" if held and measured else "unknown"
        numbers = [mib(result["ours"][key]) for key in ("predicted_held", "reserved")]
        cells = [mib(predicted), mib(measured), f"{100 * off:+.1f}%", *numbers, over, mib(result["ours"]["smi"])]
        print(f"| {name} | {shown} | {' | '.join(cells)} |", flush=True)
        results.append(result)
    if results:
        device = results[0]["device"].split(", ")
        device = re.sub(r"[^a-z0-9]+", "-", device[min(1, len(device) - 1)].lower()).strip("-")
        out = args.out or HERE / "results" / f"{datetime.date.today()}-{device}-estimates.json"
        pathlib.Path(out).write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
