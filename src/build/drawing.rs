//! Says that a phantom is drawn, which may take minutes, and heeds signals meanwhile.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::run::{Noting, Signal, end};
use crate::screen::{bar_target, counted, stderr_columns, tell_progress, wrapped};

/// Does `work`, which draws a phantom where it is not there yet and tells how many of how many patients are
/// done. That is told on standard error: with a bar on a terminal, else with a line at its beginning and one
/// at its end.
///
/// A signal that comes while the phantom is drawn ends the process once nothing of it is left.
pub fn while_drawing<T>(
    work: impl FnOnce(&mut dyn FnMut(usize, usize) -> ControlFlow<()>) -> T,
) -> T {
    let mut drawing = Drawing::default();
    let done = work(&mut |done, all| drawing.tell(done, all));
    if let Some(signal) = drawing.stopped {
        drop(drawing);
        end(signal, "none of the radiographs is kept");
    }
    done
}

struct Drawing {
    bar: ProgressBar,
    begin: Option<Instant>,
    signals: Option<Noting>,
    stopped: Option<Signal>,
}

impl Default for Drawing {
    /// Nothing is drawn yet, and so nothing shown.
    fn default() -> Self {
        let bar = ProgressBar::hidden().with_style(ProgressStyle::default_bar());
        Self { bar, begin: None, signals: None, stopped: None }
    }
}

impl Drawing {
    /// Shows that `done` of `patients` patients are drawn.
    fn tell(&mut self, done: usize, patients: usize) -> ControlFlow<()> {
        let patients_told = || counted(patients, "patient", "patients");
        let terminal = std::io::stderr().is_terminal();
        let begin = *self.begin.get_or_insert_with(|| {
            say(&format!("drawing the radiographs of {}, once", patients_told()));
            if terminal {
                self.bar.set_length(patients as u64);
                self.bar.set_draw_target(bar_target());
            }
            self.signals = Noting::begin();
            Instant::now()
        });
        self.stopped = self.signals.as_ref().and_then(Noting::requested);
        if self.stopped.is_some() {
            return ControlFlow::Break(());
        }
        self.bar.set_position(done as u64);
        if done == patients {
            self.bar.finish_and_clear();
            if !terminal {
                let seconds = begin.elapsed().as_secs_f64();
                say(&format!("drew the radiographs of {} in {seconds:.1} s", patients_told()));
            }
            // Another source may have its own.
            *self = Self::default();
        }
        ControlFlow::Continue(())
    }
}

fn say(text: &str) {
    tell_progress(&wrapped(text, stderr_columns().unwrap_or(usize::MAX), 2));
}

impl Drop for Drawing {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
