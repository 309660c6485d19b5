"""Times every kernel of DenseNet-121's dense blocks in their order, forward and backward, as src/model/fused/block.rs launches them.

python dense.py [ELEMENT] [--batch N] [--size PIXELS] [--step MS] [--json FILE]; `python dense.py compile` needs no GPU.

For each kernel: launches in a step, their time, what the algorithm cannot do without moving, both together as a rate and as a share of
what a copy moves, the rate of arithmetic, and the share of the blocks' time (and of a step's, given with --step in milliseconds).
"""

import argparse
import json
import sys

import launch
from launch import FOLDER, microseconds, up

GEMM = "tiles channels gemm conv"
HEADERS = {
    "pack_weights": "tiles", "reduce_partials": "", "norm_affine": "", "channel_statistics": "tiles channels",
    "channel_norm": "tiles channels exchange channel_norm", "channel_sums": "norm_sums", "norm_apply": "tiles channels",
    "input_gradient": "tiles channels", "layer_forward": f"{GEMM} normed", "layer_weight": f"{GEMM} normed",
    "layer_backward": GEMM, "dense_pointwise_forward": "tiles channels exchange channel_norm hopper", "conv_forward": GEMM, "conv_backward_input": GEMM, "conv_backward_weight": GEMM,
    "dense_conv_backward": "tiles channels hopper", "dense_pointwise_backward": "tiles channels hopper", "dense_pointwise_finish": "norm_sums",
    "dense_conv_weight": "tiles channels hopper", "dense_conv_weight_sum": "norm_sums",
}
MACROS = {
    "dense_pointwise_forward": [dict(GROUPS_M=2, GROUPS_N=1), dict(GROUPS_M=1, GROUPS_N=2)],
    "layer_forward": [dict(TILE_N=128)], "layer_backward": [dict(TILE_N=n) for n in (64, 128)],
    "layer_weight": [dict(TILE_M=128, TILE_N=n) for n in (64, 128)], "conv_forward": [dict(CHUNKED=1, TILE_M=128, TILE_N=n) for n in (32, 64)],
    "conv_backward_input": [dict(CHUNKED=1, TILE_M=128, TILE_N=128)], "conv_backward_weight": [dict(CHUNKED=1, TILE_M=m, TILE_N=128) for m in (32, 64)],
}
SHARED = {
    "dense_pointwise_forward": 232448, "dense_conv_backward": 223072, "dense_pointwise_backward": 229488, "dense_conv_weight": 107616,
}
GROWTH, MIDDLE, EPS = 32, 128, 1e-5
LAYERS, STEM = [6, 12, 24, 16], 64


def variants(element):
    for name, headers in HEADERS.items():
        if "hopper" in headers and element not in ("bf16", "f16"):
            continue
        for macros in MACROS.get(name, [{}]):
            if element in ("bf16", "f16") and 32 in macros.values():  # Hopper has none of 2-byte elements
                continue
            base = (("ELEMENT", element),) if "tiles" in headers else ()
            yield name, tuple(headers.split()), base + tuple(macros.items())


def tile(columns):
    return 64 if columns <= 64 else 128


def output_tile(channels, size):
    """Of a convolution's output of elements of `size` bytes."""
    return 32 if channels <= 32 and size == 4 else tile(channels)


def split(pixels, channels):
    """Blocks of each range of 128 channels in `dense_pointwise_backward`, and of the last one where it has fewer."""
    tiles, whole, rest = up(pixels, 64), channels // 128, channels % 128
    cost = lambda width: 2 * MIDDLE + 3 * width
    even = lambda most: up(tiles, up(tiles, min(max(most, 1), tiles)))
    splits = SMS * cost(128) // (whole * cost(128) + (cost(rest) if rest else 0))
    return even(splits) if whole else 0, even(SMS - whole * splits) if rest else 0


class Blocks:
    """Launches with a log of what each is and must move and multiply."""

    def __init__(self, element, kernels, dtype):
        self.element, self.kernels, self.dtype, self.log = element, kernels, dtype, []
        self.size, self.rooms = dtype.itemsize, {}
        self.vector = 16 // self.size

    def go(self, name, grid, block, pointers, numbers, moved, products=0, **macros):
        key = ((("ELEMENT", self.element),) if "tiles" in HEADERS[name] else ()) + tuple(macros.items())
        self.log.append((name, moved, 2 * products))
        self.kernels[(name, key)](grid, block, pointers, numbers)

    def room(self, tag, *shape, dtype=None):
        key = (tag, shape)
        if key not in self.rooms:
            self.rooms[key] = torch.zeros(*shape, dtype=dtype or self.dtype, device="cuda")
        return self.rooms[key]

    def floats(self, tag, *shape):
        return self.room(tag, *shape, dtype=torch.float32)

    def pack(self, weights):
        """Both forms of each weight, by one launch."""
        table, target, source, blocks, views = [], 0, 0, 0, []
        for w in weights:
            o, i, kh, kw = w.shape
            for mode in (0, 4 if self.size == 2 and kh == 3 else 1):
                row = up(kh * kw * (o if mode else i), 4 * self.vector) * 4 * self.vector
                rows = i if mode else o
                table.append([source, target, mode, o, i, kh * kw, row, blocks])
                views.append((target, rows, row))
                target, blocks = target + up(rows * row, 8) * 8, blocks + up(rows * row, 256)
            source += w.numel()
        flat, packed = torch.cat([w.reshape(-1) for w in weights]), self.room("packed", target)
        table = torch.tensor(table, dtype=torch.int32, device="cuda")
        self.go("pack_weights", blocks, 256, [flat, packed, table], [len(views), 0], source * 4 + target * self.size)
        self.kept = (flat, table)  # the launch has not run yet
        return [packed[t : t + r * row].view(r, row) for t, r, row in views]

    def splits(self, pixels, tiles):
        per = 32 * up(pixels, 32 * max(1, 2 * SMS // tiles))
        return up(pixels, per), per

    def streaming(self, pixels, channels):
        return min(up(pixels, 32), 8 * SMS), up(channels, 8 * self.vector)

    def norm_apply(self, x, affine, y):
        p, c = y.shape
        self.go("norm_apply", self.streaming(p, c), 256, [x, *affine, x, y], [p, c, x.stride(0), x.stride(0), y.stride(0), 2],
                2 * p * c * self.size)

    def input_gradient(self, s, x, moments, sums):
        p, c = x.shape
        self.go("input_gradient", self.streaming(p, c), 256, [s, x, *moments, *sums, s],
                [p, c, s.stride(0), x.stride(0), s.stride(0), 1.0 / p, 0], 3 * p * c * self.size)

    def pointwise_forward(self, x, affine, weight, z, part):
        """The 1×1 convolution of the first channels of x; returns the rows of its partial results."""
        c, (p, m) = affine[0].numel(), z.shape
        moved = p * (c + m) * self.size
        if self.size == 4:
            rows = up(p, 128)
            self.go("layer_forward", rows * up(m, tile(m)), 256, [x, *affine, weight, z, part], [p, c, m, x.stride(0), m, weight.stride(0), 1, 0],
                    moved, p * c * m, TILE_N=tile(m))
            return rows
        groups = (1, 2) if p <= 64 * SMS else (2, 1)
        pixels = up(p, SMS * up(p, 64 * groups[0] * SMS))
        rows = min(up(p, pixels), SMS)
        # Weights in mode 0 where the program has mode 3: the same work on other numbers.
        self.go("dense_pointwise_forward", rows, 384, [x, weight, z, part, *[part] * 6, *affine, *[part] * 2],
                [p, c, x.stride(0), m, pixels, 1, *[0] * 6], moved, p * c * m, GROUPS_M=groups[0], GROUPS_N=groups[1])
        return rows

    def channel_norm(self, part, rows, written, moments, norm, affine):
        c = norm[0].numel()
        self.go("channel_norm", up(written, 8) + up(c - written, 512), 512, [part, *moments, *norm, *affine, *affine],
                [rows, written, c, 0, EPS, 1.0], rows * written * 8)

    def channel_sums(self, part, rows, norm, sums, accumulate):
        c = norm[0].numel()
        gradients = self.floats("dgamma", c), self.floats("dbeta", c)
        self.go("channel_sums", up(c, 8), 1024, [part, norm[0], *gradients, *sums], [rows, c, accumulate, 0], rows * c * 8)

    def pointwise_backward(self, s, z, of_z, packed, x, norm, out, part, sums):
        """The 1×1 convolution's backward pass from S of z, on Hopper."""
        p, c = z.shape[0], packed.shape[0]
        splits, last = split(p, c)
        blocks = c // 128 * splits + last
        work = self.floats("parts", blocks * 128 * 128)
        self.go("dense_pointwise_backward", blocks, 512, [s, z, *of_z, packed, x, *norm, out, work, part],
                [p, c, MIDDLE, MIDDLE, x.stride(0), out.stride(0), packed.stride(0), splits, last, 1.0 / p], p * (2 * MIDDLE + 3 * c) * self.size,
                2 * p * c * MIDDLE)
        gradients = self.floats("dw", MIDDLE * c), self.floats("dgamma", c), self.floats("dbeta", c)
        self.go("dense_pointwise_finish", c + up(c, 8), 256, [work, gradients[0], part, norm[4], *gradients[1:], *sums],
                [c, splits, last, 1, 1, 0], blocks * 128 * 128 * 4)

    def reduce(self, work, splits, o, i, taps):
        out = self.floats("dw", o * i * taps)
        self.go("reduce_partials", up(o * i * taps, 256), 256, [work, out], [splits, o, i, taps, 0, 0], (splits + 1) * o * i * taps * 4)

    def spatial_weight(self, z, affine, dy, batch, side, part, parts, norm, missing):
        """The weight's gradient, and what `dense_conv_backward` left of the norm put together."""
        tiles = lambda rows: batch * up(side, 8) * up(side, rows)
        splits = min(SMS // 2, tiles(10))
        rows = min(range(10, 0, -2), key=lambda rows: up(tiles(rows), splits) * (min(rows, side + 1) // 2 + 1))
        p, m, k, work = z.shape[0], MIDDLE, GROWTH, self.floats("work", splits * 9 * MIDDLE * GROWTH)
        self.go("dense_conv_weight", 2 * splits, 512, [z, *affine, dy, work], [batch, side, side, z.stride(0), dy.stride(0), rows],
                p * (m + k) * self.size, 9 * p * m * k)
        gradients = self.floats("dgamma", m), self.floats("dbeta", m)
        self.go("dense_conv_weight_sum", 144 + 32, 128, [work, self.floats("dw", 9 * m * k), part, norm[0], *gradients, *missing],
                [splits, parts, 0, 0], (splits + 1) * 9 * m * k * 4)

    def block(self, batch, side, first, layers, every=False):
        """A dense block's training step over `batch` images of `side` by `side`, `first` channels in. `every`: kernels besides."""
        p, c_all, e, m, k = batch * side * side, first + layers * GROWTH, self.size, MIDDLE, GROWTH
        rows = up(p, 128)
        f = self.floats
        random = lambda tag, *shape: self.room(tag, *shape) if (tag, shape) in self.rooms else self.room(tag, *shape).normal_()
        norm = lambda c: (f("gamma", c).fill_(1.0), f("beta", c).fill_(0.1))
        X, S = random("X", p, c_all), random("S", p, c_all)
        moments = [f("mean", c_all), f("var", c_all).fill_(1.0), f("rstd", c_all).fill_(1.0)]
        sums = [f("s1", c_all), f("s2", c_all)]
        between, missing = [f(f"between{i}", m).fill_(1.0) for i in range(3)], [f("t1", m), f("t2", m)]
        norms = {c: norm(c) for c in [m] + [first + l * k for l in range(layers + 1)]}
        torch.cuda.synchronize()
        self.log = []
        weights = [w for l in range(layers) for w in (f("w1", m, first + l * k, 1, 1).normal_(), f("w2", k, m, 3, 3).normal_())]
        packed = self.pack(weights)
        conv = lambda i, o, size, ld_x, ld_y: [batch, side, side, i, side, side, o, size, size, 1, 1, size // 2, size // 2, ld_x, ld_y, 0]
        affine = lambda tag, c: (f(f"scale{tag}", c), f(f"shift{tag}", c))
        self.go("norm_affine", up(first, 256), 256, [*moments[:2], *norms[first], *affine(0, first), *affine(0, first)],
                [first, 0, EPS, 0.1, 1.0, 0], 6 * first * 4)
        Z = [self.room(f"Z{l}", p, m) for l in range(layers)]
        A = self.room("A", p, m)
        for l in range(layers):
            c = first + l * k
            w1, w2, part = packed[4 * l], packed[4 * l + 2], f("part", rows * (2 * max(m, c_all) + 1))
            left = self.pointwise_forward(X, affine(l, c), w1, Z[l], part)
            self.channel_norm(part, left, m, between, norms[m], affine("m", m))
            self.norm_apply(Z[l], affine("m", m), A)
            self.go("conv_forward", rows, 256, [A, w2, X[:, c:], part], conv(m, k, 3, m, c_all) + [w2.stride(0), 1], p * (m + k) * e,
                    9 * p * m * k, CHUNKED=1, TILE_M=128, TILE_N=output_tile(k, e))
            if l + 1 < layers:
                self.channel_norm(part, rows, k, moments, norms[c + k], affine(l + 1, c + k))
            else:
                self.go("channel_statistics", up(k, 8), 1024, [part] + [t[c:] for t in moments], [rows, k, EPS, 0], rows * k * 8)
        for l in reversed(range(layers)):
            c = first + l * k
            b1, b2, part = packed[4 * l + 1], packed[4 * l + 3], f("part", rows * (2 * max(m, c_all) + 1))
            dY, new = S[:, c : c + k], slice(c, c + k)
            of_new, B = ((moments[0][new], moments[2][new]), [t[new] for t in sums]), A
            if e == 2:
                made, B = self.room("dY", p, k), self.room("B", p, m)
                parts = min(batch * up(side, 8) ** 2, SMS)
                pointers = [dY, X[:, new], *of_new[0], *of_new[1], b2, Z[l], between[0], between[2], *affine("m", m), norms[m][0], made, B, part]
                self.go("dense_conv_backward", parts, 384, pointers, [batch, side, side, c_all, c_all, k, 1.0 / p, 0],
                        p * (2 * m + 3 * k) * e, 9 * p * m * k)
                dY = made
            else:
                self.input_gradient(dY, X[:, new], *of_new)
            if e == 2:
                self.spatial_weight(Z[l], affine("m", m), dY, batch, side, part, parts, norms[m], missing)
            else:
                self.norm_apply(Z[l], affine("m", m), A)
                tiles = up(k, 64) * up(9 * m, 128)
                splits, per = self.splits(p, tiles)
                work = f("work", splits * k * m * 9)
                self.go("conv_backward_weight", (tiles, splits), 256, [A, dY, work], conv(m, k, 3, m, dY.stride(0)) + [per, 0], p * (m + k) * e,
                        9 * p * m * k, CHUNKED=1, TILE_M=output_tile(k, e), TILE_N=128)
                self.reduce(work, splits, k, m, 9)
            if every:
                self.go("conv_backward_input", rows, 256, [dY, b2, A], conv(m, k, 3, m, dY.stride(0)) + [b2.stride(0), rows], p * (m + k) * e,
                        9 * p * m * k, CHUNKED=1, TILE_M=128, TILE_N=128)
            if e != 2:
                pointers = [dY, b2, Z[l], between[0], between[2], *affine("m", m), norms[m][0], A, part]
                self.go("layer_backward", rows, 256, pointers, conv(m, k, 3, m, c_all) + [b2.stride(0), m, 0, 0], p * (2 * m + k) * e,
                        9 * p * m * k, TILE_N=tile(m))
                self.log[-1] = ("layer_backward 3x3", *self.log[-1][1:])
                self.channel_sums(part, rows, norms[m], missing, 0)
            if e == 2:
                self.pointwise_backward(B, Z[l], (between[0], between[2], *missing), b1, X, (moments[0], moments[2], *affine(l, c), norms[c][0]),
                                        S, part, sums)
                continue
            self.input_gradient(B, Z[l], (between[0], between[2]), missing)
            tiles = up(c, tile(c))
            splits, per = self.splits(p, tiles)
            work = f("work", splits * m * c)
            self.go("layer_weight", (tiles, splits), 256, [X, *affine(l, c), B, work], [p, c, m, c_all, m, per], p * (m + c) * e,
                    p * c * m, TILE_M=128, TILE_N=tile(c))
            self.reduce(work, splits, m, c, 1)
            self.go("layer_backward", rows * up(c, tile(c)), 256,
                    [B, b1, X, moments[0], moments[2], *affine(l, c), norms[c][0], S, part],
                    conv(c, m, 1, c_all, m) + [b1.stride(0), c_all, 1, 0], p * (m + 3 * c) * e, p * c * m, TILE_N=tile(c))
            self.log[-1] = ("layer_backward 1x1", *self.log[-1][1:])
            self.channel_sums(part, rows, norms[c], sums, 1)
        self.input_gradient(S[:, :first], X[:, :first], (moments[0], moments[2]), sums)


def spent(run, log, repeats=5):
    """The median time of each launch in microseconds, in the order of `log`, as the profiler sees it."""
    from torch.profiler import ProfilerActivity, profile

    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(repeats):
            run()
        torch.cuda.synchronize()
    names = {name.split(" ")[0] for name, _, _ in log()}
    events = sorted((event for event in seen.events() if event.name in names), key=lambda event: event.time_range.start)
    expected = [name.split(" ")[0] for name, _, _ in log()]
    if [event.name for event in events] != expected * repeats:
        sys.exit(f"the profiler saw {len(events)} launches of {len(expected) * repeats}, or in another order")
    times = [event.time_range.elapsed_us() for event in events]
    return [sorted(times[i :: len(expected)])[repeats // 2] for i in range(len(expected))]


def copy_rate():
    """Bytes a second that a copy reads and writes."""
    source = torch.empty(100_000_000, dtype=torch.bfloat16, device="cuda").normal_()
    target = torch.empty_like(source)
    seconds = microseconds(lambda _: target.copy_(source), graph=False) / 1e6
    return 2 * source.numel() * 2 / seconds


def add(rows, log, times):
    for (name, moved, operations), time in zip(log, times):
        row = rows.setdefault(name, [0, 0.0, 0, 0])
        row[0], row[1], row[2], row[3] = row[0] + 1, row[1] + time, row[2] + moved, row[3] + operations


def described(rows, copy, total, step):
    """A table's rows, the longest first."""
    for name, (count, time, moved, operations) in sorted(rows.items(), key=lambda row: -row[1][1]):
        row = dict(kernel=name, launches=count, us=round(time, 1), megabytes=round(moved / 1e6, 1),
                   terabytes_per_second=round(moved / time / 1e6, 3), share_of_copy=round(moved / time * 1e6 / copy, 3),
                   teraflops=round(operations / time / 1e6, 1), share_of_blocks=round(time / total, 4))
        if step:
            row["share_of_step"] = round(time / 1e3 / step, 4)
        yield row


def table(title, rows):
    print(f"\n{title}\n| kernel | launches | µs | MB | TB/s | of copy | TFLOP/s | of blocks | of step |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for r in rows:
        step = f"{100 * r['share_of_step']:.1f}%" if "share_of_step" in r else ""
        print(f"| `{r['kernel']}` | {r['launches']} | {r['us']:.0f} | {r['megabytes']:.0f} | {r['terabytes_per_second']:.2f} | "
              f"{100 * r['share_of_copy']:.0f}% | {r['teraflops']:.0f} | {100 * r['share_of_blocks']:.1f}% | {step} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("element", nargs="?", default="bf16", choices=["bf16", "f16", "tf32", "f32", "compile"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--step", type=float, help="milliseconds of a whole step, from `trainer bench`")
    parser.add_argument("--json", help="a file for the figures")
    given = parser.parse_args()
    if given.element == "compile":
        print(sum(len(launch.load(FOLDER, variants(element))) for element in ("bf16", "f16", "tf32", "f32")), "variants compiled")
        sys.exit()
    import torch

    SMS = torch.cuda.get_device_properties(0).multi_processor_count
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "tf32": torch.float32, "f32": torch.float32}[given.element]
    copy, kernels = copy_rate(), launch.load(FOLDER, variants(given.element), SHARED)
    device = torch.cuda.get_device_name(0)
    print(f"{device}, {given.element}, batch {given.batch}, {given.size}², a copy moves {copy / 1e12:.2f} TB/s")
    whole, besides, each, first = {}, {}, [], STEM
    for number, layers in enumerate(LAYERS):
        side, blocks = given.size // (4 << number), Blocks(given.element, kernels, dtype)
        rows = {}
        times = spent(lambda: blocks.block(given.batch, side, first, layers), lambda: blocks.log)
        add(rows, blocks.log, times), add(whole, blocks.log, times)
        extra = {}
        times = spent(lambda: blocks.block(given.batch, side, first, layers, every=True), lambda: blocks.log)
        add(extra, blocks.log, times)
        besides.setdefault("conv_backward_input", [0, 0.0, 0, 0])
        besides["conv_backward_input"] = [a + b for a, b in zip(besides["conv_backward_input"], extra["conv_backward_input"])]
        each.append((number, side, rows))
        first = (first + layers * GROWTH) // 2
        del blocks
        torch.cuda.empty_cache()
    total = sum(row[1] for row in whole.values())
    result = list(described(whole, copy, total, given.step))
    table(f"All four blocks: {total / 1e3:.2f} ms in {sum(r[0] for r in whole.values())} launches", result)
    unused = list(described(besides, copy, total, None))
    table("Of the same sizes, and no part of this step", unused)
    figures = dict(device=device, torch=torch.__version__, command=" ".join(["python"] + sys.argv), element=given.element,
                   batch=given.batch, size=given.size, copy_bytes_per_second=copy, step_ms=given.step, kernels=result, besides=unused, blocks=[])
    for number, side, rows in each:
        sum_of_block = sum(row[1] for row in rows.values())
        lines = list(described(rows, copy, total, given.step))
        table(f"Block {number + 1}, {side}²: {sum_of_block / 1e3:.2f} ms", lines)
        figures["blocks"].append(dict(block=number + 1, side=side, kernels=lines))
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
