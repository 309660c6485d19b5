//! Protects what the program does with what is far too large, has no end, or is made to look like something
//! else on a terminal: it says so, soon.
#![cfg(target_os = "linux")]

#[expect(dead_code, reason = "nothing is compared of two runs here")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// The program's answer, which must come soon.
fn answer(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let [out, told] = ["out", "told"].map(|name| folder.path().join(name));
    let file = |path: &Path| fs::File::create(path).expect("is made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.args(arguments).stdin(Stdio::null()).stdout(file(&out)).stderr(file(&told));
    let mut child = command.spawn().expect("starts");
    let begin = Instant::now();
    while child.try_wait().expect("can be asked").is_none() {
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().expect("is killed");
            child.wait().expect("ends");
            panic!("{arguments:?}: no answer");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let [stdout, stderr] = [out, told].map(|path| fs::read(path).expect("reads"));
    Output { status: child.wait().expect("ends"), stdout, stderr }
}

/// What it says where it must end with this exit code.
fn refused(code: i32, arguments: &[&str]) -> String {
    let output = answer(arguments);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
    told
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("is UTF-8")
}

/// A configuration whose images are those of the table at `table`.
fn of_table(folder: &Path, table: &Path, heads: &str) -> PathBuf {
    let data = shown(folder);
    let before = support::CONFIG.split("[data.phantom]").next().expect("a beginning");
    let before = before.replace("seed = 3", &format!("seed = 3\noutput = {data:?}"));
    let (_, after) = support::CONFIG.split_once("[train]\n").expect("has [train]");
    let (_, model) = support::CONFIG.split_once("[model.densenet]").expect("has a model");
    let model = model.split("[[heads]]").next().expect("a model");
    let csv =
        format!("[data.csv]\ntable = {:?}\nimage = \"file\"\npatient = \"p\"\n", shown(table));
    let config = folder.join("table.toml");
    let text = format!("{before}{csv}[model.densenet]{model}{heads}\n[train]\n{after}");
    fs::write(&config, text).expect("writes");
    config
}

fn head(labels: &str) -> String {
    format!("[[heads]]\nname = \"a\"\ntask = \"multilabel\"\nlabels = [{labels}]\n")
}

#[test]
fn batches_that_no_machine_holds_are_refused_by_every_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = support::write_config(folder.path(), &folder.path().join("data"));
    for size in ["2305843009213693952", "9223372036854775807", "1048577"] {
        let set = format!("train.batch_size={size}");
        for command in ["check", "plan", "trace", "run"] {
            let told = refused(2, &[command, shown(&config), "--set", &set]);
            assert!(told.contains(" images is more than 1048576"), "{command} {size}: {told}");
        }
    }
    // The largest is planned without a defect; that it does not fit is another matter.
    let told = answer(&["plan", shown(&config), "--set", "train.batch_size=1048576"]);
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
}

#[test]
fn a_hundred_thousand_heads_are_refused_and_as_many_columns_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let head_of = |number: usize| {
        format!("[[heads]]\nname = \"h{number}\"\ntask = \"binary\"\nlabels = [\"L1\"]\n")
    };
    let table = folder.path().join("wide.csv");
    let heads: String = (0..100_000).map(head_of).collect();
    let told = refused(2, &["check", shown(&of_table(folder.path(), &table, &heads))]);
    assert!(told.contains("there are 100000 heads, and at most 1000 can be trained"), "{told}");

    const COLUMNS: usize = 100_000;
    let row = |first: &str, cell: &dyn Fn(usize) -> String| {
        (0..COLUMNS).fold(first.to_owned(), |row, place| row + "," + &cell(place)) + "\n"
    };
    let header = row("file,p", &|place| format!("L{place}"));
    let rows: String = (0..8)
        .map(|image| {
            row(&format!("{image}.png,p{image}"), &|place| ((image + place) % 2).to_string())
        })
        .collect();
    fs::write(&table, header + &rows).expect("writes");
    let config = of_table(folder.path(), &table, &head("\"L1\", \"L99999\""));
    let output = answer(&["data", "inspect", shown(&config), "--tables-only"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("L99999"), "{told}");
    // A message names the columns that it has found, but not all of a megabyte of them.
    let config = of_table(folder.path(), &table, &head("\"Lx\""));
    let told = refused(3, &["data", "inspect", shown(&config), "--tables-only"]);
    assert!(told.contains(" characters …] ") && told.len() < 10_000, "{}", told.len());
}

#[test]
fn a_configuration_of_one_long_line_is_not_repeated_in_its_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = support::write_config_with(
        folder.path(),
        &folder.path().join("data"),
        &format!("\n{} = 1\n", "k".repeat(1_000_000)),
    );
    let told = refused(2, &["check", shown(&config)]);
    assert!(told.starts_with("error: unknown key `kkk") && told.len() < 10_000, "{}", told.len());
    let set = format!("train.{}=1", "k".repeat(100_000));
    let config = support::write_config(folder.path(), &folder.path().join("data"));
    let told = refused(2, &["check", shown(&config), "--set", &set]);
    assert!(told.len() < 20_000, "{}", told.len());
}

#[test]
fn pipes_and_devices_are_refused_wherever_a_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = |name: &str| {
        let path = folder.path().join(name);
        let _ = fs::remove_file(&path);
        match name.starts_with("pipe") {
            true => mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("is made"),
            false => std::os::unix::fs::symlink("/dev/zero", &path).expect("is linked"),
        }
        path
    };
    const REFUSED: &str = "it is a pipe or a device, and no file";
    let label = head("\"L1\"");
    for kind in ["pipe", "zero"] {
        let told = refused(2, &["check", shown(&made(&format!("{kind}.toml")))]);
        assert!(told.contains(REFUSED), "{told}");
        for ending in ["csv", "csv.gz", "tsv", "parquet"] {
            let table = made(&format!("{kind}.{ending}"));
            let config = of_table(folder.path(), &table, &label);
            let told = refused(3, &["data", "inspect", shown(&config), "--tables-only"]);
            assert!(told.contains(REFUSED), "{ending}: {told}");
        }
        let mut rows = String::from("file,p,L1\n");
        for number in 0..8 {
            made(&format!("{kind}{number}.png"));
            rows += &format!("{kind}{number}.png,p{number},{}\n", number % 2);
        }
        let table = folder.path().join("images.csv");
        fs::write(&table, rows).expect("writes");
        let config = of_table(folder.path(), &table, &label);
        let told = refused(3, &["run", shown(&config)]);
        assert!(told.contains(REFUSED), "{told}");
        let weights = made(&format!("{kind}.safetensors"));
        let config = support::write_config(folder.path(), &folder.path().join("data"));
        let told = refused(3, &["run", shown(&config), "--init", shown(&weights)]);
        assert!(told.contains(REFUSED), "{told}");
    }
}

#[test]
fn a_hundred_thousand_threads_are_not_started() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = support::write_config(folder.path(), &folder.path().join("data"));
    let begin = Instant::now();
    let set = ["--set", "data.workers=100000", "--set", "train.epochs=1"];
    let output = answer(&[&["run", shown(&config)][..], &set].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
}

#[test]
fn threads_that_the_system_does_not_start_are_no_defect() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = support::write_config(folder.path(), &folder.path().join("data"));
    let config = shown(&config);
    let drawn = answer(&["data", "inspect", config]);
    assert!(drawn.status.success(), "{}", String::from_utf8_lossy(&drawn.stderr));
    let out = folder.path().join("phantom").display().to_string();
    let commands: [&[&str]; 5] = [
        &["run", config],
        &["plan", config],
        &["data", "inspect", config],
        &["data", "phantom", "--out", &out, "--patients", "3", "--size", "32"],
        &["sweep", config, "--grid", "train.batch_size=2,4", "--steps", "1", "--synthetic"],
    ];
    for command in commands {
        // No address space has room for the stack of a thread.
        let mut program = Command::new(env!("CARGO_BIN_EXE_trainer"));
        program.args(command).env("RUST_MIN_STACK", (1_u64 << 47).to_string());
        let output = program.env("RUST_BACKTRACE", "0").output().expect("runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!told.contains("defect"), "{command:?}: {told}");
        // A command may need no threads.
        match output.status.code() {
            Some(0) => {}
            code => {
                assert_eq!(code, Some(1), "{command:?}: {told}");
                let threads = ["starts no more threads", "threads could be started"];
                assert!(threads.iter().any(|words| told.contains(words)), "{command:?}: {told}");
            }
        }
    }
}

#[test]
fn control_characters_of_a_table_do_not_reach_the_screen() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = folder.path().join("t.csv");
    let rows: String = (0..8)
        .map(|number| format!("{number}.png,p{number},\u{1b}]0;owned\u{7}{number}\n"))
        .collect();
    fs::write(&table, format!("file,p,L1\u{1b}[2J\n{rows}")).expect("writes");
    for label in ["\"L1\"", "\"L1\\u001b[2J\""] {
        let config = of_table(folder.path(), &table, &head(label));
        let told = refused(3, &["data", "inspect", shown(&config), "--tables-only"]);
        assert!(!told.contains('\u{1b}') && !told.contains('\u{7}'), "{told:?}");
        assert!(told.contains("\\u{1b}"), "{told:?}");
    }
}

#[test]
fn control_characters_of_an_arrays_header_do_not_reach_the_screen() {
    let folder = tempfile::tempdir().expect("a folder");
    let array = folder.path().join("a\u{1b}[2J.npy");
    let config = of_table(folder.path(), &array, &head("\"L1\""));
    let text = fs::read_to_string(&config).expect("reads");
    let (before, after) = text.split_once("[data.csv]").expect("has a table");
    let (_, model) = after.split_once("[model").expect("has a model");
    let path = shown(&array).replace('\u{1b}', "\\u001b");
    let arrays = format!("[data.arrays]\nimages = \"{path}\"\ntargets = {{ a = \"{path}\" }}\n");
    fs::write(&config, format!("{before}{arrays}[model{model}")).expect("writes");
    for header in [
        "{'descr': '<f4\u{1b}[2J', 'fortran_order': False, 'shape': (8, 32, 32)}",
        "{'descr': [('\u{1b}[2J', '<f4')], 'fortran_order': False, 'shape': (8, 32, 32)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 32, 32), '\u{1b}[2J': 1}",
        "{'descr': '<f4', 'fortran_order': \u{1b}[2J, 'shape': (8, 32, 32)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 3)}",
    ] {
        let length = (header.len() as u16).to_le_bytes();
        let bytes = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &[0; 96]].concat();
        fs::write(&array, bytes).expect("writes");
        let told = refused(3, &["data", "inspect", shown(&config)]);
        assert!(!told.contains('\u{1b}') && told.contains("\\u{1b}"), "{told:?}");
    }
}

#[test]
fn memory_that_the_system_refuses_ends_the_program_with_advice() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("phantom");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 250000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_trainer")]);
    command.args(["data", "phantom", "--patients", "9", "--size", "3000", "--out", shown(&out)]);
    let output = command.output().expect("starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert!(
        told.contains("error: out of memory: ") && told.contains(" bytes were asked"),
        "{told}"
    );
    assert!(told.contains("= help: lower `train.batch_size` or `data.image.size`"), "{told}");
}
