"""Whole training steps beside PyTorch's, in one run: writes benches/results/<date>-<device>-steps.json and prints tables.

usage: python benches/steps.py [--trainer target/release/trainer] [--only REGEX] [--steps 24] [--out FILE] [--list] [--smoke]

Both sides train on one batch that stays on the device, with SGD and 14 binary labels. Ours is `trainer bench` on a
configuration in benches/configs, PyTorch's benches/peers/torch_steps.py; `peak` is the most memory in use in a step
(PyTorch: allocated). What fails on either side is a row with null and the reason. Each row is written when it is done,
in place of the one of the same case, so that several runs with --only fill one file. The case `…-cold-start` is from
the start of a process to the end of its first step, with no compiled kernel kept (a new home folder), then with them.
--smoke runs everything small on the CPU, to see that it works.
"""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
LIMIT = 180  # seconds for a process
PEERS = {"bf16": ("amp-cl", "AMP bf16 channels_last"), "tf32": ("tf32-cl", "TF32 channels_last"), "fp32": ("f32", "fp32")}


@dataclasses.dataclass
class Case:
    model: str
    precision: str
    batch: int = 64
    size: int = 320
    layers: str = None
    norm: str = "batch"
    dropout: float = 0.0
    growth: int = None  # instead of DenseNet-121's 32
    kind: str = "train"

    @property
    def name(self):
        layers = f"-{self.layers}" if self.layers else ""
        norm = f"-{self.norm}-norm" if self.norm != "batch" else ""
        dropout = f"-dropout{self.dropout}" if self.dropout else ""
        growth = f"-growth{self.growth}" if self.growth else ""
        return f"{self.model}-b{self.batch}-s{self.size}-{self.precision}{layers}{norm}{dropout}{growth}-{self.kind}"

    @property
    def title(self):
        family, depth = re.fullmatch(r"(\D+)(\d+)", self.model).groups()
        layers = f', `dense_layers = "{self.layers}"`' if self.layers else ""
        layers += f', `norm = "{self.norm}"`' if self.norm != "batch" else ""
        layers += f", `dropout = {self.dropout}`" if self.dropout else ""
        layers += f", `growth = {self.growth}`" if self.growth else ""
        name = {"densenet": "DenseNet", "resnet": "ResNet"}[family]
        return f"{name}-{depth}, {self.batch} × {self.size}×{self.size}, {self.precision}{layers}"

    def settings(self):
        family, depth = re.fullmatch(r"(\D+)(\d+)", self.model).groups()
        keys = {
            "run.name": json.dumps(self.model),
            f"model.{family}.depth": depth,
            "data.image.size": f"[{self.size}, {self.size}]",
            "train.batch_size": self.batch,
            "memory.precision": json.dumps(self.precision),
        }
        if self.growth:
            keys.pop(f"model.{family}.depth")
            keys["model"] = f"{{densenet = {{ growth = {self.growth}, blocks = [6, 12, 24, 16], stem = 64 }}}}"
        if self.norm != "batch":
            keys["model.densenet.norm"] = json.dumps(self.norm)
        if self.dropout:
            keys["model.densenet.dropout"] = self.dropout
        if self.layers:
            keys["memory.dense_layers"] = json.dumps(self.layers)
        return family, keys


CASES = [
    Case("densenet121", "bf16", layers="keep"),
    Case("densenet121", "bf16", layers="share"),
    Case("densenet121", "tf32", layers="keep"),
    Case("densenet121", "fp32", layers="keep"),
    Case("densenet169", "bf16", layers="keep"),
    Case("densenet201", "bf16", layers="keep"),
    Case("resnet50", "bf16", size=224, layers="keep"),
    Case("resnet50", "bf16", size=224, layers="share"),
    Case("resnet50", "bf16", batch=256, size=224, layers="keep"),
    Case("resnet50", "bf16", batch=256, size=224, layers="share"),
    Case("densenet121", "bf16", batch=8, layers="keep"),
    Case("densenet121", "bf16", batch=32, norm="group"),
    Case("densenet121", "bf16", batch=32, dropout=0.1),
    Case("densenet121", "bf16", layers="keep", dropout=0.1),
    Case("densenet121", "bf16", batch=32, growth=20),
    Case("densenet121", "bf16", batch=32, growth=20, norm="group"),
    Case("densenet121", "bf16", batch=8, size=2000, layers="keep"),
    Case("densenet121", "bf16", batch=8, size=2000, layers="share"),
    Case("densenet121", "bf16", layers="keep", kind="cold-start"),
]


def last_json(command, environment=None):
    """The JSON object on the last line that the command prints, or {"error": …}."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {LIMIT} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()
        told = [line for line in said if re.match(r"error|\w*Error", line)]
        return {"error": (told or said)[0 if told else -1].removeprefix("error: ")[:300]}
    return json.loads(lines[-1])


def ours(args, case, steps, environment=None):
    family, keys = case.settings()
    config = {"densenet": "densenet121", "resnet": "resnet50"}[family]
    command = [args.trainer, "bench", os.path.relpath(HERE / f"configs/{config}.toml"), "--steps", str(steps)]
    if args.smoke:
        keys |= {"device.use": '"cpu"', "memory.precision": '"fp32"'}
    for key, value in keys.items():
        command += ["--set", f"{key}={value}"]
    found = last_json(command, environment)
    shown = " ".join(["trainer", *(part if re.fullmatch(r"[\w./=-]+", part) else f"'{part}'" for part in command[1:])])
    if "error" in found:
        nothing = {"ms": None, "images_per_second": None, "peak": None, "error": found["error"]}
        return {"case": case.name, "device": None, "command": shown, "ours": nothing}
    device = re.sub(r"^cuda:\d+, ([^,]+),.*", r"\1", found["device"])
    return found | {"case": case.name, "device": device, "command": shown}


def peer(args, case, steps, environment=None):
    mode, name = PEERS[case.precision]
    command = [sys.executable, str(HERE / "peers/torch_steps.py"), "--model", case.model, "--modes", mode]
    command += ["--batch", str(case.batch), "--size", str(case.size), "--iters", str(steps)]
    command += ["--norm", case.norm, "--dropout", str(case.dropout)]
    if case.growth:
        command += ["--growth", str(case.growth)]
    if case.layers == "share" and case.model.startswith("densenet"):
        command.append("--memory-efficient")
        name += " memory_efficient"
    if args.smoke:
        command += ["--device", "cpu"]
    found = last_json(command, environment)
    version = found.pop("torch", "")
    nothing = {"ms": None, "images_per_second": None, "peak": None}
    return {"name": f"PyTorch {version} {name}".replace("  ", " "), **nothing, **found}


def cold_start(args, case):
    with tempfile.TemporaryDirectory() as home:
        fresh = os.environ | {"HOME": home, "XDG_CACHE_HOME": f"{home}/.cache", "CUDA_CACHE_PATH": f"{home}/.nv"}
        row = ours(args, case, 2, fresh)
        again = ours(args, case, 2, fresh)
        theirs = peer(args, case, 2, fresh)
    row["ours"] = {
        "seconds_to_first_step": row.pop("seconds_to_first_step", None),
        "seconds_with_kernels_kept": again.get("seconds_to_first_step"),
        **{key: value for key, value in row["ours"].items() if key == "error"},
    }
    kept = ("name", "seconds_to_first_step", "error")
    return row | {"peer": {key: theirs[key] for key in kept if key in theirs}}


def measure(args, case):
    if args.smoke:
        case = dataclasses.replace(case, batch=2, size=64)
    if case.kind == "cold-start":
        return cold_start(args, case)
    row, theirs = ours(args, case, args.steps), peer(args, case, args.steps)
    row["device"] = row["device"] or theirs.get("device")
    return row | {"peer": theirs}


def save(args, row):
    device = re.sub(r"[^a-z0-9]+", "-", (row["device"] or "unknown").split("(")[0].lower()).strip("-")
    device = device.removeprefix("nvidia-")
    out = pathlib.Path(args.out or HERE / "results" / f"{datetime.date.today()}-{device}-steps.json")
    rows = json.loads(out.read_text()) if out.exists() else []
    rows = [other for other in rows if other["case"] != row["case"]] + [row]
    order = [case.name for case in CASES]
    rows.sort(key=lambda row: order.index(row["case"]) if row["case"] in order else len(order))
    out.write_text(json.dumps(rows, indent=1) + "\n")


def table_line(case, row):
    def figures(side):
        if side["images_per_second"] is None:
            return [side.get("error", "failed").split(":")[0][:60], ""]
        peak = f"{side['peak'] / 2**20:,.0f}" if side["peak"] else ""
        return [f"{side['images_per_second']:,.0f}", peak]

    mine, theirs = row["ours"], row["peer"]
    both = mine["images_per_second"] and theirs["images_per_second"]
    ratio = f"{mine['images_per_second'] / theirs['images_per_second']:.2f}" if both else ""
    name = re.sub(r"PyTorch \S+ ", "", theirs["name"])
    return "| " + " | ".join([case.title, *figures(mine), name, *figures(theirs), ratio]) + " |"


def cold_line(row):
    def seconds(value):
        return "failed" if value is None else f"{value:.1f} s"

    mine, theirs = row["ours"], row["peer"]
    return (
        f"From the start of a process to the end of the first step ({row['case']}): "
        f"{seconds(mine['seconds_to_first_step'])} with no compiled kernel kept, "
        f"{seconds(mine['seconds_with_kernels_kept'])} with them; {theirs['name']}, cuDNN autotuned, "
        f"{seconds(theirs.get('seconds_to_first_step'))}."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--only", default="", help="cases whose name this regular expression is found in")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--out")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    cases = [case for case in CASES if re.search(args.only, case.name)]
    if args.list:
        return print("\n".join(case.name for case in cases))
    if args.smoke:
        args.steps = 3
    print("| case | ours, images/s | MiB | PyTorch | images/s | MiB | ours to PyTorch's |\n|---|---|---|---|---|---|---|", flush=True)
    lines = []
    for case in cases:
        start = time.time()
        row = measure(args, case)
        save(args, row)
        if case.kind == "cold-start":
            lines.append(cold_line(row))
        else:
            print(table_line(case, row), flush=True)
        print(f"{row['case']}: {time.time() - start:.0f} s", file=sys.stderr, flush=True)
        for side in (row["ours"], row["peer"]):
            if "error" in side:
                print(f"  {side['error']}", file=sys.stderr, flush=True)
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
