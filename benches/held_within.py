"""Whether a run holds no more of an H100 than its `memory.budget`, for many budgets, without a card: on the driver of
benches/stub_cuda.c (benches/held.py says how that is built).

    python3 benches/held_within.py --trainer target/release/trainer --stub stub > benches/results/DATE-stub-held-within.log

The program must have been built with CUDA. Each row is `trainer run` of an epoch of a phantom with `micro_batch = "auto"`, its last batch
smaller than the others, with its validation and saves. Held are the pages of the allocator and the 286 MiB that a process holds besides
on an H100. Ends with how many hold more than the budget, and exit code 1 where there are any.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import stub

CONFIG = os.path.abspath("benches/configs/whole_run.toml")
BUDGETS = [500, 700, 850, 1000, 1200, 1400, 1700, 2000, 2500, 3000, 4500, 6000, 9000, 12000]
# Side of the images, batch, further settings.
CASES = [
    (320, 64, ["model.densenet.depth=121"]),
    (320, 64, ["model.densenet.depth=121", 'memory.precision="fp32"']),
    (320, 8, ["model.densenet.depth=121"]),
    (320, 16, ["model.densenet.depth=121", 'model.densenet.norm="group"']),
    (224, 64, ["model.resnet.depth=50"]),
    (2000, 8, ["model.densenet.depth=169"]),
]


def run(given, folder, side, batch, settings):
    """The line that the program says about memory, and the memory of the epoch; none where it says that nothing fits."""
    size = max(side, 320)
    patients = 12 if size == 2000 else 80
    keys = [
        f"data.phantom={{root='phantom-{size}', patients={patients}, size={size}}}", f"data.image.size=[{side}, {side}]",
        f"train.batch_size={batch}", "train.epochs=1", "data.augment.rotate_degrees=0.0", *settings,
    ]
    sets = [word for key in keys for word in ("--set", key)]
    environment = stub.environment(given.stub, folder)
    command = [os.path.abspath(given.trainer), "run", CONFIG, "--overwrite", *sets]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode == 4:
        return None
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    with open(os.path.join(folder, "checkpoints/whole_run/metrics.jsonl"), encoding="utf-8") as log:
        epochs = [event for event in map(json.loads, log) if event["event"] == "epoch"]
    said = next(line for line in done.stderr.splitlines() if line.startswith("memory: "))
    return said.removeprefix("memory: ").split(";")[0], epochs[-1]["memory"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--stub", default="stub")
    given = parser.parse_args()
    rows = over = 0
    print("| case | budget, MiB | in use | held | of the budget | taken |\n|---|--:|--:|--:|--:|---|")
    with tempfile.TemporaryDirectory() as folder:
        for side, batch, settings in CASES:
            case = " ".join([f"{batch} × {side}²", *settings])
            for budget in BUDGETS:
                found = run(given, folder, side, batch, [*settings, 'memory.micro_batch="auto"', f'memory.budget="{budget}MiB"'])
                if found is None:
                    print(f"| {case} | {budget} | | | | nothing fits |", flush=True)
                    continue
                taken, memory = found
                held = (memory["reserved"] + stub.CONTEXT) / 2**20
                rows, over = rows + 1, over + (held > budget)
                share = f"{held / budget:.3f}"
                share = f"**{share}**" if held > budget else share
                print(f"| {case} | {budget} | {memory['peak'] / 2**20:,.0f} | {held:,.0f} | {share} | {taken} |", flush=True)
    print(f"\n{over} of {rows} hold more than the budget")
    sys.exit(over > 0)


if __name__ == "__main__":
    main()
