//! What a waiting person sees: a spinner with the step under way on a terminal, plain lines elsewhere. All on standard
//! error, because standard output is data.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::console::output::{to_stderr, visible_line};

/// How often a spinner turns.
const TICK: Duration = Duration::from_millis(100);

/// The steps of a start or a stop.
pub struct Progress {
    spinner: Option<ProgressBar>,
    begun: Instant,
    current: Mutex<Option<String>>,
}

impl Progress {
    pub fn new() -> Self {
        Self {
            spinner: is_terminal().then(spinner),
            begun: Instant::now(),
            current: Mutex::default(),
        }
    }

    /// A step begins; the one before it is over.
    pub fn step(&self, text: &str) {
        let text = visible_line(text);
        let before = self
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(text.clone());
        match &self.spinner {
            Some(spinner) => {
                if let Some(before) = before {
                    spinner.println(format!("  {before}"));
                }
                spinner.set_message(text);
                spinner.enable_steady_tick(TICK);
            }
            None => to_stderr(&format!("bazilion: {text}")),
        }
    }

    /// A detail of the step under way, such as how much was fetched: shown on a terminal, and only there.
    pub fn detail(&self, text: &str) {
        let current = self
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let (Some(spinner), Some(current)) = (&self.spinner, current) {
            spinner.set_message(format!("{current}: {}", visible_line(text)));
        }
    }

    /// Something that a person must read stays on the screen.
    pub fn say(&self, text: &str) {
        self.clear();
        to_stderr(text);
    }

    /// The steps are over for now; what is written next stands alone.
    pub fn clear(&self) {
        let before = self
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(spinner) = &self.spinner {
            if let Some(before) = before {
                spinner.println(format!("  {before}"));
            }
            spinner.disable_steady_tick();
            spinner.set_message("");
            spinner.finish_and_clear();
            spinner.reset();
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

fn is_terminal() -> bool {
    use std::io::IsTerminal as _;
    std::io::stderr().is_terminal()
}

fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}
