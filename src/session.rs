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
use crate::fault::{self, FaultHandlers};
use crate::jit::events::Following;
use crate::native::modules::Catalogue;
use crate::native::unwind::Unwinder;
use crate::native::watch::{Watch, Watcher};
use crate::options::{ClockChoice, Format, Misuse, Mode, Options};
use crate::recording::{Recording, Version3};
use crate::room;
use crate::sampler::{self, Attached, Definitions, Late, Sampler};
use crate::signal::{Disposition, Handler};
use crate::stack::{Extent, Walker};
use crate::stream::callback::{Callback, WriterFn};
use crate::stream::intern::{FunctionNames, Interner, ring_size, write_modules};
use crate::stream::ring;
use crate::stream::version2::{self, BacktracerFn, Sink, Version2};
use crate::stream::writer::{self, Writer};
use crate::vm::layout::Layout;
use crate::vm::objects::Proto;
use crate::vm::probe::NotFound;
use ljp::encode::Cursor;
use once_cell::sync::Lazy;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::io::Write;
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
    /// There is one, of another VM.
    OtherVm,
    /// This build does not profile.
    Disabled,
    /// The host's writer failed, or ended the profile.
    Writer(i32),
    /// What the host wants called at the end failed.
    OnStop(i32),
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
            Error::Misuse(_) | Error::Running | Error::NotRunning | Error::OtherVm => libc::EINVAL,
            Error::Layout(_) | Error::Platform | Error::Disabled => libc::ENOTSUP,
            Error::Clock(unavailable) => unavailable.errno,
            Error::NoSignal => libc::EBUSY,
            Error::Handler(errno)
            | Error::File(_, errno)
            | Error::Memory(errno)
            | Error::Thread(errno)
            | Error::Writer(errno)
            | Error::OnStop(errno) => *errno,
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
            Error::OtherVm => f.write_str("profiler is running in another Lua VM; stop it there"),
            Error::Disabled => f.write_str(
                "profiler is disabled: this sysprof was built with the feature 'disabled'",
            ),
            Error::Writer(errno) => {
                write!(f, "the writer of the profile ended it: {}", reason(errno))
            }
            Error::OnStop(errno) => {
                write!(f, "the profile's on_stop function failed: {}", reason(errno))
            }
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
    /// Its prototypes, where a stream begins with them.
    pub prototypes: Vec<Proto>,
    /// What it says its version is.
    pub version: String,
    /// What it compiles is followed, unless nobody is to know.
    pub following: Option<Following>,
}

/// What the host wants called at the end of a session: its context and buffer,
/// for it to free.
pub type OnStopFn = unsafe extern "C" fn(ctx: *mut c_void, buf: *mut u8) -> c_int;

/// A host that writes the stream by itself.
#[derive(Clone, Copy)]
pub struct HostWriter {
    /// Called in the handler with what the buffer holds.
    pub writer: Option<WriterFn>,
    /// Called once when a session has ended that was started.
    pub on_stop: Option<OnStopFn>,
    /// Finds the native stacks, in the handler; ours if there is none.
    pub backtracer: Option<BacktracerFn>,
    /// The buffer that the handler collects bytes in.
    pub buffer: *mut u8,
    /// Its bytes.
    pub len: usize,
    /// What the functions are called with.
    pub context: *mut c_void,
}

// SAFETY: the host gives its pointers for as long as a session runs, to be used
// by the one that ends it on whichever thread.
unsafe impl Send for HostWriter {}

impl HostWriter {
    fn on_stop(self) -> Result<(), Error> {
        let Some(on_stop) = self.on_stop else {
            return Ok(());
        };
        // SAFETY: the host's function, with what it gave for that, once.
        match unsafe { on_stop(self.context, self.buffer) } {
            0 => Ok(()),
            _ => {
                let errno = std::io::Error::last_os_error().raw_os_error();
                Err(Error::OnStop(
                    errno.filter(|&e| e != 0).unwrap_or(libc::EIO),
                ))
            }
        }
    }
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
    host_writer: Option<HostWriter>,
    /// The VM that is profiled.
    layout: Layout,
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
        let ended = end(&mut process, None);
        drop(process);
        let _ = ended.and_then(Ended::tell);
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

/// Whether a session runs, or is about to.
pub fn is_running() -> bool {
    let process = process();
    process.session.is_some() || process.starting
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

/// Starts a session of the calling thread. Its stream goes to `host_writer`, if
/// there is one, in version 2.
///
/// `look` finds out about the VM; it is called once it is clear that a session
/// may start.
///
/// # Errors
/// Why it did not start; nothing of it is left then.
pub fn start(
    options: &Options,
    host_writer: Option<HostWriter>,
    look: impl FnOnce() -> Result<Host, Error>,
) -> Result<(), Error> {
    if cfg!(feature = "disabled") {
        return Err(Error::Disabled);
    }
    if cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) {
        return Err(Error::Platform);
    }
    let _starting = Starting::claim()?;
    room::find(memory(options.depth)).map_err(Error::Memory)?;
    // Looking at a VM of unknown layout may read what is not there.
    let faults = FaultHandlers::install().map_err(Error::Handler)?;
    let _readable = fault::unblock();
    // Without the lock: it calls Lua, which may fork, exit or fail.
    let host = look()?;
    let session = Session::start(options, host_writer, host, faults)?;
    process().session = Some(session);
    Ok(())
}

/// The layout of the VM that is being profiled.
pub fn layout() -> Option<Layout> {
    let process = process();
    let session = process.session.as_ref()?;
    Some(session.layout.clone())
}

/// Stops the session, if it is one of the VM whose `global_State` is at
/// `global`, where that is given. `late` is what is known by now.
///
/// # Errors
/// If there is none, or if not all of the stream could be written.
pub fn stop(global: Option<usize>, late: Option<&Late>) -> Result<(), Error> {
    if cfg!(feature = "disabled") {
        return Err(Error::Disabled);
    }
    let mut process = process();
    let running = process.session.as_ref().ok_or(Error::NotRunning)?;
    if global.is_some_and(|global| global != running.layout.global) {
        return Err(Error::OtherVm);
    }
    let ended = end(&mut process, late);
    // The host's function may call us.
    drop(process);
    ended.and_then(Ended::tell)
}

/// Ends a session of the VM whose `global_State` is at `global`, which is about
/// to be closed.
pub fn vm_closes(global: usize) {
    // Nobody is left who could be told of an error.
    let _ = stop(Some(global), None);
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

fn end(process: &mut Process, late: Option<&Late>) -> Result<Ended, Error> {
    let session = process.session.take().ok_or(Error::NotRunning)?;
    let host_writer = session.host_writer;
    let _readable = fault::unblock();
    let (report, result) = session.stop(late);
    process.last = report;
    Ok(Ended {
        result,
        host_writer,
    })
}

/// A session that has ended, of which the host is to be told.
struct Ended {
    result: Result<(), Error>,
    host_writer: Option<HostWriter>,
}

impl Ended {
    /// Calls the host's function. An error of the stream goes before its own.
    fn tell(self) -> Result<(), Error> {
        let told = self.host_writer.map_or(Ok(()), HostWriter::on_stop);
        self.result.and(told)
    }
}

impl Session {
    fn start(
        options: &Options,
        host_writer: Option<HostWriter>,
        mut host: Host,
        faults: FaultHandlers,
    ) -> Result<Session, Error> {
        let number = free_signal(options).ok_or(Error::NoSignal)?;
        let clock = match options.clock {
            ClockChoice::Auto => Clock::best(options.interval, number),
            ClockChoice::Only(kind) => Clock::new(kind, options.interval, number),
        }
        .map_err(Error::Clock)?;
        let kind = clock.kind();
        let unwinder = Unwinder::new(host.modules.loaded());
        let started = clock::monotonic();
        let stream = match host_writer {
            Some(host_writer) => Stream::to_host(options, &host_writer, &host)?,
            None => match options.output() {
                None => Stream::default(),
                Some(path) => Stream::to_file(path, options, &mut host, kind, started)?,
            },
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

        let layout = host.layout.clone();
        let tables = host.following.as_ref().map(Following::tables);
        let extent = match options.mode {
            Mode::Default => Extent::State,
            Mode::Leaf => Extent::Leaf,
            Mode::Callgraph => Extent::Full(options.depth),
        };
        let sampler = Box::new(Sampler::new(
            clock,
            Walker::new(host.layout, unwinder, extent).with_tables(tables),
            Definitions {
                modules: stream.modules,
                functions: host.functions,
            },
            stream.recording,
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
            output: stream.output,
            host_writer,
            layout,
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

    fn stop(self, late: Option<&Late>) -> (Report, Result<(), Error>) {
        let duration = clock::monotonic() - self.started;
        let sampler = self.attached.detach();
        // With its clock: what that had sent has arrived then.
        let (counters, recording, mut last) = sampler.into_recording(late);
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
        let result = recording.map_or(Ok(()), |mut recording| {
            last.extend(recording.finish(&ljp::Counters {
                duration_us: duration / 1000,
                samples: counts.samples,
                overruns: counts.overruns,
                by_state: counts.by_state,
                by_reason: counts.by_reason,
                errno: 0,
            }));
            match self.output {
                None => recording
                    .failure()
                    .map_or(Ok(()), |errno| Err(Error::Writer(errno))),
                Some((writer, path)) => {
                    (writer.finish(&last)).map_err(|errno| Error::File(path, errno))
                }
            }
        });
        (report, result)
    }
}

/// The stream of a session, opened and begun.
#[derive(Default)]
struct Stream {
    recording: Option<Recording>,
    /// Who looks for modules that are loaded later.
    modules: Option<(Arc<Watch>, Arc<writer::Signals>)>,
    output: Option<(Writer, PathBuf)>,
}

impl Stream {
    /// A stream into the file at `path`. Takes the modules out of `host`.
    fn to_file(
        path: &Path,
        options: &Options,
        host: &mut Host,
        clock: Kind,
        started: u64,
    ) -> Result<Stream, Error> {
        let file_error = |error: std::io::Error| {
            Error::File(path.into(), error.raw_os_error().unwrap_or(libc::EIO))
        };
        let mut file = writer::create(path).map_err(file_error)?;
        let (mut producer, consumer) = ring::ring(ring_size(options.depth));
        match options.format {
            Format::Version3 => {
                let mut bytes = vec![0; 64 * 1024];
                let mut record = Cursor::new(&mut bytes);
                record.prologue();
                for (key, value) in facts(options, host, clock) {
                    record.meta(key.as_bytes(), value.as_bytes());
                }
                producer.put(record.written());
                write_modules(host.modules.all(), &mut producer);
                producer.publish();
            }
            // It may be longer than the ring.
            Format::Version2 => file.write_all(&beginning(host)).map_err(file_error)?,
        }
        let watch = Arc::new(Watch::default());
        let mut symbols_of = host.modules.all().len();
        let mut watcher = Watcher::new(watch.clone(), std::mem::take(&mut host.modules));
        let format = options.format;
        let asked = watch.clone();
        let writer = Writer::start(file, consumer, move |last| {
            if last && format == Format::Version2 {
                // What was loaded since somebody asked has no symbols in it yet.
                asked.ask();
            }
            watcher.attend();
            let added = &watcher.modules()[symbols_of..];
            symbols_of += added.len();
            match format {
                Format::Version3 => Vec::new(),
                Format::Version2 => version2::late_symbols(added),
            }
        })
        .map_err(|error| Error::Thread(error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        let signals = writer.signals().clone();
        let recording = match options.format {
            Format::Version3 => Recording::Version3(Version3::new(
                Interner::new(options.depth),
                producer,
                signals.clone(),
                started,
            )),
            Format::Version2 => {
                let sink = Sink::Ring {
                    out: producer,
                    writer: signals.clone(),
                };
                Recording::Version2(version2(options, host, sink, None))
            }
        };
        Ok(Stream {
            recording: Some(recording),
            modules: Some((watch, signals)),
            output: Some((writer, path.into())),
        })
    }

    /// A stream to a writer of the host's, where the mode has one.
    fn to_host(options: &Options, to: &HostWriter, host: &Host) -> Result<Stream, Error> {
        let (Some(writer), Mode::Leaf | Mode::Callgraph) = (to.writer, options.mode) else {
            return Ok(Stream::default());
        };
        // SAFETY: the host gives the buffer to the session, with a writer that
        // may be called in a handler.
        let mut callback = unsafe { Callback::new(to.buffer, to.len, writer, to.context) };
        callback.put(&beginning(host));
        if let Some(errno) = callback.failure() {
            return Err(Error::Writer(errno));
        }
        let stream = version2(options, host, Sink::Callback(callback), to.backtracer);
        Ok(Stream {
            recording: Some(Recording::Version2(stream)),
            ..Stream::default()
        })
    }
}

/// The symbols that a stream of version 2 begins with.
fn beginning(host: &Host) -> Vec<u8> {
    let modules = host.modules.all();
    version2::beginning(&host.layout, &host.prototypes, modules, &host.functions)
}

fn version2(
    options: &Options,
    host: &Host,
    sink: Sink,
    backtracer: Option<BacktracerFn>,
) -> Version2 {
    let depth = match options.mode {
        Mode::Callgraph => options.depth,
        Mode::Default | Mode::Leaf => 1,
    };
    Version2::new(sink, &host.layout, &host.prototypes, depth, backtracer)
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
/// no business with, else a real-time signal. The interval timer's is fixed, and so
/// is the one that others send.
fn free_signal(options: &Options) -> Option<i32> {
    let fixed = [Kind::Interval, Kind::Manual].map(ClockChoice::Only);
    let fixed = fixed.contains(&options.clock);
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
