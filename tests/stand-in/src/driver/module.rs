//! Modules: PTX texts.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{CStr, c_char};

use super::write::write;
use crate::call::{Needs, call};
use crate::code::Code;
use crate::refusal::Refusal;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut usize, image: *const c_char) -> i32 {
    call("cuModuleLoadData", Needs::Context, format_args!(""), |call| {
        if image.is_null() {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "there is no image"));
        }
        // SAFETY: the driver's contract; text ends with a 0, and in other images the first one comes early.
        let image = unsafe { CStr::from_ptr(image) };
        let text = image.to_str().map_err(|_| Code::INVALID_IMAGE)?;
        if text.starts_with("\u{7f}ELF") {
            return Err(Code::INVALID_IMAGE.into());
        }
        let context = call.context;
        let made = call.load_module(context, text)?;
        call.result(format_args!("module={made:#x}"));
        // SAFETY: the driver's contract.
        unsafe { write(module, made) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: usize) -> i32 {
    call("cuModuleUnload", Needs::Context, format_args!("module={module:#x}"), |call| {
        call.find_module(module)?;
        call.modules.remove(&module);
        call.functions.retain(|_, function| function.module != module);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) -> i32 {
    call("cuModuleGetFunction", Needs::Context, format_args!("module={module:#x}"), |call| {
        if name.is_null() {
            return Err(Refusal::misuse(Code::INVALID_VALUE, "there is no name"));
        }
        // SAFETY: the driver's contract.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Code::NOT_FOUND)?;
        call.result(format_args!("name={name}"));
        let found = call.function_of(module, name)?;
        // SAFETY: the driver's contract.
        unsafe { write(function, found) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: usize) -> i32 {
    let arguments = format_args!("attribute={attribute} function={function:#x}");
    call("cuFuncGetAttribute", Needs::Context, arguments, |call| {
        let module = call.find_function(function)?.module;
        let known = match attribute {
            0 => 1024,
            4 => 32,
            5 | 6 => call.find_module(module)?.ptx_version,
            1..=9 => 0,
            _ => return Err(Code::INVALID_VALUE.into()),
        };
        // SAFETY: the driver's contract.
        unsafe { write(value, known) }
    })
}
