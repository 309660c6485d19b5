"""Compares `dense_conv_backward` with fp64 PyTorch on the same rounded inputs, with itself run again, and times it beside `layer_backward`.

python check_conv_backward.py [bf16|f16]; needs an H100. Every element of S and every sum is compared; outputs are NaN before.
"""

import os
import sys

import launch
import torch

FOLDER = os.environ.get("KERNELS", os.path.join(os.path.dirname(__file__), "../../src/ops/gpu/kernels"))
GROWTH, MIDDLE, SHARED = 32, 128, 213360
# Batch, height, width, row stride of dy, its first channel.
SHAPES = [(3, 17, 23, 64, 32), (2, 1, 1, 32, 0), (5, 9, 33, 48, 8), (1, 8, 8, 32, 0), (2, 80, 80, 256, 224), (64, 20, 20, 128, 64)]
TIMED = [(64, 80, 80, 256, 64), (64, 40, 40, 512, 128), (64, 20, 20, 1024, 256), (64, 10, 10, 1024, 512), (8, 500, 500, 256, 64)]


def up(a, b):
    return -(-a // b)


def tiled(packed):
    """Mode 1 of `pack_weights` → mode 4."""
    lines = [(r & ~31) + (r & 6) * 4 + (r >> 2 & 6) + (r & 1) for r in range(MIDDLE)]
    return packed.view(MIDDLE, -1, 8)[lines].transpose(0, 1).contiguous()


class Case:
    def __init__(self, shape, dtype):
        self.batch, self.height, self.width, self.stride, self.first = shape
        self.pixels = self.batch * self.height * self.width
        random = lambda *size: torch.randn(*size, device="cuda")
        self.dy = random(self.pixels, self.stride).to(dtype)[:, self.first : self.first + GROWTH]
        self.z = (random(self.pixels, MIDDLE) * 1.5 + 0.7).to(dtype)
        self.weight = (random(GROWTH, MIDDLE, 3, 3) * 0.06).to(dtype)
        self.packed = self.weight.permute(1, 2, 3, 0).reshape(MIDDLE, -1).contiguous()
        self.mean, self.rstd, self.gamma = random(MIDDLE), random(MIDDLE).abs() + 0.5, random(MIDDLE)
        self.scale = self.gamma * self.rstd
        self.shift = random(MIDDLE) * 0.5 - self.mean * self.scale
        self.vectors = [self.mean, self.rstd, self.scale, self.shift, self.gamma]
        self.tiled, self.out = tiled(self.packed), torch.empty_like(self.z)
        patches = self.batch * up(self.height, 8) * up(self.width, 8)
        self.grid = min(patches, torch.cuda.get_device_properties(0).multi_processor_count)
        self.part = torch.empty(self.grid, 2, MIDDLE, device="cuda")
        self.part_today = torch.empty(up(self.pixels, 128), 2, MIDDLE, device="cuda")

    def run(self, kernels):
        kernels["dense_conv_backward"](self.grid, 384, [self.dy, self.tiled, self.z, *self.vectors, self.out, self.part],
                                       [self.batch, self.height, self.width, self.stride])

    def run_today(self, kernels):
        sides = [self.height, self.width]
        conv = [self.batch, *sides, MIDDLE, *sides, GROWTH, 3, 3, 1, 1, 1, 1, MIDDLE, self.stride, 0]
        kernels["layer_backward"](up(self.pixels, 128), 256, [self.dy, self.packed, self.z, *self.vectors, self.out, self.part_today],
                                  conv + [self.packed.stride(0), MIDDLE, 0, 0])

    def exact(self):
        """S, the sums and the sums of what is added, in fp64."""
        mean, rstd, scale, shift, gamma = (v.double() for v in self.vectors)
        dy = self.dy.double().view(self.batch, self.height, self.width, GROWTH)
        dy, z, weight = torch.nn.functional.pad(dy, (0, 0, 1, 1, 1, 1)), self.z.double(), self.weight.double()
        g = torch.zeros_like(z)
        for y in range(3):
            for x in range(3):
                g += dy[:, 2 - y : 2 - y + self.height, 2 - x : 2 - x + self.width].reshape(-1, GROWTH) @ weight[:, :, y, x]
        g = torch.where(z * scale + shift > 0, g, torch.zeros_like(g))
        both = torch.stack([g, g * (z - mean) * rstd])
        return g * gamma, both.sum(1), both.abs().sum(1)

    def check(self, kernels):
        bits = []
        for _ in range(4):
            self.out.fill_(float("nan"))
            self.part.fill_(float("nan"))
            self.run(kernels)
            torch.cuda.synchronize()
            bits.append((self.out.view(torch.int16).clone(), self.part.view(torch.int32).clone()))
        same = all(torch.equal(a, b) for later in bits[1:] for a, b in zip(bits[0], later))
        exact, sums, sizes = self.exact()
        ulp = torch.finfo(self.out.dtype).eps
        # Half a unit in the last place, and what fp32 sums may lose.
        error = ((self.out.double() - exact).abs() / (ulp * exact.abs() + 1e-5 * exact.abs().max() + 1e-30)).max().item()
        off = ((self.part.double().sum(0) - sums).abs() / (sizes + 1e-30)).max().item()
        right = error <= 0.55 and off <= 4e-6 and same  # a NaN is none of these
        print(f"{self.batch}x{self.height}x{self.width}: S off by {error:.3f} ulp, sums by {off:.1e}, rerun {'bit-equal' if same else 'DIFFERS'}")
        return right


def microseconds(run):
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            run()
    times = []
    for _ in range(7):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 100)
    return sorted(times)[3]


if __name__ == "__main__":
    element = sys.argv[1] if len(sys.argv) > 1 else "bf16"
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[element]
    macros = (("ELEMENT", element),)
    wanted = [("dense_conv_backward", ("tiles", "channels", "hopper"), macros),
              ("layer_backward", ("tiles", "channels", "gemm", "conv"), macros + (("TILE_N", MIDDLE),))]
    kernels = {name: kernel for (name, _), kernel in launch.load(FOLDER, wanted, {"dense_conv_backward": SHARED}).items()}
    torch.manual_seed(1)
    if not all([Case(shape, dtype).check(kernels) for shape in SHAPES]):
        sys.exit("not right")
    for shape in TIMED:
        case = Case(shape, dtype)
        ours, today = microseconds(lambda: case.run(kernels)), microseconds(lambda: case.run_today(kernels))
        moved = case.pixels * (2 * MIDDLE + GROWTH) * 2
        print(f"{shape[0]}x{shape[1]}x{shape[2]}: {ours:.1f} µs, {moved / ours / 1e6:.2f} TB/s; `layer_backward` {today:.1f} µs")
