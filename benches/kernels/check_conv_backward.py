"""Compares `dense_conv_backward` with fp64 PyTorch on the same rounded inputs, with itself run again, and times it beside
`input_gradient` and `layer_backward`.

python check_conv_backward.py [bf16|f16]; needs an H100. Every element of dy and S and every sum is compared; outputs are NaN before.
"""

import sys

import launch
from launch import FOLDER, microseconds, up
import torch

GROWTH, MIDDLE, SHARED = 32, 128, 223072
# Batch, height, width, row stride of the block, the slice's first channel.
SHAPES = [(3, 17, 23, 64, 32), (2, 1, 1, 32, 0), (5, 9, 33, 48, 8), (1, 8, 8, 32, 0), (2, 80, 80, 256, 224), (64, 20, 20, 128, 64)]
TIMED = [(64, 80, 80, 256, 64), (64, 40, 40, 512, 128), (64, 20, 20, 1024, 256), (64, 10, 10, 1024, 512), (8, 500, 500, 256, 64)]


def tiled(packed):
    """Mode 1 of `pack_weights` → mode 4."""
    lines = [(r & ~31) + (r & 6) * 4 + (r >> 2 & 6) + (r & 1) for r in range(MIDDLE)]
    return packed.view(MIDDLE, -1, 8)[lines].transpose(0, 1).contiguous()


class Case:
    def __init__(self, shape, dtype):
        self.batch, self.height, self.width, self.stride, self.first = shape
        self.pixels = self.batch * self.height * self.width
        random = lambda *size: torch.randn(*size, device="cuda")
        slice_of = lambda: random(self.pixels, self.stride).to(dtype)[:, self.first : self.first + GROWTH]
        self.summed, self.x = slice_of(), slice_of()
        self.written = [random(GROWTH), random(GROWTH).abs() + 0.5, random(GROWTH) * self.pixels**0.5, random(GROWTH) * self.pixels**0.5]
        self.dy = torch.empty(self.pixels, GROWTH, dtype=dtype, device="cuda")
        self.z = (random(self.pixels, MIDDLE) * 1.5 + 0.7).to(dtype)
        self.weight = (random(GROWTH, MIDDLE, 3, 3) * 0.06).to(dtype)
        self.packed = self.weight.permute(1, 2, 3, 0).reshape(MIDDLE, -1).contiguous()
        self.mean, self.rstd, self.gamma = random(MIDDLE), random(MIDDLE).abs() + 0.5, random(MIDDLE)
        self.scale = self.gamma * self.rstd
        self.shift = random(MIDDLE) * 0.5 - self.mean * self.scale
        self.vectors = [self.mean, self.rstd, self.scale, self.shift, self.gamma]
        self.tiled, self.out = tiled(self.packed), torch.empty_like(self.z)
        patches = self.batch * up(self.height, 8) * up(self.width, 8)
        self.multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        self.grid = min(patches, self.multiprocessors)
        self.part = torch.empty(self.grid, 2, MIDDLE, device="cuda")
        self.part_today = torch.empty(up(self.pixels, 128), 2, MIDDLE, device="cuda")

    def run(self, kernels):
        kernels["dense_conv_backward"](self.grid, 384, [self.summed, self.x, *self.written, self.tiled, self.z, *self.vectors, self.dy, self.out, self.part],
                                       [self.batch, self.height, self.width, self.stride, self.stride, GROWTH, 1.0 / self.pixels, 0])

    def run_today(self, kernels):
        kernels["input_gradient"]((min(up(self.pixels, 32), 8 * self.multiprocessors), 1), 256,
                                  [self.summed, self.x, *self.written, self.dy],
                                  [self.pixels, GROWTH, self.stride, self.stride, GROWTH, 1.0 / self.pixels, 0])
        sides = [self.height, self.width]
        conv = [self.batch, *sides, MIDDLE, *sides, GROWTH, 3, 3, 1, 1, 1, 1, MIDDLE, GROWTH, 0]
        kernels["layer_backward"](up(self.pixels, 128), 256, [self.dy, self.packed, self.z, *self.vectors, self.out, self.part_today],
                                  conv + [self.packed.stride(0), MIDDLE, 0, 0])

    def exact(self):
        """dy, then what a kernel makes of dy as stored: S, the sums, and what each of both is made of without signs; in fp64."""
        mean, rstd, s1, s2 = (v.double() for v in self.written)
        dy = rstd * (self.summed.double() - s1 / self.pixels - (self.x.double() - mean) * rstd * s2 / self.pixels)
        mean, rstd, scale, shift, gamma = (v.double() for v in self.vectors)
        z = self.z.double()

        def convolved(dy, weight):
            dy = torch.nn.functional.pad(dy.view(self.batch, self.height, self.width, GROWTH), (0, 0, 1, 1, 1, 1))
            g = torch.zeros_like(z)
            for y in range(3):
                for x in range(3):
                    g += dy[:, 2 - y : 2 - y + self.height, 2 - x : 2 - x + self.width].reshape(-1, GROWTH) @ weight[:, :, y, x]
            return torch.where(z * scale + shift > 0, g, torch.zeros_like(g))

        rounded, weight = self.dy.double(), self.weight.double()
        g, size = convolved(rounded, weight), convolved(rounded.abs(), weight.abs())
        normal = (z - mean) * rstd
        sums, sizes = torch.stack([g, g * normal]).sum(1), torch.stack([size, size * normal.abs()]).sum(1)
        return dy, g * gamma, size * gamma.abs(), sums, sizes

    def check(self, kernels):
        bits = []
        for _ in range(4):
            for out in (self.dy, self.out, self.part):
                out.fill_(float("nan"))
            self.run(kernels)
            torch.cuda.synchronize()
            bits.append([out.view(torch.int16).clone() for out in (self.dy, self.out)] + [self.part.view(torch.int32).clone()])
        same = all(torch.equal(a, b) for later in bits[1:] for a, b in zip(bits[0], later))
        dy, S, size, sums, sizes = self.exact()
        ulp = torch.finfo(self.out.dtype).eps
        # Half a unit in the last place, and what fp32 loses of the terms: 288 of S, six of dy.
        units = lambda found, exact, terms: ((found.double() - exact).abs() / (ulp * exact.abs() + 4e-6 * terms + 1e-30)).max().item()
        errors = units(self.dy, dy, dy.abs().max()), units(self.out, S, size)
        off = ((self.part.double().sum(0) - sums).abs() / (sizes + 1e-30)).max().item()
        self.run_today(kernels)
        as_today = torch.equal(self.dy.view(torch.int16), bits[0][0])
        right = max(errors) <= 0.55 and off <= 1e-6 and same and as_today  # a NaN is none of these
        print(f"{self.batch}x{self.height}x{self.width}: dy off by {errors[0]:.3f} ulp ({'the bits' if as_today else 'NOT the bits'} of "
              f"`input_gradient`), S by {errors[1]:.3f}, sums by {off:.1e}, rerun {'bit-equal' if same else 'DIFFERS'}")
        return right


if __name__ == "__main__":
    element = sys.argv[1] if len(sys.argv) > 1 else "bf16"
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[element]
    macros = (("ELEMENT", element),)
    wanted = [("dense_conv_backward", ("tiles", "channels", "hopper"), macros),
              ("input_gradient", ("tiles", "channels"), macros),
              ("layer_backward", ("tiles", "channels", "gemm", "conv"), macros + (("TILE_N", MIDDLE),))]
    kernels = {name: kernel for (name, _), kernel in launch.load(FOLDER, wanted, {"dense_conv_backward": SHARED}).items()}
    torch.manual_seed(1)
    if not all([Case(shape, dtype).check(kernels) for shape in SHAPES]):
        sys.exit("not right")
    for shape in TIMED:
        case = Case(shape, dtype)
        ours, today = microseconds(lambda _: case.run(kernels)), microseconds(lambda _: case.run_today(kernels))
        moved = case.pixels * (2 * MIDDLE + 3 * GROWTH) * 2
        print(f"{shape[0]}x{shape[1]}x{shape[2]}: {ours:.1f} µs, {moved / ours / 1e6:.2f} TB/s; `input_gradient` and `layer_backward` {today:.1f} µs")
