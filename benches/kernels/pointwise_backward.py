"""Compares `dense_pointwise_backward` and `dense_pointwise_finish` with PyTorch in float64, on one H100.

python pointwise_backward.py

Every element of S, of the weight's gradient and of the sums is compared, outputs hold NaN before, and each case runs twice with the
same bits. S may be off by its own rounding to 2 bytes; the other results by 1e-5 of their size.
"""

import sys

import torch

import launch
from launch import FOLDER, up

SHARED = {"dense_pointwise_backward": 14 * 64 * 128 * 2 + 4 * 24 + 2 * 8}
OUT, RANGE, PIXELS = 128, 128, 64
# batch, height, width, channels, channels of a row of x and S
CASES = [(3, 17, 23, 160, 256), (1, 1, 1, 32, 64), (1, 1, 1, 1024, 1024), (2, 9, 33, 96, 128), (8, 80, 80, 224, 256), (64, 10, 10, 992, 1024),
         (64, 10, 10, 544, 1024), (5, 40, 40, 64, 256), (4, 20, 20, 2048, 2048), (7, 31, 5, 288, 296), (16, 40, 40, 480, 512)]


def split(pixels, channels):
    """Blocks of each range of channels, and of the last one where it has fewer: as src/ops/gpu/hopper/pointwise_backward.rs has it."""
    tiles, whole, rest = up(pixels, PIXELS), channels // RANGE, channels % RANGE
    cost = lambda width: 2 * OUT + 3 * width
    even = lambda most: up(tiles, up(tiles, min(max(most, 1), tiles)))
    splits = SMS * cost(RANGE) // (whole * cost(RANGE) + (cost(rest) if rest else 0)) if whole else 0
    return even(splits) if whole else 0, even(SMS - whole * splits) if rest else 0


def bits(t):
    return t.view(torch.int16 if t.element_size() == 2 else torch.int32)


def case(kernels, element, dtype, batch, height, width, channels, row):
    pixels = batch * height * width
    generator = torch.Generator(device="cuda").manual_seed(channels + pixels)
    normal = lambda *shape: torch.randn(*shape, generator=generator, device="cuda")
    x, s, g, z = normal(pixels, row).to(dtype), normal(pixels, row).to(dtype), normal(pixels, OUT).to(dtype), normal(pixels, OUT).to(dtype)
    packed = (normal(channels, OUT) * 0.1).to(dtype)
    norm = [normal(channels) * 0.3, normal(channels).abs() + 0.5, 1 + 0.2 * normal(channels), normal(channels), 1 + 0.3 * normal(channels)]
    of_z = [normal(OUT) * 0.3, normal(OUT).abs() + 0.5, normal(OUT) * pixels * 0.1, normal(OUT) * pixels * 0.1]
    dz = torch.empty_like(g)
    kernels[("input_gradient", (("ELEMENT", element),))]((min(up(pixels, 32), 8 * SMS), 2), 256, [g, z, *of_z, dz],
                                                         [pixels, OUT, OUT, OUT, OUT, 1.0 / pixels, 0])
    splits, last = split(pixels, channels)
    blocks = channels // RANGE * splits + last
    runs = []
    for _ in range(2):
        nan = lambda *shape: torch.full(shape, float("nan"), device="cuda")
        out, work, part, dw = s.clone(), nan(blocks * RANGE * OUT), nan(max(splits, last), 2, channels), nan(OUT, channels)
        dgamma, dbeta, s1, s2 = nan(channels), nan(channels), torch.ones(channels, device="cuda"), torch.ones(channels, device="cuda")
        kernels[("dense_pointwise_backward", (("ELEMENT", element),))](
            blocks, 512, [g, z, *of_z, packed, x, *norm, out, work, part],
            [pixels, channels, OUT, OUT, row, row, OUT, splits, last, 1.0 / pixels])
        kernels[("dense_pointwise_finish", ())](channels + up(channels, 8), 256, [work, dw, part, norm[4], dgamma, dbeta, s1, s2],
                                                [channels, splits, last, 1, 1, 0])
        torch.cuda.synchronize()
        runs.append([out, dw, part.sum(0), dgamma, dbeta, s1, s2])
    same = all(torch.equal(bits(a), bits(b)) for a, b in zip(*runs))
    out, dw, part, dgamma, dbeta, s1, s2 = runs[0]
    mean, rstd, scale, shift, gamma = [v.double() for v in norm]
    values, before = x[:, :channels].double(), s[:, :channels].double()
    normed = scale * values + shift
    grad = (dz.double() @ packed.double().T) * (normed > 0)
    want = before + gamma * grad
    half = 2.0 ** (-8 if dtype == torch.bfloat16 else -11)  # of a number's size, half a unit in its last place at the most
    off = ((out[:, :channels].double() - want).abs() / (want.abs() * half + 1e-5)).max().item()
    beta = grad.sum(0)
    scales = (grad * (values - mean) * rstd).sum(0)
    wanted = [dz.double().T @ normed.clamp(min=0).float().to(dtype).double(), torch.stack([beta, scales]), scales, beta,
              1 + gamma * beta, 1 + gamma * scales]
    far = max(((a.double() - b).norm() / b.norm().clamp(min=1)).item() for a, b in zip(runs[0][1:], wanted))
    kept = torch.equal(bits(out[:, channels:].contiguous()), bits(s[:, channels:].contiguous()))
    right = off < 1.02 and far < 1e-5 and same and kept
    print(f"{'right' if right else 'WRONG'} {element} {batch}x{height}x{width}, {channels} of {row}: S off by {off:.3f} of its rounding, "
          f"the rest by {far:.1e}, rerun {'equal' if same else 'DIFFERS'}, other channels {'kept' if kept else 'CHANGED'}", flush=True)
    return right


if __name__ == "__main__":
    SMS = torch.cuda.get_device_properties(0).multi_processor_count
    elements = {"bf16": torch.bfloat16, "f16": torch.float16}
    wanted = [("dense_pointwise_finish", ("norm_sums",), ())]
    for element in elements:
        macros = (("ELEMENT", element),)
        wanted += [("dense_pointwise_backward", ("tiles", "channels", "hopper"), macros), ("input_gradient", ("tiles", "channels"), macros)]
    kernels = launch.load(FOLDER, wanted, SHARED)
    sys.exit(not all([case(kernels, element, dtype, *sizes) for element, dtype in elements.items() for sizes in CASES]))
