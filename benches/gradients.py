"""Parameter gradients beside PyTorch's, both against fp64 on the same weights and images.

usage: python benches/gradients.py [--trainer target/release/trainer] [--only REGEX] [--precisions P…] [--images SEED] [--draws N] [--out FILE] [--smoke]

For DenseNet-121 (batch 16, 320×320) and ResNet-50 (batch 16, 224×224), with torchvision's initial weights ("fresh") and
after 100 steps of AdamW in fp32 on drawn images ("trained"): the error of each parameter's gradient, ‖g − g64‖ / ‖g64‖,
with g64 by PyTorch in fp64. Ours is `trainer bench --init … --images … --gradients …` in fp32, tf32 and bf16; PyTorch's
is fp32, TF32 and AMP bf16, the latter two channels_last. "Rounded" is fp64 arithmetic on convolution weights and images
that are rounded to the precision: the error that no kernel can avoid that reads them so. "Products" is fp64 arithmetic
in which every convolution, forward and back, is given rounded operands, and in bf16 gives rounded outputs: the error of
kernels that do nothing else wrong. "Pooled" is the same for a DenseNet whose transitions pool before their convolution, as ours
do for a quarter of the products: what is pooled is rounded once, where rounded numbers that are pooled have a smaller
error. With one draw of images either side may be nearer by chance: --draws takes N draws, and the ratio of our error of all gradients
together to PyTorch's is then the geometric mean over them, with its standard error. Tensors whose gradient vanishes
but for rounding (root mean square below 1e-3 of the median tensor's in fp64, such as the scale of a norm whose channels
are normalised again) are named and left out of what is said by tensor, not of the whole.
--smoke compares a small DenseNet in fp32 on the CPU, to see that it works.
"""
import argparse
import copy
import dataclasses
import datetime
import json
import math
import pathlib
import re
import subprocess
import tempfile

import torch
import torch.nn.functional as F
import torchvision

import safe

HERE = pathlib.Path(__file__).parent
LABELS = 14
LIMITS = {"fp32": 1e-5, "tf32": 1e-3, "bf16": 2e-2}
PEERS = {"fp32": "fp32", "tf32": "TF32 channels_last", "bf16": "AMP bf16 channels_last"}
WORSE = 1.2


@dataclasses.dataclass
class Model:
    name: str
    config: str
    batch: int
    size: int
    make: object
    settings: tuple = ()


MODELS = [
    Model("densenet121", "densenet121", 16, 320, lambda: torchvision.models.densenet121(num_classes=LABELS)),
    Model("resnet50", "resnet50", 16, 224, lambda: torchvision.models.resnet50(num_classes=LABELS)),
]
SMALL = Model(
    "small", "densenet121", 4, 64,
    lambda: torchvision.models.DenseNet(growth_rate=8, block_config=(3, 2), num_init_features=16, num_classes=LABELS),
    ("model={densenet={growth=8,blocks=[3,2],stem=16}}", 'device.use="cpu"'),
)


def draw(count, size, device, generator):
    """Smooth fields with noise, and for each label whether the field goes with a fixed pattern."""
    patterns = torch.randn(LABELS, 3 * 8 * 8, generator=torch.Generator().manual_seed(11))
    field = torch.randn(count, 3, 8, 8, generator=generator)
    labels = (field.flatten(1) @ patterns.T > 0).float()
    noise = torch.randn(count, 3, size, size, generator=generator)
    images = F.interpolate(field, size=(size, size), mode="bilinear") + 0.2 * noise
    return images.to(device), labels.to(device)


def exact():
    """fp32 as fp32 is from here on."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def train(model, size, batch, steps, device):
    generator = torch.Generator().manual_seed(5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        images, labels = draw(batch, size, device, generator)
        loss = F.binary_cross_entropy_with_logits(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return loss.item()


def bench_labels(batch, device):
    """The labels that `trainer bench` trains on."""
    return (torch.arange(batch * LABELS, device=device) % 3 == 0).float().reshape(batch, LABELS)


def gradients(model, images, autocast=None, channels_last=False):
    """By parameter, in fp64 on the CPU; and the loss. The model stays as it is."""
    model = copy.deepcopy(model).train()
    if channels_last:
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    with torch.autocast(images.device.type, torch.bfloat16, enabled=autocast is not None):
        logits = model(images)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    loss = F.binary_cross_entropy_with_logits(logits, bench_labels(len(images), images.device).to(logits.dtype))
    loss.backward()
    named = {plain(name): p.grad.detach().to("cpu", torch.float64) for name, p in model.named_parameters()}
    return named, loss.item()


def plain(name):
    """Our name of a parameter, without the head's."""
    return re.sub(r"^(fc|classifier(\.findings)?)\.", "classifier.", name)


def peer_gradients(model, images, precision):
    if precision == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    try:
        bf16 = torch.bfloat16 if precision == "bf16" else None
        return gradients(model, images, autocast=bf16, channels_last=precision != "fp32")
    finally:
        exact()


def rounded(tensor, precision):
    if precision == "bf16":
        return tensor.bfloat16().float()
    if precision == "tf32":
        return ((tensor.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    return tensor


def rounded_gradients(model, images, precision):
    model = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 4:
                parameter.copy_(rounded(parameter.contiguous(), precision))
    return gradients(model.double(), rounded(images, precision).double())


class RoundedConv2d(torch.autograd.Function):
    """A convolution in fp64 of operands that are rounded to a precision, as those of its gradients are."""

    @staticmethod
    def forward(ctx, x, weight, stride, padding, precision):
        x, weight = in_fp64(x, precision), in_fp64(weight, precision)
        ctx.save_for_backward(x, weight)
        ctx.settings = (stride, padding, precision)
        return output_in(F.conv2d(x, weight, None, stride, padding), precision)

    @staticmethod
    def backward(ctx, gradient):
        (x, weight), (stride, padding, precision) = ctx.saved_tensors, ctx.settings
        gradient = in_fp64(gradient, precision)
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = torch.nn.grad.conv2d_input(x.shape, weight, gradient, stride, padding)
            of_x = output_in(of_x, precision)
        of_weight = torch.nn.grad.conv2d_weight(x, weight.shape, gradient, stride, padding)
        return of_x, of_weight, None, None, None


def in_fp64(tensor, precision):
    return rounded(tensor.float(), precision).double()


def output_in(tensor, precision):
    """What a convolution gives, as it is stored: TF32 is stored in fp32."""
    return in_fp64(tensor, "bf16") if precision == "bf16" else tensor


def pooled_first(transition):
    return lambda x: transition.conv(transition.pool(transition.relu(transition.norm(x))))


def product_gradients(model, images, precision, pools_first=False):
    model = copy.deepcopy(model).double()
    for layer in model.modules() if pools_first else []:
        if isinstance(layer, torchvision.models.densenet._Transition):
            layer.forward = pooled_first(layer)
    for conv in model.modules():
        if isinstance(conv, torch.nn.Conv2d):
            settings = (conv.stride, conv.padding, precision)
            conv.forward = lambda x, conv=conv, settings=settings: RoundedConv2d.apply(x, conv.weight, *settings)
    model.train()
    loss = F.binary_cross_entropy_with_logits(model(images.double()), bench_labels(len(images), images.device).double())
    loss.backward()
    return {plain(name): p.grad.to("cpu", torch.float64) for name, p in model.named_parameters()}, loss.item()


def our_gradients(args, model, precision, folder):
    command = [args.trainer, "bench", str(HERE / f"configs/{model.config}.toml")]
    command += ["--init", f"{folder}/weights.safetensors", "--images", f"{folder}/images.safetensors"]
    command += ["--gradients", f"{folder}/gradients.safetensors"]
    keys = [f"memory.precision=\"{precision}\"", f"train.batch_size={model.batch}"]
    keys += [f"data.image.size=[{model.size},{model.size}]", *model.settings]
    for key in keys:
        command += ["--set", key]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    if done.returncode:
        return None, done.stderr.strip().splitlines()[0][:300]
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert said["fresh"] == [], said["fresh"]
    read = safe.read(f"{folder}/gradients.safetensors")
    return ({plain(name): tensor.double() for name, tensor in read.items()}, said["loss"]), said["device"]


def vanishing(reference):
    size = {name: (g.norm() / g.numel() ** 0.5).item() for name, g in reference.items()}
    median = sorted(size.values())[len(size) // 2]
    return [name for name in reference if size[name] < 1e-3 * median]


def errors(found, reference):
    assert found.keys() == reference.keys(), found.keys() ^ reference.keys()
    left_out = vanishing(reference)
    each = {name: ((found[name] - g).norm() / g.norm()).item() for name, g in reference.items()}
    return {name: error for name, error in each.items() if name not in left_out}


def summary(found, loss, reference, precision):
    each = errors(found, reference)
    worst = max(each, key=each.get)
    ordered = sorted(each.values())
    a, b = flat(found, reference), flat(reference, reference)
    return {
        "whole": whole(found, reference),
        "cosine": (a @ b / (a.norm() * b.norm())).item(),
        "median": ordered[len(ordered) // 2],
        "worst": each[worst],
        "worst_name": worst,
        "within": sum(error <= LIMITS[precision] for error in ordered),
        "loss": loss,
    }


def flat(gradients, reference):
    """All gradients in the reference's order."""
    return torch.cat([gradients[name].flatten() for name in reference])


def whole(found, reference):
    """The error of all gradients together."""
    a, b = flat(found, reference), flat(reference, reference)
    return ((a - b).norm() / b.norm()).item()


def draw_images(model, seed, device):
    return draw(model.batch, model.size, device, torch.Generator().manual_seed(seed))[0]


def further_draws(args, model, network, device, precisions, folder):
    """By precision, our error and PyTorch's of all gradients together for each draw of images after the first."""
    found = {precision: [] for precision in precisions}
    for seed in range(args.images + 1, args.images + args.draws):
        images = draw_images(model, seed, device)
        reference, _ = gradients(copy.deepcopy(network).double(), images.double())
        safe.write(f"{folder}/images.safetensors", {"images": images})
        for precision in precisions:
            theirs, _ = peer_gradients(network, images, precision)
            mine, said = our_gradients(args, model, precision, folder)
            assert mine, said
            found[precision].append([whole(mine[0], reference), whole(theirs, reference)])
    return found


def ratio(draws):
    """The geometric mean of ours to PyTorch's and its standard error, which one draw has not."""
    logs = [math.log(ours / theirs) for ours, theirs in draws]
    mean = sum(logs) / len(logs)
    if len(logs) == 1:
        return math.exp(mean), None
    spread = math.sqrt(sum((log - mean) ** 2 for log in logs) / (len(logs) - 1) / len(logs))
    return math.exp(mean), math.exp(mean) * spread


def compare(args, model, kind, device, precisions):
    exact()
    torch.manual_seed(0)
    network = model.make().to(device).train()
    if kind == "trained":
        loss = train(network, model.size, model.batch, 5 if args.smoke else 100, device)
        print(f"{model.name}: loss {loss:.4f} after training", flush=True)
    images = draw_images(model, args.images, device)
    reference, loss64 = gradients(copy.deepcopy(network).double(), images.double())
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        floats = {n: t for n, t in network.state_dict().items() if t.is_floating_point()}
        safe.write(f"{folder}/weights.safetensors", {re.sub(r"^fc\.", "classifier.", n): t for n, t in floats.items()})
        more = further_draws(args, model, network, device, precisions, folder)
        safe.write(f"{folder}/images.safetensors", {"images": images})
        for precision in precisions:
            theirs = peer_gradients(network, images, precision)
            floor = rounded_gradients(network, images, precision)
            products = product_gradients(network, images, precision)
            pooled = product_gradients(network, images, precision, pools_first=True)
            if device == "cuda":
                torch.cuda.empty_cache()
            mine, said = our_gradients(args, model, precision, folder)
            row = {
                "case": f"{model.name}-b{model.batch}-s{model.size}-{precision}-{kind}-gradients",
                "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
                "command": f"python benches/gradients.py --images {args.images} --draws {args.draws}",
                "tensors": len(reference),
                "vanishing": vanishing(reference),
                "limit": LIMITS[precision],
                "loss_fp64": loss64,
                "ours": summary(*mine, reference, precision) if mine else {"whole": None, "error": said},
                "peer": {"name": f"PyTorch {torch.__version__} {PEERS[precision]}", **summary(*theirs, reference, precision)},
                "rounded": summary(*floor, reference, precision),
                "products": summary(*products, reference, precision),
                "pooled": summary(*pooled, reference, precision),
            }
            if mine:
                own, other = errors(mine[0], reference), errors(theirs[0], reference)
                row["worse"] = sum(own[name] > WORSE * other[name] for name in own)
                row["better"] = sum(other[name] > WORSE * own[name] for name in own)
                row["draws"] = [[row["ours"]["whole"], row["peer"]["whole"]], *more[precision]]
                row["ratio"], row["ratio_error"] = ratio(row["draws"])
            rows.append(row)
            print(line(row), flush=True)
    return rows


def line(row):
    def figures(side):
        if side["whole"] is None:
            return side["error"].split(":")[-1].strip()[:60] + " | | |"
        return f"{side['whole']:.1e} | {side['median']:.1e} | {side['worst']:.1e} | {side['within']}"

    case = row["case"].removesuffix("-gradients")
    counts = f"{row.get('worse', '')} / {row.get('better', '')} of {row['tensors'] - len(row['vanishing'])}"
    return f"| {case} | {figures(row['ours'])} | {figures(row['peer'])} | {row['rounded']['whole']:.1e} | {row['products']['whole']:.1e} | {row['pooled']['whole']:.1e} | {counts} | {ratio_of(row)} |"


def ratio_of(row):
    if "ratio" not in row:
        return ""
    spread = row["ratio_error"]
    return f"{row['ratio']:.3f}" + ("" if spread is None else f" ± {spread:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--only", default="", help="of <model>-<fresh or trained>, what this regular expression is found in")
    parser.add_argument("--precisions", nargs="+", default=list(LIMITS), choices=list(LIMITS))
    parser.add_argument("--images", type=int, default=3, help="the seed of the images that gradients are compared on")
    parser.add_argument("--draws", type=int, default=1, help="of images, with this seed and those that follow it")
    parser.add_argument("--out")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    device = "cpu" if args.smoke else "cuda"
    precisions = ["fp32"] if args.smoke else args.precisions
    print("Relative errors against fp64: of all gradients together, the median tensor's, the worst tensor's; tensors within the limit.")
    print("| case | ours | median | worst | within | PyTorch | median | worst | within | rounded | products | pooled | ours over / under 1.2 × PyTorch's | ours to PyTorch's |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    rows = []
    for model in [SMALL] if args.smoke else MODELS:
        for kind in ("fresh", "trained"):
            if re.search(args.only, f"{model.name}-{kind}"):
                rows += compare(args, model, kind, device, precisions)
    name = re.sub(r"[^a-z0-9]+", "-", rows[0]["device"].lower()).strip("-").removeprefix("nvidia-")
    out = pathlib.Path(args.out or HERE / "results" / f"{datetime.date.today()}-{name}-gradients.json")
    out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
