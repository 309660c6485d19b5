"""Kills runs on a card, fills its memory and lets one run go on for long: judged by equality of bits.

usage: python benches/torture_gpu.py [--trainer target/release/trainer] [--device cuda] [--kills 6] [--steps 10000] [--seed 1]
                                     [--faults cuda_faults.so] [--only kills,back-off,memory,lost,long]

The same as the torture suite (src/torture) does on the CPU, for what only a card shows. Each case is a small run with
dropout of a head, augmentation, AdamW, an average of the weights and a schedule. It ends once undisturbed. Then it is
killed (SIGKILL) at random moments of its training and resumed, again and again, until it has ended: weights, average,
optimizer and every number told must have the same bits. `back-off` runs with the card filled by another process
as soon as training has begun, so that it computes more again or takes fewer images at once. With a library made
from benches/cuda_faults.c the driver refuses each of the allocations of a run, once or for good, and the card is lost
at moments spread over the run. Then one run goes on for so many steps, and its memory (the card's and the host's) in
the last quarter is held against the second.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

CONFIG = """
[run]
name = "{name}"
output = "{folder}"
seed = 3
log_every = 1
pictures = 0
save = {{ every_steps = 2, every_minutes = 0.0, keep = 2 }}
[device]
use = "{device}"
[data]
image = {{ size = [{size}, {size}], channels = 1 }}
validation = {{ fraction = 0.2 }}
augment = {{ rotate_degrees = 10.0, horizontal_flip = 0.5, noise = 0.02, mixup = 0.5 }}
[data.phantom]
root = "{folder}/data"
patients = {patients}
size = 64
seed = 1
[model.densenet]
growth = {growth}
blocks = {blocks}
stem = {stem}
norm = "{norm}"
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Cardiomegaly", "Pleural Effusion", "Support Devices"]
dropout = 0.1
[[heads]]
name = "view"
task = "multiclass"
labels = ["PA", "AP", "Lateral"]
weight = 0.1
[train]
epochs = {epochs}
batch_size = {batch}
clip_norm = 1.0
ema = {{ decay = 0.9 }}
[train.optimizer.adamw]
lr = 3e-3
[train.schedule.plateau]
metric = "val/loss"
patience = 0
min_delta = 0.01
[memory]
{memory}
"""

SMALL = {"size": 64, "growth": 8, "blocks": [2, 2], "stem": 16, "norm": "batch", "batch": 16, "patients": 60, "epochs": 4,
         "memory": ""}
CASES = {
    "fused": {},
    "fused, bf16": {"memory": 'precision = "bf16"'},
    "unfused": {"norm": "group"},
    "offload": {"norm": "group", "memory": 'checkpointing = "every"\noffload = "host"\noffload_optimizer = true'},
    "auto": {"memory": 'micro_batch = "auto"\nbudget = "{budget}"'},
}
# What a step keeps of it is more than a gigabyte.
LARGE = {"size": 128, "growth": 16, "blocks": [4, 4, 4], "stem": 32, "batch": 64, "patients": 200, "epochs": 3}

# Takes all of the card but so many MiB when a line comes, and keeps it until the end of the input.
BALLAST = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *rest):
    code = getattr(cuda, name)(*rest)
    if code:
        raise SystemExit(f"{name}: {code}")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
print("ready", flush=True)
sys.stdin.readline()
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
held, block = 0, ctypes.c_void_p()
for size in (2**30, 2**26, 2**21):
    while free.value - held - size > int(sys.argv[1]) * 2**20 and not cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size)):
        held += size
print("holds", held // 2**20, "MiB", flush=True)
sys.stdin.read()
"""


class Place:
    """A run of a configuration in a folder of its own; all have the same images."""

    def __init__(self, args, parent, name, settings):
        self.args, self.run = args, parent / name
        values = {**SMALL, **settings}
        values["memory"] = values["memory"].replace("{budget}", "8GiB" if args.device == "cuda" else "2GiB")
        self.config = parent / f"{name}.toml"
        text = CONFIG.format(name=name, folder=parent, device=args.device, **values)
        self.config.write_text(text.replace(f"{parent}/data", f"{parent}/data-{values['patients']}"))

    def start(self, **faults):
        """Starts or resumes it, with `faults` as benches/cuda_faults.c takes them."""
        command = [self.args.trainer, "-q", "run", self.config]
        command += ["--resume"] if self.run.exists() else []
        faults = {f"CUDA_FAULT_{name.upper()}": str(value) for name, value in faults.items()}
        loaded = {"LD_PRELOAD": self.args.faults, **faults} if faults else {}
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, **loaded})

    def finish(self, process):
        try:
            told = process.communicate(timeout=40)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{self.config.stem}: has not ended in 40 s") from None
        if process.returncode:
            raise AssertionError(f"{self.config.stem}: exit {process.returncode}: {told[-1500:]}")

    def events(self):
        file = self.run / "metrics.jsonl"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [json.loads(line) for line in lines]

    def steps(self):
        return sum(event["event"] == "step" for event in self.events())

    def result(self):
        """What must be equal, as in tests/support."""
        names = [f"{state}/{file}.safetensors" for state in ("last", "best") for file in ("weights", "average", "optimizer")]
        files = {name: (self.run / name).read_bytes() for name in names}
        position = json.loads((self.run / "last/state.json").read_text())
        for other in ("seconds", "epoch_seconds", "metrics_bytes", "memory", "memory_config"):
            position.pop(other, None)
        told = [event for event in self.events() if event["event"] in ("step", "epoch")]
        for event in told:
            for timed in ("seconds", "images_per_second", "devices", "memory"):
                event.pop(timed, None)
        return files, position, told

    def back_offs(self):
        return [(event["step"], event["advice"].split(":")[0].split(",")[0][-60:])
                for event in self.events() if event["event"] == "out_of_memory"]


def differs(ours, exact):
    """Where two results differ."""
    found = [name for name in exact[0] if ours[0][name] != exact[0][name]]
    found += [f"state.json {key}" for key in exact[1] if ours[1].get(key) != exact[1][key]]
    return found + (["metrics.jsonl"] if ours[2] != exact[2] else [])


def kill_and_resume(place, kills, seconds, chance):
    """Kills it at random moments of its training until it has ended; returns the kills and where they struck."""
    struck = []
    while len(struck) < kills:
        before = place.steps()
        process = place.start()
        while place.steps() <= before and process.poll() is None:
            time.sleep(0.005)
        deadline = time.monotonic() + chance.uniform(0, seconds * 0.5)
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.001)
        if process.poll() is not None:
            place.finish(process)
            break
        process.kill()
        process.communicate()
        struck.append(place.steps())
    if not place.events() or place.events()[-1]["event"] != "end":
        place.finish(place.start())
    return struck


def killed(args, parent, name, settings, number):
    """A case: the run undisturbed, then killed and resumed."""
    chance = random.Random(f"{args.seed} {name}")
    whole = Place(args, parent, f"whole-{number}", settings)
    process = whole.start()
    while not whole.steps() and process.poll() is None:
        time.sleep(0.005)
    begin = time.monotonic()
    whole.finish(process)
    length = time.monotonic() - begin
    expected, struck, found, runs = whole.result(), [], [], 0
    while len(struck) < args.kills:
        place = Place(args, parent, f"killed-{number}-{runs}", settings)
        more = kill_and_resume(place, args.kills - len(struck), length, chance)
        struck += more
        found += differs(place.result(), expected)
        runs += 1
    print(f"| kills at random moments: {name} | {len(struck)} in {runs} runs of {len(expected[2])} steps and epochs "
          f"| {verdict(found)} |", flush=True)
    return not found


def verdict(found):
    return "the same bits" if not found else f"DIFFERS: {sorted(set(found))}"


def with_ballast(place, spare):
    """Starts the run and fills the card but `spare` MiB once its first lines are told; both processes."""
    ballast = subprocess.Popen([sys.executable, "-c", BALLAST, str(spare)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert ballast.stdout.readline().strip() == "ready"
    process = place.start()
    while not place.events() and process.poll() is None:
        time.sleep(0.001)
    ballast.stdin.write("\n")
    ballast.stdin.flush()
    held = ballast.stdout.readline().strip()
    return process, ballast, held


def release(ballast):
    ballast.stdin.close()
    ballast.wait()


def backed_off(args, parent, norm, spare):
    """Runs that are short of memory on a filled card, and such that are also killed and resumed on a free card."""
    settings = {**LARGE, "norm": norm}
    # The card fills at a moment that is not the same in each run, and fewer images at once are other numbers from
    # that step on: judged are two runs that have backed off in the same way and in the same steps.
    undisturbed, disturbed, struck = {}, {}, 0
    for number in range(8):
        whole = Place(args, parent, f"back-off-{norm}-{spare}-{number}", settings)
        process, ballast, held = with_ballast(whole, spare)
        try:
            whole.finish(process)
        except AssertionError as error:
            # Less than one image needs is an error that says so.
            ok = "exit 4" in str(error)
            print(f"| card filled but {spare} MiB ({held}): norm {norm} | 1 | {str(error).split(': ', 1)[1][:160]!r} |", flush=True)
            return ok
        finally:
            release(ballast)
        undisturbed[str(whole.back_offs())] = whole.result()

        # Killed behind all that the undisturbed run did without memory.
        place = Place(args, parent, f"back-off-killed-{norm}-{spare}-{number}", settings)
        process, ballast, _ = with_ballast(place, spare)
        last = max([step for step, _ in whole.back_offs()], default=0)
        while place.steps() < last + 3 and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        process.communicate()
        release(ballast)
        if place.events()[-1]["event"] != "end":
            struck += 1
            place.finish(place.start())
        disturbed[str(place.back_offs())] = place.result()
        if same := sorted(undisturbed.keys() & disturbed.keys()):
            break
    name = f"card filled but {spare} MiB ({held}), then killed and resumed on a free card: norm {norm}"
    if not same:
        print(f"| {name} | {struck} kills in {number + 1} runs | NOT JUDGED: {list(undisturbed)} and {list(disturbed)} |", flush=True)
        return False
    found = differs(disturbed[same[0]], undisturbed[same[0]])
    print(f"| {name}; {same[0]} | {struck} kills in {number + 1} runs | {verdict(found)} |", flush=True)
    return not found


def count_calls(args, parent):
    """A run that no fault befalls: its result, its allocations and its calls of the driver that are counted."""
    place = Place(args, parent, "counted", {"epochs": 2})
    file = parent / "count"
    place.finish(place.start(count=file))
    allocations, calls = map(int, file.read_text().split())
    return place.result(), allocations, calls


def faulted(args, parent, name, expected, **fault):
    """A run with a fault, then resumed without one until its end: exit code, what it told, whether it backed off and
    where it differs."""
    place = Place(args, parent, name, {"epochs": 2})
    process = place.start(**fault)
    try:
        told = process.communicate(timeout=60)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return None, "has not ended in 60 s", False, []
    back_offs = place.back_offs()
    if process.returncode:
        place.finish(place.start())
    return process.returncode, told, bool(back_offs), differs(place.result(), expected)


def refused_memory(args, parent, counted, pool):
    """Each allocation of a run is refused: alone, with the two after it, and with all after it."""
    expected, allocations, _ = counted
    lengths = {"it alone": 0, "it and the next two": 2, "it and all later ones": 10**6}
    tries = [(length, first) for length in lengths for first in range(1, allocations + 1)]

    def attempt(case):
        length, first = case
        return faulted(args, parent, f"refused-{first}-{lengths[length]}", expected, memory=f"{first}-{first + lengths[length]}")

    outcomes, sound = list(zip(tries, pool.map(attempt, tries))), True
    for length in lengths:
        came, wrong = {}, []
        for (of, first), (code, told, backed_off_once, different) in outcomes:
            if of != length:
                continue
            fewer = "no room" in told
            good = code == 0 or code == 4 and "What would fit" in told or code == 4 and "= help" in told
            # Fewer images at once are other numbers where norms are taken over them.
            good &= not different or fewer
            what = {0: "went on", 4: "ended with exit 4 and advice"}.get(code, f"exit {code}")
            what += ", fewer images at once" if fewer else ", more computed again" if backed_off_once else ""
            came[what] = came.get(what, 0) + 1
            if not good:
                wrong.append((first, code, told[:600], different))
        sound &= not wrong
        told = ", ".join(f"{count} {what}" for what, count in came.items())
        print(f"| allocation refused: {length} | {sum(came.values())} | {told}; resumed: "
              f"{'the same bits' if not wrong else f'WRONG: {wrong}'} |", flush=True)
    return sound


# Errors of the driver after which nothing on the card goes on: an address that is not there, a fault of a kernel, memory
# with an error that cannot be corrected, a card that is not to be had, and one that has fallen off the bus.
LOST = {700: "CUDA_ERROR_ILLEGAL_ADDRESS", 719: "CUDA_ERROR_LAUNCH_FAILED", 214: "CUDA_ERROR_ECC_UNCORRECTABLE",
        46: "CUDA_ERROR_DEVICE_UNAVAILABLE", 999: "CUDA_ERROR_UNKNOWN"}


def lost_card(args, parent, counted, pool):
    """The card answers with an error from some call on, spread over the run."""
    expected, _, calls = counted
    share = max(1, calls // args.moments)
    chance = random.Random(args.seed)
    tries = [(code, first + chance.randrange(share)) for code in LOST for first in range(1, calls - share, share)]

    def attempt(case):
        code, first = case
        return faulted(args, parent, f"lost-{code}-{first}", expected, lost=f"{first}:{code}")

    outcomes, sound = list(zip(tries, pool.map(attempt, tries))), True
    for code, name in LOST.items():
        ends, wrong, count = {}, [], 0
        for (of, first), (end, told, _, different) in outcomes:
            if of != code:
                continue
            count += 1
            ends[end] = ends.get(end, 0) + 1
            # After training has ended, only the report lacks something.
            named = end == 0 or end == 6 and name in told and "--resume" in told and "defect" not in told
            if not named or different:
                wrong.append((first, end, told[:600], different))
        sound &= not wrong
        told = ", ".join(f"{number} with exit {end}" for end, number in sorted(ends.items(), key=str))
        print(f"| card lost: {name} | {count} | {told}; resumed: {'the same bits' if not wrong else f'WRONG: {wrong}'} |",
              flush=True)
    return sound


def resident(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))


def steps_without_growth(args, parent):
    """One run of many steps: its memory by the quarter."""
    place = Place(args, parent, "long", {"epochs": 100000, "batch": 2, "patients": 400})
    text = place.config.read_text().replace("every_steps = 2", "every_steps = 500").replace("log_every = 1", "log_every = 50")
    # Images wait in memory, so that there are many steps.
    text = "\n".join('cache = "memory"' if line.startswith("augment") else line for line in text.split("\n"))
    place.config.write_text(text)
    process, samples = place.start(), []
    epochs = lambda: [event for event in place.events() if event["event"] == "epoch"]
    while process.poll() is None and not (epochs() and epochs()[-1]["step"] >= args.steps):
        for _ in range(5):
            if place.steps() and process.poll() is None:
                samples.append(resident(process.pid))
            time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    told = process.communicate()[1]
    assert process.returncode == 143, told
    quarter = lambda values, number: max(values[len(values) * number // 4:len(values) * (number + 1) // 4])
    rows = {"host, resident": samples}
    for key in ("live", "reserved", "smi", "peak"):
        values = [epoch["memory"].get(key) for epoch in epochs()]
        if values and None not in values:
            rows[f"device, {key}"] = values
    parts = [f"{name} {quarter(v, 1) / 2**20:.1f} → {quarter(v, 3) / 2**20:.1f} MiB" for name, v in rows.items()]
    grown = [name for name, v in rows.items() if quarter(v, 3) > quarter(v, 1) * 1.03]
    print(f"| one run of {epochs()[-1]['step']} steps and {len(epochs())} epochs, second → last quarter | 1 | "
          f"{'; '.join(parts)}{'; GROWN: ' + str(grown) if grown else ''} |", flush=True)
    return not grown


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainer", default="target/release/trainer")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--faults", help="benches/cuda_faults.c, compiled")
    parser.add_argument("--moments", type=int, default=8, help="at which a card is lost with each error")
    parser.add_argument("--only", default="kills,back-off,memory,lost,long")
    parser.add_argument("--spare", default="700,300")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=5)
    args = parser.parse_args()
    args.trainer = os.path.abspath(args.trainer)
    args.faults = args.faults and os.path.abspath(args.faults)
    only = args.only.split(",")
    begin, sound = time.monotonic(), []
    print("| what | tried | what came of it |\n|---|---:|---|", flush=True)

    def attempt(work, *rest):
        try:
            return work(args, parent, *rest)
        except Exception as error:  # One case that breaks must not hide the others.
            print(f"| {rest[:1]} | | BROKEN: {error!r} |", flush=True)
            return False

    with tempfile.TemporaryDirectory() as folder:
        parent = pathlib.Path(folder)
        # Draws the images, and compiles kernels where none are kept.
        first = Place(args, parent, "first", {"epochs": 1})
        first.finish(first.start())
        with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
            if "kills" in only:
                cases = enumerate(CASES.items())
                sound += pool.map(lambda case: attempt(killed, case[1][0], case[1][1], case[0]), cases)
            if args.device == "cuda" and args.faults:
                counted = count_calls(args, parent)
                sound += [attempt(refused_memory, counted, pool)] if "memory" in only else []
                sound += [attempt(lost_card, counted, pool)] if "lost" in only else []
        if args.device == "cuda" and "back-off" in only:
            for spare in map(int, args.spare.split(",")):
                sound.append(attempt(backed_off, "group" if spare % 200 else "batch", spare))
        if "long" in only:
            sound.append(attempt(steps_without_growth))
    print(f"{sum(sound)} of {len(sound)} rows sound, {time.monotonic() - begin:.0f} s")
    sys.exit(0 if all(sound) else 1)


if __name__ == "__main__":
    main()
