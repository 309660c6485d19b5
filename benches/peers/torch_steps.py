"""PyTorch's side of the comparison: training steps of a torchvision model on one batch that stays on the device.

usage: python torch_steps.py [--model densenet121] [--batch 64] [--size 320] [--modes f32,tf32-cl,amp-cl] [--memory-efficient] [--norm group] [--dropout 0.1] [--growth 20] [--compile] [--iters 30]

Prints one JSON object a mode: milliseconds (median of the second half), images/s, the most bytes allocated and reserved,
and the seconds from the start of this script to the end of the first step (`null` after the first mode). With `--device
cpu` also the milliseconds of CPU time (of all threads), and `peak` is by how much the process has grown since before
the model was made. `--model quickstart` is the network of configs/quickstart.toml.
A mode: f32, tf32 or amp (bf16), with -cl for channels_last.
"""
import time

STARTED = time.time()

import argparse
import json
import resource

import torch
import torch.nn.functional as F
import torchvision

LABELS = 14


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def model_of(args, extra):
    if args.growth:  # of DenseNet-121
        return torchvision.models.DenseNet(args.growth, (6, 12, 24, 16), 64, num_classes=LABELS, **extra), 3
    if args.model != "quickstart":
        return getattr(torchvision.models, args.model)(num_classes=LABELS, **extra), 3
    model = torchvision.models.DenseNet(12, (3, 3, 3), 16, num_classes=LABELS)
    model.features.conv0 = torch.nn.Conv2d(1, 16, 7, 2, 3, bias=False)
    return model, 1


def grouped(module):
    """Puts GroupNorm in place of each BatchNorm: the most groups, up to 32, that divide the channels into two or more each."""
    for name, child in module.named_children():
        if isinstance(child, torch.nn.BatchNorm2d):
            channels = child.num_features
            groups = next(g for g in range(32, 0, -1) if channels % g == 0 and (channels // g >= 2 or g == 1))
            setattr(module, name, torch.nn.GroupNorm(groups, channels))
        else:
            grouped(child)


def resident():
    """Bytes of the process now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def run(args, mode, started):
    on_gpu = args.device == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    torch.backends.cuda.matmul.allow_tf32 = mode != "f32"
    torch.backends.cudnn.allow_tf32 = mode != "f32"
    torch.backends.cudnn.benchmark = True
    extra = {"memory_efficient": True} if args.memory_efficient else {}
    if args.dropout:
        extra["drop_rate"] = args.dropout
    before = resident()
    model, channels = model_of(args, extra)
    if args.norm == "group":
        grouped(model)
    model = model.to(args.device)
    x = torch.randn(args.batch, channels, args.size, args.size, device=args.device)
    y = (torch.rand(args.batch, LABELS, device=args.device) < 0.3).float()
    if mode.endswith("-cl"):
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    if args.compile:
        model = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    seconds, cpu, first = [], [], None
    for _ in range(args.iters):
        wait(args.device)
        start, cpu_start = time.time(), time.process_time()
        with torch.autocast(args.device, torch.bfloat16, enabled=mode.startswith("amp")):
            logits = model(x)
        loss = F.binary_cross_entropy_with_logits(logits.float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        wait(args.device)
        seconds.append(time.time() - start)
        cpu.append(time.process_time() - cpu_start)
        first = first or (time.time() - started if started else None)
    tail = sorted(seconds[args.iters // 2:])
    median = tail[len(tail) // 2]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    cpu = sorted(cpu[args.iters // 2:])
    return {
        "ms": median * 1e3,
        "images_per_second": args.batch / median,
        "cpu_ms": None if on_gpu else cpu[len(cpu) // 2] * 1e3,
        "peak": torch.cuda.max_memory_allocated() if on_gpu else grown,
        "reserved": torch.cuda.max_memory_reserved() if on_gpu else None,
        "seconds_to_first_step": first,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="densenet121")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--modes", default="f32,tf32-cl,amp-cl")
    parser.add_argument("--memory-efficient", action="store_true")
    parser.add_argument("--norm", default="batch", help="batch or group")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--growth", type=int, help="DenseNet-121 with this instead of 32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--iters", type=int, default=30)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--threads", type=int, help="of the CPU")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    for index, mode in enumerate(args.modes.split(",")):
        try:
            row = run(args, mode, STARTED if index == 0 else None)
        except torch.OutOfMemoryError as error:
            reason = f"out of memory: {error}".split("\n")[0]
            row = {"ms": None, "images_per_second": None, "peak": None, "reserved": None, "error": reason}
        name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
        print(json.dumps({"torch": torch.__version__, "device": name, "model": args.model, "mode": mode, **row}), flush=True)


if __name__ == "__main__":
    main()
