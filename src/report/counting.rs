//! How far a pass over images is.

use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::screen::{bar_target, counted, tell_progress};

/// Tells on standard error how many images are done: with a bar on a terminal, and a line at the end.
pub struct Counting {
    bar: ProgressBar,
    begin: Instant,
}

impl Counting {
    /// Of `images` images nothing is done; `what` stands before the bar.
    pub fn new(what: &str, images: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(images as u64), bar_target());
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}  {per_sec}  {eta}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: bar.with_style(style).with_message(what.to_owned()), begin: Instant::now() }
    }

    /// So many images are done.
    pub fn tell(&self, done: usize) {
        self.bar.set_position(done as u64);
    }

    /// Takes the bar away and says how long `images` images took.
    pub fn finish(self, images: usize) {
        self.bar.finish_and_clear();
        let seconds = self.begin.elapsed().as_secs_f64();
        let rate = images as f64 / seconds.max(1e-9);
        let images = counted(images, "image", "images");
        let what = self.bar.message();
        tell_progress(&format!("{what}: {images} in {seconds:.1} s, {rate:.1} images/s"));
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
