"""Checks `dense_pointwise_forward` against PyTorch and times it beside `layer_forward`: python pointwise.py [ELEMENT]. Needs a Hopper card."""

import math
import sys

import launch
from launch import FOLDER, microseconds, up

ELEMENT = sys.argv[1] if len(sys.argv) > 1 else "bf16"
SHAPES = [dict(GROUPS_M=2, GROUPS_N=1), dict(GROUPS_M=1, GROUPS_N=2)]
BASE = (("ELEMENT", ELEMENT),)
WANTED = [("dense_pointwise_forward", ("tiles", "channels", "exchange", "channel_norm", "hopper"), BASE + tuple(shape.items())) for shape in SHAPES]
WANTED.append(("layer_forward", ("tiles", "channels", "gemm", "conv", "normed"), BASE + (("TILE_N", 128),)))
KERNELS = launch.load(FOLDER, WANTED, dict(dense_pointwise_forward=232448))

import torch

torch.backends.cuda.matmul.allow_tf32 = False
DTYPE, UNIT = {"bf16": (torch.bfloat16, 2.0**-8), "f16": (torch.float16, 2.0**-11)}[ELEMENT]
SMS = torch.cuda.get_device_properties(0).multi_processor_count
OUT = 128
LINES = [(r & ~31) + (r & 6) * 4 + (r >> 2 & 6) + (r & 1) for r in range(OUT)]  # `tiled_line` of pack_weights.cu


class Layer:
    """Random maps and weights. What lies in a row beside the maps is NaN, and so is what is to be written."""

    def __init__(self, pixels, channels, ld, mean=0.0):
        random = torch.Generator(device="cuda").manual_seed(pixels * 7 + channels)
        normal = lambda *shape: torch.randn(*shape, device="cuda", generator=random)
        self.x = (normal(pixels, ld) + mean).to(DTYPE)
        self.x[:, channels:] = float("nan")
        self.scale, self.shift = normal(channels) * 0.3 + 1, normal(channels) * 0.5
        self.weight = torch.zeros(OUT, up(channels, 32) * 32, device="cuda", dtype=DTYPE)
        self.weight[:, :channels] = (normal(OUT, channels) / math.sqrt(channels)).to(DTYPE)
        self.tiled = self.weight[LINES].view(OUT, -1, 8).transpose(0, 1).contiguous()
        self.pixels, self.channels, self.ld = pixels, channels, ld

    def room(self, ld=OUT):
        nan = float("nan")
        return torch.full((self.pixels, ld), nan, device="cuda", dtype=DTYPE), torch.full((up(self.pixels, 128) * 257 + 132 * 257 + 256,), nan, device="cuda")

    def reference(self):
        rows = []
        for x in self.x[:, : self.channels].split(65536):
            normed = (x.double() * self.scale.double() + self.shift.double()).float().clamp_min(0).to(DTYPE)
            rows.append(normed.float() @ self.weight[:, : self.channels].float().t())
        return torch.cat(rows)

    def launch(self, z, part, statistics=1, shape=None, tile=None):
        """Returns the rows of partial results. `shape` and `tile` in place of what the program takes."""
        shape = shape or SHAPES[self.pixels <= 64 * SMS]
        tile = tile or up(self.pixels, SMS * up(self.pixels, SMS * 64 * shape["GROUPS_M"]))
        grid = min(SMS, up(self.pixels, tile))
        kernel = KERNELS[("dense_pointwise_forward", BASE + tuple(shape.items()))]
        none = [self.scale] * 6
        kernel(grid, 384, [self.x, self.tiled, z, part, *none, self.scale, self.shift, *none[:2]],
               [self.pixels, self.channels, self.ld, z.stride(0), tile, statistics, *[0] * 6])
        return grid

    def launch_general(self, z, part):
        numbers = [self.pixels, self.channels, OUT, self.ld, z.stride(0), self.weight.stride(0), 1, 0]
        KERNELS[("layer_forward", BASE + (("TILE_N", 128),))](up(self.pixels, 128), 256, [self.x, self.scale, self.shift, self.weight, z, part], numbers)


def combined(part, rows):
    """Count, mean and sum of squared deviations of each output."""
    parts, counts = part[: rows * 2 * OUT].view(rows, 2, OUT).double(), part[rows * 2 * OUT : rows * 257].double()[:, None]
    mean = (parts[:, 0] * counts).sum(0) / counts.sum()
    return counts.sum().item(), mean, parts[:, 1].sum(0) + (counts * (parts[:, 0] - mean) ** 2).sum(0)


def check(layer, ld=OUT, shape=None, tile=None):
    expected, (z, part) = layer.reference(), layer.room(ld)
    rows = layer.launch(z, part, 1, shape, tile)
    found = z[:, :OUT].float()
    error = ((found - expected).abs() / (expected.abs() * UNIT + expected.abs().max() * 1e-4)).max().item()  # 1/2: of a rounding
    count, mean, deviations = combined(part, rows)
    values = found.double()
    true = ((values - values.mean(0)) ** 2).sum(0)
    off = ((mean - values.mean(0)).abs() / (true / layer.pixels).sqrt().clamp_min(1e-9)).max().item() if layer.pixels > 1 else 0.0
    spread = ((deviations - true).abs() / true.clamp_min(1e-9)).max().item() if layer.pixels > 1 else 0.0
    good = error < 1.3 and count == layer.pixels and off < 1e-5 and spread < 1e-5 and bool(z[:, OUT:].isnan().all())
    for repeat in range(10):
        again, partial = layer.room(ld)
        layer.launch(again, partial, repeat < 9, shape, tile)
        good = good and torch.equal(again[:, :OUT], z[:, :OUT])
        good = good and (torch.equal(partial[: rows * 257], part[: rows * 257]) if repeat < 9 else bool(partial.isnan().all()))
    print(f"{'right' if good else 'WRONG'}: {layer.pixels} pixels, {layer.channels} of {layer.ld} channels, {rows} blocks: "
          f"error {error:.2f} units, mean {off:.0e}, deviations {spread:.0e}", flush=True)
    return good


if __name__ == "__main__":
    good = True
    for shape in SHAPES:
        for pixels, channels, ld in ((3 * 17 * 23, 96, 256), (1, 32, 64), (8 * 80 * 80, 224, 256), (64 * 20 * 20, 992, 1024), (2000, 1920, 1920)):
            good &= check(Layer(pixels, channels, ld), shape=shape)
        good &= check(Layer(5 * 9 * 33, 480, 512, mean=100.0), ld=256, shape=shape)
        good &= check(Layer(2000, 160, 256), shape=shape, tile=10)
    for side, ld, batch, widths in ((80, 256, 64, (64, 128, 224)), (40, 512, 64, (128, 288, 480)), (20, 1024, 64, (256, 608, 992)),
                                    (10, 1024, 64, (512, 768, 992)), (500, 256, 8, (128,))):
        for channels in widths:
            layers = [Layer(batch * side * side, channels, ld) for _ in range(2)]
            rooms = [layer.room() for layer in layers]
            new, old = (microseconds(lambda i: f(layers[i % 2], *rooms[i % 2]), 20) for f in (Layer.launch, Layer.launch_general))
            moved = layers[0].pixels * (channels + OUT) * 2
            print(f"{batch} of {side}², {channels} channels: {new:.1f} µs, {moved / new / 1e6:.2f} TB/s (`layer_forward` {old:.1f})", flush=True)
            del layers, rooms
            torch.cuda.empty_cache()
    sys.exit(not good)
