"""Checks and times the kernels beside the dense layer against PyTorch in fp64: python rest.py [check] [quick] [large] [time] [resnet] [ELEMENT…].

`compile` compiles every variant and needs no GPU. KERNELS names the folder of the kernels.
"""

import math
import sys
import time

import launch
from launch import FOLDER, microseconds, up

HEADERS = {
    "channel_statistics": "tiles channels", "norm_affine": "", "channel_sums": "norm_sums",
    "input_gradient": "tiles channels", "norm_statistics": "tiles channels", "norm_apply": "tiles channels",
    "norm_backward_sums": "tiles channels", "norm_backward_apply": "tiles channels", "pack_weights": "tiles",
    "reduce_partials": "", "stem_forward": "tiles channels gemm stem", "stem_pool_forward": "tiles channels",
    "stem_backward": "tiles channels gemm stem", "stem_backward_finish": "",
    "transition_pool": "tiles channels pooled", "transition_backward_input": "tiles channels gemm conv pooled", "global_pool_forward": "tiles channels",
    "global_pool_backward": "tiles channels", "conv_forward": "tiles channels gemm conv",
    "conv_backward_input": "tiles channels gemm conv", "conv_backward_weight": "tiles channels gemm conv",
    "residual_forward": "tiles channels", "shortcut_backward": "tiles channels", "mean_backward": "tiles channels",
    "sums_of_squares": "parameters", "sgd_step": "parameters", "adam_step": "parameters",
}
ELEMENTS = ["bf16", "f16", "tf32", "f32"]


def variants(element):
    for name, headers in HEADERS.items():
        if "tiles" not in headers:
            yield name, tuple(headers.split()), ()
            continue
        base = (("ELEMENT", element),)
        more = [()]
        if name in ("stem_forward", "stem_backward"):
            more = [(("STEM_CHANNELS", c),) for c in (1, 3)]
        elif name.startswith("conv_"):
            narrow = (32,) if element in ("tf32", "f32") else ()  # Hopper has none of 2-byte elements
            more = [(("CHUNKED", c), ("TILE_N", n)) for c in (0, 1) for n in (narrow if name == "conv_forward" else ()) + (64, 128)]
            if name == "conv_backward_weight":
                more = [m + (("TILE_M", n),) for m in more for n in narrow + (64, 128)]
        elif name == "norm_backward_sums":
            more += [(("MASK", m),) for m in (4, 5, 6)]
        for m in more:
            yield name, tuple(headers.split()), base + m


if sys.argv[1:2] == ["compile"]:
    start = time.time()
    kernels = {}
    for el in sys.argv[2:] or ELEMENTS:
        kernels.update(launch.load(FOLDER, variants(el)))
    print(len(kernels), "variants compiled in", round(time.time() - start, 1), "s")
    sys.exit()

import torch
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
SMS = torch.cuda.get_device_properties(0).multi_processor_count
STORAGE = {"bf16": torch.bfloat16, "f16": torch.float16, "tf32": torch.float32, "f32": torch.float32}
# Relative error (‖out − ref‖/‖ref‖) allowed: rounding of the outputs, of the factors for tf32.
LIMIT = {"bf16": 4e-3, "f16": 6e-4, "tf32": 8e-4, "f32": 4e-6}


class Ours:
    """The kernels of one element type, launched as README-rest.md says."""

    def __init__(self, element, kernels):
        self.e, self.kernels, self.dtype = element, kernels, STORAGE[element]
        self.V = 16 // torch.empty(0, dtype=self.dtype).element_size()

    def k(self, name, **macros):
        key = () if "tiles" not in HEADERS[name] else (("ELEMENT", self.e),) + tuple(macros.items())
        return self.kernels[(name, key)]

    def new(self, *shape, dtype=None):
        dtype = dtype or self.dtype
        t = torch.empty(*shape, dtype=dtype, device="cuda")
        return t.fill_(float("nan")) if dtype.is_floating_point else t.fill_(-1 if dtype != torch.uint8 else 77)

    def f(self, *shape):
        return self.new(*shape, dtype=torch.float32)

    def part(self, rows, channels):
        return self.f(rows * (2 * channels + 1))

    def statistics(self, part, rows, channels, eps=1e-5):
        mean, var, rstd = self.f(channels), self.f(channels), self.f(channels)
        self.k("channel_statistics")(up(channels, 8), 1024, [part, mean, var, rstd], [rows, channels, float(eps), 0])
        return mean, var, rstd

    def affine(self, mean, var, gamma, beta, running=None, m=2):
        c = gamma.numel()
        scale, shift = self.f(c), self.f(c)
        rm, rv = running or (scale, scale)
        self.k("norm_affine")(up(c, 256), 256, [mean, var, gamma, beta, scale, shift, rm, rv],
                              [c, int(running is not None), 1e-5, 0.1, m / (m - 1.0), 0])
        return scale, shift

    def sums(self, part, rows, gamma, s=None):
        c = gamma.numel()
        out = [self.f(c), self.f(c)] + (list(s) if s else [self.f(c), self.f(c)])
        self.k("channel_sums")(up(c, 8), 1024, [part, gamma, *out], [rows, c, int(s is not None), 0])
        return out

    def input_gradient(self, S, X, c, mean, rstd, s1, s2, out):
        p = S.shape[0]
        self.k("input_gradient")((min(up(p, 32), 8 * SMS), up(c, 8 * self.V)), 256, [S, X, mean, rstd, s1, s2, out],
                                 [p, c, S.stride(0), X.stride(0), out.stride(0), 1.0 / p, 0])

    def pack(self, weights, mode):
        """weights: list of fp32 [out, in, kh, kw] → list of packed tensors, by one launch."""
        table, target, source, blocks, views = [], 0, 0, 0, []
        for w in weights:
            o, i, kh, kw = w.shape
            inner = o if mode == 1 else i
            row = 16 * up(7 * i, 2) if mode == 2 else up(kh * kw * inner, 4 * self.V) * 4 * self.V
            rows = i if mode == 1 else o
            table.append([source, target, mode, o, i, kh * kw, row, blocks])
            views.append((target, rows, row))
            source += w.numel()
            target += up(rows * row, 8) * 8
            blocks += up(rows * row, 256)
        flat = torch.cat([w.reshape(-1) for w in weights])
        packed = self.new(target)
        self.k("pack_weights")(blocks, 256, [flat, packed, torch.tensor(table, dtype=torch.int32, device="cuda")],
                               [len(weights), 0])
        return [packed[t : t + r * row].view(r, row) for t, r, row in views]

    def reduce(self, ws, splits, o, i, taps, dw):
        self.k("reduce_partials")(up(o * i * taps, 256), 256, [ws, dw], [splits, o, i, taps, 0, 0])

    # Stem
    def stem_forward(self, image, packed, c, z, part):
        n, ch, h, w = image.shape
        ho, wo = (h - 1) // 2 + 1, (w - 1) // 2 + 1
        tn = 64 if self.V == 8 else 32
        ty, tx = up(ho, 8), up(wo, 16)
        g = self.stem_rows(n, ho, wo)
        self.k("stem_forward", STEM_CHANNELS=ch)((g, up(c, tn)), 128, [image, packed, z, part],
            [n, h, w, ho, wo, c, z.stride(0), ty, tx, *image.stride(), 0])

    def stem_rows(self, n, ho, wo):
        return min(n * up(ho, 8) * up(wo, 16), 4 * SMS)

    def stem_pool(self, z, n, ho, wo, c, scale, shift, out, index, part):
        hp, wp = (ho - 1) // 2 + 1, (wo - 1) // 2 + 1
        g = self.pool_rows(n, hp, wp)
        self.k("stem_pool_forward")((g, up(c, 8 * self.V)), 256, [z, scale, shift, out, index, part],
                                    [n, ho, wo, hp, wp, c, z.stride(0), out.stride(0)])

    def pool_rows(self, n, hp, wp):
        return min(up(n * hp * up(wp, 4), 32), 8 * SMS)

    def stem_backward(self, image, z, mean, rstd, dpool, index, ws, gamma, dw, dgamma, dbeta):
        n, ch, h, w = image.shape
        ho, wo = (h - 1) // 2 + 1, (w - 1) // 2 + 1
        hp, wp, c = (ho - 1) // 2 + 1, (wo - 1) // 2 + 1, gamma.numel()
        ty, tx = up(ho, 4 if self.V == 8 else 2), up(wo, 16)
        g = min(n * ty * tx, SMS)
        self.k("stem_backward", STEM_CHANNELS=ch)((g, up(c, 64)), 384, [image, z, mean, rstd, dpool, index, ws],
            [n, h, w, ho, wo, hp, wp, c, z.stride(0), dpool.stride(0), ty, tx, *image.stride()])
        self.k("stem_backward_finish")(c, 1024, [ws, gamma, rstd, dw, dgamma, dbeta],
                                       [g, c, ch, 1.0 / (n * ho * wo), 0, 0])

    # Transition
    def transition_forward(self, X, n, h, w, c, scale, shift, packed, T, Y, k, part):
        q = n * (h // 2) * (w // 2)
        self.k("transition_pool")((min(up(q, 32), 8 * SMS), up(c, 8 * self.V)), 256, [X, scale, shift, T],
                                  [n, h, w, c, X.stride(0), T.stride(0)])
        self.conv_forward((1, 1, q, c, 1, q, k, 1, 1, 1, 1, 0, 0), T, packed, Y, part)

    def transition_backward_input(self, dY, k, packed, X, n, h, w, c, mean, rstd, scale, shift, gamma, S, T, part):
        q = n * (h // 2) * (w // 2)
        self.k("transition_backward_input")(up(q, 128) * up(c, 64), 256,
            [dY, packed, X, mean, rstd, scale, shift, gamma, S, T, part],
            [n, h, w, c, k, dY.stride(0), X.stride(0), S.stride(0), packed.stride(0), 1])

    def splits(self, tiles, pixels):
        want = max(1, 2 * SMS // tiles)
        per = 32 * up(pixels, 32 * want)
        return per, up(pixels, per)

    # Convolution. shape: (n, h, w, cin, ho, wo, cout, kh, kw, sy, sx, py, px)
    def conv(self, shape, ld_x, ld_y):
        return [*shape, ld_x, ld_y, 0]

    def tile(self, pixels, columns):
        """The tile's width. Narrow tiles to keep more multiprocessors busy were tried, and lose."""
        return 64 if columns <= 64 else 128

    def output_tile(self, channels):
        return 32 if channels <= 32 and self.V == 4 else 64 if channels <= 64 else 128

    def conv_forward(self, shape, x, packed, y, part=None, tn=None):
        n, h, w, i, ho, wo, o = shape[:7]
        chunked, tn = int(i % self.V == 0 and x.stride(0) % self.V == 0), tn or self.output_tile(o)
        self.k("conv_forward", CHUNKED=chunked, TILE_N=tn)(up(n * ho * wo, 128) * up(o, tn), 256,
            [x, packed, y, part if part is not None else y],
            self.conv(shape, x.stride(0), y.stride(0)) + [packed.stride(0), int(part is not None)])

    def conv_backward_input(self, shape, dy, packed, dx, tn=None, accumulate=0):
        n, h, w, i, ho, wo, o, kh, kw, sy, sx = shape[:11]
        chunked, tn = int(o % self.V == 0 and dy.stride(0) % self.V == 0), tn or self.tile(n * h * w, i)
        classes = sum(up(n * max(0, up(h - cy, sy)) * max(0, up(w - cx, sx)), 128) for cy in range(sy) for cx in range(sx))
        self.k("conv_backward_input", CHUNKED=chunked, TILE_N=tn)(classes * up(i, tn), 256, [dy, packed, dx],
            self.conv(shape, dx.stride(0), dy.stride(0)) + [packed.stride(0), classes, accumulate, 0])

    def conv_backward_weight(self, shape, x, dy, ws, dw):
        n, h, w, i, ho, wo, o, kh, kw = shape[:9]
        chunked = int(i % self.V == 0 and x.stride(0) % self.V == 0 and o % self.V == 0 and dy.stride(0) % self.V == 0)
        tm, tn, grid, per, splits = self.weight_grid(shape)
        self.k("conv_backward_weight", CHUNKED=chunked, TILE_N=tn, TILE_M=tm)(grid, 256, [x, dy, ws],
            self.conv(shape, x.stride(0), dy.stride(0)) + [per, 0])
        self.reduce(ws, splits, o, i, kh * kw, dw)

    def weight_grid(self, shape):
        n, h, w, i, ho, wo, o, kh, kw = shape[:9]
        tm, tn = self.output_tile(o), 64 if kh * kw * i <= 64 else 128
        tiles = up(o, tm) * up(kh * kw * i, tn)
        per, splits = self.splits(tiles, n * ho * wo)
        return tm, tn, (tiles, splits), per, splits


def error(out, ref):
    out, ref = out.double(), ref.double()
    scale = ref.norm().item()
    return (out - ref).norm().item() / (scale if scale > 0 else 1.0)


FAILURES = []
WORST = {}


def expect(label, out, ref, limit):
    e = error(out, ref)
    kind = label.split(" ")[0]
    WORST[kind] = max(WORST.get(kind, (0.0, limit)), (e, limit)) if e == e else (float("nan"), limit)
    if not e <= limit:
        FAILURES.append(f"{label}: {e:.2e} > {limit:.0e}")
        print("  FAIL", FAILURES[-1], flush=True)


def same(label, a, b):
    """Bits, NaNs included."""
    if not torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)):
        FAILURES.append(f"{label}: reruns differ")
        print("  FAIL", FAILURES[-1], flush=True)


def image_of(rows, n, h, w):  # [pixels, C] → NCHW fp64
    return rows.double().reshape(n, h, w, -1).permute(0, 3, 1, 2)


def rows_of(image):
    return image.permute(0, 2, 3, 1).reshape(-1, image.shape[1])


def random(*shape, dtype=torch.float32, scale=1.0, shift=0.0):
    return (torch.randn(*shape, device="cuda") * scale + shift).to(dtype)


def factor(o, t):
    """A tensor as the tensor cores see it: rounded to ELEMENT, as stored."""
    return t.to(o.dtype)


def check_stem(o, n, ch, h, w, c, channels_last=False, offset=0.0):
    ho, wo = (h - 1) // 2 + 1, (w - 1) // 2 + 1
    hp, wp = (ho - 1) // 2 + 1, (wo - 1) // 2 + 1
    label = f"{o.e} {n}x{ch}x{h}x{w}->{c}"
    image = random(n, ch, h, w, shift=offset)
    if channels_last:
        image = image.contiguous(memory_format=torch.channels_last)
    weight, gamma, beta = random(c, ch, 7, 7, scale=0.1), random(c, shift=0.5), random(c, scale=0.3)
    packed = o.pack([weight], 2)[0]
    rows, prow = o.stem_rows(n, ho, wo), o.pool_rows(n, hp, wp)
    ld, L = c + 24, LIMIT[o.e]

    def forward():
        z, part = o.new(n * ho * wo, c), o.part(rows, c)
        o.stem_forward(image, packed, c, z, part)
        mean, var, rstd = o.statistics(part, rows, c)
        running = torch.zeros(c, device="cuda"), torch.ones(c, device="cuda")
        scale, shift = o.affine(mean, var, gamma, beta, running, n * ho * wo)
        out, index, part2 = o.new(n * hp * wp, ld), o.new(n * hp * wp, c // 8, dtype=torch.int32), o.part(prow, c)
        o.stem_pool(z, n, ho, wo, c, scale, shift, out, index, part2)
        return z, mean, var, rstd, scale, shift, out, index, *o.statistics(part2, prow, c), *running

    a, b = forward(), forward()
    for i, (p, q) in enumerate(zip(a, b)):
        same(f"stem-forward-{i} {label}", p, q)
    z, mean, var, rstd, scale, shift, out, index, pmean, pvar, _, rm, rv = a
    i64, w64 = factor(o, image).double(), factor(o, weight).double()
    expect(f"stem_forward {label}", z, rows_of(F.conv2d(i64, w64, stride=2, padding=3)), L)
    z64 = z.double()
    expect(f"stem-mean {label}", mean, z64.mean(0), 2e-6 if offset else 1e-5)
    expect(f"stem-var {label}", var, z64.var(0, unbiased=False), 1e-5)
    expect(f"stem-running {label}", torch.cat([rm, rv]),
           torch.cat([0.1 * z64.mean(0), 0.9 + 0.1 * z64.var(0)]), 1e-5)
    zi = image_of(z, n, ho, wo).requires_grad_()
    g64, b64 = gamma.double(), beta.double()
    y = F.relu(F.batch_norm(zi, None, None, g64, b64, True))
    ref = F.max_pool2d(y, 3, 2, 1)
    expect(f"stem_pool {label}", out[:, :c], rows_of(ref.detach()), max(L, 2e-6))
    if not torch.isnan(out[:, c:].float()).all():
        FAILURES.append(f"stem_pool {label}: wrote beyond its channels")
    o64 = out[:, :c].double()
    expect(f"pool-mean {label}", pmean, o64.mean(0), 1e-5)
    expect(f"pool-var {label}", pvar, o64.var(0, unbiased=False), 1e-5)

    dpool = random(n * hp * wp, ld, dtype=o.dtype)
    G, k8 = SMS, 56 * ch

    def backward():
        ws, dw, dg, db = o.f(G * up(c, 64) * (129 * k8 + 128)), o.f(c, ch, 7, 7), o.f(c), o.f(c)
        o.stem_backward(image, z, mean, rstd, dpool, index, ws, gamma, dw, dg, db)
        return dw, dg, db

    a, b = backward(), backward()
    for i, (p, q) in enumerate(zip(a, b)):
        same(f"stem-backward-{i} {label}", p, q)
    g64 = g64.requires_grad_()
    b64 = b64.requires_grad_()
    y = F.max_pool2d(F.relu(F.batch_norm(zi, None, None, g64, b64, True)), 3, 2, 1)
    dz, dg, db = torch.autograd.grad(y, [zi, g64, b64], image_of(dpool[:, :c], n, hp, wp))
    dw = torch.nn.grad.conv2d_weight(i64, w64.shape, dz, stride=2, padding=3)
    # An image far from zero mean cancels: allow what rounding the gradient of z alone costs, as any other order of work must.
    rounded = error(torch.nn.grad.conv2d_weight(i64, w64.shape, factor(o, dz).double(), stride=2, padding=3), dw)
    expect(f"stem_dw {label}", a[0], dw, max(L, 1e-5, 1.5 * rounded))
    expect(f"stem_dgamma {label}", a[1], dg, max(L, 1e-5))
    expect(f"stem_dbeta {label}", a[2], db, max(L, 1e-5))


def check_transition(o, n, h, w, c, k):
    label, L = f"{o.e} {n}x{h}x{w}x{c}->{k}", LIMIT[o.e]
    P, Q, ld, ldy = n * h * w, n * (h // 2) * (w // 2), c + 32, k + 64
    X, weight = random(P, ld, dtype=o.dtype, shift=0.3), random(k, c, 1, 1, scale=c**-0.5)
    gamma, beta = random(c, shift=0.8, scale=0.4), random(c, scale=0.3)
    g1, g2 = o.pack([weight, weight], 0)[1], o.pack([weight], 1)[0]
    rows = up(Q, 128)
    dY = random(Q, ldy, dtype=o.dtype)
    mean = X[:, :c].double().mean(0).float()
    var = X[:, :c].double().var(0, unbiased=False).float()
    rstd = 1 / (var + 1e-5).sqrt()
    shape = (1, 1, Q, c, 1, Q, k, 1, 1, 1, 1, 0, 0)
    splits = o.weight_grid(shape)[4]

    def run():
        scale, shift = o.affine(mean, var, gamma, beta)
        T, Y, part = o.new(Q, c), o.new(Q, ldy), o.part(rows, k)
        o.transition_forward(X, n, h, w, c, scale, shift, g1, T, Y, k, part)
        m, v, _ = o.statistics(part, rows, k)
        S, T2, part2 = o.new(P, ld), o.new(Q, c), o.f(rows * 2 * c)
        o.transition_backward_input(dY, k, g2, X, n, h, w, c, mean, rstd, scale, shift, gamma, S, T2, part2)
        same(f"transition-T {label}", T, T2)
        dg, db, s1, s2 = o.sums(part2, rows, gamma)
        dX = o.new(P, ld)
        o.input_gradient(S, X, c, mean, rstd, s1, s2, dX)
        ws, dw = o.f(splits * k * c), o.f(k, c, 1, 1)
        o.conv_backward_weight(shape, T2, dY, ws, dw)
        return Y, m, v, S, dg, db, s1, s2, dX, dw

    a, b = run(), run()
    for i, (p, q) in enumerate(zip(a, b)):
        same(f"transition-{i} {label}", p, q)
    Y, m, v, S, dg, db, s1, s2, dX, dw = a
    Xi = image_of(X[:, :c], n, h, w).requires_grad_()
    g64, b64 = gamma.double().requires_grad_(), beta.double().requires_grad_()
    w64 = factor(o, weight).double().requires_grad_()
    T = F.avg_pool2d(F.relu(F.batch_norm(Xi, None, None, g64, b64, True)), 2)
    ref = F.conv2d(T, w64)
    rdx, rdg, rdb, rdw = torch.autograd.grad(ref, [Xi, g64, b64, w64], image_of(dY[:, :k], n, h // 2, w // 2))
    expect(f"transition_forward {label}", Y[:, :k], rows_of(ref.detach()), L)
    Y64 = Y[:, :k].double()
    expect(f"transition-mean {label}", m, Y64.mean(0), 1e-5)
    expect(f"transition-var {label}", v, Y64.var(0, unbiased=False), 1e-5)
    expect(f"transition_dgamma {label}", dg, rdg, L)
    expect(f"transition_dbeta {label}", db, rdb, L)
    expect(f"transition_dw {label}", dw, rdw, L)
    expect(f"transition_dx {label}", dX[:, :c], rows_of(rdx), 1.5 * L)
    expect(f"s1 {label}", s1, gamma.double() * db.double(), 1e-6)
    if not torch.isnan(S[:, c:].float()).all() or not torch.isnan(Y[:, k:].float()).all():
        FAILURES.append(f"transition {label}: wrote beyond its channels")


def check_global_pool(o, n, h, w, c):
    label, L = f"{o.e} {n}x{h}x{w}x{c}", LIMIT[o.e]
    P, ld = n * h * w, c + 8
    X, gamma, beta = random(P, ld, dtype=o.dtype, shift=0.3), random(c), random(c, scale=0.3)
    dF = random(n, c)
    x64 = X[:, :c].double()
    mean, var = x64.mean(0).float(), x64.var(0, unbiased=False).float()
    rstd = 1 / (var + 1e-5).sqrt()

    def run():
        scale, shift = o.affine(mean, var, gamma, beta)
        out = o.f(n, c)
        grid = up(c, 8 * o.V)
        o.k("global_pool_forward")((grid, n), 256, [X, scale, shift, out], [n, h * w, c, ld])
        S, part, dX = o.new(P, ld), o.f(n * 2 * c), o.new(P, ld)
        o.k("global_pool_backward")((n, grid), 256, [dF, X, mean, rstd, scale, shift, gamma, S, part], [n, h * w, c, ld, ld, 0])
        dg, db, s1, s2 = o.sums(part, n, gamma)
        o.input_gradient(S, X, c, mean, rstd, s1, s2, dX)
        return out, dg, db, dX

    a, b = run(), run()
    for i, (p, q) in enumerate(zip(a, b)):
        same(f"global-pool-{i} {label}", p, q)
    Xi = image_of(X[:, :c], n, h, w).requires_grad_()
    g64, b64 = gamma.double().requires_grad_(), beta.double().requires_grad_()
    ref = F.relu(F.batch_norm(Xi, None, None, g64, b64, True)).mean((2, 3))
    rdx, rdg, rdb = torch.autograd.grad(ref, [Xi, g64, b64], dF.double())
    expect(f"global_pool {label}", a[0], ref.detach(), 2e-6)
    expect(f"global_dgamma {label}", a[1], rdg, 1e-5)
    expect(f"global_dbeta {label}", a[2], rdb, 1e-5)
    expect(f"global_dx {label}", a[3][:, :c], rows_of(rdx), 1.5 * L)


def conv_shape(n, h, w, i, o, k, s, p):
    kh, kw = k if isinstance(k, tuple) else (k, k)
    sy, sx = s if isinstance(s, tuple) else (s, s)
    py, px = p if isinstance(p, tuple) else (p, p)
    return (n, h, w, i, (h + 2 * py - kh) // sy + 1, (w + 2 * px - kw) // sx + 1, o, kh, kw, sy, sx, py, px)


def check_conv(o, *args, pad_ld=0):
    shape = conv_shape(*args)
    n, h, w, i, ho, wo, c, kh, kw, sy, sx, py, px = shape
    label, L = f"{o.e} {shape}", LIMIT[o.e]
    x, dy = random(n * h * w, i + pad_ld, dtype=o.dtype), random(n * ho * wo, c + pad_ld, dtype=o.dtype)
    weight = random(c, i, kh, kw, scale=(i * kh * kw) ** -0.5)
    g1, g2 = o.pack([weight], 0)[0], o.pack([weight], 1)[0]
    rows = up(n * ho * wo, 128)
    _, _, _, _, splits = o.weight_grid(shape)

    def run():
        y, part = o.new(n * ho * wo, c + pad_ld), o.part(rows, c)
        o.conv_forward(shape, x, g1, y, part)
        m, v, _ = o.statistics(part, rows, c)
        dx = o.new(n * h * w, i + pad_ld)
        o.conv_backward_input(shape, dy, g2, dx)
        ws, dw = o.f(splits * c * i * kh * kw), o.f(c, i, kh, kw)
        o.conv_backward_weight(shape, x, dy, ws, dw)
        return y, m, v, dx, dw

    a, b = run(), run()
    for k, (p, q) in enumerate(zip(a, b)):
        same(f"conv-{k} {label}", p, q)
    y, m, v, dx, dw = a
    xi, wi = image_of(x[:, :i], n, h, w).requires_grad_(), factor(o, weight).double().requires_grad_()
    ref = F.conv2d(xi, wi, stride=(sy, sx), padding=(py, px))
    rdx, rdw = torch.autograd.grad(ref, [xi, wi], image_of(dy[:, :c], n, ho, wo))
    expect(f"conv_forward {label}", y[:, :c], rows_of(ref.detach()), L)
    y64 = y[:, :c].double()
    expect(f"conv-mean {label}", m, y64.mean(0), 1e-5)
    if n * ho * wo > 1:
        expect(f"conv-var {label}", v, y64.var(0, unbiased=False), 1e-5)
    expect(f"conv_dx {label}", dx[:, :i], rows_of(rdx), L)
    there = random(n * h * w, i + pad_ld, dtype=o.dtype)
    added = there.clone()
    o.conv_backward_input(shape, dy, g2, added, accumulate=1)
    expect(f"conv_dx-added {label}", added[:, :i], rows_of(rdx) + there[:, :i].double(), L)
    expect(f"conv_dw {label}", dw, rdw, max(1e-6, L) if o.e in ("tf32", "f32") else 1e-5)


def check_norm(o, n, h, w, c, residual, relu, offset=0.0):
    label, L = f"{o.e} {n}x{h}x{w}x{c} residual={residual} relu={relu}", LIMIT[o.e]
    P = n * h * w
    x = random(P, c, dtype=o.dtype, shift=offset)
    r, dy = random(P, c, dtype=o.dtype), random(P, c, dtype=o.dtype)
    gamma, beta = random(c, shift=0.5), random(c, scale=0.3)
    G, grid_y = min(up(P, 64), 4 * SMS), up(c, 8 * o.V)
    mask = (2 if residual else 1) if relu else 0

    def run():
        part = o.part(G, c)
        o.k("norm_statistics")((G, grid_y), 256, [x, part], [P, c, c, 0])
        mean, var, rstd = o.statistics(part, G, c)
        scale, shift = o.affine(mean, var, gamma, beta)
        y = o.new(P, c)
        g = min(up(P, 32), 8 * SMS)
        o.k("norm_apply")((g, grid_y), 256, [x, scale, shift, r, y], [P, c, c, c, c, residual + 2 * relu])
        part = o.f(G * 2 * c)
        o.k("norm_backward_sums")((G, grid_y), 256, [dy, x, y, mean, rstd, scale, shift, part], [P, c, c, c, c, mask])
        dg, db, _, _ = o.sums(part, G, gamma)
        over, again = dy.clone(), torch.empty_like(part)
        o.k("norm_backward_sums", MASK=mask + 4)((G, grid_y), 256, [over, x, y, mean, rstd, scale, shift, again], [P, c, c, c, c, mask + 4])
        same(f"norm_backward_sums over dy {label}", part, again)
        if mask == 2:
            same(f"norm_backward_sums's dy {label}", over, torch.where(y > 0, dy, torch.zeros_like(dy)))
        dx, dr = o.new(P, c), o.new(P, c)
        o.k("norm_backward_apply")((g, grid_y), 256, [dy, x, y, mean, rstd, scale, shift, dg, db, dx, dr],
                                   [P, c, c, c, c, c, c, mask + 4 * residual, 1.0 / P, 0])
        if mask == 2:
            inside = x.clone()
            o.k("norm_backward_apply")((g, grid_y), 256, [over, inside, inside, mean, rstd, scale, shift, dg, db, inside, inside],
                                       [P, c, c, c, 0, c, 0, 0, 1.0 / P, 0])
            same(f"norm_backward_apply over x {label}", dx, inside)
        return mean, var, y, dg, db, dx, dr

    a, b = run(), run()
    for i, (p, q) in enumerate(zip(a, b)):
        same(f"norm-{i} {label}", p, q)
    mean, var, y, dg, db, dx, dr = a
    x64, r64 = x.double().requires_grad_(), r.double().requires_grad_()
    g64, b64 = gamma.double().requires_grad_(), beta.double().requires_grad_()
    ref = F.batch_norm(x64, None, None, g64, b64, True) + (r64 if residual else 0)
    out = F.relu(ref) if relu else ref
    if relu:  # a shut ReLU is decided on what is stored, so compare under the same mask
        ref = ref * (y.double() > 0)
    want = torch.autograd.grad(ref, [x64, g64, b64] + ([r64] if residual else []), dy.double())
    expect(f"norm-mean {label}", mean, x64.detach().mean(0), 1e-5)
    expect(f"norm-var {label}", var, x64.detach().var(0, unbiased=False), 1e-5)
    expect(f"norm_apply {label}", y, out.detach(), max(L, 3e-6))
    # x near 0 under scale·x + shift may fall on either side in the mask: allowed for by L only.
    expect(f"norm_dx {label}", dx, want[0], max(L, 1e-5))
    expect(f"norm_dgamma {label}", dg, want[1], 1e-4 if offset == 0 else 1e-3)
    expect(f"norm_dbeta {label}", db, want[2], 1e-4)
    if residual:
        expect(f"norm_dresidual {label}", dr, want[3], 1e-6)


def check_residual(o, n, h, w, c, into, stride, normed, pad_ld=0):
    """A shortcut from c channels of h by w pixels to `into` channels."""
    label, L = f"{o.e} {n}x{h}x{w}x{c} into {into} stride {stride} normed={normed}", LIMIT[o.e]
    ho, wo = (h - 1) // stride + 1, (w - 1) // stride + 1
    P, Q = n * ho * wo, n * h * w
    x, shortcut = random(P, into + pad_ld, dtype=o.dtype), random(Q, c + pad_ld, dtype=o.dtype)
    scale, shift, scale2, shift2 = random(into), random(into), random(into), random(into)
    dy, features = random(P, into + pad_ld, dtype=o.dtype), random(n, c)
    grid = lambda pixels, channels: (min(up(pixels, 32), 8 * SMS), up(channels, 8 * o.V))

    def run():
        y, dx, mean = o.new(P, into + pad_ld), o.new(Q, c + pad_ld), o.new(Q, c + pad_ld)
        o.k("residual_forward")(grid(P, into), 256, [x, scale, shift, shortcut, scale2, shift2, y],
                                [P, into, c, into + pad_ld, c + pad_ld, into + pad_ld, stride, h, w, ho, wo, normed])
        o.k("shortcut_backward")(grid(Q, c), 256, [dy, dx], [Q, c, into + pad_ld, c + pad_ld, stride, h, w, ho, wo, 0])
        o.k("mean_backward")(grid(Q, c), 256, [features, mean], [n, h * w, c, c + pad_ld])
        return y[:, :into], dx[:, :c], mean[:, :c]

    a, b = run(), run()
    for i, (p, q) in enumerate(zip(a, b)):
        same(f"residual-{i} {label}", p, q)
    si = image_of(shortcut[:, :c], n, h, w).requires_grad_()
    taken = si[:, :, ::stride, ::stride]
    if normed:
        taken = scale2.double().view(1, -1, 1, 1) * taken + shift2.double().view(1, -1, 1, 1)
    r = F.pad(taken, (0, 0, 0, 0, 0, into - c))
    ref = F.relu(image_of(x[:, :into], n, ho, wo) * scale.double().view(1, -1, 1, 1) + shift.double().view(1, -1, 1, 1) + r)
    expect(f"residual_forward {label}", a[0], rows_of(ref.detach()), max(L, 3e-6))
    if not normed:
        rdx, = torch.autograd.grad(r, si, image_of(dy[:, :into], n, ho, wo))
        expect(f"shortcut_dx {label}", a[1], rows_of(rdx), 0.0)
    expect(f"mean_dx {label}", a[2], (features.double() / (h * w)).repeat_interleave(h * w, 0), L)


def places(lengths, step):
    """Lengths and first blocks of up to 32 arrays, and the number of blocks."""
    long = lengths + [0] * (32 - len(lengths))
    first = [sum(up(n, step) for n in long[:k]) for k in range(32)]
    return long + first, sum(up(n, step) for n in lengths)


def groups(*kinds):
    """The pointers of each parameter together, the unused ones anything."""
    each = [list(group) for group in zip(*kinds)]
    return [t for group in each + [each[0]] * (32 - len(each)) for t in group]


def norm_of(o, grads):
    at, blocks = places([g.numel() for g in grads], 4096)
    part = o.f(blocks)
    o.k("sums_of_squares")(blocks, 256, [*groups(grads), part], [len(grads), 0, *at])
    return part.double().sum().sqrt()


def check_optimizer(o):
    lengths = [7, 1024, 1025, 5000, 1, 64 * 147]
    decay, decays = 1e-2, 0b010110
    cases = [("sgd", dict(lr=0.1, momentum=0.9, nesterov=True), 0.5), ("sgd", dict(lr=0.1, momentum=0.0), None),
             ("sgd", dict(lr=0.05, momentum=0.8, dampening=0.3), 1e9), ("adamw", dict(lr=1e-2, betas=(0.9, 0.999), eps=1e-8), 0.7),
             ("adam", dict(lr=1e-2, betas=(0.3, 0.9), eps=1e-8), 0.7)]
    at, blocks = places(lengths, 1024)
    for kind, options, max_norm in cases:
        values = [random(n) for n in lengths]
        kept = [[o.f(n) for n in lengths] for _ in range(2)]
        parameters = [torch.nn.Parameter(v.double().clone()) for v in values]
        split = [dict(params=[p], weight_decay=decay if decays >> k & 1 else 0.0) for k, p in enumerate(parameters)]
        peer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind](split, **options)
        lr = options["lr"]
        for step in range(1, 13):
            grads = [random(n, scale=0.1 if step % 3 else 1.0) for n in lengths]
            norm = norm_of(o, grads)
            factor = min(1.0, max_norm / (norm.item() + 1e-6)) if max_norm else 1.0
            out = [o.f(n) for n in lengths]
            if kind == "sgd":
                o.k("sgd_step")(blocks, 256, groups(values, grads, kept[0], out),
                    [len(lengths), int(step == 1), decays, int(options.get("nesterov", False)), factor, lr, options["momentum"],
                     1.0 - options.get("dampening", 0.0), decay, 0.0, *at])
            else:
                b1, b2 = options["betas"]
                keep, l2 = (1.0 - lr * decay, 0.0) if kind == "adamw" else (1.0, decay)
                o.k("adam_step")(blocks, 256, groups(values, grads, *kept, out),
                    [len(lengths), int(step == 1), decays, factor, lr / (1 - b1**step), math.sqrt(1 - b2**step), b1, 1 - b1, b2, 1 - b2,
                     options["eps"], keep, l2, 0.0, *at])
            values = out
            for p, g in zip(parameters, grads):
                p.grad = g.double()
            exact = torch.nn.utils.clip_grad_norm_(parameters, max_norm or 1e30)
            expect(f"norm {kind}", norm.reshape(1), exact.reshape(1), 1e-6)
            peer.step()
        for p, v in zip(parameters, values):
            expect(f"{kind}_step {options}", v, p.detach(), 2e-6)


def check(o):
    torch.manual_seed(1)
    for args in [(2, 3, 37, 45, 64), (1, 1, 64, 50, 64), (3, 3, 7, 9, 72), (2, 1, 96, 130, 24), (1, 3, 5, 5, 8), (1, 3, 131, 66, 128)]:
        check_stem(o, *args)
    check_stem(o, 2, 3, 40, 40, 64, channels_last=True)
    check_stem(o, 2, 1, 64, 64, 64, offset=3.0)
    for args in [(2, 10, 12, 64, 32), (1, 7, 9, 256, 128), (3, 5, 4, 40, 24), (2, 16, 16, 512, 256), (1, 2, 3, 136, 136)]:
        check_transition(o, *args)
    for args in [(2, 10, 10, 1024), (1, 3, 5, 24), (5, 1, 1, 72)]:
        check_global_pool(o, *args)
    for args in [(2, 9, 11, 64, 64, 3, 1, 1), (3, 56, 60, 64, 136, 3, 1, 1), (4, 40, 48, 136, 160, 1, 1, 0), (2, 9, 11, 64, 128, 3, 2, 1), (1, 8, 7, 256, 72, 1, 1, 0), (2, 13, 9, 96, 40, 1, 2, 0),
                 (1, 17, 19, 3, 13, 7, 2, 3), (2, 6, 5, 5, 7, (2, 3), (3, 2), (1, 0)), (1, 1, 1, 8, 8, 3, 1, 1), (2, 14, 14, 24, 130, 5, 1, 2),
                 (1, 20, 20, 128, 256, 3, 1, 1), (1, 12, 10, 7, 64, 3, 1, 1), (1, 12, 10, 64, 7, 3, 1, 1), (2, 20, 17, 128, 32, 3, 1, 1), (3, 11, 9, 40, 32, 1, 1, 0), (2, 12, 13, 24, 12, 3, 2, 1),
                 (1, 33, 31, 8, 20, 3, 1, 1), (5, 8, 8, 200, 16, 5, 2, 2)]:
        check_conv(o, *args)
        check_conv(o, *args, pad_ld=8)
    for residual in (0, 1):
        for relu in (0, 1):
            check_norm(o, 2, 9, 7, 64, residual, relu)
            check_norm(o, 3, 5, 7, 13, residual, relu)
    check_norm(o, 4, 20, 20, 96, 0, 1, offset=20.0)
    for args in [(2, 9, 7, 64, 64, 1, 0), (3, 8, 5, 128, 128, 1, 1), (2, 13, 16, 16, 32, 2, 0), (1, 5, 4, 8, 32, 1, 0), (1, 57, 60, 40, 72, 2, 0)]:
        check_residual(o, *args)
        check_residual(o, *args, pad_ld=8)
    check_optimizer(o)


def check_large(o, n=16, size=3000):
    """Tensors of more than 2^31 elements: the last image, or sums over all, against fp64."""
    torch.manual_seed(2)
    ho = (size - 1) // 2 + 1
    hp, c, L = (ho - 1) // 2 + 1, 64, LIMIT[o.e]
    P, Q, m = n * ho * ho, n * hp * hp, n * ho * ho
    image, weight = random(n, 1, size, size), random(c, 1, 7, 7, scale=0.1)
    gamma, beta = random(c, shift=0.5), random(c, scale=0.3)
    z, rows, prow = o.new(P, c), o.stem_rows(n, ho, ho), o.pool_rows(n, hp, hp)
    part = o.part(rows, c)
    o.stem_forward(image, o.pack([weight], 2)[0], c, z, part)
    mean, var, rstd = o.statistics(part, rows, c)
    scale, shift = o.affine(mean, var, gamma, beta)
    out, index, part = o.new(Q, 256), o.new(Q, c // 8, dtype=torch.int32), o.part(prow, c)
    o.stem_pool(z, n, ho, ho, c, scale, shift, out, index, part)
    i64, w64 = factor(o, image[-1:]).double(), factor(o, weight).double()
    expect("large-stem_forward", z[-ho * ho :], rows_of(F.conv2d(i64, w64, stride=2, padding=3)), L)
    per = lambda i: z[i * ho * ho : (i + 1) * ho * ho].double()
    total = sum(per(i).sum(0) for i in range(n)) / m
    spread = (sum((per(i) - total).square().sum(0) for i in range(n)) / m).sqrt()
    expect("large-mean, in standard deviations", (mean - total) / spread + 1, torch.ones_like(total), 1e-6)
    expect("large-var", var, sum((per(i) - total).square().sum(0) for i in range(n)) / m, 1e-5)
    dpool = random(Q, c, dtype=o.dtype)

    def gradient(i):
        v = image_of(scale.double() * per(i) + shift.double(), 1, ho, ho).requires_grad_()
        y = F.max_pool2d(F.relu(v), 3, 2, 1)
        if i == n - 1:
            expect("large-stem_pool", out[-hp * hp :, :c], rows_of(y.detach()), L)
        return rows_of(torch.autograd.grad(y, v, image_of(dpool[i * hp * hp : (i + 1) * hp * hp], 1, hp, hp))[0])

    xhat = lambda i: (per(i) - mean.double()) * rstd.double()
    s1 = s2 = 0
    for i in range(n):
        g = gradient(i)
        s1, s2 = s1 + g.sum(0), s2 + (g * xhat(i)).sum(0)
    want = 0
    for i in range(n):
        dz = scale.double() * (gradient(i) - s1 / m - xhat(i) * s2 / m)
        want = want + torch.nn.grad.conv2d_weight(factor(o, image[i : i + 1]).double(), w64.shape, image_of(dz, 1, ho, ho), stride=2, padding=3)
    ws, dw, dg, db = o.f(SMS * (129 * 56 + 128)), o.f(c, 1, 7, 7), o.f(c), o.f(c)
    o.stem_backward(image, z, mean, rstd, dpool, index, ws, gamma, dw, dg, db)
    expect("large-stem_dw", dw, want, max(L, 1e-5))
    expect("large-stem_dbeta", db, s1, 1e-5)
    expect("large-stem_dgamma", dg, s2, 1e-5)
    del z, image, out, index, dpool, g, dz
    torch.cuda.empty_cache()

    h, c, k = hp, 256, 64  # 16·750²·256 > 2^31
    P, Q, half = n * h * h, n * (h // 2) ** 2, (h // 2) ** 2
    X, gamma, beta = torch.empty(P, c, dtype=o.dtype, device="cuda").normal_(), random(c), random(c)
    mean, var = torch.zeros(c, device="cuda"), torch.ones(c, device="cuda")
    rstd, (scale, shift) = 1 / (var + 1e-5).sqrt(), o.affine(mean, var, gamma, beta)
    weight = random(k, c, 1, 1, scale=0.06)
    T, Y, part = o.new(Q, c), o.new(Q, k), o.part(up(Q, 128), k)
    o.transition_forward(X, n, h, h, c, scale, shift, o.pack([weight], 0)[0], T, Y, k, part)
    last = X[-h * h :].double()
    v = image_of(scale.double() * last + shift.double(), 1, h, h)
    expect("large-transition", Y[-half:], rows_of(F.conv2d(F.avg_pool2d(F.relu(v), 2), factor(o, weight).double())), L)
    S, part = o.new(P, c), o.f(up(Q, 128) * 2 * c)
    o.transition_backward_input(Y, k, o.pack([weight], 1)[0], X, n, h, h, c, mean, rstd, scale, shift, gamma, S, T, part)
    g = rows_of(F.conv_transpose2d(image_of(Y[-half:], 1, h // 2, h // 2), factor(o, weight).double()).repeat_interleave(2, 2).repeat_interleave(2, 3))
    want = g / 4 * (rows_of(v) > 0) * gamma.double()
    expect("large-transition_S", S[-h * h :], want, L)
    o.input_gradient(S, X, c, mean, rstd, gamma, beta, S)
    want = rstd.double() * (factor(o, want).double() - gamma.double() / P - last * rstd.double() * beta.double() / P)
    expect("large-input_gradient", S[-h * h :], want, 1.5 * L)
    shape = conv_shape(n, h, h, c, k, 3, 1, 1)
    weight, y = random(k, c, 3, 3, scale=0.02), o.new(P, k)
    o.conv_forward(shape, X, o.pack([weight], 0)[0], y, o.part(up(P, 128), k))
    w64, xi = factor(o, weight).double(), image_of(last, 1, h, h)
    expect("large-conv_forward", y[-h * h :], rows_of(F.conv2d(xi, w64, padding=1)), L)
    y[: -h * h] = 0
    o.conv_backward_input(shape, y, o.pack([weight], 1)[0], S)
    yi = image_of(y[-h * h :], 1, h, h)
    expect("large-conv_dx", S[-h * h :], rows_of(F.conv_transpose2d(yi, w64, padding=1)), L)
    splits = o.weight_grid(shape)[4]
    ws, dw = o.f(splits * k * c * 9), o.f(k, c, 3, 3)
    o.conv_backward_weight(shape, X, y, ws, dw)
    expect("large-conv_dw", dw, torch.nn.grad.conv2d_weight(xi, w64.shape, yi, padding=1), max(L, 1e-5))


def timed(label, run, moved, results):
    """Median microseconds of graph replays of ten launches, and the share of `moved` bytes over the copy's rate."""
    us = microseconds(lambda _: run())
    results.append((label, us, moved))
    print(f"  {label:44s} {us:8.1f} us {moved / 1e6:8.1f} MB {moved / us / 1e6:6.2f} TB/s", flush=True)
    return us


def time_densenet(o, n=64, size=320):
    print(f"{o.e}, DenseNet-121, batch {n}, {size}²")
    results, e, total = [], o.dtype.itemsize, {}
    h = size // 2
    c, P, Pq = 64, n * h * h, n * (h // 2) ** 2
    image, z = random(n, 3, size, size), random(P, c, dtype=o.dtype)
    weight, gamma, beta = random(c, 3, 7, 7, scale=0.1), random(c, shift=0.5), random(c)
    packed = o.pack([weight], 2)[0]
    rows, prow = o.stem_rows(n, h, h), o.pool_rows(n, h // 2, h // 2)
    part, part2 = o.part(rows, c), o.part(prow, c)
    out, index = o.new(Pq, 256), o.new(Pq, c // 8, dtype=torch.int32)
    stem = timed("stem_forward", lambda: o.stem_forward(image, packed, c, z, part), image.numel() * 4 + P * c * e, results)
    stem += timed("statistics + affine", lambda: o.affine(*o.statistics(part, rows, c)[:2], gamma, beta), 0, results)
    mean, var, rstd = o.statistics(part, rows, c)
    scale, shift = o.affine(mean, var, gamma, beta)
    stem += timed("stem_pool_forward", lambda: o.stem_pool(z, n, h, h, c, scale, shift, out, index, part2),
                  P * c * e + Pq * c * (e + 0.5), results)
    S, X, dpool = random(Pq, 256, dtype=o.dtype), random(Pq, 256, dtype=o.dtype), random(Pq, c, dtype=o.dtype)
    stem += timed("input_gradient", lambda: o.input_gradient(S, X, c, mean, rstd, gamma, beta, dpool), 3 * Pq * c * e, results)
    ws, dw, dg, db = o.f(SMS * (129 * 168 + 128)), o.f(c, 3, 7, 7), o.f(c), o.f(c)
    stem += timed("stem_backward + finish", lambda: o.stem_backward(image, z, mean, rstd, dpool, index, ws, gamma, dw, dg, db),
                  image.numel() * 4 + P * c * e + Pq * c * (e + 0.5), results)
    print(f"  stem in all {stem:.0f} us")
    del image, z, out, index, S, X, dpool, ws
    every = 0
    for h, c in ((80, 256), (40, 512), (20, 1024)):
        if size != 320:
            h = h * size // 320
        k, P, Q, ldy = c // 2, n * h * h, n * (h // 2) ** 2, c
        X, Y, S, dY = random(P, c, dtype=o.dtype), random(Q, 2 * c, dtype=o.dtype), random(P, c, dtype=o.dtype), random(Q, k, dtype=o.dtype)
        S2 = random(Q, 2 * c, dtype=o.dtype)
        w = random(k, c, 1, 1)
        gamma, beta = random(c), random(c)
        g1, g2 = o.pack([w], 0)[0], o.pack([w], 1)[0]
        mean, var = X.float().mean(0), X.float().var(0)
        rstd = 1 / (var + 1e-5).sqrt()
        scale, shift = o.affine(mean, var, gamma, beta)
        rows = up(Q, 128)
        part, part2 = o.part(rows, k), o.f(rows * 2 * c)
        shape = (1, 1, Q, c, 1, Q, k, 1, 1, 1, 1, 0, 0)
        splits = o.weight_grid(shape)[4]
        ws, dw, T = o.f(splits * k * c), o.f(k, c), o.new(Q, c)
        t = timed(f"transition_pool {h}² {c}", lambda: o.k("transition_pool")((min(up(Q, 32), 8 * SMS), up(c, 8 * o.V)), 256, [X, scale, shift, T], [n, h, h, c, c, c]), (P * c + Q * c) * e, results)
        t += timed(f"conv_forward 1x1", lambda: o.conv_forward(shape, T, g1, Y, part), Q * (c + k) * e, results)
        t += timed(f"statistics + affine", lambda: o.affine(*o.statistics(part, rows, k)[:2], gamma[:k], beta[:k]), 0, results)
        t += timed(f"input_gradient", lambda: o.input_gradient(S2, Y, k, mean, rstd, gamma, beta, dY), 3 * Q * k * e, results)
        t += timed(f"transition_backward_input", lambda: o.transition_backward_input(dY, k, g2, X, n, h, h, c, mean, rstd, scale, shift, gamma, S, T, part2), (2 * P * c + Q * (k + c)) * e, results)
        t += timed(f"channel_sums", lambda: o.sums(part2, rows, gamma), 0, results)
        t += timed(f"conv_backward_weight 1x1 ({splits})", lambda: o.conv_backward_weight(shape, T, dY, ws, dw), Q * (c + k) * e, results)
        every += t
    print(f"  transitions in all {every:.0f} us")


def time_resnet(o, n=64, size=224):
    print(f"{o.e}, convolutions of ResNet-50, batch {n}, {size}² (ours with TILE_N 128 and 64, then PyTorch channels_last)")
    q = size // 4
    shapes = [(n, q, q, 64, 64, 1, 1, 0), (n, q, q, 64, 64, 3, 1, 1), (n, q, q, 64, 256, 1, 1, 0), (n, q, q, 256, 64, 1, 1, 0),
              (n, q, q, 128, 128, 3, 2, 1), (n, q, q, 256, 512, 1, 2, 0), (n, q // 2, q // 2, 128, 128, 3, 1, 1), (n, q // 2, q // 2, 512, 128, 1, 1, 0),
              (n, q // 4, q // 4, 256, 256, 3, 1, 1), (n, q // 4, q // 4, 256, 1024, 1, 1, 0), (n, q // 8, q // 8, 512, 512, 3, 1, 1), (n, q // 8, q // 8, 2048, 512, 1, 1, 0)]
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = o.e == "tf32"
    import io, contextlib
    for args in shapes:
        shape = conv_shape(*args)
        n, h, w, i, ho, wo, c, kh, kw, sy, sx, py, px = shape
        x, dy = random(n * h * w, i, dtype=o.dtype), random(n * ho * wo, c, dtype=o.dtype)
        weight = random(c, i, kh, kw, scale=(i * kh * kw) ** -0.5)
        g1, g2 = o.pack([weight], 0)[0], o.pack([weight], 1)[0]
        _, _, _, _, splits = o.weight_grid(shape)
        y, dx, ws, dw = torch.empty_like(dy), torch.empty_like(x), o.f(splits * c * i * kh * kw), o.f(c, i, kh, kw)
        xt = x.view(n, h, w, i).permute(0, 3, 1, 2)
        dyt = dy.view(n, ho, wo, c).permute(0, 3, 1, 2)
        wt = weight.to(o.dtype).contiguous(memory_format=torch.channels_last)
        back = lambda mask: torch.ops.aten.convolution_backward(dyt, xt, wt, None, (sy, sx), (py, px), (1, 1), False, (0, 0), 1, mask)
        part = o.part(up(n * ho * wo, 128), c)
        row = []
        for run in (lambda: o.conv_forward(shape, x, g1, y, part, 128), lambda: o.conv_forward(shape, x, g1, y, part, 64), lambda: F.conv2d(xt, wt, None, (sy, sx), (py, px)),
                    lambda: o.conv_backward_input(shape, dy, g2, dx, 128), lambda: o.conv_backward_input(shape, dy, g2, dx, 64), lambda: back((True, False, False)),
                    lambda: o.conv_backward_weight(shape, x, dy, ws, dw), lambda: back((False, True, False))):
            with contextlib.redirect_stdout(io.StringIO()):
                row.append(timed("", run, 0, []))
        print(f"  {h:3d}² {i:4d}->{c:4d} {kh}x{kw}/{sy}: forward {row[0]:6.1f} {row[1]:6.1f} {row[2]:6.1f}  input {row[3]:6.1f} {row[4]:6.1f} {row[5]:6.1f}  weight {row[6]:6.1f} {row[7]:6.1f} us", flush=True)
    P, c = n * q * q, 256
    x, r, dy, y = (random(P, c, dtype=o.dtype) for _ in range(4))
    gamma, beta = random(c), random(c)
    G, gy, g, b = min(up(P, 64), 4 * SMS), up(c, 8 * o.V), min(up(P, 32), 8 * SMS), P * c * o.dtype.itemsize
    part = o.part(G, c)
    timed("norm_statistics 56² 256", lambda: o.k("norm_statistics")((G, gy), 256, [x, part], [P, c, c, 0]), b, [])
    mean, var, rstd = o.statistics(part, G, c)
    scale, shift = o.affine(mean, var, gamma, beta)
    timed("norm_apply, residual", lambda: o.k("norm_apply")((g, gy), 256, [x, scale, shift, r, y], [P, c, c, c, c, 3]), 3 * b, [])
    timed("norm_backward_sums", lambda: o.k("norm_backward_sums")((G, gy), 256, [dy, x, y, mean, rstd, scale, shift, part], [P, c, c, c, c, 2]), 3 * b, [])
    timed("norm_backward_apply", lambda: o.k("norm_backward_apply")((g, gy), 256, [dy, x, y, mean, rstd, scale, shift, gamma, beta, r, dy], [P, c, c, c, c, c, c, 6, 1.0 / P, 0]), 5 * b, [])
    timed("norm_backward_sums over dy", lambda: o.k("norm_backward_sums", MASK=6)((G, gy), 256, [dy, x, y, mean, rstd, scale, shift, part], [P, c, c, c, c, 6]), 4 * b, [])
    timed("norm_backward_apply over x", lambda: o.k("norm_backward_apply")((g, gy), 256, [dy, r, r, mean, rstd, scale, shift, gamma, beta, r, r], [P, c, c, c, 0, c, 0, 0, 1.0 / P, 0]), 3 * b, [])
    sizes = [P, c, c, c, c, c, 1, q, q, q, q, 0]
    timed("residual_forward", lambda: o.k("residual_forward")((g, gy), 256, [x, scale, shift, dy, scale, shift, y], sizes), 3 * b, [])
    timed("residual_forward, projection", lambda: o.k("residual_forward")((g, gy), 256, [x, scale, shift, dy, scale, shift, y], sizes[:-1] + [1]), 3 * b, [])
    timed("copy", lambda: y.copy_(x), 2 * b, [])


def time_optimizer(o):
    lengths = [250_000] * 32
    values, grads, m, v, out = ([random(n).abs() for n in lengths] for _ in range(5))
    at, blocks = places(lengths, 1024)
    numbers = [32, 0, 2**32 - 1, 1.0, 1e-3, 1.0, 0.9, 0.1, 0.999, 0.001, 1e-8, 1.0, 0.0, 0.0, *at]
    bytes_of_one = sum(lengths) * 4
    timed("norm, 8M parameters", lambda: norm_of(o, grads), bytes_of_one, [])
    timed("adam_step, 8M parameters", lambda: o.k("adam_step")(blocks, 256, groups(values, grads, m, v, out), numbers), 7 * bytes_of_one, [])


if __name__ == "__main__":
    words = sys.argv[1:] or ["check", "time"]
    elements = [w for w in words if w in ELEMENTS] or ELEMENTS
    start = time.time()
    kernels = {}
    for el in elements:
        kernels.update(launch.load(FOLDER, variants(el)))
    print(torch.cuda.get_device_name(), torch.__version__, f"compiled {len(kernels)} variants in {time.time() - start:.1f} s", flush=True)
    for el in elements:
        o = Ours(el, kernels)
        if "check" in words:
            WORST.clear()
            check(o)
            torch.cuda.synchronize()
            print(f"{el}: worst relative errors: " + ", ".join(f"{k} {v[0]:.1e}" for k, v in WORST.items()), flush=True)
        if "quick" in words:  # for compute-sanitizer
            check_stem(o, 1, 3, 37, 45, 64)
            check_stem(o, 2, 1, 20, 70, 24)
            check_transition(o, 1, 7, 9, 72, 40)
            check_global_pool(o, 1, 3, 5, 24)
            check_conv(o, 1, 9, 11, 64, 72, 3, 2, 1)
            check_conv(o, 1, 6, 5, 5, 7, (2, 3), (3, 2), (1, 0))
            check_norm(o, 1, 5, 7, 13, 1, 1)
            check_residual(o, 1, 9, 11, 24, 40, 2, 0)
            check_optimizer(o)
        if "large" in words:
            WORST.clear()
            check_large(o)
            print(f"{el}, over 2^31 elements: " + ", ".join(f"{k} {v[0]:.1e}" for k, v in WORST.items()), flush=True)
            torch.cuda.empty_cache()
        if "time" in words:
            time_densenet(o)
        if "resnet" in words:
            time_resnet(o)
    if "time" in words:
        time_optimizer(o)
    print(f"{len(FAILURES)} failures, {time.time() - start:.0f} s")
    for f in FAILURES[:40]:
        print("  ", f)
