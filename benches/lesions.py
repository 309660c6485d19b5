"""Whether full resolution pays: the same radiographs, with nodules of a few pixels, trained at 320², 512², 1024² and 2000².

    python benches/lesions.py --folder /tmp/lesions [--trainer target/release/trainer] [--nodules 3,12] [--edges 6,9] [--out lesions.json]
    python benches/lesions.py --plot lesions.svg lesions.json      # needs matplotlib

A nodule of some pixels in four million, known only by a label of the whole image, is not learned from random weights and a
thousand images (BENCHMARKS.md, "When full resolution pays"). So each model begins on radiographs of 256×256 pixels whose nodules are as
many pixels wide, and goes on with those of 512×512, 1024×1024 and 2000×2000: the curriculum of patches of Shen et al. (2019,
doi:10.1038/s41598-019-48995-4), with whole images. A model for 320² has all of them reduced as a radiograph of 2000×2000 is to 320². All
see the same radiographs in the same number of steps, at the same time on one GPU. Prints the AUROC of the nodule on the validation images,
with 95% intervals, after each part and by the nodule's diameter after the last.
"""

import argparse
import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "configs/experiments/12_small_lesions.toml"
# The drawn images' size, how many patients, and for how many epochs. They take 27 GB of disk.
PARTS = [(256, 3000, 10), (512, 3000, 8), (1024, 1400, 8), (2000, 1200, 10)]
SIDES = [320, 512, 1024, 2000]


def done(command):
    """What the command prints; where it fails, what it says ends this script."""
    command = [str(part) for part in command]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ended.stderr}")
    return ended.stdout


def draw(args):
    for size, patients, _ in PARTS:
        begin = time.time()
        folder = args.folder / f"drawn-{size}"
        done([args.trainer, "data", "phantom", "--out", folder, "--patients", patients, "--size", size, "--seed", "12", "--nodules",
              args.nodules, "-q"])
        print(f"{patients} patients of {size}²: {time.time() - begin:.0f} s", flush=True)


def interval(heads):
    nodule = heads["nodule"]
    auroc = nodule["auroc"]["labels"]["Lung Lesion"]
    return {"images": nodule["images"], **{key: auroc.get(key) for key in ("value", "low", "high")}}


def arm(args, side):
    """The model for images of `side`²: what it reaches after each part, and by diameter after the last."""
    weights, reached = None, []
    for size, patients, epochs in PARTS:
        name, image = f"{side}-{size}", round(side * size / 2000)
        keys = {
            "run.output": args.folder,
            "run.name": name,
            "data.phantom.root": args.folder / f"drawn-{size}",
            "data.phantom.patients": patients,
            "data.phantom.size": size,
            "data.phantom.nodules": f"[{args.nodules}]",
            "data.image.size": f"[{image},{image}]",
            "train.epochs": epochs,
        }
        command = [args.trainer, "run", CONFIG, "--overwrite", "-q"]
        command += [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
        begin = time.time()
        done(command + (["--init", weights] if weights else []))
        seconds = time.time() - begin
        weights = args.folder / name / "best/weights.safetensors"
        found = done([args.trainer, "eval", args.folder / name, "--split", "validation", "--by", f"nodule diameter:{args.edges}", "--json"])
        found = json.loads(found)
        reached.append({"size": size, "image": image, "seconds": seconds, **interval(found["heads"])})
        print(f"{side}²: {reached[-1]}", flush=True)
    groups = found["subgroups"]["nodule diameter"]
    return {"side": side, "parts": reached, "by_diameter": {group["group"]: interval(group["heads"]) for group in groups}}


def bench(args, side):
    """A step of 8 images alone on the GPU."""
    size, patients, _ = PARTS[-1]
    command = [args.trainer, "bench", CONFIG, "--steps", "12"]
    for key in (f"data.phantom.root={args.folder}/drawn-{size}", f"data.phantom.patients={patients}", f"data.image.size=[{side},{side}]",
                f"data.phantom.nodules=[{args.nodules}]"):
        command += ["--set", key]
    found = json.loads(done(command).strip().splitlines()[-1])
    return {"device": found["device"], **{key: found["ours"][key] for key in ("images_per_second", "peak", "smi")}}


def mebibytes(count):
    return "" if count is None else f"{count / 2**20:,.0f}"


def shown(found):
    if found["value"] is None:
        return "undefined"
    if found["low"] is None:
        return f"{found['value']:.3f}"
    return f"{found['value']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def plot(results, out):
    """The AUROC by the size that was trained at, a line for each range of diameters."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text as text
    matplotlib.rcParams["svg.hashsalt"] = "lesions"  # the same file from the same results
    import matplotlib.pyplot as pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(5 * len(results), 3.8), sharey=True, squeeze=False)
    for result, axis in zip(results, axes[0]):
        arms = result["arms"]
        for offset, group in enumerate(arms[0]["by_diameter"]):
            found = [arm["by_diameter"][group] for arm in arms]
            values = [one["value"] for one in found]
            ends = [[one["value"] - one["low"] for one in found], [one["high"] - one["value"] for one in found]]
            places = [place + 0.08 * (offset - 1) for place in range(len(arms))]
            axis.errorbar(places, values, yerr=ends, marker="o", capsize=3, label=f"{group} pixels")
        axis.set_xticks(range(len(arms)), [f"{arm['side']}²" for arm in arms])
        least, most = result["nodules"].split(",")
        axis.set_title(f"nodules of {least} to {most} pixels in 2000×2000")
        axis.set_xlabel("trained at")
        axis.axhline(0.5, color="grey", linewidth=0.8, linestyle=":")
        axis.legend(loc="lower right")
    axes[0][0].set_ylabel("AUROC of the nodule (95% interval)")
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--trainer", default=ROOT / "target/release/trainer", type=Path)
    parser.add_argument("--nodules", default="3,12")
    parser.add_argument("--edges", default="6,9")
    parser.add_argument("--draw-only", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.plot:
        read = [json.loads(path.read_text(encoding="utf-8")) for path in args.results]
        return plot([one for found in read for one in (found if isinstance(found, list) else [found])], args.plot)
    if not args.folder:
        parser.error("--folder is missing: where the radiographs and runs go")
    args.folder.mkdir(parents=True, exist_ok=True)
    draw(args)
    if args.draw_only:
        return
    with ThreadPoolExecutor(len(SIDES)) as pool:
        arms = list(pool.map(lambda side: arm(args, side), SIDES))
    for found in arms:
        found["step"] = bench(args, found["side"])
    result = {"nodules": args.nodules, "arms": arms}
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    groups = list(arms[0]["by_diameter"])
    print("| trained at | images/s | in use, MiB | held, MiB | all | " + " | ".join(groups) + " |")
    print("|---|--:|--:|--:|" + "--:|" * (1 + len(groups)))
    for found in arms:
        step = found["step"]
        row = [f"{found['side']}²", f"{step['images_per_second']:,.0f}", mebibytes(step["peak"]), mebibytes(step["smi"])]
        row += [shown(found["parts"][-1])] + [shown(found["by_diameter"][group]) for group in groups]
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
