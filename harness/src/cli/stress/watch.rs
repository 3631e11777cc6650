//! Monitors a run: the progress bar, the watchdog, and the exit on Ctrl-C.

use super::super::console::Console;
use super::super::status::Status;
use crate::report::human::Count;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use warpheap::Watchdog;
use warpheap_harness::stress::{Limit, Progress, StressConfig};

/// Time for the driver to release a device after Ctrl-C.
const LEAVE: Duration = Duration::from_secs(2);
/// Interval of progress lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Interval of redrawing the progress bar.
const TICK: Duration = Duration::from_millis(200);
/// Minimum interval of rearming the watchdog. Each rearming starts a thread.
const REARM_EVERY: Duration = Duration::from_secs(1);

/// Progress of a run, for the handler of Ctrl-C.
#[derive(Default)]
struct Place {
    bar: Option<ProgressBar>,
    run: String,
    rounds: u64,
    allocations: u64,
}

/// Watches one run after the other.
pub struct Watch {
    console: Console,
    limit: Duration,
    place: Arc<Mutex<Place>>,
    watchdog: Option<Watchdog>,
    armed: Instant,
    said: Instant,
    name: String,
    /// Length of the run, for the progress bar.
    length: Limit,
    hang: String,
    advice: &'static str,
}

impl Watch {
    /// `limit` is the longest time for a round; 0 disables the watchdog. `advice` is printed if a
    /// round exceeds it.
    pub fn new(console: Console, limit: Duration, advice: &'static str, seed: u64) -> Watch {
        let place = Arc::new(Mutex::new(Place::default()));
        leave_on_interrupt(console, place.clone(), seed);
        let now = Instant::now();
        Watch {
            console,
            limit,
            place,
            watchdog: None,
            armed: now,
            said: now,
            name: String::new(),
            length: Limit::Rounds(0),
            hang: String::new(),
            advice,
        }
    }

    /// Starts a run; `command` repeats it.
    pub fn start(&mut self, config: &StressConfig, command: &str) {
        self.name = config.allocator.to_string();
        self.length = config.limit;
        self.hang = format!("a round of the stress of {} (to repeat it: `{command}`)", config.allocator);
        self.said = Instant::now();
        let mut place = lock(&self.place);
        *place = Place { run: self.name.clone(), ..Place::default() };
        if io::stderr().is_terminal() {
            place.bar = Some(bar(config.limit, &self.name));
        }
        drop(place);
        self.arm();
    }

    /// Called after each round.
    pub fn update(&mut self, progress: &Progress) {
        if self.armed.elapsed() >= REARM_EVERY.min(self.limit / 2) {
            self.arm();
        }
        let mut place = lock(&self.place);
        place.rounds = progress.round;
        place.allocations = progress.allocations;
        if let Some(bar) = &place.bar {
            bar.set_position(match self.length {
                Limit::Time(_) => millis(progress.elapsed),
                Limit::Pairs(_) => progress.pairs,
                Limit::Rounds(_) => progress.round,
            });
            bar.set_message(format!("round {}, {} allocations", progress.round, Count(progress.allocations)));
        } else if self.said.elapsed() >= LINE_EVERY {
            self.said = Instant::now();
            self.console.say(format_args!(
                "{}: {} rounds, {} allocations, {:.0} s",
                self.name,
                progress.round,
                Count(progress.allocations),
                progress.elapsed.as_secs_f64()
            ));
        }
    }

    /// Called after each run.
    pub fn stop(&mut self) {
        self.watchdog = None;
        if let Some(bar) = lock(&self.place).bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Called after all runs.
    pub fn finish(mut self) {
        self.stop();
        lock(&self.place).run.clear();
    }

    fn arm(&mut self) {
        self.armed = Instant::now();
        self.watchdog = (!self.limit.is_zero())
            .then(|| Watchdog::start(self.limit, self.hang.clone(), self.advice, Status::Hung as i32));
    }
}

/// Ignores poisoning: the value is only read.
fn lock(place: &Mutex<Place>) -> MutexGuard<'_, Place> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn bar(limit: Limit, name: &str) -> ProgressBar {
    let (length, template) = match limit {
        Limit::Rounds(rounds) => (rounds, "{prefix:9} [{bar:32}] {pos}/{len} rounds, {elapsed}  {msg}"),
        Limit::Time(time) => (millis(time), "{prefix:9} [{bar:32}] {elapsed}  {msg}"),
        Limit::Pairs(pairs) => (pairs, "{prefix:9} [{bar:32}] {pos}/{len} pairs, {elapsed}  {msg}"),
    };
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    let bar = ProgressBar::new(length).with_style(style.progress_chars("=> ")).with_prefix(name.to_owned());
    tick(&bar);
    bar
}

/// Redraws the bar until it is finished. Without a thread it is redrawn after each round only.
fn tick(bar: &ProgressBar) {
    let bar = bar.downgrade();
    let work = move || {
        while let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) {
            bar.tick();
            thread::sleep(TICK);
        }
    };
    if let Err(error) = thread::Builder::new().name("progress".into()).spawn(work) {
        tracing::debug!(%error, "the progress bar is redrawn after each round only");
    }
}

/// On Ctrl-C, prints the progress of the run and ends the process. No partial results are left
/// behind, because results are written once, at the end.
fn leave_on_interrupt(console: Console, place: Arc<Mutex<Place>>, seed: u64) {
    let handler = move || {
        let place = lock(&place);
        if let Some(bar) = &place.bar {
            bar.finish_and_clear();
        }
        let Place { run, rounds, allocations, .. } = &*place;
        let done = match run.as_str() {
            "" => "no run was in progress".to_owned(),
            _ => {
                format!("{run} had run {rounds} rounds with {} allocations and no fault", Count(*allocations))
            }
        };
        console.warn(format_args!("interrupted: {done}; seed {seed}"));
        // The driver waits for its kernels when a process ends, and one may hang.
        let _leave = Watchdog::start(LEAVE, "the interrupted run", "", Status::Interrupted as i32);
        std::process::exit(Status::Interrupted as i32);
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        tracing::debug!(%error, "Ctrl-C ends the process without a message");
    }
}
