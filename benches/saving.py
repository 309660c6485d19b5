"""What saving costs a run: seconds of each save, and their share of a run that saves every minute.

usage: python benches/saving.py [--trainer target/release/trainer] [--device cpu|cuda] [--models densenet121,resnet50]
       [--size 224] [--batch 32] [--steps 40] [--every 10] [--rounds 2]

A run tells every step in metrics.jsonl. This script notes when each line appears there, so that nothing within the
program is measured by itself. In turns, one run saves every so many steps and one never does (both save at their end,
which is not counted). A save goes on behind the steps after it. Printed for each model: the bytes of a state; `told`, the
time from the line of the step that is saved to the line that says so, when the save counts; `next step`, what the step
after it takes longer than the median of those beside which nothing is saved: the state is read from the device in it;
`lost`, the same of all steps beside which the save is under way; `lost` again, as what the time from the first to the
last step's line is longer by for each save than in a run that never saves; and the larger `lost` as a share of a
minute. The bound to hold is 3.5% (CheckFreq, FAST 2021). States hold the weights, their average and the state of AdamW:
four numbers for each weight. A save must have ended before the next one begins: see that `told` is less than `--every`
steps.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time

CONFIG = """
[run]
name = "{name}"
output = "{folder}"
seed = 1
log_every = 1
pictures = 0
save = {{ every_steps = {every}, every_minutes = 0.0, keep = 1 }}
[device]
use = "{device}"
[data]
image = {{ size = [{size}, {size}], channels = 1 }}
validation = {{ fraction = 0.1 }}
cache = "memory"
[data.phantom]
root = "{folder}/data"
patients = {patients}
size = 64
seed = 1
[model.{family}]
depth = {depth}
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Cardiomegaly", "Pleural Effusion", "Support Devices"]
[train]
epochs = 1
batch_size = {batch}
ema = {{ decay = 0.99 }}
[train.optimizer.adamw]
lr = 1e-4
"""


def lines_of(path, process):
    """When each line of the file appeared, with the line."""
    found, rest, place = [], b"", 0
    while True:
        over = process.poll() is not None
        if path.exists() and path.stat().st_size > place:
            now = time.perf_counter()
            with open(path, "rb") as file:
                file.seek(place)
                new = file.read()
            place += len(new)
            *whole, rest = (rest + new).split(b"\n")
            found += [(now, json.loads(line)) for line in whole]
        elif over:
            return found
        else:
            time.sleep(0.0005)


def run(args, folder, name, family, depth, every):
    text = CONFIG.format(
        name=name, folder=folder, every=every, device=args.device, size=args.size, family=family, depth=depth,
        batch=args.batch, patients=args.patients)
    config = folder / f"{name}.toml"
    config.write_text(text)
    environment = dict(os.environ, NO_COLOR="1")
    process = subprocess.Popen([args.trainer, "-q", "run", config, "--overwrite"], env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    told = []
    reader = threading.Thread(target=lambda: told.append(process.stderr.read()))
    reader.start()
    found = lines_of(folder / name / "metrics.jsonl", process)
    reader.join()
    if process.returncode:
        raise SystemExit(f"{name}: exit {process.returncode}: {told[0][-2000:]}")
    # The first steps compile kernels and make the optimizer's state. What is told after the last one does not count.
    steps = [(when, event["step"]) for when, event in found if event["event"] == "step" and event["step"] >= args.warm]
    saved = {event["step"]: when for when, event in found if event["event"] == "saved" and event["reason"] == "interval"
             and args.warm <= event["step"] and when < steps[-1][0]}
    size = sum(path.stat().st_size for path in (folder / name / "last").iterdir())
    return {"seconds": steps[-1][0] - steps[0][0], "steps": len(steps) - 1, "bytes": size, **costs(steps, saved)}


def costs(steps, saved):
    """Of each save, by the step that is saved: when it is told, and by what the steps beside it are longer."""
    gaps = [(before, when) for (before, _), (when, _) in zip(steps, steps[1:])]
    spans = [(when, saved[step]) for when, step in steps if step in saved]
    # A step is beside a save if any of it lies between the line of what is saved and the line that says so.
    alone = [when - before for before, when in gaps if not any(begun < when and before < told for begun, told in spans)]
    usual = statistics.median(alone)
    longer = [[when - before - usual for before, when in gaps if begun <= before < told] for begun, told in spans]
    return {"told": [told - begun for begun, told in spans], "next": [those[0] for those in longer],
            "lost": [sum(those) for those in longer]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", default="densenet121,resnet50")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--warm", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=pathlib.Path, help="where the runs are written: the disk that is measured")
    args = parser.parse_args()
    # Some 1.4 images of a patient, of which a tenth validates.
    args.patients = args.steps * args.batch * 4 // 5
    print("| model | state | saves | told, s | next step, s | lost, s | step with / without saving, ms | lost, s "
          "| of a minute |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        folder = pathlib.Path(folder)
        for model in args.models.split(","):
            family, depth = model.rstrip("0123456789"), int("".join(filter(str.isdigit, model)))
            with_saves, without = [], []
            for turn in range(args.rounds):
                with_saves.append(run(args, folder, f"{model}-on-{turn}", family, depth, args.every))
                without.append(run(args, folder, f"{model}-off-{turn}", family, depth, 0))
            told, following, inside = (
                [seconds for one in with_saves for seconds in one[what]] for what in ("told", "next", "lost"))
            per_step = [statistics.median(one["seconds"] / one["steps"] for one in those)
                        for those in (with_saves, without)]
            steps = sum(one["steps"] for one in with_saves)
            against = (per_step[0] - per_step[1]) * steps / len(told)
            share = max(statistics.median(inside), against) / 60
            print(f"| {model} | {with_saves[0]['bytes'] / 2**20:.0f} MiB | {len(told)} | {spread(told)} "
                  f"| {spread(following)} | {spread(inside)} | {per_step[0] * 1e3:.0f} / {per_step[1] * 1e3:.0f} "
                  f"| {against:.3f} | {share:.2%} |", flush=True)


def spread(seconds):
    return f"{statistics.median(seconds):.3f} ({min(seconds):.3f} to {max(seconds):.3f})"


if __name__ == "__main__":
    main()
