//! A LuaJIT under a tracer, that is brought to an exact instruction.
//!
//! Knows: ptrace(2), what each stop of the process must look like. Must not
//! know: what the places in the VM mean.

use crate::host::{self, Symbols};
use nix::sys::ptrace::{self, AddressType};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::c_long;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

pub use libc::user_regs_struct as Registers;

/// `int3`: the instruction of a breakpoint.
const BREAKPOINT: u8 = 0xcc;
/// The instruction of a system call.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `si_code` of a breakpoint's trap on x86-64 (`SI_KERNEL`).
const BREAKPOINT_CODE: i32 = 0x80;
/// `si_code` of the trap after an instruction (`TRAP_TRACE`), and the one that
/// some virtual machines report instead.
const STEP_CODES: [i32; 2] = [2, 1];
/// More instructions than there are from any place to the next one.
const MAX_STEPS: usize = 3_000_000;

/// When the tracer attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// Once the session runs: it uses the trap flag, of which the tracer sees
    /// each trap and passes it on.
    AfterStart,
    /// Before the session starts: it sees that it is traced, and keeps off.
    BeforeStart,
}

/// A process that is stopped.
pub struct Tracee {
    pid: Pid,
    child: Child,
    output: BufReader<ChildStdout>,
    symbols: Symbols,
    bias: u64,
    profile: PathBuf,
    _folder: tempfile::TempDir,
}

/// How a process went on after its signal.
pub struct Ended {
    /// What it printed.
    pub output: String,
    /// Instructions that the recorder had it go on by before it took the sample.
    pub steps: usize,
    profile: PathBuf,
    _folder: tempfile::TempDir,
}

impl Ended {
    /// Where its stream is.
    pub fn profile(&self) -> &Path {
        &self.profile
    }
}

impl Tracee {
    /// Runs `program` in an interpreter whose options are `options`, up to the
    /// point where its session has started and nothing of it has run.
    pub fn new(program: &str, options: &[&str], attach: Attach) -> Tracee {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("case.lua");
        std::fs::write(&script, program).expect("a script");
        let profile = folder.path().join("profile");
        let start = concat!(
            "dofile '",
            env!("CARGO_MANIFEST_DIR"),
            "/tests/managed/start.lua'"
        );
        let before = match attach {
            Attach::AfterStart => "",
            Attach::BeforeStart => "io.write 'here\\n' io.flush() assert(io.read() == 'go')",
        };
        let mut child = Command::new(host::luajit())
            .args(options)
            .args(["-e", before, "-e", start])
            .arg(&script)
            .env("LUA_PATH", host::lua_path())
            .env("SYSPROF_RECORDER", host::recorder())
            .env("SYSPROF_PROFILE", &profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let pid = Pid::from_raw(child.id() as i32);
        let mut tracee = Tracee {
            pid,
            child,
            output,
            symbols: Symbols::of(&host::luajit()),
            bias: 0,
            profile,
            _folder: folder,
        };
        if attach == Attach::BeforeStart {
            tracee.expect_line("here");
            tracee.seize();
            tracee.resume(None);
            tracee.say_go();
            tracee.run_to_line("ready");
        } else {
            tracee.expect_line("ready");
            tracee.seize();
            tracee.resume(None);
            tracee.interrupt();
        }
        tracee.bias = tracee.mappings(|path| path == host::luajit())[0]
            .range
            .start;
        tracee.say_go();
        tracee
    }

    fn expect_line(&mut self, expected: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("its output");
        assert_eq!(line.trim_end(), expected, "its session did not start");
    }

    /// Runs until it prints that line. Meanwhile faults of it are the recorder's to
    /// absorb, and whoever waits for its output does not see them.
    fn run_to_line(&mut self, expected: &str) {
        let (pid, output) = (self.pid, &mut self.output);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut line = String::new();
                let read = output.read_line(&mut line);
                // A signal that nobody handles stops it for its tracer.
                kill(pid, Signal::SIGURG).expect("a process that runs");
                read.expect("its output");
                line
            });
            loop {
                match waitpid(pid, None).expect("a child") {
                    WaitStatus::Stopped(_, Signal::SIGURG) => break,
                    WaitStatus::Stopped(_, signal) => {
                        ptrace::cont(pid, signal).expect("a process that is stopped");
                    }
                    other => panic!("it ended: {other:?}"),
                }
            }
            let line = reader.join().expect("a reader");
            assert_eq!(line.trim_end(), expected, "its session did not start");
        });
    }

    fn say_go(&mut self) {
        let input = self.child.stdin.as_mut().expect("its input");
        input.write_all(b"go\n").expect("a process that reads");
    }

    fn seize(&mut self) {
        // It dies with the test, wherever that fails.
        ptrace::seize(self.pid, ptrace::Options::PTRACE_O_EXITKILL).expect("to be its tracer");
        self.interrupt();
    }

    fn interrupt(&self) {
        ptrace::interrupt(self.pid).expect("a process that runs");
        let stop = self.wait();
        assert_eq!(
            stop,
            WaitStatus::PtraceEvent(self.pid, Signal::SIGTRAP, libc::PTRACE_EVENT_STOP)
        );
    }

    fn wait(&self) -> WaitStatus {
        waitpid(self.pid, None).expect("a child")
    }

    fn resume(&self, signal: Option<Signal>) {
        ptrace::cont(self.pid, signal).expect("a process that is stopped");
    }

    fn trap(&self, codes: &[i32]) {
        let mut stop = self.wait();
        // A fault is the recorder's to absorb.
        while let WaitStatus::Stopped(_, fault @ (Signal::SIGSEGV | Signal::SIGBUS)) = stop {
            self.resume(Some(fault));
            stop = self.wait();
        }
        assert_eq!(stop, WaitStatus::Stopped(self.pid, Signal::SIGTRAP));
        let code = self.code();
        assert!(
            codes.contains(&code),
            "si_code {code}, not one of {codes:?}"
        );
    }

    fn code(&self) -> i32 {
        ptrace::getsiginfo(self.pid).expect("a signal").si_code
    }

    /// Its registers.
    pub fn registers(&self) -> Registers {
        ptrace::getregs(self.pid).expect("its registers")
    }

    /// The word at `address` in its memory.
    pub fn word(&self, address: u64) -> u64 {
        let word = ptrace::read(self.pid, address as AddressType);
        word.expect("memory that is there") as u64
    }

    /// The first bytes of the instruction that it is at.
    pub fn instruction(&self) -> [u8; 8] {
        self.word(self.registers().rip).to_le_bytes()
    }

    /// A file under /proc that tells of it.
    pub fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.pid)).expect("its /proc")
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        tasks.expect("its /proc").count()
    }

    fn mappings(&self, is: impl Fn(&Path) -> bool) -> Vec<Mapping> {
        (self.proc("maps").lines())
            .filter_map(Mapping::parse)
            .filter(|mapping| is(&mapping.path))
            .collect()
    }

    /// Where a function of the VM is in this process.
    pub fn address(&self, function: &str) -> u64 {
        self.bias + self.symbols.address(function)
    }

    /// Where a function of the C library is.
    pub fn libc(&self, function: &str) -> u64 {
        let is = |path: &Path| path.ends_with("libc.so.6");
        let mapping = &self.mappings(is)[0];
        mapping.range.start + Symbols::of(&mapping.path).address(function)
    }

    /// The function of the VM that it is in, `None` outside of its program.
    pub fn function(&self) -> Option<&str> {
        let rip = self.registers().rip;
        (self.mappings(|path| path == host::luajit()).iter())
            .any(|mapping| mapping.range.contains(&rip))
            .then(|| self.symbols.name(rip - self.bias))
            .flatten()
    }

    /// Runs to the first instruction of a function of the VM.
    pub fn run_to(&mut self, function: &str) {
        let address = self.address(function);
        let place = address as AddressType;
        let before = ptrace::read(self.pid, place).expect("code");
        let trap = (before & !0xff) | c_long::from(BREAKPOINT);
        ptrace::write(self.pid, place, trap).expect("to set a breakpoint");
        self.resume(None);
        self.trap(&[BREAKPOINT_CODE]);
        ptrace::write(self.pid, place, before).expect("to remove a breakpoint");
        let mut registers = self.registers();
        assert_eq!(
            registers.rip,
            address + 1,
            "not the breakpoint of {function}"
        );
        registers.rip = address;
        ptrace::setregs(self.pid, registers).expect("to set its registers");
    }

    /// Runs one instruction.
    pub fn step(&mut self) {
        ptrace::step(self.pid, None).expect("a process that is stopped");
        self.trap(&STEP_CODES);
    }

    /// Runs instruction by instruction until it is at one that `there` accepts.
    pub fn step_until(&mut self, what: &str, mut there: impl FnMut(&Tracee) -> bool) {
        for _ in 0..MAX_STEPS {
            self.step();
            if there(self) {
                return;
            }
        }
        panic!("never got to {what}");
    }

    /// Runs instruction by instruction until the next one is the system call.
    pub fn step_to_call(&mut self, number: c_long) {
        self.step_until("the system call", |tracee| {
            tracee.instruction().starts_with(&SYSCALL) && tracee.registers().rax == number as u64
        });
    }

    /// Runs on to the instruction at `address`.
    pub fn step_to(&mut self, what: &str, address: u64) {
        self.step_until(what, |tracee| tracee.registers().rip == address);
    }

    /// Sends it the profiling signal right here and lets it run to its end.
    pub fn sampled(self) -> Ended {
        self.end(Some(Signal::SIGPROF))
    }

    /// Lets it run to its end without a signal.
    pub fn undisturbed(self) -> Ended {
        self.end(None)
    }

    fn end(mut self, signal: Option<Signal>) -> Ended {
        let mut steps = 0;
        let mut next = signal;
        loop {
            self.resume(next);
            match self.wait() {
                // The recorder's own stepping: it is to have its trap.
                WaitStatus::Stopped(_, Signal::SIGTRAP) => {
                    assert!(STEP_CODES.contains(&self.code()), "a trap of nobody");
                    steps += 1;
                    next = Some(Signal::SIGTRAP);
                }
                // A fault is the recorder's to absorb, a child's end the host's
                // to hear of. What kills in spite of that ends the loop below.
                WaitStatus::Stopped(_, signal) => next = Some(signal),
                WaitStatus::Exited(_, code) => {
                    assert_eq!(code, 0, "exit code");
                    break;
                }
                other => panic!("it ended otherwise: {other:?}"),
            }
        }
        let mut output = String::new();
        self.output.read_to_string(&mut output).expect("its output");
        Ended {
            output,
            steps,
            profile: self.profile,
            _folder: self._folder,
        }
    }
}

/// A line of /proc/PID/maps; the first one of a file maps its beginning.
struct Mapping {
    range: std::ops::Range<u64>,
    path: PathBuf,
}

impl Mapping {
    fn parse(line: &str) -> Option<Mapping> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let path = fields.nth(4)?.into();
        Some(Mapping {
            range: number(start)?..number(end)?,
            path,
        })
    }
}
