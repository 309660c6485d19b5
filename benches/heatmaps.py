"""Holds the heatmaps of `trainer predict --heatmap` to PyTorch's Grad-CAM of the exported weights.

usage: pip install torch torchvision safetensors pillow matplotlib
       python benches/heatmaps.py target/debug/trainer checkpoints/first hospital/images/*.png

RUN is a run of torchvision's DenseNet-121 with one channel, one head and `normalize = "unit"`, such as the tutorial's;
the images are square and grey. PyTorch resizes an image itself (by area). Of a heatmap the heat
of each pixel is read back from its colour. Printed are the correlation of the two over the pixels of each map, and the
largest difference of the probabilities, which shows that both see the same image. A correlation of 0.99 or less ends it
with 1. Where one finds that nothing speaks for a label, the other must find it too.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision
from matplotlib import colormaps
from PIL import Image
from safetensors import safe_open

MOST_COVER, DARKEST = 0.65, 0.3


def model(weights):
    with safe_open(weights, "pt") as file:
        state = {name: file.get_tensor(name) for name in file.keys()}
        heads, fitted = (json.loads(file.metadata()[key]) for key in ("heads", "fitted"))
    network = torchvision.models.densenet121(num_classes=len(state["classifier.bias"]))
    network.features.conv0 = torch.nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    network.load_state_dict(state, strict=True)
    head = heads[0]
    calibration = fitted["heads"][head["name"]].get("calibration") or {}
    return network.eval(), head, calibration.get("temperature", 1.0)


def cams(network, pixels, size):
    """The logits, and each label's map over the image: ReLU of the features weighted by their mean gradients."""
    kept = {}
    hook = network.features.denseblock4.register_forward_hook(lambda _, __, out: kept.update(map=out))
    image = torch.nn.functional.interpolate(pixels, size=size, mode="area")
    logits = network(image.requires_grad_())[0]
    hook.remove()
    found = []
    for logit in logits:
        gradient, = torch.autograd.grad(logit, kept["map"], retain_graph=True)
        cam = torch.relu((gradient.mean((2, 3), keepdim=True) * kept["map"]).sum(1, keepdim=True)).detach()
        found.append(torch.nn.functional.interpolate(cam, size=pixels.shape[2:], mode="bilinear")[0, 0].numpy())
    return logits.detach().numpy(), found


def heat(picture, grey):
    """What share of the greatest heat each pixel's colour tells of."""
    shares = np.linspace(0, 1, 256)
    colours = colormaps["inferno"](DARKEST + (1 - DARKEST) * shares)[:, :3] * 255
    cover = (MOST_COVER * shares)[:, None]
    blended = (1 - cover) * grey[..., None, None] + cover * colours
    return shares[((blended - picture[..., None, :]) ** 2).sum(-1).argmin(-1)]


def main():
    program, run, *images = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        weights, table = folder / "weights.safetensors", folder / "table.csv"
        do = lambda *words: subprocess.run([program, *map(str, words)], check=True)
        do("export", run, "--format", "torchvision", "--out", weights)
        do("predict", run, *images, "--out", table, "--heatmap", folder)
        network, head, temperature = model(weights)
        with safe_open(weights, "pt") as file:
            size = json.loads(file.metadata()["preprocessing"])["size"]
        rows = {row["path"]: row for row in csv.DictReader(table.open())}
        worst, differs, cold, correlations = None, 0.0, 0, []
        for path in images:
            raw = np.asarray(Image.open(path)).astype(np.float64)
            most = 65535 if raw.max() > 255 else 255
            pixels = torch.tensor(raw / most, dtype=torch.float32)[None, None]
            logits, maps = cams(network, pixels, size)
            for label, logit, cam in zip(head["labels"], logits, maps):
                column = f"{head['name']}/{label}"
                told = float(rows[path][column])
                differs = max(differs, abs(told - 1 / (1 + np.exp(-float(logit) / temperature))))
                name = f"{pathlib.Path(path).name}.{column.replace('/', '.').replace(' ', '_')}.png"
                picture = np.asarray(Image.open(folder / name)).astype(np.float64)
                ours = heat(picture, np.floor(raw * 255 / most) if most == 255 else np.floor(raw / 256))
                if cam.max() == 0 or ours.max() == 0:
                    assert cam.max() == ours.max() == 0, f"{path} {label}: only one finds nothing"
                    cold += 1
                    continue
                correlation = np.corrcoef(ours.ravel(), cam.ravel())[0, 1]
                correlations.append(correlation)
                if worst is None or correlation < worst[0]:
                    worst = correlation, path, label
    print(f"{len(images)} images, {len(correlations)} maps with heat, {cold} without in both; torch {torch.__version__}")
    print(f"correlation: least {worst[0]:.5f} ({worst[1]}, {worst[2]}), median {np.median(correlations):.5f}")
    print(f"largest difference of a probability: {differs:.2g}")
    sys.exit(0 if worst[0] > 0.99 else 1)


if __name__ == "__main__":
    main()
