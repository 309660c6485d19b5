//! `metrics.jsonl`: one JSON object a line.
//!
//! A state is saved with the length of this file ([`JsonLines::position`]). Resuming cuts the file
//! back to that length: what came after, a line torn by a kill included, is told again by the
//! resumed run, and so its epochs stand in the file exactly once, as if it had never stopped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::append::Appended;
use super::{Event, Report, ReportError};

/// Appends events to `metrics.jsonl`, each synced to disk, but for single steps, which are synced with what is told
/// after them.
#[derive(Debug)]
pub struct JsonLines {
    file: Appended,
    path: PathBuf,
}

impl JsonLines {
    /// A new file at `path`.
    ///
    /// # Errors
    ///
    /// When there is a file already, or none can be made.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        let file = Appended::create(path).map_err(ReportError::at("create", path))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// The file at `path` cut back to its first `position` bytes.
    ///
    /// A file that is missing, shorter, or has no line end there is not the one that the state was
    /// saved with: its complete lines are kept and the second value says so.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, cut or made.
    pub fn open_resumed(path: &Path, position: u64) -> Result<(Self, Option<String>), ReportError> {
        let before = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(ReportError::at("read", path)),
        }?;
        let expected = usize::try_from(position).ok().and_then(|length| before.get(..length));
        let (kept, warning) = match expected {
            Some(lines) if lines.is_empty() || lines.ends_with(b"\n") => (lines.len(), None),
            _ => {
                let complete = before.iter().rposition(|byte| *byte == b'\n');
                (complete.map_or(0, |end| end + 1), Some(mismatch(path, position, before.len())))
            }
        };
        let file = Appended::cut(path, kept as u64).map_err(ReportError::at("cut back", path))?;
        Ok((Self { file, path: path.to_owned() }, warning))
    }

    /// The bytes of all events told so far, which are on disk.
    ///
    /// # Errors
    ///
    /// When they cannot be synced.
    pub fn position(&mut self) -> Result<u64, ReportError> {
        self.file.settle().map_err(ReportError::at("append to", &self.path))?;
        Ok(self.file.length())
    }

    fn append(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        match event {
            Event::Step { .. } => self.file.add(&line),
            _ => self.file.append(&line),
        }
    }
}

fn mismatch(path: &Path, position: u64, length: usize) -> String {
    format!(
        "{} was changed since the state was saved ({position} bytes ending a line then, {length} \
         bytes now): its lines are kept, and some may be missing or stand twice",
        path.display()
    )
}

impl Report for JsonLines {
    fn event(&mut self, event: &Event) -> Result<(), ReportError> {
        if matches!(event, Event::EpochBegin(_) | Event::Progress(_)) {
            return Ok(());
        }
        self.append(event).map_err(ReportError::at("append to", &self.path))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::{ReportError, examples};
    use super::*;

    fn told(path: &Path, events: &[Event]) -> JsonLines {
        let mut lines = JsonLines::create(path).unwrap();
        events.iter().for_each(|event| lines.event(event).unwrap());
        lines
    }

    fn line(event: &Event) -> String {
        serde_json::to_string(event).unwrap()
    }

    #[test]
    fn an_epoch_line_has_the_keys_of_the_contract_and_null_where_undefined() {
        insta::assert_snapshot!(line(&examples::epoch()), @r#"{"event":"epoch","epoch":3,"step":420,"train":{"findings/loss":0.25,"loss":0.3125},"val":{"findings/auroc":0.871,"findings/auroc/Cardiomegaly":0.871,"findings/auroc/Edema":null,"findings/loss":0.149,"loss":0.298,"view/accuracy":0.9375},"learning_rate":0.0003,"seconds":62.6,"images_per_second":412.25,"memory":{"live":1048576,"peak":3221225472,"reserved":null,"smi":null,"predicted_peak":null,"peak_kind":null,"total":null},"best":true,"skipped_steps":0,"loss_scale":null,"watched":{"metric":"val/findings/auroc","value":0.871,"best":0.871,"best_epoch":3},"undefined":{"findings/auroc/Edema":"one class only"}}"#);
    }

    #[test]
    fn every_other_event_keeps_its_keys() {
        let lines: Vec<String> = examples::all_but_epoch().iter().map(line).collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        {"event":"start","name":"xray","device":"CPU","parameters":6956298,"train_images":1000,"validation_images":100,"epochs":20,"steps_per_epoch":140,"resumed_from":null,"memory":null,"heads":[{"name":"view","labels":["PA","AP"]},{"name":"findings","labels":["Edema","Cardiomegaly"]}],"watched":null,"version":"0.1.0","data":null,"labels":{"train":{"findings":{"Edema":{"positives":12.0,"known":900.0}}}}}
        {"event":"initialized","file":"densenet121.pth","tensors":604,"adapted":[{"name":"features.conv0.weight","from":3,"to":1}],"unused":["classifier.bias","classifier.weight"],"missing":["classifier.view.weight","classifier.view.bias"],"mismatched":[{"name":"classifier.findings.weight","found":[14,1024],"wanted":[5,1024]}]}
        {"event":"damaged_state","folder":"checkpoints/xray/last","reason":"weights.safetensors differs"}
        {"event":"resumed","folder":"checkpoints/xray/last","epoch":3,"step":420}
        {"event":"saved","folder":"checkpoints/xray/last","epoch":3,"step":420,"reason":"epoch_end"}
        {"event":"saved","folder":"checkpoints/xray/last","epoch":4,"step":500,"reason":"interval"}
        {"event":"step","epoch":4,"step":450,"loss":0.3125,"learning_rate":0.0003}
        {"event":"skipped_step","epoch":4,"step":431,"reason":"the gradient is not finite"}
        {"event":"skipped_images","images":[{"path":"data/patient1.png","table":"data/train.csv","line":2,"reason":"not a PNG, \"JPEG\" or other image"},{"path":"data/patient2.png","table":"data/train.csv","line":3,"reason":"not a PNG, \"JPEG\" or other image"}]}
        {"event":"out_of_memory","epoch":4,"step":431,"requested":1073741824,"memory":{"live":null,"peak":null,"reserved":84825604096,"smi":null,"predicted_peak":null,"peak_kind":null,"total":null},"advice":"set memory.checkpointing = \"sqrt\""}
        {"event":"warning","message":"the disk is nearly full"}
        {"event":"early_stopped","epoch":12,"metric":"val/findings/auroc","best":0.8941,"best_epoch":7,"patience":5}
        {"event":"interrupted","signal":"SIGINT"}
        {"event":"saved","folder":"checkpoints/xray/last","epoch":4,"step":510,"reason":"interrupted"}
        {"event":"end","epochs":12,"step":1680,"seconds":3723.4,"reason":"early_stopping","best":{"metric":"val/findings/auroc","value":0.8941,"epoch":7,"train":{"loss":0.3},"val":{"findings/auroc":0.8941,"findings/auroc/Cardiomegaly":0.8941,"findings/auroc/Edema":null,"findings/loss":0.1405,"loss":0.281,"view/accuracy":0.9375}},"last":{"epoch":12,"train":{"loss":0.2},"val":{"findings/auroc":0.8817,"findings/auroc/Cardiomegaly":0.8817,"findings/auroc/Edema":0.75,"findings/loss":0.1706,"loss":0.3412,"view/accuracy":0.9375}},"undefined":{"findings/auroc/Edema":"one class only"},"weights":"checkpoints/xray/best/weights.safetensors"}
        "#);
    }

    #[test]
    fn numbers_come_back_bit_by_bit() {
        let third = 1.0_f64 / 3.0;
        for value in [third, 0.1 + 0.2, 5e-324, f64::MAX, -0.0, 1e23, 9007199254740993.0] {
            let text = line(&examples::learning_rate(value));
            let number = text.split("\"learning_rate\":").nth(1).unwrap().split(',').next();
            let back: f64 = number.unwrap().parse().unwrap();
            assert_eq!(back.to_bits(), value.to_bits(), "{text}");
        }
    }

    #[test]
    fn what_is_not_finite_is_null() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(line(&examples::learning_rate(value)).contains("\"learning_rate\":null,"));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_not_utf8_does_not_end_the_run() {
        use std::os::unix::ffi::OsStrExt;
        let name = std::ffi::OsStr::from_bytes(b"last\xff");
        let reason = "torn".to_owned();
        let mut image = examples::bad_image(1);
        image.path = name.into();
        for event in [
            Event::DamagedState { folder: name.into(), reason },
            Event::SkippedImages { images: vec![image] },
        ] {
            assert!(line(&event).contains("\"last\u{fffd}\""));
        }
    }

    #[test]
    fn progress_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let events = [examples::begin(), examples::progress(0.5)];
        let mut lines = told(&folder.path().join("m"), &events);
        assert_eq!(lines.position().unwrap(), 0);
    }

    #[test]
    fn single_steps_are_synced_with_what_is_told_next_and_before_a_state_holds_their_length() {
        use crate::disk::watch::{Logged, Watch};
        let step = |step| Event::Step { epoch: 1, step, loss: None, learning_rate: 0.1 };
        let folder = tempfile::tempdir().unwrap();
        let watch = Watch::over(folder.path());
        let mut lines = JsonLines::create(&folder.path().join("m")).unwrap();
        let syncs = || {
            let log = watch.log();
            log.iter().filter(|done| matches!(done, Logged::SyncFile(_))).count()
        };
        let mut found = vec![syncs()];
        lines.event(&step(1)).unwrap();
        lines.event(&step(2)).unwrap();
        found.push(syncs());
        lines.event(&examples::epoch()).unwrap();
        found.push(syncs());
        lines.position().unwrap();
        found.push(syncs());
        lines.event(&step(3)).unwrap();
        lines.position().unwrap();
        found.push(syncs());
        assert_eq!(found.iter().map(|count| count - found[0]).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
    }

    #[test]
    fn wherever_a_run_is_killed_resuming_gives_the_file_of_a_run_never_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let events = [examples::epoch(), examples::skipped_step(), examples::epoch_at(4, 560)];
        let mut lines = told(&path, &events[..1]);
        let saved = lines.position().unwrap();
        events[1..].iter().for_each(|event| lines.event(event).unwrap());
        let whole = fs::read(&path).unwrap();
        assert_eq!(lines.position().unwrap(), whole.len() as u64);

        for length in usize::try_from(saved).unwrap()..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let (mut lines, warning) = JsonLines::open_resumed(&path, saved).unwrap();
            assert_eq!(warning, None);
            events[1..].iter().for_each(|event| lines.event(event).unwrap());
            assert_eq!(fs::read(&path).unwrap(), whole, "killed after {length} bytes");
        }
    }

    #[test]
    fn a_file_shorter_than_the_state_knows_keeps_its_complete_lines_with_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let saved = told(&path, &[examples::epoch(), examples::skipped_step()]).position().unwrap();
        let whole = fs::read(&path).unwrap();
        let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let (mut lines, warning) = JsonLines::open_resumed(&path, saved).unwrap();
            let complete = if length < first_line { 0 } else { first_line };
            assert_eq!(fs::read(&path).unwrap(), whole[..complete]);
            assert_eq!(lines.position().unwrap(), complete as u64);
            assert!(warning.unwrap().contains("was changed since the state was saved"));
        }
    }

    #[test]
    fn a_file_edited_so_that_no_line_ends_there_is_kept_with_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        fs::write(&path, "{\"a\":1}\n{\"b\":2}\n").unwrap();
        let (_, warning) = JsonLines::open_resumed(&path, 5).unwrap();
        assert!(warning.is_some());
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"b\":2}\n");
    }

    #[test]
    fn a_missing_file_is_made_anew_with_a_warning_unless_nothing_was_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        assert_eq!(JsonLines::open_resumed(&path, 0).unwrap().1, None);
        fs::remove_file(&path).unwrap();
        assert!(JsonLines::open_resumed(&path, 9).unwrap().1.is_some());
    }

    #[test]
    fn a_fresh_run_never_writes_over_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        fs::write(&path, "kept").unwrap();
        assert!(JsonLines::create(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    }

    #[test]
    fn a_full_disk_is_named_with_the_file_and_the_way_on() {
        // Every write to /dev/full fails with ENOSPC.
        let Ok(full) = crate::disk::Written::open(Path::new("/dev/full")) else { return };
        let path = PathBuf::from("runs/x/metrics.jsonl");
        let mut lines = JsonLines { file: Appended::over(full, 0), path };
        let error: ReportError = lines.event(&examples::epoch()).unwrap_err();
        insta::assert_snapshot!(error, @"cannot append to runs/x/metrics.jsonl; free space on its disk, then go on with --resume");
        assert_eq!(error.source.kind(), io::ErrorKind::StorageFull);
        assert_eq!(lines.position().unwrap(), 0);
    }
}
