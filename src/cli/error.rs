//! What ends the program: an error for the user and its exit code.

use std::error::Error;
use std::fmt;

use crate::build::BuildError;
use crate::config::ConfigError;
use crate::memory::offload::OffloadError;
use crate::memory::{DeviceLost, OutOfMemory};
use crate::model::weights::InitialError;
use crate::parallel::processes::Elsewhere;
use crate::run::{OutputsError, RunError, Signal};
use crate::screen::{abridged, visible};
use crate::train::TrainError;

/// An error from anywhere in the program, with what it means for whoever started it.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    error: Cause,
    help: Option<String>,
    /// The failure of another process that this is.
    elsewhere: Option<Elsewhere>,
    /// The rank of this process, where another one speaks for all.
    rank: Option<usize>,
    /// Whether another process tells it.
    told: bool,
}

type Cause = Box<dyn Error + Send + Sync>;

/// What an error means for whoever started the program: its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The configuration or the command line is wrong.
    Configuration,
    /// Data are wrong or missing.
    Data,
    /// Out of memory, with nothing left to try.
    OutOfMemory,
    /// A saved state cannot be used.
    State,
    /// The GPU does not go on.
    DeviceLost,
    /// Stopped by a signal, the state saved.
    Stopped(Signal),
    /// Anything else.
    Other,
}

impl Kind {
    /// What the exit code of another process of this program means, which was not asked to stop.
    pub fn of_code(code: Option<i32>) -> Self {
        let kinds =
            [Self::Configuration, Self::Data, Self::OutOfMemory, Self::State, Self::DeviceLost];
        let same = |kind: &Self| code == Some(i32::from(kind.exit_code()));
        kinds.into_iter().find(same).unwrap_or(Self::Other)
    }

    /// The exit code; scripts are written against these numbers.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Configuration => 2,
            Self::Data => 3,
            Self::OutOfMemory => 4,
            Self::State => 5,
            Self::DeviceLost => 6,
            Self::Stopped(signal) => signal.exit_code(),
            Self::Other => 1,
        }
    }
}

/// A lost GPU, and what was done on it.
#[derive(Debug, thiserror::Error)]
#[error("{during}{lost}")]
struct Lost {
    /// Such as `epoch 2, step 7: `; or nothing.
    during: String,
    lost: DeviceLost,
}

impl Lost {
    fn in_error(error: &(dyn Error + 'static)) -> Option<Self> {
        let text = error.to_string();
        let (mut lost, mut source) = (DeviceLost::in_text(&text), error.source());
        while let (None, Some(error)) = (lost, source) {
            (lost, source) = (DeviceLost::in_text(&error.to_string()), error.source());
        }
        let lost = lost?;
        // What follows says in several ways and many lines that the device has failed.
        let failed = ["could not read from the device", "the device failed"];
        let during = failed.iter().filter_map(|words| text.find(words)).min();
        Some(Self { during: text[..during.unwrap_or(0)].to_owned(), lost })
    }
}

impl Failure {
    /// `error`, which means `kind`, unless it says that the GPU is lost.
    pub fn new(kind: Kind, error: impl Into<Cause>) -> Self {
        let error = error.into();
        let (kind, error, help) = match Lost::in_error(error.as_ref()) {
            Some(lost) => (Kind::DeviceLost, lost.into(), Some(DeviceLost::HELP.to_owned())),
            None => (kind, error, None),
        };
        Self { kind, error, help, elsewhere: None, rank: None, told: false }
    }

    /// The configuration or the command line is wrong.
    pub fn configuration(error: impl Into<Cause>) -> Self {
        Self::new(Kind::Configuration, error)
    }

    /// Data are wrong or missing.
    pub fn data(error: impl Into<Cause>) -> Self {
        Self::new(Kind::Data, error)
    }

    /// A saved state cannot be used.
    pub fn state(error: impl Into<Cause>) -> Self {
        Self::new(Kind::State, error)
    }

    /// Anything that has no exit code of its own.
    pub fn other(error: impl Into<Cause>) -> Self {
        Self::new(Kind::Other, error)
    }

    /// What to do about it, shown below the error.
    pub fn with_help(self, help: Option<String>) -> Self {
        Self { help: self.help.or(help), ..self }
    }

    /// The failure of another process that this is, if it is one.
    pub(super) fn elsewhere(&self) -> Option<&Elsewhere> {
        self.elsewhere.as_ref()
    }

    /// Each line of its message says of which rank it is.
    pub(super) fn of_rank(self, rank: usize) -> Self {
        Self { rank: Some(rank), ..self }
    }

    /// The same without a message: another process tells it.
    pub(super) fn told(self) -> Self {
        Self { told: true, ..self }
    }

    /// What the error means.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The whole message: the error and below it what caused it, each once. Nothing where another process
    /// tells it.
    ///
    /// An error of the configuration shows its place in the file, in colours where they are wanted.
    pub fn render(&self, colour: bool) -> String {
        let shown = self.shown(colour);
        match self.rank {
            _ if self.told => String::new(),
            None => shown,
            Some(rank) => {
                let lines = shown.lines().map(|line| format!("rank {rank}: {line}"));
                lines.collect::<Vec<_>>().join("\n")
            }
        }
    }

    fn shown(&self, colour: bool) -> String {
        let plain = |text: &str| abridged(&visible(text)).into_owned();
        let mut cause = self.error.to_string();
        let mut shown = match self.error.downcast_ref::<ConfigError>() {
            Some(error) => error.render(colour),
            None if matches!(self.kind, Kind::Stopped(_)) => plain(&cause),
            None => format!("error: {}", plain(&cause)),
        };
        shown.truncate(shown.trim_end().len());
        let mut source = self.error.source();
        while let Some(error) = source {
            let text = error.to_string();
            if !cause.contains(&text) {
                shown += &format!("\n  because: {}", plain(text.trim_end()));
            }
            cause = text;
            source = error.source();
        }
        shown.extend(self.help.iter().map(|help| format!("\n  = help: {}", plain(help))));
        shown
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::configuration(error)
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let kind = match &error {
            BuildError::Elsewhere(failure) => Kind::of_code(Some(i32::from(failure.code))),
            BuildError::Device(_)
            | BuildError::DevicesOfProcesses { .. }
            | BuildError::PipelineOfProcesses { .. }
            | BuildError::Cards(_)
            | BuildError::Precision(_)
            | BuildError::Offload(OffloadError::Open { .. })
            | BuildError::Changed(_)
            | BuildError::Initial(
                InitialError::OtherModel { .. } | InitialError::OtherScale { .. },
            )
            | BuildError::NotTrained { .. }
            | BuildError::OtherImages { .. }
            | BuildError::Folds(_)
            | BuildError::NoFolds { .. }
            | BuildError::OtherFolds { .. } => Kind::Configuration,
            BuildError::Folder(folder) if folder.exit_code() == 2 => Kind::Configuration,
            BuildError::Data(_)
            | BuildError::ChangedData(_)
            | BuildError::Weights(_)
            | BuildError::Initial(InitialError::Weights(_)) => Kind::Data,
            BuildError::State(state) if state.exit_code() == 5 => Kind::State,
            BuildError::Restore { .. }
            | BuildError::StatesGone { .. }
            | BuildError::NoState { .. }
            | BuildError::FoldsMissing { .. } => Kind::State,
            BuildError::NothingFits(_) => Kind::OutOfMemory,
            BuildError::Stopped(signal) => Kind::Stopped(*signal),
            _ => Kind::Other,
        };
        let help = match &error {
            BuildError::Data(error) => error.help(),
            _ => None,
        };
        let elsewhere = match &error {
            BuildError::Elsewhere(failure) => Some(failure.clone()),
            _ => None,
        };
        Self { elsewhere, ..Self::new(kind, error).with_help(help) }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let elsewhere = match &error {
            RunError::Elsewhere(failure) => Some(failure.clone()),
            _ => None,
        };
        let kind = match &error {
            RunError::Elsewhere(failure) => Kind::of_code(Some(i32::from(failure.code))),
            RunError::Data(_) | RunError::TooManyBadImages { .. } | RunError::NoImages { .. } => {
                Kind::Data
            }
            RunError::Step { source: TrainError::OutOfMemory { .. }, .. } => Kind::OutOfMemory,
            RunError::Step { source: TrainError::Device(device), .. }
                if OutOfMemory::in_text(&format!("{device:?}")).is_some() =>
            {
                Kind::OutOfMemory
            }
            _ => Kind::Other,
        };
        let help = match &error {
            RunError::Data(error) => error.help(),
            _ => None,
        };
        Self { elsewhere, ..Self::new(kind, error).with_help(help) }
    }
}

impl From<&OutputsError> for Kind {
    fn from(error: &OutputsError) -> Self {
        match error {
            OutputsError::Device(TrainError::OutOfMemory { .. }) => Self::OutOfMemory,
            OutputsError::Device(_) => Self::Other,
            _ => Self::Data,
        }
    }
}

impl From<OutputsError> for Failure {
    fn from(error: OutputsError) -> Self {
        let kind = Kind::from(&error);
        let help = match &error {
            OutputsError::Data(error) => error.help(),
            _ => None,
        };
        Self::new(kind, error).with_help(help)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.render(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read `a.csv`")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("line 3 has 4 columns instead of 19")]
    struct Inner(#[source] Innermost);

    #[derive(Debug, thiserror::Error)]
    #[error("4 columns")]
    struct Innermost;

    #[test]
    fn the_whole_chain_is_shown_and_nothing_twice() {
        let failure = Failure::data(Outer(Inner(Innermost))).with_help(Some("mend it".to_owned()));
        assert_eq!(
            failure.to_string(),
            "error: cannot read `a.csv`\n  because: line 3 has 4 columns instead of 19\n  = help: \
             mend it"
        );
    }

    #[test]
    fn an_error_of_the_configuration_and_a_stop_get_no_second_head() {
        let wrong = config::read("a.toml".to_owned(), "epohcs = 3".to_owned(), &[]);
        let failure = Failure::from(wrong.expect_err("is refused"));
        let plain = failure.render(false);
        assert!(plain.starts_with("error: unknown key `epohcs`"), "{plain}");
        let coloured = failure.render(true);
        assert_ne!(coloured, plain);
        assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
        let stopped =
            Failure::new(Kind::Stopped(Signal::Interrupt), "stopped; go on with --resume");
        assert_eq!(stopped.to_string(), "stopped; go on with --resume");
    }

    #[test]
    fn a_lost_gpu_is_named_with_what_was_done_on_it_and_what_to_do() {
        let text = "epoch 2, step 7: could not read from the device: The device is poisoned\nCaused by:\n  \
                    cuLaunchKernel failed with status 719\nBacktrace:\nNo backtrace available";
        let failure = Failure::other(text).with_help(None);
        assert_eq!(failure.kind(), Kind::DeviceLost);
        let shown = failure.to_string();
        assert!(
            shown.starts_with(
                "error: epoch 2, step 7: the GPU is lost: a kernel failed (CUDA_ERROR_LAUNCH_FAILED"
            ),
            "{shown}"
        );
        assert!(shown.contains("--resume") && !shown.contains("poisoned"), "{shown}");
        let unsaved = RunError::Unsaved(crate::run::GatherError::Device(
            burn::tensor::ExecutionError::with_context(
                "cuStreamSynchronize failed with status 999",
            ),
        ));
        let shown = Failure::from(unsaved).to_string();
        assert!(shown.starts_with("error: the run could not be saved: the GPU is lost"), "{shown}");
    }

    #[test]
    fn exit_codes_are_those_that_scripts_are_written_against() {
        let codes = [
            (Kind::Configuration, 2),
            (Kind::Data, 3),
            (Kind::OutOfMemory, 4),
            (Kind::State, 5),
            (Kind::DeviceLost, 6),
            (Kind::Stopped(Signal::Interrupt), 130),
            (Kind::Stopped(Signal::Terminate), 143),
            (Kind::Stopped(Signal::Hangup), 129),
            (Kind::Other, 1),
        ];
        for (kind, code) in codes {
            assert_eq!(kind.exit_code(), code, "{kind:?}");
            let stopped = matches!(kind, Kind::Stopped(_));
            assert_eq!(Kind::of_code(Some(code.into())), if stopped { Kind::Other } else { kind });
        }
    }
}
