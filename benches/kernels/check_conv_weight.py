"""Compares `dense_conv_weight` with fp64 PyTorch on the same rounded inputs, with itself run again, and times it beside today's kernels.

python check_conv_weight.py [bf16|f16]; needs an H100. Every element of dw is compared; dw and the parts are NaN before.
"""

import sys

import launch
from launch import FOLDER, microseconds, up
import torch

GROWTH, MIDDLE, SHARED, WEIGHTS = 32, 128, 107616, 9 * 128 * 32
# Batch, height, width, row stride of z, row stride of dy, its first channel.
SHAPES = [(3, 17, 23, 128, 64, 32), (2, 1, 1, 128, 32, 0), (5, 9, 33, 136, 48, 8), (2, 80, 80, 128, 256, 224), (7, 10, 10, 128, 1024, 512),
          (1, 2, 500, 128, 64, 32), (64, 20, 20, 128, 128, 64), (9, 40, 40, 256, 512, 256)]
TIMED = [(64, 80, 80, 128, 256, 64), (64, 40, 40, 128, 512, 128), (64, 20, 20, 128, 1024, 256), (64, 10, 10, 128, 1024, 512),
         (8, 500, 500, 128, 256, 64)]


class Case:
    def __init__(self, shape, dtype):
        self.batch, self.height, self.width, ld_z, ld_dy, first = shape
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.pixels = self.batch * self.height * self.width
        random = lambda *size: torch.randn(*size, device="cuda")
        # Enough maps that none is still in the cache when its turn comes again.
        self.maps = [random(self.pixels, ld_z).to(dtype)[:, :MIDDLE] for _ in range(max(1, min(40, up(150_000_000, self.pixels * ld_z * 2))))]
        self.dy = random(self.pixels, ld_dy).to(dtype)[:, first : first + GROWTH]
        self.scale, self.shift = 1 + 0.2 * random(MIDDLE), 1 + random(MIDDLE)
        self.scale[3] = -1
        self.dw = torch.empty(GROWTH, MIDDLE, 3, 3, device="cuda")
        tiles = lambda rows: self.batch * up(self.width, 8) * up(self.height, rows)
        self.splits = min(self.sms // 2, tiles(10))
        cost = lambda rows: up(tiles(rows), self.splits) * (min(rows, self.height + 1) // 2 + 1)
        self.rows = min(range(10, 0, -2), key=cost)
        self.per = 32 * up(self.pixels, 32 * max(1, 2 * self.sms // 9))
        self.parts = torch.empty(max(self.splits, up(self.pixels, self.per)) * WEIGHTS, device="cuda")
        self.normal = torch.empty(self.pixels, MIDDLE, device="cuda", dtype=dtype)

    def run(self, kernels, z, rows=None):
        sizes = [self.batch, self.height, self.width, z.stride(0), self.dy.stride(0), rows or self.rows]
        kernels["dense_conv_weight"](2 * self.splits, 512, [z, self.scale, self.shift, self.dy, self.parts], sizes)
        kernels["dense_conv_weight_sum"](144, 128, [self.parts, self.dw, *[self.dw] * 6], [self.splits, 0, 0, 0])

    def run_today(self, kernels, z):
        p, sides, splits = self.pixels, [self.height, self.width], up(self.pixels, self.per)
        strides = [z.stride(0), z.stride(0), MIDDLE]
        kernels["norm_apply"]((min(up(p, 32), 8 * self.sms), 2), 256, [z, self.scale, self.shift, z, self.normal], [p, MIDDLE, *strides, 2])
        conv = [self.batch, *sides, MIDDLE, *sides, GROWTH, 3, 3, 1, 1, 1, 1, MIDDLE, self.dy.stride(0), 0]
        kernels["conv_backward_weight"]((9, splits), 256, [self.normal, self.dy, self.parts], conv + [self.per, 0])
        kernels["reduce_partials"](144, 256, [self.parts, self.dw], [splits, GROWTH, MIDDLE, 9, 0, 0])

    def exact(self, z):
        """dw in fp64, of normalised values rounded as the kernels round them."""
        a = torch.relu(torch.addcmul(self.shift.double(), self.scale.double(), z.double()).float()).to(z.dtype).double()
        dy = self.dy.double().view(self.batch, self.height, self.width, GROWTH)
        dy, out = torch.nn.functional.pad(dy, (0, 0, 1, 1, 1, 1)), torch.empty(GROWTH, MIDDLE, 3, 3, dtype=torch.float64, device="cuda")
        for y in range(3):
            for x in range(3):
                out[:, :, y, x] = dy[:, 2 - y : 2 - y + self.height, 2 - x : 2 - x + self.width].reshape(-1, GROWTH).T @ a
        return out

    def check(self, kernels):
        z, worst, same = self.maps[0], 0.0, True
        exact = self.exact(z)
        for rows in {self.rows, 2, 4, 8, 10}:
            found = []
            for _ in range(3):
                self.dw.fill_(float("nan"))
                self.parts.fill_(float("nan"))
                self.run(kernels, z, rows)
                found.append(self.dw.clone())
            same = same and all(torch.equal(found[0].view(torch.int32), later.view(torch.int32)) for later in found[1:])
            error = ((found[0] - exact).abs().max() / exact.square().mean().sqrt()).item()
            worst = error if not error <= worst else worst
        right = worst <= 1e-4 and same  # a NaN is not
        print(f"{self.batch}x{self.height}x{self.width}: off by {worst:.1e} of the root mean square, rerun {'bit-equal' if same else 'DIFFERS'}")
        return right


if __name__ == "__main__":
    element = sys.argv[1] if len(sys.argv) > 1 else "bf16"
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[element]
    macros = (("ELEMENT", element),)
    wanted = [("dense_conv_weight", ("tiles", "channels", "hopper"), macros), ("dense_conv_weight_sum", ("norm_sums",), (("PER_IMAGE", 1),)),
              ("norm_apply", ("tiles", "channels"), macros), ("reduce_partials", (), ()),
              ("conv_backward_weight", ("tiles", "channels", "gemm", "conv"), macros + (("CHUNKED", 1), ("TILE_M", 64), ("TILE_N", 128)))]
    kernels = {name: kernel for (name, _), kernel in launch.load(FOLDER, wanted, {"dense_conv_weight": SHARED}).items()}
    torch.manual_seed(1)
    if not all([Case(shape, dtype).check(kernels) for shape in SHAPES]):
        sys.exit("not right")
    for shape in TIMED:
        case = Case(shape, dtype)
        maps, turns = case.maps, max(10, len(case.maps))
        ours = microseconds(lambda i: case.run(kernels, maps[i % len(maps)]), turns)
        today = microseconds(lambda i: case.run_today(kernels, maps[i % len(maps)]), turns)
        moved, products = case.pixels * (MIDDLE + GROWTH) * 2, case.pixels * WEIGHTS
        print(f"{shape[0]}x{shape[1]}x{shape[2]}: {ours:.1f} µs, {moved / ours / 1e6:.2f} TB/s, {2 * products / ours / 1e6:.0f} TFLOP/s; today {today:.1f} µs")
