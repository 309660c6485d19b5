"""Checks the norms of maps [batch, channels, height, width] (`row_*` kernels) against fp64 and times them beside PyTorch's.

python check_norm2d.py; KERNELS names another folder of kernels. Outputs are poisoned before; each case runs twice and gives the same bits.
"""


import torch
import torch.nn.functional as F

import launch
from launch import FOLDER, microseconds, up

HEADERS = ("tiles", "channels", "rows")
NAMES = ["row_moments", "row_statistics", "row_norm", "row_sums", "row_gradients", "row_norm_backward"]
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
K = launch.load(FOLDER, [(n, HEADERS, (("ELEMENT", e),)) for n in NAMES for e in TYPES])
CHUNK, EPS = 8192, 1e-5


def poisoned(*shape, dtype=torch.float32):
    return torch.full(shape, float("nan"), device="cuda", dtype=dtype)


class Norm:
    def __init__(self, e, x, groups, relu=0):
        self.e, self.x, self.groups, self.more = e, x, groups, (EPS, relu)
        n, c, h, w = x.shape
        self.rows, self.length, self.channels = n * c, h * w, c
        self.parts = up(self.length, CHUNK)
        self.count = n * groups if groups else c
        self.sizes = [self.rows, self.length, c, groups, CHUNK, self.parts]
        self.spans = up(x.numel() * x.element_size(), 16384)
        self.part = poisoned(self.parts * self.rows * 2)
        self.mean, self.variance = poisoned(self.count), poisoned(self.count)
        self.y, self.dx = poisoned(*x.shape, dtype=x.dtype), poisoned(*x.shape, dtype=x.dtype)
        self.means, self.dw, self.db = poisoned(2 * self.count), poisoned(c), poisoned(c)

    def kernel(self, name, grid, pointers, more=()):
        K[(name, (("ELEMENT", self.e),))](grid, 256, pointers, self.sizes + list(more))

    def forward(self, w, b):
        grid = (up(self.rows, 8), self.parts)
        self.kernel("row_moments", grid, [self.x, self.part])
        self.kernel("row_statistics", up(self.count, 8), [self.part, self.mean, self.variance])
        self.kernel("row_norm", self.spans, [self.x, self.mean, self.variance, w, b, self.y], self.more)

    def backward(self, g, w, b):
        grid = (up(self.rows, 8), self.parts)
        self.kernel("row_sums", grid, [g, self.x, self.mean, self.variance, w, b, self.part], self.more)
        self.kernel("row_gradients", up(self.count + self.channels, 8), [self.part, w, self.means, self.dw, self.db])
        self.kernel("row_norm_backward", self.spans, [g, self.x, self.mean, self.variance, w, b, self.means, self.dx], self.more)

    def outputs(self):
        return [self.y, self.mean, self.variance, self.dx, self.dw, self.db]


def reference(x, g, w, b, groups, relu):
    x, g, w, b = (t.double() for t in (x, g, w, b))
    n, c, h, wd = x.shape
    for t in (x, w, b):
        t.requires_grad_()
    v = x.reshape(n, groups, -1) if groups else x.transpose(0, 1).reshape(c, -1)
    mean, var = v.mean(-1).flatten(), v.var(-1, unbiased=False).flatten()
    y = F.group_norm(x, groups, w, b, EPS) if groups else F.batch_norm(x, None, None, w, b, True, 0.1, EPS)
    y = y.relu() if relu else y
    y.backward(g)
    return [t.detach() for t in (y, mean, var, x.grad, w.grad, b.grad)]


def inputs(e, shape, seed):
    torch.manual_seed(seed)
    t = TYPES[e]
    c = shape[1]
    x = (torch.randn(shape, device="cuda") * (0.5 + torch.rand(1, c, 1, 1, device="cuda")) + 3 * torch.randn(1, c, 1, 1, device="cuda"))
    return x.to(t), torch.randn(shape, device="cuda").to(t), torch.randn(c, device="cuda"), torch.randn(c, device="cuda")


SHAPES = [(3, 6, 5, 7), (1, 8, 1, 1), (5, 32, 10, 10), (2, 64, 33, 38), (2, 4, 150, 152), (4, 96, 16, 16), (7, 3, 91, 101), (2, 1024, 8, 8)]
LIMIT = {"f32": 3e-6, "f16": 1.5e-3, "bf16": 1.2e-2}
for e in TYPES:
    worst = [0.0] * 6
    for seed, shape in enumerate(SHAPES):
        x, g, w, b = inputs(e, shape, seed)
        for groups in sorted({0, 1, shape[1], *(k for k in (2, 32) if shape[1] % k == 0)}):
            in_group = shape[2] * shape[3] * (shape[1] // groups if groups else shape[0])
            if in_group == 1:
                continue
            relu = seed % 2
            one, two = Norm(e, x, groups, relu), Norm(e, x, groups, relu)
            for norm in (one, two):
                norm.forward(w, b)
                norm.backward(g, w, b)
            torch.cuda.synchronize()
            for place, (found, again, wanted) in enumerate(zip(one.outputs(), two.outputs(), reference(x, g, w, b, groups, relu))):
                assert torch.equal(found.view(torch.uint8), again.view(torch.uint8)), (e, shape, groups, place)
                if place == 3 and in_group < 8:
                    continue  # the gradient all but cancels
                assert torch.isfinite(found).all(), (e, shape, groups, place)
                error = ((found.double() - wanted).norm() / (wanted.norm() + 1e-30)).item()
                worst[place] = max(worst[place], error)
    print(f"{e}: relative errors of y {worst[0]:.1e} mean {worst[1]:.1e} variance {worst[2]:.1e} dx {worst[3]:.1e} dw {worst[4]:.1e} db {worst[5]:.1e}")
    assert max(worst) < LIMIT[e], e
e = "bf16"
for shape in [(32, 64, 160, 160), (32, 256, 80, 80), (32, 512, 40, 40), (32, 128, 40, 40), (32, 1024, 10, 10)]:
    for groups in (0, 32):
        x, g, w, b = inputs(e, shape, 1)
        norm = Norm(e, x, groups)
        time = lambda run: microseconds(lambda _: run(), graph=False)
        forward, backward = time(lambda: norm.forward(w, b)), time(lambda: norm.backward(g, w, b))
        torch_w, torch_b, leaf = w.to(TYPES[e]).requires_grad_(), b.to(TYPES[e]).requires_grad_(), x.clone().requires_grad_()
        f = (lambda: F.group_norm(leaf, groups, torch_w, torch_b)) if groups else (lambda: F.batch_norm(leaf, None, None, torch_w, torch_b, True))
        theirs = time(f)
        y = f()
        both = time(lambda: torch.autograd.grad(y, (leaf, torch_w, torch_b), g, retain_graph=True))
        gb = x.numel() * 2 / 1e3
        print(f"{shape} groups {groups}: forward {forward:.0f} µs ({3 * gb / forward / 1e3:.2f} TB/s; PyTorch {theirs:.0f}), backward {backward:.0f} µs ({5 * gb / backward / 1e3:.2f}; {both:.0f})")
print("all right")
