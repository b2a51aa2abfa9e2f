//! The one profiling session that a process can have.
//!
//! Knows: what a session is put together from, in which order it is taken
//! apart, and who may end it. Must not know: Lua's API.
//!
//! States: idle, running. What fails on the way to running is undone by
//! dropping what was made so far. After a session its last report is kept.

use crate::altstack::SignalStack;
use crate::clock::{self, Clock, Kind};
use crate::counters::Counts;
use crate::fault::FaultHandlers;
use crate::jit::events::Following;
use crate::native::modules::Catalogue;
use crate::native::unwind::Unwinder;
use crate::native::watch::{Watch, Watcher};
use crate::options::{ClockChoice, Misuse, Mode, Options};
use crate::recording::Recording;
use crate::room;
use crate::sampler::{self, Attached, Definitions, Sampler};
use crate::signal::{Disposition, Handler};
use crate::stack::{Extent, Walker};
use crate::stream::intern::{FunctionNames, Interner, ring_size, write_modules};
use crate::stream::ring;
use crate::stream::writer::{self, Writer};
use crate::vm::layout::Layout;
use crate::vm::probe::NotFound;
use ljp::encode::Cursor;
use once_cell::sync::Lazy;
use std::cell::UnsafeCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Why a session could not be started, stopped or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Options that make no sense.
    Misuse(Misuse),
    /// There is a session already.
    Running,
    /// There is none.
    NotRunning,
    /// The VM is one that sysprof does not know.
    Layout(NotFound),
    /// No clock, or not the one that was asked for.
    Clock(clock::Unavailable),
    /// No signal is free for the clock to send.
    NoSignal,
    /// A signal handler could not be installed.
    Handler(i32),
    /// The file could not be made or written.
    File(PathBuf, i32),
    /// There is no memory for a session.
    Memory(i32),
    /// The thread that writes could not be started.
    Thread(i32),
    /// This is no platform that sysprof knows.
    Platform,
}

impl From<Misuse> for Error {
    fn from(misuse: Misuse) -> Error {
        Error::Misuse(misuse)
    }
}

impl Error {
    /// The number that goes with it.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Misuse(_) | Error::Running | Error::NotRunning => libc::EINVAL,
            Error::Layout(_) | Error::Platform => libc::ENOTSUP,
            Error::Clock(unavailable) => unavailable.errno,
            Error::NoSignal => libc::EBUSY,
            Error::Handler(errno)
            | Error::File(_, errno)
            | Error::Memory(errno)
            | Error::Thread(errno) => *errno,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = |errno: &i32| std::io::Error::from_raw_os_error(*errno);
        match self {
            Error::Misuse(misuse) => misuse.fmt(f),
            Error::Running => f.write_str("profiler is running already"),
            Error::NotRunning => f.write_str("profiler is not running"),
            Error::Layout(missing) => missing.fmt(f),
            Error::Clock(unavailable) => unavailable.fmt(f),
            Error::NoSignal => f.write_str(
                "no signal is free for the profiler's clock: the program uses or blocks all of them",
            ),
            Error::Handler(errno) => {
                write!(f, "a signal handler could not be installed: {}", reason(errno))
            }
            Error::File(path, errno) => write!(f, "{}: {}", path.display(), reason(errno)),
            Error::Memory(errno) => {
                write!(f, "there is no memory for a session: {}", reason(errno))
            }
            Error::Thread(errno) => {
                write!(f, "the thread that writes the profile did not start: {}", reason(errno))
            }
            Error::Platform => f.write_str("sysprof runs on x86-64 Linux only"),
        }
    }
}

/// What is known of the VM that is to be profiled.
pub struct Host {
    /// Its layout.
    pub layout: Layout,
    /// Modules that were loaded when it was looked at.
    pub modules: Catalogue,
    /// Functions that are known by name.
    pub functions: FunctionNames,
    /// What it says its version is.
    pub version: String,
    /// What it compiles is followed, unless nobody is to know.
    pub following: Option<Following>,
}

/// What a session has counted, and how it is going.
#[derive(Clone, Debug)]
pub struct Report {
    /// The counts.
    pub counts: Counts,
    /// Whether it still runs.
    pub running: bool,
    /// Its mode.
    pub mode: Mode,
    /// Its interval.
    pub interval: std::time::Duration,
    /// The clock that ran; none before the first session.
    pub clock: Option<Kind>,
}

impl Default for Report {
    fn default() -> Report {
        let options = Options::default();
        Report {
            counts: Counts::default(),
            running: false,
            mode: options.mode,
            interval: options.interval,
            clock: None,
        }
    }
}

/// A session that runs. Fields are dropped in this order: the signal ends
/// before what its handler needs.
struct Session {
    attached: Attached,
    signal: Handler,
    trap: Option<Handler>,
    faults: FaultHandlers,
    stack: Option<SignalStack>,
    following: Option<Following>,
    output: Option<(Writer, PathBuf)>,
    global: usize,
    /// The process that started it.
    process: u32,
    started: u64,
    report: Report,
}

#[derive(Default)]
struct Process {
    session: Option<Session>,
    /// Whether a thread is about to start one.
    starting: bool,
    last: Report,
}

static PROCESS: Lazy<Mutex<Process>> = Lazy::new(|| {
    // A session must not outlive the process's orderly end, nor reach a child.
    // SAFETY: functions of this library, which is never unloaded.
    unsafe {
        libc::atexit(at_exit);
        libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
    }
    Mutex::default()
});

fn process() -> MutexGuard<'static, Process> {
    let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    process.leave_parent();
    process
}

extern "C" fn at_exit() {
    // Held only if the process ends inside of start, stop or report.
    if let Ok(mut process) = PROCESS.try_lock() {
        process.leave_parent();
        let _ = end(&mut process);
    }
}

/// The lock while a fork is under way: were another thread inside it then, the
/// child would wait for that thread for ever.
struct Forking(UnsafeCell<Option<MutexGuard<'static, Process>>>);

// SAFETY: touched by the holder of the lock only.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: this thread holds the lock.
    unsafe { *FORKING.0.get() = Some(process) };
}

extern "C" fn in_parent() {
    // SAFETY: this thread has held the lock since `before_fork`.
    drop(unsafe { (*FORKING.0.get()).take() });
}

extern "C" fn in_child() {
    // SAFETY: as above; it is the only thread there is.
    if let Some(mut process) = unsafe { (*FORKING.0.get()).take() } {
        // The thread that was at it is not here.
        process.starting = false;
        process.leave_parent();
    }
}

impl Process {
    /// In a child, forgets its parent's session: there is no thread and no timer
    /// of it here, and the file is not to be touched. A child that was made
    /// without the C library (`clone(2)`) finds that out when it first looks.
    fn leave_parent(&mut self) {
        let here = std::process::id();
        let Some(session) = self.session.take_if(|session| session.process != here) else {
            return;
        };
        let Session {
            attached,
            signal,
            trap,
            faults,
            stack,
            output,
            ..
        } = session;
        attached.abandon_in_child();
        drop((signal, trap, faults, stack));
        if let Some((writer, _)) = output {
            writer.abandon();
        }
        self.last = Report::default();
    }
}

/// The right to start a session, which one thread has at a time.
struct Starting;

impl Starting {
    fn claim() -> Result<Starting, Error> {
        let mut process = process();
        if process.session.is_some() || process.starting {
            return Err(Error::Running);
        }
        process.starting = true;
        Ok(Starting)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        process().starting = false;
    }
}

/// Starts a session of the calling thread.
///
/// `look` finds out about the VM; it is called once it is clear that a session
/// may start.
///
/// # Errors
/// Why it did not start; nothing of it is left then.
pub fn start(options: &Options, look: impl FnOnce() -> Result<Host, Error>) -> Result<(), Error> {
    if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
        return Err(Error::Platform);
    }
    let _starting = Starting::claim()?;
    room::find(memory(options.depth)).map_err(Error::Memory)?;
    // Looking at a VM of unknown layout may read what is not there.
    let faults = FaultHandlers::install().map_err(Error::Handler)?;
    // Without the lock: it calls Lua, which may fork, exit or fail.
    let host = look()?;
    let session = Session::start(options, host, faults)?;
    process().session = Some(session);
    Ok(())
}

/// Stops the session.
///
/// # Errors
/// If there is none, or if not all of the stream could be written.
pub fn stop() -> Result<(), Error> {
    end(&mut process())
}

/// Ends a session of the VM whose `global_State` is at `global`, which is about
/// to be closed.
pub fn vm_closes(global: usize) {
    let mut process = process();
    if (process.session.as_ref()).is_some_and(|session| session.global == global) {
        // Nobody is left who could be told of an error.
        let _ = end(&mut process);
    }
}

/// What the running session has counted, or the last one, or zeroes.
pub fn report() -> Report {
    let process = process();
    match &process.session {
        Some(session) => Report {
            counts: session.attached.sampler().counters().read(),
            ..session.report.clone()
        },
        None => process.last.clone(),
    }
}

fn end(process: &mut Process) -> Result<(), Error> {
    let session = process.session.take().ok_or(Error::NotRunning)?;
    let (report, result) = session.stop();
    process.last = report;
    result
}

impl Session {
    fn start(options: &Options, host: Host, faults: FaultHandlers) -> Result<Session, Error> {
        let number = free_signal(options).ok_or(Error::NoSignal)?;
        let clock = match options.clock {
            ClockChoice::Auto => Clock::best(options.interval, number),
            ClockChoice::Only(kind) => Clock::new(kind, options.interval, number),
        }
        .map_err(Error::Clock)?;
        let kind = clock.kind();
        let unwinder = Unwinder::new(host.modules.loaded());
        let output = match options.output() {
            None => None,
            Some(path) => {
                let facts = facts(options, &host, kind);
                Some(Output::open(path, options.depth, &facts, host.modules)?)
            }
        };
        let trap = if is_traced() {
            None
        } else {
            let blocked = [number];
            Some(
                Handler::install(libc::SIGTRAP, sampler::on_trap, libc::SA_ONSTACK, &blocked)
                    .map_err(Error::Handler)?,
            )
        };
        let stack = SignalStack::install().map_err(Error::Memory)?;
        let blocked = [libc::SIGTRAP];
        let signal = Handler::install(number, sampler::on_signal, libc::SA_ONSTACK, &blocked)
            .map_err(Error::Handler)?;

        let global = host.layout.global;
        let tables = host.following.as_ref().map(Following::tables);
        let extent = match options.mode {
            Mode::Default => Extent::State,
            Mode::Leaf => Extent::Leaf,
            Mode::Callgraph => Extent::Full(options.depth),
        };
        let started = clock::monotonic();
        let (recording, modules, output) = match output {
            None => (None, None, None),
            Some(output) => {
                let signals = output.writer.signals().clone();
                let interner = Interner::new(options.depth);
                let modules = (output.watch, signals.clone());
                (
                    Some(Recording::new(interner, output.producer, signals, started)),
                    Some(modules),
                    Some((output.writer, output.path)),
                )
            }
        };
        let sampler = Box::new(Sampler::new(
            clock,
            Walker::new(host.layout, unwinder, extent).with_tables(tables),
            Definitions {
                modules,
                functions: host.functions,
            },
            recording,
            trap.as_ref().map(Handler::before),
        ));
        let attached = sampler.attach().map_err(Error::Clock)?;
        Ok(Session {
            attached,
            signal,
            trap,
            faults,
            stack,
            following: host.following,
            output,
            global,
            process: std::process::id(),
            started,
            report: Report {
                counts: Counts::default(),
                running: true,
                mode: options.mode,
                interval: options.interval,
                clock: Some(kind),
            },
        })
    }

    fn stop(self) -> (Report, Result<(), Error>) {
        let duration = clock::monotonic() - self.started;
        let sampler = self.attached.detach();
        // With its clock: what that had sent has arrived then.
        let (counters, recording) = sampler.into_recording();
        self.signal.discard_pending();
        drop((self.signal, self.faults, self.stack, self.following));
        if sampler::left_alone() {
            drop(self.trap);
        } else {
            // The thread that was let go on sleeps. What its next instruction
            // raises must still find our handler.
            std::mem::forget(self.trap);
        }
        let counts = counters.read();
        let report = Report {
            counts,
            running: false,
            ..self.report
        };
        let result = match (self.output, recording) {
            (Some((writer, path)), Some(recording)) => {
                let mut bytes = [0; writer::LAST];
                let mut last = Cursor::new(&mut bytes);
                recording.owed_to(&mut last);
                last.end(&ljp::Counters {
                    duration_us: duration / 1000,
                    samples: counts.samples,
                    overruns: counts.overruns,
                    by_state: counts.by_state,
                    by_reason: counts.by_reason,
                    errno: 0,
                });
                writer
                    .finish(last.written())
                    .map_err(|errno| Error::File(path, errno))
            }
            _ => Ok(()),
        };
        (report, result)
    }
}

/// The file of a session, opened and begun.
struct Output {
    path: PathBuf,
    writer: Writer,
    producer: ring::Producer,
    watch: Arc<Watch>,
}

impl Output {
    fn open(
        path: &Path,
        depth: usize,
        facts: &[(&str, String)],
        modules: Catalogue,
    ) -> Result<Output, Error> {
        let file_error = |error: std::io::Error| {
            Error::File(path.into(), error.raw_os_error().unwrap_or(libc::EIO))
        };
        let file = writer::create(path).map_err(file_error)?;
        let (mut producer, consumer) = ring::ring(ring_size(depth));
        let mut bytes = vec![0; 64 * 1024];
        let mut record = Cursor::new(&mut bytes);
        record.prologue();
        for (key, value) in facts {
            record.meta(key.as_bytes(), value.as_bytes());
        }
        producer.put(record.written());
        write_modules(modules.all(), &mut producer);
        producer.publish();
        let watch = Arc::new(Watch::default());
        let mut watcher = Watcher::new(watch.clone(), modules);
        let writer = Writer::start(file, consumer, move || watcher.attend())
            .map_err(|error| Error::Thread(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        Ok(Output {
            path: path.into(),
            writer,
            producer,
            watch,
        })
    }
}

/// Bytes that a session takes at the most, besides what [`Watcher`] and
/// [`Catalogue`] copy of the modules: the handler's tables, and a ring that is
/// copied once while it is made.
fn memory(depth: usize) -> usize {
    const TABLES: usize = 12 << 20;
    TABLES + 2 * ring_size(depth) + Catalogue::memory()
}

/// What a reader should know of the session before its samples.
fn facts(options: &Options, host: &Host, clock: Kind) -> Vec<(&'static str, String)> {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let gc64 = host.layout.family == crate::vm::layout::Family::Gc64;
    vec![
        ("recorder", env!("CARGO_PKG_VERSION").to_owned()),
        ("mode", options.mode.letter().to_owned()),
        ("clock", clock.name().to_owned()),
        ("interval_ns", options.interval.as_nanos().to_string()),
        ("start_unix_us", since_epoch.as_micros().to_string()),
        ("pid", std::process::id().to_string()),
        // SAFETY: no arguments, cannot fail.
        ("tid", unsafe { libc::gettid() }.to_string()),
        ("host", program.to_string_lossy().into_owned()),
        ("luajit", host.version.clone()),
        ("arch", std::env::consts::ARCH.to_owned()),
        ("gc64", gc64.to_string()),
        ("depth", options.depth.to_string()),
    ]
}

/// A signal that nobody uses: SIGPROF if it is free, else one that programs have
/// no business with, else a real-time signal. The interval timer's is fixed.
fn free_signal(options: &Options) -> Option<i32> {
    let fixed = options.clock == ClockChoice::Only(Kind::Interval);
    let others = [libc::SIGSTKFLT]
        .into_iter()
        .chain(libc::SIGRTMIN() + 1..libc::SIGRTMAX());
    let others = others.filter(|_| !fixed);
    std::iter::once(libc::SIGPROF)
        .chain(others)
        .find(|&signal| {
            !is_blocked(signal)
                && Disposition::current(signal)
                    .is_ok_and(|disposition| disposition.is_free_for(sampler::on_signal))
        })
}

fn is_blocked(signal: i32) -> bool {
    // SAFETY: reads the mask into a set of ours.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        libc::sigismember(&mask, signal) == 1
    }
}

/// Whether a debugger is attached: it would see the traps of stepping.
fn is_traced() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    (status.lines())
        .find_map(|line| line.strip_prefix("TracerPid:"))
        .is_some_and(|tracer| tracer.trim() != "0")
}
