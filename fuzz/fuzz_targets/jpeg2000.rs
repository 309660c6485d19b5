#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| trainer_fuzz::jpeg2000(bytes));
