"""PyTorch's side of the comparison: images per second of a DataLoader with torchvision's transforms.

usage: python torch_loader.py FOLDER --size H W [--workers 4] [--batch 64] [--seconds 5]

FOLDER holds images. Each is opened with Pillow, made grey, resized (antialiased) and letterboxed,
rotated by up to 10 degrees, and turned into a float tensor, as an X-ray training script does it.
Prints one JSON object.
"""
import argparse
import json
import pathlib
import time

import numpy
import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2


class Folder(torch.utils.data.Dataset):
    def __init__(self, folder, size, rotate):
        self.files = sorted(p for p in pathlib.Path(folder).rglob("*") if p.suffix in (".jpg", ".png"))
        self.size = size
        self.rotate = v2.RandomRotation(rotate, interpolation=v2.InterpolationMode.BILINEAR) if rotate else None

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = Image.open(self.files[index])
        if image.mode.startswith("I"):
            tensor = torch.from_numpy(numpy.asarray(image).astype(numpy.float32) / 65535)[None]
        else:
            tensor = v2.functional.to_dtype(v2.functional.pil_to_tensor(image.convert("L")), torch.float32, scale=True)
        height, width = self.size
        factor = min(height / tensor.shape[1], width / tensor.shape[2])
        inner = [round(tensor.shape[1] * factor), round(tensor.shape[2] * factor)]
        tensor = v2.functional.resize(tensor, inner, antialias=True)
        top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
        tensor = v2.functional.pad(tensor, [left, top, width - inner[1] - left, height - inner[0] - top])
        return self.rotate(tensor) if self.rotate else tensor


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--size", type=int, nargs=2, default=[320, 320])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rotate", type=float, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        Folder(args.folder, args.size, args.rotate),
        args.batch,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        worker_init_fn=lambda _: torch.set_num_threads(1),
    )
    for batch in loader:  # starts the workers, reads the files once
        pass
    images, begin = 0, time.time()
    while time.time() - begin < args.seconds:
        for batch in loader:
            images += batch.shape[0]
            if time.time() - begin > args.seconds:
                break
    rate = images / (time.time() - begin)
    print(json.dumps({"images_per_second": rate, "torch": torch.__version__, "torchvision": torchvision.__version__}))


if __name__ == "__main__":
    main()
