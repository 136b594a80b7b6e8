//! [`call`], in which each function of the driver runs: counting, injected faults, the lock, the log, and panics that end here.

use std::fmt::{Arguments, Write};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{MutexGuard, PoisonError};

use crate::code::Code;
use crate::refusal::Refusal;
use crate::thread;
use crate::world::{MOVED, World, lock};

/// What must be there before a function may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// `cuInit` was called.
    Init,
    /// A context is current on the thread.
    Context,
}

/// A call that is being made, with the world locked for it.
#[derive(Debug)]
pub(crate) struct Call {
    /// `None` only inside `wait_until`.
    world: Option<MutexGuard<'static, World>>,
    /// The current context, for calls that need one.
    pub(crate) context: usize,
    results: String,
}

/// Makes a call: the code that the driver's function returns.
pub(crate) fn call(
    name: &'static str,
    needs: Needs,
    arguments: Arguments<'_>,
    body: impl FnOnce(&mut Call) -> Result<(), Refusal>,
) -> i32 {
    // A panic must not reach C; half a call is then done, and a test that looks at violations sees it.
    let made = catch_unwind(AssertUnwindSafe(|| {
        let mut call = Call { world: Some(lock()), context: 0, results: String::new() };
        let code = call.make(name, needs, body);
        let Call { world: Some(mut world), results, .. } = call else { return code };
        world.log.line(name, arguments, &results, code);
        code
    }));
    made.map_or_else(
        |_| {
            lock().counts.violated(format!("{name}: the stand-in panicked"));
            Code::UNKNOWN.0
        },
        |code| code.0,
    )
}

impl Call {
    fn make(&mut self, name: &'static str, needs: Needs, body: impl FnOnce(&mut Self) -> Result<(), Refusal>) -> Code {
        self.log.count(name);
        if let Some((code, sticky)) = self.faults.on_call(name) {
            if sticky {
                self.poison(thread::context(), code);
            }
            return code;
        }
        match self.check(needs).and_then(|()| body(self)) {
            Ok(()) => Code(0),
            Err(Refusal { code, misuse }) => {
                if let Some(text) = misuse {
                    self.counts.violated(format!("{name}: {text}"));
                }
                code
            }
        }
    }

    fn check(&mut self, needs: Needs) -> Result<(), Refusal> {
        if needs == Needs::Nothing {
            return Ok(());
        }
        if thread::is_in_host_function() {
            return Err(Refusal::misuse(Code::NOT_PERMITTED, "called in a host function"));
        }
        if !self.is_initialised {
            return Err(Refusal::misuse(Code::NOT_INITIALIZED, "called before cuInit"));
        }
        self.catch_up();
        if needs == Needs::Context {
            self.context = thread::context();
            if self.context == 0 {
                return Err(Refusal::misuse(Code::INVALID_CONTEXT, "no context is current"));
            }
            self.check_context(self.context)?;
        }
        Ok(())
    }

    /// Tells the log what the call gave.
    pub(crate) fn result(&mut self, text: Arguments<'_>) {
        let _ = write!(self.results, " {text}");
    }

    /// Blocks the calling thread, the world unlocked, until `done`.
    pub(crate) fn wait_until(&mut self, done: impl Fn(&World) -> bool) {
        loop {
            self.catch_up();
            if done(self) {
                return;
            }
            self.waiters += 1;
            if let Some(world) = self.world.take() {
                self.world = Some(MOVED.wait(world).unwrap_or_else(PoisonError::into_inner));
            }
            self.waiters -= 1;
        }
    }
}

impl Deref for Call {
    type Target = World;

    fn deref(&self) -> &World {
        match &self.world {
            Some(world) => world,
            None => unreachable!("the world is taken while the call waits only"),
        }
    }
}

impl DerefMut for Call {
    fn deref_mut(&mut self) -> &mut World {
        match &mut self.world {
            Some(world) => world,
            None => unreachable!("the world is taken while the call waits only"),
        }
    }
}
