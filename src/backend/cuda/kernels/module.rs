//! [`Module`]: the kernels of one PTX text, as one context has them.
#![expect(unsafe_code, reason = "makes driver calls")]

use std::ffi::{CStr, c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUmodule, CUstream};

use super::super::context::{Context, Raw};
use crate::backend::Fault;

/// Kernels, loaded.
#[derive(Debug)]
pub(super) struct Module {
    context: Arc<Context>,
    module: Raw<CUmodule>,
    functions: Vec<Raw<CUfunction>>,
}

impl Module {
    /// Loads the kernels of those names from a text that ends with a 0.
    pub(super) fn load(context: &Arc<Context>, ptx: &'static CStr, names: &[&CStr]) -> Result<Self, Fault> {
        let (driver, _inside) = (context.driver, context.enter()?);
        let mut module = std::ptr::null_mut();
        // SAFETY: the text ends with a 0; the handle is written.
        unsafe { driver.module_load(&raw mut module, ptx.as_ptr().cast()) }?;
        let mut loaded = Self { context: context.clone(), module: Raw(module), functions: Vec::new() };
        for name in names {
            let mut function = std::ptr::null_mut();
            // SAFETY: the module is loaded, the name ends with a 0; the handle is written.
            unsafe { driver.module_function(&raw mut function, module, name.as_ptr()) }?;
            loaded.functions.push(Raw(function));
        }
        Ok(loaded)
    }

    /// Enqueues the kernel at that place of the names. The context is current.
    ///
    /// # Safety
    ///
    /// There are as many parameters as the kernel has, each the address of a value of its type; what the kernel touches stays
    /// valid until an event behind it has fired; the stream lives.
    pub(super) unsafe fn launch(
        &self,
        place: usize,
        stream: CUstream,
        (blocks, threads): (c_uint, (c_uint, c_uint)),
        parameters: &mut [*mut c_void],
    ) -> Result<(), Fault> {
        let Some(function) = self.functions.get(place) else {
            return Err(Fault::new(Fault::INVALID_HANDLE, "cuLaunchKernel"));
        };
        let ((x, y), none) = (threads, std::ptr::null_mut());
        let (driver, parameters) = (self.context.driver, parameters.as_mut_ptr());
        // SAFETY: the caller's contract.
        unsafe { driver.launch(function.0, blocks, 1, 1, x, y, 1, 0, stream, parameters, none) }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let Ok(_inside) = self.context.enter() else { return };
        // SAFETY: the module is ours and this is its last use; no kernel of it is pending (invariant 12).
        let _ = unsafe { self.context.driver.module_unload(self.module.0) };
    }
}
