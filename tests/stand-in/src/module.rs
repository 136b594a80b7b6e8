//! [`Module`] and [`Function`]: the entries of a PTX text.

use crate::code::Code;
use crate::ptx::{Entry, Ptx};
use crate::refusal::Refusal;
use crate::world::World;

/// A loaded text.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: usize,
    entries: Vec<Entry>,
    pub(crate) ptx_version: i32,
}

/// A kernel of a module.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) module: usize,
    pub(crate) entry: Entry,
}

impl World {
    pub(crate) fn load_module(&mut self, context: usize, image: &str) -> Result<usize, Refusal> {
        let ptx = Ptx::parse(image).ok_or(Code::INVALID_PTX)?;
        // CUDA 12.x reads PTX up to 8.x, about.
        let newest = (self.settings.version / 1000 - 4, self.settings.version % 1000 / 10);
        if ptx.version > newest {
            return Err(Code::UNSUPPORTED_PTX_VERSION.into());
        }
        let device = self.device_of(context);
        let capability = 10 * self.settings.attribute(device, 75) + self.settings.attribute(device, 76);
        if ptx.target > capability {
            return Err(Code::NO_BINARY_FOR_GPU.into());
        }
        let handle = self.new_handle();
        let ptx_version = 10 * ptx.version.0 + ptx.version.1;
        self.modules.insert(handle, Module { context, entries: ptx.entries, ptx_version });
        Ok(handle)
    }

    pub(crate) fn find_module(&self, handle: usize) -> Result<&Module, Refusal> {
        let module = self.modules.get(&handle);
        module.ok_or_else(|| Refusal::misuse(Code::INVALID_HANDLE, format!("{handle:#x} is no module")))
    }

    /// The module's kernel of that name; the handle is the same each time.
    pub(crate) fn function_of(&mut self, module: usize, name: &str) -> Result<usize, Refusal> {
        let entry = self.find_module(module)?.entries.iter().find(|entry| entry.name == name);
        let entry = entry.ok_or(Code::NOT_FOUND)?.clone();
        let known = self.functions.iter().find(|(_, known)| known.module == module && known.entry.name == name);
        if let Some((handle, _)) = known {
            return Ok(*handle);
        }
        let handle = self.new_handle();
        self.functions.insert(handle, Function { module, entry });
        Ok(handle)
    }

    pub(crate) fn find_function(&self, handle: usize) -> Result<&Function, Refusal> {
        let function = self.functions.get(&handle);
        function.ok_or_else(|| Refusal::misuse(Code::INVALID_HANDLE, format!("{handle:#x} is no function")))
    }
}
