"""The loss of every step in fp32, tf32 and bf16: the same weights, images and order; and in fp32 with another order.

usage: python benches/curves.py [--trainer target/release/trainer] [--steps 200] [--out FILE] [--smoke]
       python benches/curves.py --redraw benches/results/2026-11-21-h100-curves.json

Draws radiographs (`trainer data phantom`), sets the last patients aside for validation so that every run trains on the
same images, and runs benches/configs/curves.toml from the same weights (torchvision's initial ones). A curve is smoothed
(mean over the 20 steps up to each) and compared with fp32's, step by step; the run in another order of the images says
how far apart two curves lie by chance. Writes the curves as JSON and, beside it, as SVG.
--smoke runs a small model in fp32 on the CPU, to see that it works. --redraw makes the SVG of a JSON file anew, without
PyTorch.
"""
import argparse
import csv
import datetime
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
WINDOW = 20
ASIDE = 20  # patients for validation
SEED, OTHER = 7, 8
RUNS = [("fp32", "fp32", SEED), ("tf32", "tf32", SEED), ("bf16", "bf16", SEED), ("fp32, another order", "fp32", OTHER)]
COLOURS = {"fp32": "#000000", "tf32": "#0072b2", "bf16": "#d55e00", "fp32, another order": "#aaaaaa"}


def call(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")


def draw(args, root, patients, size):
    """Returns the number of training images."""
    call([args.trainer, "data", "phantom", "--out", str(root), "--patients", str(patients), "--size", str(size), "--seed", "7"])
    with open(root / "train.csv", newline="") as file:
        head, *rows = csv.reader(file)
    aside = {f"patient{number:05}" for number in range(patients - ASIDE + 1, patients + 1)}
    for name, chosen in (("train.csv", False), ("valid.csv", True)):
        part = [row for row in rows if (row[0].split("/")[1] in aside) == chosen]
        with open(root / name, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([head, *part])
        print(f"{name}: {len(part)} images", file=sys.stderr)
        train = len(part) if not chosen else train
    return train


def weights(path, smoke):
    import torch
    import torchvision

    import safe

    torch.manual_seed(0)
    small = {"growth_rate": 8, "block_config": (3, 2), "num_init_features": 16}
    model = torchvision.models.DenseNet(num_classes=6, **small) if smoke else torchvision.models.densenet121(num_classes=6)
    first = model.features.conv0
    model.features.conv0 = torch.nn.Conv2d(1, first.out_channels, 7, stride=2, padding=3, bias=False)
    torch.nn.init.kaiming_normal_(model.features.conv0.weight)
    safe.write(path, {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()})


def train(args, folder, name, precision, seed, images, batch, extra):
    epochs = -(-args.steps // (images // batch))
    keys = [f'run.name="{re.sub("[^a-z0-9]+", "-", name)}"', f'run.output="{folder}/runs"', f"run.seed={seed}"]
    keys += [f'memory.precision="{precision}"', f"train.epochs={epochs}", f'data.chexpert.root="{folder}/data"', *extra]
    command = [args.trainer, "run", str(HERE / "configs/curves.toml"), "--init", f"{folder}/weights.safetensors"]
    for key in keys:
        command += ["--set", key]
    start = time.time()
    call(command)
    print(f"{name}: {time.time() - start:.0f} s", file=sys.stderr, flush=True)
    lines = pathlib.Path(f"{folder}/runs/{re.sub('[^a-z0-9]+', '-', name)}/metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    losses = [event["loss"] for event in events if event["event"] == "step"][: args.steps]
    assert len(losses) == args.steps, f"{name}: {len(losses)} steps"
    device = next(event["device"] for event in events if event["event"] == "start")
    return losses, re.sub(r"^cuda:\d+, ([^,]+),.*", r"\1", device)


def smooth(losses, window):
    return [sum(losses[end - window : end]) / window for end in range(window, len(losses) + 1)]


def deviations(curve, reference):
    each = [abs(a - b) / abs(b) for a, b in zip(curve, reference)]
    return {"max_deviation": max(each), "mean_deviation": sum(each) / len(each)}


def ticks(low, high):
    """Up to ten multiples of 1, 2 or 5 times a power of ten, from the one below `low` to the one above `high`."""
    rough = (high - low) / 8 or 1
    power = 10 ** math.floor(math.log10(rough))
    step = next(round * power for round in (1, 2, 5, 10) if round * power >= rough * 0.999)
    return [step * n for n in range(math.floor(low / step), math.ceil(high / step) + 1)]


def svg(curves, window):
    """The smoothed curves; x is the step."""
    width, height, left, right, top, bottom = 960, 480, 80, 720, 48, 424
    losses = ticks(min(map(min, curves.values())), max(map(max, curves.values())))
    last = window + max(map(len, curves.values())) - 1
    steps = ticks(window, last)

    def x(step):
        return left + (step - steps[0]) / (steps[-1] - steps[0]) * (right - left)

    def y(loss):
        return bottom - (loss - losses[0]) / (losses[-1] - losses[0]) * (bottom - top)

    def text(at_x, at_y, words, more=""):
        parts.append(f'<text x="{at_x:.1f}" y="{at_y:.1f}" {more}>{words}</text>')

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    middle = (left + right) / 2
    for loss in losses:
        parts.append(f'<path d="M{left} {y(loss):.1f}H{right}" stroke="#dddddd"/>')
        text(left - 8, y(loss) + 4, f"{loss:.2f}", 'text-anchor="end"')
    for step in steps:
        parts.append(f'<path d="M{x(step):.1f} {bottom}v5" stroke="#444444"/>')
        text(x(step), bottom + 20, f"{step:.0f}", 'text-anchor="middle"')
    parts.append(f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#444444"/>')
    text(middle, 26, "training loss in each precision", 'text-anchor="middle" font-size="16"')
    text(middle, bottom + 42, "step", 'text-anchor="middle"')
    text(-(top + bottom) / 2, 20, f"loss, mean of {window} steps", 'text-anchor="middle" transform="rotate(-90)"')
    for name, curve in reversed(curves.items()):
        points = " ".join(f"{x(window + place):.1f},{y(loss):.1f}" for place, loss in enumerate(curve))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="1.5"/>')
    reference = curves["fp32"]
    for index, (name, curve) in enumerate(curves.items()):
        place = top + 10 + 36 * index
        parts.append(f'<path d="M{right + 16} {place}h24" stroke="{COLOURS[name]}" stroke-width="3"/>')
        text(right + 48, place + 4, name)
        apart = deviations(curve, reference)["max_deviation"]
        figure = f"{curve[-1]:.3f} at the end" if curve is reference else f"{curve[-1]:.3f}, {apart:.1%} off at most"
        text(right + 48, place + 22, figure, 'fill="#666666"')
    return "\n".join([*parts, "</svg>"]) + "\n"


def redraw(path):
    rows = json.loads(path.read_text())
    names = [name for name, _, _ in RUNS]
    assert len(rows) == len(names), f"{path} holds {len(rows)} curves, not {len(names)}"
    window = rows[0]["ours"]["window"]
    curves = {name: smooth(row["losses"], window) for name, row in zip(names, rows)}
    path.with_suffix(".svg").write_text(svg(curves, window))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--patients", type=int, default=500)
    parser.add_argument("--out", help="the JSON file; the SVG stands beside")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--redraw", type=pathlib.Path, metavar="JSON")
    args = parser.parse_args()
    if args.redraw:
        return redraw(args.redraw)
    runs, batch, size, window, extra = RUNS, 32, 320, WINDOW, []
    if args.smoke:
        runs, batch, size, window = [run for run in RUNS if run[1] == "fp32"], 8, 64, 4
        args.steps, args.patients = 12, 40
        extra = ['device.use="cpu"', f"train.batch_size={batch}", f"data.image.size=[{size},{size}]"]
        extra.append("model={densenet={growth=8,blocks=[3,2],stem=16}}")
    rows, curves = [], {}
    with tempfile.TemporaryDirectory() as folder:
        images = draw(args, pathlib.Path(folder) / "data", args.patients, size)
        weights(f"{folder}/weights.safetensors", args.smoke)
        print(f"Smoothed over {window} steps, beside fp32:\n| run | largest deviation | mean | last loss |\n|---|---|---|---|", flush=True)
        for name, precision, seed in runs:
            losses, device = train(args, folder, name, precision, seed, images, batch, extra)
            curves[name] = smooth(losses, window)
            found = deviations(curves[name], curves["fp32"])
            print(f"| {name} | {found['max_deviation']:.2%} | {found['mean_deviation']:.2%} | {curves[name][-1]:.4f} |", flush=True)
            rows.append({
                "case": f"densenet121-b{batch}-s{size}-{name.replace(', ', '-').replace(' ', '-')}-curve",
                "device": device,
                "command": f"python benches/curves.py --steps {args.steps} --patients {args.patients}",
                "ours": {"precision": precision, "seed": seed, "window": window, **found},
                "losses": [round(loss, 6) for loss in losses],
            })
    name = re.sub(r"[^a-z0-9]+", "-", rows[0]["device"].split("(")[0].lower()).strip("-").removeprefix("nvidia-")
    out = pathlib.Path(args.out or HERE / "results" / f"{datetime.date.today()}-{name}-curves.json")
    out.write_text(json.dumps(rows) + "\n")
    out.with_suffix(".svg").write_text(svg(curves, window))


if __name__ == "__main__":
    main()
