"""PyTorch's side of experiments 6 and 11: memory of sequential models with and without checkpointing.

usage: python torch_sequential.py stack [--segments 0,2,4,8,10,16] [--half] [--batch 59392] [--width 864] [--layers 48]
       python torch_sequential.py cnn [--large] [--segments 0,4] [--half] [--micro 100,1]
The models, sizes and optimizers are those of configs/experiments/06_linear_stack.toml, 11_cnn_regression.toml and
11_cnn_regression_large.toml. Segments are those of torch.utils.checkpoint.checkpoint_sequential; 0 is no checkpointing.
Prints one JSON object a line: MB (10^6 bytes) live after a step, at the peak of a step, reserved by the allocator and
as the driver reports for the card, and milliseconds a step (median of the second half).
"""
import argparse
import gc
import json
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


class Concat(nn.ModuleList):
    def forward(self, x):
        return torch.cat([branch(x) for branch in self], 1)


def stack(args):
    layers, inputs = [nn.Flatten()], 4 * 8
    for _ in range(args.layers):
        layers += [nn.Linear(inputs, args.width), nn.ReLU()]
        inputs = args.width
    layers.append(nn.Linear(inputs, 1))
    return nn.Sequential(*layers), (1, 4, 8), 1


def cnn(args):
    height, width = (45, 43) if args.large else (19, 22)
    layers = []
    for inputs, outputs in [(20, 50), (50, 25), (25, 10)]:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
    features = 10 * height * width
    layers.append(nn.Flatten())
    if args.large:
        each = [nn.Linear(features, 29913) for _ in range(3)]
        layers.append(Concat([nn.Sequential(each[0], nn.Sigmoid()), each[1], each[2]]))
    else:
        layers.append(nn.Linear(features, 3258))
    return nn.Sequential(*layers), (20, height, width), 3 * 29913 if args.large else 3258


def measure(args, segments, micro):
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    dtype = torch.float16 if args.half else torch.float32
    with torch.device("cuda"):
        model, image, outputs = {"stack": stack, "cnn": cnn}[args.model](args)
        model = model.to(dtype)
        x = torch.rand(args.batch, *image, dtype=dtype)
        y = torch.rand(args.batch, outputs, dtype=dtype)
    if args.model == "stack":
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    seconds = []
    for _ in range(args.iters):
        torch.cuda.synchronize()
        start = time.time()
        for part, target in zip(x.split(micro), y.split(micro)):
            if segments:
                out = checkpoint_sequential(model, segments, part, use_reentrant=False)
            else:
                out = model(part)
            loss = F.mse_loss(out, target) * (len(part) / args.batch)
            loss.backward()
            del out, loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.time() - start)
    tail = sorted(seconds[args.iters // 2:])
    free, total = torch.cuda.mem_get_info()
    return {
        "live": torch.cuda.memory_allocated() / 1e6,
        "peak": torch.cuda.max_memory_allocated() / 1e6,
        "reserved": torch.cuda.max_memory_reserved() / 1e6,
        "smi": (total - free) / 1e6,
        "ms_per_step": tail[len(tail) // 2] * 1e3,
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model", choices=["stack", "cnn"])
    p.add_argument("--segments")
    p.add_argument("--micro")
    p.add_argument("--batch", type=int)
    p.add_argument("--width", type=int, default=864)
    p.add_argument("--layers", type=int, default=48)
    p.add_argument("--large", action="store_true")
    p.add_argument("--half", action="store_true")
    p.add_argument("--iters", type=int, default=10)
    p.add_argument("--limit", type=float, help="GB of the card that may be used, to stand for a smaller one")
    args = p.parse_args()
    args.batch = args.batch or (59392 if args.model == "stack" else 100)
    if args.limit:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(args.limit * 1e9 / total)
    segments = args.segments or ("0,2,4,8,10,16" if args.model == "stack" else "0,4")
    for micro in (args.micro or str(args.batch)).split(","):
        for count in segments.split(","):
            case = {"model": args.model, "large": args.large, "segments": int(count), "micro": int(micro),
                    "precision": "half" if args.half else "fp32"}
            try:
                result = {"status": "ok", **measure(args, int(count), int(micro))}
            except torch.OutOfMemoryError as error:
                result = {"status": "out_of_memory", "error": str(error).split(". ")[0]}
            peer = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
            print(json.dumps({**case, **result, **peer}), flush=True)


if __name__ == "__main__":
    main()
