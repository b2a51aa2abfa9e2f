//! Managed execution: a LuaJIT is brought to an exact instruction by a tracer
//! and gets the profiling signal there.
//!
//! Knows: which places in the VM are delicate, and what a stack is there. The
//! tracer is in `tracee`, the VM's functions in `host`, the stream in `profile`.
//! Each test is one place where profilers of this kind have crashed or shown a
//! stack that was not there. The process must end as it would have without the
//! signal, and its stream be whole and hold exactly the one sample.
//!
//! The places are those of one build: the code of a VM with 64-bit references,
//! as of 2026. What holds in all of them is stepped through elsewhere.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod host;
mod profile;
mod tracee;

use ljp::{Reason, VmState};
use profile::{Sample, only_sample, whole};
use tracee::{Attach, Ended, Tracee};

/// The outermost function that Lua knows: the program's own C function.
const PMAIN: &str = "pmain";

fn interpreted(program: &str) -> Tracee {
    Tracee::new(program, &["-joff"], Attach::AfterStart)
}

/// The sample of a program that has printed `output` and met the signal in the
/// functions `lua`, innermost first.
#[track_caller]
fn sample_of(ended: &Ended, output: &str, state: VmState, lua: &[&str]) -> Sample {
    assert_eq!(ended.output, output, "what the program printed");
    let sample = only_sample(ended.profile());
    assert_eq!(sample.lua(), lua, "{sample:#?}");
    assert_eq!(sample.state, state, "{sample:#?}");
    assert!(sample.is_rooted(), "{sample:#?}");
    sample
}

/// Asserts that the innermost native frames are these.
#[track_caller]
fn assert_inside(sample: &Sample, native: &[&str]) {
    let top = sample.native_on_top();
    assert!(top.starts_with(native), "not in {native:?}: {top:?}");
}

/// Whether the next instruction writes a register to where the running
/// function is kept, `[rdx - 16]`: a built-in puts its first result there.
fn replaces_function(tracee: &Tracee) -> bool {
    let [rex, opcode, modrm, displacement, ..] = tracee.instruction();
    // REX.W with any R bit, MOV to memory, an 8-bit displacement from rdx.
    rex & 0xfb == 0x48 && opcode == 0x89 && modrm & 0xc7 == 0x42 && displacement as i8 == -16
}

/// `work` calls `tostring`.
const TOSTRING: &str = "\
local function work(x)
  local text = tostring(x)
  return text
end
print(work 'as it is')
";

#[test]
fn tostring_about_to_return_its_only_result() {
    let mut tracee = interpreted(TOSTRING);
    tracee.run_to("lj_ff_tostring");
    tracee.step_until("the result's instruction", replaces_function);
    assert_eq!(tracee.function(), Some("lj_ff_tostring"));

    let ended = tracee.sampled();
    let stack = ["tostring", "work:2", "main:5", PMAIN];
    sample_of(&ended, "as it is\n", VmState::Ffunc, &stack);
    assert_eq!(ended.steps, 0, "the sample is of this very instruction");
}

#[test]
fn tostring_with_its_result_where_its_function_was() {
    let mut tracee = interpreted(TOSTRING);
    tracee.run_to("lj_ff_tostring");
    tracee.step_until("the result's instruction", replaces_function);
    tracee.step();

    let ended = tracee.sampled();
    // There is no frame to see: the program has gone on until there was one.
    let stack = ["work:3", "main:5", PMAIN];
    sample_of(&ended, "as it is\n", VmState::Lfunc, &stack);
    assert!(ended.steps > 0);
}

#[test]
fn under_a_debugger_a_place_between_frames_is_no_stack() {
    let mut tracee = Tracee::new(TOSTRING, &["-joff"], Attach::BeforeStart);
    tracee.run_to("lj_ff_tostring");
    tracee.step_until("the result's instruction", replaces_function);
    tracee.step();

    let ended = tracee.sampled();
    assert_eq!(ended.output, "as it is\n");
    assert_eq!(ended.steps, 0, "traps are the debugger's");
    let profile = whole(ended.profile());
    assert_eq!(profile.records, 1);
    let reasons: Vec<_> = profile.by_reason.into_iter().collect();
    assert_eq!(reasons, [(Reason::Unsettled.number(), 1)]);
}

#[test]
fn pairs_with_next_where_its_function_was() {
    let mut tracee = interpreted(
        "\
local function each(t)
  for k, v in
    pairs(t) do
    print(k, v)
  end
end
each { one = 1 }
",
    );
    tracee.run_to("lj_ff_pairs");
    let slot = tracee.registers().rdx - 16;
    let pairs = tracee.word(slot);
    tracee.step_until("the result's instruction", replaces_function);
    tracee.step();
    assert_ne!(tracee.word(slot), pairs);
    assert_eq!(tracee.function(), Some("lj_ff_pairs"));

    // `next` was not called, and must not be seen.
    let ended = tracee.sampled();
    let stack = ["each:3", "main:7", PMAIN];
    sample_of(&ended, "one\t1\n", VmState::Lfunc, &stack);
}

/// `hot` becomes a trace, which is freed in the end.
const HOT: &str = "\
local function hot(n)
  local x = 0
  for i = 1, n do
    x = x + i
  end
  return x
end
print(hot(1000))
jit.flush()
collectgarbage()
";
const COMPILED: [&str; 1] = ["-Ohotloop=2"];

#[test]
fn a_trace_that_is_being_recorded() {
    let mut tracee = Tracee::new(HOT, &COMPILED, Attach::AfterStart);
    tracee.run_to("lj_record_ins");

    // It has a number already, and neither code nor a place in the array.
    let ended = tracee.sampled();
    let stack = ["hot:4", "main:8", PMAIN];
    let sample = sample_of(&ended, "500500\n", VmState::Record, &stack);
    assert_inside(&sample, &["lj_record_ins"]);
}

#[test]
fn a_trace_that_is_being_assembled() {
    let mut tracee = Tracee::new(HOT, &COMPILED, Attach::AfterStart);
    tracee.run_to("lj_asm_trace");

    let ended = tracee.sampled();
    let stack = ["hot:3", "main:8", PMAIN];
    let sample = sample_of(&ended, "500500\n", VmState::Asm, &stack);
    assert_inside(&sample, &["lj_asm_trace"]);
}

#[test]
fn a_trace_that_arrives() {
    let mut tracee = Tracee::new(HOT, &COMPILED, Attach::AfterStart);
    tracee.run_to("lj_mcode_commit");
    // Its code is whole and its bytecode not patched yet; the next trace is the
    // one after it.
    let ended = tracee.sampled();
    let stack = ["hot:3", "main:8", PMAIN];
    let sample = sample_of(&ended, "500500\n", VmState::Asm, &stack);
    assert_inside(&sample, &["lj_mcode_commit"]);
}

#[test]
fn a_prototype_that_arrives() {
    let mut tracee = interpreted(
        "\
local function loads()
  return (loadstring 'return 7')
end
print(loads()())
",
    );
    tracee.run_to("lj_cf_loadstring");
    tracee.run_to("fs_finish");
    // Memory for it is there, and nothing in it.
    tracee.run_to("lj_mem_newgco");
    let entered = tracee.registers().rsp;
    tracee.step_until("its return", |tracee| tracee.registers().rsp > entered);

    let ended = tracee.sampled();
    let stack = ["loadstring", "loads:2", "main:4", PMAIN];
    let sample = sample_of(&ended, "7\n", VmState::Ffunc, &stack);
    assert_inside(&sample, &["fs_finish"]);
}

/// Its first call, with a sample that waits for a frame to see.
#[test]
fn a_prototype_that_arrives_while_a_sample_waits() {
    let mut tracee = interpreted(
        "\
local function calls()
  local chunk = loadstring 'return 7'
  local value = chunk()
  return value
end
print(calls())
",
    );
    tracee.run_to("lj_cf_loadstring");
    tracee.run_to("lj_BC_CALL");
    // The callee's frame is made: its base is not the caller's any more.
    let base = tracee.registers().rdx;
    tracee.step_until("the callee's base", |tracee| tracee.registers().rdx != base);

    let ended = tracee.sampled();
    let stack = ["main:0", "calls:3", "main:6", PMAIN];
    let sample = sample_of(&ended, "7\n", VmState::Lfunc, &stack);
    assert!(ended.steps > 0, "{sample:#?}");
}

#[test]
fn a_trace_that_is_being_freed() {
    let mut tracee = Tracee::new(HOT, &COMPILED, Attach::AfterStart);
    tracee.run_to("lj_trace_free");

    let ended = tracee.sampled();
    let stack = ["collectgarbage", "main:10", PMAIN];
    let sample = sample_of(&ended, "500500\n", VmState::Gc, &stack);
    assert_inside(&sample, &["lj_trace_free"]);
}

#[test]
fn every_instruction_of_an_entry_that_has_no_lua_frame_yet() {
    for instructions in 0.. {
        let mut tracee = interpreted("print 'entered'\n");
        // The chunks before this one have returned: nothing of Lua is below but
        // the program's own C function.
        tracee.run_to("lj_vm_pcall");
        for _ in 0..instructions {
            tracee.step();
        }
        // The header of the chunk is the first bytecode.
        if tracee
            .function()
            .is_some_and(|name| name.starts_with("lj_BC_"))
        {
            assert!(instructions > 10, "an entry takes more than that");
            break;
        }
        // Either nobody is called yet, or the chunk was: at its beginning.
        let ended = tracee.sampled();
        let stack = ["main:0", PMAIN];
        sample_of(&ended, "entered\n", VmState::Lfunc, &stack);
    }
}

#[test]
fn finalizers_of_a_state_that_is_being_closed() {
    let mut tracee = interpreted("print 'done'\n");
    tracee.run_to("lua_close");
    // No thread is running any more, as far as the VM says.
    tracee.run_to("cpfinalize");

    let ended = tracee.sampled();
    let sample = sample_of(&ended, "done\n", VmState::Cfunc, &[]);
    assert_inside(&sample, &["cpfinalize", "lua_close", "main"]);
}

#[test]
fn nothing_is_left_in_the_last_instructions_of_lua_close() {
    let mut tracee = interpreted("print 'done'\n");
    let caught = |tracee: &Tracee| {
        let status = tracee.proc("status");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        u64::from_str_radix(mask.expect("a mask").trim(), 16).expect("a number")
    };
    let ours = [libc::SIGPROF, libc::SIGTRAP, libc::SIGSEGV, libc::SIGBUS]
        .map(|signal| 1 << (signal - 1))
        .iter()
        .sum::<u64>();
    assert_eq!(caught(&tracee) & ours, ours);
    assert_eq!(tracee.threads(), 2);
    assert_ne!(tracee.proc("timers"), "");

    // Now the memory goes that a handler would look at.
    tracee.run_to("close_state");
    assert_eq!(caught(&tracee) & ours, 0, "handlers");
    assert_eq!(tracee.threads(), 1, "threads");
    assert_eq!(tracee.proc("timers"), "", "timers");
    let ended = tracee.undisturbed();
    assert_eq!(ended.output, "done\n");
    assert_eq!(whole(ended.profile()).records, 0);
}

/// `tries` catches the error of `fails`.
const THROWS: &str = "\
local function fails()
  error('no', 0)
end
local function tries()
  return (pcall(fails))
end
print(tries())
";
/// Its stack up to the error. Who is called by `pcall` goes by no name.
const THROWING: [&str; 6] = [
    "error",
    "function at 1:2",
    "pcall",
    "tries:5",
    "main:7",
    PMAIN,
];

#[test]
fn an_error_that_is_being_thrown() {
    let mut tracee = interpreted(THROWS);
    tracee.run_to("lj_err_throw");
    let ended = tracee.sampled();
    let sample = sample_of(&ended, "false\n", VmState::Ffunc, &THROWING);
    assert_inside(&sample, &["lj_err_throw"]);
}

#[test]
fn an_error_whose_handler_is_being_looked_for() {
    let mut tracee = interpreted(THROWS);
    tracee.run_to("lj_err_throw");
    tracee.run_to("lj_err_unwind_dwarf");
    let ended = tracee.sampled();
    let sample = sample_of(&ended, "false\n", VmState::Ffunc, &THROWING);
    assert_inside(&sample, &["lj_err_unwind_dwarf", "_Unwind_RaiseException"]);
}

#[test]
fn an_error_that_is_unwinding_the_stack() {
    let mut tracee = interpreted(THROWS);
    tracee.run_to("lj_err_throw");
    tracee.run_to("lj_err_unwind_dwarf");
    tracee.step();
    // The second phase: the frames go.
    tracee.run_to("lj_err_unwind_dwarf");
    let base = tracee.word(tracee.registers().r8);
    assert_ne!(base, 0);
    let ended = tracee.sampled();
    sample_of(&ended, "false\n", VmState::Ffunc, &THROWING);
}

#[test]
fn every_instruction_of_an_error_about_to_arrive() {
    for instructions in 0.. {
        let mut tracee = interpreted(THROWS);
        tracee.run_to("lj_err_throw");
        let cframe = tracee.word(tracee.registers().rdi + 80) & !3;
        let arrival = tracee.address("lj_vm_unwind_ff_eh");
        // The unwinder returns into the VM, by an address that it has put below
        // the VM's C frame; its own stack pointer gets there last.
        let returns = |tracee: &Tracee| tracee.word(cframe - 8) == arrival;
        tracee.run_to("lj_err_unwind_dwarf");
        tracee.step();
        tracee.run_to("lj_err_unwind_dwarf");
        tracee.step_until("the return's address", returns);
        for _ in 0..instructions {
            tracee.step();
        }
        if tracee.registers().rip == arrival {
            assert!(instructions > 2, "the registers come in between");
            break;
        }
        // The unwinder has taken its own frames down: nothing is known to be there
        // until the error has arrived, which the sample waits for.
        let ended = tracee.sampled();
        sample_of(&ended, "false\n", VmState::Lfunc, &CAUGHT);
        assert!(ended.steps > 0, "{instructions}");
    }
}

const CAUGHT: [&str; 3] = ["tries:5", "main:7", PMAIN];

#[test]
fn an_error_that_has_arrived_where_it_is_caught() {
    let mut tracee = interpreted(THROWS);
    tracee.run_to("lj_vm_unwind_ff_eh");
    let ended = tracee.sampled();
    sample_of(&ended, "false\n", VmState::Lfunc, &CAUGHT);
}

#[test]
fn a_stack_that_has_moved_while_its_thread_does_not_know() {
    let mut tracee = interpreted(
        "\
local function deep(n)
  if n == 0 then return 0 end
  return 1 + deep(n - 1)
end
print(deep(100))
",
    );
    tracee.run_to("lj_state_growstack");
    // Its first argument is the thread, whose base has the argument of the call
    // for which the stack is too small.
    let thread = tracee.registers().rdi;
    let (base, stack) = (thread + 32, thread + 56);
    let left = f64::from_bits(tracee.word(tracee.word(base)));
    let (old_base, old_stack) = (tracee.word(base), tracee.word(stack));
    tracee.step_until("a new stack", |tracee| tracee.word(stack) != old_stack);
    assert_eq!(
        tracee.word(base),
        old_base,
        "the base is in the old one still"
    );

    let ended = tracee.sampled();
    let mut expected = vec!["deep:2"];
    expected.extend((left as u32..100).map(|_| "deep:3"));
    expected.extend(["main:5", PMAIN]);
    sample_of(&ended, "100\n", VmState::Lfunc, &expected);
    assert!(ended.steps > 0);
}

#[test]
fn inside_malloc() {
    let mut tracee = interpreted(
        "\
local function opens()
  return (io.open '/dev/null')
end
print(io.type(opens()))
",
    );
    tracee.run_to("lj_cf_io_open");
    tracee.step_to("malloc", tracee.libc("malloc"));
    let entered = tracee.registers().rsp;
    // Past its prologue, while it works on its own lists.
    for _ in 0..20 {
        tracee.step();
    }
    assert!(tracee.registers().rsp < entered, "not inside any more");

    let ended = tracee.sampled();
    let stack = ["io.open", "opens:2", "main:4", PMAIN];
    sample_of(&ended, "file\n", VmState::Ffunc, &stack);
}

#[test]
fn inside_dlopen() {
    let mut tracee = interpreted(
        "\
local ffi = require 'ffi'
local function loads()
  local library = ffi.load 'libresolv.so.2'
  return library
end
print(type(loads()))
",
    );
    tracee.run_to("lj_clib_load");
    tracee.step_to("dlopen", tracee.libc("dlopen"));
    // The loader's lock is held, and the library half there.
    tracee.step_to_call(libc::SYS_mmap);
    tracee.step();

    let ended = tracee.sampled();
    let stack = ["lj_cf_ffi_load", "loads:3", "main:6", PMAIN];
    sample_of(&ended, "userdata\n", VmState::Ffunc, &stack);
}

#[test]
fn inside_fork() {
    let mut tracee = interpreted(
        "\
local ffi = require 'ffi'
ffi.cdef 'int fork(void); int waitpid(int, int *, int);'
local function forks()
  local child = ffi.C.fork()
  return child
end
local child, status = forks(), ffi.new 'int[1]'
if child == 0 then os.exit(7) end
assert(ffi.C.waitpid(child, status, 0) == child)
print('the child ended with', status[0] / 256)
",
    );
    tracee.run_to("lj_vm_ffi_call");
    tracee.step_to("fork", tracee.libc("fork"));
    // The handlers of `pthread_atfork` have run, the process is still one.
    tracee.step_to_call(libc::SYS_clone);

    // The child has no session, and must not touch its parent's.
    let ended = tracee.sampled();
    let output = "the child ended with\t7\n";
    let stack = ["lj_cf_ffi_meta___call", "forks:4", "main:7", PMAIN];
    sample_of(&ended, output, VmState::Ffunc, &stack);
}
