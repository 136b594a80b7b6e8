//! [`Faults`]: codes that calls and operations are to fail with, as tests have set them.

use crate::code::Code;

/// Faults that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    calls: Vec<CallFault>,
    operations: Vec<(u64, Code)>,
}

#[derive(Debug)]
struct CallFault {
    /// `None`: whichever call comes.
    function: Option<String>,
    /// How many matching calls are left, the failing one included.
    left: u64,
    code: Code,
    sticky: bool,
}

impl Faults {
    pub(crate) fn fail_call(&mut self, function: Option<String>, kth: u64, code: Code, sticky: bool) {
        self.calls.push(CallFault { function, left: kth.max(1), code, sticky });
    }

    pub(crate) fn fail_operation(&mut self, kth: u64, code: Code) {
        self.operations.push((kth.max(1), code));
    }

    /// Counts a call: the code that it is to fail with, and whether its context fails with it.
    pub(crate) fn on_call(&mut self, name: &str) -> Option<(Code, bool)> {
        // Texts are asked for while an error is reported: to fail there too would only hide it.
        let is_text = name.starts_with("cuGetError");
        for fault in &mut self.calls {
            let matches = fault.function.as_deref().map_or(!is_text, |function| function == name);
            fault.left -= u64::from(matches);
        }
        let due = self.calls.iter().position(|fault| fault.left == 0)?;
        // A further fault that is due at the same call fails the next one.
        for fault in self.calls.iter_mut().skip(due + 1).filter(|fault| fault.left == 0) {
            fault.left = 1;
        }
        let fault = self.calls.remove(due);
        Some((fault.code, fault.sticky))
    }

    /// Counts a completed operation: the code that it is to fail with.
    pub(crate) fn on_operation(&mut self) -> Option<Code> {
        for (left, _) in &mut self.operations {
            *left = left.saturating_sub(1);
        }
        let due = self.operations.iter().position(|(left, _)| *left == 0)?;
        Some(self.operations.remove(due).1)
    }

    pub(crate) fn left(&self) -> usize {
        self.calls.len() + self.operations.len()
    }
}
