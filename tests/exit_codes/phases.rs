//! Every signal that a user or a scheduler sends, in every phase of a command: the exit code, what is there then, and
//! whether it goes on. The table is that of docs/reliability.md; with `--nocapture` it is printed.
//!
//! The program is stopped (SIGSTOP) while it is looked whether it has come to the phase, so that it is there when the
//! signal comes.

use std::os::unix::process::ExitStatusExt;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, setrlimit};

use super::*;

/// A second as a rule; more only where other tests take the cores.
const SOON: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    One(Signal),
    /// Ctrl-C, and once more.
    Twice,
}

/// Those that the program heeds first.
const SENT: [(&str, Sent); 8] = [
    ("SIGINT", Sent::One(Signal::INT)),
    ("SIGINT twice", Sent::Twice),
    ("SIGTERM", Sent::One(Signal::TERM)),
    ("SIGHUP", Sent::One(Signal::HUP)),
    ("SIGQUIT", Sent::One(Signal::QUIT)),
    ("SIGUSR1", Sent::One(Signal::USR1)),
    ("SIGKILL", Sent::One(Signal::KILL)),
    ("SIGPIPE", Sent::One(Signal::PIPE)),
];

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Code(i32),
    /// The system ended it. A shell says 128 and the number.
    By(i32),
}

impl End {
    fn of(status: ExitStatus) -> Self {
        status.code().map_or_else(|| Self::By(status.signal().unwrap_or(0)), Self::Code)
    }

    fn shown(self) -> String {
        match self {
            Self::Code(code) => code.to_string(),
            Self::By(signal) => format!("signal {signal}"),
        }
    }
}

/// What a signal that the program heeds does in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heeded {
    /// The program ends with the signal's exit code.
    Yes,
    /// The same, or it is done before: there was little left to do.
    OrDone,
    /// The same, or the system ends it: it may not listen yet.
    OrBySystem,
    /// The system ends the program: nothing needs undoing.
    BySystem,
}

/// What the program is doing when the signal comes.
struct Phase {
    name: &'static str,
    heeded: Heeded,
    /// The command, in a folder of its own.
    command: fn(&Path, &Given) -> Command,
    /// Whether the process of this number has come to that.
    is_there: fn(&Path, u32) -> bool,
    /// Whether it ends by itself in a second.
    is_short: bool,
    /// Looks at what is there after this end, and says in a word what that is. `true`: it was asked to end.
    left: fn(&Path, &Given, bool) -> &'static str,
}

/// What phases share.
struct Given {
    /// Radiographs that are drawn already.
    data: PathBuf,
    /// An ended run.
    run: PathBuf,
    /// What an undisturbed run comes to.
    expected: support::Result,
    /// Many images.
    many: PathBuf,
    /// A table that takes long to read.
    table: PathBuf,
    /// Weights that take long to read.
    weights: PathBuf,
}

/// Bytes of the files that take a while: seconds for the table, since the program waits for most of a second for what
/// heeds a signal by itself.
const LONG: u64 = 4 << 20;
const TABLE: u64 = 32 << 20;
const WEIGHTS: u64 = 64 << 20;

const FAILED: &str = "FAILED";

const SHORT: [&str; 6] =
    ["--set", "train.epochs=2", "--set", "run.log_every=1", "--set", "data.workers=1"];
const ENDLESS: [&str; 4] = ["--set", "train.epochs=5000", "--set", "run.save.every_steps=2"];

impl Given {
    fn new(folder: &Path) -> Self {
        let data = folder.join("data");
        let config = support::write_config(folder, &data);
        let mut command = trainer(&["run", shown(&config)]);
        assert!(command.args(SHORT).status().expect("starts").success());
        let run = folder.join("tiny");
        let one = ended::picture(&data).expect("has a picture");
        let many = folder.join("many");
        fs::create_dir(&many).expect("is made");
        for number in 0..1500 {
            fs::hard_link(&one, many.join(format!("{number}.png"))).expect("is linked");
        }
        let table = folder.join("table.csv");
        let row = |number: usize| format!("{number}.png,p{number},{}\n", number % 2);
        let rows: String = (0..TABLE as usize / 18).map(row).collect();
        fs::write(&table, format!("file,p,Cardiomegaly\n{rows}")).expect("writes");
        let weights = folder.join("fat.safetensors");
        let header = format!(
            r#"{{"features.conv0.weight":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{WEIGHTS}]}}}}"#,
            WEIGHTS / 4
        );
        let header = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        fs::write(&weights, &header).expect("writes");
        let file = File::options().write(true).open(&weights).expect("opens");
        file.set_len(header.len() as u64 + WEIGHTS).expect("is lengthened");
        let expected = support::Result::of(&run);
        Self { data, run, expected, many, table, weights }
    }

    /// `command` on the configuration in `folder`, its radiographs drawn already.
    fn command(&self, folder: &Path, command: &[&str], more: &[&str]) -> Command {
        let mut all = trainer(command);
        all.arg(support::write_config(folder, &self.data)).args(more);
        all
    }

    /// The run in `folder` goes on, and comes to what it would have come to.
    fn goes_on(&self, folder: &Path) {
        let resume: &[&str] = if folder.join("tiny").exists() { &["--resume"] } else { &[] };
        let mut command = self.command(folder, &["run"], &SHORT);
        let status = command.args(resume).status().expect("starts");
        assert_eq!(code(status), "0", "{}: it does not go on", folder.display());
        let found = support::Result::of(&folder.join("tiny"));
        found.assert_equals(&self.expected, &folder.display().to_string());
    }
}

fn told(run: &Path) -> String {
    fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default()
}

/// How often a run has told of this event.
fn count(run: &Path, event: &str) -> usize {
    told(run).matches(&format!("\"event\":\"{event}\"")).count()
}

/// Whether the process has read so many bytes.
fn has_read(process: u32, bytes: u64) -> bool {
    let about = fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    let read = about.lines().find_map(|line| line.strip_prefix("rchar: "));
    read.and_then(|read| read.parse::<u64>().ok()).is_some_and(|read| read >= bytes)
}

fn asked_state(run: &Path) {
    let state = fs::read_to_string(run.join("last/manifest.json")).expect("is saved");
    assert!(state.contains("\"interrupted\""), "{}", run.display());
    assert_eq!(count(run, "interrupted"), 1, "{}", run.display());
}

/// What is left of a run while it trains.
fn of_training(folder: &Path, given: &Given, asked: bool) -> &'static str {
    if asked {
        asked_state(&folder.join("tiny"));
    }
    given.goes_on(folder);
    if asked { "saved" } else { "as last saved" }
}

fn of_endless(run: &Path, asked: bool) -> &'static str {
    match asked {
        true => asked_state(run),
        false => assert!(run.join("last/manifest.json").exists(), "{}", run.display()),
    }
    if asked { "saved" } else { "as last saved" }
}

/// None of the radiographs is there; where the system has ended the program, the next drawing removes the rest.
fn of_drawing(folder: &Path, _: &Given, asked: bool) -> &'static str {
    if !asked {
        let status = tiny_command(folder, &["data", "inspect"], &[]).status().expect("starts");
        assert_eq!(code(status), "0", "{}", folder.display());
        assert!(folder.join("data").is_dir());
        fs::remove_dir_all(folder.join("data")).expect("is removed");
    }
    nothing_is_left(folder);
    if asked { "undone" } else { "a rest, which the next drawing removes" }
}

fn no_run(folder: &Path, _: &Given, _: bool) -> &'static str {
    assert!(!folder.join("tiny").exists(), "{}", folder.display());
    "no run"
}

const PHASES: [Phase; 18] = [
    Phase {
        name: "`run` reads its configuration",
        heeded: Heeded::OrBySystem,
        command: |folder, given| {
            let command = given.command(folder, &["run"], &SHORT);
            let text = fs::read_to_string(folder.join("tiny.toml")).expect("reads");
            let comments = format!("# {}\n", "x".repeat(125)).repeat(LONG as usize / 128);
            fs::write(folder.join("tiny.toml"), comments + &text).expect("writes");
            command
        },
        is_there: |folder, process| has_read(process, LONG) && !folder.join("tiny").exists(),
        is_short: true,
        left: |folder, given, asked| {
            no_run(folder, given, asked);
            given.goes_on(folder);
            "no run"
        },
    },
    Phase {
        name: "`run` draws radiographs",
        heeded: Heeded::Yes,
        command: |folder, _| tiny_command(folder, &["run"], &MANY),
        is_there: |folder, _| is_drawing(folder),
        is_short: false,
        left: of_drawing,
    },
    Phase {
        name: "`data phantom` draws",
        heeded: Heeded::Yes,
        command: |folder, _| {
            tiny(folder);
            let mut command =
                trainer(&["data", "phantom", "--patients", "4000", "--size", "300", "--out"]);
            command.arg(folder.join("data"));
            command
        },
        is_there: |folder, _| is_drawing(folder),
        is_short: false,
        left: of_drawing,
    },
    Phase {
        name: "`run` reads a table",
        heeded: Heeded::Yes,
        command: |folder, given| {
            let command = given.command(folder, &["run"], &SHORT);
            let text = fs::read_to_string(folder.join("tiny.toml")).expect("reads");
            let (head, tail) = text.split_once("[data.phantom]").expect("has a phantom");
            let tail = &tail[tail.find("[model").expect("has a model")..];
            let table = shown(&given.table);
            let csv = format!("[data.csv]\ntable = {table:?}\nimage = \"file\"\npatient = \"p\"\n");
            let heads = tail.find("[[heads]]").expect("has heads");
            let train = tail.find("[train]").expect("is trained");
            let head_of =
                "[[heads]]\nname = \"a\"\ntask = \"multilabel\"\nlabels = [\"Cardiomegaly\"]\n";
            let tail = format!("{}{head_of}{}", &tail[..heads], &tail[train..]);
            fs::write(folder.join("tiny.toml"), format!("{head}{csv}{tail}")).expect("writes");
            command
        },
        is_there: |_, process| has_read(process, TABLE / 16),
        is_short: false,
        left: no_run,
    },
    Phase {
        name: "`run` looks at the weights to start from",
        heeded: Heeded::BySystem,
        command: |folder, given| {
            given.command(folder, &["run", "--init", shown(&given.weights)], &SHORT)
        },
        is_there: |_, process| has_read(process, WEIGHTS / 4),
        is_short: false,
        left: no_run,
    },
    Phase {
        name: "`run`, before and in its first step",
        heeded: Heeded::Yes,
        command: |folder, given| given.command(folder, &["run"], &SHORT),
        is_there: |folder, _| {
            let run = folder.join("tiny");
            count(&run, "start") == 1 && count(&run, "step") == 0
        },
        is_short: true,
        left: of_training,
    },
    Phase {
        name: "`run` trains",
        heeded: Heeded::Yes,
        command: |folder, given| given.command(folder, &["run"], &SHORT),
        is_there: |folder, _| {
            let run = folder.join("tiny");
            count(&run, "epoch") == 1 && [5, 6, 7].contains(&count(&run, "step"))
        },
        is_short: true,
        left: of_training,
    },
    Phase {
        name: "`run` validates",
        heeded: Heeded::Yes,
        command: |folder, given| given.command(folder, &["run"], &SHORT),
        is_there: |folder, _| {
            let run = folder.join("tiny");
            count(&run, "step") == 4 && count(&run, "epoch") == 0
        },
        is_short: true,
        left: of_training,
    },
    Phase {
        name: "`run` saves",
        heeded: Heeded::Yes,
        command: |folder, given| {
            given.command(folder, &["run", "--set", "run.save.every_steps=1"], &SHORT)
        },
        is_there: |folder, _| {
            // The second: after the first there is a state to lose.
            folder.join("tiny/last").exists() && folder.join("tiny/.saving-last").exists()
        },
        is_short: true,
        left: of_training,
    },
    Phase {
        name: "`run` has ended and draws its page",
        heeded: Heeded::OrDone,
        command: |folder, given| given.command(folder, &["run"], &SHORT),
        is_there: |folder, _| count(&folder.join("tiny"), "end") == 1,
        is_short: true,
        left: |folder, given, _| {
            let run = folder.join("tiny");
            support::Result::of(&run).assert_equals(&given.expected, "it has ended");
            let status = trainer(&["report", shown(&run)]).status().expect("starts");
            assert_eq!(code(status), "0", "{}", folder.display());
            let page = fs::read_to_string(run.join("report.html")).expect("reads");
            assert!(page.trim_end().ends_with("</html>"));
            "saved; `trainer report` draws the rest"
        },
    },
    Phase {
        name: "`data cache` fills a cache",
        heeded: Heeded::Yes,
        command: |folder, given| {
            let mut command = given.command(folder, &["data", "cache"], &[]);
            let size = "data.image.size=[1024,1024]";
            command.args(["--set", size, "--set", "data.workers=1", "--set"]);
            command.arg(format!("data.cache.disk.folder={:?}", shown(&folder.join("cache"))));
            command
        },
        is_there: |folder, _| kept(folder, "index") > 0 && kept(folder, "images") < 22 << 20,
        is_short: false,
        left: |folder, _, _| {
            assert!(kept(folder, "index") > 0);
            "the images so far"
        },
    },
    Phase {
        name: "`run --fold all` trains",
        heeded: Heeded::Yes,
        command: |folder, given| {
            let folds = ["--fold", "all", "--set", "data.validation={folds=3}"];
            given.command(folder, &["run"], &[&folds[..], &ENDLESS].concat())
        },
        is_there: |folder, _| folder.join("tiny/fold-1/last").is_dir(),
        is_short: false,
        left: |folder, _, asked| of_endless(&folder.join("tiny/fold-1"), asked),
    },
    Phase {
        name: "`run --fold all`, between two folds",
        heeded: Heeded::Yes,
        command: |folder, given| given.command(folder, &["run"], &FOLDS),
        is_there: |folder, _| {
            let run = |fold: &str| folder.join("tiny").join(fold);
            count(&run("fold-1"), "end") == 1 && count(&run("fold-2"), "epoch") == 0
        },
        is_short: true,
        left: |folder, given, _| {
            let mut command = given.command(folder, &["run", "--resume"], &FOLDS);
            // A process that ended before it had saved the end of the fold leaves that to be told again.
            let trained = || {
                let text = told(&folder.join("tiny/fold-1"));
                let (before, last) =
                    text.rsplit_once("\"event\":\"epoch\"").expect("it was trained");
                format!("{before}{}", last.lines().next().expect("the epoch's line"))
            };
            let first = trained();
            assert_eq!(code(command.status().expect("starts")), "0", "{}", folder.display());
            assert_eq!(trained(), first, "it was trained again");
            assert!(folder.join("tiny/folds.json").exists());
            "the folds so far"
        },
    },
    Phase {
        name: "`sweep` measures",
        heeded: Heeded::Yes,
        command: |folder, given| {
            let grid = ["--grid", "train.batch_size=2,4", "--steps", "100000", "--synthetic"];
            given.command(folder, &["sweep"], &grid)
        },
        is_there: |folder, _| {
            names(&folder.join("tiny-sweep/logs")).iter().any(|name| name.ends_with(".log"))
        },
        is_short: false,
        left: |folder, _, _| {
            assert!(!folder.join("tiny-sweep/sweep.json").exists());
            "the rows so far"
        },
    },
    Phase {
        name: "`sweep`, between two rows",
        heeded: Heeded::Yes,
        command: |folder, given| given.command(folder, &["sweep"], &FEW),
        is_there: |folder, _| rows(folder) == 1,
        is_short: true,
        left: |folder, given, _| {
            assert!((1..=3).contains(&rows(folder)));
            let status = given.command(folder, &["sweep"], &FEW).status().expect("starts");
            assert_eq!((code(status).as_str(), rows(folder)), ("0", 3), "{}", folder.display());
            "the rows so far"
        },
    },
    Phase {
        name: "`sweep --epochs` trains",
        heeded: Heeded::Yes,
        command: |folder, given| {
            let grid = ["--grid", "train.batch_size=2,4", "--epochs", "5000"];
            given.command(folder, &["sweep"], &[&grid[..], &ENDLESS[2..]].concat())
        },
        is_there: |folder, _| first_run(folder).join("last").is_dir(),
        is_short: false,
        left: |folder, _, asked| of_endless(&first_run(folder), asked),
    },
    Phase {
        name: "`eval` writes",
        heeded: Heeded::BySystem,
        command: |folder, given| {
            // That of an evaluation before is removed first.
            fs::create_dir(folder.join("eval")).expect("is made");
            fs::write(folder.join("eval/evaluation.json"), "of another").expect("writes");
            trainer(&["eval", shown(&given.run), "--out", shown(&folder.join("eval"))])
        },
        is_there: |folder, _| !folder.join("eval/evaluation.json").exists(),
        is_short: true,
        left: |folder, _, _| {
            if let Ok(text) = fs::read_to_string(folder.join("eval/evaluation.json")) {
                assert!(text.trim_end().ends_with('}'), "{text}");
            }
            "no `evaluation.json`, or a whole one"
        },
    },
    Phase {
        name: "`predict --out FILE` writes",
        heeded: Heeded::BySystem,
        command: |folder, given| {
            fs::write(folder.join("rows.csv"), "old").expect("writes");
            let mut command = trainer(&["predict", shown(&given.run), shown(&given.many)]);
            command.arg("--out").arg(folder.join("rows.csv"));
            command
        },
        is_there: |folder, _| {
            fs::metadata(folder.join("rows.csv.partial")).is_ok_and(|about| about.len() > 0)
        },
        is_short: false,
        left: |folder, _, _| {
            assert_eq!(fs::read_to_string(folder.join("rows.csv")).expect("reads"), "old");
            "`FILE` as before"
        },
    },
];

/// A sweep of three rows that are measured soon.
const FEW: [&str; 5] = ["--grid", "train.batch_size=2,4,3", "--steps", "1", "--synthetic"];
/// Two folds that are trained soon.
const FOLDS: [&str; 6] =
    ["--fold", "all", "--set", "data.validation={folds=2}", "--set", "train.epochs=1"];

fn rows(folder: &Path) -> usize {
    let text = fs::read_to_string(folder.join("tiny-sweep/sweep.json")).unwrap_or_default();
    text.matches("\"status\"").count()
}

/// Bytes of one of the files of a cache: `images` has a MiB for each of its 22 images, `index` its list.
fn kept(folder: &Path, file: &str) -> u64 {
    let inner = names(&folder.join("cache")).pop();
    let file = inner.map(|name| folder.join("cache").join(name).join(file));
    file.and_then(|file| fs::metadata(file).ok()).map_or(0, |about| about.len())
}

/// Whether all threads of a process stand still.
fn stands(process: u32) -> bool {
    names(Path::new(&format!("/proc/{process}/task"))).iter().all(|thread| {
        let about = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat"));
        // The name before it may have anything in it.
        about.is_ok_and(|about| {
            about
                .rsplit(')')
                .next()
                .is_some_and(|rest| matches!(rest.trim_start().get(..1), Some("T" | "t")))
        })
    })
}

/// Starts the command and stops it in its phase; nothing where it was over before that was seen.
fn stopped_in(phase: &Phase, folder: &Path, given: &Given, lost: Lost) -> Option<Child> {
    let mut command = (phase.command)(folder, given);
    let mut child = command.stdout(lost.open()).stderr(lost.open()).spawn().expect("starts");
    let (process, begin) = (child.id(), Instant::now());
    loop {
        assert!(begin.elapsed() < Duration::from_secs(120), "{}: it never comes", phase.name);
        if child.try_wait().expect("can be asked").is_some() {
            return None;
        }
        if (phase.is_there)(folder, process) {
            let send = |signal| kill_process(Pid::from_child(&child), signal).expect("is sent");
            send(Signal::STOP);
            let is_over = || {
                let about = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
                about.contains(") Z ")
            };
            while !stands(process) && !is_over() {
                std::thread::yield_now();
            }
            if !is_over() && (phase.is_there)(folder, process) {
                return Some(child);
            }
            send(Signal::CONT);
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Sends it to a program that stands, lets that go on, and waits for the end.
fn end_by(sent: Sent, phase: &Phase, child: &mut Child) -> End {
    let process = Pid::from_child(child);
    let send = |signal| kill_process(process, signal).is_ok();
    let (first, twice) = match sent {
        Sent::One(signal) => (signal, false),
        Sent::Twice => (Signal::INT, true),
    };
    send(first);
    // Linux delivers the lower number first: SIGTERM ends the program only if SIGPIPE did not.
    if first == Signal::PIPE && !phase.is_short {
        send(Signal::TERM);
    }
    send(Signal::CONT);
    if twice {
        // Two that wait at once are one.
        let waits = || {
            let about =
                fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let mask = about.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
            let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.unwrap_or(0) >> (Signal::INT.as_raw() - 1) & 1 == 1
        };
        while waits() {
            std::thread::yield_now();
        }
        send(first);
    }
    End::of(child.wait().expect("ends"))
}

/// Whether `end` is what the README promises, and whether the program was asked to end.
fn judge(end: End, sent: Sent, phase: &Phase, case: &str) -> bool {
    let of_system = |signal: Signal| End::By(signal.as_raw());
    let asked = |signal: Signal| match phase.heeded {
        Heeded::Yes | Heeded::OrDone | Heeded::OrBySystem => End::Code(128 + signal.as_raw()),
        Heeded::BySystem => of_system(signal),
    };
    let expected = match sent {
        // The second finds it still there, or not.
        Sent::Twice => vec![asked(Signal::INT), of_system(Signal::INT)],
        Sent::One(Signal::PIPE) if phase.is_short => vec![End::Code(0)],
        Sent::One(Signal::PIPE) => vec![asked(Signal::TERM)],
        Sent::One(signal @ (Signal::INT | Signal::TERM | Signal::HUP)) => vec![asked(signal)],
        Sent::One(signal) => vec![of_system(signal)],
    };
    let or = match (phase.heeded, sent) {
        (Heeded::OrDone, _) => Some(End::Code(0)),
        (Heeded::OrBySystem, Sent::One(signal)) => Some(of_system(signal)),
        _ => None,
    };
    assert!(or == Some(end) || expected.contains(&end), "{case}: {end:?} and not {expected:?}");
    matches!(end, End::Code(code) if code != 0)
}

/// Whether a process of the commands in `folder` is there still.
fn someone_is_left(folder: &Path) -> Option<String> {
    let folder = shown(folder);
    let processes = names(Path::new("/proc"));
    processes.into_iter().find(|process| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(folder)
    })
}

/// One case, and what its cell of the table has.
fn cell(phase: &Phase, sent: Sent, case: &str, folder: &Path, given: &Given, lost: Lost) -> String {
    for attempt in 0..50 {
        let folder = folder.join(attempt.to_string());
        fs::create_dir_all(&folder).expect("is made");
        let Some(mut child) = stopped_in(phase, &folder, given, lost) else { continue };
        let begin = Instant::now();
        let end = end_by(sent, phase, &mut child);
        let took = begin.elapsed();
        let asked = judge(end, sent, phase, case);
        // One that goes on to its end has its time.
        let goes_on = sent == Sent::One(Signal::PIPE);
        assert!(took < SOON || goes_on && phase.is_short, "{case}: it took {took:?}");
        let begin = Instant::now();
        while let Some(process) = someone_is_left(&folder) {
            assert!(begin.elapsed() < SOON, "{case}: process {process} is left");
            std::thread::sleep(Duration::from_millis(5));
        }
        let how = match (goes_on, phase.is_short) {
            (true, true) => "goes on, 0".to_owned(),
            (true, false) => "goes on".to_owned(),
            _ => format!("{} in {:.2} s", end.shown(), took.as_secs_f64()),
        };
        let left = match goes_on && phase.is_short {
            true => "",
            false => (phase.left)(&folder, given, asked),
        };
        return if goes_on { how } else { format!("{how}: {left}") };
    }
    panic!("{case}: it was always over before");
}

/// Phases and signals by their places.
fn cases() -> Vec<(usize, usize)> {
    let heard: Vec<Signal> = signals().into_iter().map(|(signal, _)| signal).collect();
    let is_sent = |sent: Sent| sent != Sent::One(Signal::HUP) || heard.contains(&Signal::HUP);
    let numbers = (0..SENT.len()).filter(|number| is_sent(SENT[*number].1));
    // Neighbours are of different phases, so that the cores are used.
    numbers.flat_map(|number| (0..PHASES.len()).map(move |place| (place, number))).collect()
}

#[test]
#[expect(clippy::print_stdout, reason = "the table of docs/reliability.md, with --nocapture")]
fn every_signal_in_every_phase_ends_as_promised_and_nothing_saved_is_lost() {
    // SIGQUIT leaves no picture of the memory.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).expect("is set");
    let folder = tempfile::tempdir().expect("a folder");
    let given = Given::new(folder.path());
    let cases = cases();
    let cells = Mutex::new(vec![vec![String::new(); SENT.len()]; PHASES.len()]);
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&(place, number)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (phase, (name, sent)) = (&PHASES[place], SENT[number]);
            // Where what it says goes makes no difference, but to results that cannot be written.
            let lost = match sent {
                Sent::One(Signal::PIPE) => Lost::ClosedPipe,
                _ => LOST[(place + number) % LOST.len()],
            };
            let own = folder.path().join(format!("{place}-{number}"));
            let case = format!("{}, {name}, {lost:?}", phase.name);
            // The table is printed whatever fails.
            let found = catch_unwind(|| cell(phase, sent, &case, &own, &given, lost));
            let _ = fs::remove_dir_all(&own);
            cells.lock().expect("nobody has panicked")[place][number] =
                found.unwrap_or_else(|_| FAILED.to_owned());
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| worker.join().expect("all is as promised"));
    });
    let head: Vec<&str> = SENT.iter().map(|(name, _)| *name).collect();
    println!("| phase | {} |\n|---|{}", head.join(" | "), "---|".repeat(head.len()));
    let cells = cells.into_inner().expect("nobody has panicked");
    for (phase, cells) in PHASES.iter().zip(&cells) {
        println!("| {} | {} |", phase.name, cells.join(" | "));
    }
    assert!(cells.iter().flatten().all(|found| found != FAILED), "what failed is told above");
}
