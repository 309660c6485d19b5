"""A dense block's forward pass with the norms in front of its convolutions in launches of their own, and in the convolutions' kernels.

python norm_in_front.py: on a Hopper card, compares what both write (they add up in another order, and each layer makes the difference
larger), compares 100 reruns bit by bit, and times both, and the convolutions alone: one launch after another, and as a CUDA graph, which leaves the
host out.
"""

import torch

import launch
from launch import FOLDER, microseconds, up

SMS = torch.cuda.get_device_properties(0).multi_processor_count
BASE = (("ELEMENT", "bf16"),)
HEADERS = ("tiles", "channels", "exchange", "channel_norm", "hopper")
SHAPES = {64: (("GROUPS_M", 1), ("GROUPS_N", 2)), 128: (("GROUPS_M", 2), ("GROUPS_N", 1))}
WANTED = [("dense_pointwise_forward", HEADERS, BASE + shape) for shape in SHAPES.values()]
WANTED += [("dense_conv_forward", HEADERS, BASE), ("channel_norm", HEADERS[:4], BASE)]
KERNELS = launch.load(FOLDER, WANTED, dict(dense_pointwise_forward=232448, dense_conv_forward=169520))
GROWTH, MIDDLE, EPS = 32, 128, 1e-5


class Block:
    def __init__(self, batch, side, first, layers):
        self.batch, self.side, self.first, self.layers, self.pixels = batch, side, first, layers, batch * side * side
        torch.manual_seed(0)
        floats = lambda *shape: torch.zeros(*shape, device="cuda")
        all_channels = first + layers * GROWTH
        self.x = torch.randn(self.pixels, all_channels, device="cuda").bfloat16()
        self.z = torch.zeros(self.pixels, MIDDLE, device="cuda", dtype=torch.bfloat16)
        self.stats = [floats(all_channels), floats(all_channels), floats(all_channels)]
        self.between = [[floats(MIDDLE) for _ in range(3)] for _ in range(layers)]
        widths = [first + GROWTH * layer for layer in range(layers)]
        ones = lambda c: (1 + 0.1 * torch.randn(c, device="cuda"), 0.1 * torch.randn(c, device="cuda"))
        self.norms = [(ones(width), ones(MIDDLE)) for width in widths]
        self.affines = [((floats(width), floats(width)), (floats(MIDDLE), floats(MIDDLE))) for width in widths]
        self.weights = [(torch.randn(MIDDLE * up(width, 64) * 64, device="cuda").mul_(width**-0.5).bfloat16(),
                         torch.randn(9 * MIDDLE * GROWTH, device="cuda").mul_((9 * MIDDLE) ** -0.5).bfloat16()) for width in widths]
        self.parts = [floats(SMS * (2 * MIDDLE + 1) + 2 * MIDDLE) for _ in range(2)]
        start = self.x[:, :first].float()
        self.stats[0][:first], self.stats[1][:first] = start.mean(0), start.var(0, unbiased=False)
        self.stats[2][:first] = (self.stats[1][:first] + EPS).rsqrt()
        for (scale, shift), (gamma, beta) in [(self.affines[0][0], self.norms[0][0])]:
            scale.copy_(gamma * self.stats[2][:first])
            shift.copy_(beta - self.stats[0][:first] * scale)

    def norm(self, convolution, grid, block, pointers, numbers, part, rows, written, stats, norm, affine, front):
        """`convolution` with the norm before it: of `part`, with `rows` rows, or made already (0). `front`: whether in its kernel;
        None: neither."""
        channels = norm[0].numel()
        arrays = [part, *stats, *norm, *affine, *affine]
        own = [rows, written, channels, 0, EPS, 1.0]
        if rows and front is False:
            KERNELS[("channel_norm", BASE)](up(written, 8) + up(channels - written, 512), 512, arrays, own)
        convolution(grid, block, pointers + arrays, numbers + (own if front else [0] * 6))

    def forward(self, front):
        b, side, p = self.batch, self.side, self.pixels
        rows = 0
        for layer in range(self.layers):
            width = self.first + layer * GROWTH
            most = 128 if p > 64 * SMS else 64
            tile = up(p, SMS * up(p, SMS * most))
            grid = min(up(p, tile), SMS)
            self.norm(KERNELS[("dense_pointwise_forward", BASE + SHAPES[most])], grid, 384, [self.x, self.weights[layer][0], self.z, self.parts[0]],
                      [p, width, self.x.stride(0), MIDDLE, tile, 1], self.parts[1], rows, GROWTH, self.stats, self.norms[layer][0],
                      self.affines[layer][0], front)
            tiles = b * up(side, 8) * up(side, 16)
            self.norm(KERNELS[("dense_conv_forward", BASE)], min(tiles, SMS), 768, [self.z, self.weights[layer][1], self.x[:, width:], self.parts[1]],
                      [b, side, side, MIDDLE, self.x.stride(0), 0], self.parts[0], grid, MIDDLE, self.between[layer], self.norms[layer][1],
                      self.affines[layer][1], front)
            rows = min(tiles, SMS)

    def results(self):
        return [self.x.clone(), *[t.clone() for t in self.stats], *[t.clone() for pair in self.affines for affine in pair for t in affine]]


for batch, side, first, layers in [(64, 80, 64, 6), (64, 40, 128, 12), (64, 20, 256, 24), (64, 10, 512, 16), (8, 80, 64, 6), (8, 40, 128, 12),
                                   (8, 20, 256, 24), (8, 10, 512, 16), (1, 7, 512, 3), (3, 13, 96, 3)]:
    block = Block(batch, side, first, layers)
    block.forward(False)
    torch.cuda.synchronize()
    apart = block.results()
    for t in block.stats[:3]:
        t[first:].zero_()
    block.forward(True)
    torch.cuda.synchronize()
    front = block.results()
    worst = max(((a.float() - b.float()).abs().max() / a.float().abs().max()).item() for a, b in zip(apart[1:], front[1:]))
    maps = ((apart[0].float() - front[0].float()).norm() / apart[0].float().norm()).item()
    same = True
    for _ in range(100):
        block.forward(True)
        same = same and all(torch.equal(a, b) for a, b in zip(front, block.results()))
    run = [[microseconds(lambda _: block.forward(f), 5, graph) / layers for graph in (False, True)] for f in (False, True, None)]
    print(f"{batch} of {side}², {layers} layers: statistics differ {worst:.1e}, maps {maps:.1e}, 100 reruns {'equal' if same else 'DIFFER'};"
          f" graph, µs a layer: {run[0][1]:.1f} apart, {run[1][1]:.1f} in front, {run[2][1]:.1f} without;"
          f" launched: {run[0][0]:.1f}, {run[1][0]:.1f}, {run[2][0]:.1f}", flush=True)
