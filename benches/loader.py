"""How fast images are loaded, beside PyTorch's DataLoader on the same files and cores, in one run.

usage: python benches/loader.py [--trainer target/release/trainer] [--cores 4] [--seconds 5] [--repeat 3]

Needs torch, torchvision, numpy and Pillow. Draws radiographs with `trainer data phantom`, as 390×320
JPEGs (as CheXpert's small version has them) and as 2000×2000 16-bit PNGs, and prints for each case
the medians of both sides, cold (every image decoded) and cached, and their ratios, as a table and
as JSON in benches/results/.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

import numpy
from PIL import Image

HERE = pathlib.Path(__file__).parent
CASES = [("jpeg-390x320-to-320", 1600, 390, (320, 320)), ("png16-2000-to-1024", 64, 2000, (1024, 1024))]


def draw(trainer, folder, name, images, side):
    """A folder in CheXpert's layout with `images` images or a few more."""
    root = folder / name
    patients = max(8, images * 2 // 5)
    size = 400 if name.startswith("jpeg") else side
    subprocess.run(
        [trainer, "data", "phantom", "--out", root, "--patients", str(patients), "--size", str(size)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    if name.startswith("jpeg"):
        for file in root.rglob("*.png"):
            grey = (numpy.asarray(Image.open(file)) // 257).astype(numpy.uint8)
            Image.fromarray(grey).resize((390, 320)).save(file.with_suffix(".jpg"), quality=90)
            file.unlink()
        table = root / "train.csv"
        table.write_text(table.read_text().replace(".png", ".jpg"))
    return root


def configuration(folder, name, root, size, cores):
    text = f"""
[run]
name = "bench"
[data]
image = {{ size = [{size[0]}, {size[1]}] }}
validation = {{ fraction = 0.05 }}
workers = {cores}
[data.chexpert]
root = "{root}"
[data.augment]
rotate_degrees = 10.0
[model.densenet]
depth = 121
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Cardiomegaly"]
[train]
epochs = 1
batch_size = 64
optimizer = "adamw"
"""
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def ours(trainer, config, seconds, *extra):
    command = [trainer, "data", "bench", config, "--seconds", str(seconds), "--json", *extra]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peer(root, size, cores, seconds):
    script = HERE / "peers" / "torch_loader.py"
    command = [sys.executable, script, root, "--size", *map(str, size), "--workers", str(cores), "--seconds", str(seconds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, images, side, size in CASES:
            root = draw(args.trainer, folder, name, images, side)
            config = configuration(folder, name, root, size, args.cores)
            runs = []
            for _ in range(args.repeat):
                memory = ours(args.trainer, config, args.seconds)
                disk = ours(args.trainer, config, args.seconds, "--set", f"data.cache.disk.folder='{folder}/cache'")
                runs.append((memory, disk, peer(root, size, args.cores, args.seconds)))
            median = lambda pick: statistics.median(pick(run) for run in runs)
            theirs = median(lambda run: run[2]["images_per_second"])
            stages = {key: median(lambda run: run[0][key]) for key in ["read", "decode", "resize", "prepare"]}
            found = {"cold": median(lambda run: run[0]["cold"]), "cached (memory)": median(lambda run: run[0]["cached"]),
                     "cached (disk)": median(lambda run: run[1]["cached"])}
            print(f"{name}: PyTorch {theirs:.0f} images/s; " + ", ".join(
                f"ours {key} {value:.0f} ({value / theirs:.1f}×)" for key, value in found.items()))
            print("  one core: " + ", ".join(f"{key} {value:.0f}/s" for key, value in stages.items()), flush=True)
            version = runs[0][2]
            results.append({
                "case": f"loader-{name}", "device": f"{platform.machine()} CPU, {args.cores} threads",
                "command": "python benches/loader.py", "ours": found | {"stages_one_core": stages},
                "peer": {"name": f"PyTorch {version['torch']} DataLoader, torchvision {version['torchvision']}",
                         "images_per_second": theirs},
                "ratios": {key: value / theirs for key, value in found.items()},
            })
    target = HERE / "results" / f"{datetime.date.today()}-loader.json"
    target.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {target}")


if __name__ == "__main__":
    main()
