"""Whole runs from files beside their steps alone and beside PyTorch's: writes benches/results/<date>-<device>-whole-runs.json.

usage: python benches/whole_run.py [--trainer target/release/trainer] [--only REGEX] [--patients 6000] [--large 250]
       [--epochs 4] [--peer-epochs 2] [--no-peer] [--out FILE] [--smoke]

Each case draws its radiographs (`trainer data phantom`, 16-bit PNG), then measures in turns: `trainer bench` (the steps on
one batch that stays on the device), `trainer run` on the files, `trainer bench` again, and benches/peers/torch_run.py on
the same files. A run of two epochs goes before all of these: Burn's kernels are compiled when a process first needs them, some of
them after many steps, which takes 60 to 90 ms each time. A run's rate is the median of its epochs but the first, of training alone; `busy` is the mean of NVML's own
samples between the end of the first epoch and the end of the last, validation and saves included.
--smoke runs everything small on the CPU and without PyTorch, to see that it works.
"""
import argparse
import ctypes
import datetime
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = HERE / "configs/whole_run.toml"
DEPTH = {"densenet121": "model.densenet.depth=121", "resnet50": "model.resnet.depth=50"}
# Name: model, side, batch, further settings, arguments of the peer.
CASES = {
    "densenet121-b64-s320-decoded": ("densenet121", 320, 64, [], []),
    "densenet121-b64-s320-memory": ("densenet121", 320, 64, ["data.cache='memory'"], ["--cached"]),
    "densenet121-b64-s320-memory-rotated": (
        "densenet121", 320, 64, ["data.cache='memory'", "data.augment.rotate_degrees=10.0"], ["--cached", "--rotate", "10"]
    ),
    "densenet121-b8-s320-memory": ("densenet121", 320, 8, ["data.cache='memory'"], ["--cached"]),
    "resnet50-b64-s224-decoded": ("resnet50", 224, 64, [], []),
    "resnet50-b64-s224-memory": ("resnet50", 224, 64, ["data.cache='memory'"], ["--cached"]),
    "densenet121-b8-s2000-decoded-keep": ("densenet121", 2000, 8, ["memory.dense_layers='keep'"], []),
    "densenet121-b8-s2000-decoded-share": ("densenet121", 2000, 8, ["memory.dense_layers='share'"], []),
}


def said(command, folder):
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Sample(ctypes.Structure):
    """`nvmlSample_t`: when it was taken, in microseconds, and a number."""

    _fields_ = [("at", ctypes.c_ulonglong), ("value", ctypes.c_ulonglong)]


class Busy:
    """The share of time in which the first card had work: NVML's own samples, which nvidia-smi's figure is made of."""

    def __init__(self):
        self.seen, self.ended = {}, False
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            self.ended = self.nvml.nvmlInit_v2() != 0
        except OSError:
            self.ended = True
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        card, last = ctypes.c_void_p(), 0
        while not self.ended and self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card)) == 0:
            count, kind = ctypes.c_uint(), ctypes.c_int()

            def ask(room):
                # NVML_GPU_UTILIZATION_SAMPLES, of which it keeps those of some seconds.
                return self.nvml.nvmlDeviceGetSamples(
                    card, 1, ctypes.c_ulonglong(last), ctypes.byref(kind), ctypes.byref(count), room
                )

            if ask(None) == 0 and count.value:
                room = (Sample * count.value)()
                if ask(room) == 0:
                    new = {sample.at: sample.value & 0xFFFFFFFF for sample in room[: count.value]}
                    self.seen |= new
                    last = max([last, *new])
            time.sleep(0.2)

    def between(self, begin, end):
        self.ended = True
        self.thread.join()
        return [value for at, value in self.seen.items() if begin <= at / 1e6 <= end]


def bench(args, folder, settings):
    command = [args.trainer, "bench", CONFIG, "--steps", str(args.steps), *settings]
    return json.loads(said(command, folder).strip().splitlines()[-1])


def run(args, folder, settings, count):
    """The events of `count` epochs, and the share of time in which the card had work after the first."""
    # Epochs of a run before are not to be taken for this one's.
    shutil.rmtree(folder / "checkpoints/whole_run", ignore_errors=True)
    busy, ends = Busy(), []
    command = [args.trainer, "run", CONFIG, "--overwrite", "--json", *settings, "--set", f"train.epochs={count}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        log = folder / "checkpoints/whole_run/metrics.jsonl"
        seen = []
        while process.poll() is None:
            time.sleep(0.02)
            lines = log.read_text().splitlines() if log.exists() else []
            epochs = [line for line in lines if '"event":"epoch"' in line]
            if len(epochs) > len(seen):
                ends += [time.time()] * (len(epochs) - len(seen))
                seen = epochs
        if process.returncode:
            raise SystemExit(process.stderr.read()[-2000:])
    epochs = [json.loads(line) for line in log.read_text().splitlines() if '"event":"epoch"' in line]
    return epochs, busy.between(ends[0], ends[-1])


def measure(args, folder, name):
    model, side, batch, own, peer = CASES[name]
    if args.smoke:
        side, batch, own = 64, 8, [*own, "device.use='cpu'", "memory.precision='fp32'"]
    patients = args.large if side > 1000 else args.patients
    root = folder / f"phantom-{side}-{patients}"
    if not root.exists():
        begin = time.time()
        draw = [args.trainer, "data", "phantom", "--out", root, "--patients", str(patients), "--size", str(side)]
        said(draw, folder)
        print(f"{root.name} drawn in {time.time() - begin:.0f} s", file=sys.stderr, flush=True)
    of_data = [f"data.phantom={{root='{root}',patients={patients},size={side}}}", f"data.image.size=[{side},{side}]"]
    keys = [*of_data, DEPTH[model], f"train.batch_size={batch}", "data.augment.rotate_degrees=0.0", *own]
    settings = [part for key in keys for part in ("--set", key)]
    run(args, folder, settings, 2)
    before = bench(args, folder, settings)
    epochs, busy = run(args, folder, settings, args.epochs)
    after = bench(args, folder, settings)
    rates = [epoch["images_per_second"] for epoch in epochs]
    steps = [before["ours"]["images_per_second"], after["ours"]["images_per_second"]]
    row = {
        "case": f"{name}-run",
        "device": before["device"],
        "command": " ".join(["trainer run benches/configs/whole_run.toml", *(f"--set '{key}'" for key in keys[1:])]),
        "ours": {
            "images_per_second": statistics.median(rates[1:]),
            "epochs": rates,
            "steps_alone": steps,
            "share": statistics.median(rates[1:]) / statistics.mean(steps),
            "busy": statistics.mean(busy) if busy else None,
            "memory": epochs[-1]["memory"],
            "losses": [epoch["train"]["loss"] for epoch in epochs],
        },
    }
    print(json.dumps(row["ours"]), file=sys.stderr, flush=True)
    if not args.no_peer:
        script = [sys.executable, HERE / "peers/torch_run.py", root, "--model", model, "--size", str(side), "--batch", str(batch)]
        found = json.loads(said([*script, "--epochs", str(args.peer_epochs), *peer], folder).strip().splitlines()[-1])
        rates = found.pop("rates")
        version = found.pop("torch")
        row["peer"] = {
            "name": f"PyTorch {version} AMP bf16 channels_last, DataLoader",
            "images_per_second": statistics.median(rates[1:]),
            "epochs": rates,
            **found,
        }
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--only", default="", help="cases whose name this regular expression is found in")
    parser.add_argument("--patients", type=int, default=6000)
    parser.add_argument("--large", type=int, default=250, help="patients of 2000×2000")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--peer-epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30, help="of `trainer bench`")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, help="where images and runs are kept")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    if args.smoke:
        args.patients, args.large, args.epochs, args.steps, args.no_peer = 40, 40, 2, 1, True
    args.trainer = str(pathlib.Path(args.trainer).resolve())
    folder = args.folder or pathlib.Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    print("| case | run, images/s | steps alone | run of steps | busy | PyTorch |\n|---|--:|--:|--:|--:|--:|", flush=True)
    for name in CASES:
        if not re.search(args.only, name):
            continue
        row = measure(args, folder, name)
        rows.append(row)
        mine, theirs = row["ours"], row.get("peer", {}).get("images_per_second")
        steps = ", ".join(f"{rate:,.0f}" for rate in mine["steps_alone"])
        busy = "" if mine["busy"] is None else f"{mine['busy']:.0f}%"
        cells = [name, f"{mine['images_per_second']:,.0f}", steps, f"{100 * mine['share']:.1f}%", busy]
        print("| " + " | ".join([*cells, f"{theirs:,.0f}" if theirs else ""]) + " |", flush=True)
        device = re.sub(r"[^a-z0-9]+", "-", re.sub(r"^cuda:\d+, ([^,]+),.*", r"\1", row["device"]).lower()).strip("-")
        out = args.out or HERE / "results" / f"{datetime.date.today()}-{device.removeprefix('nvidia-')}-whole-runs.json"
        out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
