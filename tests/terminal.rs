//! Protects what the program shows on a terminal: every error once, and colours only where they are
//! wanted.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use assert_cmd::cargo::cargo_bin;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// What decides on colours.
const VARIABLES: [&str; 5] = ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM", "CI"];

fn trainer(arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(cargo_bin("trainer"));
    command.args(arguments).stdin(Stdio::null());
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied());
    command
}

/// What the program writes to a terminal, standard output and standard error together.
fn on_terminal(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("it may be opened");
    let name = ptsname(&terminal, Vec::new()).expect("it has a name");
    let screen = File::options().write(true).open(name.to_str().expect("is UTF-8"));
    let screen = screen.expect("it opens");
    let mut command = trainer(arguments, environment);
    command.stdout(screen.try_clone().expect("a second handle")).stderr(screen);
    let mut child = command.spawn().expect("the program starts");
    // The terminal ends when nobody else holds it.
    drop(command);
    let mut shown = Vec::new();
    // That the other side has gone is an error here, after all that it wrote.
    let _ = File::from(terminal).read_to_end(&mut shown);
    child.wait().expect("the program ends");
    String::from_utf8(shown).expect("is UTF-8")
}

/// What the program writes to standard error that is no terminal.
fn to_a_pipe(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = trainer(arguments, environment).output().expect("the program starts");
    String::from_utf8(output.stderr).expect("is UTF-8")
}

/// Whether `shown` sets a colour or a weight of letters.
fn coloured(shown: &str) -> bool {
    let number = |c: char| c.is_ascii_digit() || c == ';';
    shown.split("\u{1b}[").skip(1).any(|rest| rest.trim_start_matches(number).starts_with('m'))
}

const TERMINAL: (&str, &str) = ("TERM", "xterm-256color");

/// Wrong in different ways, each told by another part of the program.
const WRONG: [&[&str]; 5] = [
    &["check", "configs/quickstart.toml", "--set", "train.epohcs=1"],
    &["check", "configs/quickstart.toml", "--set", "train.epochs=0"],
    &["sweep", "configs/quickstart.toml", "--grid", "train.epochs=0"],
    &["trace", "configs/quickstart.toml", "--grid", "train.epochs=0"],
    &["check", "nowhere.toml"],
];

#[test]
fn an_error_says_once_that_it_is_one_on_a_terminal_too() {
    for arguments in WRONG {
        for environment in [&[TERMINAL][..], &[TERMINAL, ("NO_COLOR", "1")]] {
            let shown = on_terminal(arguments, environment);
            assert_eq!(shown.matches("error").count(), 1, "{arguments:?}: {shown}");
        }
    }
}

#[test]
fn errors_are_coloured_on_a_terminal_that_has_colours() {
    for arguments in WRONG {
        let shown = on_terminal(arguments, &[TERMINAL]);
        assert!(coloured(&shown), "{arguments:?}: {shown}");
    }
}

#[test]
fn nothing_is_coloured_where_no_colours_are_wanted() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("phantom").display().to_string();
    let phantom = ["data", "phantom", "--out", &out, "--patients", "3", "--size", "32"];
    let list = ["list", &out];
    let more: [&[&str]; 5] = [&phantom, &["--help"], &["run"], &["devices"], &list];
    for arguments in WRONG.iter().chain(&more) {
        let unwanted = [
            &[TERMINAL, ("NO_COLOR", "1")][..],
            &[TERMINAL, ("CLICOLOR", "0")],
            &[("TERM", "dumb")],
        ];
        for environment in unwanted {
            let shown = on_terminal(arguments, environment);
            assert!(!coloured(&shown), "{arguments:?} {environment:?}: {shown}");
        }
        let shown = to_a_pipe(arguments, &[TERMINAL]);
        assert!(!shown.contains('\u{1b}'), "{arguments:?}: {shown}");
    }
}

#[test]
fn nothing_but_what_was_asked_for_is_shown_where_quiet_is_wanted() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("phantom").display().to_string();
    let phantom = ["data", "phantom", "--out", &out, "--patients", "3", "--size", "32", "--quiet"];
    let shown = on_terminal(&phantom, &[TERMINAL]);
    assert_eq!(shown.lines().count(), 1, "{shown}");
    assert!(shown.starts_with("3 patients drawn in "), "{shown}");
}

#[test]
fn a_terminal_that_moves_no_cursor_gets_plain_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("phantom").display().to_string();
    let phantom = ["data", "phantom", "--out", &out, "--patients", "3", "--size", "32"];
    let shown = on_terminal(&phantom, &[("TERM", "dumb")]);
    assert!(!shown.contains('\u{1b}'), "{shown}");
    assert!(shown.contains("3 patients drawn in "), "{shown}");
}

#[test]
fn colours_can_be_forced_where_there_is_no_terminal() {
    for arguments in WRONG {
        let shown = to_a_pipe(arguments, &[("CLICOLOR_FORCE", "1")]);
        assert!(coloured(&shown), "{arguments:?}: {shown}");
        let shown = to_a_pipe(arguments, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]);
        assert!(!coloured(&shown), "{arguments:?}: {shown}");
    }
}
