"""A whole run by PyTorch: a model of torchvision on a phantom's PNG files, DataLoader, AMP bf16, channels_last.

usage: python torch_run.py ROOT --model densenet121 [--size 320] [--batch 64] [--epochs 3] [--rotate 10] [--cached]

Batches go to the device as 8-bit images from pinned memory, without waiting. --cached keeps the resized images in memory.
The last line is JSON: images per second of training in each epoch, and the most memory that was allocated.
"""
import argparse
import csv
import json
import os
import pathlib
import time

import numpy
import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2

LABELS = ["Cardiomegaly", "Pleural Effusion", "Lung Lesion", "Consolidation", "Pneumothorax", "Support Devices"]


class Radiographs(torch.utils.data.Dataset):
    def __init__(self, args):
        with open(args.root / "train.csv") as table:
            self.rows = list(csv.DictReader(table))
        self.args = args
        self.change = v2.RandomRotation(args.rotate, v2.InterpolationMode.BILINEAR) if args.rotate else (lambda image: image)
        self.kept = [self.read(row) for row in self.rows] if args.cached else None

    def __len__(self):
        return len(self.rows)

    def read(self, row):
        pixels = (numpy.asarray(Image.open(self.args.root / row["Path"])).astype(numpy.uint32) >> 8).astype(numpy.uint8)
        side = self.args.size
        image = Image.fromarray(pixels)
        if image.size != (side, side):
            image = image.resize((side, side), Image.BILINEAR)
        return torch.from_numpy(numpy.array(image))[None]

    def __getitem__(self, place):
        row = self.rows[place]
        image = self.kept[place] if self.kept else self.read(row)
        known = [float(row[label]) if row[label] else float("nan") for label in LABELS]
        return self.change(image), torch.tensor(known).abs()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--model", default="densenet121")
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rotate", type=float, default=0.0)
    parser.add_argument("--cached", action="store_true")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    loader = torch.utils.data.DataLoader(
        Radiographs(args), args.batch, shuffle=True, num_workers=os.cpu_count(), pin_memory=True,
        persistent_workers=True, prefetch_factor=4, drop_last=True,
    )
    model = getattr(torchvision.models, args.model)(num_classes=len(LABELS))
    if args.model.startswith("densenet"):
        model.features.conv0 = torch.nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    else:
        model.conv1 = torch.nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    model = model.cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    rates = []
    for _ in range(args.epochs):
        torch.cuda.synchronize()
        begin, images = time.perf_counter(), 0
        for image, target in loader:
            image = image.cuda(non_blocking=True).to(memory_format=torch.channels_last).float().div_(255)
            target = target.cuda(non_blocking=True)
            known = ~target.isnan()
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(image)
            losses = torch.nn.functional.binary_cross_entropy_with_logits(
                logits.float(), target.nan_to_num(), reduction="none"
            )
            optimizer.zero_grad(set_to_none=True)
            ((losses * known).sum() / known.sum()).backward()
            optimizer.step()
            images += len(image)
        torch.cuda.synchronize()
        rates.append(images / (time.perf_counter() - begin))
    print(json.dumps({"torch": torch.__version__, "rates": rates, "peak": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
