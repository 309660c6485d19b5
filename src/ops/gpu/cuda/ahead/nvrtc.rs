//! From CUDA C++ to machine code, by NVRTC.
#![expect(unsafe_code, reason = "NVRTC's machine code is read by its C interface alone")]

use std::ffi::{CStr, CString, c_char, c_int};

use cudarc::nvrtc::{result, sys};

/// NVRTC's version, such as `13.0`.
pub(super) fn version() -> String {
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    // SAFETY: both point to integers that outlive the call.
    let _ = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    format!("{major}.{minor}")
}

/// The machine code of `text`. Any number of threads may compile at once.
///
/// # Errors
///
/// What the compiler says.
pub(super) fn compile(text: &str, options: &[String]) -> Result<Vec<u8>, String> {
    let text = CString::new(text).map_err(|_| "the text holds a zero".to_owned())?;
    let program = Program::new(&text)?;
    program.compile(options)?;
    program.code()
}

struct Program(sys::nvrtcProgram);

impl Program {
    fn new(text: &CStr) -> Result<Self, String> {
        result::create_program(text, None).map(Self).map_err(|error| error.to_string())
    }

    fn compile(&self, options: &[String]) -> Result<(), String> {
        // SAFETY: the program was created and is not destroyed before it is dropped.
        let compiled = unsafe { result::compile_program(self.0, options) };
        compiled.map_err(|error| {
            // SAFETY: as above.
            match unsafe { result::get_program_log(self.0) } {
                Ok(log) => log.into_iter().map(|byte| char::from(byte as u8)).collect(),
                Err(_) => error.to_string(),
            }
        })
    }

    fn code(&self) -> Result<Vec<u8>, String> {
        let mut size = 0;
        // SAFETY: the program has been compiled; `size` outlives the call.
        let sized = unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) };
        sized.result().map_err(|error| error.to_string())?;
        let mut code = vec![0_u8; size];
        // SAFETY: `code` has room for as many bytes as the program has.
        let read = unsafe { sys::nvrtcGetCUBIN(self.0, code.as_mut_ptr().cast::<c_char>()) };
        read.result().map_err(|error| error.to_string())?;
        Ok(code)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: it was created, and nothing uses it after this.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}
