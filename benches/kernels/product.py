"""Checks `split_product` against PyTorch in fp64 and times it beside the general kernels and cuBLAS: python product.py [quick] [time]. Needs a Hopper card."""

import os
import sys

import launch
from launch import FOLDER, microseconds, up

FORMS = {"forward": 0, "input gradient": 0, "weight gradient": 1}  # COLUMNS
# Further macros to try, as "A=1 B=2;A=2".
VARIANTS = [tuple(tuple(m.split("=")) for m in v.split()) for v in os.environ.get("VARIANTS", "").split(";")]
GENERAL = ("conv_forward", "conv_backward_input", "conv_backward_weight")


def macros(form, variant=()):
    return (("ELEMENT", "f32"), ("COLUMNS", FORMS[form])) + variant


OLD = (("ELEMENT", "f32"), ("CHUNKED", 1), ("TILE_M", 128), ("TILE_N", 128))
WANTED = [("split_product", ("tiles", "hopper"), macros(form, variant)) for form in FORMS for variant in VARIANTS]
WANTED += [(name, ("tiles", "channels", "gemm", "conv"), OLD) for name in GENERAL] + [("reduce_padded", (), ())]
KERNELS = launch.load(FOLDER, WANTED, dict(split_product=8 * 24576 + 128))

import torch

SMS = torch.cuda.get_device_properties(0).multi_processor_count
NAN = float("nan")


def shares(tiles, k):
    """How many parts K is split into and how long they are: as few as keep all multiprocessors busy."""
    best = min(range(1, 33), key=lambda splits: (up(tiles * splits, SMS) * up(up(k, 32), splits) + splits, splits)) if tiles < 4 * SMS else 1
    per = 32 * up(up(k, 32), best)
    return up(k, per), per


def product(form, a, b, m, n, k, variant=()):
    splits, per = shares(up(m, 128) * up(n, 128), k) if form == "weight gradient" else (1, up(k, 32) * 32)
    work = torch.full((splits, m, n), NAN, device="cuda")
    grid = min(up(m, 128) * up(n, 128) * splits, SMS)

    def run():
        KERNELS[("split_product", macros(form, variant))](grid, 256 + 128 * int(dict(variant).get("PRODUCERS", 1)), [a, b, work], [m, n, k, a.stride(0), b.stride(0), n, per, splits])
        if splits > 1:
            out = torch.empty(m, n, device="cuda")
            KERNELS[("reduce_padded", ())](up(m * n, 256), 256, [work, out], [splits, m, n, 1, n, 0])
            return out
        return work[0]

    return run


def factors(form, m, n, k, pad=0, seed=1):
    random = torch.Generator(device="cuda").manual_seed(seed + m + 3 * n + 7 * k)
    rows = FORMS[form]

    def make(outer, by_k):
        t = torch.full((k, outer + pad) if by_k else (outer, k + pad), NAN, device="cuda")
        t[:, : outer if by_k else k] = torch.randn((k, outer) if by_k else (outer, k), device="cuda", generator=random)
        return t

    a, b = make(m, rows), make(n, rows)
    left = a[:, :m].t() if rows else a[:, :k]
    right = b[:, :n] if rows else b[:, :k].t()
    return a, b, left, right


def off(found, exact):
    return ((found.double() - exact).norm() / exact.norm()).item()


def check(form, m, n, k, pad, variant):
    a, b, left, right = factors(form, m, n, k, pad)
    run, exact = product(form, a, b, m, n, k, variant), left.double() @ right.double()
    found = run().clone()
    error, cublas = off(found, exact), off(left.float() @ right.float(), exact)
    same = all(torch.equal(run(), found) for _ in range(3))
    good = same and error < max(4e-7, cublas) and bool(found.isfinite().all())
    print(f"{'right' if good else 'WRONG'}: {form} {m}×{n}×{k} {variant} (+{pad}): error {error:.1e}, cuBLAS {cublas:.1e}{'' if same else ', reruns differ'}", flush=True)
    return good


def general(form, a, b, m, n, k):
    """Today's kernel for a linear layer, and what it writes."""
    if form == "weight gradient":  # a: dY [k][m], b: X [k][n]
        tiles = up(m, 128) * up(n, 128)
        per = 32 * up(k, 32 * max(1, 2 * SMS // tiles))
        splits = up(k, per)
        work, out = torch.full((splits, m, n), NAN, device="cuda"), torch.empty(m, n, device="cuda")
        conv = [k, 1, 1, n, 1, 1, m, 1, 1, 1, 1, 0, 0, n, m, 0]

        def run():
            KERNELS[("conv_backward_weight", OLD)]((tiles, splits), 256, [b, a, work], conv + [per, 0])
            KERNELS[("reduce_padded", ())](up(m * n, 256), 256, [work, out], [splits, m, n, 1, n, 0])
            return out
        return run
    out = torch.full((m, n), NAN, device="cuda")
    if form == "forward":
        conv = [m, 1, 1, k, 1, 1, n, 1, 1, 1, 1, 0, 0, k, n, 0]
        return lambda: (KERNELS[("conv_forward", OLD)](up(m, 128) * up(n, 128), 256, [a, b, out, out], conv + [k, 0]), out)[1]
    conv = [m, 1, 1, n, 1, 1, k, 1, 1, 1, 1, 0, 0, n, k, 0]
    return lambda: (KERNELS[("conv_backward_input", OLD)](up(m, 128) * up(n, 128), 256, [a, b, out], conv + [k, up(m, 128), 0, 0]), out)[1]


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = False
    good = True
    for form in FORMS if "time" not in sys.argv else ():
        for (m, n, k), pad in zip(((128, 128, 32), (4, 4, 4), (132, 260, 100), (1000, 72, 1028), (300, 864, 36), (64, 512, 4000)), (0, 4, 0, 8, 12, 0)):
            for variant in VARIANTS:
                good &= check(form, m, n, k, pad, variant)
    batch, width = (59392, 864)
    for form in FORMS:
        m, n, k = (width, width, batch) if form == "weight gradient" else (batch, width, width)
        a, b, left, right = factors(form, m, n, k)
        exact, flop = left.double() @ right.double(), 2e-6 * m * n * k
        runs = {f"split_product {variant}": product(form, a, b, m, n, k, variant) for variant in VARIANTS}
        if "quick" not in sys.argv:
            runs |= {"general": general(form, a, b, m, n, k), "cuBLAS": lambda: left @ right}
        for name, run in runs.items():
            found = run().clone()
            error, biggest = off(found, exact), ((found.double() - exact).abs().max() / exact.abs().max()).item()
            same = torch.equal(run(), found)
            micro = microseconds(lambda _: run(), 5, graph=False)
            print(f"{form}: {name} {micro:.0f} µs, {flop / micro:.1f} TFLOP/s, error {error:.1e} (largest {biggest:.1e}){'' if same else ', reruns differ'}", flush=True)
        if "quick" not in sys.argv:
            torch.backends.cuda.matmul.allow_tf32 = True
            micro = microseconds(lambda _: left @ right, 5, graph=False)
            print(f"{form}: cuBLAS tf32 {micro:.0f} µs, {flop / micro:.1f} TFLOP/s, error {off(left @ right, exact):.1e}", flush=True)
            torch.backends.cuda.matmul.allow_tf32 = False
        del a, b, left, right, exact, runs
        torch.cuda.empty_cache()
    sys.exit(not good)
