//! Says that a phantom is drawn, which may take minutes.

use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::screen::{bar_target, counted, stderr_columns, tell_progress, wrapped};

/// Tells on standard error that a phantom is drawn: with a bar on a terminal, else with a line at its
/// beginning and one at its end.
pub struct Drawing {
    bar: ProgressBar,
    begin: Option<Instant>,
}

impl Default for Drawing {
    /// Nothing is drawn yet, and so nothing shown.
    fn default() -> Self {
        let bar = ProgressBar::hidden().with_style(ProgressStyle::default_bar());
        Self { bar, begin: None }
    }
}

impl Drawing {
    /// Shows that `done` of `patients` patients are drawn.
    pub fn tell(&mut self, done: usize, patients: usize) {
        let patients_told = || counted(patients, "patient", "patients");
        let terminal = std::io::stderr().is_terminal();
        let begin = *self.begin.get_or_insert_with(|| {
            say(&format!("drawing the radiographs of {}, once", patients_told()));
            if terminal {
                self.bar.set_length(patients as u64);
                self.bar.set_draw_target(bar_target());
            }
            Instant::now()
        });
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
