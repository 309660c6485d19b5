"""Checks and times `dense_conv_forward`, the 3×3 convolution of a dense layer with its norm on Hopper, beside today's two launches.

python check_conv_forward.py; KERNELS names another folder of kernels. References are fp64 convolutions of the same rounded inputs.
"""


import torch

import launch
from launch import FOLDER, microseconds, up

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
H = ("tiles", "channels", "hopper")
ROW = [(r & ~31) + (r & 6) * 4 + (r >> 2 & 6) + (r & 1) for r in range(32)]


K = launch.load(FOLDER, [("dense_conv_forward", H, (("ELEMENT", el),)) for el in ("bf16", "f16")], {"dense_conv_forward": 168488})
old = launch.load(
    FOLDER,
    [
        (
            "conv_forward",
            ("tiles", "channels", "gemm", "conv"),
            (("ELEMENT", "bf16"), ("CHUNKED", 1), ("TILE_M", 128), ("TILE_N", 64)),
        ),
        ("norm_apply", ("tiles", "channels"), (("ELEMENT", "bf16"),)),
    ],
)
old = {n: k for (n, _), k in old.items()}
SMS = torch.cuda.get_device_properties(0).multi_processor_count


def case(el, batch, h, w, ld_y, check):
    dt = torch.bfloat16 if el == "bf16" else torch.float16
    torch.manual_seed(h * w + batch)
    p = batch * h * w
    x = torch.randn(p, 128, device="cuda").to(dt)
    sc = 1 + 0.2 * torch.randn(128, device="cuda")
    sh = 0.5 * torch.randn(128, device="cuda") + (3 if check == 2 else 0)
    wt = (0.03 * torch.randn(32, 128, 3, 3, device="cuda")).to(dt)
    row = 0
    packed = wt.permute(0, 2, 3, 1).reshape(32, 144, 8)[ROW].transpose(0, 1).contiguous()
    buf = torch.full((p, ld_y), float("nan"), device="cuda", dtype=dt)
    y = buf[:, ld_y - 32 :]
    tiles = batch * up(h, 8) * up(w, 16)
    grid = min(tiles, SMS)
    part = torch.full((grid * 65,), float("nan"), device="cuda")
    k = K[("dense_conv_forward", (("ELEMENT", el),))]
    run = lambda: k(grid, 768, [x, sc, sh, packed, y, part], [batch, h, w, 128, ld_y, row])
    run()
    torch.cuda.synchronize()
    msg = ""
    if check:
        xn = torch.relu(x.float() * sc + sh).to(dt).double().reshape(batch, h, w, 128).permute(0, 3, 1, 2)
        ref = torch.nn.functional.conv2d(xn, wt.double(), padding=1).permute(0, 2, 3, 1).reshape(p, 32)
        err = ((y.double() - ref).norm() / ref.norm()).item()
        rest = torch.isnan(buf[:, : ld_y - 32]).all().item() if ld_y > 32 else True
        P = part.double()
        cnt = P[grid * 64 :]
        m = P[: grid * 64].reshape(grid, 2, 32)
        mean = (m[:, 0] * cnt[:, None]).sum(0) / cnt.sum()
        dev = (m[:, 1] + cnt[:, None] * (m[:, 0] - mean) ** 2).sum(0)
        yd = y.double()
        rm = yd.mean(0)
        rd = ((yd - rm) ** 2).sum(0)
        a, b = y.clone(), part.clone()
        run()
        torch.cuda.synchronize()
        same = torch.equal(a, y) and torch.equal(b, part)
        msg = f" err {err:.1e} untouched {rest} count {cnt.sum().item()==p} mean {((mean-rm).abs().max()/ (rd/p).sqrt().max()).item():.1e} dev {((dev-rd).abs()/rd.clamp(min=1e-9)).max().item():.1e} rerun {same}"
    t = microseconds(lambda _: run(), 20, graph=False) if not check or h >= 80 else 0
    print(f"{el} {batch}x{h}x{w} ld {ld_y}: {t:.1f} us{msg}", flush=True)


for el in ("bf16", "f16"):
    for sz in ((3, 17, 23, 64), (2, 1, 1, 32), (5, 9, 33, 96), (64, 80, 80, 256), (8, 40, 40, 512)):
        case(el, *sz, 2 if sz[0] == 5 else 1)
for sz in ((64, 80, 80, 256), (64, 40, 40, 512), (64, 20, 20, 1024), (64, 10, 10, 1024), (8, 500, 500, 256)):
    case("bf16", *sz, 0)
    b, h, w, ld = sz
    p = b * h * w
    x = torch.randn(p, 128, device="cuda").bfloat16()
    A = torch.empty_like(x)
    y = torch.empty(p, ld, device="cuda", dtype=torch.bfloat16)
    sc = torch.ones(128, device="cuda")
    wt = torch.randn(32, 1152, device="cuda").bfloat16()
    rows = up(p, 128)
    part = torch.empty(rows * 65, device="cuda")

    def oldrun():
        old["norm_apply"]((min(up(p, 32), 8 * SMS), 2), 256, [x, sc, sc, x, A], [p, 128, 128, 128, 128, 2])
        old["conv_forward"](rows, 256, [A, wt, y, part], [b, h, w, 128, h, w, 32, 3, 3, 1, 1, 1, 1, 128, ld, 0, 1152, 1])

    print(f"today {sz}: {microseconds(lambda _: oldrun(), 20, graph=False):.1f} us", flush=True)
