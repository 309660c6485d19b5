//! What is there after a command was ended by a signal at whatever moment.

use std::os::unix::process::ExitStatusExt;

use super::*;

/// A run that has ended, in `folder`.
fn trained(folder: &Path) -> PathBuf {
    let (config, run) = tiny(folder);
    assert!(trainer(&["run", shown(&config)]).status().expect("starts").success());
    run
}

/// Some picture below `folder`.
pub fn picture(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).expect("lists").map(|entry| entry.expect("lists").path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let png = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "png");
    files.into_iter().find(png).or_else(|| folders.iter().find_map(|folder| picture(folder)))
}

/// `predict` and `eval` are ended by the system.
fn assert_ended_by(status: ExitStatus, signal: Signal, case: &str) {
    assert_eq!(status.signal(), Some(signal.as_raw()), "{case}: {status}");
}

#[test]
fn predictions_have_their_name_when_they_are_complete_and_not_before() {
    const IMAGES: usize = 1500;
    let folder = tempfile::tempdir().expect("a folder");
    let run = trained(folder.path());
    let one = picture(&folder.path().join("data")).expect("has a picture");
    let many = folder.path().join("many");
    fs::create_dir(&many).expect("is made");
    for number in 0..IMAGES {
        fs::hard_link(&one, many.join(format!("{number}.png"))).expect("is linked");
    }
    let (rows, partial) = ("rows.csv", "rows.csv.partial");
    let [rows, partial] = [rows, partial].map(|name| folder.path().join(name));
    let predict = || trainer(&["predict", shown(&run), shown(&many), "--out", shown(&rows)]);
    fs::write(&rows, "old").expect("writes");
    for (signal, _) in signals() {
        let mut child = predict().spawn().expect("starts");
        let begun = || fs::metadata(&partial).is_ok_and(|about| about.len() > 0);
        wait_until("predict", &mut child, begun);
        kill_process(Pid::from_child(&child), signal).expect("is sent");
        assert_ended_by(child.wait().expect("ends"), signal, "predict");
        assert_eq!(fs::read_to_string(&rows).expect("reads"), "old", "{signal:?}");
        fs::remove_file(&partial).expect("is left");
    }
    assert!(predict().status().expect("starts").success());
    let text = fs::read_to_string(&rows).expect("reads");
    assert_eq!(text.lines().count(), 1 + IMAGES);
    assert!(!partial.exists());
}

/// `evaluation.json` is written last and removed first: where it is, the other files are of the same evaluation.
#[test]
fn an_evaluation_that_was_ended_does_not_look_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = trained(folder.path());
    let whole = folder.path().join("whole");
    let eval = |out: &Path| trainer(&["eval", shown(&run), "--out", shown(out)]);
    let begin = Instant::now();
    assert!(eval(&whole).status().expect("starts").success());
    let took = begin.elapsed();
    let expected = fs::read_to_string(whole.join("predictions.csv")).expect("reads");
    // An evaluation that is there already is replaced, not mixed.
    let out = folder.path().join("ended");
    let mut ended = 0;
    for (number, (signal, _)) in signals().into_iter().cycle().take(12).enumerate() {
        fs::create_dir_all(&out).expect("is made");
        fs::write(out.join("predictions.csv"), "of another").expect("writes");
        fs::write(out.join("evaluation.json"), "of another").expect("writes");
        let mut child = eval(&out).spawn().expect("starts");
        // More often near the end, where it writes.
        std::thread::sleep(took.mul_f64(1.0 - 0.6_f64.powi(number as i32)));
        let _ = kill_process(Pid::from_child(&child), signal);
        let status = child.wait().expect("ends");
        if !status.success() {
            assert_ended_by(status, signal, "eval");
            ended += 1;
        }
        let rows = fs::read_to_string(out.join("predictions.csv")).expect("reads");
        match fs::read_to_string(out.join("evaluation.json")) {
            Ok(text) if text == "of another" => assert_eq!(rows, "of another"),
            Ok(text) => assert!(text.ends_with('}') || text.ends_with("}\n"), "{text}"),
            Err(_) => {}
        }
        let of_one = rows == "of another" || rows == expected;
        assert!(of_one, "predictions.csv is cut off");
    }
    assert!(ended > 0, "each of them was over before its signal");
}

#[test]
fn a_run_does_not_mind_the_signal_of_a_closed_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, run) = tiny(folder.path());
    let mut child = trainer(&["run", shown(&config)]).spawn().expect("starts");
    wait_until("SIGPIPE", &mut child, || run.join("last").exists());
    kill_process(Pid::from_child(&child), Signal::PIPE).expect("is sent");
    assert_eq!(code(child.wait().expect("ends")), "0");
}

/// Whatever a run was doing: opening, training, saving, validating.
#[test]
fn a_run_that_a_signal_ends_at_any_moment_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, run) = tiny(folder.path());
    let start = |more: &[&str]| {
        let resume: &[&str] = if run.exists() { &["--resume"] } else { &[] };
        trainer(&["run", shown(&config)]).args(resume).args(more).spawn().expect("starts")
    };
    assert!(start(&[]).wait().expect("ends").success());
    let expected = support::Result::of(&run);
    fs::remove_dir_all(&run).expect("is removed");
    let others = [(Signal::USR1, ""), (Signal::USR2, "")];
    let all = signals().into_iter().chain(others);
    for (number, (signal, code_then)) in all.cycle().take(30).enumerate() {
        let mut child = start(&[]);
        std::thread::sleep(Duration::from_millis(7 * (number as u64 * 5 % 48)));
        let _ = kill_process(Pid::from_child(&child), signal);
        let status = child.wait().expect("ends");
        let case = format!("{signal:?}, {status}");
        match (status.code(), status.signal()) {
            (Some(0), _) => {
                support::Result::of(&run).assert_equals(&expected, &case);
                fs::remove_dir_all(&run).expect("is removed");
            }
            (Some(code), _) => assert_eq!(code.to_string(), code_then, "{case}"),
            // Before it has begun to listen, and where a signal has no meaning for it.
            (None, ended) => assert_eq!(ended, Some(signal.as_raw()), "{case}"),
        }
    }
    assert!(start(&[]).wait().expect("ends").success());
    support::Result::of(&run).assert_equals(&expected, "after all of them");
}
