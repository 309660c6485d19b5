"""Checks the convolutions on rings of stages against PyTorch in fp64, with themselves run again, and times them on ResNet-50's shapes.

python check_rings.py [check] [time] [bf16|f16]; needs an H100. Every element of the results is compared; they are NaN before. Times are for
two blocks a multiprocessor and for one; those of weights for 1, 2 and 4 blocks a multiprocessor, and of the sum of their splits.
"""

import contextlib
import io
import os
import sys
import time

import launch
import rest
import torch
import torch.nn.functional as F

up, random = rest.up, rest.random
ROWS = ("tiles", "channels", "gemm", "conv", "hopper", "swizzled", "ring")
COLUMNS = ("tiles", "channels", "gemm", "conv", "hopper", "swizzled", "ring_columns")
FORMS = {name: ROWS for name in ("hopper_conv_forward", "hopper_conv_backward_input", "hopper_layer_forward", "hopper_layer_backward")}
FORMS.update({name: COLUMNS for name in ("hopper_conv_weight", "hopper_layer_weight")})
words = sys.argv[1:] or ["check", "time"]
EL = "f16" if "f16" in words else "bf16"
BASE = (("ELEMENT", EL),)
VARIANTS = [dict(RING_BLOCKS=2), dict(RING_BLOCKS=1)]
begun = time.time()


def tile(columns):
    return 64 if columns <= 64 else 128


def bytes_of(name, macros):
    n = macros["TILE_N"]
    if FORMS[name] is COLUMNS:
        m = macros["TILE_M"]
        return 2048 + {256: 3, 192: 4, 128: 6}[m + n] * (m + n) * 128
    one = macros["RING_BLOCKS"] == 1
    stages = (8 if one else 4) if n == 64 else (6 if one else 3)
    return 3072 + stages * (16384 + n * 128) + (64 * n if name == "hopper_layer_backward" else 0)


def wanted():
    for name, headers in FORMS.items():
        for n in (64, 128):
            for more in ([dict(TILE_M=m) for m in (64, 128)] if headers is COLUMNS else VARIANTS):
                yield name, headers, BASE + (("TILE_N", n),) + tuple(more.items())
    yield "pack_weights", ("tiles",), BASE
    yield "reduce_partials", (), ()


kernels = launch.load(rest.FOLDER, list(wanted()))
for (name, key), kernel in kernels.items():
    if name in FORMS:
        kernel.shared = bytes_of(name, dict(key))
o = rest.Ours(EL, kernels)
print(f"compiled {len(kernels)} in {time.time() - begun:.1f} s", flush=True)


def go(name, n, more, grid, pointers, numbers):
    threads = 320 if FORMS[name] is COLUMNS else (384 if more["RING_BLOCKS"] == 1 else 320)
    kernels[(name, BASE + (("TILE_N", n),) + tuple(more.items()))](grid, threads, pointers, numbers)


def conv_forward(shape, x, packed, y, part, v):
    n, h, w, i, ho, wo, c = shape[:7]
    go("hopper_conv_forward", tile(c), v, up(n * ho * wo, 128) * up(c, tile(c)), [x, packed, y, part],
       o.conv(shape, x.stride(0), y.stride(0)) + [packed.stride(0), 1])


def conv_backward_input(shape, dy, packed, dx, added, v):
    n, h, w, i, ho, wo, c, kh, kw, sy, sx = shape[:11]
    classes = sum(up(n * max(0, up(h - cy, sy)) * max(0, up(w - cx, sx)), 128) for cy in range(sy) for cx in range(sx))
    go("hopper_conv_backward_input", tile(i), v, classes * up(i, tile(i)), [dy, packed, dx],
       o.conv(shape, dx.stride(0), dy.stride(0)) + [packed.stride(0), classes, added, 0])


def layer_forward(shape, x, scale, shift, packed, y, part, v):
    p, i, c = x.shape[0], shape[3], shape[6]
    go("hopper_layer_forward", tile(c), v, up(p, 128) * up(c, tile(c)), [x, scale, shift, packed, y, part],
       [p, i, c, x.stride(0), y.stride(0), packed.stride(0), 1, 0])


def layer_backward(shape, dy, packed, x, f, S, part, added, v):
    p, i = x.shape[0], shape[3]
    go("hopper_layer_backward", tile(i), v, up(p, 128) * up(i, tile(i)), [dy, packed, x, *f, S, part],
       o.conv(shape, x.stride(0), dy.stride(0)) + [packed.stride(0), S.stride(0), added, 0])


def cut(shape, blocks):
    n, h, w, i, ho, wo, c, k = shape[:8]
    m, wide, p = tile(c), tile(k * k * i), n * ho * wo
    tiles = up(c, m) * up(k * k * i, wide)
    per = 64 * up(p, 64 * max(1, blocks // tiles))
    return m, wide, tiles, up(p, per), per


def conv_weight(shape, x, dy, ws, cuts):
    m, wide, tiles, splits, per = cuts
    go("hopper_conv_weight", wide, dict(TILE_M=m), (tiles, splits), [x, dy, ws], o.conv(shape, x.stride(0), dy.stride(0)) + [per, 0])


def layer_weight(shape, x, scale, shift, dy, ws, cuts):
    m, wide, tiles, splits, per = cuts
    go("hopper_layer_weight", wide, dict(TILE_M=m), (tiles, splits), [x, scale, shift, dy, ws],
       [x.shape[0], shape[3], shape[6], x.stride(0), dy.stride(0), per])


def moments(part, rows, c):
    head, count = part[: rows * 2 * c].view(rows, 2, c).double(), part[rows * 2 * c :].double()
    mean = (head[:, 0] * count[:, None]).sum(0) / count.sum()
    return mean, (head[:, 1] + count[:, None] * (head[:, 0] - mean) ** 2).sum(0) / count.sum()


def check(*args):
    shape = rest.conv_shape(*args)
    n, h, w, i, ho, wo, c, k, _, s, _, pad, _ = shape
    L, p, q = rest.LIMIT[EL], n * h * w, n * ho * wo
    wide = random(p, i + 8, dtype=o.dtype)
    x, dy = wide[:, :i], random(q, c + 16, dtype=o.dtype)[:, :c]
    weight = random(c, i, k, k, scale=(i * k * k) ** -0.5)
    g1, g2 = o.pack([weight], 0)[0], o.pack([weight], 1)[0]
    w64, xi, dyi = weight.to(o.dtype).double(), rest.image_of(x, n, h, w), rest.image_of(dy, n, ho, wo)
    scale, shift, mean, gamma = random(i, shift=0.5), random(i), random(i), random(i)
    rstd = random(i).abs() + 0.5
    normal = torch.relu(torch.addcmul(shift, x.float(), scale)).to(o.dtype)
    mask = (torch.addcmul(shift.double(), x.double(), scale.double()) > 0).double()
    forward = rest.rows_of(F.conv2d(xi, w64, None, s, pad))
    normed = rest.rows_of(F.conv2d(rest.image_of(normal, n, h, w), w64, None, s, pad))
    back = rest.rows_of(torch.nn.grad.conv2d_input((n, i, h, w), w64, dyi, s, pad))
    g = back * mask
    sums = torch.stack([g.sum(0), (g * (x.double() - mean) * rstd).sum(0)])
    dw = torch.nn.grad.conv2d_weight(xi, (c, i, k, k), dyi, s, pad)
    dwn = torch.nn.grad.conv2d_weight(rest.image_of(normal, n, h, w), (c, i, k, k), dyi, s, pad)
    pointwise = k == 1 and s == 1
    for v in VARIANTS:
        label, outs = f"{args} {v}", []
        for _ in range(3):
            rows = up(q, 128)
            y, part = o.new(q, c + 24), o.part(rows, c)
            conv_forward(shape, x, g1, y[:, :c], part, v)
            dx, dx2 = o.new(p, i + 8), torch.ones(p, i, dtype=o.dtype, device="cuda")
            conv_backward_input(shape, dy, g2, dx[:, :i], 0, v)
            conv_backward_input(shape, dy, g2, dx2, 1, v)
            row = dict(y=y, part=part, dx=dx, dx2=dx2)
            if pointwise:
                row["z"], row["zpart"] = o.new(q, c + 24), o.part(rows, c)
                layer_forward(shape, x, scale, shift, g1, row["z"][:, :c], row["zpart"], v)
            if s == 1:
                rows = up(p, 128)
                row["S"], row["S2"] = o.new(p, i + 8), torch.ones(p, i, dtype=o.dtype, device="cuda")
                row["sums"], row["sums2"] = o.f(rows, 2, i), o.f(rows, 2, i)
                layer_backward(shape, dy, g2, x, (mean, rstd, scale, shift, gamma), row["S"][:, :i], row["sums"], 0, v)
                layer_backward(shape, dy, g2, x, (mean, rstd, scale, shift, gamma), row["S2"], row["sums2"], 1, v)
            if v is VARIANTS[0]:
                for blocks in (1, 40, 264):
                    cuts = cut(shape, blocks)
                    for name in ("w", "wn"):
                        if name == "wn" and not pointwise:
                            continue
                        ws, row[f"{name}{blocks}"] = o.f(cuts[3] * c * i * k * k), o.f(c, i, k, k)
                        if name == "w":
                            conv_weight(shape, x, dy, ws, cuts)
                        else:
                            layer_weight(shape, x, scale, shift, dy, ws, cuts)
                        o.reduce(ws, cuts[3], c, i, k * k, row[f"{name}{blocks}"])
            outs.append(row)
        for other in outs[1:]:
            for key in other:
                rest.same(f"{key} {label}", outs[0][key], other[key])
        a = outs[0]
        rest.expect(f"forward {label}", a["y"][:, :c], forward, L)
        rest.expect(f"input {label}", a["dx"][:, :i], back, L)
        rest.expect(f"added {label}", a["dx2"], back + 1, 2 * L)
        for y, part in (("y", "part"), ("z", "zpart")):
            if y in a:
                m, d = moments(a[part], up(q, 128), c)
                stored = a[y][:, :c].double()
                rest.expect(f"mean {label}", m, stored.mean(0), 1e-4)
                rest.expect(f"variance {label}", d + 1e-12, stored.var(0, unbiased=False) + 1e-12, 1e-4)
        if pointwise:
            rest.expect(f"layer_forward {label}", a["z"][:, :c], normed, L)
        if s == 1:
            rest.expect(f"layer_backward {label}", a["S"][:, :i], g * gamma, L)
            rest.expect(f"layer_backward+ {label}", a["S2"], g * gamma + 1, 2 * L)
            rest.expect(f"sums {label}", a["sums"].double().sum(0), sums, 1e-4)
            rest.expect(f"sums2 {label}", a["sums2"].double().sum(0), sums, 1e-4)
        for key in a:
            if key.startswith("wn"):
                rest.expect(f"layer_weight {label} {key}", a[key], dwn, 1e-4)
            elif key.startswith("w"):
                rest.expect(f"weight {label} {key}", a[key], dw, 5e-6)
        beyond = [a["y"][:, c:], a["dx"][:, i:]] + ([a["S"][:, i:]] if s == 1 else []) + ([a["z"][:, c:]] if pointwise else [])
        if not all(torch.isnan(t.float()).all() for t in beyond):
            rest.FAILURES.append(f"{label}: wrote beyond its channels")


def us(run):
    with contextlib.redirect_stdout(io.StringIO()):
        found = []
        rest.timed("", run, 0, found)
    return found[0][1]


# Side of the input, in, out, kernel, stride, place in the block, how many.
RESNET = [(56, 64, 64, 1, 1, "first", 1), (56, 256, 64, 1, 1, "first", 2), (56, 64, 64, 3, 1, "mid", 3), (56, 64, 256, 1, 1, "last", 3), (56, 64, 256, 1, 1, "proj", 1),
          (56, 256, 128, 1, 1, "first", 1), (28, 512, 128, 1, 1, "first", 3), (56, 128, 128, 3, 2, "mid", 1), (28, 128, 128, 3, 1, "mid", 3), (28, 128, 512, 1, 1, "last", 4), (56, 256, 512, 1, 2, "proj", 1),
          (28, 512, 256, 1, 1, "first", 1), (14, 1024, 256, 1, 1, "first", 5), (28, 256, 256, 3, 2, "mid", 1), (14, 256, 256, 3, 1, "mid", 5), (14, 256, 1024, 1, 1, "last", 6), (28, 512, 1024, 1, 2, "proj", 1),
          (14, 1024, 512, 1, 1, "first", 1), (7, 2048, 512, 1, 1, "first", 2), (14, 512, 512, 3, 2, "mid", 1), (7, 512, 512, 3, 1, "mid", 2), (7, 512, 2048, 1, 1, "last", 3), (14, 1024, 2048, 1, 2, "proj", 1)]


def measure(n=64):
    total = {}
    for side, i, c, k, s, role, count in RESNET:
        shape = rest.conv_shape(n, side, side, i, c, k, s, k // 2)
        _, h, w, _, ho, wo = shape[:6]
        p, q = n * h * w, n * ho * wo
        x, dy = random(p, i, dtype=o.dtype), random(q, c, dtype=o.dtype)
        weight = random(c, i, k, k, scale=(i * k * k) ** -0.5)
        g1, g2 = o.pack([weight], 0)[0], o.pack([weight], 1)[0]
        y, dx, part = torch.empty_like(dy), torch.zeros_like(x), o.part(up(max(p, q), 128), max(i, c))
        f = [torch.ones(i, device="cuda") for _ in range(5)]
        if role == "last":
            forward = [us(lambda: layer_forward(shape, x, f[0], f[1], g1, y, part, v)) for v in VARIANTS]
        else:
            forward = [us(lambda: conv_forward(shape, x, g1, y, part, v)) for v in VARIANTS]
        if role == "last" or (role == "mid" and s == 1):
            back = [us(lambda: layer_backward(shape, dy, g2, x, f, dx, part, 0, v)) for v in VARIANTS]
        else:
            back = [us(lambda: conv_backward_input(shape, dy, g2, dx, int(role == "first"), v)) for v in VARIANTS]
        cuts = [cut(shape, b) for b in (132, 264, 528)]
        ws, dw = o.f(max(a[3] for a in cuts) * c * i * k * k), o.f(c, i, k, k)
        sums = [us(lambda: o.reduce(ws, a[3], c, i, k * k, dw)) for a in cuts]
        if role == "last":
            weights = [us(lambda: layer_weight(shape, x, f[0], f[1], dy, ws, a)) for a in cuts]
        else:
            weights = [us(lambda: conv_weight(shape, x, dy, ws, a)) for a in cuts]
        for key, t in (("forward", min(forward)), ("input", min(back)), ("weight", min(a + b for a, b in zip(weights, sums))), ("again", min(forward) if k == 1 and role != "proj" else 0)):
            total[key] = total.get(key, 0) + count * t / 1e3
        text = lambda times: " ".join(f"{t:5.1f}" for t in times)
        print(f"{side:3d}² {i:4d}->{c:4d} {k}x{k}/{s} {role:5s} x{count}: forward {text(forward)}  input {text(back)}  weight {text(weights)} + {text(sums)} ({[a[3] for a in cuts]})", flush=True)
    print({k: round(t, 2) for k, t in total.items()}, round(sum(total.values()), 2), "ms")


if __name__ == "__main__":
    if "check" in words:
        for args in [(3, 17, 23, 64, 64, 3, 1, 1), (2, 9, 33, 128, 192, 3, 2, 1), (1, 1, 1, 64, 64, 1, 1, 0), (3, 13, 7, 256, 128, 1, 1, 0), (2, 15, 15, 192, 256, 1, 2, 0),
                     (4, 7, 7, 512, 64, 3, 1, 1), (3, 13, 7, 64, 192, 1, 1, 0), (2, 20, 20, 64, 128, 1, 1, 0), (1, 31, 9, 128, 64, 3, 2, 1), (2, 30, 30, 128, 256, 3, 1, 1)]:
            check(*args)
        torch.cuda.synchronize()
        print(f"{len(rest.FAILURES)} failures, {time.time() - begun:.1f} s;", ", ".join(f"{k} {v[0]:.1e}" for k, v in rest.WORST.items()), flush=True)
        for failure in rest.FAILURES[:12]:
            print("  ", failure)
    if "time" in words:
        measure()
    print("time", round(time.time() - begun, 1))
