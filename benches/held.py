"""What a process holds of an H100 beside what it uses, for many ways to take a step, without a card: on the driver of
benches/stub_cuda.c.

    mkdir stub && gcc -O2 -shared -fPIC -Wl,-soname,libcuda.so -o stub/libcuda.so benches/stub_cuda.c && ln -s libcuda.so stub/libnvrtc.so
    python3 benches/held.py --trainer target/release/trainer --stub stub > benches/results/DATE-stub-held.log

The program must have been built with CUDA. Of each case: the most bytes in use at any launch, as measured and estimated; the pages that
the allocator took, as measured and estimated (with the batch that `trainer bench` keeps); pages over use.
"""

import argparse
import json
import os
import subprocess
import tempfile

import stub

DENSENET, RESNET, CIFAR = (f"benches/configs/{name}.toml" for name in ("densenet121", "resnet50", "resnet110"))
LARGE = ["data.image={size=[2000,2000],channels=1}", "model.densenet.depth=169", "train.batch_size=8", "train.optimizer={adamw={lr=1e-3}}"]
SHARE = 'memory.dense_layers="share"'


def memory(**settings):
    return [f"memory.{key}={json.dumps(value)}" for key, value in settings.items()]


CASES = [
    (DENSENET, []),
    (DENSENET, [SHARE]),
    (DENSENET, memory(micro_batch=16)),
    (DENSENET, memory(micro_batch=16) + [SHARE]),
    *((DENSENET, [f"train.batch_size={images}"] + more) for images in (4, 8, 16, 32) for more in ([], [SHARE])),
    *((DENSENET, memory(precision=precision)) for precision in ("tf32", "fp32", "fp16", "half")),
    *((DENSENET, memory(checkpointing=policy) + more) for policy in ("sqrt", "every") for more in ([], [SHARE])),
    (DENSENET, memory(precision="fp32") + [SHARE]),
    (DENSENET, ["model.densenet.depth=201"]),
    (DENSENET, ['train.optimizer={adamw={lr=1e-3}}']),
    (DENSENET, ['model.densenet.norm="group"', "train.batch_size=32"]),
    (DENSENET, ['model.densenet.norm="group"', "train.batch_size=32", 'memory.precision="fp32"']),
    (DENSENET, ["model.densenet.dropout=0.2", "train.batch_size=32"]),
    (DENSENET, ["train.batch_size=16", 'memory.offload="host"']),
    (DENSENET, ["train.batch_size=16", "memory.offload_optimizer=true", "train.optimizer={adamw={lr=1e-3}}"]),
    (DENSENET, LARGE),
    (DENSENET, LARGE + [SHARE]),
    (DENSENET, LARGE + [SHARE] + memory(checkpointing="every")),
    (DENSENET, LARGE + [SHARE] + memory(micro_batch=4)),
    *((RESNET, memory(precision=precision)) for precision in ("bf16", "fp32", "tf32", "fp16")),
    *((RESNET, [f"train.batch_size={images}"]) for images in (8, 16, 32)),
    *((RESNET, memory(checkpointing=policy)) for policy in ("sqrt", "every")),
    (RESNET, memory(micro_batch=16)),
    (RESNET, ['model.resnet.norm="group"']),
    (RESNET, ["model.resnet.depth=18"]),
    (RESNET, ["model.resnet.depth=152"]),
    (CIFAR, []),
    (CIFAR, memory(checkpointing="sqrt")),
    ("configs/quickstart.toml", []),
    ("configs/experiments/06_linear_stack.toml", memory(checkpointing="none")),
    ("configs/experiments/11_cnn_regression_large.toml", []),
]


def run(given, config, settings):
    with tempfile.TemporaryDirectory() as home:
        log = os.path.join(home, "log")
        sets = [word for setting in ['device.use="cuda"', *settings] for word in ("--set", setting)]
        command = [given.trainer, "bench", config, *sets, "--steps", str(given.steps)]
        done = subprocess.run(command, env=stub.environment(given.stub, home, STUB_LOG=log), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[0] if done.stderr.strip() else f"exit code {done.returncode}")
        with open(log, encoding="utf-8") as file:
            return json.loads(done.stdout.strip().splitlines()[-1])["ours"], json.loads(file.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--stub", default="stub")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--only", default="", help="cases that this text is in")
    given = parser.parse_args()
    print("| case | in use, MiB | estimated | pages | estimated | pages over use |\n|---|--:|--:|--:|--:|--:|")
    for config, settings in CASES:
        case = " ".join([os.path.basename(config).removesuffix(".toml"), *settings])
        if given.only not in case:
            continue
        try:
            ours, log = run(given, config, settings)
        except RuntimeError as error:
            print(f"| {case} | {error} |", flush=True)
            continue
        estimated = ours["predicted_held"]
        numbers = [ours["peak"], ours["predicted_peak"], log["held"], estimated]
        cells = ["" if number is None else f"{number / 2**20:,.0f}" for number in numbers]
        print(f"| {case} | {' | '.join(cells)} | {log['held'] / ours['peak']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
