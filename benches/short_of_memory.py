"""Whether steps are taken with less wherever a card has less memory than `memory.budget` says, without a card: on the driver of
benches/stub_cuda.c, which says how it is built.

    python3 benches/short_of_memory.py --trainer target/release/trainer --stub stub > benches/results/DATE-stub-short-of-memory.log

The program must have been built with CUDA. Each row is `trainer bench` with `micro_batch = "auto"` and a budget that the steps keep
within, on a card with so much memory free. Where one image at a time finds no memory, the program ends with exit code 4. Ends with
exit code 1 where it did so with more memory than that with which it took steps.
"""

import argparse
import json
import subprocess
import sys
import tempfile

import stub

# Configuration, settings, a budget that is written, MiB that are free.
LARGE = ['data.image={size=[2000,2000],channels=1}', "model.densenet.depth=169", "train.batch_size=8"]
ADAMW = ["train.optimizer={adamw={lr=1e-3}}"]
CASES = [
    ("benches/configs/densenet121.toml", LARGE + ADAMW, "10GiB", range(700, 5000, 100)),
    ("benches/configs/densenet121.toml", LARGE, "10GiB", range(700, 5000, 300)),
    ("benches/configs/densenet121.toml", ADAMW, "3GiB", range(300, 2200, 100)),
    ("benches/configs/densenet121.toml", [*ADAMW, "train.ema.decay=0.9"], "3GiB", range(300, 620, 20)),
    ("benches/configs/resnet50.toml", ADAMW, "4GiB", range(500, 3000, 200)),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--stub", default="stub")
    given = parser.parse_args()
    wrong = 0
    print("| case | free, MiB | taken | held, MiB | images at once, after so many tries |\n|---|--:|---|--:|---|")
    with tempfile.TemporaryDirectory() as home:
        for config, settings, budget, free in CASES:
            sets = ['device.use="cuda"', 'memory.micro_batch="auto"', f'memory.budget="{budget}"', *settings]
            command = [given.trainer, "bench", config, "--steps", "5", *(word for key in sets for word in ("--set", key))]
            suffices = False
            for mebibytes in free:
                environment = stub.environment(given.stub, home, STUB_FREE=mebibytes)
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                row = f"| {config} {' '.join(settings)} | {mebibytes} |"
                if done.returncode == 0:
                    suffices = True
                    report = json.loads(done.stdout.strip().splitlines()[-1])
                    tries = report["backoffs"]
                    images = tries[-1]["to"] if tries else "as planned"
                    print(f"{row} yes | {report['ours']['reserved'] / 2**20:,.0f} | {images}, {len(tries)} |", flush=True)
                    continue
                wrong += suffices or done.returncode != 4
                print(f"{row} {'**no**' if suffices else 'no'}, exit code {done.returncode} | | |", flush=True)
    print(f"\n{wrong} ended for want of memory that had sufficed")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
