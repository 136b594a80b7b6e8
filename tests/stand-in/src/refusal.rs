//! [`Refusal`]: a call that is answered with a code, and whether that is because it was wrong to make it.

use crate::code::Code;

/// Why a call fails.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    /// What is wrong with the call, where it breaks a rule of the driver; such calls are counted as violations.
    pub(crate) misuse: Option<String>,
}

impl Refusal {
    pub(crate) fn misuse(code: Code, text: impl Into<String>) -> Self {
        Self { code, misuse: Some(text.into()) }
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self { code, misuse: None }
    }
}
