//! Files of weights from strangers: each is refused with its name, in little memory and time, and runs nothing.
//!
//! Tables of predictions are in `src/evaluate/predictions/tests.rs` and `tests/eval/compare.rs`, cut and changed
//! files of PyTorch's and SafeTensors in `src/model/weights/mod.rs`.

use std::fs;
use std::path::Path;
use std::process::Command;

use flate2::{Compress, Compression, FlushCompress};

const CONFIG: &str = "
device.use = 'cpu'
run.name = 'case'
data.image = { size = [32, 32], channels = 3 }
data.csv = { table = 'a.csv', image = 'path' }
model.densenet = { growth = 4, blocks = [2, 2], stem = 8 }
train = { epochs = 1, batch_size = 2, optimizer = 'adamw' }
heads = [{ name = 'findings', task = 'multilabel', labels = ['A'] }]
";

/// Kilobytes of addresses that the program may take: less than the files say that they hold.
const MOST: u32 = 2_500_000;

/// What the program says of `file`, which it refuses with exit code 3.
fn refused(folder: &Path, file: &str, bytes: &[u8]) -> String {
    fs::write(folder.join(file), bytes).expect("is written");
    fs::write(folder.join("case.toml"), CONFIG).expect("is written");
    let program = env!("CARGO_BIN_EXE_trainer");
    let found = Command::new("sh")
        .args(["-c", &format!("ulimit -v {MOST}; exec \"$0\" import \"$1\" --config case.toml")])
        .args([program, file])
        .current_dir(folder)
        .output()
        .expect("runs");
    let told = String::from_utf8(found.stderr).expect("UTF-8");
    assert_eq!(found.status.code(), Some(3), "{file}: {told}");
    assert!(told.contains(file) && !told.contains("panicked"), "{file}: {told}");
    told
}

/// An entry of an archive.
struct Entry<'a> {
    name: &'a str,
    /// As they lie in the file.
    bytes: &'a [u8],
    /// What it says that they become, where they are compressed.
    unpacked: Option<u32>,
}

/// A ZIP file, as `torch.save` writes it; the checksums are 0, which readers take for unknown.
fn archive(entries: &[Entry]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for Entry { name, bytes, unpacked } in entries {
        let at = file.len() as u32;
        let method: u16 = if unpacked.is_some() { 8 } else { 0 };
        let size = bytes.len() as u32;
        let mut header = [20, 0, method, 0, 0].map(u16::to_le_bytes).concat();
        header.extend([0, size, unpacked.unwrap_or(size)].map(u32::to_le_bytes).concat());
        header.extend([name.len() as u16, 0].map(u16::to_le_bytes).concat());
        file.extend([b"PK\x03\x04", &header[..], name.as_bytes(), bytes].concat());
        directory.extend([b"PK\x01\x02\x14\x00", &header[..], &[0; 10]].concat());
        directory.extend([&at.to_le_bytes()[..], name.as_bytes()].concat());
    }
    let (begin, count) = (file.len() as u32, entries.len() as u16);
    let counts = [0, 0, count, count].map(u16::to_le_bytes).concat();
    let ends = [directory.len() as u32, begin].map(u32::to_le_bytes).concat();
    [&file[..], &directory, b"PK\x05\x06", &counts, &ends, &[0, 0]].concat()
}

/// So many MiB of zeros in a thousandth of them.
fn zeros(mebibytes: usize) -> Vec<u8> {
    let mut compress = Compress::new(Compression::best(), false);
    let mut piece = |flush| {
        let mut bytes = Vec::with_capacity(1 << 16);
        compress.compress_vec(&[0; 1 << 20], &mut bytes, flush).expect("compresses");
        bytes
    };
    let first = piece(FlushCompress::Full);
    // From the second on all pieces are alike.
    let next = piece(FlushCompress::Full);
    let end = piece(FlushCompress::Finish);
    [first, next.repeat(mebibytes - 2), end].concat()
}

#[test]
fn a_small_archive_of_gigabytes_is_refused_before_they_are_unpacked() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = zeros(3000);
    assert!(bytes.len() < 4 << 20);
    for (file, unpacked) in [("honest.pth", 3000 << 20), ("lying.pth", 100)] {
        let unpacked = Some(unpacked);
        let pickle = Entry { name: "archive/data.pkl", bytes: &bytes, unpacked };
        refused(folder.path(), file, &archive(&[pickle]));
    }
    // What torch.save wrote of a tensor of 3,000 MiB, its numbers compressed.
    let pickle = b"\x80\x02}q\x00X\x16\x00\x00\x00features.conv0.weight\x00q\x01ctorch._utils\n_rebuild_tensor_v2\n\
        ((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuJ\x00\x00\xe0\x2et\
        QK\x00(J\x00\x00\xe0\x2et(K\x01t\x89ccollections\nOrderedDict\n)RtRs.";
    let entries = [
        Entry { name: "archive/data.pkl", bytes: pickle, unpacked: None },
        Entry { name: "archive/data/0", bytes: &bytes, unpacked: Some(3000 << 20) },
        Entry { name: "archive/version", bytes: b"3\n", unpacked: None },
    ];
    let told = refused(folder.path(), "numbers.pth", &archive(&entries));
    assert!(told.contains("claims to hold 3145728000"), "{told}");
}

#[test]
fn a_pickle_that_would_run_a_command_runs_nothing_in_any_kind_of_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = folder.path().join("made");
    // What Python pickles of an object whose __reduce__ gives os.system and a command.
    let command = format!("touch '{}'", made.display());
    let call = |protocol: u8| {
        let length = (command.len() as u32).to_le_bytes();
        [&[0x80, protocol][..], b"cposix\nsystem\nX", &length, command.as_bytes(), b"\x85R."]
            .concat()
    };
    let old = format!("cposix\nsystem\n(S\"{command}\"\ntR.").into_bytes();
    for (number, pickle) in [call(2), call(4), old].into_iter().enumerate() {
        refused(folder.path(), &format!("bare{number}.pth"), &pickle);
        let entry = Entry { name: "archive/data.pkl", bytes: &pickle, unpacked: None };
        refused(folder.path(), &format!("archive{number}.pth"), &archive(&[entry]));
        assert!(!made.exists(), "a command ran");
    }
}

#[test]
fn pickles_that_grow_nest_or_claim_more_than_there_is_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let laughs: Vec<u8> =
        (0..60).flat_map(|place| [b'(', b'h', place, b'h', place, b'l', b'q', place + 1]).collect();
    for (file, pickle) in [
        ("doubling.pth", [b"\x80\x02]q\x00", &laughs[..], b"."].concat()),
        ("marks.pth", [b"\x80\x02", &[b'('; 200_000][..], b"."].concat()),
        ("nested.pth", [b"\x80\x02", &[b']'; 20_000][..], &[b'a'; 19_999], b"."].concat()),
        ("text.pth", b"\x80\x02X\xff\xff\xff\x7fabc.".to_vec()),
        ("longer.pth", b"\x80\x04\x8d\0\0\0\0\0\0\0\x40abc.".to_vec()),
    ] {
        let entry = Entry { name: "archive/data.pkl", bytes: &pickle, unpacked: None };
        refused(folder.path(), file, &archive(&[entry]));
    }
}

/// A SafeTensors file with this header and so many bytes of numbers.
fn safetensors(header: &str, numbers: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; numbers]].concat()
}

#[test]
fn headers_of_safetensors_that_lie_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let tensor = |name: &str, shape: &str, begin: u64, end: u64| {
        format!(
            r#""{name}": {{"dtype": "F32", "shape": {shape}, "data_offsets": [{begin}, {end}]}}"#
        )
    };
    let of = |tensors: &[String]| format!("{{{}}}", tensors.join(", "));
    let mut endless = safetensors(&of(&[tensor("a", "[2]", 0, 8)]), 8);
    endless[..8].copy_from_slice(&(1_u64 << 63).to_le_bytes());
    refused(folder.path(), "endless.safetensors", &endless);
    for (file, header, numbers) in [
        ("overlapping", of(&[tensor("a", "[2]", 0, 8), tensor("b", "[2]", 4, 12)]), 12),
        ("same", of(&[tensor("a", "[2]", 0, 8), tensor("b", "[2]", 0, 8)]), 8),
        ("hole", of(&[tensor("a", "[2]", 0, 8), tensor("b", "[2]", 16, 24)]), 24),
        ("backwards", of(&[tensor("a", "[2]", 8, 0)]), 8),
        ("beyond", of(&[tensor("a", "[274877906944]", 0, 1 << 40)]), 8),
        ("overflow", of(&[tensor("a", "[4611686018427387904, 8]", 0, 8)]), 8),
        ("negative", of(&[tensor("a", "[-2]", 0, 8)]), 8),
        ("nested", format!("{{\"a\": {}", "[".repeat(1_000_000)), 0),
        ("nothing", String::from("{}"), 0),
    ] {
        let bytes = safetensors(&header, numbers);
        refused(folder.path(), &format!("{file}.safetensors"), &bytes);
    }
    refused(folder.path(), "empty.safetensors", b"");
    refused(folder.path(), "empty.pth", b"");
}
